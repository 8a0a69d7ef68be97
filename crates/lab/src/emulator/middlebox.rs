//! A stateful middlebox between a client and its link: an address translator or a firewall.
//!
//! It passes all packets until it loses its state. From then on only connections that begin later
//! pass; packets of other connections are dropped or answered with a reset, as by real devices.

use std::collections::HashSet;

use super::segment::{Flow, Segment};
use crate::config::{Direction, Fate};

/// The verdict on a packet.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Pass,
    Drop,
    /// Drop the packet and send this answer to its sender.
    Answer(Vec<u8>),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Middlebox {
    /// Treatment of unknown connections; `None` while no state has been lost.
    fate: Option<Fate>,
    /// Connections that began after the loss.
    known: HashSet<Flow>,
}

impl Middlebox {
    /// Drops the state of every connection.
    pub(super) fn lose(&mut self, fate: Fate) {
        self.fate = Some(fate);
        self.known.clear();
    }

    /// Judges a packet that travels in that direction; `data` starts with its offload header.
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
