//! Datagrams received over a link at once.

use std::io::IoSliceMut;

use quinn_udp::{BATCH_SIZE, RecvMeta};

/// Most bytes received as one message: datagrams of equal size, joined by the kernel.
const JOINED: usize = 65_535;

/// Buffer for received datagrams.
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    filled: usize,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; BATCH_SIZE * JOINED],
            metas: [RecvMeta::default(); BATCH_SIZE],
            filled: 0,
        }
    }

    /// Lets `read` fill the buffer; it gets the slices and returns the number of messages.
    pub(super) fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [IoSliceMut<'_>], &mut [RecvMeta]) -> Result<usize, E>,
    ) -> Result<(), E> {
        self.filled = 0;
        let mut chunks = self.bytes.chunks_exact_mut(JOINED);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        self.filled = read(&mut slices, &mut self.metas)?;
        Ok(())
    }

    /// The datagrams, in order.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let filled = self.metas[..self.filled].iter();
        let chunks = filled.zip(self.bytes.chunks_exact(JOINED));
        chunks.flat_map(|(meta, bytes)| bytes[..meta.len].chunks(meta.stride.max(1)))
    }
}
