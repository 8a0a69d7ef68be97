//! The packets that carry datagrams: the body of one QUIC DATAGRAM frame (RFC 9221), or of one
//! DATAGRAM frame on a stream path.
//!
//! A packet is a header and one or more records. docs/protocol-datagrams.md describes the format,
//! and a test decodes its examples. All integers have variable length (RFC 9000, section 16). The
//! payload of the last record reaches to the end of the packet and needs no length.

mod decode;
mod encode;

use core::ops::RangeInclusive;

use crate::varint;

pub use decode::{PacketError, Records};
pub(crate) use encode::{PacketWriter, data_head_len};

/// Times in packets count microseconds modulo this, which is 18 minutes. Integers below it take at
/// most four bytes.
pub const TIME_MODULUS: u64 = 1 << 30;

/// Longest target of a flow, in bytes.
pub const MAX_TARGET: usize = crate::frame::MAX_TEXT;

/// Most ranges in one REPORT, the highest one included.
pub const MAX_REPORT_RANGES: usize = 32;

/// From this type on, odd record types begin with their length and may be skipped if unknown.
pub const FIRST_OPTIONAL: u64 = 0x40;

/// The types of records on the wire.
pub(crate) mod kind {
    /// Elicits a prompt report.
    pub(crate) const PING: u64 = 0x01;
    pub(crate) const REPORT: u64 = 0x02;
    pub(crate) const FLOW_CLOSE: u64 = 0x03;
    pub(crate) const FLOW_FAILED: u64 = 0x04;
    /// DATA has types from this one on, with these flags:
    pub(crate) const DATA: u64 = 0x10;
    /// The payload has a length in front and ends before the packet does.
    pub(crate) const LENGTH: u64 = 0x01;
    /// The fields of a flow that its receiver may not know.
    pub(crate) const OPEN: u64 = 0x02;
    /// Another path of the flow, for which the receiver may wait.
    pub(crate) const AFTER: u64 = 0x04;
    /// Half of a datagram.
    pub(crate) const HALF: u64 = 0x08;
    /// The last type of DATA.
    pub(crate) const DATA_END: u64 = DATA | LENGTH | OPEN | AFTER | HALF;
}

/// The start of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Counts the packets of its sender on its path, from 0.
    pub number: u64,
    /// Time on the sender's clock, in microseconds modulo [`TIME_MODULUS`].
    pub sent_at: u64,
}

/// One record of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Requests a report at once.
    Ping,
    /// A datagram of a flow.
    Data(Data<'a>),
    /// The packets that have arrived on a path.
    Report(Report),
    /// The sender has ended a flow.
    Close {
        /// The flow.
        flow: u64,
        /// See [`CloseReason`](crate::datagram::CloseReason).
        reason: u64,
    },
    /// The sender could not deliver a datagram of a flow, which continues.
    Failed {
        /// The flow.
        flow: u64,
        /// Counts the sender's records of this type for the flow, from 1.
        version: u64,
        /// See [`FlowErrorCode`](crate::datagram::FlowErrorCode).
        code: u64,
    },
}

/// A datagram, or half of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// The flow; even ones are opened by the client, odd ones by the server.
    pub flow: u64,
    /// Counts the datagrams of its sender in the flow, from 0. Copies have the same number.
    pub sequence: u64,
    /// The flow's properties; in every datagram until the peer has reported one of them.
    pub open: Option<Open<'a>>,
    /// Another path that the flow has used shortly before, if the receiver is to restore the order.
    pub after: Option<u64>,
    /// Present if this is half of a datagram.
    pub half: Option<Half>,
    /// The bytes; there may be none.
    pub payload: &'a [u8],
}

/// The properties of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open<'a> {
    /// The program's socket at the client; any number of flows share one.
    pub source: u64,
    /// The class that the opener has set, as in an OPEN frame: 3 for none, 4 for background.
    pub class: u64,
    /// The destination; opaque to the engine.
    pub target: &'a [u8],
}

/// The largest offset of a second part: no datagram is longer (RFC 768).
pub(crate) const MAX_OFFSET: u64 = 65_535;

/// The position of a fragment in its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The first bytes.
    First,
    /// The rest.
    Second {
        /// The length of the first part, from 1 to 65,535: copies of a datagram may be
        /// split in different places, and only parts of one copy fit together.
        offset: u64,
    },
}

impl Half {
    /// The value of the field.
    fn value(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Second { offset } => offset,
        }
    }
}

/// The packets that the sender of the report has received on one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The path.
    pub path: u64,
    /// When the packet with the highest number arrived, on the clock of the report's sender, in
    /// microseconds modulo [`TIME_MODULUS`].
    pub received_at: u64,
    /// Numbers of received packets, the highest range first; at least one and at most
    /// [`MAX_REPORT_RANGES`], with at least one missing packet between two.
    pub ranges: Vec<RangeInclusive<u64>>,
}

impl Report {
    /// The highest number received.
    pub fn largest(&self) -> u64 {
        self.ranges.first().map_or(0, |range| *range.end())
    }
}

impl Header {
    /// Takes a header off the front of `bytes`; none if it is malformed.
    pub fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let number = varint::read(bytes)?;
        let sent_at = varint::read(bytes).filter(|at| *at < TIME_MODULUS)?;
        Some(Self { number, sent_at })
    }
}

/// A packet with all its records, for tests and tools; the engine handles records one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its header.
    pub header: Header,
    /// Its records; unknown optional ones are left out.
    pub records: Vec<Record<'a>>,
}

impl<'a> Packet<'a> {
    /// Decodes a whole packet.
    pub fn decode(mut bytes: &'a [u8]) -> Result<Self, PacketError> {
        let header = Header::decode(&mut bytes).ok_or(PacketError::Header)?;
        let records = Records::new(bytes).collect::<Result<_, _>>()?;
        Ok(Self { header, records })
    }

    /// Appends the packet in its shortest form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = PacketWriter::new(self.header, usize::MAX, out);
        for record in &self.records {
            match record {
                Record::Ping => writer.ping(),
                Record::Data(data) => writer.data(data),
                Record::Report(report) => writer.report(report),
                Record::Close { flow, reason } => writer.close(*flow, *reason),
                Record::Failed {
                    flow,
                    version,
                    code,
                } => writer.failed(*flow, *version, *code),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        assert_eq!(Packet::decode(&bytes).as_ref(), Ok(packet));
        for cut in 0..bytes.len() {
            // A shorter payload of the last record is still a packet; nothing else is.
            if let Ok(short) = Packet::decode(&bytes[..cut]) {
                assert_ne!(&short, packet);
            }
        }
    }

    fn data(payload: &[u8]) -> Data<'_> {
        Data {
            flow: 4,
            sequence: 70_000,
            open: None,
            after: None,
            half: None,
            payload,
        }
    }

    #[test]
    fn every_record_round_trips_alone_and_together() {
        let open = Open {
            source: 9,
            class: 3,
            target: b"\x01\xc0\x00\x02\x07\x00\x35",
        };
        let records = vec![
            Record::Ping,
            Record::Report(Report {
                path: 3,
                received_at: TIME_MODULUS - 1,
                ranges: vec![90..=99, 20..=80, 3..=3],
            }),
            Record::Close { flow: 4, reason: 2 },
            Record::Failed {
                flow: varint::MAX,
                version: 1,
                code: 3,
            },
            Record::Data(data(b"")),
            Record::Data(Data {
                open: Some(open),
                ..data(b"hello")
            }),
            Record::Data(Data {
                after: Some(7),
                half: Some(Half::Second { offset: 1400 }),
                ..data(&[9; 300])
            }),
            Record::Data(Data {
                open: Some(open),
                after: Some(0),
                half: Some(Half::First),
                ..data(&[7; 70])
            }),
        ];
        let header = Header {
            number: 5,
            sent_at: 123_456,
        };
        for record in &records {
            let records = vec![record.clone()];
            round_trip(&Packet { header, records });
        }
        round_trip(&Packet { header, records });
    }

    #[test]
    fn one_datagram_costs_fourteen_bytes_in_a_long_flow() {
        let packet = Packet {
            header: Header {
                number: 1 << 29,
                sent_at: TIME_MODULUS - 1,
            },
            records: vec![Record::Data(Data {
                sequence: 1 << 29,
                ..data(b"x")
            })],
        };
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        assert_eq!(bytes.len(), 14 + 1);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_decoded_packets_round_trip(
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            if let Ok(packet) = Packet::decode(&bytes) {
                let mut out = Vec::new();
                packet.encode(&mut out);
                prop_assert_eq!(Packet::decode(&out), Ok(packet.clone()));
            }
        }

        #[test]
        fn likely_records_never_panic(
            bytes in proptest::collection::vec(
                prop_oneof![0u8..0x20, any::<u8>()], 2..100),
        ) {
            let _ = Packet::decode(&bytes);
        }
    }
}
