//! Programs that exchange datagrams at a constant rate.

use bytes::Bytes;
use sumlink_engine::Class;
use sumlink_link::Random;
use sumlink_scenario::results::{Arrival, Datagrams, FlowRecord, Measured, Playout};

use super::{Channel, FlowBearer};
use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::net::{Alarm, Net};
use crate::tcp::Side;

/// The traffic of a flow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Traffic {
    /// Payload bytes of the datagrams, in turn; at least one.
    pub(crate) sizes: Vec<u64>,
    /// Time from one to the next.
    pub(crate) every: Nanos,
    /// The sides that receive them.
    pub(crate) receivers: Vec<Side>,
    pub(crate) class: Option<Class>,
    /// How a call is played.
    pub(crate) playout: Option<Playout>,
}

/// Least payload: the number of the datagram.
const HEAD: usize = 8;

/// The number of a datagram that only opens the flow, so that the server can send.
const OPENER: u64 = u64::MAX;

/// Pause before that one is repeated.
const OPEN_AGAIN: Nanos = 100 * MILLISECOND;

/// One direction of a flow.
#[derive(Debug, Default)]
struct Way {
    /// When the next datagram is due, once its sender has begun.
    next: Option<Nanos>,
    /// When each was due, in seconds since the start of the run.
    due_s: Vec<f64>,
    arrivals: Vec<Arrival>,
    /// First copies in each interval, in bytes.
    buckets: Vec<u64>,
    seen: std::collections::BTreeSet<u64>,
}

/// A flow of datagrams between the programs of both sides.
#[derive(Debug)]
pub(super) struct Talk {
    link: Option<(usize, String)>,
    traffic: Traffic,
    channel: Option<Channel>,
    /// The server's program has received a datagram.
    is_known: bool,
    open_at: Nanos,
    /// Indexed by the receiver's side.
    ways: [Option<Way>; 2],
}

impl Talk {
    pub(super) fn new(link: Option<(usize, String)>, traffic: Traffic, intervals: u64) -> Self {
        let way = |side: Side| {
            traffic.receivers.contains(&side).then(|| Way {
                buckets: vec![0; intervals as usize],
                ..Way::default()
            })
        };
        Self {
            ways: Side::BOTH.map(way),
            link,
            traffic,
            channel: None,
            is_known: false,
            open_at: 0,
        }
    }

    /// The programs start within a millisecond.
    pub(super) fn begin(&mut self, number: usize, net: &mut Net, random: &mut Random) {
        self.open_at = net.now() + random.next_u64() % MILLISECOND;
        net.wake(self.open_at, Alarm::Talk(number));
    }

    pub(super) fn channel(&self) -> Option<Channel> {
        self.channel
    }

    /// Sends what is due.
    pub(super) fn on_alarm(&mut self, number: usize, net: &mut Net, bearer: &mut dyn FlowBearer) {
        let now = net.now();
        let link = self.link.as_ref().map(|(link, _)| *link);
        let class = self.traffic.class;
        let channel = *self
            .channel
            .get_or_insert_with(|| bearer.open_flow(net, link, class));
        if let Some(up) = &mut self.ways[Side::Server.index()] {
            up.next.get_or_insert(now);
        } else if !self.is_known && self.open_at <= now {
            self.open_at = now + OPEN_AGAIN;
            bearer.send(net, channel, Side::Client, payload(OPENER, HEAD));
        }
        for side in Side::BOTH {
            self.send_due(channel, side, net, bearer);
        }
        let next = self.ways.iter().flatten().filter_map(|way| way.next);
        let opens = Some(self.open_at).filter(|at| !self.is_known && *at > now);
        if let Some(at) = next.chain(opens).min() {
            net.wake(at, Alarm::Talk(number));
        }
    }

    fn send_due(&mut self, channel: Channel, to: Side, net: &mut Net, bearer: &mut dyn FlowBearer) {
        let (now, traffic) = (net.now(), &self.traffic);
        let Some(way) = &mut self.ways[to.index()] else {
            return;
        };
        while let Some(due) = way.next.filter(|due| *due <= now) {
            let number = way.due_s.len() as u64;
            let size = traffic.sizes[number as usize % traffic.sizes.len()] as usize;
            way.due_s.push(net.elapsed() as f64 / SECOND as f64);
            way.next = Some(due + traffic.every);
            bearer.send(net, channel, to.peer(), payload(number, size.max(HEAD)));
        }
    }

    /// The program of a side has received a datagram.
    pub(super) fn received(
        &mut self,
        number: usize,
        side: Side,
        payload: &Bytes,
        interval: Nanos,
        net: &mut Net,
    ) {
        if side == Side::Server && !std::mem::replace(&mut self.is_known, true) {
            if let Some(down) = &mut self.ways[Side::Client.index()] {
                down.next = Some(net.now());
            }
            net.wake(net.now(), Alarm::Talk(number));
        }
        let Some(head) = payload.first_chunk::<HEAD>() else {
            return;
        };
        let Some(way) = &mut self.ways[side.index()] else {
            return;
        };
        let datagram = u64::from_le_bytes(*head);
        let Some(sent_s) = usize::try_from(datagram)
            .ok()
            .and_then(|at| way.due_s.get(at))
        else {
            return;
        };
        let elapsed = net.elapsed();
        way.arrivals.push(Arrival {
            number: datagram,
            sent_s: *sent_s,
            arrived_s: elapsed as f64 / SECOND as f64,
            bytes: payload.len() as u32,
        });
        if way.seen.insert(datagram)
            && let Some(bucket) = way.buckets.get_mut((elapsed / interval) as usize)
        {
            *bucket += payload.len() as u64;
        }
    }

    /// The figures of each direction, and their records; flows are numbered from `first`.
    pub(super) fn finish(self, first: u32, measured: Measured) -> Vec<(Datagrams, FlowRecord)> {
        let link = self.link.map(|(_, name)| name);
        let playout = self.traffic.playout;
        let ways = Side::BOTH.into_iter().zip(self.ways);
        let ways = ways.filter_map(|(to, way)| Some((to, way?)));
        ways.map(|(to, way)| {
            let of = Datagrams::of(&way.due_s, &way.arrivals, measured, playout);
            let is_up = to == Side::Server;
            let figures = Datagrams {
                link: link.clone(),
                direction: if is_up { "up" } else { "down" }.to_owned(),
                ..of
            };
            let record = FlowRecord {
                flow: first + u32::from(is_up),
                link: link.clone(),
                connected: !way.arrivals.is_empty(),
                buckets: way.buckets,
                ..FlowRecord::default()
            };
            (figures, record)
        })
        .collect()
    }
}

fn payload(number: u64, size: usize) -> Bytes {
    let mut payload = vec![0; size];
    payload[..HEAD].copy_from_slice(&number.to_le_bytes());
    payload.into()
}
