//! `duplicate`: each datagram goes over the best paths of several links, and the first copy counts.
//!
//! The links must be independent, so each gives one path. Suspect paths are used if there are no
//! others: a copy more costs little, and shows when the path delivers again.

use super::{DatagramPolicy, Facts, FlowPolicy, Links, MAX_COPIES, Offer, Placement};
use crate::datagram::config::DuplicateLimits;
use crate::datagram::path::{DatagramPath, Paths, Usage};
use crate::policy::Priority;

/// A flow with copies.
#[derive(Debug)]
pub(in crate::datagram) struct Duplicate {
    limits: DuplicateLimits,
    links: Links,
}

impl Duplicate {
    pub(super) fn new(limits: DuplicateLimits) -> Self {
        Self {
            limits,
            links: Links::default(),
        }
    }
}

impl FlowPolicy for Duplicate {
    fn place(&mut self, _facts: &Facts, paths: &Paths) -> Placement {
        self.links = best_links(paths, &self.limits);
        match self.links.len() {
            0 => Placement::Nowhere,
            _ => Placement::Each(self.links),
        }
    }

    fn offer(&mut self, _facts: &Facts, path: &DatagramPath, _paths: &Paths) -> Offer {
        offer(path)
    }

    fn in_use(&self) -> DatagramPolicy {
        DatagramPolicy::Duplicate
    }

    fn reason(&self, paths: &Paths) -> String {
        let reason = "its configuration asks for copies";
        describe(reason, &self.links, paths)
    }
}

/// Datagrams in the queue were sent before there was a path, or under another policy.
pub(super) fn offer(path: &DatagramPath) -> Offer {
    match path.usage {
        Usage::Main => Offer::Take,
        Usage::Extra | Usage::None => Offer::Unlist,
    }
}

/// The best paths over different links, as many as `limits` has; the best path comes first.
pub(super) fn best_links(paths: &Paths, limits: &DuplicateLimits) -> Links {
    let mut links = Links::default();
    let mut taken = [0; MAX_COPIES];
    for count in 0..limits.links.min(MAX_COPIES) {
        let others = paths.iter().filter(|path| {
            let priority = path.policy.priority;
            let may_carry = path.usage == Usage::Main
                || matches!(priority, Priority::Primary | Priority::Secondary)
                    && path.rank().is_some_and(|rank| rank % 3 < 2);
            // The first copy costs no more than the datagram alone.
            let may_repeat = count == 0 || limits.metered || !path.policy.metered;
            may_carry && may_repeat && !taken[..count].contains(&path.link)
        });
        let order = |path: &&DatagramPath| (path.rank(), path.delay, path.id);
        let Some(best) = others.min_by_key(order) else {
            break;
        };
        taken[count] = best.link;
        links.push(best.id);
    }
    links
}

/// A reason with the links that are used.
pub(super) fn describe(reason: &str, links: &Links, paths: &Paths) -> String {
    let ids: Vec<String> = links.iter().map(|path| path.0.to_string()).collect();
    match ids.len() {
        0 => format!("{reason}, but no path carries datagrams"),
        1 => {
            let metered = paths.iter().any(|path| path.policy.metered);
            let why = if metered {
                "the others are metered"
            } else {
                "there is one link"
            };
            format!("{reason}, but {why}, so there are no copies")
        }
        _ => format!("{reason}; paths {} carry them", ids.join(" and ")),
    }
}
