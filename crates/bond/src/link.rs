//! The policy of one link of a client: when it is dialed, and what follows from the end of a path.

use std::time::Duration;

use sumlink_engine::PathId;

use crate::{Carriers, Instant, Moved, Packets, Width, dial};

/// How long a link counts as silent after a check found it silent; there are two checks per second.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// One link. `A` is the driver's data for each path.
#[derive(Debug)]
pub struct Link<A> {
    /// Its paths, oldest first.
    pub paths: Vec<(PathId, A)>,
    /// The number of carriers, if it is measured.
    width: Option<Width>,
    /// A dial is in progress.
    pub is_dialing: bool,
    /// The path that the current dial should replace.
    replacing: Option<PathId>,
    /// Failed dials in a row.
    failures: u32,
    /// The earliest time of the next dial.
    pub retry_at: Option<Instant>,
    /// The size of its packets.
    pub packets: Packets,
    /// When a check last found one of its paths silent.
    silent_at: Option<Instant>,
}

impl<A> Default for Link<A> {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            width: None,
            is_dialing: false,
            replacing: None,
            failures: 0,
            retry_at: None,
            packets: Packets::default(),
            silent_at: None,
        }
    }
}

/// The actions after a silent path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// Its link is dialed, and the new path replaces it.
    pub dials: bool,
    /// The current dial ends, because it uses another packet size.
    pub gives_up: bool,
    /// Connections use another packet size from now on: `Some(None)` is the link's own.
    pub size: Option<Option<u16>>,
}

impl<A> Link<A> {
    /// Whether the path belongs to this link.
    pub fn has(&self, path: PathId) -> bool {
        self.paths.iter().any(|(id, _)| *id == path)
    }

    /// The intended number of carriers.
    pub fn wanted(&self, carriers: Carriers) -> usize {
        match (carriers, &self.width) {
            (Carriers::Fixed(count), _) => count.get().into(),
            (Carriers::Auto, width) => width.as_ref().map_or(1, |width| width.carriers().into()),
        }
    }

    /// Whether it has fewer carriers than intended.
    pub fn lacks(&self, carriers: Carriers) -> bool {
        self.paths.len() < self.wanted(carriers)
    }

    /// Whether a dial may begin now.
    pub fn may_dial(&self, now: Instant) -> bool {
        !self.is_dialing && self.retry_at.is_none_or(|at| at <= now)
    }

    /// Whether it lacks a carrier and may be dialed now.
    pub fn is_due(&self, carriers: Carriers, now: Instant) -> bool {
        self.lacks(carriers) && self.may_dial(now)
    }

    /// Starts a dial; returns its packet size.
    pub fn dial(
        &mut self,
        replacing: Option<PathId>,
        carriers: Carriers,
        now: Instant,
    ) -> Option<u16> {
        if carriers == Carriers::Auto {
            self.width.get_or_insert_with(Width::new);
        }
        self.is_dialing = true;
        self.replacing = replacing;
        self.packets.next_size(now)
    }

    /// The path that the current dial should replace.
    pub fn replacing(&self) -> Option<PathId> {
        self.replacing
    }

    /// Ends the current dial without a result; false if there is none.
    pub fn give_up(&mut self) -> bool {
        if self.is_dialing {
            self.replacing = None;
        }
        std::mem::take(&mut self.is_dialing)
    }

    /// Records that a dial has added a path; returns the path that it replaces.
    ///
    /// The pause after another path's end stays: otherwise a server that refuses paths which have
    /// just joined would be dialed without pauses.
    pub fn joined(&mut self, path: PathId, of_path: A, now: Instant) -> Option<PathId> {
        self.is_dialing = false;
        self.failures = 0;
        self.packets.joined(now);
        let replaced = self.replacing.take().filter(|old| self.has(*old));
        self.paths.retain(|(path, _)| Some(*path) != replaced);
        self.paths.push((path, of_path));
        replaced
    }

    /// Records that a dial has failed; returns the number of failures in a row.
    pub fn failed(&mut self, now: Instant) -> u32 {
        self.is_dialing = false;
        self.failures += 1;
        self.retry_at = Some(now + dial::retry_pause(self.failures));
        self.failures
    }

    /// Records that a path has ended: another one is dialed after `pause`. False if the path
    /// belongs to another link.
    pub fn ended(&mut self, path: PathId, pause: Duration, now: Instant) -> bool {
        let is_own = self.has(path);
        if is_own {
            self.paths.retain(|(other, _)| *other != path);
            self.retry_at = Some(now + pause);
        }
        is_own
    }

    /// No data is acknowledged on one of its paths. A new connection may get through where the old
    /// one waits for ever longer timeouts.
    ///
    /// `loses_large` says that large packets seem to be lost, `limit` is the size of the path's
    /// packets.
    pub fn on_silence(&mut self, loses_large: bool, limit: Option<u16>, now: Instant) -> Silence {
        self.silent_at = Some(now);
        let size = match loses_large {
            true => self.packets.note_stalled(limit, now),
            false => None,
        };
        let gives_up = size.is_some() && self.give_up();
        Silence {
            dials: self.may_dial(now),
            gives_up,
            size,
        }
    }

    /// A path works again; returns whether the current dial, which should have replaced it, ends.
    pub fn recovered(&mut self, path: PathId) -> bool {
        self.replacing == Some(path) && self.give_up()
    }

    /// The link or its routes to the server have changed, which permits a dial at once.
    pub fn changed(&mut self) {
        self.retry_at = None;
        self.packets.forget();
        // Failures on the former network do not predict failures on this one.
        self.failures = 0;
    }

    /// The link cannot be used: returns its paths, which must be removed. The driver ends a dial in
    /// progress.
    pub fn leave(&mut self) -> Vec<(PathId, A)> {
        self.give_up();
        self.failures = 0;
        self.retry_at = None;
        std::mem::take(&mut self.paths)
    }

    /// Whether no data is acknowledged on its paths now.
    pub fn is_silent(&self, now: Instant) -> bool {
        self.silent_at
            .is_some_and(|at| now.saturating_sub(at) < SILENT_FOR)
    }

    /// Whether the link delivers, as far as is known.
    pub fn delivers(&self, now: Instant) -> bool {
        !self.paths.is_empty() && !self.is_silent(now)
    }

    /// The path to replace in order to try larger packets again, if that is due.
    pub fn tries_larger_packets(&self, now: Instant) -> Option<PathId> {
        let is_due = self.delivers(now) && self.may_dial(now) && self.packets.is_due(now);
        self.paths.first().filter(|_| is_due).map(|(id, _)| *id)
    }

    /// Takes the traffic of a link whose number of carriers is measured; returns the number before
    /// and after a change.
    pub fn on_traffic(&mut self, moved: Moved, now: Instant) -> Option<(u8, u8)> {
        let width = self.width.as_mut().filter(|_| !self.paths.is_empty())?;
        let before = width.carriers();
        width.observe(now, moved);
        Some((before, width.carriers()))
    }

    /// The path to remove when the link has more than `enough`: one that was to be replaced,
    /// otherwise the newest. A dial that would add a superfluous path ends; the second value says
    /// whether one has.
    pub fn superfluous(&mut self, enough: usize) -> (Option<PathId>, bool) {
        let stalled = self.replacing.filter(|id| self.has(*id));
        let brings_more = self.paths.len() + usize::from(stalled.is_none()) > enough;
        let gives_up = self.is_dialing && brings_more && self.give_up();
        if self.paths.len() <= enough {
            return (None, gives_up);
        }
        let newest = self.paths.last().map(|(id, _)| *id);
        let superfluous = stalled.or(newest);
        self.paths.retain(|(id, _)| Some(*id) != superfluous);
        (superfluous, gives_up)
    }
}
