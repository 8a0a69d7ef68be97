//! Bytes on their way from a program to the engine.

use bytes::{Buf, Bytes};

/// What the session has taken out of a pipe and the engine has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    rest: Bytes,
    /// The memory that all of its bytes are a part of.
    memory: usize,
    /// They fill most of it.
    is_dense: bool,
}

impl Chunk {
    /// What the engine has not taken.
    pub(crate) fn rest(&self) -> &Bytes {
        &self.rest
    }

    /// The engine has taken so many bytes.
    pub(crate) fn advance(&mut self, taken: usize) {
        self.rest.advance(taken);
    }

    /// The engine wants none of the rest.
    pub(crate) fn discard(&mut self) {
        self.rest.clear();
    }

    /// All of it has been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes of memory that it is a part of.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Whether the engine may keep that memory in place of a copy: it counts the bytes, not the room beside them.
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
    fn only_what_fills_its_memory_may_be_kept() {
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
