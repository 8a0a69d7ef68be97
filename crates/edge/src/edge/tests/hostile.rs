//! Several flows at once, over IPv4 and IPv6, with data both ways and an attacker that forges
//! packets. Nodes join flows midway or see one direction only. The invariants are those of the
//! other tests: an end receives the bytes that the other sent, in order, or its connection fails
//! visibly; and a node acknowledges only data that it has received.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use proptest::prelude::*;
use sumlink_engine::RangeSet;
use sumlink_link::Random;

use super::ends::{End, MSS};
use crate::flow::FlowKey;
use crate::lwa::{Header, Reorder, ReorderConfig, is_numbered};
use crate::packet::fixture::{Draft, segment};
use crate::visible::{Boost, Parameters};
use crate::{Config, Edge, Instant, LinkId, Mode};

const FAR_DELAY: Duration = Duration::from_millis(3);
const TICK: Duration = Duration::from_millis(1);
const LINKS: usize = 2;

/// Which packets of a flow pass through the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ways {
    Both,
    FromFar,
    FromUser,
}

/// One generated connection.
#[derive(Clone, Copy, Debug)]
struct Plan {
    v6: bool,
    totals: [u64; 2],
    rooms: [u64; 2],
    starts: [u32; 2],
    keepalive: bool,
    sack: bool,
    ways: Ways,
}

/// The destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    EdgeFromFar,
    EdgeFromUser,
    /// The reordering receiver at the users' end of the links, in `lwa`.
    Receiver,
    End(usize),
}

struct World {
    now: Instant,
    config: Config,
    edge: Edge,
    /// For flow n, 2n is the far end and 2n + 1 the user.
    ends: Vec<End>,
    plans: Vec<Plan>,
    /// For each flow, the far end's bytes that nodes received, by distance from its start plus
    /// 2^32.
    handed: Vec<RangeSet>,
    /// The highest acknowledgment sent to each far end.
    ack_sent: Vec<u64>,
    flying: BTreeMap<(Instant, u64), (To, Vec<u8>)>,
    count: u64,
    random: Random,
    loss: f64,
    /// Packets per millisecond and delay of each link.
    links: [(usize, u64); LINKS],
    /// In `lwa`: the receiver of each address, which delivers packets in order.
    receivers: Option<BTreeMap<IpAddr, Reorder>>,
    /// Forged packets: the node sees them, and an end that receives one unchanged discards it.
    forged: Vec<Vec<u8>>,
    /// Number of boosts, and the most bytes owed by all flows at once.
    boosted: u32,
    max_owed: u64,
    /// For each flow, whether its user is offline: it neither receives nor sends.
    away: Vec<bool>,
}

impl World {
    fn new(
        config: Config,
        plans: &[Plan],
        links: [(usize, u64); LINKS],
        loss: f64,
        seed: u64,
    ) -> Self {
        let mut ends = Vec::new();
        for (n, plan) in plans.iter().enumerate() {
            let port = 1000 + n as u16;
            let (far, user): (SocketAddr, SocketAddr) = match plan.v6 {
                false => (([192, 0, 2, 1], port).into(), ([10, 0, 0, 2], port).into()),
                true => (
                    format!("[2001:db8::1]:{port}").parse().unwrap(),
                    format!("[2001:db8:1::2]:{port}").parse().unwrap(),
                ),
            };
            for (side, pair) in [(far, user), (user, far)].into_iter().enumerate() {
                let sizes = (plan.totals[side], plan.rooms[side]);
                let opens = side == 1;
                ends.push(End::new(
                    pair,
                    plan.starts[side],
                    opens,
                    sizes,
                    plan.keepalive,
                    plan.sack,
                ));
            }
        }
        Self {
            now: Instant::ZERO,
            edge: Edge::new(config.clone()).unwrap(),
            ends,
            plans: plans.to_vec(),
            handed: vec![RangeSet::new(); plans.len()],
            ack_sent: vec![0; plans.len()],
            flying: BTreeMap::new(),
            count: 0,
            random: Random::new(seed),
            loss,
            links,
            receivers: (config.mode == Mode::Lwa).then(BTreeMap::new),
            forged: Vec::new(),
            boosted: 0,
            max_owed: 0,
            away: vec![false; plans.len()],
            config,
        }
    }

    fn over(&self) -> bool {
        let flows = self.ends.chunks(2);
        flows
            .into_iter()
            .all(|flow| flow.iter().any(|end| end.failed) || flow.iter().all(End::done))
    }

    fn fly(&mut self, to: To, delay: Duration, packet: Vec<u8>) {
        self.count += 1;
        self.flying
            .insert((self.now + delay, self.count), (to, packet));
    }

    /// Distance from the start of a flow's far end, from 2^32 on.
    fn place(&self, flow: usize, number: u32) -> u64 {
        let from = self.ends[2 * flow].start;
        let taken = self.ends[2 * flow + 1].taken;
        crate::seq::near((1 << 32) + taken, number.wrapping_sub(from))
    }

    fn flow_of(&self, source: SocketAddr) -> usize {
        usize::from(source.port()) - 1000
    }

    fn step(&mut self) {
        self.now += TICK;
        let now = self.now;
        for n in 0..self.ends.len() {
            self.ends[n].tick(now);
        }
        self.collect();
        if self.edge.poll_timeout().is_some_and(|at| at <= now) {
            self.edge.handle_timeout(now);
        }
        self.exchange();
        for receiver in self.receivers.iter_mut().flat_map(BTreeMap::values_mut) {
            receiver.handle_timeout(now);
        }
        self.give_out();
        while let Some(entry) = self
            .flying
            .first_entry()
            .filter(|first| first.key().0 <= now)
        {
            let (to, packet) = entry.remove();
            self.arrive(to, packet);
        }
        for link in 0..LINKS {
            for _ in 0..self.links[link].0 {
                let Some(packet) = self.edge.poll_link(LinkId(link as u8), now) else {
                    break;
                };
                self.carried(link, packet.to_vec());
            }
        }
    }

    fn arrive(&mut self, to: To, packet: Vec<u8>) {
        match to {
            To::EdgeFromFar => self.far(packet),
            To::EdgeFromUser => self.edge.handle_user(packet, self.now),
            To::Receiver => match &mut self.receivers {
                Some(receivers) if is_numbered(&packet) => {
                    let inner = Header::read(self.config.sequence_bits, &packet).unwrap().1;
                    let user = segment(inner).destination.ip();
                    let receiver = receivers.entry(user);
                    let fresh = || Reorder::new(ReorderConfig::default());
                    receiver.or_insert_with(fresh).handle_pdu(&packet, self.now);
                    self.give_out();
                }
                _ => self.hand_to_user(packet),
            },
            To::End(n) if n % 2 == 1 && self.away[n / 2] => {}
            To::End(n) => self.ends[n].handle(&packet, &segment(&packet), self.now),
        }
        self.exchange();
        self.collect();
    }

    /// Passes a far end's packet to the node.
    fn far(&mut self, packet: Vec<u8>) {
        let seen = segment(&packet);
        let flow = self.flow_of(seen.source);
        let left = self.place(flow, seen.sequence);
        self.handed[flow].insert(left..left + seen.sequence_len());
        self.edge.handle_far(packet, self.now);
    }

    fn carried(&mut self, link: usize, packet: Vec<u8>) {
        if self.random.next_f64() < self.loss {
            return;
        }
        let jitter = (self.random.next_f64() * 4.0) as u64;
        let delay = Duration::from_millis(self.links[link].1 + jitter);
        self.fly(To::Receiver, delay, packet);
    }

    /// Delivers the packets that are in order.
    fn give_out(&mut self) {
        let receivers = self.receivers.iter_mut().flat_map(BTreeMap::values_mut);
        let ready = receivers.flat_map(|receiver| std::iter::from_fn(|| receiver.poll()));
        for packet in ready.collect::<Vec<_>>() {
            self.hand_to_user(packet);
        }
    }

    fn hand_to_user(&mut self, packet: Vec<u8>) {
        if !self.forged.contains(&packet) {
            let flow = self.flow_of(segment(&packet).source);
            self.arrive(To::End(2 * flow + 1), packet);
        }
    }

    /// Passes the ends' packets to the node, or around it.
    fn collect(&mut self) {
        for n in 0..self.ends.len() {
            for packet in std::mem::take(&mut self.ends[n].out) {
                let from_far = n % 2 == 0;
                let ways = self.plans[n / 2].ways;
                let past = ways
                    == if from_far {
                        Ways::FromUser
                    } else {
                        Ways::FromFar
                    };
                let lost = self.random.next_f64() < self.loss || (!from_far && self.away[n / 2]);
                match (past, from_far) {
                    _ if lost => {}
                    (true, _) => self.fly(To::End(n ^ 1), Duration::from_millis(12), packet),
                    (_, true) => self.fly(To::EdgeFromFar, FAR_DELAY, packet),
                    (_, false) => self.fly(To::EdgeFromUser, Duration::from_millis(9), packet),
                }
            }
        }
    }

    /// Passes the node's packets to the far ends.
    fn exchange(&mut self) {
        while self.edge.poll_event().is_some() {}
        while let Some(packet) = self.edge.poll_far() {
            if self.forged.contains(&packet) {
                continue;
            }
            let seen = segment(&packet);
            let flow = self.flow_of(seen.source);
            let user = &self.ends[2 * flow + 1];
            if seen.flags.ack && !seen.flags.syn && !seen.flags.rst {
                let (ack, taken) = (self.place(flow, seen.ack), (1 << 32) + user.taken);
                assert!(
                    ack <= taken || self.handed[flow].covers(taken..ack),
                    "flow {flow}: acknowledges {} of {}, beyond the received data: {seen:?}",
                    ack as i64 - (1 << 32),
                    user.taken
                );
                let most = match self.config.visible.boost {
                    Boost::Many => 5,
                    _ => 1,
                };
                assert!(ack.saturating_sub(taken) <= most * MSS, "too much is owed");
                self.boosted += u32::from(ack > taken);
                self.ack_sent[flow] = self.ack_sent[flow].max(ack.saturating_sub(1 << 32));
            }
            self.fly(To::End(2 * flow), FAR_DELAY, packet);
        }
        let owed = self.edge.flows().map(|(_, report)| report.owed).sum();
        self.max_owed = self.max_owed.max(owed);
        assert!(owed <= self.owable(), "{owed} bytes are owed by all flows");
    }

    /// The most bytes that all flows may be owed: with phi of 0.2, four packets. With many, the
    /// n-th of the flows is owed at most one more than 5 / n (`docs/edge.md`).
    fn owable(&self) -> u64 {
        let flows = 1..=self.plans.len() as u64;
        match self.config.visible.boost {
            Boost::Many => flows.map(|n| (5.0 / n as f64).ceil() as u64 * MSS).sum(),
            _ => 4 * MSS,
        }
    }

    /// Forges a packet, with no knowledge of the flow except `knows`.
    fn forge(&mut self, flow: usize, what: u8, number: u32) {
        let flow = flow % self.plans.len();
        let (far, user) = (self.ends[2 * flow].me, self.ends[2 * flow + 1].me);
        let key = FlowKey { far, user };
        let Some(report) = self.edge.flow(&key) else {
            return;
        };
        let (at, from) = (self.ends[2 * flow + 1].taken, self.ends[2 * flow].start);
        let asked = from.wrapping_add(at as u32);
        let ack_sent = self.ack_sent[flow];
        let next = self.ends[2 * flow + 1]
            .start
            .wrapping_add(self.ends[2 * flow].taken as u32);
        let somewhere = |near: u32| near.wrapping_add((1 << 29) + number % (3 << 29));
        let up = |sequence: u32| Draft::between(user, far, sequence);
        let down = |sequence: u32| Draft::between(far, user, sequence).ack(next);
        let (is_up, draft) = match what % 9 {
            // Acknowledgments of data that was never sent, from within the window while bytes are
            // owed.
            0 if report.owed > 0 => (
                true,
                up(next).ack(asked.wrapping_add(200_000 + number % 1000)),
            ),
            0 | 1 => (
                true,
                up(somewhere(next)).ack(asked.wrapping_add(number % 5000)),
            ),
            2 => (true, up(somewhere(next)).rst()),
            3 => (false, down(somewhere(asked)).rst()),
            4 => (false, down(somewhere(asked)).payload(&[0xee; 700])),
            // Different content for owed bytes, and only for those: other content inside the window
            // would reach the user even without a node.
            5 if ack_sent > at => (
                false,
                down(asked).payload(&[0xee; 1000][..(ack_sent - at).min(MSS) as usize]),
            ),
            5 | 6 => (false, down(somewhere(asked)).syn()),
            // False SACK blocks beyond a gap, from within the window: at worst they cause
            // retransmissions.
            7 => {
                let left = asked.wrapping_add(1 + number % 40_000);
                let blocks = [(left, left.wrapping_add(1 + number % 9000))];
                (true, up(next).ack(asked).window(0).sack(&blocks))
            }
            _ => (true, up(somewhere(next)).syn()),
        };
        let packet = draft.packet();
        self.forged.push(packet.clone());
        match is_up {
            true => self.edge.handle_user(packet, self.now),
            false => self.edge.handle_far(packet, self.now),
        }
        self.exchange();
    }

    fn happen(&mut self, what: u8, number: u32) {
        match what {
            0 | 1 => self.edge.link_down(LinkId(what), self.now),
            2 | 3 => self.edge.link_up(LinkId(what - 2), self.now),
            4 => {
                self.edge = Edge::new(self.config.clone()).unwrap();
                // Its numbers belong to another epoch, as a tunnel's header shows; late packets of
                // the previous epoch are dropped.
                if let Some(receivers) = &mut self.receivers {
                    receivers.clear();
                    self.flying.retain(|_, (to, _)| *to != To::Receiver);
                }
            }
            what => self.forge(number as usize / 7, what, number),
        }
        self.exchange();
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    // Close enough to the end of the number space for most of them to wrap around within the
    // transfer.
    let start = prop_oneof![3 => (0u32..60_000).prop_map(|n| u32::MAX - n), 1 => any::<u32>()];
    let room = prop_oneof![1u64..1000, 1000u64..20_000, Just(200_000)];
    let ways =
        prop_oneof![6 => Just(Ways::Both), 1 => Just(Ways::FromFar), 1 => Just(Ways::FromUser)];
    (
        any::<bool>(),
        [0u64..120_000, 0u64..60_000],
        [room.clone(), room],
        [start.clone(), start],
        any::<[bool; 2]>(),
        ways,
    )
        .prop_map(|(v6, totals, mut rooms, starts, [keepalive, sack], ways)| {
            // Transfers through a tiny window are kept short; they would take forever.
            let most = |room: u64| if room < 1000 { 40 * room } else { u64::MAX };
            let totals = [totals[0].min(most(rooms[1])), totals[1].min(most(rooms[0]))];
            rooms.iter_mut().for_each(|room| *room = (*room).max(1));
            Plan {
                v6,
                totals,
                rooms,
                starts,
                keepalive,
                sack,
                ways,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn under_forgery_bytes_arrive_or_connections_fail_visibly(
        mode in 0..Mode::NAMES.len() + 2,
        many: bool,
        plans in proptest::collection::vec(plan(), 1..4),
        links in [(1usize..4, 0u64..30), (1usize..4, 0u64..30)],
        loss in 0.0f64..0.04,
        seed: u64,
        happen in proptest::collection::vec((1u64..1500, 0u8..14, any::<u32>()), 0..40),
    ) {
        let mode = Mode::NAMES.get(mode).map_or(Mode::LwipVisible, |(_, mode)| *mode);
        let config = Config { mode, visible: reading(many), ..Config::default() };
        let mut world = World::new(config, &plans, links, loss, seed);
        let (drawn, mut happen) = (happen.clone(), happen);
        happen.extend([(1500, 2, 0), (1500, 3, 0)]);
        happen.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        while !world.over() && world.now < Duration::from_secs(600) {
            let now = world.now;
            let due = |at: &u64| Duration::from_millis(*at) <= now;
            while let Some((_, what, number)) = happen.pop_if(|(at, ..)| due(at)) {
                world.happen(what, number);
            }
            world.step();
        }
        // A connection may fail only if a node died.
        let died = drawn.iter().any(|(_, what, _)| *what == 4);
        let failed = world.ends.iter().any(|end| end.failed);
        prop_assert!(died || !failed, "a connection failed without cause");
        prop_assert!(world.over(), "neither finished nor failed at {:?}", world.now);
        for (n, end) in world.ends.iter().enumerate() {
            let other = &world.ends[n ^ 1];
            let sound = end.acked <= other.taken || end.failed || other.failed;
            prop_assert!(sound, "an end considers undelivered data acknowledged");
        }
        if mode != Mode::LwipVisible {
            prop_assert_eq!(world.boosted, 0);
        }
    }
}

/// Without loss, each packet is delivered once and in the order in which the node received it,
/// although links and jitter mix packets.
#[test]
fn numbered_packets_of_several_flows_are_delivered_in_order_without_loss() {
    let plan = |n: u32| Plan {
        v6: n.is_multiple_of(2),
        totals: [200_000, 20_000],
        rooms: [100_000; 2],
        starts: [u32::MAX - 1000 * n, n],
        keepalive: false,
        sack: true,
        ways: Ways::Both,
    };
    let plans: Vec<_> = (0..3).map(plan).collect();
    let config = Config {
        mode: Mode::Lwa,
        ..Config::default()
    };
    let mut world = World::new(config, &plans, [(3, 2), (2, 15)], 0.0, 1);
    while !world.over() && world.now < Duration::from_secs(60) {
        world.step();
    }
    assert!(world.ends.iter().all(End::done));
    let receivers = world.receivers.unwrap();
    assert_eq!(receivers.len(), 2, "one sequence per address");
    for (user, receiver) in receivers {
        let stats = receiver.stats();
        assert!(stats.reordered > 100, "{user}: {stats:?}");
        let wrong = stats.missing + stats.late + stats.malformed;
        assert_eq!(wrong, 0, "{user}: {stats:?}");
    }
}

fn reading(many: bool) -> Parameters {
    let boost = if many { Boost::Many } else { Boost::Once };
    Parameters {
        boost,
        ..Parameters::default()
    }
}

#[test]
fn silent_users_are_owed_at_most_four_segments() {
    let owed = owed_to_silent_users(false);
    assert_eq!(owed, [4 * MSS; 4]);
}

/// One for each further user; the node asserts the bound.
#[test]
fn with_many_silent_users_are_owed_few_segments_each() {
    let owed = owed_to_silent_users(true);
    assert!(owed.iter().all(|owed| *owed > 4 * MSS), "{owed:?}");
}

/// One user after another, each of which goes offline for good while it is owed bytes, if it ever
/// is. Returns the most bytes owed, for four seeds.
fn owed_to_silent_users(many: bool) -> [u64; 4] {
    const USERS: usize = 16;
    // Longer than a flow counts as busy; and all of them before the first debt is given up.
    const TURN: [Duration; 2] = [Duration::from_millis(1250), Duration::from_millis(1400)];
    let plan = |n: u32| Plan {
        v6: n.is_multiple_of(2),
        totals: [1_000_000, 0],
        rooms: [200_000; 2],
        starts: [1000 * n, n],
        keepalive: false,
        sack: n.is_multiple_of(3),
        ways: Ways::Both,
    };
    let plans: Vec<_> = (0..USERS as u32).map(plan).collect();
    let config = Config {
        mode: Mode::LwipVisible,
        visible: reading(many),
        ..Config::default()
    };
    [0, 1, 2, 3].map(|seed| {
        let mut world = World::new(config.clone(), &plans, [(3, 2), (2, 40)], 0.04, seed);
        world
            .ends
            .iter_mut()
            .for_each(|end| end.timer = Instant::MAX);
        for turn in 0..USERS {
            let since = world.now;
            let (far, user) = (2 * turn, 2 * turn + 1);
            (world.ends[far].timer, world.ends[user].timer) = (since, since);
            let key = FlowKey {
                far: world.ends[far].me,
                user: world.ends[user].me,
            };
            let is_owed =
                |world: &World| world.edge.flow(&key).is_some_and(|report| report.owed > 0);
            while world.now < since + TURN[0] || (world.now < since + TURN[1] && !is_owed(&world)) {
                world.step();
            }
            world.away[turn] = true;
        }
        world.max_owed
    })
}
