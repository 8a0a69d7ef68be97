//! Steering: decides which link a packet takes. One file per policy, one trait, one registry.

mod flowhash;
mod lrtt;
mod qdepl;
mod roundrobin;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use crate::LinkId;
use crate::queue::LinkQueue;

pub use flowhash::{FlowHash, hash_addresses};
pub use lrtt::LRtt;
pub use qdepl::QDepl;
pub use roundrobin::RoundRobin;

/// A packet to be steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Length in bytes.
    pub bytes: usize,
    /// A number shared by all packets of a flow, see [`hash_addresses`].
    pub flow: u64,
}

/// Decides which link a packet takes.
pub trait Steering: Debug + Send {
    /// The name in the configuration.
    fn name(&self) -> &'static str;

    /// Picks a link that is up and has room; `None` if there is none, and the packet is dropped.
    fn pick(&mut self, offer: &Offer, links: &[LinkQueue]) -> Option<LinkId>;
}

/// Creates a policy.
type Maker = fn() -> Box<dyn Steering>;

/// All policies: name, one-line description, constructor.
pub const POLICIES: &[(&str, &str, Maker)] = &[
    (
        "qdepl",
        "splits packets in proportion to the measured link rates",
        || Box::<QDepl>::default(),
    ),
    (
        "lrtt",
        "fills the queue of the link with the lowest trip time first",
        || Box::<LRtt>::default(),
    ),
    ("roundrobin", "links take turns, packet by packet", || {
        Box::<RoundRobin>::default()
    }),
    ("flowhash", "all packets of a flow over one link", || {
        Box::<FlowHash>::default()
    }),
];

/// Creates the policy with this name.
pub fn build(name: &str) -> Option<Box<dyn Steering>> {
    POLICIES
        .iter()
        .find(|(known, ..)| *known == name)
        .map(|(_, _, make)| make())
}

/// Links that can take a packet, by number.
fn open(links: &[LinkQueue]) -> impl Iterator<Item = (LinkId, &LinkQueue)> + Clone {
    let numbered = links
        .iter()
        .enumerate()
        .map(|(n, link)| (LinkId(n as u8), link));
    numbered.filter(|(_, link)| link.is_open())
}
