//! Runs the selector: when it reviews the paths, its inputs, and the effect of its decisions.

use std::time::Duration;

use super::{Event, Session};
use crate::Instant;
use crate::path::{Path, PathState};
use crate::selector::{self, Decision, Seen, SeenPath, Selector, SelectorConfig};
use crate::stream::SendHalf;

/// Most writes per stream that are timed at once, and the time between two of them.
const MARKS: (usize, Duration) = (32, Duration::from_millis(5));

/// Most delays that are stored for a review.
const MAX_DELAYS: usize = 4096;

/// A session's selector.
#[derive(Debug)]
pub(super) struct Selecting {
    selector: Box<dyn Selector>,
    /// Times from write to delivery since the last review.
    delays: Vec<Duration>,
}

impl Selecting {
    pub(super) fn new(config: &SelectorConfig) -> Self {
        // The configuration has been checked, so a selector with this name exists.
        let selector = selector::by_name(config);
        Self {
            selector: selector.unwrap_or_else(|| Box::new(selector::none::All)),
            delays: Vec::new(),
        }
    }

    /// A program has written to a stream that had nothing waiting.
    pub(super) fn note_written(&mut self, send: &mut SendHalf, now: Instant) {
        if !self.selector.reads_delays() || send.marks.len() >= MARKS.0 {
            return;
        }
        if send.marks.back().is_none_or(|(_, at)| now >= *at + MARKS.1) {
            send.marks.push_back((send.written, now));
        }
    }

    /// The peer may have received more of a stream in order.
    pub(super) fn note_delivered(&mut self, send: &mut SendHalf, now: Instant) {
        while let Some(&(end, at)) = send.marks.front()
            && end <= send.base
        {
            send.marks.pop_front();
            if self.delays.len() < MAX_DELAYS {
                self.delays.push(now.saturating_sub(at));
            }
        }
    }
}

impl Session {
    /// Time of the selector's next review.
    pub(super) fn next_selection(&self) -> Option<Instant> {
        self.selecting.selector.next_review(self.is_busy())
    }

    /// The selector's current threshold ([`Selector::threshold`]).
    pub fn selector_threshold(&self) -> Option<f64> {
        self.selecting.selector.threshold()
    }

    /// Lets the selector review the paths if it is time, and applies its decisions.
    pub(super) fn select_paths(&mut self, now: Instant) {
        if self.next_selection().is_none_or(|at| at > now) {
            return;
        }
        let rank = |path: &Path| path.rank().filter(|_| path.state == PathState::Active);
        let best = self.paths.values().filter_map(rank).min();
        let seen = |path: &Path| SeenPath {
            id: path.id,
            works: best.is_some() && rank(path) == best,
            srtt: path.srtt(),
            mss: path.mss(),
            received: path.outbound.confirmed,
            rate: path.rate(),
        };
        let paths: Vec<SeenPath> = self.paths.values().map(seen).collect();
        let delays = std::mem::take(&mut self.selecting.delays);
        let decisions = self.selecting.selector.review(&Seen {
            now,
            waiting: !self.ready.is_empty(),
            delivered: self.counters.delivered,
            delays: &delays,
            paths: &paths,
        });
        for decision in decisions {
            self.apply_selection(decision);
        }
    }

    fn apply_selection(&mut self, decision: Decision) {
        let Decision {
            path: id,
            selection,
            reason,
        } = decision;
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        let rested = path.standing.selection.rests();
        path.standing.selection = selection;
        path.standing.selection_reason.clone_from(&reason);
        self.events.push_back(Event::PathSelected {
            path: id,
            selection,
            reason,
        });
        if rested != selection.rests() {
            self.schedulers.paths_changed();
        }
    }

    /// Whether anything is waiting or in flight.
    fn is_busy(&self) -> bool {
        !self.ready.is_empty()
            || self
                .paths
                .values()
                .any(|path| !path.outbound.flights.is_empty())
    }
}
