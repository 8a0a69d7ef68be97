//! A parser for MPEG transport streams (ISO/IEC 13818-1) that determines when each picture is
//! complete.
//!
//! A stream is a sequence of packets of 188 bytes. A packet with "payload unit start" begins a PES
//! packet, which contains one picture and its presentation time. The picture ends with the last
//! packet before the next start and was complete when that packet arrived, so its time is known
//! only then.

/// Bytes of a packet.
const PACKET: usize = 188;
/// The first byte of every packet.
const SYNC: u8 = 0x47;
/// Stream ids of video in a PES packet (table 2-22).
const VIDEO: std::ops::RangeInclusive<u8> = 0xe0..=0xef;

/// A picture that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    /// Presentation time in ticks of 90 kHz, modulo 2^33.
    pub(crate) pts: u64,
    /// Arrival of its last packet, by the caller's clock.
    pub(crate) arrived_ns: u64,
    /// Bytes of the elementary stream.
    pub(crate) bytes: u64,
}

/// Parses a stream in pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The beginning of an incomplete packet.
    rest: Vec<u8>,
    /// The packet id of the video, once a picture has begun.
    pid: Option<u16>,
    /// The continuity counter of its last packet.
    counter: Option<u8>,
    picture: Option<Picture>,
    /// Number of gaps in the packets.
    pub(crate) gaps: u64,
}

impl Parser {
    /// Parses bytes that arrived at that time; returns the pictures that are now known to be
    /// complete. Fails if this is not a transport stream.
    pub(crate) fn take(&mut self, bytes: &[u8], now_ns: u64) -> Result<Vec<Picture>, String> {
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() / PACKET * PACKET;
        let packets: Vec<u8> = self.rest.drain(..whole).collect();
        let mut complete = Vec::new();
        for packet in packets.chunks_exact(PACKET) {
            complete.extend(self.packet(packet, now_ns)?);
        }
        Ok(complete)
    }

    fn packet(&mut self, packet: &[u8], now_ns: u64) -> Result<Option<Picture>, String> {
        if packet[0] != SYNC {
            return Err(format!(
                "a packet of a transport stream starts with 0x47, not {:#04x}",
                packet[0]
            ));
        }
        let starts = packet[1] & 0x40 != 0;
        let pid = u16::from(packet[1] & 0x1f) << 8 | u16::from(packet[2]);
        let (adapted, has_payload) = (packet[3] & 0x20 != 0, packet[3] & 0x10 != 0);
        let begin = if adapted {
            5 + usize::from(packet[4])
        } else {
            4
        };
        let Some(payload) = packet.get(begin..).filter(|_| has_payload) else {
            return Ok(None);
        };
        let video = starts.then(|| pes(payload)).flatten();
        if video.is_some() && self.pid.is_none() {
            self.pid = Some(pid);
        }
        if self.pid != Some(pid) {
            return Ok(None);
        }
        let counter = packet[3] & 0x0f;
        if self
            .counter
            .is_some_and(|last| counter != (last + 1) & 0x0f)
        {
            self.gaps += 1;
        }
        self.counter = Some(counter);
        if let Some((pts, header)) = video {
            let next = Picture {
                pts,
                arrived_ns: now_ns,
                bytes: (payload.len() - header) as u64,
            };
            return Ok(self.picture.replace(next));
        }
        if let Some(picture) = &mut self.picture {
            picture.arrived_ns = now_ns;
            picture.bytes += payload.len() as u64;
        }
        Ok(None)
    }
}

/// The presentation time of a PES packet of video that starts here, and the length of its header.
fn pes(payload: &[u8]) -> Option<(u64, usize)> {
    let header = 9 + usize::from(*payload.get(8)?);
    let is_video = payload.starts_with(&[0, 0, 1]) && VIDEO.contains(&payload[3]);
    let has_pts = payload[7] & 0x80 != 0 && header >= 14;
    let field = payload
        .get(9..14)
        .filter(|_| is_video && has_pts && header <= payload.len())?;
    let field = field.iter().map(|byte| u64::from(*byte));
    let [a, b, c, d, e] = <[u64; 5]>::try_from(field.collect::<Vec<_>>()).ok()?;
    let pts = (a >> 1 & 7) << 30 | b << 22 | (c >> 1) << 15 | d << 7 | e >> 1;
    Some((pts, header))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One packet; an adaptation field fills the space after the payload.
    fn packet(pid: u16, counter: u8, starts: bool, payload: &[u8]) -> Vec<u8> {
        let stuffing = PACKET - 4 - payload.len();
        let start = if starts { 0x40 } else { 0 };
        let adapted = if stuffing > 0 { 0x20 } else { 0 };
        let mut bytes = vec![
            SYNC,
            start | (pid >> 8) as u8,
            pid as u8,
            0x10 | adapted | counter & 15,
        ];
        if stuffing > 0 {
            bytes.push((stuffing - 1) as u8);
            bytes.resize(4 + stuffing, 0);
        }
        bytes.extend_from_slice(payload);
        bytes
    }

    fn pes_of(pts: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5];
        bytes.push(0x21 | (pts >> 29) as u8 & 0x0e);
        bytes.extend([
            (pts >> 22) as u8,
            (pts >> 14) as u8 | 1,
            (pts >> 7) as u8,
            (pts << 1) as u8 | 1,
        ]);
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn a_picture_is_complete_with_its_last_packet() {
        let mut parser = Parser::default();
        let tables = packet(0, 0, true, &[0; 184]);
        assert_eq!(parser.take(&tables, 1), Ok(vec![]));
        let first = packet(256, 0, true, &pes_of(0x1_2345_6789, &[7; 170]));
        // A packet in two pieces is parsed when it is complete.
        assert_eq!(parser.take(&first[..100], 2), Ok(vec![]));
        assert_eq!(parser.take(&first[100..], 3), Ok(vec![]));
        assert_eq!(parser.take(&packet(256, 1, false, &[7; 20]), 4), Ok(vec![]));
        // Packets of other streams are ignored.
        assert_eq!(parser.take(&tables, 5), Ok(vec![]));
        let second = packet(256, 2, true, &pes_of(3000, &[]));
        let expected = Picture {
            pts: 0x1_2345_6789,
            arrived_ns: 4,
            bytes: 190,
        };
        assert_eq!(parser.take(&second, 6), Ok(vec![expected]));
        assert_eq!(parser.gaps, 0);
    }

    #[test]
    fn missing_packets_are_noticed() {
        let mut parser = Parser::default();
        for (counter, starts) in [(14, true), (15, false), (0, false), (2, false)] {
            let payload = if starts { pes_of(0, &[]) } else { vec![1; 10] };
            parser
                .take(&packet(300, counter, starts, &payload), 0)
                .unwrap();
        }
        assert_eq!(parser.gaps, 1);
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..1200)) {
            for packet in bytes.chunks_mut(PACKET) {
                packet[0] = SYNC;
            }
            let _ = Parser::default().take(&bytes, 0);
        }

        #[test]
        fn times_come_back(pts in 0u64..1 << 33) {
            prop_assert_eq!(pes(&pes_of(pts, &[])), Some((pts, 14)));
        }
    }
}
