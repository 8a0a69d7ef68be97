//! Encodes packets.

use super::{Data, Half, Header, MAX_REPORT_RANGES, Open, Report, kind};
use crate::varint;

/// Writes one packet of limited size.
#[derive(Debug)]
pub(crate) struct PacketWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    /// Largest size of the packet in bytes.
    limit: usize,
    /// Start of the packet's first record.
    records: usize,
    /// Positions of the type and of the payload of the last record, if it is DATA without a length.
    open_end: Option<(usize, usize)>,
}

impl<'a> PacketWriter<'a> {
    pub(crate) fn new(header: Header, limit: usize, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        varint::write(header.number, out);
        varint::write(header.sent_at, out);
        Self {
            records: out.len(),
            out,
            start,
            limit,
            open_end: None,
        }
    }

    /// Bytes that further records may take.
    pub(crate) fn space(&self) -> usize {
        let used = self.out.len() - self.start;
        let length = match self.open_end {
            Some((_, payload)) => varint::len((self.out.len() - payload) as u64),
            None => 0,
        };
        self.limit.saturating_sub(used + length)
    }

    /// Length of the packet so far.
    pub(crate) fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Whether the packet has no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.out.len() == self.records
    }

    /// Removes the packet from the buffer.
    pub(crate) fn discard(self) {
        self.out.truncate(self.start);
    }

    pub(crate) fn ping(&mut self) {
        self.end_payload();
        varint::write(kind::PING, self.out);
    }

    pub(crate) fn close(&mut self, flow: u64, reason: u64) {
        self.ints(&[kind::FLOW_CLOSE, flow, reason]);
    }

    pub(crate) fn failed(&mut self, flow: u64, version: u64, code: u64) {
        self.ints(&[kind::FLOW_FAILED, flow, version, code]);
    }

    pub(crate) fn report(&mut self, report: &Report) {
        let Some(first) = report.ranges.first() else {
            return;
        };
        let ranges = &report.ranges[..report.ranges.len().min(MAX_REPORT_RANGES)];
        self.ints(&[
            kind::REPORT,
            report.path,
            report.received_at,
            *first.end(),
            ranges.len() as u64 - 1,
            first.end() - first.start(),
        ]);
        for two in ranges.windows(2) {
            let gap = two[0].start().saturating_sub(two[1].end() + 2);
            self.ints(&[gap, two[1].end() - two[1].start()]);
        }
    }

    /// Appends a datagram, whose payload reaches to the end of the packet for now.
    pub(crate) fn data(&mut self, data: &Data<'_>) {
        self.end_payload();
        let kind_at = self.out.len();
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let kind = kind::DATA
            | flag(data.open.is_some(), kind::OPEN)
            | flag(data.after.is_some(), kind::AFTER)
            | flag(data.half.is_some(), kind::HALF);
        for value in [kind, data.flow, data.sequence] {
            varint::write(value, self.out);
        }
        if let Some(open) = &data.open {
            for value in [open.source, open.class, open.target.len() as u64] {
                varint::write(value, self.out);
            }
            self.out.extend_from_slice(open.target);
        }
        if let Some(after) = data.after {
            varint::write(after, self.out);
        }
        if let Some(half) = data.half {
            varint::write(half.value(), self.out);
        }
        self.open_end = Some((kind_at, self.out.len()));
        self.out.extend_from_slice(data.payload);
    }

    fn ints(&mut self, values: &[u64]) {
        self.end_payload();
        values
            .iter()
            .for_each(|&value| varint::write(value, self.out));
    }

    /// Inserts the length of the preceding payload, which something follows. Only short payloads
    /// leave room for that, so that few bytes move.
    fn end_payload(&mut self) {
        if let Some((kind_at, payload)) = self.open_end.take() {
            self.out[kind_at] |= kind::LENGTH as u8;
            let len = (self.out.len() - payload) as u64;
            varint::write(len, self.out);
            self.out[payload..].rotate_right(varint::len(len));
        }
    }
}

/// Length of a datagram's record without its payload and the payload's length.
pub(crate) fn data_head_len(
    flow: u64,
    sequence: u64,
    open: Option<&Open<'_>>,
    after: Option<u64>,
    half: Option<Half>,
) -> usize {
    let open = open.map_or(0, |open| {
        let target = open.target.len();
        varint::len(open.source) + varint::len(open.class) + varint::len(target as u64) + target
    });
    1 + varint::len(flow)
        + varint::len(sequence)
        + open
        + after.map_or(0, varint::len)
        + half.map_or(0, |half| varint::len(half.value()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        number: 1,
        sent_at: 2,
    };

    #[test]
    fn the_room_includes_the_length_of_the_preceding_payload() {
        let mut out = vec![0xff; 3];
        let mut writer = PacketWriter::new(HEADER, 1000, &mut out);
        assert!(writer.is_empty());
        let data = |payload| Data {
            flow: 4,
            sequence: 5,
            open: None,
            after: None,
            half: None,
            payload,
        };
        writer.data(&data(&[1; 100]));
        assert_eq!(writer.len(), 2 + 3 + 100);
        assert_eq!(writer.space(), 1000 - 105 - 2);
        let space = writer.space();
        let len = space - data_head_len(4, 5, None, None, None);
        writer.data(&data(&vec![2; len]));
        assert_eq!((writer.len(), writer.space()), (1000, 0));
        writer.discard();
        assert_eq!(out, [0xff; 3]);
    }
}
