//! The content of the connections: frames in TLS records, whose bytes stay where the session wrote
//! them.
//!
//! The TCP model moves numbers of bytes and no content. A piece of frames from a session is kept
//! with its connection and counts as the TLS records that would carry it. A record arrives when TCP
//! has delivered its last byte, and the receiver reads it from the piece. The memory of read pieces
//! is reused.

use std::collections::VecDeque;

use crate::net::Connection;
use crate::tcp::Side;

/// Most pieces whose memory is kept for reuse.
const SPARE: usize = 256;

/// All connections of a bond, indexed by the receiver's side.
#[derive(Debug, Default)]
pub(super) struct Wires {
    pipes: Vec<[Pipe; 2]>,
    spare: Vec<Vec<u8>>,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// Pieces in the order of writing; then the bytes of the first one that have been read.
    pieces: VecDeque<Vec<u8>>,
    read: usize,
    /// Records that the socket has accepted: their end on the connection, and their number of data
    /// bytes.
    records: VecDeque<(u64, usize)>,
}

impl Wires {
    /// Whether a connection belongs to the bond.
    pub(super) fn has(&self, connection: Connection) -> bool {
        connection < self.pipes.len()
    }

    /// Adds a connection.
    pub(super) fn add(&mut self, connection: Connection) {
        self.pipes.resize_with(connection + 1, Default::default);
    }

    /// The direction of a connection to a side.
    pub(super) fn pipe(&mut self, connection: Connection, to: Side) -> &mut Pipe {
        &mut self.pipes[connection][to.index()]
    }

    /// Whether a whole record has arrived once TCP has delivered `delivered` bytes.
    pub(super) fn has_record(&self, connection: Connection, to: Side, delivered: u64) -> bool {
        let first = self.pipes[connection][to.index()].records.front();
        first.is_some_and(|(end, _)| *end <= delivered)
    }

    /// Passes the data of the first record to `read` if all of it has arrived; returns its number
    /// of bytes.
    pub(super) fn take(
        &mut self,
        connection: Connection,
        to: Side,
        delivered: u64,
        read: impl FnOnce(&[u8]),
    ) -> Option<usize> {
        let pipe = &mut self.pipes[connection][to.index()];
        let (_, len) = *pipe.records.front().filter(|(end, _)| *end <= delivered)?;
        pipe.records.pop_front();
        let piece = pipe.pieces.front()?;
        let end = pipe.read + len;
        read(&piece[pipe.read..end]);
        pipe.read = end;
        if end == piece.len() {
            pipe.read = 0;
            let piece = pipe.pieces.pop_front();
            piece.into_iter().for_each(|piece| self.put_back(piece));
        }
        Some(len)
    }

    /// Drops data to a side that is no longer read.
    pub(super) fn clear(&mut self, connection: Connection, to: Side) {
        let pipe = std::mem::take(self.pipe(connection, to));
        pipe.pieces
            .into_iter()
            .for_each(|piece| self.put_back(piece));
    }

    /// Memory for a piece of about `bytes` bytes.
    pub(super) fn memory(&mut self, bytes: usize) -> Vec<u8> {
        let mut piece = self.spare.pop().unwrap_or_default();
        piece.reserve(bytes);
        piece
    }

    /// Returns the memory of a piece.
    pub(super) fn put_back(&mut self, mut piece: Vec<u8>) {
        if self.spare.len() < SPARE {
            piece.clear();
            self.spare.push(piece);
        }
    }
}

impl Pipe {
    /// Keeps a piece, which records will carry.
    pub(super) fn keep(&mut self, piece: Vec<u8>) {
        self.pieces.push_back(piece);
    }

    /// The socket has accepted a record of the next `len` bytes, which ends at `end` on the
    /// connection.
    pub(super) fn seal(&mut self, end: u64, len: usize) {
        self.records.push_back((end, len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records that have arrived at the server.
    fn arrived(wires: &mut Wires, delivered: u64) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| {
            let mut record = None;
            wires.take(0, Side::Server, delivered, |data| {
                record = Some(data.to_vec());
            })?;
            record
        })
        .collect()
    }

    #[test]
    fn records_arrive_in_order_with_their_last_byte() {
        let mut wires = Wires::default();
        wires.add(0);
        assert!(wires.has(0) && !wires.has(1));
        let pipe = wires.pipe(0, Side::Server);
        pipe.keep(b"abcde".to_vec());
        pipe.keep(b"fg".to_vec());
        [(10, 3), (20, 2), (30, 2)]
            .into_iter()
            .for_each(|(end, len)| pipe.seal(end, len));
        assert!(!wires.has_record(0, Side::Server, 9));
        assert_eq!(arrived(&mut wires, 9), [b""; 0]);
        assert_eq!(arrived(&mut wires, 29), [&b"abc"[..], b"de"]);
        assert!(wires.has_record(0, Side::Server, 30));
        assert_eq!(arrived(&mut wires, 30), [b"fg"]);
        assert_eq!(wires.spare.len(), 2);
        assert!(wires.memory(100).capacity() >= 100);
    }

    #[test]
    fn the_memory_of_unread_pieces_is_reused() {
        let mut wires = Wires::default();
        wires.add(0);
        let pipe = wires.pipe(0, Side::Client);
        pipe.keep(vec![7; 100]);
        pipe.seal(50, 40);
        wires.take(0, Side::Client, 50, |data| assert_eq!(data.len(), 40));
        wires.clear(0, Side::Client);
        assert_eq!(wires.spare.len(), 1);
        assert!(wires.memory(10).is_empty());
        assert!(!wires.has_record(0, Side::Client, u64::MAX));
    }
}
