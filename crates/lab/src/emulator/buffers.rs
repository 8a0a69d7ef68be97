//! A pool of packet buffers.

use std::sync::Arc;

/// Number of buffers kept: enough for a few rounds of the emulator's thread.
const MAX_BUFFERS: usize = 256;

/// Reuses the buffers of sent packets: allocating and freeing one for each packet took 5 % of the
/// emulator's time.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    free: Vec<Arc<Vec<u8>>>,
}

impl Buffers {
    /// A buffer with a copy of these bytes.
    pub(super) fn filled(&mut self, data: &[u8]) -> Arc<Vec<u8>> {
        if let Some(mut buffer) = self.free.pop()
            && let Some(bytes) = Arc::get_mut(&mut buffer)
        {
            bytes.clear();
            bytes.extend_from_slice(data);
            return buffer;
        }
        Arc::new(data.to_vec())
    }

    /// Takes back a buffer that has no other owner.
    pub(super) fn give_back(&mut self, buffer: Arc<Vec<u8>>) {
        if self.free.len() < MAX_BUFFERS && Arc::strong_count(&buffer) == 1 {
            self.free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_without_other_owners_is_reused() {
        let mut buffers = Buffers::default();
        let first = buffers.filled(&[1; 100]);
        let shared = Arc::clone(&first);
        let place = Arc::as_ptr(&first);
        buffers.give_back(first);
        assert_eq!(*buffers.filled(&[2; 10]), [2; 10]);
        assert_eq!(*shared, [1; 100], "still in use");
        buffers.give_back(shared);
        let again = buffers.filled(&[3; 50]);
        assert_eq!((Arc::as_ptr(&again), again.len()), (place, 50));
        for _ in 0..2 * MAX_BUFFERS {
            buffers.give_back(Arc::new(Vec::new()));
        }
        assert_eq!(buffers.free.len(), MAX_BUFFERS);
    }
}
