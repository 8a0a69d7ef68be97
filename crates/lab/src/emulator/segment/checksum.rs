//! Lengths and checksums in packet headers.

/// Sets the length of a segment, and for IPv4 its identification and checksum; `index` segments
/// precede it. `header` has at least 20 bytes.
pub(super) fn set_ip(header: &mut [u8], transport_len: usize, index: usize) {
    if header[0] >> 4 == 6 {
        let len = (header.len() - 40 + transport_len) as u16;
        header[4..6].copy_from_slice(&len.to_be_bytes());
        return;
    }
    let len = (header.len() + transport_len) as u16;
    header[2..4].copy_from_slice(&len.to_be_bytes());
    let identification = u16::from_be_bytes([header[4], header[5]]).wrapping_add(index as u16);
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    header[10..12].fill(0);
    let checksum = !fold(sum(header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The part of the TCP and UDP checksum that covers the addresses (RFC 9293, section 3.1; RFC 8200,
/// section 8.1), as expected by the receiver that completes the checksum.
pub(super) fn pseudo_header(ip: &[u8], protocol: u8, transport_len: usize) -> u64 {
    let addresses = if ip[0] >> 4 == 6 {
        &ip[8..40]
    } else {
        &ip[12..20]
    };
    sum(addresses) + u64::from(protocol) + transport_len as u64
}

/// Sum of 16-bit words in network byte order.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from))
        .sum()
}

/// The ones' complement sum in 16 bits (RFC 1071).
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
