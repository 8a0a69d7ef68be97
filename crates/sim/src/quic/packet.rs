//! The packets of the QUIC model.

use std::ops::Range;

use bytes::Bytes;

use crate::clock::Nanos;
use crate::tcp::Side;

/// Bytes of IPv4 and UDP headers.
pub(crate) const HEADERS: u64 = 28;

/// Largest UDP payload: an Ethernet packet without those headers. The model takes the size that the
/// search for it (RFC 8899) ends with as known.
pub(crate) const MTU: u16 = 1472;

/// First byte, connection identifier, packet number and tag of a packet with a short header, as
/// they usually are.
const SHORT_HEADER: u64 = 1 + 8 + 2 + 16;

/// Type and length of a DATAGRAM frame.
const FRAME: u64 = 3;

/// The same as quinn reckons when it announces the largest datagram: with the longest packet number
/// and length.
const LARGEST_OVERHEAD: usize = 1 + 8 + 4 + 16 + 9;

/// Largest datagram in bytes.
pub(crate) const LARGEST: usize = MTU as usize - LARGEST_OVERHEAD;

/// Bytes of an ACK frame with one range, and of each further range (RFC 9000, section 19.3).
const ACK: u64 = 8;
const ACK_RANGE: u64 = 2;

/// UDP payload bytes of the handshake's flights. The client sends an Initial packet, the server
/// Retry; the client sends it again with the token, the server the rest of TLS; the client its
/// certificate with HELLO, the server WELCOME.
pub(super) const FLIGHTS: [[u64; 2]; 3] = [[1200, 100], [1200, 1200], [700, 120]];

/// The content of a packet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// This flight of the handshake, or the answer to it.
    Handshake(usize),
    /// A packet after the handshake.
    Data {
        /// Its number.
        number: u64,
        /// The datagrams.
        datagrams: Vec<Bytes>,
        /// It asks for an acknowledgment at once.
        ping: bool,
        /// An acknowledgment.
        ack: Option<Ack>,
    },
    /// The end of the connection.
    Close,
}

/// An acknowledgment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The packets that have arrived, highest first; never empty.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Time since the arrival of the one with the highest number.
    pub(crate) delay: Nanos,
}

/// A packet of a connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Packet {
    /// Number of the connection.
    pub(crate) connection: u32,
    /// The side that receives it.
    pub(crate) to: Side,
    pub(crate) content: Content,
}

impl Packet {
    /// Bytes of the UDP payload.
    pub(crate) fn payload(&self) -> u64 {
        match &self.content {
            Content::Handshake(flight) => FLIGHTS[*flight][self.to.peer().index()],
            Content::Data {
                datagrams,
                ping,
                ack,
                ..
            } => {
                let datagrams = datagrams.iter().map(|datagram| framed(datagram.len()));
                let ack = ack.as_ref().map_or(0, Ack::len);
                SHORT_HEADER + datagrams.sum::<u64>() + u64::from(*ping) + ack
            }
            Content::Close => SHORT_HEADER + FRAME,
        }
    }

    /// Bytes of the IP packet.
    pub(crate) fn wire_len(&self) -> usize {
        (HEADERS + self.payload()) as usize
    }

    /// Whether the receiver has to acknowledge it.
    pub(super) fn is_eliciting(&self) -> bool {
        matches!(&self.content, Content::Data { datagrams, ping, .. } if *ping || !datagrams.is_empty())
    }

    /// A number that is unique among the packets of a connection, for the log.
    pub(crate) fn mark(&self) -> u64 {
        match &self.content {
            Content::Handshake(flight) => u64::MAX - *flight as u64,
            Content::Data {
                number,
                datagrams,
                ack,
                ..
            } => {
                let highest = ack.as_ref().map_or(0, |ack| ack.ranges[0].end);
                number ^ highest.rotate_left(32) ^ (datagrams.len() as u64).rotate_left(56)
            }
            Content::Close => u64::MAX,
        }
    }
}

impl Ack {
    /// Bytes of its frame.
    pub(crate) fn len(&self) -> u64 {
        ACK + ACK_RANGE * (self.ranges.len() as u64 - 1)
    }
}

/// Bytes of a datagram with its frame.
pub(super) fn framed(len: usize) -> u64 {
    FRAME + len as u64
}

/// Bytes that frames may have in a packet.
pub(super) const FRAMES: u64 = MTU as u64 - SHORT_HEADER;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_takes_one_of_the_largest_datagrams() {
        let packet = Packet {
            connection: 0,
            to: Side::Server,
            content: Content::Data {
                number: 7,
                datagrams: vec![Bytes::from(vec![0; LARGEST])],
                ping: false,
                ack: None,
            },
        };
        assert_eq!(LARGEST, 1434);
        assert!(packet.payload() <= u64::from(MTU) && packet.is_eliciting());
        assert!(framed(LARGEST) <= FRAMES);
    }
}
