//! Data in transit from a program to the engine.

use bytes::{Buf, Bytes};

/// Data that the session has taken from a pipe and the engine has not consumed.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    rest: Bytes,
    /// Size of the allocation that contains the bytes.
    memory: usize,
    /// The bytes fill most of the allocation.
    is_dense: bool,
}

impl Chunk {
    /// The unconsumed data.
    pub(crate) fn rest(&self) -> &Bytes {
        &self.rest
    }

    /// Marks `taken` bytes as consumed by the engine.
    pub(crate) fn advance(&mut self, taken: usize) {
        self.rest.advance(taken);
    }

    /// Discards the unconsumed data.
    pub(crate) fn discard(&mut self) {
        self.rest.clear();
    }

    /// Whether all data is consumed.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Size of the allocation, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Whether the engine may keep the allocation instead of a copy: the engine counts only the
    /// bytes, not the unused rest.
    pub(crate) fn is_dense(&self) -> bool {
        self.is_dense
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        let memory = bytes.capacity();
        Self {
            is_dense: bytes.len() >= memory / 4 * 3,
            rest: bytes.into(),
            memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dense_chunks_are_kept() {
        let filled = |len| {
            let mut bytes = Vec::with_capacity(100_000);
            bytes.resize(len, 1);
            Chunk::from(bytes)
        };
        assert!(!filled(70_000).is_dense());
        let mut chunk = filled(90_000);
        assert!(chunk.is_dense());
        chunk.advance(80_000);
        assert_eq!(
            (chunk.rest().len(), chunk.memory(), chunk.is_dense()),
            (10_000, 100_000, true)
        );
        chunk.discard();
        assert!(chunk.is_empty());
    }
}
