//! The programs at both ends: what each flow requests, sends and records.
//!
//! The flows are those of the laboratory's traffic programs: a connection carries a request, then
//! the requested data. Only received bytes count, at the time when the program has read them.

mod arrival;
mod http3;
mod load;
mod talk;

use std::fmt::Debug;

use bytes::Bytes;
use sumlink_engine::Class;
use sumlink_link::Random;
use sumlink_scenario::config::Direction;
use sumlink_scenario::results::FlowRecord;
use sumlink_scenario::scenario::{Classes, Scenario, Workload};

use crate::clock::{MILLISECOND, Nanos, SECOND, nanos};
use crate::net::{Alarm, Net};
use crate::tcp::Side;
use http3::Http3;
use load::Load;
use talk::{Talk, Traffic};

/// A channel number: the system's name for a flow's connection.
pub(crate) type Channel = usize;

/// A connection from a program's point of view, independent of the system that carries it.
pub(crate) trait Bearer {
    /// Connects, over `link` if given; systems with traffic classes use `class`.
    /// [`Progress::Opened`] follows.
    fn open(&mut self, net: &mut Net, link: Option<usize>, class: Option<Class>) -> Channel;

    /// The program of that side writes `bytes` more.
    fn offer(&mut self, net: &mut Net, channel: Channel, side: Side, bytes: u64);

    /// Both programs have finished with the channel.
    fn close(&mut self, net: &mut Net, channel: Channel);
}

/// Flows of datagrams from a program's point of view, independent of the system that carries them.
pub(crate) trait FlowBearer {
    /// Opens a flow, over `link` if given; systems with traffic classes use `class`. The client
    /// sends first.
    fn open_flow(&mut self, net: &mut Net, link: Option<usize>, class: Option<Class>) -> Channel;

    /// The program of that side sends a datagram in a flow; it may be lost.
    fn send(&mut self, net: &mut Net, channel: Channel, side: Side, payload: Bytes);
}

/// The programs at both ends of a flow of datagrams. They know their `number` for timers.
trait FlowProgram: Debug {
    /// The programs start within a millisecond.
    fn begin(&mut self, number: usize, net: &mut Net, random: &mut Random);

    /// A timer has expired: something is due.
    fn on_alarm(&mut self, number: usize, net: &mut Net, bearer: &mut dyn FlowBearer);

    /// The program of that side has received a datagram.
    fn received(
        &mut self,
        at: (usize, Side),
        payload: &Bytes,
        interval: Nanos,
        net: &mut Net,
        bearer: &mut dyn FlowBearer,
    );

    /// The flow, once it is open.
    fn channel(&self) -> Option<Channel>;

    /// The records of all directions.
    fn into_records(self: Box<Self>) -> Vec<FlowRecord>;
}

/// An event of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The client's program may write.
    Opened(Channel),
    /// The program of that side received this number of bytes.
    Received(Channel, Side, u64),
    /// The connection broke.
    Broken(Channel),
    /// The program of that side received a datagram.
    Datagram(Channel, Side, Bytes),
}

/// Length of an endless transfer: more than any run carries.
const ENDLESS: u64 = u64::MAX / 4;
/// Bytes of a request: a length and a JSON object.
const REQUEST: u64 = 130;
/// Pause before a failed connection is retried.
const RETRY: Nanos = 100 * MILLISECOND;

/// Number of the first flow of datagrams; those before have connections.
const MAX_STREAMS: u32 = 1 << 16;

/// One flow.
#[derive(Debug)]
struct Flow {
    /// The link to which the flow is bound.
    link: Option<usize>,
    down: bool,
    /// The class requested for its connections.
    class: Option<Class>,
    load: Load,
    channel: Option<Channel>,
    /// Bytes received at each side over the current channel.
    received: [u64; 2],
    /// The server has read the request.
    is_asked: bool,
    /// Request time of the current object or question.
    since: Nanos,
    is_over: bool,
    record: FlowRecord,
}

/// The times in which a program bound to a link sends, in order; none for always.
fn spells(scenario: &Scenario, link: &str) -> Vec<(Nanos, Nanos)> {
    let own = scenario.spells.iter().filter(|spell| spell.link == link);
    let mut spells: Vec<_> = own
        .map(|spell| (nanos(spell.from), nanos(spell.until)))
        .collect();
    spells.sort_unstable();
    spells
}

/// All flows of a run.
#[derive(Debug)]
pub(crate) struct Programs {
    flows: Vec<Flow>,
    talks: Vec<Box<dyn FlowProgram>>,
    /// The flow of each channel.
    owners: Vec<(Channel, usize)>,
    duration: Nanos,
    interval: Nanos,
}

impl Programs {
    /// Creates the flows of a scenario, which may be bound to links, and those of its rival.
    pub(crate) fn new(
        scenario: &Scenario,
        ways: &[Option<usize>],
        rival: Option<usize>,
    ) -> Result<Self, String> {
        let names: Vec<String> = scenario.links().map(|link| link.name.clone()).collect();
        let directions = scenario.traffic.directions();
        let is_down = |direction: &Direction| *direction == Direction::Down;
        let interval = nanos(scenario.interval());
        let intervals = nanos(scenario.duration).div_ceil(interval);
        let mut flows: Vec<Flow> = Vec::new();
        let mut talks: Vec<Box<dyn FlowProgram>> = Vec::new();
        let mut add = |link: Option<usize>,
                       down: bool,
                       (load, class): (Load, Option<Class>),
                       rival: bool| {
            let number = 2 * flows.len() as u32 + u32::from(!down);
            let record = FlowRecord {
                flow: number,
                link: link.map(|link| names[link].clone()),
                rival,
                buckets: vec![0; intervals as usize],
                ..FlowRecord::default()
            };
            let record = match load {
                Load::Bulk | Load::Spells(_) if !rival => record.with_arrivals(scenario.duration),
                _ => record,
            };
            flows.push(Flow {
                link,
                down,
                class,
                load,
                channel: None,
                received: [0; 2],
                is_asked: false,
                since: 0,
                is_over: false,
                record,
            });
        };
        let Classes {
            measured,
            load: beside,
        } = scenario.classes;
        for way in ways {
            if let Workload::Datagrams(datagrams) = &scenario.workload {
                let ways = match datagrams.kind.is_both_ways() {
                    true => [true; 2],
                    false => [Direction::Down, Direction::Up].map(|way| directions.contains(&way)),
                };
                let traffic = Traffic {
                    schedule: datagrams.schedule.clone(),
                    ways,
                    class: measured,
                };
                for direction in directions.iter().filter(|_| datagrams.load) {
                    add(*way, is_down(direction), (Load::Bulk, beside), false);
                }
                let link = way.map(|link| (link, names[link].clone()));
                let first = 2 * (MAX_STREAMS + talks.len() as u32);
                talks.push(Box::new(Talk::new(link, traffic, first, intervals)));
                continue;
            }
            if let Workload::Http3 { probe } = &scenario.workload {
                if *probe {
                    return Err("the simulator has no probes beside HTTP/3".to_owned());
                }
                for direction in directions {
                    let down = is_down(direction);
                    let record = FlowRecord {
                        flow: 2 * talks.len() as u32 + u32::from(!down),
                        link: way.map(|link| names[link].clone()),
                        buckets: vec![0; intervals as usize],
                        ..FlowRecord::default()
                    };
                    let record = record.with_arrivals(scenario.duration);
                    talks.push(Box::new(Http3::new(*way, down, measured, record)));
                }
                continue;
            }
            if let Workload::Requests { load, .. } = &scenario.workload {
                add(*way, true, (Load::of(&scenario.workload)?, measured), false);
                for direction in directions.iter().filter(|_| *load) {
                    add(*way, is_down(direction), (Load::Bulk, beside), false);
                }
                continue;
            }
            let spells = way.map_or_else(Vec::new, |link| spells(scenario, &names[link]));
            for direction in directions {
                let load = match (Load::of(&scenario.workload)?, spells.is_empty()) {
                    (Load::Bulk, false) => Load::Spells(spells.clone()),
                    (load, _) => load,
                };
                add(*way, is_down(direction), (load, measured), false);
            }
        }
        if let Some(link) = rival {
            for direction in directions {
                add(Some(link), is_down(direction), (Load::Bulk, None), true);
            }
        }
        Ok(Self {
            flows,
            talks,
            owners: Vec::new(),
            duration: nanos(scenario.duration),
            interval,
        })
    }

    /// Starts the run. Each flow starts within a millisecond, like programs that are launched
    /// together.
    pub(crate) fn begin(&mut self, net: &mut Net, random: &mut Random) {
        for flow in 0..self.flows.len() {
            let late = random.next_u64() % MILLISECOND;
            net.wake(net.now() + late, Alarm::Flow(flow));
        }
        for (number, talk) in self.talks.iter_mut().enumerate() {
            talk.begin(number, net, random);
        }
    }

    /// Whether every flow has finished.
    pub(crate) fn are_over(&self) -> bool {
        self.flows
            .iter()
            .all(|flow| flow.is_over || flow.record.rival)
    }

    /// Returns the records of all flows.
    pub(crate) fn into_records(self) -> Vec<FlowRecord> {
        let streams = self.flows.into_iter().map(|flow| flow.record);
        let talks = self.talks.into_iter();
        let talks = talks.flat_map(|talk| talk.into_records());
        streams.chain(talks).collect()
    }

    /// A timer of a program with a flow of datagrams has expired.
    pub(crate) fn on_talk(&mut self, number: usize, net: &mut Net, bearer: &mut dyn FlowBearer) {
        if net.elapsed() < self.duration {
            self.talks[number].on_alarm(number, net, bearer);
        }
    }

    /// A flow's timer expired: it starts, requests the next object, asks a question or sends a
    /// message.
    pub(crate) fn on_alarm(&mut self, number: usize, net: &mut Net, bearer: &mut dyn Bearer) {
        let flow = &mut self.flows[number];
        if flow.is_over || net.elapsed() >= self.duration {
            return;
        }
        let now = net.elapsed();
        if let Load::Spells(spells) = &flow.load {
            let Some(&(from, until)) = spells.iter().find(|(_, until)| now < *until) else {
                if let Some(channel) = flow.channel.take() {
                    bearer.close(net, channel);
                }
                return;
            };
            let begun = net.now() - now;
            if now < from {
                if let Some(channel) = flow.channel.take() {
                    bearer.close(net, channel);
                }
                return net.wake(begun + from, Alarm::Flow(number));
            }
            net.wake(begun + until, Alarm::Flow(number));
        }
        let Some(channel) = flow.channel else {
            return self.open(number, net, bearer);
        };
        match &mut flow.load {
            Load::Questions {
                question, asked, ..
            } => {
                let bytes = *question;
                *asked += 1;
                flow.since = net.now();
                bearer.offer(net, channel, Side::Client, bytes);
            }
            Load::Messages {
                size,
                pause,
                sent,
                first,
            } => {
                let (bytes, next) = (*size, *first + *pause * (*sent + 1));
                *sent += 1;
                let side = if flow.down {
                    Side::Server
                } else {
                    Side::Client
                };
                bearer.offer(net, channel, side, bytes);
                net.wake(next, Alarm::Flow(number));
            }
            Load::Bulk | Load::Spells(_) | Load::Objects { .. } => {}
        }
    }

    fn open(&mut self, number: usize, net: &mut Net, bearer: &mut dyn Bearer) {
        let flow = &mut self.flows[number];
        flow.received = [0; 2];
        flow.is_asked = false;
        if let Load::Objects { asked, .. } = &mut flow.load {
            *asked += 1;
            flow.since = net.now();
        }
        let channel = bearer.open(net, flow.link, flow.class);
        flow.channel = Some(channel);
        self.owners.push((channel, number));
    }

    /// Handles an event of a channel.
    pub(crate) fn on_progress<B: Bearer + FlowBearer>(
        &mut self,
        progress: Progress,
        net: &mut Net,
        bearer: &mut B,
    ) {
        if let Progress::Datagram(channel, side, payload) = &progress {
            let mut channels = self.talks.iter().map(|talk| talk.channel());
            if let Some(number) = channels.position(|own| own == Some(*channel)) {
                let (at, interval) = ((number, *side), self.interval);
                self.talks[number].received(at, payload, interval, net, bearer);
            }
            return;
        }
        let channel = match progress {
            Progress::Opened(channel)
            | Progress::Received(channel, ..)
            | Progress::Broken(channel)
            | Progress::Datagram(channel, ..) => channel,
        };
        let Some((_, number)) = self.owners.iter().rev().find(|(own, _)| *own == channel) else {
            return;
        };
        let number = *number;
        if self.flows[number].channel != Some(channel) {
            return;
        }
        match progress {
            Progress::Opened(_) => self.opened(number, channel, net, bearer),
            // Streams have no datagrams.
            Progress::Datagram(..) => {}
            Progress::Received(_, side, bytes) => {
                self.flows[number].received[side.index()] += bytes;
                self.received(number, channel, side, bytes, net, bearer);
            }
            Progress::Broken(_) => {
                let flow = &mut self.flows[number];
                flow.channel = None;
                if flow.record.connected {
                    flow.is_over = true;
                    let at = net.elapsed() as f64 / SECOND as f64;
                    flow.record.error = Some(format!("the connection ended after {at:.1} s"));
                } else {
                    net.wake(net.now() + RETRY, Alarm::Flow(number));
                }
            }
        }
    }

    fn opened(&mut self, number: usize, channel: Channel, net: &mut Net, bearer: &mut dyn Bearer) {
        let flow = &mut self.flows[number];
        flow.record.connected = true;
        bearer.offer(net, channel, Side::Client, REQUEST);
        match &mut flow.load {
            Load::Bulk | Load::Spells(_) if !flow.down => {
                bearer.offer(net, channel, Side::Client, ENDLESS);
            }
            Load::Objects { sizes, asked, .. } if !flow.down => {
                let size = sizes[((*asked - 1) % sizes.len() as u64) as usize];
                bearer.offer(net, channel, Side::Client, size);
            }
            Load::Questions { .. } => net.wake(net.now(), Alarm::Flow(number)),
            Load::Messages { first, .. } if !flow.down => {
                *first = net.now();
                net.wake(net.now(), Alarm::Flow(number));
            }
            _ => {}
        }
    }
}
