//! Programs that exchange datagrams on a schedule, as those of the laboratory: the client asks
//! until the server has answered, then both send.

use std::collections::BTreeSet;

use bytes::Bytes;
use sumlink_engine::Class;
use sumlink_link::Random;
use sumlink_scenario::results::{Arrival, DatagramsRecord, FlowRecord};
use sumlink_scenario::scenario::Schedule;

use super::{Channel, FlowBearer, FlowProgram};
use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::net::{Alarm, Net};
use crate::tcp::Side;

/// The traffic of a flow.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    /// When a datagram is sent, and its size.
    pub(super) schedule: Schedule,
    /// Whether datagrams go down, and up.
    pub(super) ways: [bool; 2],
    pub(super) class: Option<Class>,
}

/// Bytes of a datagram's number, at its start.
const NUMBER: usize = 8;

/// The number of the client's question and of the server's answer.
const GREETING: u64 = u64::MAX;

/// Payload bytes of those.
const GREETING_BYTES: usize = 100;

/// Pause before the question is repeated.
const ASK_AGAIN: Nanos = 100 * MILLISECOND;

/// One direction of a flow.
#[derive(Debug)]
struct Way {
    /// Number of the next datagram, once the sender has begun.
    next: Option<u64>,
    /// When the alarm for it is set.
    alarm: Nanos,
    seen: BTreeSet<u64>,
    record: FlowRecord,
}

/// A flow of datagrams between the programs of both sides.
#[derive(Debug)]
pub(super) struct Talk {
    link: Option<usize>,
    traffic: Traffic,
    channel: Option<Channel>,
    /// The client has got an answer.
    is_answered: bool,
    ask_at: Nanos,
    /// Indexed by the receiver's side.
    ways: [Option<Way>; 2],
}

impl Talk {
    /// A flow over a link, if given with its name; its downloads have the number `first`, its
    /// uploads the one after it. A run has `intervals`.
    pub(super) fn new(
        link: Option<(usize, String)>,
        traffic: Traffic,
        first: u32,
        intervals: u64,
    ) -> Self {
        let (number, name) = link.unzip();
        let way = |side: Side| {
            traffic.ways[side.index()].then(|| Way {
                next: None,
                alarm: 0,
                seen: BTreeSet::new(),
                record: FlowRecord {
                    flow: first + side.index() as u32,
                    link: name.clone(),
                    buckets: vec![0; intervals as usize],
                    datagrams: Some(DatagramsRecord::default()),
                    ..FlowRecord::default()
                },
            })
        };
        Self {
            ways: Side::BOTH.map(way),
            link: number,
            traffic,
            channel: None,
            is_answered: false,
            ask_at: 0,
        }
    }

    fn send_due(&mut self, number: usize, to: Side, net: &mut Net, bearer: &mut dyn FlowBearer) {
        let (Some(channel), Some(way)) = (self.channel, &mut self.ways[to.index()]) else {
            return;
        };
        let schedule = &self.traffic.schedule;
        while let Some(next) = way.next {
            let due = schedule.due_ns(next);
            if due > net.elapsed() {
                let at = net.now() + due - net.elapsed();
                if way.alarm != at {
                    way.alarm = at;
                    net.wake(at, Alarm::Talk(number));
                }
                return;
            }
            way.next = Some(next + 1);
            let size = schedule.size(next) as usize;
            bearer.send(net, channel, to.peer(), payload(next, size));
        }
    }
}

impl FlowProgram for Talk {
    fn begin(&mut self, number: usize, net: &mut Net, random: &mut Random) {
        self.ask_at = net.now() + random.next_u64() % MILLISECOND;
        net.wake(self.ask_at, Alarm::Talk(number));
    }

    fn channel(&self) -> Option<Channel> {
        self.channel
    }

    fn on_alarm(&mut self, number: usize, net: &mut Net, bearer: &mut dyn FlowBearer) {
        let (link, class) = (self.link, self.traffic.class);
        let open = || bearer.open_flow(net, link, class);
        let channel = *self.channel.get_or_insert_with(open);
        if !self.is_answered && self.ask_at <= net.now() {
            self.ask_at = net.now() + ASK_AGAIN;
            net.wake(self.ask_at, Alarm::Talk(number));
            bearer.send(
                net,
                channel,
                Side::Client,
                payload(GREETING, GREETING_BYTES),
            );
        }
        for side in Side::BOTH {
            self.send_due(number, side, net, bearer);
        }
    }

    fn received(
        &mut self,
        (number, side): (usize, Side),
        payload: &Bytes,
        interval: Nanos,
        net: &mut Net,
        bearer: &mut dyn FlowBearer,
    ) {
        let Some(head) = payload.first_chunk::<NUMBER>() else {
            return;
        };
        let datagram = u64::from_le_bytes(*head);
        if side == Side::Client {
            self.is_answered = true;
        } else if datagram == GREETING
            && let Some(channel) = self.channel
        {
            bearer.send(net, channel, side, payload.clone());
        }
        // The other direction begins, with the first datagram that is due from now on.
        if let Some(way) = &mut self.ways[side.peer().index()]
            && way.next.is_none()
        {
            way.next = Some(self.traffic.schedule.first_from(net.elapsed()));
            self.send_due(number, side.peer(), net, bearer);
        }
        if datagram != GREETING
            && let Some(way) = &mut self.ways[side.index()]
        {
            let sent = self.traffic.schedule.due_ns(datagram);
            way.count(datagram, sent, payload.len(), interval, net.elapsed());
        }
    }

    fn into_records(self: Box<Self>) -> Vec<FlowRecord> {
        let ways = self.ways.into_iter().flatten();
        ways.map(|way| way.record).collect()
    }
}

impl Way {
    fn count(&mut self, number: u64, sent: Nanos, len: usize, interval: Nanos, elapsed: Nanos) {
        let seconds = |at: Nanos| at as f64 / SECOND as f64;
        self.record.connected = true;
        if let Some(datagrams) = &mut self.record.datagrams {
            datagrams.arrivals.push(Arrival {
                number,
                sent_s: seconds(sent),
                arrived_s: seconds(elapsed),
                bytes: u32::try_from(len).unwrap_or(u32::MAX),
            });
        }
        if self.seen.insert(number) {
            self.record.count(elapsed, interval, len as u64);
        }
    }
}

fn payload(number: u64, size: usize) -> Bytes {
    let mut payload = vec![0; size.max(NUMBER)];
    payload[..NUMBER].copy_from_slice(&number.to_le_bytes());
    payload.into()
}
