//! Two ends over modeled links.

use std::time::Duration;

use sumlink_link::{Link, LinkConfig, LinkState, QueueLimit};

use super::*;
use crate::clock::{MILLISECOND, SECOND};

struct OnLink(Packet);

impl sumlink_link::Packet for OnLink {
    fn wire_len(&self) -> usize {
        self.0.wire_len()
    }
}

/// Both ends, with the link to each of them.
struct Pair {
    ends: [Quic; 2],
    links: [Link<OnLink>; 2],
    now: Nanos,
    delivered: u64,
    delays: Vec<Nanos>,
}

impl Pair {
    fn new(mbit: u64, ms: u64, loss: f64) -> Self {
        let link = |seed| {
            Link::new(LinkConfig {
                rate: mbit * 1_000_000,
                delay: Duration::from_millis(ms),
                loss,
                queue: QueueLimit::Time(Duration::from_millis(200)),
                seed,
            })
        };
        Self {
            ends: Side::BOTH.map(|side| Quic::new(0, side, 0)),
            links: [link(1), link(2)],
            now: 0,
            delivered: 0,
            delays: Vec::new(),
        }
    }

    /// Runs until `end`; the client keeps its connection full if `is_full`.
    fn run(&mut self, end: Nanos, is_full: bool) {
        while self.now < end {
            for side in Side::BOTH {
                let quic = &mut self.ends[side.index()];
                quic.on_time(self.now);
                while let Some(datagram) = quic.poll_received() {
                    let sent = Nanos::from_le_bytes(datagram[..8].try_into().unwrap());
                    self.delays.push(self.now - sent);
                    self.delivered += 1;
                }
                while is_full && side == Side::Client && quic.poll_writable() {
                    let mut datagram = vec![0; LARGEST];
                    datagram[..8].copy_from_slice(&self.now.to_le_bytes());
                    quic.send(datagram.into()).unwrap();
                }
                while let Some(packet) = quic.poll_transmit(self.now) {
                    let link = &mut self.links[side.peer().index()];
                    link.enqueue(duration(self.now), OnLink(packet));
                }
            }
            let timers = self.ends.iter().filter_map(Quic::deadline);
            let links = self.links.iter().filter_map(Link::next_deadline).map(nanos);
            let next = timers.chain(links).min().unwrap_or(end);
            assert!(next >= self.now);
            self.now = next.min(end);
            for side in Side::BOTH {
                while let Some(arrived) = self.links[side.index()].poll(duration(self.now)) {
                    self.ends[side.index()].receive(&arrived.packet.0, self.now);
                }
            }
        }
    }

    fn states(&self) -> [State; 2] {
        self.ends.each_ref().map(Quic::state)
    }

    fn set(&mut self, state: LinkState) {
        for link in &mut self.links {
            link.set_state(duration(self.now), state);
        }
    }
}

#[test]
fn the_handshake_takes_three_round_trips() {
    let mut pair = Pair::new(100, 10, 0.0);
    pair.run(50 * MILLISECOND, false);
    assert_eq!(pair.states(), [State::Joining; 2]);
    pair.run(62 * MILLISECOND, false);
    assert_eq!(pair.states(), [State::Joined; 2]);
    let srtt = pair
        .ends
        .each_ref()
        .map(|end| end.sample().srtt.as_millis());
    assert_eq!(srtt, [20, 20]);
}

#[test]
fn a_full_connection_uses_the_link_with_a_short_queue() {
    for (mbit, ms) in [(5, 20), (40, 10), (200, 5)] {
        let mut pair = Pair::new(mbit, ms, 0.0);
        pair.run(5 * SECOND, true);
        (pair.delivered, pair.delays) = (0, Vec::new());
        pair.run(10 * SECOND, true);
        let rate = pair.delivered * LARGEST as u64 * 8 / 5;
        let share = rate as f64 / (mbit * 1_000_000) as f64;
        assert!(
            (0.88..0.98).contains(&share),
            "{mbit} Mbit/s, {ms} ms: {share}"
        );
        pair.delays.sort_unstable();
        let p95 = pair.delays[pair.delays.len() * 95 / 100];
        // Its share of the queue, and the unsent datagrams in the connection.
        let most = (ms + 40) * MILLISECOND;
        assert!(p95 < most, "{mbit} Mbit/s, {ms} ms: {p95}");
    }
}

#[test]
fn lost_datagrams_are_counted_and_not_repeated() {
    let mut pair = Pair::new(20, 10, 0.01);
    pair.run(10 * SECOND, true);
    let counters = pair.ends[0].counters();
    let in_flight = 300;
    assert!(counters.lost > counters.packets / 200, "{counters:?}");
    assert!(pair.delivered <= counters.packets);
    // Acknowledgments may be lost, too, but later ones repeat them.
    assert!(counters.packets <= pair.delivered + counters.lost + in_flight);
}

#[test]
fn a_blocked_handshake_and_a_silent_connection_end() {
    let mut pair = Pair::new(20, 10, 0.0);
    pair.set(LinkState::Blackhole);
    pair.run(2 * SECOND, false);
    assert_eq!(pair.states(), [State::Joining; 2]);
    pair.run(3 * SECOND + 1, false);
    assert_eq!(pair.states(), [State::Blocked, State::Joining]);

    let mut pair = Pair::new(20, 10, 0.0);
    pair.run(100 * SECOND, false);
    assert_eq!(pair.states(), [State::Joined; 2], "it is kept alive");
    pair.set(LinkState::Blackhole);
    pair.run(150 * SECOND, false);
    assert_eq!(pair.states(), [State::Ended; 2]);
}

#[test]
fn a_connection_recovers_from_an_outage_and_from_lost_flights() {
    let mut pair = Pair::new(20, 10, 0.2);
    pair.run(3 * SECOND, false);
    assert_eq!(pair.states(), [State::Joined; 2]);
    let mut pair = Pair::new(20, 10, 0.0);
    pair.run(2 * SECOND, true);
    pair.set(LinkState::Blackhole);
    pair.run(7 * SECOND, true);
    pair.set(LinkState::Up);
    let before = pair.delivered;
    // Probes have backed off, and the window grows again from the least one.
    pair.run(20 * SECOND, true);
    assert!(
        pair.delivered > before + 2_000,
        "{}",
        pair.delivered - before
    );
}

#[test]
fn the_end_of_one_side_ends_the_other() {
    let mut pair = Pair::new(20, 10, 0.0);
    pair.run(SECOND, true);
    pair.ends[1].close();
    assert!(pair.ends[1].send(Bytes::from_static(b"late")).is_err());
    pair.run(2 * SECOND, false);
    assert_eq!(pair.states(), [State::Ended; 2]);
}
