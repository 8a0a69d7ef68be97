//! The only segments that the node creates.

use std::net::{IpAddr, SocketAddr};

use etherparse::PacketBuilder;

/// Initial hop limit of a reset.
const HOP_LIMIT: u8 = 64;

/// A reset from `source` to `destination` with this sequence number; `None` if their address
/// families differ.
///
/// It takes effect only if `sequence` is exactly the next number that the destination expects (RFC
/// 5961, section 3.2).
pub fn reset(
    source: SocketAddr,
    destination: SocketAddr,
    sequence: u32,
    ack: u32,
) -> Option<Vec<u8>> {
    let builder = match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            PacketBuilder::ipv4(from.octets(), to.octets(), HOP_LIMIT)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            PacketBuilder::ipv6(from.octets(), to.octets(), HOP_LIMIT)
        }
        _ => return None,
    };
    let builder = builder
        .tcp(source.port(), destination.port(), sequence, 0)
        .rst()
        .ack(ack);
    let mut packet = Vec::with_capacity(builder.size(0));
    builder.write(&mut packet, &[]).ok()?;
    Some(packet)
}
