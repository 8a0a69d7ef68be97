//! The node.

use std::ffi::{CStr, c_char};
use std::time::Duration;

use sumlink_edge::{Config, Edge, LinkId, LinkSettings, Mode, Sack};

use crate::{bytes, give, nanos, refuse};

/// What a node is told. Names are null or end with a zero byte; null means the core's own choice.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SumlinkEdgeConfig {
    /// `lwip`, `lwa` or `lwip+visible` (the default).
    pub mode: *const c_char,
    /// `qdepl` (the default), `lrtt`, `roundrobin` or `flowhash`.
    pub steering: *const c_char,
    /// `rewrite` (the default) or `strip`.
    pub sack: *const c_char,
    /// 0: nothing is ever acknowledged in a user's place.
    pub boost: u8,
    /// Links, 1 to 255.
    pub links: u8,
    /// Packets that may wait before each link, at least 1.
    pub queue: u32,
    /// Null, or a rate for each link in bytes per second, 0 where it is not known.
    pub rates: *const f64,
}

/// Numbers of a node since its start, those of `Counters` in the core.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SumlinkEdgeCounters {
    /// Flows reset from here.
    pub resets: u64,
    /// Packets that could not be read.
    pub malformed: u64,
    /// Packets for users.
    pub down_packets: u64,
    /// Of them, those that no queue had room for.
    pub dropped: u64,
    /// Packets of users.
    pub up_packets: u64,
    /// Duplicate acknowledgements.
    pub duplicates: u64,
    /// Of them, those passed on as acknowledgements of the missing packet.
    pub boosted: u64,
    /// Of them, those held.
    pub held: u64,
    /// Acknowledgements not passed on, as the far end was told the same of late.
    pub unneeded: u64,
    /// Packets sent again from here because of an acknowledgement.
    pub repaired: u64,
    /// Packets sent again from here because their link had lost them behind the first hole.
    pub repaired_behind: u64,
    /// Packets sent again from here because time had passed.
    pub repaired_late: u64,
}

/// What is known of a flow now, symbols as in table I of the paper.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SumlinkEdgeFlow {
    /// Bytes from the user's acknowledgement to the highest data that the node has received.
    pub outstanding: u64,
    /// Bytes that the far end was told of and the user has not acknowledged.
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
/// `name` is null or ends with a zero byte.
unsafe fn name(name: *const c_char, default: &str) -> Result<&str, String> {
    if name.is_null() {
        return Ok(default);
    }
    unsafe { CStr::from_ptr(name) }
        .to_str()
        .map_err(|_| "a name is not UTF-8".into())
}

/// # Safety
/// As [`SumlinkEdgeConfig`] says.
unsafe fn read(told: &SumlinkEdgeConfig) -> Result<Config, String> {
    let mut config = Config::default();
    let mode = unsafe { name(told.mode, "lwip+visible") }?;
    config.mode = Mode::named(mode).ok_or_else(|| {
        format!("no mode is called `{mode}`: there are lwip, lwa and lwip+visible")
    })?;
    config.steering = unsafe { name(told.steering, "qdepl") }?.into();
    config.sack = match unsafe { name(told.sack, "rewrite") }? {
        "rewrite" => Sack::Rewrite,
        "strip" => Sack::Strip,
        other => return Err(format!("sack is rewrite or strip, not `{other}`")),
    };
    config.visible.boost = told.boost != 0;
    let rate = |link: u8| match told.rates.is_null() {
        true => None,
        false => Some(unsafe { *told.rates.add(usize::from(link)) }).filter(|rate| *rate != 0.0),
    };
    config.links = (0..told.links)
        .map(|link| LinkSettings {
            queue: usize::try_from(told.queue).unwrap_or(usize::MAX),
            rate: rate(link),
        })
        .collect();
    Ok(config)
}

/// A node, or null; then `error` is given one line that says why, cut to `room` bytes with its zero byte.
///
/// # Safety
/// `config` is readable, its names are as it says and its rates as many as its links; `error` is null or writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_new(
    config: *const SumlinkEdgeConfig,
    error: *mut c_char,
    room: usize,
) -> *mut Edge {
    let made = match unsafe { config.as_ref() } {
        Some(told) => unsafe { read(told) }
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

/// The node is no more. Null is nothing.
///
/// # Safety
/// `edge` is null or of [`sumlink_edge_new`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_free(edge: *mut Edge) {
    if !edge.is_null() {
        drop(unsafe { Box::from_raw(edge) });
    }
}

/// A packet for a user has come from the far side.
///
/// # Safety
/// `edge` is of [`sumlink_edge_new`]; `packet` is readable for `len` bytes.
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

/// A packet of a user has come over a link.
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

/// The link can take a packet: the next one for it. Its length; 0 if there is none (or no such link),
/// [`crate::SUMLINK_EDGE_TOO_SMALL`] if `out` is smaller than [`crate::SUMLINK_EDGE_PACKET_MAX`].
///
/// # Safety
/// `edge` is of [`sumlink_edge_new`]; `out` is writable for `room` bytes.
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

/// The next packet for the far side; returns what [`sumlink_edge_poll_link`] does.
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
/// `edge` is of [`sumlink_edge_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_poll_timeout(edge: *const Edge) -> u64 {
    nanos(unsafe { &*edge }.poll_timeout())
}

/// The timer has fired; too early it does nothing.
///
/// # Safety
/// `edge` is of [`sumlink_edge_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_handle_timeout(edge: *mut Edge, now: u64) {
    let edge = unsafe { &mut *edge };
    edge.handle_timeout(Duration::from_nanos(now));
    while edge.poll_event().is_some() {}
}

/// Packets that wait for a link; 0 if there is no such link.
///
/// # Safety
/// `edge` is of [`sumlink_edge_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_link_queue(edge: *const Edge, link: u8) -> usize {
    unsafe { &*edge }
        .link(LinkId(link))
        .map_or(0, |queue| queue.len())
}

/// The rate of a link as the node has measured it, in bytes per second; 0 before there is one.
///
/// # Safety
/// `edge` is of [`sumlink_edge_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_edge_link_rate(edge: *const Edge, link: u8) -> f64 {
    unsafe { &*edge }
        .link(LinkId(link))
        .and_then(|queue| queue.rate())
        .unwrap_or(0.0)
}

/// What was counted since the start.
///
/// # Safety
/// `edge` is of [`sumlink_edge_new`], `out` is writable.
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

/// The flow with the user's port `port`, that used last where several have it: 1, or 0 if there is none.
///
/// # Safety
/// `edge` is of [`sumlink_edge_new`], `out` is writable.
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
