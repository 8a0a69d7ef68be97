//! The node: packets in, packets out.

mod acks;
mod busy;
mod down;
mod losses;
mod outage;
mod overflow;
mod proof;
mod release;
mod repair;
mod report;
mod sequences;
mod times;
mod tracked;
mod up;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::flow::{Copies, FlowId, FlowKey, FlowTable, Phase};
use crate::queue::LinkQueue;
use crate::seq::Position;
use crate::steering::{self, Steering};
use crate::visible::Visible;
use crate::{Config, ConfigError, Instant, LinkId, Mode};

use busy::{Busy, Share};
use sequences::Sequences;
use tracked::Tracked;

pub use report::{Counters, Event, FlowReport, Reset};

/// An edge node. The [crate's documentation](crate) states the calling rules.
#[derive(Debug)]
pub struct Edge {
    config: Config,
    links: Vec<LinkQueue>,
    /// Links that died when no other was up: no link took over their packets.
    stranded: Vec<bool>,
    steering: Box<dyn Steering>,
    flows: FlowTable<Tracked>,
    /// N: flows with outstanding data and a recent acknowledgment from the user, and flows with
    /// owed bytes.
    busy: Busy,
    /// Bytes of all packet copies.
    kept: usize,
    /// Tracked ranges of all flows: received data, and data that the node has sent again.
    ranges: usize,
    /// No search for droppable copies takes place before this time.
    next_search: Instant,
    /// Flows by the time of their next timer.
    timers: BTreeSet<(Instant, FlowId)>,
    /// LWA: the next sequence number for each user.
    sequences: Sequences,
    /// Packets given to a dead link or to none, with their send time, that have not found room in
    /// another queue yet.
    unsent: VecDeque<(FlowId, Position, (Instant, LinkId))>,
    /// Resets for users; they go to the next link that can take a packet.
    resets_for_users: VecDeque<Arc<[u8]>>,
    /// Packets for the far side.
    far: VecDeque<Vec<u8>>,
    events: VecDeque<Event>,
    counters: Counters,
}

/// When memory for copies runs out, flows that have been unused for this long lose theirs.
const ABANDONED_AFTER: Duration = Duration::from_secs(10);
/// Interval between searches for such flows when memory is still short.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Segments that wait for a link, by flow and position.
type Waiting = HashSet<(FlowId, Position)>;

/// A flow counts as busy for this long plus the longest link trip time after its user's last
/// acknowledgment.
const ACTIVE: Duration = Duration::from_secs(1);

/// Most resets waiting for a link; further ones are dropped.
const MAX_RESETS: usize = 1000;

/// Tracked ranges of all flows above which each flow keeps only a few of both kinds. A range takes
/// about 50 bytes.
const MAX_RANGES: usize = 500_000;
const MIN_RANGES: usize = 2;

/// Most events waiting for the caller; further ones are dropped.
const MAX_EVENTS: usize = 1000;

/// Number of idle flows examined to find one that may be forgotten.
const MAX_LOOKS: usize = 16;

impl Edge {
    /// A node with all links up.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let steering = steering::build(&config.steering)
            .ok_or_else(|| ConfigError::Steering(config.steering.clone()))?;
        Ok(Self {
            links: config
                .links
                .iter()
                .map(|link| LinkQueue::new(link.queue, link.rate))
                .collect(),
            stranded: vec![false; config.links.len()],
            steering,
            flows: FlowTable::new(config.flows),
            busy: Busy::default(),
            kept: 0,
            ranges: 0,
            next_search: Instant::ZERO,
            timers: BTreeSet::new(),
            sequences: Sequences::default(),
            unsent: VecDeque::new(),
            resets_for_users: VecDeque::new(),
            far: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            config,
        })
    }

    /// The next packet for a link that can take one. With [`Mode::Lwa`],
    /// [`is_numbered`](crate::lwa::is_numbered) says whether it has a sequence number.
    pub fn poll_link(&mut self, link: LinkId, now: Instant) -> Option<Arc<[u8]>> {
        let number = usize::from(link.0);
        self.links.get(number).filter(|link| link.is_up())?;
        self.send_unsent(now);
        let farewell = self.resets_for_users.pop_front();
        farewell.or_else(|| self.links[number].pop(now))
    }

    /// The next packet for the far side.
    pub fn poll_far(&mut self) -> Option<Vec<u8>> {
        self.far.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Edge::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let idle = self
            .flows
            .idle()
            .next()
            .map(|(_, used, _)| used + self.config.idle);
        self.timers
            .first()
            .map(|&(at, _)| at)
            .into_iter()
            .chain(idle)
            .min()
    }

    /// The queue before a link.
    pub fn link(&self, link: LinkId) -> Option<&LinkQueue> {
        self.links.get(usize::from(link.0))
    }

    /// Counters since the start.
    pub fn counters(&self) -> Counters {
        Counters {
            flows: self.flows.len(),
            busy_flows: self.busy.len(),
            owed_flows: self.busy.owed(),
            kept_bytes: self.kept,
            ..self.counters
        }
    }

    /// The current N. [`Edge::counters`] reports the value at the last packet or timer.
    pub fn busy_flows(&self, now: Instant) -> usize {
        self.busy.since(self.active_since(now))
    }

    /// A flow counts as busy if its user has acknowledged data since this time.
    fn active_since(&self, now: Instant) -> Instant {
        let trip = self.trips().max().unwrap_or_default();
        now.saturating_sub(ACTIVE + trip)
    }

    /// Removes flows with long-silent users from the busy flows.
    fn expire_busy(&mut self, now: Instant) {
        let since = self.active_since(now);
        while let Some(id) = self.busy.longest_silent(since)
            && let Some(tracked) = self.flows.get_mut(id)
        {
            let silent = Share {
                last_ack: None,
                ..tracked.share
            };
            tracked.share = self.busy.replace(id, tracked.share, silent);
        }
    }

    /// Reports the state of a flow.
    pub fn flow(&self, key: &FlowKey) -> Option<FlowReport> {
        let tracked = self.flows.get(self.flows.find(key)?)?;
        Some(FlowReport::of(tracked))
    }

    /// Reports the state of all flows, most recently used first.
    pub fn flows(&self) -> impl Iterator<Item = (FlowKey, FlowReport)> + '_ {
        let recent = self.flows.recent();
        recent.map(|(key, tracked)| (key, FlowReport::of(tracked)))
    }

    fn visible(&self) -> bool {
        self.config.mode == Mode::LwipVisible
    }

    /// The flow between two ends, created if unknown. `None` if the table has no room.
    fn track(&mut self, key: FlowKey, now: Instant) -> Option<FlowId> {
        if let Some(id) = self.flows.find(&key) {
            self.flows.touch(id, now);
            return Some(id);
        }
        if self.flows.is_full() {
            // Owed bytes are delivered before a flow may be forgotten.
            let idle = self.flows.idle().take(MAX_LOOKS);
            let mut free = idle.filter(|(.., tracked)| tracked.flow.owed() == 0);
            let victim = free.next().map(|(id, ..)| id);
            drop(free);
            let Some(victim) = victim else {
                self.counters.not_tracked += 1;
                return None;
            };
            self.forget(victim);
            self.counters.forgotten += 1;
        }
        let tracked = Tracked {
            visible: Visible::new(&self.config.visible),
            used: now,
            ..Tracked::placeholder()
        };
        self.flows.insert(key, tracked, now)
    }

    /// Applies an action to a flow and keeps the totals over all flows consistent.
    fn with<R>(
        &mut self,
        id: FlowId,
        now: Instant,
        action: impl FnOnce(&mut Self, &mut Tracked) -> R,
    ) -> Option<R> {
        // Taken out during the action, which may use the rest of the node.
        let placeholder = Tracked::placeholder();
        let mut tracked = std::mem::replace(self.flows.get_mut(id)?, placeholder);
        let (kept, ranges) = (tracked.copies.bytes(), tracked.ranges());
        tracked.used = now;
        let result = action(self, &mut tracked);
        if self.ranges + tracked.ranges() - ranges > MAX_RANGES {
            tracked.keep_ranges(MIN_RANGES);
        }
        self.ranges = self.ranges + tracked.ranges() - ranges;
        let since = self.active_since(now);
        let last_ack = tracked.last_ack.filter(|last_ack| *last_ack >= since);
        let share = Share {
            last_ack: last_ack.filter(|_| tracked.flow.outstanding() > 0),
            owed: tracked.flow.owed() > 0,
        };
        tracked.share = self.busy.replace(id, tracked.share, share);
        self.kept = self.kept + tracked.copies.bytes() - kept;
        let wanted = tracked.wants_timer(&self.config);
        if wanted != tracked.timer {
            if let Some(at) = tracked.timer {
                self.timers.remove(&(at, id));
            }
            tracked.timer = wanted;
            self.timers.extend(wanted.map(|at| (at, id)));
        }
        *self.flows.get_mut(id)? = tracked;
        Some(result)
    }

    /// The same without marking the flow as used: its idle time continues.
    fn in_passing<R>(
        &mut self,
        id: FlowId,
        action: impl FnOnce(&mut Self, &mut Tracked) -> R,
    ) -> Option<R> {
        let used = self.flows.get(id)?.used;
        self.with(id, used, action)
    }

    /// Drops the copies of flows that have been unused for a while, most likely because their users
    /// are gone. It frees room for `bytes` and some more, starts with the flow idle longest, and
    /// keeps owed bytes.
    fn make_room(&mut self, bytes: usize, now: Instant) {
        if now < self.next_search {
            return;
        }
        let (mut found, mut sum) = (Vec::new(), 0);
        for (id, used, tracked) in self.flows.idle() {
            if now.saturating_sub(used) < ABANDONED_AFTER || sum >= bytes.max(self.config.kept / 16)
            {
                break;
            }
            if tracked.copies.bytes() > 0 && tracked.flow.owed() == 0 {
                found.push(id);
                sum += tracked.copies.bytes();
            }
        }
        for id in found {
            self.in_passing(id, |_, tracked| tracked.copies = Copies::default());
        }
        if sum < bytes.max(1) {
            // Scanning all flows for each packet would cost more than it saves.
            self.next_search = now + SEARCH_INTERVAL;
        }
    }

    /// Forgets a flow.
    fn forget(&mut self, id: FlowId) {
        if let Some((_, mut tracked)) = self.flows.remove(id) {
            let release = tracked.release.take();
            let release = release.filter(|_| tracked.flow.phase() != Phase::Closed);
            self.far.extend(release.map(|release| release.packet));
            self.busy.replace(id, tracked.share, Share::default());
            self.kept -= tracked.copies.bytes();
            self.ranges -= tracked.ranges();
            if let Some(at) = tracked.timer {
                self.timers.remove(&(at, id));
            }
        }
    }

    fn event(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        }
    }

    /// min(B^a / B^s) over the links that are up; 0 if no link is up.
    fn free(&self) -> f64 {
        let shares = self
            .links
            .iter()
            .filter(|link| link.is_up())
            .map(LinkQueue::share_available);
        shares.min_by(f64::total_cmp).unwrap_or(0.0)
    }

    /// LTT of all links that are up and have been measured.
    fn trips(&self) -> impl Iterator<Item = Duration> + '_ {
        self.links
            .iter()
            .filter(|link| link.is_up())
            .filter_map(LinkQueue::trip)
    }
}

#[cfg(test)]
mod tests;
