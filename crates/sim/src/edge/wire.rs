//! Converts the simulator's TCP segments to wire packets and back.
//!
//! Sequence numbers start anywhere and wrap around, windows are scaled, and timestamps count
//! microseconds, as Linux can. Every byte of data follows from its position in the stream, so that
//! the receiver of a packet can check that it is the one that was sent. The decoder reads only the
//! packet; it adds only the upper bits of numbers that the packet cuts to 32 bits.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::OnceLock;

use etherparse::{PacketBuilder, TcpOptionElement as Element};
use sumlink_edge::flow::FlowKey;
use sumlink_edge::packet::Segment;
use sumlink_edge::seq;
use sumlink_link::Random;

use crate::clock::{MICROSECOND, Nanos};
use crate::tcp::packet::{Kind, MAX_SACKS};
use crate::tcp::{Packet, Side};

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const USER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Lowest port number: first the user's ports, then the server's.
const FIRST_PORT: u16 = 10_000;
const PORTS: usize = 50_000;
const HOPS: u8 = 64;
/// Window scale: 16 MiB fit in a header.
const SCALE: u8 = 9;
/// Bytes of the timestamps, which the MSS option does not count (RFC 9293, section 3.7.1).
const STAMPS: u32 = 12;
/// Position of the first byte; above zero, so that numbers before it have a position, too.
const BASE: u64 = 1 << 32;
/// Period in bytes of the transmitted data: a prime, so that no two positions within a packet look
/// alike.
const PERIOD: usize = 65_521;

/// One connection between user and server.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    number: u32,
    mss: u32,
    /// Sequence number of each side's SYN.
    starts: [u32; 2],
    /// End of the bytes that each side has sent.
    sent: [u64; 2],
}

impl Wire {
    pub(crate) fn new(number: u32, mss: u32) -> Self {
        let mut random = Random::new(u64::from(number)).split(0x5749_5245);
        Self {
            number,
            mss,
            starts: [0; 2].map(|_| random.next_u64() as u32),
            sent: [0; 2],
        }
    }

    /// The node's key of the flow: both endpoints.
    pub(crate) fn key(&self) -> FlowKey {
        let [user, far] = Side::BOTH.map(|side| SocketAddr::V4(address(self.number, side)));
        FlowKey { far, user }
    }

    /// Encodes a packet of one end; `None` if its options do not fit.
    pub(crate) fn encode(&mut self, from: Side, packet: &Packet) -> Option<Vec<u8>> {
        let (end, sent) = (
            packet.seq + u64::from(packet.len),
            &mut self.sent[from.index()],
        );
        *sent = (*sent).max(end);
        let sequence = match packet.kind {
            Kind::Syn => self.starts[from.index()],
            Kind::Data => self.number(from, packet.seq),
            // The sequence number that the other end expects; it ignores a reset with any other
            // (RFC 5961).
            Kind::Reset => self.number(from, self.sent[from.index()]),
        };
        let is_syn = packet.kind == Kind::Syn;
        let window = match is_syn {
            true => packet.window,
            false => packet.window >> SCALE,
        };
        let [source, target] = [from, from.peer()].map(|side| address(self.number, side));
        let window = window.min(u32::from(u16::MAX)) as u16;
        let mut builder = PacketBuilder::ipv4(source.ip().octets(), target.ip().octets(), HOPS)
            .tcp(source.port(), target.port(), sequence, window);
        if is_syn {
            builder = builder.syn();
        }
        if packet.kind == Kind::Reset {
            builder = builder.rst();
        }
        if !is_syn || from == Side::Server {
            builder = builder.ack(self.number(from.peer(), packet.ack));
        }
        let builder = builder.options(&self.options(from, packet)).ok()?;
        let data = content(self.number, from, packet.seq, packet.len as usize);
        let mut bytes = Vec::with_capacity(builder.size(data.len()));
        builder.write(&mut bytes, data).ok()?;
        Some(bytes)
    }

    fn options(&self, from: Side, packet: &Packet) -> Vec<Element> {
        let stamps = Element::Timestamp(stamp(packet.sent), stamp(packet.echo));
        if packet.kind == Kind::Syn {
            let most = (self.mss + STAMPS).min(u32::from(u16::MAX)) as u16;
            let mut all = vec![
                Element::MaximumSegmentSize(most),
                stamps,
                Element::WindowScale(SCALE),
            ];
            if packet.sack_permitted {
                all.push(Element::SelectiveAcknowledgementPermitted);
            }
            return all;
        }
        let mut blocks = Vec::new();
        if packet.duplicate > 0 {
            // The last byte suffices to identify the duplicate (RFC 2883).
            blocks.push((packet.duplicate - 1, packet.duplicate));
        }
        blocks.extend(packet.sacks());
        let block = |index: usize| {
            let number = |position: u64| self.number(from.peer(), position);
            blocks
                .get(index)
                .map(|(start, end)| (number(*start), number(*end)))
        };
        let mut all = vec![stamps];
        if let Some(first) = block(0) {
            all.extend([Element::Noop, Element::Noop, Element::Noop, Element::Noop]);
            all.push(Element::SelectiveAcknowledgement(
                first,
                [block(1), block(2), None],
            ));
        }
        all
    }

    /// Decodes a packet that has reached an end; the error describes the violation.
    pub(crate) fn decode(
        &self,
        to: Side,
        bytes: &[u8],
        segment: &Segment,
        now: Nanos,
    ) -> Result<Packet, String> {
        let from = to.peer();
        let (syn, reset) = (segment.flags.syn, segment.flags.rst);
        let seq = match syn {
            true => 0,
            false => self.position(from, segment.sequence),
        };
        let data = bytes
            .get(segment.payload..segment.payload + segment.len)
            .unwrap_or_default();
        if seq + data.len() as u64 > self.sent[from.index()] && !data.is_empty() {
            return Err(format!("data at {seq} was never sent"));
        }
        if data != content(self.number, from, seq, data.len()) {
            return Err(format!("data at {seq} differs from the sent data"));
        }
        let ack = match segment.flags.ack {
            true => self.position(to, segment.ack),
            false => 0,
        };
        if ack > self.sent[to.index()] {
            return Err(format!("acknowledges byte {ack}, which was never sent"));
        }
        let stamps = segment.options.timestamps.unwrap_or_default();
        let mut packet = Packet {
            connection: self.number,
            to,
            kind: match (syn, reset) {
                (_, true) => Kind::Reset,
                (true, _) => Kind::Syn,
                _ => Kind::Data,
            },
            duplicate: 0,
            sack_count: 0,
            options: 0,
            sack_permitted: segment.options.sack_permitted.is_some(),
            data_ack: 0,
            len: data.len() as u32,
            seq,
            ack,
            window: match syn {
                true => u32::from(segment.window),
                false => u32::from(segment.window) << SCALE,
            },
            sacks: [(0, 0); MAX_SACKS],
            sent: time(stamps.0, now),
            echo: time(stamps.1, now),
        };
        self.read_blocks(&mut packet, segment);
        Ok(packet)
    }

    /// Reads the SACK blocks. The first one reports a duplicate segment if it lies below the
    /// acknowledgment or within the second one (RFC 2883, section 4).
    fn read_blocks(&self, packet: &mut Packet, segment: &Segment) {
        let position = |number| self.position(packet.to, number);
        let mut blocks: Vec<(u64, u64)> = segment
            .options
            .sack
            .iter()
            .map(|(start, end)| (position(start), position(end)))
            .collect();
        let is_within = |first: &(u64, u64), second: Option<&(u64, u64)>| {
            second.is_some_and(|second| second.0 <= first.0 && first.1 <= second.1)
        };
        if let Some(first) = blocks.first().copied()
            && (first.1 <= packet.ack || is_within(&first, blocks.get(1)))
        {
            packet.duplicate = first.1;
            blocks.remove(0);
        }
        let blocks = blocks
            .into_iter()
            .filter(|(start, end)| packet.ack <= *start && start < end);
        for (slot, (start, end)) in packet.sacks.iter_mut().zip(blocks) {
            *slot = ((start - packet.ack) as u32, (end - packet.ack) as u32);
            packet.sack_count += 1;
        }
    }

    /// The sequence number of a byte.
    fn number(&self, of: Side, position: u64) -> u32 {
        self.starts[of.index()]
            .wrapping_add(1)
            .wrapping_add(position as u32)
    }

    /// The position of a sequence number of a side, near the end of its sent bytes.
    fn position(&self, of: Side, number: u32) -> u64 {
        let offset = number.wrapping_sub(self.starts[of.index()]).wrapping_sub(1);
        seq::near(BASE + self.sent[of.index()], offset).saturating_sub(BASE)
    }
}

/// The connection of a packet for a side.
pub(crate) fn connection(to: Side, segment: &Segment) -> Option<usize> {
    let (user, server) = match to {
        Side::Client => (segment.destination, segment.source),
        Side::Server => (segment.source, segment.destination),
    };
    let [user, server] = [user, server].map(|address| address.port().checked_sub(FIRST_PORT));
    Some(usize::from(server?) * PORTS + usize::from(user?))
}

fn address(number: u32, side: Side) -> SocketAddrV4 {
    let number = number as usize;
    match side {
        Side::Client => SocketAddrV4::new(USER, FIRST_PORT + (number % PORTS) as u16),
        Side::Server => SocketAddrV4::new(SERVER, FIRST_PORT + (number / PORTS) as u16),
    }
}

/// Encodes a time as a timestamp; 0 means none.
fn stamp(time: Nanos) -> u32 {
    (time / MICROSECOND) as u32
}

/// The latest time up to `now` with this timestamp.
fn time(stamp: u32, now: Nanos) -> Nanos {
    if stamp == 0 {
        return 0;
    }
    let now = now / MICROSECOND;
    now.saturating_sub(u64::from((now as u32).wrapping_sub(stamp))) * MICROSECOND
}

/// The bytes of a side's stream at a position.
fn content(number: u32, from: Side, at: u64, len: usize) -> &'static [u8] {
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut random = Random::new(0x434f_4e54);
        (0..PERIOD + usize::from(u16::MAX))
            .scan(Vec::<u8>::new(), |seen, index| {
                let byte = match index.checked_sub(PERIOD) {
                    None => random.next_u64() as u8,
                    Some(again) => seen[again],
                };
                seen.push(byte);
                Some(byte)
            })
            .collect()
    });
    let first = (at + 7919 * u64::from(number) + 104_729 * from.index() as u64) % PERIOD as u64;
    &all[first as usize..first as usize + len]
}

#[cfg(test)]
mod tests {
    use sumlink_edge::packet::{Parsed, parse};
    use sumlink_link::Packet as _;

    use super::*;
    use crate::clock::MILLISECOND;

    fn packet(seq: u64, len: u32) -> Packet {
        Packet {
            connection: 3,
            to: Side::Client,
            kind: Kind::Data,
            duplicate: 0,
            sack_count: 0,
            options: 0,
            sack_permitted: false,
            data_ack: 0,
            len,
            seq,
            ack: 0,
            window: 1 << 20,
            sacks: [(0, 0); MAX_SACKS],
            sent: 7 * MILLISECOND,
            echo: 3 * MILLISECOND,
        }
    }

    fn segment(bytes: &[u8]) -> Segment {
        match parse(bytes, true) {
            Parsed::Tcp(segment) => segment,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn decoding_restores_packets_also_when_numbers_wrap_around() {
        let mut wire = Wire::new(3, 1448);
        for start in [0, 1448, (1 << 32) - 500, (1 << 33) + 77] {
            wire.sent[0] = wire.sent[0].max(start);
            let packet = Packet {
                ack: start,
                sack_count: 2,
                sacks: [(3000, 4448), (10_000, 11_448), (0, 0)],
                ..packet(start, 1448)
            };
            wire.sent[0] += 20_000;
            let bytes = wire.encode(Side::Server, &packet).unwrap();
            assert_eq!(bytes.len(), packet.wire_len());
            let segment = segment(&bytes);
            assert_eq!(connection(Side::Client, &segment), Some(3));
            let read = wire.decode(Side::Client, &bytes, &segment, 9 * MILLISECOND);
            assert_eq!(read.as_ref(), Ok(&packet), "at {start}");
        }
    }

    #[test]
    fn syns_carry_the_negotiated_options() {
        let mut wire = Wire::new(3, 1448);
        let syn = Packet {
            to: Side::Server,
            kind: Kind::Syn,
            sack_permitted: true,
            window: 65_160,
            ..packet(0, 0)
        };
        let bytes = wire.encode(Side::Client, &syn).unwrap();
        assert_eq!(bytes.len(), syn.wire_len());
        let segment = segment(&bytes);
        assert_eq!(
            (segment.options.mss.unwrap().0, segment.flags.ack),
            (1460, false)
        );
        let read = wire.decode(Side::Server, &bytes, &segment, 9 * MILLISECOND);
        assert_eq!(read, Ok(syn));
    }

    #[test]
    fn a_duplicate_report_is_distinguished_from_sack_blocks() {
        let mut wire = Wire::new(3, 1448);
        wire.sent[0] = 1 << 20;
        for (duplicate, sacks) in [(1448, (2896, 4344)), (9000, (4000, 8000))] {
            let packet = Packet {
                ack: 2000,
                duplicate,
                sack_count: 1,
                sacks: [sacks, (0, 0), (0, 0)],
                ..packet(0, 0)
            };
            let bytes = wire.encode(Side::Server, &packet).unwrap();
            assert_eq!(bytes.len(), packet.wire_len());
            let read = wire.decode(Side::Client, &bytes, &segment(&bytes), 9 * MILLISECOND);
            assert_eq!(read, Ok(packet));
        }
    }

    #[test]
    fn damage_is_detected() {
        let mut wire = Wire::new(3, 1448);
        let bytes = wire.encode(Side::Server, &packet(1000, 100)).unwrap();
        let read = |change: &dyn Fn(&mut Segment)| {
            let mut segment = segment(&bytes);
            change(&mut segment);
            wire.decode(Side::Client, &bytes, &segment, 9 * MILLISECOND)
        };
        assert!(read(&|_| {}).is_ok());
        assert!(
            read(&|s| s.sequence = s.sequence.wrapping_sub(1))
                .unwrap_err()
                .contains("differs")
        );
        assert!(
            read(&|s| s.sequence = s.sequence.wrapping_add(1))
                .unwrap_err()
                .contains("never sent")
        );
        assert!(
            read(&|s| s.ack = s.ack.wrapping_add(1))
                .unwrap_err()
                .contains("never sent")
        );
    }

    #[test]
    fn timestamps_wrap_around() {
        let now = (1 << 33) * MICROSECOND + 5 * MILLISECOND;
        let then = now - 9 * MILLISECOND;
        assert_eq!(time(stamp(then), now), then);
        assert_eq!(time(0, now), 0);
    }
}
