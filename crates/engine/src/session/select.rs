//! The selector at work: when it looks, what it is shown, and what becomes of its decisions.

use std::time::Duration;

use super::{Event, Session};
use crate::Instant;
use crate::path::{Path, PathState};
use crate::selector::{self, Decision, Seen, SeenPath, Selector, SelectorConfig};
use crate::stream::SendHalf;

/// Writes of a stream whose delivery is waited for at once, and the time between two of them.
const MARKS: (usize, Duration) = (32, Duration::from_millis(5));

/// Delays that wait for a look at the most.
const MOST_DELAYS: usize = 4096;

/// A session's selector.
#[derive(Debug)]
pub(super) struct Selecting {
    selector: Box<dyn Selector>,
    /// How long writes took until they were delivered, since the last look.
    delays: Vec<Duration>,
}

impl Selecting {
    pub(super) fn new(config: &SelectorConfig) -> Self {
        // The configuration has been checked, so that there is one of that name.
        let selector = selector::by_name(config);
        Self {
            selector: selector.unwrap_or_else(|| Box::new(selector::none::All)),
            delays: Vec::new(),
        }
    }

    /// A program has written to a stream of which nothing was waiting.
    pub(super) fn note_written(&mut self, send: &mut SendHalf, now: Instant) {
        if !self.selector.reads_delays() || send.marks.len() >= MARKS.0 {
            return;
        }
        if send.marks.back().is_none_or(|(_, at)| now >= *at + MARKS.1) {
            send.marks.push_back((send.written, now));
        }
    }

    /// The peer may have more of a stream in order than before.
    pub(super) fn note_delivered(&mut self, send: &mut SendHalf, now: Instant) {
        while let Some(&(end, at)) = send.marks.front()
            && end <= send.base
        {
            send.marks.pop_front();
            if self.delays.len() < MOST_DELAYS {
                self.delays.push(now.saturating_sub(at));
            }
        }
    }
}

impl Session {
    /// When the selector wants to look at the paths.
    pub(super) fn next_selection(&self) -> Option<Instant> {
        self.selecting.selector.next_review(self.is_busy())
    }

    /// Lets the selector look if it is time, and does what it says.
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
            received: path.confirmed,
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
        let rested = path.selection.rests();
        path.selection = selection;
        path.selection_reason.clone_from(&reason);
        self.events.push_back(Event::PathSelected {
            path: id,
            selection,
            reason,
        });
        if rested != selection.rests() {
            self.schedulers.paths_changed();
        }
    }

    /// Whether there is anything to send or on its way.
    fn is_busy(&self) -> bool {
        !self.ready.is_empty() || self.paths.values().any(|path| !path.flights.is_empty())
    }
}
