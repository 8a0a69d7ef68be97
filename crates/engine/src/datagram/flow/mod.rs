//! A flow: its queue and its policy as a sender, its window and its order as a receiver.

mod codel;
mod fates;
pub(super) mod lane;
pub(super) mod queue;
mod rules;
pub(super) mod table;

use std::time::Duration;

use fates::Fates;
use lane::{Copy, CopyKind, Lane};
use queue::{Drops, Queue};
use rules::Rules;
use table::Link;

use super::config::DatagramConfig;
use super::path::Paths;
use super::policy::{FlowPolicy, Learner};
use super::receive::Inbound;
use super::wire::Half;
use super::{DatagramPolicy, FlowId};
use crate::{Class, Instant, PathId};

/// CoDel's interval (RFC 8289, section 4.3) on paths with shorter round trips.
const CODEL_INTERVAL: Duration = Duration::from_millis(100);

/// CoDel's target as a part of its interval. RFC 8289, section 4.4, recommends 5 to 10 % for queues
/// that flows share. Here a queue delays only its own flow.
const TARGET_PART: u32 = 5;

/// The queue of a flow that is spread may be longer by this many times the difference of the delays
/// of its paths, as a time and in bytes: a slower path takes datagrams behind a queue of about this
/// difference, and a sender with CUBIC leaves seven tenths of its window after a drop. But CoDel's
/// target is no longer than ...
const SPREAD_TIMES: f64 = 1.5;

/// ... this.
const LONGEST_TARGET: Duration = Duration::from_millis(200);

/// Time for which a path counts as one of the flow.
const PATH_MEMORY: Duration = Duration::from_secs(1);

/// A flow counts as a call for this long after it carried conversational traffic.
const CALL_MEMORY: Duration = Duration::from_secs(30);

/// The properties of a new flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowConfig {
    /// The program's socket, by a number that the client chooses and both sides use. Any number of
    /// flows share a source.
    pub source: u64,
    /// The destination, at most 512 bytes; opaque here except for its last two bytes
    /// ([`DatagramConfig::short_ports`]).
    pub target: Vec<u8>,
    /// The class; without one each side learns it from the traffic.
    pub class: Option<Class>,
    /// How this side's datagrams use the paths.
    pub policy: DatagramPolicy,
}

/// The datagrams of a flow are repaired for this long after it last mentioned a path: the
/// time for which the receiver restores the order, and the longest delay of a path.
const REPAIR_MEMORY: Duration = Duration::from_millis(1500);

/// Counters of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowCounters {
    pub(super) sent: u64,
    pub(super) bytes_sent: u64,
    pub(super) copies_sent: u64,
    pub(super) rescued: u64,
    pub(super) bytes_repeated: u64,
    pub(super) received: u64,
    pub(super) bytes_received: u64,
    pub(super) drops: Drops,
    pub(super) too_big: u64,
}

/// A flow of this session.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) id: FlowId,
    pub(super) source: u64,
    pub(super) target: Box<[u8]>,
    /// The class that a program has set.
    pub(super) class: Option<Class>,
    /// The peer is known to know the flow.
    pub(super) confirmed: bool,
    pub(super) active_at: Instant,
    /// When it last carried conversational traffic.
    pub(super) called_at: Option<Instant>,
    pub(super) link: Link,
    pub(super) queue: Queue,
    pub(super) learner: Learner,
    pub(super) policy: Box<dyn FlowPolicy>,
    /// The policy that was asked for; [`FlowPolicy::in_use`] is the present one.
    pub(super) configured: DatagramPolicy,
    pub(super) next_sequence: u64,
    /// The path of the newest datagram that is not a copy.
    pub(super) last_path: Option<PathId>,
    /// The path before that one, and how many datagrams still mention it.
    pub(super) other_path: Option<PathId>,
    pub(super) mentions: u8,
    /// When it last mentioned a path, so that the receiver restores its order.
    pub(super) mentioned_at: Option<Instant>,
    pub(super) lanes: Vec<Lane>,
    pub(super) fates: Fates,
    pub(super) inbound: Inbound,
    /// Number of FLOW_FAILED records sent, and the version of the newest one received.
    pub(super) failures_sent: u64,
    pub(super) failure_received: u64,
    pub(super) counters: FlowCounters,
}

impl Flow {
    pub(super) fn new(
        id: FlowId,
        config: FlowConfig,
        limits: &DatagramConfig,
        now: Instant,
    ) -> Self {
        Self {
            id,
            source: config.source,
            link: Link::new(limits.idle_timeout_of(&config.target), limits),
            target: config.target.into(),
            class: config.class,
            confirmed: false,
            active_at: now,
            called_at: None,
            queue: Queue::default(),
            learner: Learner::new(now),
            policy: config.policy.start(limits),
            configured: config.policy,
            next_sequence: 0,
            last_path: None,
            other_path: None,
            mentions: 0,
            mentioned_at: None,
            lanes: Vec::new(),
            fates: Fates::default(),
            inbound: Inbound::default(),
            failures_sent: 0,
            failure_received: 0,
            counters: FlowCounters::default(),
        }
    }

    /// The class by which this side treats its datagrams.
    pub(super) fn treated_as(&self) -> Class {
        self.class.unwrap_or_else(|| self.learner.class())
    }

    /// Whether lost datagrams are repaired: the flow uses several paths and is no call, so the
    /// receiver restores its order and waits for a repair.
    pub(super) fn is_repaired(&self, now: Instant) -> bool {
        let mentions = self.mentioned_at;
        mentions.is_some_and(|at| now.saturating_sub(at) < REPAIR_MEMORY)
            && !self.is_conversational()
    }

    /// Whether a transfer may have begun, although the class is not learned yet.
    pub(super) fn begins_bulk(&self, now: Instant) -> bool {
        self.class.is_none() && self.learner.begins_bulk(now)
    }

    pub(super) fn is_conversational(&self) -> bool {
        self.treated_as() == Class::Conversational
    }

    /// Records that it carried a datagram in either direction.
    pub(super) fn note_activity(&mut self, now: Instant) {
        self.active_at = now;
        if self.is_conversational() {
            self.called_at = Some(now);
        }
    }

    /// Whether it was a call until recently.
    pub(super) fn is_call(&self, now: Instant) -> bool {
        self.called_at
            .is_some_and(|at| now.saturating_sub(at) < CALL_MEMORY)
    }

    /// How long its datagrams may wait in its queue, on a path with this round trip.
    pub(super) fn rules(
        &self,
        limits: &DatagramConfig,
        round_trip: Duration,
        paths: &Paths,
        now: Instant,
    ) -> Rules {
        let class = self.treated_as();
        let interval = round_trip.max(CODEL_INTERVAL);
        let (later, standing) = self.policy.standing(paths, now);
        let target = interval / TARGET_PART;
        let longer = target + later.mul_f64(SPREAD_TIMES);
        Rules {
            limits: limits.queue(class),
            interval: (class != Class::Conversational).then_some(interval),
            target: target.max(longer.min(LONGEST_TARGET)),
            standing: (SPREAD_TIMES * standing as f64) as usize,
        }
    }

    /// Whether a copy that is dropped was the last chance of a datagram that has not been sent.
    pub(super) fn loses_with(&mut self, copy: &Copy) -> bool {
        match copy.kind {
            // The datagram has been sent in part.
            _ if matches!(copy.half, Some(Half::Second { .. })) => false,
            CopyKind::Single => true,
            CopyKind::Duplicate => self.fates.drop(copy.sequence),
            // It has been sent before, in part or as a whole.
            CopyKind::Rescue | CopyKind::Fragment => false,
        }
    }

    /// The number of datagrams that are lost with these copies.
    pub(super) fn lost_with(&mut self, copies: impl IntoIterator<Item = Copy>) -> u64 {
        let mut lost = 0;
        for copy in copies {
            lost += u64::from(self.loses_with(&copy));
        }
        lost
    }

    /// Its part of a path.
    pub(super) fn lane(&mut self, path: PathId) -> &mut Lane {
        let index = match self.lanes.iter().position(|lane| lane.path == path) {
            Some(index) => index,
            None => {
                self.lanes.push(Lane::new(path));
                self.lanes.len() - 1
            }
        };
        &mut self.lanes[index]
    }

    /// Its part of a path that it has used.
    pub(super) fn find_lane(&mut self, path: PathId) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.path == path)
    }

    /// The paths that it has used within a second before it last sent something, the newest first.
    pub(super) fn recent_paths(&self) -> Vec<PathId> {
        let used = self
            .lanes
            .iter()
            .filter_map(|lane| Some((lane.used?, lane.path)));
        let mut used: Vec<(Instant, PathId)> = used.collect();
        used.sort_by(|one, other| other.cmp(one));
        let newest = used.first().map_or(Instant::ZERO, |(at, _)| *at);
        used.retain(|(at, _)| newest - *at <= PATH_MEMORY);
        used.into_iter().map(|(_, path)| path).collect()
    }

    /// Memory of all datagrams that have not been sent.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queue.bytes() + self.lanes.iter().map(Lane::bytes).sum::<usize>()
    }
}
