//! `auto`: the policy that suits the traffic of the flow.
//!
//! - Calls go over several links, within the limits on copies.
//! - Other flows are pinned, because one path keeps the order and costs no waiting.
//! - A flow that wants more than its path carries is spread while other paths have room, until the
//!   fastest path has sufficed for a second.

use std::time::Duration;

use super::duplicate::{self, best_links};
use super::pinned::Pinned;
use super::spread::{self, Spread};
use super::{DatagramPolicy, Facts, FlowPolicy, Links, Offer, Placement};
use crate::datagram::budget::Budget;
use crate::datagram::config::DuplicateLimits;
use crate::datagram::path::{DatagramPath, Paths};
use crate::{Class, Instant};

/// A flow is spread when its path has had no room for this long.
const SPREAD_AFTER: Duration = Duration::from_millis(10);

/// It is pinned again when the other paths have not been needed for this long.
const PINNED_AFTER: Duration = Duration::from_secs(1);

/// A flow with the policy that fits its traffic.
#[derive(Debug)]
pub(in crate::datagram) struct Auto {
    limits: DuplicateLimits,
    mode: Mode,
    pinned: Pinned,
    spread: Spread,
    /// Copies that the flow may send.
    budget: Budget,
    /// Time since when its path has had no room although others have.
    full_since: Option<Instant>,
    links: Links,
}

/// The present behavior of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pinned,
    /// Since a time.
    Spread(Instant),
    Duplicate,
    /// A call without a second link, or with more bytes than its budget.
    Single {
        over_budget: bool,
    },
}

impl Auto {
    pub(super) fn new(limits: DuplicateLimits) -> Self {
        Self {
            limits,
            mode: Mode::Pinned,
            pinned: Pinned::default(),
            spread: Spread::default(),
            budget: Budget::default(),
            full_since: None,
            links: Links::default(),
        }
    }

    fn place_call(&mut self, facts: &Facts, paths: &Paths) -> Placement {
        self.links = best_links(paths, &self.limits);
        let copies = facts.len * self.links.len().saturating_sub(1);
        let rate = self.limits.flow_rate as f64;
        if copies > 0 || facts.len == 0 && self.links.len() > 1 {
            if self.budget.take(copies, rate, facts.now) {
                self.mode = Mode::Duplicate;
                return Placement::Within(self.links);
            }
            self.mode = Mode::Single { over_budget: true };
        } else {
            self.mode = Mode::Single { over_budget: false };
        }
        self.pinned.place(facts, paths)
    }

    /// Whether the flow should be spread from now on.
    fn wants_more(&mut self, facts: &Facts, paths: &Paths) -> bool {
        let path = self.pinned.path(facts, paths);
        let has_room = |path: &DatagramPath| path.has_room(facts.len);
        let is_full = facts.waits_since.is_some_and(|since| since < facts.now)
            && path
                .and_then(|path| paths.get(path))
                .is_some_and(|path| !has_room(path))
            && paths
                .usable()
                .any(|other| Some(other.id) != path && has_room(other));
        if !is_full {
            // Other paths without room now say nothing about the next moment.
            if facts.waits_since.is_none() {
                self.full_since = None;
            }
            return false;
        }
        let since = *self.full_since.get_or_insert(facts.now);
        facts.now >= since + SPREAD_AFTER
    }
}

impl FlowPolicy for Auto {
    fn place(&mut self, facts: &Facts, paths: &Paths) -> Placement {
        if facts.class == Class::Conversational {
            return self.place_call(facts, paths);
        }
        if let Mode::Spread(since) = self.mode {
            let needed = self.spread.needed().unwrap_or(since).max(since);
            if facts.now < needed + PINNED_AFTER {
                return self.spread.place(facts, paths);
            }
            self.full_since = None;
        }
        self.mode = Mode::Pinned;
        if self.wants_more(facts, paths) {
            self.mode = Mode::Spread(facts.now);
            return self.spread.place(facts, paths);
        }
        self.pinned.place(facts, paths)
    }

    fn offer(&mut self, facts: &Facts, path: &DatagramPath, paths: &Paths) -> Offer {
        match self.mode {
            Mode::Spread(_) => self.spread.offer(facts, path, paths),
            // Datagrams queued before the flow became a call.
            Mode::Duplicate => duplicate::offer(path),
            Mode::Pinned | Mode::Single { .. } => self.pinned.offer(facts, path, paths),
        }
    }

    fn standing(&self, paths: &Paths, now: Instant) -> (Duration, usize) {
        match self.mode {
            Mode::Spread(_) => self.spread.standing(paths, now),
            _ => (Duration::ZERO, 0),
        }
    }

    fn in_use(&self) -> DatagramPolicy {
        match self.mode {
            Mode::Pinned | Mode::Single { .. } => DatagramPolicy::Pinned,
            Mode::Spread(_) => DatagramPolicy::Spread,
            Mode::Duplicate => DatagramPolicy::Duplicate,
        }
    }

    fn reason(&self, paths: &Paths) -> String {
        match self.mode {
            Mode::Pinned => self.pinned.reason(paths),
            Mode::Spread(_) => spread::describe("one path has no room for all datagrams", paths),
            Mode::Duplicate => duplicate::describe("it is a call", &self.links, paths),
            Mode::Single { over_budget: true } => format!(
                "it is a call with more than {} kbit/s, so there are no copies; {}",
                self.limits.flow_rate * 8 / 1000,
                self.pinned.reason(paths)
            ),
            Mode::Single { over_budget: false } => {
                duplicate::describe("it is a call", &self.links, paths)
            }
        }
    }
}
