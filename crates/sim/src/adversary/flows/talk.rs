//! Flows of datagrams and what must hold for each of them.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use sumlink_engine::{Class, DatagramPolicy, FlowError};

use super::super::drill::Drill;
use crate::clock::{MICROSECOND, Nanos};
use crate::tcp::Side;
use crate::workload::Progress;

/// The traffic of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::adversary) struct Spec {
    pub(in crate::adversary) policy: DatagramPolicy,
    pub(in crate::adversary) class: Option<Class>,
    /// Bytes of its regular datagrams.
    pub(in crate::adversary) size: usize,
    /// Time between them in microseconds.
    pub(in crate::adversary) every_us: u64,
    /// The server sends, too.
    pub(in crate::adversary) is_mutual: bool,
}

impl Spec {
    /// Whether the receiver restores the order: no call is learned with larger datagrams.
    fn is_ordered(&self) -> bool {
        let is_call = self.class == Some(Class::Conversational) || self.size <= LARGEST_OF_CALLS;
        self.policy == DatagramPolicy::Spread && !is_call
    }
}

/// The largest datagrams with which a flow may be taken for a call.
const LARGEST_OF_CALLS: usize = 300;

/// Bytes that say which datagram it is: flow, side of the sender, number. Shorter datagrams are
/// only counted.
const HEAD: usize = 13;

/// One direction of a flow.
#[derive(Default)]
pub(super) struct Way {
    /// Datagrams that the session has accepted, by number: when, and how long they are.
    pub(super) sent: Vec<(Nanos, usize)>,
    /// Datagrams that were too big.
    pub(super) too_big: u64,
    received: BTreeSet<u64>,
    highest: Option<u64>,
    /// Datagrams too short for a number, sent and received.
    short: [u64; 2],
    /// Datagrams that arrived after one with a higher number.
    pub(super) reordered: u64,
    /// When the last one arrived, and the longest time between two of them.
    last: Option<Nanos>,
    pub(super) gap: Nanos,
    /// The longest delay.
    pub(super) delay: Nanos,
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way")
            .field("accepted", &self.accepted())
            .field("too_big", &self.too_big)
            .field("arrived", &self.arrived())
            .field("reordered", &self.reordered)
            .field("gap", &self.gap)
            .field("delay", &self.delay)
            .finish_non_exhaustive()
    }
}

impl Way {
    /// Datagrams that have arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.received.len() as u64 + self.short[1]
    }

    /// Accepted datagrams.
    pub(super) fn accepted(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Forgets the gap, the delay and the order so far.
    pub(super) fn restart(&mut self) {
        (self.gap, self.delay, self.last, self.reordered) = (0, 0, None, 0);
    }
}

/// A flow of a drill.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) spec: Spec,
    /// The receiver restores the order; not that of calls.
    pub(super) is_ordered: bool,
    channel: usize,
    due: Nanos,
    /// Indexed by the receiver's side.
    pub(super) ways: [Way; 2],
}

/// All flows of a drill.
#[derive(Debug, Default)]
pub(in crate::adversary) struct Talks {
    pub(super) talks: Vec<Talk>,
    pub(super) is_silent: bool,
}

impl Talks {
    /// Opens the flows.
    pub(super) fn open(&mut self, drill: &mut Drill, specs: &[Spec]) {
        for spec in specs {
            let channel = drill.bond.open_flow(spec.class, spec.policy);
            self.talks.push(Talk {
                spec: *spec,
                is_ordered: spec.is_ordered(),
                channel,
                due: drill.net.now(),
                ways: Default::default(),
            });
        }
    }

    /// Advances by `time`, while the flows carry their regular datagrams.
    pub(super) fn run(&mut self, drill: &mut Drill, time: Nanos) {
        let end = drill.net.now() + time;
        while drill.net.now() < end {
            let next = self.talks.iter().map(|talk| talk.due).min();
            let next = next.filter(|_| !self.is_silent).unwrap_or(end).min(end);
            let wait = next.saturating_sub(drill.net.now());
            drill.run_with(wait, |progress, now| self.on_progress(progress, now));
            for talk in 0..self.talks.len() {
                if !self.is_silent && self.talks[talk].due <= drill.net.now() {
                    let spec = self.talks[talk].spec;
                    self.talks[talk].due += spec.every_us * MICROSECOND;
                    self.send(drill, talk, Side::Client, spec.size);
                    if spec.is_mutual {
                        self.send(drill, talk, Side::Server, spec.size);
                    }
                }
            }
        }
    }

    /// Regular datagrams begin again now.
    pub(super) fn catch_up(&mut self, drill: &Drill) {
        for talk in &mut self.talks {
            talk.due = drill.net.now();
        }
    }

    /// Datagrams accepted and arrived so far, for each flow and receiving side.
    pub(super) fn totals(&self) -> Vec<[(u64, u64); 2]> {
        let of = |way: &Way| (way.accepted(), way.arrived());
        let talks = self.talks.iter();
        talks.map(|talk| talk.ways.each_ref().map(of)).collect()
    }

    /// The program of a side sends a datagram.
    pub(super) fn send(&mut self, drill: &mut Drill, talk: usize, side: Side, size: usize) {
        let of = &mut self.talks[talk];
        let way = &mut of.ways[side.peer().index()];
        let number = way.sent.len() as u64;
        let payload = payload(talk, side, number, size);
        match drill
            .bond
            .send_datagram(&mut drill.net, of.channel, side, payload)
        {
            Ok(()) => {
                way.sent.push((drill.net.now(), size));
                way.short[0] += u64::from(size < HEAD);
            }
            Err(FlowError::TooBig { .. }) => way.too_big += 1,
            // The server's program does not know the flow yet, or the session has no paths.
            Err(_) => {}
        }
    }

    /// Checks a datagram that has arrived.
    fn on_progress(&mut self, progress: &Progress, now: Nanos) {
        let Progress::Datagram(channel, side, bytes) = progress else {
            return;
        };
        let at = self.talks.iter().position(|talk| talk.channel == *channel);
        let at = at.expect("a datagram of a flow that is not open");
        let way = &mut self.talks[at].ways[side.index()];
        if bytes.len() < HEAD {
            way.short[1] += 1;
            assert!(way.short[1] <= way.short[0], "flow {at}: more than sent");
            return;
        }
        let (flow, number) = read(bytes);
        assert_eq!(flow, at, "a datagram of another flow");
        let (sent, size) = way.sent[usize::try_from(number).unwrap()];
        assert_eq!(
            *bytes,
            payload(at, side.peer(), number, size),
            "flow {at} to {side:?}: damaged"
        );
        assert!(
            way.received.insert(number),
            "flow {at} to {side:?}: number {number} arrived twice"
        );
        way.reordered += u64::from(way.highest > Some(number));
        way.highest = way.highest.max(Some(number));
        if let Some(last) = way.last.replace(now) {
            way.gap = way.gap.max(now - last);
        }
        way.delay = way.delay.max(now - sent);
    }
}

fn payload(flow: usize, side: Side, number: u64, size: usize) -> Bytes {
    let mut payload = Vec::with_capacity(size.max(HEAD));
    payload.extend_from_slice(&(flow as u32).to_le_bytes());
    payload.push(side.index() as u8);
    payload.extend_from_slice(&number.to_le_bytes());
    payload.resize(size.max(HEAD), number as u8);
    payload.truncate(size);
    payload.into()
}

fn read(bytes: &[u8]) -> (usize, u64) {
    let flow = bytes[..4].try_into().map(u32::from_le_bytes);
    let number = bytes[5..HEAD].try_into().map(u64::from_le_bytes);
    (flow.unwrap() as usize, number.unwrap())
}
