//! One link of a client: when it is dialed, and what becomes of its paths.

use std::time::Duration;

use sumlink_engine::PathId;

use crate::{Carriers, Instant, Moved, Packets, Width, dial};

/// A link is silent for so long after it was last found so: while it is, it is found so twice a second.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// One link. `A` is what the driver keeps of each path.
#[derive(Debug)]
pub struct Link<A> {
    /// Its paths, oldest first.
    pub paths: Vec<(PathId, A)>,
    /// Its number of carriers, where that is found by measurement.
    width: Option<Width>,
    /// A dial is in progress.
    pub is_dialing: bool,
    /// The path that the last dial is to replace.
    replacing: Option<PathId>,
    /// Failed dials in a row.
    failures: u32,
    /// No dial begins before.
    pub retry_at: Option<Instant>,
    /// How large its packets may be.
    pub packets: Packets,
    /// When one of its paths was last found silent.
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

/// What follows from a silent path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// Its link is dialed, and the new path replaces it.
    pub dials: bool,
    /// The present dial ends, because it is for packets of another size.
    pub gives_up: bool,
    /// Connections are made for packets of another size from now on: `Some(None)` is the link's own.
    pub size: Option<Option<u16>>,
}

impl<A> Link<A> {
    /// Whether the path is one of its own.
    pub fn has(&self, path: PathId) -> bool {
        self.paths.iter().any(|(id, _)| *id == path)
    }

    /// How many carriers it should have.
    pub fn wanted(&self, carriers: Carriers) -> usize {
        match (carriers, &self.width) {
            (Carriers::Fixed(count), _) => count.get().into(),
            (Carriers::Auto, width) => width.as_ref().map_or(1, |width| width.carriers().into()),
        }
    }

    /// Whether it lacks a carrier.
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

    /// A dial begins; the size of packets that it is for.
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

    /// The path that the present dial is to replace.
    pub fn replacing(&self) -> Option<PathId> {
        self.replacing
    }

    /// The present dial ends without a result; false if there is none.
    pub fn give_up(&mut self) -> bool {
        if self.is_dialing {
            self.replacing = None;
        }
        std::mem::take(&mut self.is_dialing)
    }

    /// A dial has brought a path; the one that it replaces.
    ///
    /// The pause after another path's end stays: a server that refuses what has just joined would be
    /// dialed without any.
    pub fn joined(&mut self, path: PathId, of_path: A, now: Instant) -> Option<PathId> {
        self.is_dialing = false;
        self.failures = 0;
        self.packets.joined(now);
        let replaced = self.replacing.take().filter(|old| self.has(*old));
        self.paths.retain(|(path, _)| Some(*path) != replaced);
        self.paths.push((path, of_path));
        replaced
    }

    /// A dial has failed; how many have in a row.
    pub fn failed(&mut self, now: Instant) -> u32 {
        self.is_dialing = false;
        self.failures += 1;
        self.retry_at = Some(now + dial::retry_pause(self.failures));
        self.failures
    }

    /// A path has ended: another one is dialed after `pause`. False if it is none of its own.
    pub fn ended(&mut self, path: PathId, pause: Duration, now: Instant) -> bool {
        let is_own = self.has(path);
        if is_own {
            self.paths.retain(|(other, _)| *other != path);
            self.retry_at = Some(now + pause);
        }
        is_own
    }

    /// Nothing is acknowledged on one of its paths. A new connection may get through where the old one
    /// waits for ever longer timeouts.
    ///
    /// `loses_large` says that large packets seem to be lost, `limit` is the size of the path's packets.
    pub fn on_silence(&mut self, loses_large: bool, limit: Option<u16>, now: Instant) -> Silence {
        self.silent_at = Some(now);
        let size = match loses_large {
            true => self.packets.stuck(limit, now),
            false => None,
        };
        let gives_up = size.is_some() && self.give_up();
        Silence {
            dials: self.may_dial(now),
            gives_up,
            size,
        }
    }

    /// A path is of use again: whether the present dial, which was to replace it, ends.
    pub fn recovered(&mut self, path: PathId) -> bool {
        self.replacing == Some(path) && self.give_up()
    }

    /// The link or its ways to the server have changed: it is worth a dial at once.
    pub fn changed(&mut self) {
        self.retry_at = None;
        self.packets.forget();
        // Failures on the former network say nothing about this one.
        self.failures = 0;
    }

    /// The link cannot be used: its paths, which are to be left. The driver ends a dial in progress.
    pub fn leave(&mut self) -> Vec<(PathId, A)> {
        self.give_up();
        self.failures = 0;
        self.retry_at = None;
        std::mem::take(&mut self.paths)
    }

    /// Whether nothing is acknowledged on its paths now.
    pub fn is_silent(&self, now: Instant) -> bool {
        self.silent_at
            .is_some_and(|at| now.saturating_sub(at) < SILENT_FOR)
    }

    /// Whether the link delivers, as far as is known.
    pub fn delivers(&self, now: Instant) -> bool {
        !self.paths.is_empty() && !self.is_silent(now)
    }

    /// Whether larger packets are to be tried again, with a dial that replaces the path.
    pub fn tries_larger_packets(&self, now: Instant) -> Option<PathId> {
        let is_due = self.delivers(now) && self.may_dial(now) && self.packets.is_due(now);
        self.paths.first().filter(|_| is_due).map(|(id, _)| *id)
    }

    /// Takes the traffic of a link whose number of carriers is measured; the numbers before and after.
    pub fn on_traffic(&mut self, moved: Moved, now: Instant) -> Option<(u8, u8)> {
        let width = self.width.as_mut().filter(|_| !self.paths.is_empty())?;
        let before = width.carriers();
        width.observe(now, moved);
        Some((before, width.carriers()))
    }

    /// The path that is one too many where `enough` suffice: one that was to be replaced, or else the
    /// newest. A dial that would bring one too many ends; whether it has.
    pub fn superfluous(&mut self, enough: usize) -> (Option<PathId>, bool) {
        let useless = self.replacing.filter(|id| self.has(*id));
        let brings_more = self.paths.len() + usize::from(useless.is_none()) > enough;
        let gives_up = self.is_dialing && brings_more && self.give_up();
        if self.paths.len() <= enough {
            return (None, gives_up);
        }
        let newest = self.paths.last().map(|(id, _)| *id);
        let superfluous = useless.or(newest);
        self.paths.retain(|(id, _)| Some(*id) != superfluous);
        (superfluous, gives_up)
    }
}
