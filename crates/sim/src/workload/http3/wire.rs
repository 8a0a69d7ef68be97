//! The packets of a transfer, as datagrams of the size that they have in QUIC.

use bytes::{BufMut, Bytes};

use crate::quic::Ack;

/// UDP payload bytes of a full packet: quinn's search for the largest one ends here.
pub(super) const MTU: u16 = 1452;

/// Content in a full packet: the rest are headers, the tag, and acknowledgments.
pub(super) const DATA: u64 = 1452 - 35;

/// Bytes of a packet of the handshake (RFC 9000, section 14.1), and of a request.
const HANDSHAKE: usize = 1200;
const REQUEST: usize = 200;

/// Bytes of a packet around an acknowledgment.
const AROUND: u64 = 1 + 8 + 2 + 16;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The client begins the handshake, and the server ends it.
    Hello,
    Welcome,
    /// The client asks for the content.
    Request,
    /// A part of the content in the packet with this number.
    Data {
        number: u64,
        part: u64,
    },
    Ack(Ack),
}

impl Message {
    pub(super) fn write(&self) -> Bytes {
        let mut out = Vec::new();
        let len = match self {
            Self::Hello => {
                out.put_u8(0);
                HANDSHAKE
            }
            Self::Welcome => {
                out.put_u8(1);
                HANDSHAKE
            }
            Self::Request => {
                out.put_u8(2);
                REQUEST
            }
            Self::Data { number, part } => {
                out.put_u8(3);
                out.put_u64(*number);
                out.put_u64(*part);
                usize::from(MTU)
            }
            Self::Ack(ack) => {
                out.put_u8(4);
                out.put_u64(ack.delay);
                let mut below = ack.ranges[0].end;
                out.put_u64(below);
                for range in &ack.ranges {
                    out.put_u32((below - range.end) as u32);
                    out.put_u32((range.end - range.start).min(u32::MAX.into()) as u32);
                    below = range.end - (range.end - range.start).min(u32::MAX.into());
                }
                (AROUND + ack.len()) as usize
            }
        };
        if out.len() < len {
            out.resize(len, u8::MAX);
        }
        out.into()
    }

    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let u64_at = |at: usize| {
            let bytes = packet.get(at..)?.first_chunk()?;
            Some(u64::from_be_bytes(*bytes))
        };
        let u32_at = |at: usize| {
            let bytes = packet.get(at..)?.first_chunk()?;
            Some(u32::from_be_bytes(*bytes)).filter(|value| *value != u32::MAX)
        };
        Some(match packet.first()? {
            0 => Self::Hello,
            1 => Self::Welcome,
            2 => Self::Request,
            3 => Self::Data {
                number: u64_at(1)?,
                part: u64_at(9)?,
            },
            4 => {
                let (delay, mut below) = (u64_at(1)?, u64_at(9)?);
                let (mut ranges, mut at) = (Vec::new(), 17);
                while let (Some(gap), Some(len)) = (u32_at(at), u32_at(at + 4)) {
                    let end = below.checked_sub(gap.into())?;
                    let start = end.checked_sub(len.into())?;
                    ranges.push(start..end);
                    (below, at) = (start, at + 8);
                }
                (!ranges.is_empty()).then_some(Self::Ack(Ack { ranges, delay }))?
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_their_size_and_can_be_read() {
        let ack = |ranges: &[(u64, u64)]| {
            let ranges = ranges.iter().map(|(start, end)| *start..*end).collect();
            Message::Ack(Ack { ranges, delay: 7 })
        };
        for (message, len) in [
            (Message::Hello, 1200),
            (Message::Welcome, 1200),
            (Message::Request, 200),
            (Message::Data { number: 5, part: 3 }, 1452),
            (ack(&[(0, 9)]), 35),
            (ack(&[(70_000, 70_009), (12, 15), (0, 2)]), 41),
        ] {
            let packet = message.write();
            assert!(
                packet.len() >= len && packet.len() <= len + 16,
                "{message:?}"
            );
            assert_eq!(Message::read(&packet), Some(message));
        }
        assert_eq!(Message::read(b""), None);
        assert_eq!(Message::read(&[9; 30]), None);
    }
}
