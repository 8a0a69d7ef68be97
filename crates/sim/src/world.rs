//! Runs a system and its programs on a network, from the first packet to the results.

use bytes::Bytes;
use sumlink_engine::Class;
use sumlink_link::Random;
use sumlink_scenario::config::Direction;
use sumlink_scenario::plan::LabConfig;
use sumlink_scenario::results::{
    FlowRecord, LinkSeries, direction_name, series, set_delays, set_shares,
};
use sumlink_scenario::scenario::{Scenario, Workload};

use crate::bond::{Account, Bond};
use crate::clock::{MILLISECOND, Nanos, SECOND, duration, nanos};
use crate::edge::NodeAccount;
use crate::log::EventLog;
use crate::mptcp::Mptcp;
use crate::net::{Alarm, Net, News};
use crate::own::Stop;
use crate::plain::PlainTcp;
use crate::tcp::Side;
use crate::trace::Trace;
use crate::workload::{Bearer, Channel, FlowBearer, Programs, Progress};

/// Longest wait for paths before a run starts; a link that carries nothing never has one.
const PATHS_LIMIT: Nanos = 5 * SECOND;
/// Pause between the end of that wait and the start of the run.
const HEAD_START: Nanos = 100 * MILLISECOND;
/// Rounds in which programs and system answer each other at the same virtual time; more are a
/// livelock.
const MAX_ROUNDS: u32 = 100_000;
/// Stream of random numbers of the programs and the daemon, split off the seed of the run.
const PROGRAMS: u64 = 0x5053;
/// Number of the first plain TCP channel of a rival beside another system.
const PLAIN: Channel = 1 << 40;

/// The system that carries the flows.
#[derive(Debug)]
pub(crate) enum Carried {
    /// The programs' own TCP connections.
    Plain,
    /// sumlink.
    Bond(Box<Bond>),
    /// A model of the kernel's MPTCP.
    Mptcp(Box<Mptcp>),
}

/// The system under test, and plain TCP for a rival.
#[derive(Debug)]
pub(crate) struct Bearers {
    system: Carried,
    plain: PlainTcp,
}

impl Bearers {
    pub(crate) fn new(system: Carried, plain: crate::tcp::TcpConfig) -> Self {
        let base = match system {
            Carried::Plain => 0,
            Carried::Bond(_) | Carried::Mptcp(_) => PLAIN,
        };
        Self {
            system,
            plain: PlainTcp::new(plain, base),
        }
    }

    fn on_news(&mut self, net: &mut Net, news: News) {
        if let News::Connection(connection, side) = news
            && self.plain.on_connection(net, connection, side)
        {
            return;
        }
        match (&mut self.system, news) {
            (Carried::Bond(bond), news) => {
                bond.on_news(net, news);
            }
            (Carried::Mptcp(mptcp), News::Connection(connection, side)) => {
                mptcp.on_connection(net, connection, side);
            }
            (Carried::Mptcp(mptcp), News::Alarm(Alarm::Manager)) => mptcp.on_alarm(net),
            _ => {}
        }
    }

    fn work(&mut self, net: &mut Net) -> Vec<Progress> {
        let mut progress = self.plain.take_progress(net);
        match &mut self.system {
            Carried::Bond(bond) => progress.extend(bond.work(net)),
            Carried::Mptcp(mptcp) => progress.extend(mptcp.take_progress()),
            Carried::Plain => {}
        }
        progress
    }

    fn of(&mut self, channel: Channel) -> &mut dyn Bearer {
        match &mut self.system {
            Carried::Bond(bond) if channel < PLAIN => bond.as_mut(),
            Carried::Mptcp(mptcp) if channel < PLAIN => mptcp.as_mut(),
            _ => &mut self.plain,
        }
    }
}

impl Bearer for Bearers {
    fn open(&mut self, net: &mut Net, link: Option<usize>, class: Option<Class>) -> Channel {
        match &mut self.system {
            Carried::Bond(bond) if link.is_none() => bond.open(net, link, class),
            Carried::Mptcp(mptcp) if link.is_none() => mptcp.open(net, link, class),
            _ => self.plain.open(net, link, class),
        }
    }

    fn offer(&mut self, net: &mut Net, channel: Channel, side: Side, bytes: u64) {
        self.of(channel).offer(net, channel, side, bytes);
    }

    fn close(&mut self, net: &mut Net, channel: Channel) {
        self.of(channel).close(net, channel);
    }
}

impl FlowBearer for Bearers {
    fn open_flow(&mut self, net: &mut Net, link: Option<usize>, class: Option<Class>) -> Channel {
        match &mut self.system {
            Carried::Bond(bond) if link.is_none() => {
                FlowBearer::open_flow(bond.as_mut(), net, link, class)
            }
            _ => self.plain.open_flow(net, link, class),
        }
    }

    fn send(&mut self, net: &mut Net, channel: Channel, side: Side, payload: Bytes) {
        match &mut self.system {
            Carried::Bond(bond) if channel < PLAIN => bond.send(net, channel, side, payload),
            _ => self.plain.send(net, channel, side, payload),
        }
    }
}

/// The complete state of a run.
#[derive(Debug)]
pub(crate) struct World {
    net: Net,
    bearers: Bearers,
    programs: Programs,
    /// Random numbers of the programs and the daemon; the links have their own.
    random: Random,
    news: Vec<News>,
}

/// Results of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) records: Vec<FlowRecord>,
    pub(crate) links: Vec<LinkSeries>,
    pub(crate) retransmissions: u64,
    /// Statistics of sumlink.
    pub(crate) account: Option<Account>,
    /// Statistics of an edge node.
    pub(crate) node: Option<NodeAccount>,
    /// Connected MPTCP subflows, over all connections.
    pub(crate) subflows: Option<usize>,
    /// Share of the time for which the selector made each link's subflow a backup; empty without
    /// such a selector.
    pub(crate) subflows_rested: Vec<f64>,
    pub(crate) log: EventLog,
    pub(crate) trace: Option<Trace>,
}

impl World {
    pub(crate) fn new(net: Net, bearers: Bearers, programs: Programs, seed: u64) -> Self {
        Self {
            random: Random::new(seed).split(PROGRAMS),
            net,
            bearers,
            programs,
            news: Vec::new(),
        }
    }

    /// Runs a scenario over the links of `config`. An error is a failure of the system.
    pub(crate) fn run(
        mut self,
        scenario: &Scenario,
        config: &LabConfig,
        stop: &Stop,
    ) -> Result<Outcome, String> {
        if let Carried::Bond(bond) = &mut self.bearers.system {
            bond.start(&mut self.net, &mut self.random);
        }
        self.drive(PATHS_LIMIT, stop, |world| match &world.bearers.system {
            Carried::Bond(bond) => bond.is_ready(),
            Carried::Plain | Carried::Mptcp(_) => true,
        })?;
        let begin = self.net.now() + HEAD_START;
        self.drive(begin, stop, |_| false)?;
        self.net.begin();
        self.programs.begin(&mut self.net, &mut self.random);
        let warmup = self.net.at(nanos(scenario.warmup));
        self.drive(warmup, stop, |_| false)?;
        let before = self.counters();
        let has_an_end = matches!(scenario.workload, Workload::Files { .. });
        let end = self.net.at(nanos(scenario.duration));
        self.drive(end, stop, |world| has_an_end && world.programs.are_over())?;
        let links = self.links(config, &before);
        let account = match &self.bearers.system {
            Carried::Bond(bond) => Some(bond.account(&self.net)),
            Carried::Plain | Carried::Mptcp(_) => None,
        };
        let subflows_rested = match &self.bearers.system {
            Carried::Mptcp(mptcp) => mptcp.rested(&self.net),
            _ => Vec::new(),
        };
        let subflows = match &self.bearers.system {
            Carried::Mptcp(mptcp) => Some(mptcp.connected(&self.net)),
            _ => None,
        };
        let node = self.net.node_account();
        if let Some(fault) = node.as_ref().and_then(|node| node.fault.clone()) {
            return Err(fault);
        }
        if let Some(fault) = account.as_ref().and_then(|account| account.fault.clone()) {
            return Err(fault);
        }
        Ok(Outcome {
            links,
            retransmissions: self.net.retransmissions(),
            account,
            node,
            subflows,
            subflows_rested,
            log: *self.net.log(),
            trace: self.net.take_trace(),
            records: self.programs.into_records(),
        })
    }

    /// Processes events up to a time, or until `done` holds. A call of
    /// [`Stop::now`](crate::Stop::now) is an error, too.
    fn drive(
        &mut self,
        until: Nanos,
        stop: &Stop,
        done: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        loop {
            self.settle()?;
            if let Some(reason) = stop.reason() {
                let at = self.net.elapsed() as f64 / SECOND as f64;
                return Err(format!("{at:.6} s: {reason}"));
            }
            if done(self) || !self.net.step(until) {
                return Ok(());
            }
        }
    }

    /// Lets programs and system answer each other until neither has anything to do at this virtual
    /// time.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..MAX_ROUNDS {
            let mut news = std::mem::take(&mut self.news);
            self.net.take_news(&mut news);
            for item in &news {
                match item {
                    News::Alarm(Alarm::Flow(flow)) => {
                        let bearers = &mut self.bearers;
                        self.programs.on_alarm(*flow, &mut self.net, bearers);
                    }
                    News::Alarm(Alarm::Talk(talk)) => {
                        let bearers = &mut self.bearers;
                        self.programs.on_talk(*talk, &mut self.net, bearers);
                    }
                    item => self.bearers.on_news(&mut self.net, *item),
                }
            }
            self.news = news;
            let progress = self.bearers.work(&mut self.net);
            if progress.is_empty() && !self.net.has_news() {
                return Ok(());
            }
            for item in progress {
                let bearers = &mut self.bearers;
                self.programs.on_progress(item, &mut self.net, bearers);
            }
        }
        Err(format!("livelock at {} ns", self.net.now()))
    }

    fn counters(&self) -> Vec<[sumlink_link::Counters; 2]> {
        (0..self.net.link_count())
            .map(|link| Direction::BOTH.map(|way| self.net.counters(link, way)))
            .collect()
    }

    fn links(&self, config: &LabConfig, before: &[[sumlink_link::Counters; 2]]) -> Vec<LinkSeries> {
        let after = self.counters();
        let interval = duration(nanos(config.sample_interval));
        let mut all = Vec::new();
        for (link, spec) in config.links.iter().enumerate() {
            for way in Direction::BOTH {
                let [first, last] = [before, &after].map(|all| all[link][way.index()]);
                all.push(LinkSeries {
                    link: spec.name.clone(),
                    direction: direction_name(way).to_owned(),
                    wire_bytes: last.delivered_bytes - first.delivered_bytes,
                    share: 0.0,
                    lost_packets: last.lost_packets - first.lost_packets,
                    dropped_packets: last.policed_packets + last.dropped_queue_packets
                        - (first.policed_packets + first.dropped_queue_packets),
                    rate: series(&self.net.carried(link, way).buckets, interval),
                    delay_s: None,
                });
            }
        }
        set_shares(&mut all);
        set_delays(&mut all, config.links.iter());
        all
    }
}
