//! What stands between a client and its link and knows connections: an address translator, a firewall.
//!
//! As long as it loses nothing, nothing is looked at. Once it has lost what it knew, only connections that begin after that
//! pass; of the others, packets go nowhere or are answered with a reset, like those of a real one.

use std::collections::HashSet;

use super::segment::{Flow, Segment};
use crate::config::{Direction, Fate};

/// What becomes of a packet.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Pass,
    Drop,
    /// It is dropped, and this goes back to whoever sent it.
    Answer(Vec<u8>),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Middlebox {
    /// What becomes of connections that it does not know; `None` while it knows all of them.
    fate: Option<Fate>,
    /// Those that began since.
    known: HashSet<Flow>,
}

impl Middlebox {
    /// It forgets every connection.
    pub(super) fn lose(&mut self, fate: Fate) {
        self.fate = Some(fate);
        self.known.clear();
    }

    /// A packet that travels in that direction, with its offload header.
    pub(super) fn judge(&mut self, data: &[u8], direction: Direction) -> Verdict {
        let Some(fate) = self.fate else {
            return Verdict::Pass;
        };
        let Some((flow, begins)) = Flow::of(data, direction) else {
            return Verdict::Pass;
        };
        if begins {
            self.known.insert(flow);
            return Verdict::Pass;
        }
        match fate {
            _ if self.known.contains(&flow) => Verdict::Pass,
            Fate::Forgotten => Verdict::Drop,
            Fate::Reset => Segment::reset_for(data).map_or(Verdict::Drop, Verdict::Answer),
        }
    }
}
