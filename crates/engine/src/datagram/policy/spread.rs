//! `spread`: each datagram takes the path on which it arrives earliest.
//!
//! A path that has room is asked for the first datagram of the queue. It leaves the datagram to
//! faster paths as long as those deliver the queue's last datagram sooner than this path would
//! deliver it: their delay, plus the time in which they carry the queue. If the queue has
//! stood for as long as this path is slower, it has become clear that the faster paths do not
//! suffice, and the path takes its share at once. Otherwise the queue would add the difference of
//! the delays a second time, after the receiver's wait for the slower path.

use std::time::Duration;

use super::{DatagramPolicy, Facts, FlowPolicy, Offer, Placement, ms};
use crate::Instant;
use crate::datagram::path::{DatagramPath, Paths, Usage};

/// A queue in which the first datagram has waited for less is not a standing one.
const STANDING: Duration = Duration::from_millis(1);

/// A datagram that has waited for this long although a faster path seems to have room goes over any
/// path.
const STALE: Duration = Duration::from_millis(5);

/// A flow over several paths.
#[derive(Debug, Default)]
pub(in crate::datagram) struct Spread {
    /// Time since when the queue has stood.
    stands_since: Option<Instant>,
    /// When a path last took a datagram that a faster one had no room for.
    needed: Option<Instant>,
}

impl Spread {
    /// When the faster paths last had no room.
    pub(super) fn needed(&self) -> Option<Instant> {
        self.needed
    }

    fn decide(&mut self, facts: &Facts, path: &DatagramPath, paths: &Paths) -> Offer {
        let now = facts.now;
        let waited = facts
            .waits_since
            .map_or(Duration::ZERO, |since| now - since);
        let stands = match waited < STANDING {
            true => {
                self.stands_since = None;
                Duration::ZERO
            }
            false => now.saturating_sub(*self.stands_since.get_or_insert(now)),
        };
        let is_extra = path.usage == Usage::Extra;
        let better = paths.usable().filter(|other| {
            let is_faster = (other.delay, other.id) < (path.delay, path.id);
            // Secondary paths are a last resort, however fast they are.
            other.id != path.id
                && match is_extra == (other.usage == Usage::Extra) {
                    true => is_faster,
                    false => is_extra,
                }
        });
        let (mut rate, mut best, mut has_room) = (0.0, None, false);
        for other in better {
            rate += other.rate(now);
            best = Some(best.map_or(other.delay, |best: Duration| best.min(other.delay)));
            has_room |= other.has_room(facts.len);
        }
        let Some(best) = best else {
            return Offer::Take;
        };
        if has_room && waited < STALE {
            return Offer::Leave;
        }
        let later = path.delay.saturating_sub(best);
        let drains = Duration::from_secs_f64(facts.queued as f64 / rate);
        match drains >= later || stands >= later.max(STANDING) {
            true => {
                self.needed = Some(now);
                Offer::Take
            }
            false => Offer::Leave,
        }
    }
}

impl FlowPolicy for Spread {
    fn place(&mut self, _facts: &Facts, paths: &Paths) -> Placement {
        match paths.usable().next() {
            Some(_) => Placement::Any,
            None => Placement::Nowhere,
        }
    }

    fn offer(&mut self, facts: &Facts, path: &DatagramPath, paths: &Paths) -> Offer {
        match path.usage {
            Usage::None => Offer::Unlist,
            Usage::Main | Usage::Extra => self.decide(facts, path, paths),
        }
    }

    fn in_use(&self) -> DatagramPolicy {
        DatagramPolicy::Spread
    }

    fn reason(&self, paths: &Paths) -> String {
        describe("its configuration asks for all paths", paths)
    }
}

/// A reason with the delays of the paths.
pub(super) fn describe(reason: &str, paths: &Paths) -> String {
    let delays = paths.usable().map(|path| path.delay);
    let (least, most) = (delays.clone().min(), delays.clone().max());
    match (least, most) {
        (Some(least), Some(most)) => format!(
            "{reason}; {} paths with delays of {} to {} ms carry them",
            delays.count(),
            ms(least),
            ms(most)
        ),
        _ => format!("{reason}, but no path carries datagrams"),
    }
}
