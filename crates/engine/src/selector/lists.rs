//! Common parts of the paper's two algorithms: the active list, the probe list, the turns and the
//! average.
//!
//! Source: the paper on live video over shared hotspots in docs/algorithms.md, sections 3.1 and
//! 3.2. There one radio cycles through the interfaces, and each is judged when its turn ends. Here
//! all paths send at once, and a turn is a period of observation. Turns cycle through the active
//! paths, and each takes a round-trip time of its path, at least [`TURN`].
//!
//! Decisions where the paper is silent:
//!
//! - A path that has just joined or returned is not judged for [`GRACE`] round trips, since it is
//!   in slow start.
//! - The last active path is kept, however little it carries.
//! - If no active path delivers, the parked ones become active again at once.
//! - While nothing is waiting to be sent, no path has turns, and the time does not count.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Decision, Seen, SeenPath, Selection};
use crate::{Instant, PathId};

/// Weight of the newest turn in the average: beta of algorithm 1.
const BETA: f64 = 0.125;

/// Shortest turn.
const TURN: Duration = Duration::from_millis(100);

/// Round trips and shortest time before a path that joins or returns is judged.
const GRACE: (u32, Duration) = (4, Duration::from_millis(500));

/// A longer time without a review means that nothing was waiting to be sent.
const PAUSE: Duration = Duration::from_secs(1);

/// The lists.
#[derive(Debug)]
pub(super) struct Lists {
    probe: Duration,
    members: BTreeMap<PathId, Member>,
    /// The path whose turn it is, and the end of the turn.
    turn: Option<(PathId, Instant)>,
    /// Time at which the probe timer fires; none while it is not set.
    probe_at: Option<Instant>,
    /// B_gbl: the average rate of the paths in their turns, in bytes per second.
    global: f64,
    reviewed: Option<Instant>,
}

#[derive(Debug)]
struct Member {
    selection: Selection,
    /// Time at which it became active.
    since: Instant,
    /// End of its last turn, and the bytes that the peer had counted by then.
    mark: (Instant, u64),
}

/// A completed turn that is to be judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) path: SeenPath,
    /// Bytes per second that the peer has counted since the path's previous turn.
    pub(super) received: f64,
    /// Whether another active path delivers, so that this one can be spared.
    pub(super) spared: bool,
}

impl Lists {
    pub(super) fn new(probe: Duration) -> Self {
        Self {
            probe,
            members: BTreeMap::new(),
            turn: None,
            probe_at: None,
            global: 0.0,
            reviewed: None,
        }
    }

    /// B_gbl.
    pub(super) fn global(&self) -> f64 {
        self.global
    }

    /// Records paths that joined or ended, and reactivates parked ones: all of them when the probe
    /// timer fires or no other path delivers.
    pub(super) fn begin(&mut self, seen: &Seen<'_>) -> Vec<Decision> {
        let now = seen.now;
        let paused = self
            .reviewed
            .replace(now)
            .is_none_or(|before| now > before + PAUSE);
        self.members
            .retain(|id, _| seen.paths.iter().any(|path| path.id == *id));
        for path in seen.paths {
            let member = self.members.entry(path.id).or_insert(Member {
                selection: Selection::Active,
                since: now,
                mark: (now, path.received),
            });
            if paused {
                member.mark = (now, path.received);
            }
        }
        if paused {
            self.turn = None;
        }
        if !self.members.values().any(|member| member.selection.rests()) {
            self.probe_at = None;
            return Vec::new();
        }
        let works = |lists: &Self, path: &SeenPath| path.works && lists.is_active(path.id);
        if !seen.paths.iter().any(|path| works(self, path)) {
            let reason = "no other path delivers";
            return self.reactivate(seen, Selection::Active, reason);
        }
        if self.probe_at.is_some_and(|at| at <= now) {
            let reason = format!("tried again after {} s", self.probe.as_secs_f64());
            return self.reactivate(seen, Selection::Probing, &reason);
        }
        Vec::new()
    }

    /// Ends the current turn if its time has come, and begins the next one. Returns the turn if it
    /// is to be judged.
    pub(super) fn end_turn(&mut self, seen: &Seen<'_>) -> Option<Turn> {
        let now = seen.now;
        let last = self.turn.map(|(path, _)| path);
        if self.turn.is_some_and(|(_, ends)| now < ends) {
            return None;
        }
        let working = seen.paths.iter().filter(|path| path.works);
        let working: Vec<SeenPath> = working
            .filter(|path| self.is_active(path.id))
            .copied()
            .collect();
        let after = last.and_then(|last| working.iter().find(|path| path.id > last));
        let next = after.or(working.first());
        self.turn = next.map(|path| (path.id, now + path.srtt.max(TURN)));
        let path = *working.iter().find(|path| Some(path.id) == last)?;
        let member = self.members.get_mut(&path.id)?;
        let (begun, before) = std::mem::replace(&mut member.mark, (now, path.received));
        let grace = (path.srtt * GRACE.0).max(GRACE.1);
        let time = now.saturating_sub(begun).as_secs_f64();
        if now < member.since + grace || begun < member.since || time == 0.0 {
            return None;
        }
        Some(Turn {
            path,
            received: path.received.saturating_sub(before) as f64 / time,
            spared: working.len() > 1,
        })
    }

    /// Algorithm 1, line 26: B_gbl = (1 - beta) B_gbl + beta B_i.
    pub(super) fn average(&mut self, rate: f64) {
        self.global = (1.0 - BETA) * self.global + BETA * rate;
    }

    /// Makes the path a backup on the probe list; sets the timer unless it is set (algorithm 1,
    /// lines 18 to 21).
    pub(super) fn park(&mut self, path: PathId, now: Instant, reason: String) -> Decision {
        self.probe_at.get_or_insert(now + self.probe);
        self.select(path, Selection::Parked, reason)
    }

    /// The path was judged and stays; that is reported only if it was on probation.
    pub(super) fn keep(
        &mut self,
        path: PathId,
        reason: impl FnOnce() -> String,
    ) -> Option<Decision> {
        let member = self.members.get(&path)?;
        (member.selection == Selection::Probing)
            .then(|| self.select(path, Selection::Active, reason()))
    }

    /// Time of the next review while data is waiting.
    pub(super) fn next_review(&self) -> Option<Instant> {
        let turn = self.turn.map(|(_, ends)| ends);
        // Without a turn no path delivers, or nothing was waiting; this is checked from time to
        // time.
        let again = turn.or(self.reviewed.map(|at| at + TURN));
        match (again, self.probe_at) {
            (Some(turn), Some(probe)) => Some(turn.min(probe)),
            (again, probe) => again.or(probe).or(Some(Instant::ZERO)),
        }
    }

    fn is_active(&self, path: PathId) -> bool {
        let member = self.members.get(&path);
        member.is_some_and(|member| !member.selection.rests())
    }

    fn reactivate(&mut self, seen: &Seen<'_>, to: Selection, reason: &str) -> Vec<Decision> {
        self.probe_at = None;
        let mut decisions = Vec::new();
        for path in seen.paths {
            if let Some(member) = self.members.get_mut(&path.id)
                && member.selection.rests()
            {
                member.since = seen.now;
                member.mark = (seen.now, path.received);
                decisions.push(self.select(path.id, to, reason.to_owned()));
            }
        }
        decisions
    }

    fn select(&mut self, path: PathId, selection: Selection, reason: String) -> Decision {
        if let Some(member) = self.members.get_mut(&path) {
            member.selection = selection;
        }
        Decision {
            path,
            selection,
            reason,
        }
    }
}
