//! Which link a packet takes: one file for each policy, one trait, one registry.

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

/// A packet that wants a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its length in bytes.
    pub bytes: usize,
    /// The same number for all packets of a flow, see [`hash_addresses`].
    pub flow: u64,
}

/// Decides which link a packet takes.
pub trait Steering: Debug + Send {
    /// The name under which it is chosen.
    fn name(&self) -> &'static str;

    /// The link for this packet, one that is up and has room; `None` where there is none, and the packet is dropped.
    fn pick(&mut self, offer: &Offer, links: &[LinkQueue]) -> Option<LinkId>;
}

/// Makes one policy.
type Maker = fn() -> Box<dyn Steering>;

/// All policies by name, with what each is, in a few words.
pub const POLICIES: &[(&str, &str, Maker)] = &[
    (
        "qdepl",
        "in proportion to the rates at which the queues drain",
        || Box::<QDepl>::default(),
    ),
    (
        "lrtt",
        "the queue of the link of least trip time first, until it is full",
        || Box::<LRtt>::default(),
    ),
    ("roundrobin", "links take turns, packet by packet", || {
        Box::<RoundRobin>::default()
    }),
    ("flowhash", "all packets of a flow over one link", || {
        Box::<FlowHash>::default()
    }),
];

/// The policy of that name.
pub fn build(name: &str) -> Option<Box<dyn Steering>> {
    POLICIES
        .iter()
        .find(|(known, ..)| *known == name)
        .map(|(_, _, make)| make())
}

/// Links that can be given a packet, by number.
fn open(links: &[LinkQueue]) -> impl Iterator<Item = (LinkId, &LinkQueue)> + Clone {
    let numbered = links
        .iter()
        .enumerate()
        .map(|(n, link)| (LinkId(n as u8), link));
    numbered.filter(|(_, link)| link.is_open())
}
