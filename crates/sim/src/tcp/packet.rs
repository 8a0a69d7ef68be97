//! The packets of the TCP model.

use crate::clock::Nanos;

/// Bytes of an IPv4 header.
const IP_HEADER: usize = 20;
/// Bytes of a TCP header with the timestamp option (RFC 7323), which every packet after the
/// handshake has.
const TCP_HEADER: usize = 32;
/// Bytes of the further options of a SYN: MSS, SACK permitted, window scale, with padding.
const SYN_OPTIONS: usize = 8;

/// Header bytes of a data packet.
pub const HEADERS: usize = IP_HEADER + TCP_HEADER;

/// Most blocks of a SACK option beside timestamps (RFC 2018, section 3).
pub(crate) const MAX_SACKS: usize = 3;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The side that connects.
    Client,
    /// The side that listens.
    Server,
}

impl Side {
    /// Both sides.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Server];

    /// The other side.
    pub fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// 0 for the client, 1 for the server.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The client's first packet, or the reply to it.
    Syn,
    /// Any other packet.
    Data,
    /// Aborts the connection.
    Reset,
}

/// A TCP segment. The first byte of data has sequence number 0; sequence numbers do not wrap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packet {
    /// Number of the connection.
    pub(crate) connection: u32,
    /// The side that receives it.
    pub(crate) to: Side,
    pub(crate) kind: Kind,
    /// End of a segment that arrived twice (RFC 2883); 0 if none did.
    pub(crate) duplicate: u64,
    /// Number of valid elements of `sacks`.
    pub(crate) sack_count: u8,
    /// Bytes of further options.
    pub(crate) options: u8,
    /// In a SYN: the sender supports SACK.
    pub(crate) sack_permitted: bool,
    /// Bytes of data.
    pub(crate) len: u32,
    /// Sequence number of the first byte of data.
    pub(crate) seq: u64,
    /// All bytes before it have arrived.
    pub(crate) ack: u64,
    /// Receive window: bytes that the receiver accepts from `ack` on.
    pub(crate) window: u32,
    /// Acknowledgment at the level of the MPTCP connection: all of its bytes before have arrived.
    pub(crate) data_ack: u64,
    /// Received ranges beyond a gap, as offsets from `ack`; the newest first.
    pub(crate) sacks: [(u32, u32); MAX_SACKS],
    /// Time of transmission (TSval).
    pub(crate) sent: Nanos,
    /// `sent` of the packet that it answers (TSecr).
    pub(crate) echo: Nanos,
}

impl Packet {
    /// The reset in reply to this packet; a reset has none (RFC 9293, section 3.10.7.1).
    pub(crate) fn reset(&self) -> Option<Self> {
        (self.kind != Kind::Reset).then_some(Self {
            to: self.to.peer(),
            kind: Kind::Reset,
            len: 0,
            seq: self.ack,
            sack_count: 0,
            ..*self
        })
    }

    /// Received ranges beyond a gap.
    pub(crate) fn sacks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let absolute = |offset: u32| self.ack + u64::from(offset);
        self.sacks[..usize::from(self.sack_count)]
            .iter()
            .map(move |(start, end)| (absolute(*start), absolute(*end)))
    }
}

impl sumlink_link::Packet for Packet {
    /// From the IP header on, as in the laboratory's emulator.
    fn wire_len(&self) -> usize {
        let options = match (self.kind, self.sack_count, self.duplicate) {
            (Kind::Syn, ..) => SYN_OPTIONS,
            (_, 0, 0) => 0,
            // Kind and length with two bytes of padding, then two numbers per block.
            (_, blocks, duplicate) => {
                4 + 8 * (usize::from(blocks) + usize::from(duplicate > 0)).min(MAX_SACKS)
            }
        };
        HEADERS + options + usize::from(self.options) + self.len as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sumlink_link::Packet as _;

    #[test]
    fn packets_have_their_wire_length() {
        let packet = Packet {
            connection: 0,
            to: Side::Server,
            kind: Kind::Data,
            duplicate: 0,
            sack_count: 0,
            options: 0,
            sack_permitted: true,
            data_ack: 0,
            len: 1448,
            seq: 0,
            ack: 100,
            window: 1 << 20,
            sacks: [(1448, 2896), (5000, 6000), (0, 0)],
            sent: 0,
            echo: 0,
        };
        assert_eq!(packet.wire_len(), 1500);
        let ack = Packet { len: 0, ..packet };
        assert_eq!(ack.wire_len(), 52);
        let sack = Packet {
            sack_count: 2,
            ..ack
        };
        assert_eq!(sack.wire_len(), 72);
        assert_eq!(
            sack.sacks().collect::<Vec<_>>(),
            [(1548, 2996), (5100, 6100)]
        );
        let syn = Packet {
            kind: Kind::Syn,
            ..ack
        };
        assert_eq!(syn.wire_len(), 60);
        assert!(size_of::<Packet>() <= 104, "{}", size_of::<Packet>());
    }
}
