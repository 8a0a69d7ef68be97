//! The node.

use std::ffi::{CStr, c_char};
use std::time::Duration;

use sumlink_edge::visible::Boost;
use sumlink_edge::{Config, Edge, LinkId, LinkSettings, Mode, Sack};

use crate::{bytes, give, nanos, refuse};

/// Configuration of a node. Names are null or zero-terminated; null selects the core's default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SumlinkEdgeConfig {
    /// `lwip`, `lwa` or `lwip+visible` (the default).
    pub mode: *const c_char,
    /// `qdepl` (the default), `lrtt`, `roundrobin` or `flowhash`.
    pub steering: *const c_char,
    /// `rewrite` (the default) or `strip`.
    pub sack: *const c_char,
    /// 0 disables boosting: only the user's own acknowledgments are passed on. 2 boosts many
    /// duplicates of a gap, any other value at most one.
    pub boost: u8,
    /// Links, 1 to 255.
    pub links: u8,
    /// Capacity of each link's queue in packets, at least 1.
    pub queue: u32,
    /// Null, or one rate per link in bytes per second; 0 if unknown.
    pub rates: *const f64,
}

/// Counters since the start, those of `Counters` in the core.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SumlinkEdgeCounters {
    /// Flows reset by the node.
    pub resets: u64,
    /// Packets that could not be parsed.
    pub malformed: u64,
    /// Packets for users.
    pub down_packets: u64,
    /// Of those, packets dropped because no queue had room.
    pub dropped: u64,
    /// Packets from users.
    pub up_packets: u64,
    /// Duplicate acknowledgments.
    pub duplicates: u64,
    /// Of those, passed on as acknowledgments of the missing packet.
    pub boosted: u64,
    /// Of those, held.
    pub held: u64,
    /// Acknowledgments not passed on because the far end received the same one recently.
    pub unneeded: u64,
    /// Packets that the node sent again because of an acknowledgment.
    pub repaired: u64,
    /// Packets that the node sent again because their link lost them behind the first gap.
    pub repaired_behind: u64,
    /// Packets that the node sent again because of a timer.
    pub repaired_late: u64,
}

/// The current state of a flow, with symbols as in table I of the paper.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SumlinkEdgeFlow {
    /// Bytes from the user's acknowledgment to the highest data that the node has received.
    pub outstanding: u64,
    /// Bytes acknowledged to the far end that the user has not acknowledged.
    pub owed: u64,
    /// P.
    pub duplicates: u32,
    /// RT.
    pub retransmissions: u32,
    /// PH^a.
    pub held_average: f64,
    /// H in nanoseconds.
    pub held_for: u64,
}

/// # Safety
/// `name` is null or zero-terminated.
unsafe fn name(name: *const c_char, default: &str) -> Result<&str, String> {
    if name.is_null() {
        return Ok(default);
    }
    unsafe { CStr::from_ptr(name) }
        .to_str()
        .map_err(|_| "a name is not UTF-8".into())
}

/// # Safety
/// As for [`SumlinkEdgeConfig`].
unsafe fn read(settings: &SumlinkEdgeConfig) -> Result<Config, String> {
    let mut config = Config::default();
    let mode = unsafe { name(settings.mode, "lwip+visible") }?;
    config.mode = Mode::named(mode)
        .ok_or_else(|| format!("unknown mode `{mode}`; choose lwip, lwa or lwip+visible"))?;
    config.steering = unsafe { name(settings.steering, "qdepl") }?.into();
    config.sack = match unsafe { name(settings.sack, "rewrite") }? {
        "rewrite" => Sack::Rewrite,
        "strip" => Sack::Strip,
        other => return Err(format!("sack must be rewrite or strip, not `{other}`")),
    };
    config.visible.boost = match settings.boost {
        0 => Boost::Off,
        2 => Boost::Many,
        _ => Boost::Once,
    };
    let rate = |link: u8| match settings.rates.is_null() {
        true => None,
        false => {
            Some(unsafe { *settings.rates.add(usize::from(link)) }).filter(|rate| *rate != 0.0)
        }
    };
    config.links = (0..settings.links)
        .map(|link| LinkSettings {
            queue: usize::try_from(settings.queue).unwrap_or(usize::MAX),
            rate: rate(link),
        })
        .collect();
    Ok(config)
}

/// Creates a node. Returns null on failure; then `error` receives a one-line reason, truncated to
/// `room` bytes including the terminating zero.
///
/// # Safety
/// `config` is readable, its names are null or zero-terminated, and it has one rate per link;
/// `error` is null or writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_new(
    config: *const SumlinkEdgeConfig,
    error: *mut c_char,
    room: usize,
) -> *mut Edge {
    let made = match unsafe { config.as_ref() } {
        Some(settings) => unsafe { read(settings) }
            .and_then(|config| Edge::new(config).map_err(|error| error.to_string())),
        None => Err("no configuration".into()),
    };
    match made {
        Ok(edge) => Box::into_raw(Box::new(edge)),
        Err(why) => {
            unsafe { refuse(&why, error, room) };
            std::ptr::null_mut()
        }
    }
}

/// Frees the node. Null is ignored.
///
/// # Safety
/// `edge` is null or from [`sumlink_edge_new`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_free(edge: *mut Edge) {
    if !edge.is_null() {
        drop(unsafe { Box::from_raw(edge) });
    }
}

/// Handles a packet for a user from the far side.
///
/// # Safety
/// `edge` is from [`sumlink_edge_new`]; `packet` is readable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_handle_far(
    edge: *mut Edge,
    packet: *const u8,
    len: usize,
    now: u64,
) {
    let edge = unsafe { &mut *edge };
    edge.handle_far(
        unsafe { bytes(packet, len) }.to_vec(),
        Duration::from_nanos(now),
    );
    while edge.poll_event().is_some() {}
}

/// Handles a packet from a user, received over a link.
///
/// # Safety
/// As for [`sumlink_edge_handle_far`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_handle_user(
    edge: *mut Edge,
    packet: *const u8,
    len: usize,
    now: u64,
) {
    let edge = unsafe { &mut *edge };
    edge.handle_user(
        unsafe { bytes(packet, len) }.to_vec(),
        Duration::from_nanos(now),
    );
    while edge.poll_event().is_some() {}
}

/// Takes the next packet for a link that can take one. Returns its length; 0 if there is none (or
/// no such link), [`crate::SUMLINK_EDGE_TOO_SMALL`] if `out` is smaller than
/// [`crate::SUMLINK_EDGE_PACKET_MAX`].
///
/// # Safety
/// `edge` is from [`sumlink_edge_new`]; `out` is writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_poll_link(
    edge: *mut Edge,
    link: u8,
    now: u64,
    out: *mut u8,
    room: usize,
) -> usize {
    let edge = unsafe { &mut *edge };
    let take = || {
        let packet = edge.poll_link(LinkId(link), Duration::from_nanos(now))?;
        Some(packet.as_ref().into())
    };
    unsafe { give(out, room, take) }
}

/// Takes the next packet for the far side; returns the same values as [`sumlink_edge_poll_link`].
///
/// # Safety
/// As for [`sumlink_edge_poll_link`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_poll_far(
    edge: *mut Edge,
    out: *mut u8,
    room: usize,
) -> usize {
    let edge = unsafe { &mut *edge };
    unsafe { give(out, room, || edge.poll_far().map(Vec::into_boxed_slice)) }
}

/// When to call [`sumlink_edge_handle_timeout`], or [`crate::SUMLINK_EDGE_NEVER`].
///
/// # Safety
/// `edge` is from [`sumlink_edge_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_poll_timeout(edge: *const Edge) -> u64 {
    nanos(unsafe { &*edge }.poll_timeout())
}

/// Handles the timer; a call that comes too early does nothing.
///
/// # Safety
/// `edge` is from [`sumlink_edge_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_handle_timeout(edge: *mut Edge, now: u64) {
    let edge = unsafe { &mut *edge };
    edge.handle_timeout(Duration::from_nanos(now));
    while edge.poll_event().is_some() {}
}

/// Number of packets queued for a link; 0 for an unknown link.
///
/// # Safety
/// `edge` is from [`sumlink_edge_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_link_queue(edge: *const Edge, link: u8) -> usize {
    unsafe { &*edge }
        .link(LinkId(link))
        .map_or(0, |queue| queue.len())
}

/// The measured rate of a link in bytes per second; 0 before the first measurement.
///
/// # Safety
/// `edge` is from [`sumlink_edge_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_link_rate(edge: *const Edge, link: u8) -> f64 {
    unsafe { &*edge }
        .link(LinkId(link))
        .and_then(|queue| queue.rate())
        .unwrap_or(0.0)
}

/// Reads the counters.
///
/// # Safety
/// `edge` is from [`sumlink_edge_new`], `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_counters(edge: *const Edge, out: *mut SumlinkEdgeCounters) {
    let counters = unsafe { &*edge }.counters();
    let counters = SumlinkEdgeCounters {
        resets: counters.resets,
        malformed: counters.malformed,
        down_packets: counters.down_packets,
        dropped: counters.dropped,
        up_packets: counters.up_packets,
        duplicates: counters.duplicates,
        boosted: counters.boosted,
        held: counters.held,
        unneeded: counters.unneeded,
        repaired: counters.repaired,
        repaired_behind: counters.repaired_behind,
        repaired_late: counters.repaired_late,
    };
    unsafe { out.write(counters) };
}

/// Reads the state of the flow with the user's port `port`, the most recently used one if there are
/// several. Returns 1, or 0 if there is none.
///
/// # Safety
/// `edge` is from [`sumlink_edge_new`], `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_flow(
    edge: *const Edge,
    port: u16,
    out: *mut SumlinkEdgeFlow,
) -> u8 {
    let edge = unsafe { &*edge };
    let Some((_, flow)) = edge.flows().find(|(key, _)| key.user.port() == port) else {
        return 0;
    };
    let flow = SumlinkEdgeFlow {
        outstanding: flow.outstanding,
        owed: flow.owed,
        duplicates: flow.duplicates,
        retransmissions: flow.retransmissions,
        held_average: flow.held_average,
        held_for: nanos(Some(flow.held_for)),
    };
    unsafe { out.write(flow) };
    1
}
