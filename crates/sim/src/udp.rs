//! A datagram of the programs on a link.

use bytes::Bytes;

use crate::tcp::Side;

/// Bytes of IPv4 and UDP headers.
const UDP_HEADERS: usize = 28;

/// Payload bytes of a UDP datagram in one packet, and the further bytes of each IP fragment beyond
/// it.
const WHOLE: usize = 1472;
const FRAGMENT: usize = 1480;
const IP_HEADER: usize = 20;

/// A datagram between the programs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Udp {
    /// Number of its flow.
    pub(crate) flow: u64,
    /// The side that receives it.
    pub(crate) to: Side,
    pub(crate) payload: Bytes,
}

impl Udp {
    /// Bytes of its IP packets. The model loses the fragments of a datagram together.
    pub(crate) fn wire_len(&self) -> usize {
        let len = self.payload.len();
        let fragments = len.saturating_sub(WHOLE).div_ceil(FRAGMENT);
        UDP_HEADERS + len + fragments * IP_HEADER
    }
}
