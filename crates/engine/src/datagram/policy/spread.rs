//! `spread`: each datagram takes the path on which it arrives earliest, and they arrive in order.
//!
//! The fastest path takes the first datagram of the queue. A slower path takes one from further
//! behind: the first that the faster paths would not have delivered when it arrives. It leaves the
//! queue to them while that is too short. So a flow over several paths has the delay of its queue,
//! and the receiver seldom has to wait for the slower path. If it took the first datagram, those
//! behind would wait for it at the receiver, after they had waited in the queue.

use std::time::Duration;

use super::{DatagramPolicy, Facts, FlowPolicy, Offer, Placement, ms};
use crate::Instant;
use crate::datagram::path::{DatagramPath, Paths, Usage};

/// A datagram that has waited for this long although a faster path seems to have room goes over any
/// path.
const STALE: Duration = Duration::from_millis(5);

/// If the first datagram has waited for this many times the difference of the delays, and for
/// [`STUCK`] longer, the faster paths do not deliver as expected.
const STUCK_TIMES: u32 = 2;
const STUCK: Duration = Duration::from_millis(50);

/// The part that a slower path leaves to the faster ones of the bytes that they deliver sooner by
/// their mean rate. While a lossy path has less than that, the slower one would be idle. Otherwise
/// the receiver waits a little for the slower path.
const AHEAD: f64 = 2.0 / 3.0;

/// A flow over several paths.
#[derive(Debug, Default)]
pub(in crate::datagram) struct Spread {
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
        let Some((later, behind)) = ahead(path, paths, now) else {
            return Offer::Take;
        };
        let mut better = better(path, paths);
        if better.any(|other| other.has_room(facts.len)) && waited < STALE {
            return Offer::Leave;
        }
        let behind = ((AHEAD * behind as f64) as usize).max(facts.numbered);
        let offer = if waited > STUCK_TIMES * later + STUCK || behind == 0 {
            Offer::Take
        } else if behind < facts.queued {
            Offer::Behind(behind)
        } else {
            return Offer::Leave;
        };
        self.needed = Some(now);
        offer
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

    fn standing(&self, paths: &Paths, now: Instant) -> (Duration, usize) {
        let needs = paths.usable().filter_map(|path| ahead(path, paths, now));
        needs.max().unwrap_or_default()
    }

    fn in_use(&self) -> DatagramPolicy {
        DatagramPolicy::Spread
    }

    fn reason(&self, paths: &Paths) -> String {
        describe("its configuration asks for all paths", paths)
    }
}

/// The paths that serve the queue before `path`.
fn better<'a>(path: &'a DatagramPath, paths: &'a Paths) -> impl Iterator<Item = &'a DatagramPath> {
    let is_extra = path.usage == Usage::Extra;
    paths.usable().filter(move |other| {
        let is_faster = (other.delay, other.id) < (path.delay, path.id);
        // Secondary paths are a last resort, however fast they are.
        other.id != path.id
            && match is_extra == (other.usage == Usage::Extra) {
                true => is_faster,
                false => is_extra,
            }
    })
}

/// By how much `path` is slower than the fastest one, and how many bytes the faster ones deliver
/// before a datagram that takes `path`; none for the fastest one.
fn ahead(path: &DatagramPath, paths: &Paths, now: Instant) -> Option<(Duration, usize)> {
    let (mut most, mut bytes) = (None, 0.0);
    for other in better(path, paths) {
        let later = path.delay.saturating_sub(other.delay);
        bytes += later.as_secs_f64() * other.steady_rate(now);
        most = most.max(Some(later));
    }
    most.map(|later| (later, bytes as usize))
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
