//! New addresses and ports for a TCP segment.

use std::net::{IpAddr, SocketAddr};

use super::checksum::replace;

/// Gives a segment other addresses and ports, and corrects its checksums by the difference.
///
/// `header` is the offset of its TCP header, as [`parse`](super::parse) has found it. With
/// `is_partial`, the TCP checksum covers the pseudo header only and is not complemented, because
/// the kernel completes it later (`VIRTIO_NET_HDR_F_NEEDS_CSUM`); ports do not count then.
///
/// Returns `false`, and changes nothing, if the packet has another address family or is too short.
pub fn rewrite(
    packet: &mut [u8],
    header: usize,
    is_partial: bool,
    source: SocketAddr,
    destination: SocketAddr,
) -> bool {
    let Some(version) = packet.first().map(|byte| byte >> 4) else {
        return false;
    };
    if packet.len() < header + TCP_HEADER || header < 20 {
        return false;
    }
    match (version, source.ip(), destination.ip()) {
        (4, IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut new = [0; 8];
            new[..4].copy_from_slice(&from.octets());
            new[4..].copy_from_slice(&to.octets());
            let old: [u8; 8] = std::array::from_fn(|at| packet[12 + at]);
            packet[12..20].copy_from_slice(&new);
            change(packet, 10, |sum| replace(sum, &old, &new));
            tcp(
                packet,
                header,
                is_partial,
                &old,
                &new,
                [source.port(), destination.port()],
            );
        }
        (6, IpAddr::V6(from), IpAddr::V6(to)) if header >= 40 => {
            let mut new = [0; 32];
            new[..16].copy_from_slice(&from.octets());
            new[16..].copy_from_slice(&to.octets());
            let old: [u8; 32] = std::array::from_fn(|at| packet[8 + at]);
            packet[8..40].copy_from_slice(&new);
            tcp(
                packet,
                header,
                is_partial,
                &old,
                &new,
                [source.port(), destination.port()],
            );
        }
        _ => return false,
    }
    true
}

/// Bytes of a TCP header without options.
const TCP_HEADER: usize = 20;

fn tcp(
    packet: &mut [u8],
    header: usize,
    is_partial: bool,
    old: &[u8],
    new: &[u8],
    ports: [u16; 2],
) {
    let mut new_ports = [0; 4];
    new_ports[..2].copy_from_slice(&ports[0].to_be_bytes());
    new_ports[2..].copy_from_slice(&ports[1].to_be_bytes());
    let old_ports: [u8; 4] = std::array::from_fn(|at| packet[header + at]);
    packet[header..header + 4].copy_from_slice(&new_ports);
    change(packet, header + 16, |sum| match is_partial {
        true => !replace(!sum, old, new),
        false => replace(replace(sum, old, new), &old_ports, &new_ports),
    });
}

/// Changes the word at this offset.
fn change(packet: &mut [u8], at: usize, by: impl FnOnce(u16) -> u16) {
    let word = by(u16::from_be_bytes([packet[at], packet[at + 1]]));
    packet[at..at + 2].copy_from_slice(&word.to_be_bytes());
}
