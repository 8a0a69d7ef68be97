//! Congestion controls of the flows of one connection, coupled with each other.

use std::ffi::{CStr, c_char};
use std::time::Duration;

use sumlink_congestion::{
    Ack, CongestionControl, Flow, Idle, Loss, Settings, Siblings, Timeout, build,
};

use crate::refuse;

/// The minimum retransmission timeout (RFC 6298, 2.4), which is also ns-3's.
const RTO_LEAST: Duration = Duration::from_secs(1);

/// The flows of a connection, and the round-trip time state of each.
#[derive(Debug)]
pub struct Bond {
    controls: Vec<Box<dyn CongestionControl>>,
    flows: Vec<Flow>,
    rtts: Vec<Rtt>,
}

/// An acknowledgment of new data, cumulative or selective.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SumlinkBondAck {
    /// Arrival time.
    pub now: u64,
    /// Round-trip time sample in nanoseconds; 0: none.
    pub rtt: u64,
    /// All bytes before this one are acknowledged.
    pub acknowledged: u64,
    /// Position of the next byte to be sent for the first time.
    pub sent: u64,
    /// Packets that this acknowledgment covers first.
    pub acked: u32,
    /// Packets in flight before it.
    pub in_flight: u32,
}

/// RFC 6298, section 2.
#[derive(Clone, Copy, Debug, Default)]
struct Rtt {
    smoothed: Duration,
    variation: Duration,
}

impl Rtt {
    fn measure(&mut self, rtt: Duration) {
        if self.smoothed.is_zero() {
            self.smoothed = rtt;
            self.variation = rtt / 2;
        } else {
            self.variation = (self.variation * 3 + self.smoothed.abs_diff(rtt)) / 4;
            self.smoothed = (self.smoothed * 7 + rtt) / 8;
        }
    }

    fn rto(&self) -> Duration {
        (self.smoothed + self.variation * 4).max(RTO_LEAST)
    }
}

impl Bond {
    fn new(name: &str, flows: u8) -> Result<Self, String> {
        if flows == 0 {
            return Err("a connection needs at least one flow".into());
        }
        let one = |_| build(name, &Settings::default()).map_err(|error| error.to_string());
        let controls = (0..flows).map(one).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            flows: controls.iter().map(|control| control.flow()).collect(),
            rtts: vec![Rtt::default(); controls.len()],
            controls,
        })
    }

    /// Applies an event to one flow, and notifies its siblings of its state. An unknown flow is
    /// ignored.
    fn notify(&mut self, flow: u8, what: impl FnOnce(&mut dyn CongestionControl, &Siblings<'_>)) {
        let flow = usize::from(flow);
        if let Some(control) = self.controls.get_mut(flow) {
            what(control.as_mut(), &Siblings::of(&self.flows, flow));
            self.flows[flow] = control.flow();
        }
    }

    fn ack(&mut self, flow: u8, ack: &SumlinkBondAck) {
        let Some(rtt) = self.rtts.get_mut(usize::from(flow)) else {
            return;
        };
        let sample = (ack.rtt != 0).then(|| Duration::from_nanos(ack.rtt));
        if let Some(sample) = sample {
            rtt.measure(sample);
        }
        let mut event = Ack {
            now: Duration::from_nanos(ack.now),
            acked: ack.acked,
            rtt: sample,
            srtt: rtt.smoothed,
            acknowledged: ack.acknowledged,
            sent: ack.sent,
            cwnd_limited: false,
        };
        self.notify(flow, |control, siblings| {
            event.cwnd_limited = control.window().limits(ack.in_flight);
            control.on_ack(&event, siblings);
        });
    }
}

/// Creates 1 to 255 flows with the named congestion control. Returns null on failure; then `error`
/// receives a one-line reason, truncated to `room` bytes including the terminating zero.
///
/// # Safety
/// `name` is null or zero-terminated; `error` is null or writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_bond_new(
    name: *const c_char,
    flows: u8,
    error: *mut c_char,
    room: usize,
) -> *mut Bond {
    let made = if name.is_null() {
        Err("no congestion control given".into())
    } else {
        match unsafe { CStr::from_ptr(name) }.to_str() {
            Ok(name) => Bond::new(name, flows),
            Err(_) => Err("a name is not UTF-8".into()),
        }
    };
    match made {
        Ok(bond) => Box::into_raw(Box::new(bond)),
        Err(why) => {
            unsafe { refuse(&why, error, room) };
            std::ptr::null_mut()
        }
    }
}

/// Frees the flows. Null is ignored.
///
/// # Safety
/// `bond` is null or from [`sumlink_bond_new`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_bond_free(bond: *mut Bond) {
    if !bond.is_null() {
        drop(unsafe { Box::from_raw(bond) });
    }
}

/// Handles an acknowledgment of new data.
///
/// # Safety
/// `bond` is from [`sumlink_bond_new`]; `ack` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_bond_on_ack(
    bond: *mut Bond,
    flow: u8,
    ack: *const SumlinkBondAck,
) {
    unsafe { (*bond).ack(flow, &*ack) };
}

/// Handles a loss detected outside recovery.
///
/// # Safety
/// `bond` is from [`sumlink_bond_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_bond_on_loss(bond: *mut Bond, flow: u8, now: u64) {
    let now = Duration::from_nanos(now);
    unsafe { &mut *bond }.notify(flow, |control, siblings| {
        control.on_loss(&Loss { now }, siblings);
    });
}

/// Handles an expiry of the retransmission timer; `repeated` is nonzero if no data was acknowledged
/// since the previous expiry.
///
/// # Safety
/// `bond` is from [`sumlink_bond_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_bond_on_rto(bond: *mut Bond, flow: u8, now: u64, repeated: u8) {
    let timeout = Timeout {
        now: Duration::from_nanos(now),
        repeated: repeated != 0,
    };
    unsafe { &mut *bond }.notify(flow, |control, siblings| control.on_rto(&timeout, siblings));
}

/// Ends a recovery: all data sent before the loss or the timer's expiry is acknowledged. Call it
/// before [`sumlink_bond_on_ack`] for the same acknowledgment.
///
/// # Safety
/// `bond` is from [`sumlink_bond_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_bond_on_recovery_exit(bond: *mut Bond, flow: u8, now: u64) {
    let now = Duration::from_nanos(now);
    unsafe { &mut *bond }.notify(flow, |control, _| control.on_recovery_exit(now));
}

/// Handles the first packet after an idle time in nanoseconds without data in flight.
///
/// # Safety
/// `bond` is from [`sumlink_bond_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_bond_on_idle_end(
    bond: *mut Bond,
    flow: u8,
    now: u64,
    lasted: u64,
) {
    let bond = unsafe { &mut *bond };
    let Some(rtt) = bond.rtts.get(usize::from(flow)) else {
        return;
    };
    let idle = Idle {
        now: Duration::from_nanos(now),
        lasted: Duration::from_nanos(lasted),
        rto: rtt.rto(),
    };
    bond.notify(flow, |control, _| control.on_idle_end(&idle));
}

/// The congestion window in packets; its integer part may be in flight. 0 for an unknown flow.
///
/// # Safety
/// `bond` is from [`sumlink_bond_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_bond_cwnd(bond: *const Bond, flow: u8) -> f64 {
    let bond = unsafe { &*bond };
    let control = bond.controls.get(usize::from(flow));
    control.map_or(0.0, |control| control.cwnd())
}

/// The slow start threshold in packets, infinite until it is set (`whitehaul` starts with a finite
/// one). 0 for an unknown flow.
///
/// # Safety
/// `bond` is from [`sumlink_bond_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_bond_ssthresh(bond: *const Bond, flow: u8) -> f64 {
    let bond = unsafe { &*bond };
    let control = bond.controls.get(usize::from(flow));
    control.map_or(0.0, |control| control.ssthresh())
}

/// The variation of the round-trip time in nanoseconds; 0 before the first sample.
///
/// # Safety
/// `bond` is from [`sumlink_bond_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_bond_rttvar(bond: *const Bond, flow: u8) -> u64 {
    let bond = unsafe { &*bond };
    let rtt = bond.rtts.get(usize::from(flow));
    rtt.map_or(0, |rtt| {
        u64::try_from(rtt.variation.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// The smoothed round-trip time in nanoseconds; 0 before the first sample.
///
/// # Safety
/// `bond` is from [`sumlink_bond_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_bond_srtt(bond: *const Bond, flow: u8) -> u64 {
    let bond = unsafe { &*bond };
    let rtt = bond.rtts.get(usize::from(flow));
    rtt.map_or(0, |rtt| {
        u64::try_from(rtt.smoothed.as_nanos()).unwrap_or(u64::MAX)
    })
}
