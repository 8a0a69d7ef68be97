//! A bond in a hostile network, and the invariants that hold at all times.

use std::time::Duration;

use sumlink_bond::congestion::{AUTO, LOSS_BASED};
use sumlink_engine::{Config, DatagramConfig, DatagramPolicy, DatagramStats};
use sumlink_link::{Loss, QueueLimit, Random};
use sumlink_scenario::config::{
    Direction, InterfaceState, LinkChange, LinkSpec, PlannedChange, Setting, Shape as LinkShape,
};
use sumlink_scenario::plan::LabConfig;

use super::case::{Case, Op, Shape};
use crate::bond::{Bond, Carrying, Dialing};
use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::net::{Net, News};
use crate::tcp::{Side, TcpConfig};
use crate::workload::{Bearer, Progress};

/// Most rounds at one virtual time; more are a livelock. A turn of a daemon alone has sixteen.
const MAX_ROUNDS: u32 = 1_000;
/// Most times per second at which a component is woken without an arrival or a TCP timer.
const MAX_WAKES: u64 = 2_000;

/// Memory limits of a session and of a stream, in bytes.
const MEMORY: [u64; 2] = [16 << 20, 8 << 20];
const TIGHT: [u64; 2] = [2 << 20, 1 << 18];

/// The complete state of a case.
pub(super) struct Drill {
    pub(super) net: Net,
    pub(super) bond: Bond,
    news: Vec<News>,
    memory: [u64; 2],
    /// Time of the last check, and the number of events until then.
    checked: Nanos,
    wakes: u64,
    entries: u64,
}

impl Drill {
    /// Creates a bond with as many paths as the links allow, and starts the run. All changes of the
    /// links are scheduled; at the end, the links are [`Shape::PEACE`].
    pub(super) fn new(case: &Case) -> Self {
        let chooses = case.congestion == AUTO;
        let congestion = if chooses { LOSS_BASED } else { case.congestion };
        let tcp = TcpConfig {
            congestion: congestion.to_owned(),
            ..crate::run::carrier_tcp()
        };
        let memory = if case.is_tight { TIGHT } else { MEMORY };
        let configure = |config: &mut Config| {
            config.scheduler = case.scheduler.to_owned();
            config.own_schedulers = sumlink_schedulers::all();
            config.session_timeout = Duration::from_secs(3600);
            [config.memory, config.stream_memory] = memory;
            config.max_streams = if case.is_tight { 4 } else { 64 };
        };
        let dialing = Dialing {
            tcp,
            chooses,
            carriers: case.carriers,
            datagrams: case.has_datagrams.then_some(Carrying {
                policy: DatagramPolicy::Auto,
                udp: true,
            }),
        };
        let early = case.early;
        let bond = Bond::new(configure, dialing, case.links.len(), early).expect("it is valid");
        let mut drill = Self {
            net: Net::new(&network(case)).expect("it is valid"),
            bond,
            news: Vec::new(),
            memory,
            checked: 0,
            wakes: 0,
            entries: 0,
        };
        drill.net.lies = vec![1.0; case.links.len()];
        let mut random = Random::new(case.seed);
        drill.bond.start(&mut drill.net, &mut random);
        drill.until(5 * SECOND, |drill| drill.bond.is_ready());
        drill.net.begin();
        drill
    }

    /// Advances by `time`.
    pub(super) fn run(&mut self, time: Nanos) {
        self.until(time, |_| false);
    }

    /// The same, and passes on what happens to the programs, with its time.
    pub(super) fn run_with(&mut self, time: Nanos, mut pass: impl FnMut(&Progress, Nanos)) {
        let end = self.net.now() + time;
        loop {
            self.settle_with(&mut pass);
            if !self.net.step(end) {
                return self.settle_with(&mut pass);
            }
            self.wakes += 1;
        }
    }

    /// Whether a link has lost or dropped a packet.
    pub(super) fn has_lost_packets(&self) -> bool {
        let links = 0..self.net.link_count();
        let mut all =
            links.flat_map(|link| Direction::BOTH.map(|way| self.net.counters(link, way)));
        all.any(|of| of.lost_packets + of.dropped_queue_packets + of.discarded_packets > 0)
    }

    /// Advances until `done` holds, by at most `time`; returns whether it holds.
    pub(super) fn until(&mut self, time: Nanos, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.net.now() + time;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            if !self.net.step(end) {
                self.settle();
                return done(self);
            }
            self.wakes += 1;
        }
    }

    fn settle(&mut self) {
        self.settle_with(&mut |_, _| {});
    }

    fn settle_with(&mut self, pass: &mut impl FnMut(&Progress, Nanos)) {
        for _ in 0..MAX_ROUNDS {
            self.net.take_news(&mut self.news);
            for item in &self.news {
                self.bond.on_news(&mut self.net, *item);
            }
            let progress = self.bond.work(&mut self.net);
            let now = self.net.now();
            progress.iter().for_each(|item| pass(item, now));
            if self.news.is_empty() && progress.is_empty() {
                return self.check();
            }
        }
        panic!("livelock at {} ns", self.net.now());
    }

    /// Checks the invariants.
    fn check(&mut self) {
        if let Some(fault) = self.bond.fault() {
            panic!("at {} ns: {fault}", self.net.now());
        }
        for session in self.bond.sessions() {
            let stats = session.stats();
            let [most, _] = self.memory;
            assert!(stats.receive_memory <= most, "received: {stats:?}");
            assert!(
                stats.send_buffered <= most,
                "send buffer above its limit: {stats:?}"
            );
            check_memory(&session.datagram_stats());
        }
        let since = self.net.now() - self.checked;
        if since >= SECOND {
            let entries = self.net.log().entries();
            let most = MAX_WAKES * since.div_ceil(SECOND) + 4 * (entries - self.entries);
            assert!(
                self.wakes <= most,
                "too many wakes ({}) in {since} ns with {} events, at {} ns with timers of {:?}",
                self.wakes,
                entries - self.entries,
                self.net.now(),
                self.bond.sessions().map(|session| session.poll_timeout())
            );
            (self.checked, self.wakes, self.entries) = (self.net.now(), 0, entries);
        }
    }

    /// Checks each direction of each stream after all have ended: `left[side]` of those that left.
    pub(super) fn check_streams(&self, left: &[[Option<bool>; 2]]) {
        for (channel, left) in left.iter().enumerate() {
            for side in Side::BOTH {
                let passage = self.bond.passage(channel, side);
                let has_reset = left.contains(&Some(false));
                let has_left = left.contains(&Some(true));
                let is_whole = passage.is_finished && passage.received == passage.written;
                assert!(
                    is_whole || has_reset || has_left || passage.is_refused,
                    "channel {channel} to {side:?}: {passage:?}"
                );
                assert!(
                    passage.received <= passage.written,
                    "channel {channel} to {side:?}: {passage:?}"
                );
            }
        }
        for session in self.bond.sessions() {
            let stats = session.stats();
            let held = (stats.send_buffered, stats.receive_memory, stats.reorder);
            assert_eq!(held, (0, 0, 0), "{stats:?}");
        }
    }

    /// A program connects and writes `bytes`; returns the number of its channel.
    pub(super) fn open(&mut self, side: Side, bytes: u64) -> usize {
        let channel = self.bond.open(&mut self.net, None, None);
        self.bond.offer(&mut self.net, channel, side, bytes);
        for side in Side::BOTH {
            self.bond.finish(&mut self.net, channel, side);
        }
        channel
    }

    /// Wire bytes that each link has carried to a side.
    pub(super) fn carried(&self, side: Side) -> Vec<u64> {
        let direction = direction(side);
        (0..self.net.link_count())
            .map(|link| self.net.counters(link, direction).delivered_bytes)
            .collect()
    }
}

/// Checks the memory of a session's datagrams.
fn check_memory(stats: &DatagramStats) {
    let config = DatagramConfig::default();
    let held = [
        (stats.queued_bytes, config.queue_memory),
        (stats.reorder_bytes, config.reorder_memory),
        (stats.fragment_bytes, config.fragment_memory),
    ];
    for (bytes, most) in held {
        assert!(bytes <= most as u64, "more memory than {most}: {stats:?}");
    }
}

/// The links of a case with all of their scheduled changes.
fn network(case: &Case) -> LabConfig {
    let name = |link: usize| format!("link{}", link % case.links.len());
    let mut links = Vec::new();
    for (index, shape) in case.links.iter().enumerate() {
        let mut of = LinkShape::of_rate((shape.mbit * 1e6) as u64);
        settings(shape).iter().for_each(|setting| of.set(setting));
        links.push(LinkSpec {
            name: name(index),
            shapes: [of.clone(), of],
        });
    }
    let mut config = LabConfig::new(links);
    config.seed = case.seed;
    let mut at = 0;
    let mut shapes = case.links.clone();
    let mut plan = |at: u64, link: usize, direction: Option<Direction>, setting: Setting| {
        config.timeline.push(PlannedChange {
            at: Duration::from_millis(at),
            link: name(link),
            change: LinkChange { direction, setting },
        });
    };
    for op in &case.ops {
        match *op {
            Op::Wait { ms } => at += ms,
            Op::Reshape { link, shape } => {
                shapes[link % case.links.len()] = shape;
                settings(&shape)
                    .into_iter()
                    .for_each(|setting| plan(at, link, None, setting));
            }
            Op::Silence { link, to: None } => {
                plan(at, link, None, Setting::State(InterfaceState::Blackhole));
            }
            Op::Silence {
                link,
                to: Some(side),
            } => {
                let loss = Setting::Loss(Loss::Independent(1.0));
                plan(at, link, Some(direction(side)), loss);
            }
            Op::Freeze { link } => plan(at, link, None, Setting::Rate(0)),
            Op::Down { link } => plan(at, link, None, Setting::State(InterfaceState::Down)),
            Op::Unaddress { link } => {
                plan(at, link, None, Setting::State(InterfaceState::Unaddressed));
            }
            Op::Readdress { link } => plan(at, link, None, Setting::NewAddress),
            Op::Lose { link, fate } => plan(at, link, None, Setting::Connections(fate)),
            Op::Restore { link } => {
                plan(at, link, None, Setting::State(InterfaceState::Up));
                for setting in settings(&shapes[link % case.links.len()]) {
                    plan(at, link, None, setting);
                }
            }
            _ => {}
        }
    }
    for link in 0..case.links.len() {
        plan(at, link, None, Setting::State(InterfaceState::Up));
        for setting in settings(&Shape::PEACE) {
            plan(at, link, None, setting);
        }
    }
    config
}

/// The direction of packets to a side.
fn direction(to: Side) -> Direction {
    match to {
        Side::Client => Direction::Down,
        Side::Server => Direction::Up,
    }
}

fn settings(shape: &Shape) -> Vec<Setting> {
    vec![
        Setting::Rate((shape.mbit * 1e6) as u64),
        Setting::Delay(Duration::from_millis(shape.ms)),
        Setting::Queue(QueueLimit::Time(Duration::from_millis(shape.queue))),
        Setting::Loss(Loss::Independent(shape.loss)),
    ]
}

/// Converts milliseconds to virtual time.
pub(super) fn ms(ms: u64) -> Nanos {
    ms * MILLISECOND
}
