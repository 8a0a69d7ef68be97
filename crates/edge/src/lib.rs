//! The sans-IO core of an edge node: it spreads the packets of ordinary TCP flows over several links, without either end
//! knowing.
//!
//! This crate knows no socket, no clock, no thread and no source of randomness.
//!
//! - [`packet`] reads packets and edits acknowledgements in place, [`seq`] unwraps sequence numbers.
//! - [`flow`] is what is known of each TCP flow, from its packets alone.
//! - [`queue`] is what waits for a link, [`steering`] decides which link a packet takes.
//! - [`analysis`] is the paper's queueing model.
//! - [`lwa`] puts packets in order at the user's end.

#![forbid(unsafe_code)]

pub mod analysis;
pub mod flow;
pub mod lwa;
pub mod packet;
pub mod queue;
pub mod seq;
pub mod steering;

/// A moment: the time since an epoch that the caller chooses once for a node.
pub type Instant = core::time::Duration;

/// Number of a link of the node, from 0 in the order of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u8);
