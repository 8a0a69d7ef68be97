//! Connects the congestion control of a datagram carrier with quinn, and reports what quinn does.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;
use sumlink_bond::datagram::quic::{INITIAL_RTT, PACKET_OVERHEAD};
use sumlink_bond::datagram::{Acked, BoundedCubic};

/// Makes the congestion control of each connection.
#[derive(Debug)]
pub(super) struct ControllerConfig;

/// What quinn's connection does, for the carrier that feeds it. Needs no lock of the connection.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Bytes of packets that quinn will make of the datagrams it was given.
    handed: AtomicU64,
    /// Those of them that it has sent; at most `handed`.
    departed: AtomicU64,
    in_flight: AtomicU64,
    window: AtomicU64,
    /// Nanoseconds; 0 before the first measurement.
    srtt: AtomicU64,
    rttvar: AtomicU64,
    ecn_marks: AtomicU64,
    /// Value of `departed` at which the carrier's task is woken.
    wake_at: AtomicU64,
    waiting: AtomicWaker,
}

impl ControllerFactory for ControllerConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let measured = Measured {
            control: BoundedCubic::new(current_mtu),
            meter: Arc::default(),
            epoch: now,
            acked: None,
            used: 0,
            smoothed: None,
            variation: Duration::ZERO,
        };
        measured.publish_window();
        Box::new(measured)
    }
}

impl Meter {
    /// The meter of a connection; `None` if its congestion control is not from this module.
    pub(super) fn of(connection: &quinn::Connection) -> Option<Arc<Self>> {
        let control = connection.congestion_state().into_any();
        let control = control.downcast::<Measured>().ok()?;
        Some(Arc::clone(&control.meter))
    }

    /// Counts a datagram of this size, which quinn has just accepted.
    pub(super) fn hand(&self, len: usize) {
        let bytes = len as u64 + PACKET_OVERHEAD;
        self.handed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The base of the congestion control, once measured.
    #[cfg(test)]
    pub(super) fn base(connection: &quinn::Connection) -> Option<Duration> {
        let control = connection.congestion_state().into_any();
        Some(control.downcast::<Measured>().ok()?.control.base())
    }

    /// The congestion window in bytes.
    pub(super) fn window(&self) -> u64 {
        self.window.load(Ordering::Relaxed)
    }

    /// Bytes that are sent and neither acknowledged nor lost.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The smoothed round trip, once measured.
    pub(super) fn srtt(&self) -> Option<Duration> {
        match self.srtt.load(Ordering::Relaxed) {
            0 => None,
            nanoseconds => Some(Duration::from_nanos(nanoseconds)),
        }
    }

    /// The mean deviation of the round trip (RFC 9002, section 5.3).
    pub(super) fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.rttvar.load(Ordering::Relaxed))
    }

    /// Times that the peer reported new CE marks (RFC 3168).
    pub(super) fn ecn_marks(&self) -> u64 {
        self.ecn_marks.load(Ordering::Relaxed)
    }

    /// Wakes the task once about `bytes` more bytes have been sent. May wake it early, never late.
    /// Check for room again afterwards: bytes sent before this call are not counted.
    pub(super) fn wake_after(&self, bytes: u64, task: &Waker) {
        let handed = self.handed.load(Ordering::Relaxed);
        let wake_at = self.departed.load(Ordering::Relaxed).saturating_add(bytes);
        self.wake_at.store(wake_at.min(handed), Ordering::Relaxed);
        self.waiting.register(task);
    }

    /// Bytes of packets that quinn has yet to send.
    fn waiting_bytes(&self) -> u64 {
        let departed = self.departed.load(Ordering::Relaxed);
        self.handed.load(Ordering::Relaxed).saturating_sub(departed)
    }

    /// Counts a transmission. Acknowledgments without data are ignored: nothing is in flight, and
    /// no datagram has left.
    fn depart(&self, bytes: u64) {
        let departed = self.departed.load(Ordering::Relaxed);
        let bytes = bytes.min(self.waiting_bytes());
        self.departed.store(departed + bytes, Ordering::Relaxed);
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
        if departed + bytes >= self.wake_at.load(Ordering::Relaxed) {
            self.waiting.wake();
        }
    }

    fn lose(&self, bytes: u64) {
        let in_flight = self.in_flight().saturating_sub(bytes);
        self.in_flight.store(in_flight, Ordering::Relaxed);
    }
}

/// A congestion control that reports to a [`Meter`].
///
/// All calls, and those of [`Meter::wake_after`] that precede a check for room, are under the
/// connection's lock or followed by it. Relaxed atomics suffice.
#[derive(Clone, Debug)]
struct Measured {
    control: BoundedCubic,
    meter: Arc<Meter>,
    /// Time zero of the control.
    epoch: Instant,
    /// The packets of the present acknowledgment.
    acked: Option<Acked>,
    /// Most bytes in flight since the previous acknowledgment.
    used: u64,
    smoothed: Option<Duration>,
    variation: Duration,
}

impl Measured {
    /// Recovers the sample that led to a new smoothed round trip, without the peer's delay of the
    /// acknowledgment; quinn reports neither it nor the variation. quinn computes srtt = 7/8 srtt +
    /// 1/8 sample (RFC 9002, section 5.3).
    fn measure(&mut self, rtt: &RttEstimator) -> Option<Duration> {
        let smoothed = rtt.get();
        if rtt.min() == INITIAL_RTT && smoothed == INITIAL_RTT {
            // Nothing has been measured.
            return None;
        }
        let sample = match self.smoothed {
            Some(previous) if previous == smoothed => return None,
            None => {
                self.variation = smoothed / 2;
                smoothed
            }
            Some(previous) => {
                let sample = (8 * smoothed).saturating_sub(7 * previous);
                self.variation = (3 * self.variation + previous.abs_diff(sample)) / 4;
                sample
            }
        };
        self.smoothed = Some(smoothed);
        let store = |to: &AtomicU64, value: Duration| {
            let nanoseconds = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
            to.store(nanoseconds, Ordering::Relaxed);
        };
        store(&self.meter.srtt, smoothed);
        store(&self.meter.rttvar, self.variation);
        // The result is rounded; a sample is never below the least one.
        Some(sample.max(rtt.min()))
    }

    fn since_epoch(&self, time: Instant) -> Duration {
        time.saturating_duration_since(self.epoch)
    }

    fn publish_window(&self) {
        self.meter
            .window
            .store(self.control.window(), Ordering::Relaxed);
    }
}

impl Controller for Measured {
    fn on_sent(&mut self, _now: Instant, bytes: u64, _last_packet_number: u64) {
        self.meter.depart(bytes);
        self.used = self.used.max(self.meter.in_flight());
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        _app_limited: bool,
        rtt: &RttEstimator,
    ) {
        // The estimate is the same for all packets of an acknowledgment: it contains the samples
        // before this one.
        let sample = self.measure(rtt);
        let (now, sent) = (self.since_epoch(now), self.since_epoch(sent));
        let acked = self.acked.get_or_insert(Acked {
            now,
            sent,
            bytes: 0,
            rtt: None,
            srtt: rtt.get(),
            used: self.used,
            waits: self.meter.waiting_bytes() > 0,
        });
        acked.sent = acked.sent.max(sent);
        acked.bytes = acked.bytes.saturating_add(bytes);
        acked.rtt = acked.rtt.or(sample);
    }

    fn on_end_acks(
        &mut self,
        _now: Instant,
        in_flight: u64,
        _app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        self.meter.in_flight.store(in_flight, Ordering::Relaxed);
        self.used = in_flight;
        if let Some(acked) = self.acked.take() {
            self.control.on_ack(&acked);
            self.publish_window();
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        let (now, sent) = (self.since_epoch(now), self.since_epoch(sent));
        self.control.on_loss(now, sent, is_persistent_congestion);
        match lost_bytes {
            // quinn's report of CE marks.
            0 => {
                self.meter.ecn_marks.fetch_add(1, Ordering::Relaxed);
            }
            lost => self.meter.lose(lost),
        }
        self.publish_window();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.control.set_mtu(new_mtu);
        self.publish_window();
        // After a black hole, quinn drops the waiting datagrams that are too large: there is room.
        self.meter.waiting.wake();
    }

    fn window(&self) -> u64 {
        self.control.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.control.window();
        metrics.ssthresh = self.control.ssthresh();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.control.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Hand(usize),
        Depart(u64),
        Acknowledge,
        Lose(u64),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..1500_usize).prop_map(Step::Hand),
            (0..20_000_u64).prop_map(Step::Depart),
            Just(Step::Acknowledge),
            (0..20_000_u64).prop_map(Step::Lose),
            (0..50_000_u64).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #[test]
        fn a_waiting_task_is_woken_once_its_bytes_have_left(
            steps in proptest::collection::vec(step(), 0..200),
        ) {
            let meter = Meter::default();
            let wakes = Arc::new(Wakes::default());
            let task = Waker::from(Arc::clone(&wakes));
            // Bytes that have to leave before the wake-up, while a task waits.
            let mut due: Option<u64> = None;
            for step in steps {
                let before = wakes.0.load(Ordering::Relaxed);
                match step {
                    Step::Hand(len) => meter.hand(len),
                    Step::Depart(bytes) => {
                        meter.depart(bytes);
                        due = due.map(|due| due.saturating_sub(bytes));
                    }
                    Step::Acknowledge => meter.in_flight.store(0, Ordering::Relaxed),
                    Step::Lose(bytes) => meter.lose(bytes),
                    Step::Wait(bytes) => {
                        meter.wake_after(bytes, &task);
                        due = Some(bytes.max(1));
                    }
                }
                if wakes.0.load(Ordering::Relaxed) > before {
                    due = None;
                }
                // The task may be woken early, never late.
                prop_assert_ne!(due, Some(0));
                let handed = meter.handed.load(Ordering::Relaxed);
                let departed = meter.departed.load(Ordering::Relaxed);
                prop_assert!(departed <= handed && meter.in_flight() <= departed);
            }
        }
    }

    #[test]
    fn acknowledgments_of_this_side_are_not_in_flight() {
        let meter = Meter::default();
        meter.depart(40);
        assert_eq!(meter.in_flight(), 0);
        meter.hand(1000);
        meter.depart(1000 + PACKET_OVERHEAD);
        meter.depart(40);
        assert_eq!(meter.in_flight(), 1000 + PACKET_OVERHEAD);
        meter.lose(2000);
        assert_eq!(meter.in_flight(), 0);
    }
}
