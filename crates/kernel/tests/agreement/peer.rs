//! A TCP end that acknowledges only on request.

use std::net::Ipv4Addr;
use std::time::Instant;

use crate::tun::HERE;

/// Payload of a packet in bytes.
pub(crate) const MSS: u32 = 1000;

/// Port of all far ends.
pub(crate) const PORT: u16 = 7000;

const FIN_SYN_RST: u8 = 7;
const SYN: u8 = 2;
const ACK: u8 = 16;
const INITIAL_SEQUENCE: u32 = 1000;

/// The far end of one connection.
pub(crate) struct Peer {
    address: Ipv4Addr,
    their_port: u16,
    /// First sequence number of the kernel's data.
    start: u32,
    /// Time of the first arrival of each unacknowledged packet; all are of one MSS.
    arrivals: Vec<Instant>,
    /// Packets acknowledged so far.
    acknowledged: u32,
}

impl Peer {
    pub(crate) fn new(address: Ipv4Addr) -> Self {
        Self {
            address,
            their_port: 0,
            start: 0,
            arrivals: Vec::new(),
            acknowledged: 0,
        }
    }

    /// Whether a packet is for this end.
    pub(crate) fn is_for(&self, packet: &[u8]) -> bool {
        // IPv4 without options, and TCP
        packet.len() >= 40
            && packet[0] == 0x45
            && packet[9] == 6
            && packet[16..20] == self.address.octets()
    }

    /// Processes a packet; returns the immediate answer, if any.
    pub(crate) fn receive(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let (sequence, flags) = (u32_at(packet, 24), packet[33]);
        if flags & FIN_SYN_RST == SYN {
            self.their_port = u16_at(packet, 20);
            self.start = sequence.wrapping_add(1);
            // MSS, selective acknowledgments, and windows scaled by 2^7
            let [high, low] = (MSS as u16).to_be_bytes();
            let options = [2, 4, high, low, 4, 2, 1, 1, 3, 3, 7, 1];
            return Some(self.segment(INITIAL_SEQUENCE, SYN | ACK, self.start, &options));
        }
        let header = 20 + usize::from(packet[32] >> 4) * 4;
        let payload = (packet.len() - header) as u32;
        if payload > 0 {
            assert_eq!(payload, MSS, "all packets are full");
            let number = sequence.wrapping_sub(self.start) / MSS;
            let expected = self.acknowledged + self.in_flight();
            assert!(number <= expected, "packets arrive in order");
            // Retransmitted packets count as arrived already.
            if number == expected {
                self.arrivals.push(Instant::now());
            }
        }
        None
    }

    /// Packets that have arrived and are not acknowledged.
    pub(crate) fn in_flight(&self) -> u32 {
        self.arrivals.len() as u32
    }

    /// Time of arrival of the first of the next packets.
    pub(crate) fn arrived(&self) -> Instant {
        self.arrivals[0]
    }

    /// Acknowledges the next packets.
    pub(crate) fn acknowledge(&mut self, packets: u32) -> Vec<u8> {
        self.arrivals.drain(..packets as usize);
        self.acknowledged += packets;
        self.segment(INITIAL_SEQUENCE + 1, ACK, self.position(0), &[])
    }

    /// Acknowledges the next packets, and reports that the first of them has arrived twice (RFC
    /// 2883).
    pub(crate) fn acknowledge_with_a_duplicate(&mut self, packets: u32) -> Vec<u8> {
        let mut options = vec![1, 1, 5, 10];
        options.extend(self.position(0).to_be_bytes());
        options.extend(self.position(1).to_be_bytes());
        self.arrivals.drain(..packets as usize);
        self.acknowledged += packets;
        self.segment(INITIAL_SEQUENCE + 1, ACK, self.position(0), &options)
    }

    /// Acknowledges `packets` packets behind the next one, as if that were lost.
    pub(crate) fn acknowledge_selectively(&mut self, packets: u32) -> Vec<u8> {
        let mut options = vec![1, 1, 5, 10];
        options.extend(self.position(1).to_be_bytes());
        options.extend(self.position(1 + packets).to_be_bytes());
        self.segment(INITIAL_SEQUENCE + 1, ACK, self.position(0), &options)
    }

    /// Bytes acknowledged so far.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.acknowledged) * u64::from(MSS)
    }

    /// Sequence number of a packet, counted from the first that is not acknowledged.
    fn position(&self, packets: u32) -> u32 {
        self.start.wrapping_add((self.acknowledged + packets) * MSS)
    }

    fn segment(&self, sequence: u32, flags: u8, acknowledged: u32, options: &[u8]) -> Vec<u8> {
        let tcp_length = 20 + options.len();
        let mut packet = vec![0x45, 0];
        packet.extend((20 + tcp_length as u16).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        packet.extend(self.address.octets());
        packet.extend(HERE.octets());
        let sum = checksum(&packet, 0);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(PORT.to_be_bytes());
        packet.extend(self.their_port.to_be_bytes());
        packet.extend(sequence.to_be_bytes());
        packet.extend(acknowledged.to_be_bytes());
        packet.extend([(tcp_length as u8 / 4) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(options);
        // The addresses, protocol and length of the pseudo header (RFC 9293, section 3.1)
        let sum = checksum(&packet[12..], 6 + tcp_length as u32);
        packet[36..38].copy_from_slice(&sum.to_be_bytes());
        packet
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

/// RFC 1071, for an even number of bytes.
fn checksum(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(u16_at(pair, 0)));
    let mut sum = start + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
