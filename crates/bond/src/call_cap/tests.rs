//! The cap against a fluid model of a link with a queue.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::START;

const MS: Duration = Duration::from_millis(1);
const SEGMENT: f64 = 1448.0;

/// A carrier with unlimited data over a link, in steps of a millisecond.
struct Model {
    cap: CallCap,
    now: Instant,
    /// Bytes per second, now and at first.
    rate: f64,
    first_rate: f64,
    /// Round trip without a queue, and TCP's idea of it.
    trip: Duration,
    known_trip: Duration,
    /// Longest queue, as time at the link's rate.
    buffer: Duration,
    /// Others keep the queue at this length.
    rivals: Option<Duration>,
    /// Others send this many bytes per second into a buffer that has room for them.
    flood: f64,
    /// The program offers this rate.
    offered: f64,
    /// Bytes in the queue, in steps: of this carrier, and of others.
    queue: VecDeque<(f64, f64)>,
    queued: f64,
    /// Acknowledgments under way: when they arrive, their bytes, and their round trip.
    acks: VecDeque<(Instant, f64, Duration)>,
    in_flight: f64,
    unsent: f64,
    delivered: f64,
    srtt: Duration,
}

impl Model {
    fn new(mbit: f64, trip: Duration) -> Self {
        Self {
            cap: CallCap::default(),
            now: START,
            rate: mbit * 125_000.0,
            first_rate: mbit * 125_000.0,
            trip,
            known_trip: trip,
            buffer: 50 * MS,
            rivals: None,
            flood: 0.0,
            offered: f64::INFINITY,
            queue: VecDeque::new(),
            queued: 0.0,
            acks: VecDeque::new(),
            in_flight: 0.0,
            unsent: 0.0,
            delivered: 0.0,
            srtt: trip,
        }
    }

    fn queue(&self) -> Duration {
        Duration::from_secs_f64(self.queued.max(0.0) / self.rate)
    }

    /// TCP's window: nearly fills the buffer of the link at its first rate.
    fn window(&self) -> f64 {
        self.first_rate * (self.trip + self.buffer.mul_f64(0.9)).as_secs_f64()
    }

    fn step(&mut self) {
        let tick = MS.as_secs_f64();
        self.now += MS;
        let capped = self.cap.rate().map_or(f64::INFINITY, |rate| rate as f64) * tick;
        self.unsent = (self.unsent + self.offered * tick).min(1e6);
        let room = (self.window() - self.in_flight).max(0.0);
        let own = room.min(capped).min(self.unsent);
        self.unsent -= own;
        self.in_flight += own;
        let wanted = self.rivals.unwrap_or_default().as_secs_f64() * self.rate;
        let others = (wanted - self.queued - own + self.rate * tick).max(0.0);
        let others = match self.rivals {
            Some(_) => others,
            None => self.flood * tick,
        };
        self.queue.push_back((own, others));
        self.queued += own + others;
        let waited = self.queue();
        let mut served = self.rate * tick;
        while served > 0.0
            && let Some((own, others)) = self.queue.pop_front()
        {
            let part = (served / (own + others).max(1e-9)).min(1.0);
            served -= (own + others) * part;
            self.queued -= (own + others) * part;
            if own > 0.0 {
                self.acks
                    .push_back((self.now + self.trip, own * part, waited + self.trip));
            }
            if part < 1.0 {
                self.queue
                    .push_front((own * (1.0 - part), others * (1.0 - part)));
                break;
            }
        }
        while self.acks.front().is_some_and(|(at, ..)| *at <= self.now)
            && let Some((_, bytes, trip)) = self.acks.pop_front()
        {
            self.in_flight -= bytes;
            self.delivered += bytes;
            self.srtt = trip;
        }
        let info = TcpInfo {
            srtt: self.srtt,
            min_rtt: Some(self.known_trip),
            snd_mss: SEGMENT as u32,
            snd_cwnd_bytes: self.window() as u64,
            notsent_bytes: self.unsent.min(10_000.0) as u64,
            delivered: (self.delivered / SEGMENT) as u32,
            ..TcpInfo::default()
        };
        self.cap.observe(&info, 1, self.now);
    }

    /// Runs; returns the carrier's share of the link and the longest queue meanwhile.
    fn run(&mut self, time: Duration) -> (f64, Duration) {
        let (end, before) = (self.now + time, self.delivered);
        let mut longest = Duration::ZERO;
        while self.now < end {
            self.step();
            longest = longest.max(self.queue());
        }
        let share = (self.delivered - before) / (self.rate * time.as_secs_f64());
        (share, longest)
    }
}

#[test]
fn alone_on_its_link_a_carrier_keeps_the_link_full_and_the_queue_short() {
    for (mbit, trip) in [(40.0, 20), (20.0, 60), (300.0, 10), (2.0, 40), (100.0, 250)] {
        let mut model = Model::new(mbit, trip * MS);
        let transient = 2000 * MS + 15 * trip * MS;
        let (share, _) = model.run(transient);
        assert!(share > 0.75, "{mbit} {trip}: {share}");
        let (share, longest) = model.run(10_000 * MS);
        assert!(share > 0.95, "{mbit} {trip}: {share}");
        let segments = Duration::from_secs_f64(2.0 * SEGMENT / model.rate);
        let bound = (10 * MS).max(2 * segments);
        assert!(longest < bound, "{mbit} {trip}: {longest:?}");
        assert_eq!(model.cap.pause, PAUSE.0);
    }
}

#[test]
fn the_queue_shrinks_within_a_second() {
    let mut model = Model::new(40.0, 20 * MS);
    model.cap.not_before = START + 1000 * MS;
    let (_, longest) = model.run(1000 * MS);
    assert!(longest > 40 * MS, "nothing limits it yet: {longest:?}");
    model.run(500 * MS);
    let (_, longest) = model.run(500 * MS);
    assert!(longest < 10 * MS, "{longest:?}");
}

#[test]
fn a_link_that_becomes_slower_or_faster_is_followed() {
    let mut model = Model::new(40.0, 20 * MS);
    model.run(3000 * MS);
    for mbit in [10.0, 40.0, 80.0, 15.0, 5.0, 20.0] {
        model.rate = mbit * 125_000.0;
        model.run(6000 * MS);
        let (share, longest) = model.run(2000 * MS);
        assert!(share > 0.93, "{mbit}: {share}");
        assert!(longest < 12 * MS, "{mbit}: {longest:?}");
    }
    assert_eq!(model.cap.pause, PAUSE.0, "it never was in vain");
}

#[test]
fn a_queue_of_others_ends_the_cap_for_some_time() {
    let mut model = Model::new(40.0, 20 * MS);
    model.run(3000 * MS);
    let before = model.cap.rate().unwrap();
    model.rivals = Some(40 * MS);
    let (mut least, mut waited) = (before, Duration::ZERO);
    while let Some(rate) = model.cap.rate() {
        least = least.min(rate);
        model.step();
        waited += MS;
        assert!(waited < 3000 * MS);
    }
    assert!(least >= before * 4 / 10, "{least} of {before}");
    let CallCapState::GivenUp { until } = model.cap.state(model.now) else {
        panic!("{:?}", model.cap);
    };
    assert_eq!(until, model.now + PAUSE.0);
    model.run(PAUSE.0 - 100 * MS);
    assert_eq!(model.cap.rate(), None);
    // Over a long time the attempts cost little.
    let mut capped = 0;
    for _ in 0..120_000 {
        model.step();
        capped += u32::from(model.cap.rate().is_some());
    }
    assert!(capped < 10_000, "{capped} ms of 120 s");
    model.rivals = None;
    model.run(2 * PAUSE.1);
    assert!(model.cap.rate().is_some(), "the others have gone");
    let (share, longest) = model.run(5000 * MS);
    assert!(share > 0.95 && longest < 10 * MS, "{share} {longest:?}");
}

#[test]
fn a_flood_of_others_ends_the_cap_too() {
    let mut model = Model::new(40.0, 20 * MS);
    model.run(3000 * MS);
    let before = model.cap.rate().unwrap();
    model.flood = model.rate / 2.0;
    let (mut least, mut waited) = (before, Duration::ZERO);
    while let Some(rate) = model.cap.rate() {
        least = least.min(rate);
        model.step();
        waited += MS;
        assert!(waited < 5000 * MS);
    }
    assert!(least >= before / 5, "{least} of {before}");
}

#[test]
fn a_route_that_became_longer_ends_the_cap() {
    let mut model = Model::new(40.0, 20 * MS);
    model.run(3000 * MS);
    model.trip = 50 * MS;
    let (share, _) = model.run(20_000 * MS);
    assert!(share > 0.85, "{share}");
    assert!(model.cap.rate().is_none(), "{:?}", model.cap);
}

#[test]
fn a_carrier_without_a_queue_or_with_little_data_is_not_capped() {
    let mut model = Model::new(40.0, 20 * MS);
    model.offered = model.rate * 0.9;
    model.run(5000 * MS);
    assert_eq!(model.cap.rate(), None);
    assert_eq!(model.cap.state(model.now), CallCapState::Off);
    model.offered = model.rate * 0.01;
    model.rivals = Some(40 * MS);
    model.run(5000 * MS);
    assert_eq!(model.cap.rate(), None, "the queue is not its own");
}

#[test]
fn a_cap_that_is_not_used_stays_as_it_was() {
    let mut model = Model::new(40.0, 20 * MS);
    model.run(3000 * MS);
    model.offered = 0.0;
    model.run(1000 * MS);
    let before = model.cap.rate();
    model.run(60_000 * MS);
    assert_eq!(model.cap.rate(), before);
    model.offered = f64::INFINITY;
    let (share, longest) = model.run(3000 * MS);
    assert!(share > 0.9 && longest < 20 * MS, "{share} {longest:?}");
}

#[test]
fn the_cap_ends_with_the_call() {
    let mut model = Model::new(40.0, 20 * MS);
    model.run(3000 * MS);
    assert!(matches!(
        model.cap.state(model.now),
        CallCapState::Capped { .. }
    ));
    model.cap.release();
    assert_eq!(model.cap.rate(), None);
    assert_eq!(model.cap.state(model.now), CallCapState::Off);
}

proptest! {
    /// Alone on any link, a carrier keeps most of the link, and the queue is short.
    #[test]
    fn any_link_is_kept_full_and_its_queue_short(
        mbit in 1.0f64..500.0,
        trip in 2u32..200,
        buffer in 20u32..300,
    ) {
        let mut model = Model::new(mbit, trip * MS);
        model.buffer = buffer * MS;
        model.run(12_000 * MS);
        let (share, longest) = model.run(6000 * MS);
        prop_assert!(share > 0.9, "{}", share);
        let segments = Duration::from_secs_f64(2.0 * SEGMENT / model.rate);
        prop_assert!(longest < 2 * (7 * MS).max(segments), "{:?}", longest);
    }

    /// Whatever TCP reports, the cap is above its floor, and the time after it was given up is
    /// free of caps.
    #[test]
    fn any_statistics_lead_to_a_valid_state(
        carriers in 0u32..9,
        samples in proptest::collection::vec(
            (
                (0u64..300, 0u64..4000, 0u64..4000),
                (0u32..9000, 0u64..1 << 30, 0u32..5000),
                any::<bool>(),
            ),
            1..300,
        ),
    ) {
        let (mut cap, mut now, mut delivered) = (CallCap::default(), START, 0u32);
        for ((wait, srtt, least), (mss, cwnd, more), is_backlogged) in samples {
            now += wait as u32 * MS;
            delivered = delivered.wrapping_add(more);
            let info = TcpInfo {
                srtt: srtt as u32 * MS,
                min_rtt: (least > 0).then_some(least as u32 * MS),
                snd_mss: mss,
                snd_cwnd_bytes: cwnd,
                notsent_bytes: u64::from(is_backlogged),
                delivered,
                ..TcpInfo::default()
            };
            let was_given_up = matches!(cap.state(now), CallCapState::GivenUp { .. });
            cap.observe(&info, carriers, now);
            if let Some(rate) = cap.rate() {
                prop_assert!(rate as f64 >= MIN_CAP);
                prop_assert!(!was_given_up);
                prop_assert!(rate as f64 >= (cap.reference * KEPT / cap.carriers).floor());
            }
            match cap.state(now) {
                CallCapState::Off => prop_assert_eq!(cap.rate(), None),
                CallCapState::Capped { rate, .. } => prop_assert_eq!(cap.rate(), Some(rate)),
                CallCapState::GivenUp { until } => {
                    prop_assert!(until > now && until <= now + PAUSE.1);
                }
            }
        }
        cap.release();
        prop_assert_eq!(cap.rate(), None);
    }
}
