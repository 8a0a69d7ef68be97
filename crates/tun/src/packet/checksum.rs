//! Internet checksums (RFC 1071), and their change with some words of a packet (RFC 1624).

use std::net::IpAddr;

/// A one's complement sum of 16-bit words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes that start at an even offset of the summed data. Only the last ones may be odd in
    /// number.
    pub fn plus(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        let mut sum = self.0;
        for word in words {
            sum += u64::from(u32::from_be_bytes(*word));
        }
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        Self(sum + u64::from(u32::from_be_bytes(last)))
    }

    /// Adds a word.
    pub fn add_word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word))
    }

    /// The sum as a word.
    pub fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// The checksum.
    pub fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// The sum of a pseudo header (RFC 9293, section 3.1; RFC 8200, section 8.1), for a header and data
/// of `len` bytes.
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> Sum {
    let add = |sum: Sum, address| match address {
        IpAddr::V4(ip) => sum.plus(&ip.octets()),
        IpAddr::V6(ip) => sum.plus(&ip.octets()),
    };
    let sum = add(add(Sum::default(), source), destination);
    sum.add_word(u16::from(protocol))
        .plus(&(len as u32).to_be_bytes())
}

/// The checksum after `old` words have become `new` ones (RFC 1624, equation 3). Both have the same
/// even length.
pub fn replace(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let words = |bytes: &[u8]| Sum::default().plus(bytes).folded();
    Sum::default()
        .add_word(!checksum)
        .add_word(!words(old))
        .add_word(words(new))
        .checksum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_right() {
        // RFC 1624, section 4: 0x5555 becomes 0x3285 under a checksum of 0xdd2f.
        assert_eq!(replace(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0x0000);
        // RFC 1071, section 3.
        let sum = Sum::default().plus(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), 0xddf2);
    }

    proptest! {
        #[test]
        fn a_changed_checksum_is_as_good_as_a_new_one(
            data in proptest::collection::vec(any::<u8>(), 12..200),
            new in any::<[u8; 8]>(),
        ) {
            let mut data = data;
            let before = Sum::default().plus(&data).checksum();
            let old: [u8; 8] = data[4..12].try_into().unwrap();
            data[4..12].copy_from_slice(&new);
            let after = replace(before, &old, &new);
            // Verified as a receiver does: the sum of data and checksum is minus zero.
            let sum = Sum::default().add_word(after).plus(&data).folded();
            prop_assert!(sum == 0xffff || data.iter().all(|byte| *byte == 0));
        }

        #[test]
        fn odd_lengths_are_padded_with_zeros(data in proptest::collection::vec(any::<u8>(), 0..99)) {
            let mut padded = data.clone();
            padded.resize(data.len().next_multiple_of(2), 0);
            let mut plain = 0u32;
            for word in padded.chunks_exact(2) {
                plain += u32::from(u16::from_be_bytes([word[0], word[1]]));
            }
            let plain = Sum(u64::from(plain));
            prop_assert_eq!(Sum::default().plus(&data).folded(), plain.folded());
        }
    }
}
