//! Two sessions and the datagram paths between them in virtual time. Each direction of a path has a
//! rate, a delay, a queue and losses, and can be dead for a time. The carrier on it is paced and
//! never fills the queue, unless a test overrides its window.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use crate::datagram::{DatagramCarrier, DatagramSample, FlowError, FlowId};
use crate::{Config, Event, Instant, PathId, Role, Session};

pub(super) const MS: Duration = Duration::from_millis(1);

/// The start of time. Both clocks differ by a day.
pub(super) const START: Instant = Instant::from_secs(1000);

/// Offset of the server's clock.
const SERVER_CLOCK: Duration = Duration::from_secs(86_400);

/// The properties of a path, the same in both directions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Bytes per second.
    pub(super) rate: f64,
    /// One way.
    pub(super) delay: Duration,
    /// Share of lost packets.
    pub(super) loss: f64,
    /// Bytes in the queue; more are dropped.
    pub(super) queue: f64,
    /// Largest packet.
    pub(super) packet: usize,
}

impl Link {
    pub(super) fn new(mbit: f64, delay_ms: u64) -> Self {
        Self {
            rate: mbit * 125_000.0,
            delay: Duration::from_millis(delay_ms),
            loss: 0.0,
            queue: 1e9,
            packet: 1400,
        }
    }
}

/// One direction of a path.
#[derive(Debug)]
struct Way {
    link: Link,
    /// When the link will have sent everything that it holds.
    free_at: Instant,
    packets: VecDeque<(Instant, Bytes)>,
    dead_until: Instant,
    sent: u64,
    lost: u64,
}

impl Way {
    fn send(&mut self, packet: Bytes, now: Instant, random: &mut Random) {
        self.sent += 1;
        let start = self.free_at.max(now);
        let waiting = (start - now).as_secs_f64() * self.link.rate;
        let is_lost = random.share() < self.link.loss || now < self.dead_until;
        if is_lost || waiting > self.link.queue {
            self.lost += 1;
            return;
        }
        let took = Duration::from_secs_f64(packet.len() as f64 / self.link.rate);
        self.free_at = start + took;
        self.packets
            .push_back((self.free_at + self.link.delay, packet));
    }

    /// Bytes that a paced carrier takes now.
    fn space(&self, now: Instant) -> u64 {
        let waiting = self.free_at.saturating_sub(now);
        // A slow link takes one packet more than it is sending.
        let packet = self.link.packet as f64;
        let most = (2.0 * packet).max((2 * MS).as_secs_f64() * self.link.rate);
        (most - waiting.as_secs_f64() * self.link.rate).max(0.0) as u64
    }

    fn next(&self) -> Option<Instant> {
        self.packets.front().map(|(at, _)| *at)
    }
}

/// A small generator of random numbers (xorshift).
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn share(&mut self) -> f64 {
        (self.next() % (1 << 20)) as f64 / f64::from(1 << 20)
    }
}

/// A datagram that has arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) at: Instant,
    pub(super) flow: FlowId,
    pub(super) payload: Bytes,
}

/// Client and server.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) sides: [Session; 2],
    ways: BTreeMap<(usize, PathId), Way>,
    random: Random,
    pub(super) arrived: [Vec<Arrived>; 2],
    pub(super) events: [Vec<Event>; 2],
}

pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

impl Pair {
    pub(super) fn new(links: &[Link]) -> Self {
        Self::with(links, |_| {})
    }

    pub(super) fn with(links: &[Link], change: impl Fn(&mut Config)) -> Self {
        let side = |role, now| {
            let mut config = Config::new(role);
            change(&mut config);
            Session::new(config, now).unwrap()
        };
        let mut pair = Self {
            now: START,
            sides: [
                side(Role::Client, START),
                side(Role::Server, START + SERVER_CLOCK),
            ],
            ways: BTreeMap::new(),
            random: Random(0x9e37_79b9_7f4a_7c15),
            arrived: [Vec::new(), Vec::new()],
            events: [Vec::new(), Vec::new()],
        };
        for (index, link) in links.iter().enumerate() {
            pair.path_up(PathId(index as u32), *link);
        }
        pair
    }

    pub(super) fn path_up(&mut self, id: PathId, link: Link) {
        for side in [CLIENT, SERVER] {
            let way = Way {
                link,
                free_at: self.now,
                packets: VecDeque::new(),
                dead_until: Instant::ZERO,
                sent: 0,
                lost: 0,
            };
            self.ways.insert((side, id), way);
            let now = self.clock(side);
            let link = u64::from(id.0);
            self.sides[side].datagram_path_up(id, DatagramCarrier::Quic, link, false, now);
        }
    }

    pub(super) fn path_down(&mut self, id: PathId) {
        for side in [CLIENT, SERVER] {
            self.ways.remove(&(side, id));
            let now = self.clock(side);
            self.sides[side].datagram_path_down(id, now);
        }
    }

    /// Drops everything that is sent on a path for a time.
    pub(super) fn blackhole(&mut self, id: PathId, time: Duration) {
        for side in [CLIENT, SERVER] {
            self.blackhole_way(side, id, time);
        }
    }

    /// Drops everything that one side sends on a path for a time.
    pub(super) fn blackhole_way(&mut self, side: usize, id: PathId, time: Duration) {
        if let Some(way) = self.ways.get_mut(&(side, id)) {
            way.dead_until = self.now + time;
        }
    }

    pub(super) fn change(&mut self, id: PathId, change: impl Fn(&mut Link)) {
        for side in [CLIENT, SERVER] {
            if let Some(way) = self.ways.get_mut(&(side, id)) {
                change(&mut way.link);
            }
        }
    }

    /// The time of one side's clock.
    pub(super) fn clock(&self, side: usize) -> Instant {
        match side {
            CLIENT => self.now,
            _ => self.now + SERVER_CLOCK,
        }
    }

    pub(super) fn send(&mut self, side: usize, flow: FlowId, payload: impl Into<Bytes>) {
        let now = self.clock(side);
        self.sides[side]
            .send_datagram(flow, payload.into(), now)
            .unwrap();
    }

    /// Runs until nothing is left to do now.
    pub(super) fn exchange(&mut self) {
        loop {
            let mut is_idle = true;
            let now = self.now;
            let due = |way: &&mut Way| way.next().is_some_and(|at| at <= now);
            let keys: Vec<_> = self.ways.keys().copied().collect();
            for (side, id) in keys {
                while let Some(way) = self.ways.get_mut(&(side, id)).filter(due)
                    && let Some((_, packet)) = way.packets.pop_front()
                {
                    let to = 1 - side;
                    let now = self.clock(to);
                    self.sides[to].handle_datagram(id, packet, now).unwrap();
                    self.collect(to);
                    is_idle = false;
                }
                is_idle &= !self.transmit(side, id);
            }
            for side in [CLIENT, SERVER] {
                self.collect(side);
            }
            if is_idle {
                return;
            }
        }
    }

    fn transmit(&mut self, side: usize, id: PathId) -> bool {
        let now = self.clock(side);
        let mut has_sent = false;
        while let Some(way) = self.ways.get_mut(&(side, id)) {
            let space = way.space(self.now);
            let trip = 2 * way.link.delay;
            let sample = DatagramSample {
                srtt: trip + MS,
                min_rtt: trip,
                rttvar: MS,
                cwnd: (way.link.rate * (trip + 2 * MS).as_secs_f64()) as u64,
                in_flight: 0,
                max_datagram: way.link.packet,
                space,
            };
            let session = &mut self.sides[side];
            session.datagram_path_stats(id, sample, now);
            let mut packet = Vec::new();
            if space < way.link.packet as u64
                || !session.poll_datagram(id, way.link.packet, now, &mut packet)
            {
                break;
            }
            assert!(packet.len() <= way.link.packet);
            way.send(packet.into(), self.now, &mut self.random);
            has_sent = true;
        }
        has_sent
    }

    fn collect(&mut self, side: usize) {
        let at = self.now;
        while let Some(event) = self.sides[side].poll_event() {
            self.events[side].push(event);
        }
        while let Some((flow, payload)) = self.sides[side].poll_received() {
            self.arrived[side].push(Arrived { at, flow, payload });
        }
    }

    /// Advances time by `time`.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.exchange();
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 1_000_000, "it comes to rest");
            let arrivals = self.ways.values().filter_map(Way::next);
            let spaces = self.ways.values().map(|way| way.free_at);
            let spaces = spaces.filter(|at| *at > self.now);
            let timers = [CLIENT, SERVER].into_iter().filter_map(|side| {
                let offset = self.clock(side) - self.now;
                self.sides[side].poll_timeout().map(|at| at - offset)
            });
            let next = arrivals.chain(spaces).chain(timers).min();
            let next = next.map_or(end, |at| at.max(self.now));
            if next > end || next == end && self.now == end {
                self.now = end;
                self.exchange();
                return;
            }
            self.now = next;
            for side in [CLIENT, SERVER] {
                let now = self.clock(side);
                if self.sides[side].poll_timeout().is_some_and(|at| at <= now) {
                    self.sides[side].handle_timeout(now);
                    let again = self.sides[side].poll_timeout();
                    assert!(again.is_none_or(|at| at > now), "timers make progress");
                }
            }
            self.exchange();
        }
    }

    /// Number of datagrams that have arrived on a side.
    pub(super) fn count(&self, side: usize) -> usize {
        self.arrived[side].len()
    }
}

/// A flow's regular datagrams in one direction. Each has its number in its first bytes.
#[derive(Debug)]
pub(super) struct Traffic {
    side: usize,
    flow: FlowId,
    len: usize,
    pub(super) every: Duration,
    next: Option<Instant>,
    /// When each datagram was sent.
    pub(super) sent: Vec<Instant>,
}

impl Traffic {
    pub(super) fn new(side: usize, flow: FlowId, len: usize, every: Duration) -> Self {
        Self {
            side,
            flow,
            len,
            every,
            next: None,
            sent: Vec::new(),
        }
    }

    /// Number and time of each arrival.
    pub(super) fn arrivals(&self, pair: &Pair) -> Vec<(u64, Instant)> {
        let arrived = pair.arrived[1 - self.side].iter();
        let own = arrived.filter(|arrived| arrived.flow == self.flow);
        own.map(|arrived| {
            let number = arrived.payload.first_chunk().unwrap();
            (u64::from_be_bytes(*number), arrived.at)
        })
        .collect()
    }

    pub(super) fn lost(&self, pair: &Pair) -> usize {
        let numbers: BTreeSet<u64> = self
            .arrivals(pair)
            .iter()
            .map(|(number, _)| *number)
            .collect();
        self.sent.len() - numbers.len()
    }

    pub(super) fn is_exactly_once(&self, pair: &Pair) -> bool {
        let mut numbers = BTreeSet::new();
        let mut arrivals = self.arrivals(pair).into_iter();
        arrivals.all(|(number, _)| numbers.insert(number))
    }

    pub(super) fn is_in_order(&self, pair: &Pair) -> bool {
        self.arrivals(pair).is_sorted_by_key(|(number, _)| *number)
    }

    /// Longest time between two arrivals.
    pub(super) fn longest_gap(&self, pair: &Pair) -> Duration {
        let arrivals = self.arrivals(pair);
        let gaps = arrivals.windows(2).map(|two| two[1].1 - two[0].1);
        gaps.max().unwrap_or_default()
    }

    /// Longest time from a program to the other.
    pub(super) fn highest_delay(&self, pair: &Pair) -> Duration {
        let arrivals = self.arrivals(pair);
        let delays = arrivals
            .iter()
            .map(|(number, at)| *at - self.sent[*number as usize]);
        delays.max().unwrap_or_default()
    }
}

impl Pair {
    /// Advances time by `time`, with traffic.
    pub(super) fn drive(&mut self, traffic: &mut [Traffic], time: Duration) {
        let end = self.now + time;
        loop {
            let now = self.now;
            let nexts = traffic.iter().map(|one| one.next.unwrap_or(now));
            let next = nexts.min().filter(|next| *next < end);
            let Some(next) = next else {
                return self.run(end - now);
            };
            self.run(next - now);
            for one in traffic
                .iter_mut()
                .filter(|one| one.next.unwrap_or(now) <= next)
            {
                one.next = Some(next + one.every);
                let mut payload = vec![0; one.len];
                payload[..8].copy_from_slice(&(one.sent.len() as u64).to_be_bytes());
                one.sent.push(next);
                let at = self.clock(one.side);
                // The server knows a flow from its first datagram on.
                let result = self.sides[one.side].send_datagram(one.flow, payload.into(), at);
                if result == Err(FlowError::Unknown) {
                    one.sent.pop();
                } else {
                    result.unwrap();
                }
            }
            self.exchange();
        }
    }
}
