//! The header of a PDCP data PDU (3GPP TS 36.323, section 6.2: data PDUs with 12 and 18 bits).

use std::time::Duration;

/// Length of a sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SequenceBits {
    /// 12 bits in a header of 2 bytes: a window of 2048 packets, 27 Mbit at 1500 bytes. Too small
    /// above a few hundred Mbit/s.
    Twelve,
    /// 18 bits in a header of 3 bytes: a window of 131072 packets.
    #[default]
    Eighteen,
}

impl SequenceBits {
    /// The number of bits.
    pub fn bits(self) -> u32 {
        match self {
            Self::Twelve => 12,
            Self::Eighteen => 18,
        }
    }

    /// Length of the header in bytes.
    pub fn header_len(self) -> usize {
        match self {
            Self::Twelve => 2,
            Self::Eighteen => 3,
        }
    }
}

/// The D/C bit: a data PDU.
const DATA: u8 = 0x80;

/// The highest reserved bit, which a standard receiver ignores: the sequence is young.
const YOUNG: u8 = 0x40;

/// A receiver that gets a packet of a young sequence forgets the previous one if it has received
/// nothing for this long.
pub const FORGOTTEN: Duration = Duration::from_secs(30);

/// Whether a packet that the node gives to a link has a sequence number. Without one it is the bare
/// IP packet, and its first bit shows that.
pub fn is_numbered(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first & DATA != 0)
}

/// Whether the PDU belongs to a young sequence, one that started at 0 a few seconds ago.
pub fn is_young(pdu: &[u8]) -> bool {
    pdu.first().is_some_and(|first| first & YOUNG != 0)
}

/// The header of a data PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sequence number, below 2^bits.
    pub sequence: u32,
}

impl Header {
    /// Prepends this header to a packet. Bits above the sequence number's length are dropped.
    pub fn write(self, bits: SequenceBits, packet: &[u8]) -> Vec<u8> {
        let sequence = (self.sequence & ((1 << bits.bits()) - 1)).to_be_bytes();
        let mut out = Vec::with_capacity(bits.header_len() + packet.len());
        out.extend_from_slice(&sequence[4 - bits.header_len()..]);
        out[0] |= DATA;
        out.extend_from_slice(packet);
        out
    }

    /// The same for a young sequence.
    pub(crate) fn write_young(self, bits: SequenceBits, packet: &[u8]) -> Vec<u8> {
        let mut out = self.write(bits, packet);
        out[0] |= YOUNG;
        out
    }

    /// The header and its payload; `None` for control PDUs and for PDUs that are too short.
    pub fn read(bits: SequenceBits, pdu: &[u8]) -> Option<(Self, &[u8])> {
        let (header, packet) = pdu.split_at_checked(bits.header_len())?;
        if header[0] & DATA == 0 || packet.is_empty() {
            return None;
        }
        let number = header
            .iter()
            .fold(0, |number, &byte| number << 8 | u32::from(byte));
        // Receivers ignore the reserved bits (section 6.1).
        Some((
            Self {
                sequence: number & ((1 << bits.bits()) - 1),
            },
            packet,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_standard() {
        let header = Header { sequence: 0x2_3456 };
        assert_eq!(
            header.write(SequenceBits::Eighteen, b"x"),
            [0x82, 0x34, 0x56, b'x']
        );
        assert_eq!(header.write(SequenceBits::Twelve, b"x"), [0x84, 0x56, b'x']);
        let read = Header::read(SequenceBits::Eighteen, &[0xfe, 0x34, 0x56, b'x']);
        assert_eq!(read, Some((header, &b"x"[..])), "reserved bits are ignored");
        for bad in [&[][..], &[0x80], &[0x80, 0, 0], &[0x02, 0, 0, b'x']] {
            assert_eq!(Header::read(SequenceBits::Eighteen, bad), None, "{bad:?}");
        }
    }
}
