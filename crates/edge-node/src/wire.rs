//! The header between UDP and the packet: 8 bytes, integers in network byte order.
//!
//! ```text
//!  0       1       2       3       4       5       6       7
//! +-------+-------+-------+-------+-------+-------+-------+-------+
//! | 0xED  | ver/k |    tunnel     |             epoch             |
//! +-------+-------+-------+-------+-------+-------+-------+-------+
//! ```
//!
//! The upper four bits of the second byte are the version, 1; the lower four are the kind. Each
//! start of the sender has its own epoch, and later epochs are greater (compared like sequence
//! numbers). The epoch separates packets numbered before a restart from those numbered after it.
//!
//! The header is neither encrypted nor authenticated: docs/edge-node.md explains the consequences.

/// Bytes of the header.
pub const LEN: usize = 8;

const MAGIC: u8 = 0xed;
const VERSION: u8 = 1;

/// Payload length of a probe and of its answer.
pub const PROBE_LEN: usize = 8;

/// Type of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An IP packet.
    Packet = 0,
    /// A PDCP data PDU with a sequence number of 12 bits.
    Pdu12 = 1,
    /// A PDCP data PDU with a sequence number of 18 bits.
    Pdu18 = 2,
    /// Eight bytes that the remote end returns.
    Probe = 3,
    /// The answer to a probe: the same eight bytes.
    Answer = 4,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Packet,
        Self::Pdu12,
        Self::Pdu18,
        Self::Probe,
        Self::Answer,
    ];
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of the payload.
    pub kind: Kind,
    /// Number of the tunnel.
    pub tunnel: u16,
    /// Start time of the sender, in units of its choice.
    pub epoch: u32,
}

impl Header {
    /// Appends the header and the payload.
    pub fn write(self, payload: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&[MAGIC, VERSION << 4 | self.kind as u8]);
        out.extend_from_slice(&self.tunnel.to_be_bytes());
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.extend_from_slice(payload);
    }

    /// Parses a datagram into header and payload; `None` if it does not belong to a tunnel.
    pub fn read(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (header, payload) = datagram.split_first_chunk::<LEN>()?;
        let &[magic, second, t0, t1, e0, e1, e2, e3] = header;
        if magic != MAGIC || second >> 4 != VERSION {
            return None;
        }
        let kind = *Kind::ALL.get(usize::from(second & 0xf))?;
        let fits = match kind {
            Kind::Probe | Kind::Answer => payload.len() == PROBE_LEN,
            _ => !payload.is_empty(),
        };
        let header = Self {
            kind,
            tunnel: u16::from_be_bytes([t0, t1]),
            epoch: u32::from_be_bytes([e0, e1, e2, e3]),
        };
        fits.then_some((header, payload))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_header_is_as_documented() {
        let header = Header {
            kind: Kind::Pdu18,
            tunnel: 0x0102,
            epoch: 0x0a0b_0c0d,
        };
        let mut out = Vec::new();
        header.write(b"xy", &mut out);
        assert_eq!(out, b"\xed\x12\x01\x02\x0a\x0b\x0c\x0dxy");
        assert_eq!(Header::read(&out), Some((header, &b"xy"[..])));
    }

    #[test]
    fn foreign_datagrams_are_refused() {
        let probe = |len: usize| [&b"\xed\x13\0\0\0\0\0\0"[..], &vec![0; len]].concat();
        assert!(Header::read(&probe(PROBE_LEN)).is_some());
        for bad in [
            probe(PROBE_LEN - 1),
            probe(PROBE_LEN + 1),
            b"\xed\x10\0\0\0\0\0\0".to_vec(),
            b"\xee\x10\0\0\0\0\0\0x".to_vec(),
            b"\xed\x20\0\0\0\0\0\0x".to_vec(),
            b"\xed\x15\0\0\0\0\0\0x".to_vec(),
            b"\xed\x10\0\0\0\0\0".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(Header::read(&bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_datagram_is_parsed_or_refused(
            datagram in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            if let Some((header, payload)) = Header::read(&datagram) {
                let mut out = Vec::new();
                header.write(payload, &mut out);
                prop_assert_eq!(out, datagram);
            }
        }
    }
}
