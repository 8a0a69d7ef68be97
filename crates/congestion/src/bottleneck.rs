//! Flows over bottlenecks with queues, where the flows themselves cause delay and loss.
//!
//! The network is the minimum that the tests need. Flows always have data to send. A lost packet is
//! detected when its acknowledgment would have arrived; there are no retransmissions and no timers.
//! Queues drop packets at random before they are full, as RED does: a drop-tail queue punishes the
//! flow that sends one packet more, which is unfair to Reno and unrelated to the algorithms. The
//! simulator has a complete TCP and realistic links.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::fixture::ms;
use crate::{Ack, CongestionControl, Flow, Instant, Loss, NAMES, Settings, Siblings, build};

/// A link with a queue.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Service rate in packets per second.
    rate: f64,
    /// Round-trip time without a queue.
    rtt: Duration,
    /// Capacity in packets. From half of it on, packets are dropped at random, up to a twentieth
    /// just before it is full.
    queue: f64,
    /// Time at which the last queued packet leaves.
    free: Instant,
}

#[derive(Debug)]
struct Sender {
    control: Box<dyn CongestionControl>,
    link: usize,
    /// Index of its bond.
    bond: usize,
    /// Number of the next packet, and the packets in flight.
    next: u64,
    in_flight: u32,
    /// Recovery ends when this packet is acknowledged.
    recovery: Option<u64>,
    srtt: Duration,
    delivered: u64,
}

/// An acknowledgment or loss, as the sender learns it; ordered by time, then by sequence.
type Feedback = Reverse<(Instant, u64, usize, u64, Instant, bool)>;

#[derive(Debug, Default)]
struct Network {
    now: Instant,
    links: Vec<Link>,
    senders: Vec<Sender>,
    news: BinaryHeap<Feedback>,
    sent: u64,
    dice: Dice,
}

impl Network {
    /// Adds a link with a rate in packets per second, a round trip in milliseconds and a queue in
    /// packets.
    fn link(mut self, rate: f64, rtt: u64, queue: f64) -> Self {
        let rtt = ms(rtt);
        let free = Duration::ZERO;
        self.links.push(Link {
            rate,
            rtt,
            queue,
            free,
        });
        self
    }

    /// Adds a bond with a flow over each of these links.
    fn bond(mut self, name: &str, links: &[usize]) -> Self {
        let bond = self.senders.last().map_or(0, |last| last.bond + 1);
        for &link in links {
            self.senders.push(Sender {
                control: build(name, &Settings::default()).expect("an algorithm"),
                link,
                bond,
                next: 0,
                in_flight: 0,
                recovery: None,
                srtt: Duration::ZERO,
                delivered: 0,
            });
        }
        self
    }

    /// Advances time and returns each bond's delivery rate in packets per second.
    fn run(&mut self, time: Duration) -> Vec<f64> {
        let before: Vec<u64> = self.senders.iter().map(|sender| sender.delivered).collect();
        let end = self.now + time;
        for sender in 0..self.senders.len() {
            self.fill(sender);
        }
        while let Some(&Reverse((at, ..))) = self.news.peek()
            && at <= end
        {
            let Some(Reverse((at, _, sender, number, sent, lost))) = self.news.pop() else {
                break;
            };
            self.now = at;
            self.on_feedback(sender, number, sent, lost);
            self.fill(sender);
        }
        self.now = end;
        let bonds = self.senders.last().map_or(0, |last| last.bond + 1);
        let mut rates = vec![0.0; bonds];
        for (sender, before) in self.senders.iter().zip(before) {
            rates[sender.bond] += (sender.delivered - before) as f64 / time.as_secs_f64();
        }
        rates
    }

    /// The queueing delay of a link now.
    fn queueing(&self, link: usize) -> Duration {
        self.links[link].free.saturating_sub(self.now)
    }

    /// Sends packets until the window is full.
    fn fill(&mut self, sender: usize) {
        let Self {
            senders,
            links,
            news,
            dice,
            ..
        } = self;
        let sending = &mut senders[sender];
        let link = &mut links[sending.link];
        while f64::from(sending.in_flight) + 1.0 <= sending.control.cwnd() {
            let waiting = link.free.saturating_sub(self.now);
            let full = waiting.as_secs_f64() * link.rate / link.queue;
            let lost = full > 1.0 || dice.roll() < 0.05 * (2.0 * full - 1.0);
            if !lost {
                link.free = self.now + waiting + Duration::from_secs_f64(1.0 / link.rate);
            }
            let back = self.now.max(link.free) + link.rtt;
            news.push(Reverse((
                back,
                self.sent,
                sender,
                sending.next,
                self.now,
                lost,
            )));
            self.sent += 1;
            sending.next += 1;
            sending.in_flight += 1;
        }
    }

    /// A packet has been acknowledged, or was detected as lost.
    fn on_feedback(&mut self, index: usize, number: u64, sent: Instant, lost: bool) {
        let (bond, first) = (self.senders[index].bond, self.first_of_bond(index));
        let siblings = self.senders.iter().filter(|sender| sender.bond == bond);
        let flows: Vec<Flow> = siblings.map(|sender| sender.control.flow()).collect();
        let siblings = Siblings::of(&flows, index - first);
        let now = self.now;
        let sender = &mut self.senders[index];
        let cwnd_limited = sender.control.window().limits(sender.in_flight);
        sender.in_flight -= 1;
        if sender.recovery.is_some_and(|point| number >= point) {
            sender.recovery = None;
            sender.control.on_recovery_exit(now);
        }
        if lost {
            if sender.recovery.is_none() {
                sender.recovery = Some(sender.next);
                sender.control.on_loss(&Loss { now }, &siblings);
            }
            return;
        }
        sender.delivered += 1;
        let rtt = now - sent;
        // RFC 6298, section 2
        sender.srtt = match sender.srtt {
            Duration::ZERO => rtt,
            srtt => (srtt * 7 + rtt) / 8,
        };
        let ack = Ack {
            now,
            acked: 1,
            rtt: Some(rtt),
            srtt: sender.srtt,
            acknowledged: number + 1,
            sent: sender.next,
            cwnd_limited,
        };
        sender.control.on_ack(&ack, &siblings);
    }

    fn first_of_bond(&self, index: usize) -> usize {
        let bond = self.senders[index].bond;
        let position = self.senders.iter().position(|sender| sender.bond == bond);
        position.unwrap_or(index)
    }
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Share of a path that a single flow uses after `begin`.
fn used(name: &str, (rate, rtt, queue): (f64, u64, f64), begin: Duration) -> f64 {
    let mut network = Network::default().link(rate, rtt, queue).bond(name, &[0]);
    network.run(begin);
    network.run(seconds(60))[0] / rate
}

/// 12 Mbit/s in packets of 1500 bytes, 50 ms, and a queue of one BDP.
const SMALL: (f64, u64, f64) = (1_000.0, 50, 50.0);

/// 240 Mbit/s, 50 ms, and a queue of a quarter of a BDP.
const LARGE: (f64, u64, f64) = (20_000.0, 50, 250.0);

#[test]
fn every_algorithm_uses_an_unshared_path() {
    for name in NAMES {
        let used = used(name, SMALL, seconds(10));
        assert!(used > 0.95, "{name}: {used}");
    }
}

#[test]
fn algorithms_for_fast_long_paths_beat_reno_there() {
    let reno = used("reno", LARGE, seconds(10));
    assert!(reno < 0.9, "{reno}");
    for name in ["cubic", "illinois", "edinburgh"] {
        let used = used(name, LARGE, seconds(10));
        assert!(used > 0.93, "{name}: {used}");
    }
}

#[test]
fn edinburgh_fills_the_path_at_once_and_whitehaul_in_seconds() {
    // The dissertation, section 4.4: 4 to 7 s against less than 1 s
    let first_second = |name| {
        let (rate, rtt, queue) = LARGE;
        let mut network = Network::default().link(rate, rtt, queue).bond(name, &[0]);
        network.run(seconds(1))[0] / rate
    };
    let (whitehaul, edinburgh) = (first_second("whitehaul"), first_second("edinburgh"));
    assert!(whitehaul < 0.2, "{whitehaul}");
    assert!(edinburgh > 0.5, "{edinburgh}");
}

#[test]
fn after_a_delay_spike_edinburgh_uses_the_path_again_and_whitehaul_does_not() {
    let after_spike = |name| {
        let rate = 10_000.0;
        let mut network = Network::default().link(rate, 20, 100.0).bond(name, &[0]);
        network.run(seconds(10));
        network.links[0].rtt = ms(100);
        network.run(seconds(1));
        network.links[0].rtt = ms(20);
        network.run(seconds(2));
        network.run(seconds(30))[0] / rate
    };
    let (whitehaul, edinburgh) = (after_spike("whitehaul"), after_spike("edinburgh"));
    // 100 packets of the 200 that the path holds
    assert!((0.49..0.52).contains(&whitehaul), "{whitehaul}");
    assert!(edinburgh > 0.95, "{edinburgh}");
}

#[test]
fn wvegas_keeps_the_queue_short() {
    let mean_queue = |name| {
        let rate = 1_000.0;
        let mut network = Network::default().link(rate, 50, 200.0).bond(name, &[0]);
        network.run(seconds(10));
        let queues = (0..600).map(|_| {
            network.run(ms(100));
            network.queueing(0).as_secs_f64() * rate
        });
        queues.sum::<f64>() / 600.0
    };
    let (wvegas, reno) = (mean_queue("wvegas"), mean_queue("reno"));
    assert!(
        (8.0..14.0).contains(&wvegas),
        "ten packets and a bit: {wvegas}"
    );
    assert!(reno > 50.0, "{reno}");
}

/// RFC 6356, section 2, goal 2: a bond's share of a bottleneck that two of its flows share with one
/// Reno flow.
#[test]
fn coupled_algorithms_share_a_bottleneck_fairly_with_reno() {
    let part = |name| {
        let mut network = Network::default().link(2_000.0, 50, 100.0);
        network = network.bond(name, &[0, 0]).bond("reno", &[0]);
        network.run(seconds(20));
        let rates = network.run(seconds(200));
        rates[0] / (rates[0] + rates[1])
    };
    for (name, expected) in [
        ("lia", 0.50..0.56),
        ("rtt-compensator", 0.50..0.56),
        ("olia", 0.46..0.54),
        ("balia", 0.47..0.55),
        ("coupled", 0.45..0.54),
        ("cs218", 0.52..0.62),
        ("ewtcp", 0.58..0.66),
        ("uncoupled", 0.62..0.69),
        // wVegas yields to flows that fill the queue.
        ("wvegas", 0.15..0.40),
        // WhiteHaul and Edinburgh are for links without other traffic.
        ("whitehaul", 0.9..1.0),
        ("edinburgh", 0.9..1.0),
    ] {
        let part = part(name);
        assert!(expected.contains(&part), "{name}: {part}");
    }
}

/// RFC 6356, section 2, goal 3: a bond over a path shared with two Reno flows and an unshared path.
#[test]
fn traffic_moves_away_from_the_shared_path() {
    let on_shared = |name| {
        let mut network = Network::default();
        network = network.link(2_000.0, 50, 100.0).link(2_000.0, 50, 100.0);
        network = network
            .bond(name, &[0, 1])
            .bond("reno", &[0])
            .bond("reno", &[0]);
        network.run(seconds(20));
        let bond = network.run(seconds(200))[0];
        assert!(
            bond > 0.97 * 2_000.0,
            "{name}: the unshared path alone gives 2000, the bond {bond}"
        );
        network.senders[0].delivered as f64 / 220.0
    };
    let [uncoupled, lia, balia, olia] = ["uncoupled", "lia", "balia", "olia"].map(on_shared);
    assert!(
        (600.0..750.0).contains(&uncoupled),
        "a third of the path: {uncoupled}"
    );
    assert!(lia < 0.6 * uncoupled, "{lia}");
    assert!(balia < lia, "{balia}");
    assert!(olia < 0.7 * balia, "{olia}");
}

/// Knuth's linear congruential generator; its upper half is random enough here.
#[derive(Debug, Default)]
pub(crate) struct Dice(u64);

impl Dice {
    /// From 0 up to 1.
    pub(crate) fn roll(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as f64 / (1u64 << 32) as f64
    }
}
