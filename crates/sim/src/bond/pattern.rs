//! The content of streams: bytes that follow from their position.

use std::ops::Range;

use bytes::Bytes;

/// Prime, so that a shift by any size of piece is detected.
const PERIOD: usize = 65_521;
/// The longest piece.
pub(super) const PIECE: usize = 64 * 1024;

/// A byte pattern with a prime period.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Bytes);

impl Pattern {
    pub(super) fn new() -> Self {
        let byte = |index: usize| {
            let number = (index % PERIOD) as u64;
            (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
        };
        Self((0..PERIOD + PIECE).map(byte).collect())
    }

    /// Returns `len` bytes, at most [`PIECE`], of a stream from an offset on. Each direction of
    /// each stream has its own content.
    pub(super) fn piece(&self, stream: u64, offset: u64, len: usize) -> Bytes {
        self.0.slice(place(stream, offset, len))
    }

    /// Whether these are the bytes from that offset on.
    pub(super) fn is(&self, stream: u64, mut offset: u64, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(bytes.len().min(PIECE));
            if *piece != self.0[place(stream, offset, piece.len())] {
                return false;
            }
            offset += piece.len() as u64;
            bytes = rest;
        }
        true
    }
}

/// Position of these bytes of a stream in the pattern.
fn place(stream: u64, offset: u64, len: usize) -> Range<usize> {
    let start = (offset.wrapping_add(stream.wrapping_mul(7919)) % PERIOD as u64) as usize;
    start..start + len.min(PIECE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_and_misplaced_bytes_are_detected() {
        let pattern = Pattern::new();
        let mut bytes = pattern.piece(4, 1_000_000, 50_000).to_vec();
        bytes.extend_from_slice(&pattern.piece(4, 1_050_000, 50_000));
        assert!(pattern.is(4, 1_000_000, &bytes));
        assert!(!pattern.is(4, 1_000_001, &bytes));
        assert!(!pattern.is(6, 1_000_000, &bytes));
        bytes[70_000] ^= 1;
        assert!(!pattern.is(4, 1_000_000, &bytes));
    }
}
