//! Flows over a modeled bottleneck.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use sumlink_link::{Change, Link, LinkConfig, Packet, QueueLimit};

use super::*;

/// Bytes of a packet.
const PACKET: u64 = SMALLEST_PACKET as u64;

/// Bytes of a packet on the link.
const WIRE: usize = PACKET as usize + 28;

/// Later packets acknowledged before a packet counts as lost (RFC 9002, section 6.1.1).
const REORDERING: u64 = 3;

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    flow: usize,
    number: u64,
}

impl Packet for Sent {
    fn wire_len(&self) -> usize {
        WIRE
    }
}

struct Flow {
    control: BoundedCubic,
    /// False for a competitor, which is plain CUBIC.
    is_bounded: bool,
    /// No packet is sent from this time on.
    until: Duration,
    next: u64,
    /// Packets in flight and the times they were sent.
    in_flight: BTreeMap<u64, Duration>,
    used: u64,
    srtt: Duration,
    next_send: Duration,
    delivered: u64,
    lost: u64,
}

impl Flow {
    fn new(is_bounded: bool, from: Duration, until: Duration) -> Self {
        Self {
            control: BoundedCubic::new(SMALLEST_PACKET),
            is_bounded,
            until,
            next: 0,
            in_flight: BTreeMap::new(),
            used: 0,
            srtt: Duration::ZERO,
            next_send: from,
            delivered: 0,
            lost: 0,
        }
    }

    fn bounded() -> Self {
        Self::new(true, ms(0), Duration::MAX)
    }

    fn plain(from: Duration, until: Duration) -> Self {
        Self::new(false, from, until)
    }

    fn control(&mut self) -> &mut BoundedCubic {
        if !self.is_bounded {
            self.control.mode = Mode::Company {
                until: Duration::MAX,
                least: None,
            };
        }
        &mut self.control
    }

    /// When the next packet may be sent, if the window allows one.
    fn due(&self) -> Option<Duration> {
        let bytes = (self.in_flight.len() as u64 + 1) * PACKET;
        let may_send = bytes < self.control.window() && self.next_send < self.until;
        may_send.then_some(self.next_send)
    }

    fn send(&mut self, now: Duration) -> u64 {
        let number = self.next;
        self.next += 1;
        self.in_flight.insert(number, now);
        self.used = self.used.max(self.in_flight.len() as u64 * PACKET);
        // quinn paces at 1.25 times the window per round trip.
        let rate = 1.25 * self.control.window() as f64 / self.srtt.as_secs_f64().max(1e-3);
        let gap = Duration::from_secs_f64(PACKET as f64 / rate);
        // Bursts of up to 2 ms make up for time without a turn.
        self.next_send = (self.next_send + gap).max(now.saturating_sub(ms(2)));
        number
    }

    fn acknowledge(&mut self, now: Duration, number: u64) {
        let Some(sent) = self.in_flight.remove(&number) else {
            return;
        };
        self.delivered += 1;
        let rtt = now - sent;
        self.srtt = match self.srtt {
            Duration::ZERO => rtt,
            srtt => (7 * srtt + rtt) / 8,
        };
        let acked = Acked {
            now,
            sent,
            bytes: PACKET,
            rtt: Some(rtt),
            srtt: self.srtt,
            used: self.used,
            waits: false,
        };
        self.used = self.in_flight.len() as u64 * PACKET;
        self.control().on_ack(&acked);
        while let Some((&lost, &sent)) = self.in_flight.first_key_value()
            && lost + REORDERING <= number
        {
            self.in_flight.remove(&lost);
            self.lost += 1;
            self.control().on_loss(now, sent, false);
        }
    }
}

/// Measurements of a period of the simulation.
#[derive(Debug)]
struct Seen {
    /// Packets delivered, by flow.
    delivered: Vec<u64>,
    lost: u64,
    /// Delays in the bottleneck's queue, sorted.
    queue: Vec<Duration>,
}

impl Seen {
    /// Share of the capacity of `rate` bits per second that was used in `time`.
    fn utilization(&self, rate: u64, time: Duration) -> f64 {
        let bits = self.delivered.iter().sum::<u64>() as f64 * WIRE as f64 * 8.0;
        bits / (rate as f64 * time.as_secs_f64())
    }

    fn queue(&self, quantile: f64) -> Duration {
        self.queue[(quantile * (self.queue.len() - 1) as f64) as usize]
    }
}

struct World {
    now: Duration,
    link: Link<Sent>,
    delay: Duration,
    flows: Vec<Flow>,
    acks: VecDeque<(Duration, Sent)>,
    /// The most by which acknowledgments are late, without overtaking each other.
    jitter: Duration,
    entered: BTreeMap<(usize, u64), Duration>,
}

impl World {
    /// A link with this one-way delay; acknowledgments take as long.
    fn new(rate: u64, delay: Duration, queue: Duration, flows: Vec<Flow>) -> Self {
        let link = Link::new(LinkConfig {
            rate,
            delay,
            loss: 0.0,
            queue: QueueLimit::Time(queue),
            seed: 1,
        });
        Self {
            now: ms(0),
            link,
            delay,
            flows,
            acks: VecDeque::new(),
            jitter: ms(0),
            entered: BTreeMap::new(),
        }
    }

    fn run(&mut self, time: Duration) -> Seen {
        let end = self.now + time;
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.delivered).collect();
        let lost_before: u64 = self.flows.iter().map(|flow| flow.lost).sum();
        let mut queue = Vec::new();
        loop {
            let sends = self.flows.iter().filter_map(Flow::due).min();
            let arrives = self.link.next_deadline();
            let acks = self.acks.front().map(|(due, _)| *due);
            let Some(next) = [sends, arrives, acks].into_iter().flatten().min() else {
                break;
            };
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            while let Some(delivery) = self.link.poll(self.now) {
                let packet = delivery.packet;
                let entered = self.entered.remove(&(packet.flow, packet.number)).unwrap();
                queue.push((delivery.due - entered).saturating_sub(self.delay));
                self.acks
                    .push_back((delivery.due + self.delay + self.late(), packet));
            }
            while let Some(&(due, packet)) = self.acks.front()
                && due <= self.now
            {
                self.acks.pop_front();
                self.flows[packet.flow].acknowledge(self.now, packet.number);
            }
            for flow in 0..self.flows.len() {
                while self.flows[flow].due().is_some_and(|due| due <= self.now) {
                    let number = self.flows[flow].send(self.now);
                    self.entered.insert((flow, number), self.now);
                    self.link.enqueue(self.now, Sent { flow, number });
                }
            }
        }
        self.now = end;
        queue.sort_unstable();
        let flows = self.flows.iter();
        Seen {
            delivered: flows
                .zip(before)
                .map(|(flow, before)| flow.delivered - before)
                .collect(),
            lost: self.flows.iter().map(|flow| flow.lost).sum::<u64>() - lost_before,
            queue,
        }
    }

    /// The lateness of acknowledgments: it holds for 20 ms each, like that of a busy scheduler.
    fn late(&self) -> Duration {
        let slot = self.now.as_millis() as u64 / 20;
        // A multiplicative hash (Knuth, TAOCP volume 3, section 6.4) gives pseudorandom values.
        let random = slot.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.jitter.mul_f64(random as f64 / f64::from(u32::MAX))
    }

    fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
        self.link.set(self.now, Change::Delay(delay));
    }

    fn is_in_company(&self) -> bool {
        matches!(self.flows[0].control.mode, Mode::Company { .. })
    }
}

#[test]
fn alone_it_fills_the_path_and_not_the_queue() {
    for (rate, delay) in [
        (5_000_000, ms(20)),
        (40_000_000, ms(5)),
        (70_000_000, ms(15)),
        (120_000_000, ms(10)),
    ] {
        let mut world = World::new(rate, delay, ms(300), vec![Flow::bounded()]);
        let start = world.run(ms(2000));
        let seen = world.run(ms(15_000));
        let used = seen.utilization(rate, ms(15_000));
        let (median, tail) = (seen.queue(0.5), seen.queue(0.99));
        println!(
            "{rate} {delay:?}: {used:.3} used, queue {median:?} {tail:?} (start {:.3} {:?})",
            start.utilization(rate, ms(2000)),
            start.queue(0.99),
        );
        assert!(used > 0.97, "{rate} {delay:?}: {used}");
        // At a low rate, each packet adds milliseconds.
        let few = Duration::from_secs_f64(8.0 * 8.0 * WIRE as f64 / rate as f64);
        assert!(tail < ms(20) + few, "{rate} {delay:?}: {tail:?}");
        assert_eq!(start.lost + seen.lost, 0);
    }
}

#[test]
fn the_start_overshoots_for_a_few_round_trips_only() {
    let rate = 100_000_000;
    let mut world = World::new(rate, ms(20), ms(300), vec![Flow::bounded()]);
    let start = world.run(ms(1000));
    println!(
        "{:.3} {:?}",
        start.utilization(rate, ms(1000)),
        start.queue(1.0)
    );
    assert!(start.utilization(rate, ms(1000)) > 0.6);
    assert!(start.queue(1.0) < ms(60), "{:?}", start.queue(1.0));
}

#[test]
fn a_capacity_that_falls_and_returns_is_followed() {
    let (high, low) = (60_000_000, 20_000_000);
    let mut world = World::new(high, ms(15), ms(500), vec![Flow::bounded()]);
    world.run(ms(5000));
    world.link.set(world.now, Change::Rate(low));
    world.run(ms(1500));
    let seen = world.run(ms(5000));
    println!(
        "low {:.3} {:?}",
        seen.utilization(low, ms(5000)),
        seen.queue(0.99)
    );
    assert!(seen.utilization(low, ms(5000)) > 0.95);
    assert!(seen.queue(0.99) < ms(20), "{:?}", seen.queue(0.99));
    world.link.set(world.now, Change::Rate(high));
    world.run(ms(1000));
    let seen = world.run(ms(5000));
    println!(
        "high {:.3} {:?}",
        seen.utilization(high, ms(5000)),
        seen.queue(0.99)
    );
    assert!(seen.utilization(high, ms(5000)) > 0.95);
    assert!(seen.queue(0.99) < ms(20), "{:?}", seen.queue(0.99));
}

#[test]
fn it_holds_its_share_beside_cubic_and_returns_to_a_short_queue() {
    let (rate, time) = (20_000_000, ms(30_000));
    for queue in [40, 150] {
        let compete = |first: Flow| {
            let flows = vec![first, Flow::plain(ms(5000), ms(45_000))];
            let mut world = World::new(rate, ms(15), ms(queue), flows);
            world.run(ms(15_000));
            let seen = world.run(time);
            let share = seen.delivered[0] as f64 / seen.delivered.iter().sum::<u64>() as f64;
            (world, share, seen.utilization(rate, time))
        };
        let (_, plain, _) = compete(Flow::plain(ms(0), Duration::MAX));
        let (mut world, share, used) = compete(Flow::bounded());
        println!("queue {queue} ms: share {share:.2}, of plain CUBIC {plain:.2}; {used:.3} used");
        assert!(
            share > 0.3 * plain && share < 0.75,
            "{queue} ms: {share} {plain}"
        );
        assert!(used > 0.95, "{queue} ms: {used}");
        // The competitor has left.
        world.run(ms(45_000));
        let seen = world.run(ms(10_000));
        assert!(!world.is_in_company());
        assert!(
            seen.queue(0.95) < ms(15),
            "{queue} ms: {:?}",
            seen.queue(0.95)
        );
        assert!(seen.utilization(rate, ms(10_000)) > 0.95);
    }
}

/// The second one takes the first one's queue for the base. At worst, each takes the other for
/// CUBIC, and the queue is as long as that of two flows of CUBIC.
#[test]
fn two_of_them_share_a_path() {
    let (rate, time) = (20_000_000, ms(30_000));
    let late = Flow::new(true, ms(5000), Duration::MAX);
    let mut world = World::new(rate, ms(15), ms(200), vec![Flow::bounded(), late]);
    world.run(ms(10_000));
    let seen = world.run(time);
    let share = seen.delivered[0] as f64 / seen.delivered.iter().sum::<u64>() as f64;
    println!(
        "share {share:.2}, queue {:?} {:?}",
        seen.queue(0.5),
        seen.queue(0.95)
    );
    assert!((0.2..0.8).contains(&share), "{share}");
    assert!(seen.utilization(rate, time) > 0.95);
}

#[test]
fn a_longer_route_does_not_look_like_a_queue_for_long() {
    let rate = 50_000_000;
    let mut world = World::new(rate, ms(10), ms(200), vec![Flow::bounded()]);
    world.run(ms(5000));
    world.set_delay(ms(40));
    let change = world.run(ms(5000));
    world.run(ms(15_000));
    let seen = world.run(ms(20_000));
    println!(
        "change {:.3}, then {:.3} {:?}",
        change.utilization(rate, ms(5000)),
        seen.utilization(rate, ms(20_000)),
        seen.queue(0.95)
    );
    // CUBIC needs seconds for a window of three times the size.
    assert!(change.utilization(rate, ms(5000)) > 0.25);
    assert!(seen.utilization(rate, ms(20_000)) > 0.95);
    assert!(seen.queue(0.95) < ms(25), "{:?}", seen.queue(0.95));
}

#[test]
fn jitter_is_no_queue() {
    for (rate, jitter) in [(2_000_000, 20), (20_000_000, 20), (60_000_000, 40)] {
        let run = |flow| {
            let mut world = World::new(rate, ms(20), ms(300), vec![flow]);
            world.jitter = ms(jitter);
            world.run(ms(5000));
            let seen = world.run(ms(10_000));
            (seen.utilization(rate, ms(10_000)), seen.queue(0.95))
        };
        println!("plain {:?}", run(Flow::plain(ms(0), Duration::MAX)));
        let (used, queue) = run(Flow::bounded());
        println!("{rate}, {jitter} ms: {used:.3} used, queue {queue:?}");
        // Jitter as long as the round trip costs some of the rate.
        let least = if jitter < 40 { 0.95 } else { 0.65 };
        assert!(used > least, "{rate}, {jitter} ms: {used}");
        assert!(queue < ms(80), "{queue:?}");
    }
}

#[test]
fn in_a_short_buffer_it_is_cubic() {
    let rate = 50_000_000;
    let run = |flow| {
        let mut world = World::new(rate, ms(10), ms(3), vec![flow]);
        world.run(ms(5000));
        let seen = world.run(ms(20_000));
        (seen.utilization(rate, ms(20_000)), seen.lost)
    };
    let (plain, bounded) = (run(Flow::plain(ms(0), Duration::MAX)), run(Flow::bounded()));
    println!("plain {plain:?}, bounded {bounded:?}");
    assert!(bounded.0 > 0.98 * plain.0);
    assert!(bounded.1 <= 2 * plain.1);
}

#[test]
fn losses_of_one_window_have_one_effect_and_a_dead_path_the_least_window() {
    let mut control = BoundedCubic::new(1472);
    let initial = control.window();
    assert_eq!(initial, control.initial_window());
    control.on_loss(ms(100), ms(50), false);
    let reduced = control.window();
    assert!(reduced < initial);
    control.on_loss(ms(101), ms(99), false);
    assert_eq!(control.window(), reduced);
    control.on_loss(ms(200), ms(101), true);
    assert_eq!(control.window(), 4 * 1472);
    // quinn needs more than one packet.
    control.set_mtu(8972);
    assert!(control.window() > 2 * 8972);
}

#[test]
fn the_window_keeps_its_bytes_when_the_packets_become_larger() {
    for has_lost in [false, true] {
        let mut control = BoundedCubic::new(SMALLEST_PACKET);
        if has_lost {
            control.on_loss(ms(100), ms(50), false);
        }
        let before = control.window();
        control.set_mtu(1472);
        let after = control.window();
        assert!(after.abs_diff(before) <= 1, "{before} {after}");
        assert_eq!(control.ssthresh().is_some(), has_lost);
    }
}

proptest! {
    #[test]
    fn no_sequence_of_events_breaks_the_window(
        events in proptest::collection::vec(
            (0..4_u8, 0..200_u64, 0..2000_u64, 0..10_000_000_u64, 0..2_000_000_u64),
            0..500,
        ),
    ) {
        let mut mtu = 1472;
        let mut control = BoundedCubic::new(mtu);
        let mut now = Duration::ZERO;
        for (kind, passed, age, bytes, rtt) in events {
            now += ms(passed);
            let sent = now.saturating_sub(ms(age));
            match kind {
                0 => control.on_loss(now, sent, bytes % 7 == 0),
                3 => {
                    mtu = 1200 + u16::try_from(bytes % 7800).unwrap();
                    control.set_mtu(mtu);
                }
                _ => control.on_ack(&Acked {
                    now,
                    sent,
                    bytes,
                    rtt: (kind == 1).then_some(Duration::from_micros(rtt)),
                    srtt: Duration::from_micros(rtt),
                    used: bytes,
                    waits: false,
                }),
            }
            let window = control.window();
            prop_assert!(window > 2 * u64::from(mtu), "{window}");
            prop_assert!(window <= u64::from(LARGEST) * u64::from(mtu), "{window}");
        }
    }
}
