//! A model of the kernel's MPTCP: one TCP subflow per link, below one scheduler and one receive
//! window.
//!
//! After `net/mptcp/protocol.c` of Linux 6.12. The scheduler gives the next burst to the subflow
//! that will finish its queued bytes first, and waits while that subflow's send buffer is full.
//! Bytes given to a subflow stay there, with two exceptions. When nothing is acknowledged at the
//! connection level for a timeout, the oldest bytes are retransmitted over an idle subflow. When a
//! subflow breaks, or times out four times in a row, all of its bytes are retransmitted over the
//! others. The client connects over the first link and joins the others as soon as that has
//! succeeded.
//!
//! With a selector, subflows become backups as by MP_PRIO: [`selection`].
//!
//! Not modeled: keys and their verification, the time that MP_PRIO takes, growth of the connection's
//! buffers.

mod choose;
mod repair;
mod selection;

use std::collections::VecDeque;

use sumlink_engine::{Class, RangeSet, SelectorConfig};

use crate::clock::{MILLISECOND, Nanos};
use crate::net::{Alarm, Connection, Net};
use crate::tcp::{Group, Side, TcpConfig};
use crate::workload::{Bearer, Channel, Progress};
use choose::choose;
use selection::Selection;

/// Bytes of the option that maps and acknowledges data (RFC 8684, section 3.3), with padding.
pub(crate) const DSS: u32 = 28;
/// Bytes for which the scheduler keeps its chosen subflow (MPTCP_SEND_BURST_SIZE).
const BURST: u64 = 65_428;
/// Interval between checks of the age of unacknowledged data.
const CHECK_INTERVAL: Nanos = 100 * MILLISECOND;
/// Bytes given to a subflow: their end on the subflow, and their range on the connection.
type Mapping = (u64, u64, u64);

#[derive(Debug)]
struct Subflow {
    connection: Connection,
    is_over: bool,
    /// Indexed by the receiver's side.
    mappings: [VecDeque<Mapping>; 2],
    /// Average pacing rate of each sender, in bytes per second.
    pacing: [u64; 2],
    /// Each sender's position at its last acknowledgment, and its number of timeouts then.
    marks: [(u64, u64); 2],
    /// That sender has had no acknowledgment for a long time and uses the other subflows.
    is_stale: [bool; 2],
    /// Both senders use it only while no other subflow is usable.
    is_backup: bool,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Half {
    /// Bytes beyond `next` that the program wants to write.
    offered: u64,
    /// End of the bytes given to subflows.
    next: u64,
    /// Ranges to retransmit.
    again: VecDeque<(u64, u64)>,
    /// End of the bytes that have arrived in order; below, the ranges that arrived beyond it.
    arrived: u64,
    ahead: RangeSet,
    /// The last value of `arrived` that the sender knows, and when it changed.
    acknowledged: u64,
    progress: Nanos,
    /// The subflow of the current burst, and the rest of the burst.
    burst: Option<(usize, u64)>,
}

#[derive(Debug)]
struct Multipath {
    subflows: Vec<Subflow>,
    /// Sibling groups of the subflows' congestion controls, indexed by the sender's side.
    groups: [Group; 2],
    /// Indexed by the sender's side.
    halves: [Half; 2],
    is_open: bool,
    has_joined: bool,
    is_over: bool,
    selection: Option<Selection>,
}

/// The programs' connections, each over all links.
#[derive(Debug)]
pub(crate) struct Mptcp {
    config: TcpConfig,
    links: usize,
    /// Receive window of a connection in bytes.
    window: u64,
    /// Of the senders' selectors, with the side that sends most.
    selector: Option<(SelectorConfig, Side)>,
    /// Number of the alarm, which is more frequent with a selector.
    alarms: u64,
    channels: Vec<Multipath>,
    /// Channel and subflow of each connection.
    owners: Vec<Option<(Channel, usize)>>,
    progress: Vec<Progress>,
}

impl Mptcp {
    pub(crate) fn new(
        config: TcpConfig,
        links: usize,
        selector: Option<(SelectorConfig, Side)>,
    ) -> Self {
        Self {
            window: config.receive_buffer,
            selector,
            alarms: 0,
            config: TcpConfig {
                mss: config.mss - DSS,
                options: DSS,
                ..config
            },
            links,
            channels: Vec::new(),
            owners: Vec::new(),
            progress: Vec::new(),
        }
    }

    fn add_subflow(&mut self, net: &mut Net, channel: Channel, link: usize) {
        // Cannot fail: the congestion control's name was checked before the run.
        let Ok(connection) = net.connect(link, &self.config) else {
            return;
        };
        net.join(connection, &self.channels[channel].groups);
        let subflows = &mut self.channels[channel].subflows;
        subflows.push(Subflow {
            connection,
            is_over: false,
            mappings: Default::default(),
            pacing: [0; 2],
            marks: [(0, 0); 2],
            is_stale: [false; 2],
            is_backup: false,
        });
        let own = (channel, subflows.len() - 1);
        self.owners.resize(connection + 1, None);
        self.owners[connection] = Some(own);
    }

    /// Handles a change at one end of a connection.
    pub(crate) fn on_connection(&mut self, net: &mut Net, connection: Connection, side: Side) {
        let owner = self.owners.get(connection).copied().flatten();
        let Some((number, index)) = owner.filter(|(n, _)| !self.channels[*n].is_over) else {
            return;
        };
        let tcp = net.tcp(connection, side);
        if tcp.state().has_ended() {
            return self.lose_subflow(net, number, index);
        }
        if !tcp.is_established() {
            return;
        }
        let channel = &mut self.channels[number];
        if side == Side::Client && !channel.is_open {
            channel.is_open = true;
            self.progress.push(Progress::Opened(number));
        }
        if side == Side::Client && !std::mem::replace(&mut channel.has_joined, true) {
            for link in 1..self.links {
                self.add_subflow(net, number, link);
            }
        }
        self.take(net, number, index, side);
        self.note_acknowledged(net, number, side);
        self.pump(net, number, side);
    }

    /// Takes the bytes that have arrived on a subflow at this side.
    fn take(&mut self, net: &mut Net, number: Channel, index: usize, side: Side) {
        let channel = &mut self.channels[number];
        let subflow = &mut channel.subflows[index];
        let received = net.tcp(subflow.connection, side).received();
        let half = &mut channel.halves[side.peer().index()];
        let mappings = &mut subflow.mappings[side.index()];
        let mut any = false;
        while let Some(&(_, start, end)) = mappings.front().filter(|(at, ..)| *at <= received) {
            mappings.pop_front();
            any = true;
            if end > half.arrived {
                half.ahead.insert(start.max(half.arrived)..end);
            }
        }
        if !any {
            return;
        }
        net.read(subflow.connection, side, received);
        let before = half.arrived;
        let first = half.ahead.first();
        if let Some(range) = first.filter(|range| range.start <= half.arrived) {
            half.arrived = range.end;
            half.ahead.remove(0..range.end);
        }
        let new = half.arrived - before;
        if new > 0 {
            let arrived = half.arrived;
            for (other, subflow) in channel.subflows.iter().enumerate() {
                // The subflow has just sent its own acknowledgment, without this data-level one.
                net.set_data_ack(subflow.connection, side, arrived, other == index);
            }
            self.progress.push(Progress::Received(number, side, new));
        }
    }

    /// Takes the peer's acknowledgments of bytes that this side sent.
    fn note_acknowledged(&mut self, net: &Net, number: Channel, side: Side) {
        let channel = &mut self.channels[number];
        let reported = channel.subflows.iter();
        let reported =
            reported.map(|subflow| net.tcp(subflow.connection, side).data_acknowledged());
        let half = &mut channel.halves[side.index()];
        let reported = reported.max().unwrap_or(0);
        if reported > half.acknowledged {
            half.acknowledged = reported;
            half.progress = net.now();
            half.again.retain(|(_, end)| *end > reported);
        }
    }

    /// Fills the subflows as far as their send buffers allow.
    fn pump(&mut self, net: &mut Net, number: Channel, side: Side) {
        loop {
            let channel = &mut self.channels[number];
            let half = &channel.halves[side.index()];
            let room = (half.acknowledged + self.window).saturating_sub(half.next);
            if half.again.is_empty() && half.offered.min(room) == 0 {
                return;
            }
            let Some((index, left)) = choose(channel, net, side) else {
                return;
            };
            let mss = u64::from(self.config.mss);
            let half = &mut channel.halves[side.index()];
            let (start, end) = match half.again.pop_front() {
                Some((start, end)) => {
                    let cut = end.min(start + mss);
                    if cut < end {
                        half.again.push_front((cut, end));
                    }
                    (start, cut)
                }
                None => {
                    let len = mss.min(half.offered).min(room);
                    half.offered -= len;
                    half.next += len;
                    (half.next - len, half.next)
                }
            };
            half.burst = Some((index, left.saturating_sub(end - start)));
            let subflow = &mut channel.subflows[index];
            let at = net.tcp(subflow.connection, side).written() + (end - start);
            subflow.mappings[side.peer().index()].push_back((at, start, end));
            net.write(subflow.connection, side, end - start);
        }
    }

    /// Checks for data that has been unacknowledged for too long, and lets the selector decide.
    pub(crate) fn on_alarm(&mut self, net: &mut Net) {
        let checks = self.alarms.is_multiple_of(self.alarms_for_each_check());
        self.alarms += 1;
        for number in 0..self.channels.len() {
            if checks {
                for side in Side::BOTH {
                    self.find_stale(net, number, side);
                    self.repeat_oldest(net, number, side);
                }
                self.trace_subflows(net, number);
            }
            self.select(net, number);
        }
        if self.channels.iter().any(|channel| !channel.is_over) {
            let interval = CHECK_INTERVAL / self.alarms_for_each_check();
            net.wake(net.now() + interval, Alarm::Manager);
        }
    }

    fn alarms_for_each_check(&self) -> u64 {
        match self.selector {
            Some(_) => selection::REVIEWS_FOR_EACH_CHECK,
            None => 1,
        }
    }

    pub(crate) fn take_progress(&mut self) -> Vec<Progress> {
        std::mem::take(&mut self.progress)
    }

    /// Number of connected subflows.
    pub(crate) fn connected(&self, net: &Net) -> usize {
        let all = self.channels.iter().flat_map(|channel| &channel.subflows);
        all.filter(|subflow| net.tcp(subflow.connection, Side::Client).is_established())
            .count()
    }
}

impl Bearer for Mptcp {
    fn open(&mut self, net: &mut Net, _link: Option<usize>, _class: Option<Class>) -> Channel {
        let number = self.channels.len();
        self.channels.push(Multipath {
            subflows: Vec::new(),
            groups: Default::default(),
            halves: Default::default(),
            is_open: false,
            has_joined: false,
            is_over: false,
            selection: self.selector.as_ref().and_then(Selection::new),
        });
        self.add_subflow(net, number, 0);
        net.wake(net.now() + CHECK_INTERVAL, Alarm::Manager);
        number
    }

    fn offer(&mut self, net: &mut Net, channel: Channel, side: Side, bytes: u64) {
        let half = &mut self.channels[channel].halves[side.index()];
        half.offered += bytes;
        half.progress = net.now();
        self.pump(net, channel, side);
    }

    fn close(&mut self, net: &mut Net, channel: Channel) {
        self.channels[channel].is_over = true;
        for subflow in &self.channels[channel].subflows {
            net.abort(subflow.connection, Side::Client);
        }
    }
}
