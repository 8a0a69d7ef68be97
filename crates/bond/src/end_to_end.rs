//! How much a carrier may hold whose TCP ends at a load balancer.
//!
//! There, TCP measures the short way to the balancer, and its window says nothing about the link
//! behind it: the balancer takes whatever it can store. This window follows the peer's reports
//! instead, which measure the whole way. It is twice the bytes that the way delivers in its least
//! round trip, as in BBR (draft-ietf-ccwg-bbr, section 4.1.1): the balancer's TCP is kept busy, and
//! little waits there that another path could deliver sooner.

use std::collections::VecDeque;
use std::time::Duration;

use sumlink_engine::{LossState, PathSample};

use crate::Instant;

/// Bytes beyond those of the two round trips: reports come up to 5 ms late, or after 64 KiB.
const CONSTANT: u64 = 32 * 1024;

/// The window before the first measurement, in bytes: the initial one of RFC 6928, twice.
const FIRST: u64 = 2 * 14_600;

/// Round trips, and least time, for which the highest rate counts.
const RATE_TRIPS: u32 = 10;
const RATE_TIME: Duration = Duration::from_secs(1);

/// The least round trip rises by one in this number each second, so that a longer way is noticed.
const RISE: f64 = 200.0;

/// Bytes written within this time are measured together.
const GRAIN: Duration = Duration::from_millis(1);

/// Without a report for two round trips and this time, nothing that waits asks for one.
const PATIENCE: Duration = Duration::from_millis(250);

/// A round trip before the first measurement: long enough for links over satellites.
const UNKNOWN_TRIP: Duration = Duration::from_millis(600);

/// Most marks that are kept.
const MAX_MARKS: usize = 4096;

/// The state of a carrier according to the peer's reports.
#[derive(Debug, Default)]
pub struct EndToEnd {
    sent: u64,
    /// The peer has reported this many of the sent bytes.
    confirmed: u64,
    /// It need not report these, and others before them have been reported.
    excused: u64,
    /// When the reports last made progress, or bytes were sent after all before had arrived.
    moved: Option<Instant>,
    /// Sent bytes that have not been reported, in order.
    marks: VecDeque<Mark>,
    srtt: Option<Duration>,
    rttvar: Duration,
    /// The least round trip, and when it was last raised.
    least: Option<(Duration, Instant)>,
    /// Rates of the last round trips: the highest of them, then lower ones that are newer.
    rates: VecDeque<(Instant, f64)>,
    /// The newest rate, in bytes per second.
    rate: f64,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The end of the bytes.
    end: u64,
    at: Instant,
    /// Bytes that had been reported then, and when they were.
    confirmed: u64,
    confirmed_at: Instant,
    /// Whether the window was full, so that the way limited the rate.
    is_full: bool,
}

impl EndToEnd {
    /// Records the bytes of frames that the carrier has been given, and those of them that the peer
    /// has reported.
    pub fn observe(&mut self, sent: u64, confirmed: u64, now: Instant) {
        if sent > self.sent {
            self.note_sent(sent, now);
        }
        if confirmed > self.confirmed {
            self.note_confirmed(confirmed, now);
        }
        let patience = 2 * self.srtt.unwrap_or(UNKNOWN_TRIP) + PATIENCE;
        if self.waiting() > 0
            && self
                .moved
                .is_some_and(|at| now.saturating_sub(at) > patience)
        {
            self.excused = self.sent;
        }
    }

    fn note_sent(&mut self, sent: u64, now: Instant) {
        if self.waiting() == 0 {
            self.moved = Some(now);
        }
        self.sent = sent;
        let is_full = self.room() == 0;
        match self.marks.back_mut() {
            Some(mark) if now.saturating_sub(mark.at) < GRAIN => {
                mark.end = sent;
                mark.is_full |= is_full;
            }
            _ => self.marks.push_back(Mark {
                end: sent,
                at: now,
                confirmed: self.confirmed,
                confirmed_at: self.moved.unwrap_or(now),
                is_full,
            }),
        }
        if self.marks.len() > MAX_MARKS {
            self.marks.pop_front();
        }
    }

    fn note_confirmed(&mut self, confirmed: u64, now: Instant) {
        self.confirmed = confirmed;
        self.moved = Some(now);
        let mut newest = None;
        while let Some(mark) = self.marks.front().filter(|mark| mark.end <= confirmed) {
            newest = Some(*mark);
            self.marks.pop_front();
        }
        let Some(mark) = newest else { return };
        let trip = now.saturating_sub(mark.at);
        self.note_trip(trip, now);
        let time = now.saturating_sub(mark.confirmed_at).max(trip);
        let rate = confirmed.saturating_sub(mark.confirmed) as f64 / time.as_secs_f64().max(1e-4);
        self.note_rate(rate, mark.is_full, now);
    }

    /// RFC 6298, section 2.
    fn note_trip(&mut self, trip: Duration, now: Instant) {
        (self.srtt, self.rttvar) = match self.srtt {
            None => (Some(trip), trip / 2),
            Some(srtt) => (
                Some((srtt * 7 + trip) / 8),
                (self.rttvar * 3 + srtt.abs_diff(trip)) / 4,
            ),
        };
        let least = self.least.map_or(trip, |(least, at)| {
            let time = now.saturating_sub(at).as_secs_f64();
            least.mul_f64(1.0 + time / RISE).min(trip)
        });
        self.least = Some((least, now));
    }

    fn note_rate(&mut self, rate: f64, is_full: bool, now: Instant) {
        let highest = self.rates.front().map_or(0.0, |(_, rate)| *rate);
        // A sender without data shows less than the way can carry.
        if !is_full && rate < highest {
            return;
        }
        self.rate = rate;
        let lasts = (self.srtt.unwrap_or_default() * RATE_TRIPS).max(RATE_TIME);
        self.rates
            .retain(|(at, old)| *old > rate && now.saturating_sub(*at) < lasts);
        self.rates.push_back((now, rate));
    }

    /// Bytes that wait for a report.
    fn waiting(&self) -> u64 {
        let settled = self.confirmed.max(self.excused);
        self.sent.saturating_sub(settled)
    }

    /// The window in bytes.
    pub fn window(&self) -> u64 {
        let rate = self.rates.front().map(|(_, rate)| *rate);
        match (rate, self.least) {
            (Some(rate), Some((least, _))) => (2.0 * rate * least.as_secs_f64()) as u64 + CONSTANT,
            _ => FIRST,
        }
    }

    /// Bytes that the carrier may be given now.
    pub fn room(&self) -> u64 {
        self.window().saturating_sub(self.waiting())
    }

    /// Replaces what TCP knows about the way to the balancer.
    pub fn correct(&self, sample: &mut PathSample) {
        let waiting = self.waiting();
        sample.srtt = self.srtt.unwrap_or_default();
        sample.rttvar = self.rttvar;
        sample.min_rtt = self.least.map_or(Duration::ZERO, |(least, _)| least);
        sample.cwnd = self.window();
        sample.ssthresh = self.srtt.map(|_| self.window());
        sample.loss = LossState::Open;
        sample.unsent = sample.unsent.min(waiting);
        sample.in_flight = waiting - sample.unsent;
        sample.full |= self.room() == 0;
        sample.delivery_rate = self.rates.front().map_or(0, |(_, rate)| *rate as u64);
        sample.pacing_rate = 0;
        // The balancer acknowledges data that has not arrived.
        sample.delivered = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::START;

    const MS: Duration = Duration::from_millis(1);

    /// A balancer that stores everything, and a link behind it.
    struct Link {
        carrier: EndToEnd,
        /// Bytes per millisecond, and the delay of a round trip without a queue.
        rate: u64,
        trip: u32,
        now: Instant,
        sent: u64,
        /// Bytes that have left the balancer.
        left: u64,
        reports: VecDeque<(Instant, u64)>,
    }

    impl Link {
        fn new(rate: u64, trip: u32) -> Self {
            Self {
                carrier: EndToEnd::default(),
                rate,
                trip,
                now: START,
                sent: 0,
                left: 0,
                reports: VecDeque::new(),
            }
        }

        /// A millisecond in which the sender has this many bytes at most.
        fn step(&mut self, data: u64) {
            self.now += MS;
            self.sent += self.carrier.room().min(data);
            let leaves = self.rate.min(self.sent - self.left);
            self.left += leaves;
            if leaves > 0 {
                self.reports
                    .push_back((self.now + MS * self.trip, self.left));
            }
            let mut confirmed = 0;
            while let Some((_, bytes)) = self.reports.front().filter(|(at, _)| *at <= self.now) {
                confirmed = *bytes;
                self.reports.pop_front();
            }
            self.carrier.observe(self.sent, confirmed, self.now);
        }
    }

    #[test]
    fn the_link_is_full_and_little_waits_at_the_balancer() {
        for (rate, trip) in [(1500, 80), (4000, 30), (12_500, 10), (200, 300)] {
            let mut link = Link::new(rate, trip);
            (0..10_000).for_each(|_| link.step(u64::MAX));
            let before = link.left;
            (0..5000).for_each(|_| link.step(u64::MAX));
            let share = (link.left - before) as f64 / (5000 * rate) as f64;
            assert!(share > 0.99, "{rate} B/ms, {trip} ms: {share}");
            let product = rate * u64::from(trip);
            let stored = link.sent - link.left;
            assert!(
                stored < 2 * product + 2 * CONSTANT,
                "{rate} B/ms, {trip} ms: {stored}"
            );
        }
    }

    #[test]
    fn the_window_follows_a_link_that_becomes_faster_or_longer() {
        let mut link = Link::new(1000, 40);
        (0..5000).for_each(|_| link.step(u64::MAX));
        link.rate = 8000;
        (0..3000).for_each(|_| link.step(u64::MAX));
        let before = link.left;
        (0..1000).for_each(|_| link.step(u64::MAX));
        assert!(link.left - before > 7_900_000, "{}", link.left - before);
        link.trip = 80;
        (0..60_000).for_each(|_| link.step(u64::MAX));
        let before = link.left;
        (0..1000).for_each(|_| link.step(u64::MAX));
        assert!(link.left - before > 7_000_000, "{}", link.left - before);
    }

    /// A sender without much data shows no lower rate.
    #[test]
    fn a_pause_of_the_sender_keeps_the_window() {
        let mut link = Link::new(4000, 30);
        (0..5000).for_each(|_| link.step(u64::MAX));
        let window = link.carrier.window();
        (0..5000).for_each(|_| link.step(100));
        assert!(link.carrier.window() > window / 2);
    }

    /// Frames that elicit no report must not close the window.
    #[test]
    fn bytes_that_are_never_reported_do_not_block_the_carrier() {
        let mut carrier = EndToEnd::default();
        let mut now = START;
        carrier.observe(FIRST, 0, now);
        assert_eq!(carrier.room(), 0);
        now += PATIENCE + 2 * UNKNOWN_TRIP + 2 * MS;
        carrier.observe(FIRST, 0, now);
        assert_eq!(carrier.room(), FIRST);
        // A late report changes nothing.
        carrier.observe(FIRST, FIRST / 2, now);
        assert_eq!(carrier.room(), FIRST);
    }

    #[test]
    fn the_sample_describes_the_whole_way() {
        let mut link = Link::new(1500, 80);
        (0..10_000).for_each(|_| link.step(u64::MAX));
        let mut sample = PathSample {
            srtt: MS / 10,
            cwnd: 10_000_000,
            unsent: 1000,
            ..PathSample::default()
        };
        link.carrier.correct(&mut sample);
        assert!(
            sample.srtt >= 80 * MS && sample.srtt < 300 * MS,
            "{sample:?}"
        );
        assert!(
            sample.min_rtt >= 80 * MS && sample.min_rtt < 170 * MS,
            "{sample:?}"
        );
        assert!(
            (1_400_000..1_700_000).contains(&sample.delivery_rate),
            "{sample:?}"
        );
        assert!(
            sample.in_flight + sample.unsent <= sample.cwnd,
            "{sample:?}"
        );
    }
}
