//! The node itself: packets in, packets out.

mod busy;
mod down;
mod losses;
mod repair;
mod report;
mod sequences;
mod times;
mod told;
mod tracked;
mod up;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::flow::{Copies, FlowId, FlowKey, FlowTable};
use crate::queue::LinkQueue;
use crate::seq::Position;
use crate::steering::{self, Steering};
use crate::visible::Visible;
use crate::{Config, ConfigError, Instant, LinkId, Mode};

use busy::{Busy, Share};
use sequences::Sequences;
use tracked::Tracked;

pub use report::{Counters, Event, FlowReport, Reset};

/// An edge node. The [crate's documentation](crate) has the law of its use.
#[derive(Debug)]
pub struct Edge {
    config: Config,
    links: Vec<LinkQueue>,
    /// Links that died as the last one: nothing took over what they had been given.
    stranded: Vec<bool>,
    steering: Box<dyn Steering>,
    flows: FlowTable<Tracked>,
    /// N: flows with something outstanding of which the user has acknowledged something lately, and those that are owed something.
    busy: Busy,
    /// Bytes of all packets that are kept.
    kept: usize,
    /// Ranges of all flows: of what was received, and of what was sent again from here.
    ranges: usize,
    /// Before this nobody looks again for copies that could go.
    crowded_until: Instant,
    /// When which flow wants to be looked at.
    timers: BTreeSet<(Instant, FlowId)>,
    /// LWA: the next sequence number for each user.
    sequences: Sequences,
    /// What a dead link had been given and no queue has had room for since, with the time at which it was sent.
    unsent: VecDeque<(FlowId, Position, (Instant, LinkId))>,
    /// Resets for users, which the next link that can take a packet is given.
    farewells: VecDeque<Arc<[u8]>>,
    /// Packets for the far side.
    far: VecDeque<Vec<u8>>,
    events: VecDeque<Event>,
    counters: Counters,
}

/// Where there is no room for copies, those of flows that nobody has used for so long make it.
const ABANDONED: Duration = Duration::from_secs(10);
/// How often is looked for them, where there were too few.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Segments that wait for a link, by flow and position.
type Waiting = HashSet<(FlowId, Position)>;

/// A flow counts as busy for so long, and the longest link trip time, behind its user's last acknowledgement.
const ACTIVE: Duration = Duration::from_secs(1);

/// Resets that wait for a link; more are dropped.
const MOST_FAREWELLS: usize = 1000;

/// Ranges of all flows together, beyond which each keeps no more than a few of both kinds. They take some 50 bytes each.
const MOST_RANGES: usize = 500_000;
const LEAST_RANGES: usize = 2;

/// Events that wait for somebody to take them; more are dropped.
const MOST_EVENTS: usize = 1000;

/// Idle flows that are looked at for one that may be forgotten.
const MOST_LOOKS: usize = 16;

impl Edge {
    /// A node whose links are up.
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
            crowded_until: Instant::ZERO,
            timers: BTreeSet::new(),
            sequences: Sequences::default(),
            unsent: VecDeque::new(),
            farewells: VecDeque::new(),
            far: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            config,
        })
    }

    /// The link can take a packet: the next one for it. With [`Mode::Lwa`] it is numbered or not, see
    /// [`is_numbered`](crate::lwa::is_numbered).
    pub fn poll_link(&mut self, link: LinkId, now: Instant) -> Option<Arc<[u8]>> {
        let number = usize::from(link.0);
        self.links.get(number).filter(|link| link.is_up())?;
        self.send_unsent(now);
        let farewell = self.farewells.pop_front();
        farewell.or_else(|| self.links[number].pop(now))
    }

    /// The next packet for the far side.
    pub fn poll_far(&mut self) -> Option<Vec<u8>> {
        self.far.pop_front()
    }

    /// What has happened.
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

    /// What was counted since the start.
    pub fn counters(&self) -> Counters {
        Counters {
            flows: self.flows.len(),
            busy_flows: self.busy.len(),
            owed_flows: self.busy.owed(),
            kept_bytes: self.kept,
            ..self.counters
        }
    }

    /// N as it is now: what [`Edge::counters`] tells is that of the last packet or timer.
    pub fn busy_flows(&self, now: Instant) -> usize {
        self.busy.since(self.active_since(now))
    }

    /// A flow counts as busy if its user has acknowledged something since then.
    fn active_since(&self, now: Instant) -> Instant {
        let trip = self.trips().max().unwrap_or_default();
        now.saturating_sub(ACTIVE + trip)
    }

    /// Flows whose users have been silent for long are not busy any more.
    fn expire_busy(&mut self, now: Instant) {
        let since = self.active_since(now);
        while let Some(id) = self.busy.longest_silent(since)
            && let Some(tracked) = self.flows.get_mut(id)
        {
            let silent = Share {
                heard: None,
                ..tracked.share
            };
            tracked.share = self.busy.replace(id, tracked.share, silent);
        }
    }

    /// What is known of a flow.
    pub fn flow(&self, key: &FlowKey) -> Option<FlowReport> {
        let tracked = self.flows.get(self.flows.find(key)?)?;
        Some(FlowReport::of(tracked))
    }

    /// What is known of all flows, of that used last first.
    pub fn flows(&self) -> impl Iterator<Item = (FlowKey, FlowReport)> + '_ {
        let recent = self.flows.recent();
        recent.map(|(key, tracked)| (key, FlowReport::of(tracked)))
    }

    fn visible(&self) -> bool {
        self.config.mode == Mode::LwipVisible
    }

    /// The flow between two ends, a new one if there is none. `None` where there is no room.
    fn track(&mut self, key: FlowKey, now: Instant) -> Option<FlowId> {
        if let Some(id) = self.flows.find(&key) {
            self.flows.touch(id, now);
            return Some(id);
        }
        if self.flows.is_full() {
            // What is owed to a user is delivered first.
            let idle = self.flows.idle().take(MOST_LOOKS);
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

    /// Does something with a flow, and keeps what is counted over all flows in step with it.
    fn with<R>(
        &mut self,
        id: FlowId,
        now: Instant,
        action: impl FnOnce(&mut Self, &mut Tracked) -> R,
    ) -> Option<R> {
        // Taken out for the time of the action, so that it may use the rest of the node as well.
        let placeholder = Tracked::placeholder();
        let mut tracked = std::mem::replace(self.flows.get_mut(id)?, placeholder);
        let (kept, ranges) = (tracked.copies.bytes(), tracked.ranges());
        tracked.used = now;
        let result = action(self, &mut tracked);
        if self.ranges + tracked.ranges() - ranges > MOST_RANGES {
            tracked.keep_ranges(LEAST_RANGES);
        }
        self.ranges = self.ranges + tracked.ranges() - ranges;
        let since = self.active_since(now);
        let heard = tracked.heard.filter(|heard| *heard >= since);
        let share = Share {
            heard: heard.filter(|_| tracked.flow.outstanding() > 0),
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

    /// The same where nobody has used the flow: it is idle for as long as before.
    fn in_passing<R>(
        &mut self,
        id: FlowId,
        action: impl FnOnce(&mut Self, &mut Tracked) -> R,
    ) -> Option<R> {
        let used = self.flows.get(id)?.used;
        self.with(id, used, action)
    }

    /// Drops copies of flows that nobody has used for a while, most likely because their users are gone, until there is room for so
    /// many bytes and some more; that idle for longest first, and nothing of what is owed.
    fn make_room(&mut self, bytes: usize, now: Instant) {
        if now < self.crowded_until {
            return;
        }
        let (mut found, mut sum) = (Vec::new(), 0);
        for (id, used, tracked) in self.flows.idle() {
            if now.saturating_sub(used) < ABANDONED || sum >= bytes.max(self.config.kept / 16) {
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
            // Looking at all flows for each packet would cost more than what is won.
            self.crowded_until = now + LOOK_AGAIN;
        }
    }

    /// Forgets a flow.
    fn forget(&mut self, id: FlowId) {
        if let Some((_, tracked)) = self.flows.remove(id) {
            self.busy.replace(id, tracked.share, Share::default());
            self.kept -= tracked.copies.bytes();
            self.ranges -= tracked.ranges();
            if let Some(at) = tracked.timer {
                self.timers.remove(&(at, id));
            }
        }
    }

    fn event(&mut self, event: Event) {
        if self.events.len() < MOST_EVENTS {
            self.events.push_back(event);
        }
    }

    /// min(B^a / B^s) over the links that are up; 0 if none is.
    fn free(&self) -> f64 {
        let shares = self
            .links
            .iter()
            .filter(|link| link.is_up())
            .map(LinkQueue::share_available);
        shares.min_by(f64::total_cmp).unwrap_or(0.0)
    }

    /// LTT of all links that are up and were measured.
    fn trips(&self) -> impl Iterator<Item = Duration> + '_ {
        self.links
            .iter()
            .filter(|link| link.is_up())
            .filter_map(LinkQueue::trip)
    }
}

#[cfg(test)]
mod tests;
