//! The turns of flows on a path: deficit round robin with priority for new flows (RFC 8290,
//! section 4), and before both of them the flows of calls.

use std::collections::VecDeque;

use crate::datagram::flow::lane::Listed;
use crate::datagram::flow::table::FlowRef;

/// Calls go before everything else for this many bytes, then another flow has a turn. This keeps a
/// program that claims to be a call from blocking the others.
const URGENT_BYTES: usize = 16 << 10;

/// The flows that have something for one path.
#[derive(Debug, Default)]
pub(in crate::datagram) struct Rounds {
    urgent: VecDeque<FlowRef>,
    new: VecDeque<FlowRef>,
    old: VecDeque<FlowRef>,
    /// Bytes of urgent flows since another flow's last turn.
    urgent_bytes: usize,
}

impl Rounds {
    /// Adds a flow to the end of a list.
    pub(in crate::datagram) fn push(&mut self, flow: FlowRef, list: Listed) {
        match list {
            Listed::Urgent => self.urgent.push_back(flow),
            Listed::New => self.new.push_back(flow),
            Listed::Old => self.old.push_back(flow),
            Listed::No => {}
        }
    }

    /// The flow at turn, and its list.
    pub(in crate::datagram) fn front(&self) -> Option<(FlowRef, Listed)> {
        let urgent = self.urgent.front().map(|flow| (*flow, Listed::Urgent));
        let new = self.new.front().map(|flow| (*flow, Listed::New));
        let old = self.old.front().map(|flow| (*flow, Listed::Old));
        let other = new.or(old);
        match self.urgent_bytes >= URGENT_BYTES {
            true => other.or(urgent),
            false => urgent.or(other),
        }
    }

    /// Removes the first flow of a list.
    pub(in crate::datagram) fn pop(&mut self, list: Listed) {
        match list {
            Listed::Urgent => self.urgent.pop_front(),
            Listed::New => self.new.pop_front(),
            Listed::Old => self.old.pop_front(),
            Listed::No => None,
        };
    }

    /// The flow at turn has sent this many bytes.
    pub(in crate::datagram) fn served(&mut self, list: Listed, bytes: usize) {
        match list {
            Listed::Urgent => self.urgent_bytes += bytes,
            _ => self.urgent_bytes = 0,
        }
    }

    /// Whether any old flow waits.
    pub(in crate::datagram) fn has_old(&self) -> bool {
        !self.old.is_empty()
    }

    pub(in crate::datagram) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.new.is_empty() && self.old.is_empty()
    }

    /// Takes all flows, in the order of their turns.
    pub(in crate::datagram) fn take(&mut self) -> Vec<FlowRef> {
        let all = self.urgent.drain(..);
        all.chain(self.new.drain(..))
            .chain(self.old.drain(..))
            .collect()
    }
}
