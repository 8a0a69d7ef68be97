//! Flow hash: all packets of a flow take the same link. A baseline that never reorders, and never
//! aggregates within one flow.

use std::net::{IpAddr, SocketAddr};

use super::{Offer, Steering};
use crate::LinkId;
use crate::queue::LinkQueue;

/// Each link draws a number for each flow, and the highest wins (rendezvous hashing: Thaler and
/// Ravishankar, 1998). A dead link therefore moves only its own flows. A full queue drops packets;
/// it does not move flows.
#[derive(Clone, Debug, Default)]
pub struct FlowHash;

impl Steering for FlowHash {
    fn name(&self) -> &'static str {
        "flowhash"
    }

    fn pick(&mut self, offer: &Offer, links: &[LinkQueue]) -> Option<LinkId> {
        let up = links.iter().enumerate().filter(|(_, link)| link.is_up());
        let (n, link) = up.max_by_key(|(n, _)| mix(offer.flow ^ mix(*n as u64 + 1)))?;
        (link.available() > 0).then_some(LinkId(n as u8))
    }
}

/// A hash of a pair of addresses with ports and protocol, equal on every machine. It need not be
/// hard to guess: a sender that chooses its ports may choose its link.
pub fn hash_addresses(source: SocketAddr, destination: SocketAddr, protocol: u8) -> u64 {
    let mut hash = mix(u64::from(protocol) + 1);
    for end in [source, destination] {
        let address = match end.ip() {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        for part in [
            address as u64,
            (address >> 64) as u64,
            u64::from(end.port()),
        ] {
            hash = mix(hash ^ part);
        }
    }
    hash
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
