//! What the pipes of a session have in common.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use sumlink_engine::Received;

use super::memory::{CHUNK, MOST_DOWN, MOST_UP, Pool};

/// Bytes of pages that programs have read and the session keeps for what it receives next, at most. Nobody's account has
/// them, as little as the megabyte of spare pages that an engine keeps.
const MOST_READ: usize = CHUNK;

/// The memory of all pipes of a session, by direction.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) up: Pool,
    pub(crate) down: Pool,
    /// What programs have read, for the session's next bytes. It is of the session and not of a stream: one on which nothing
    /// moves holds nothing.
    read: Mutex<Read>,
}

/// What programs have read.
#[derive(Debug, Default)]
struct Read {
    pages: Vec<Received>,
    /// Bytes of memory in them.
    memory: usize,
}

impl Pools {
    /// So many bytes for each direction, beside the streams' floors.
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            up: Pool::new(bytes, MOST_UP),
            down: Pool::new(bytes, MOST_DOWN),
            read: Mutex::default(),
        })
    }

    /// A program has read all of it.
    pub(super) fn has_read(&self, received: Received) {
        let memory = received.memory();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.memory + memory <= MOST_READ {
            read.memory += memory;
            read.pages.push(received);
        }
    }

    /// What programs have read since the last time.
    pub(crate) fn take_read(&self) -> Vec<Received> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        mem::take(&mut *read).pages
    }
}

#[cfg(test)]
mod tests {
    use sumlink_engine::PAGE;

    use super::*;

    #[test]
    fn what_is_read_goes_back_to_the_session_and_no_more_of_it_than_a_chunk() {
        let pools = Pools::new(8 << 20);
        for _ in 0..3 * MOST_READ / PAGE {
            pools.has_read(Received::from([1; PAGE].as_slice()));
        }
        let kept = pools.take_read();
        assert_eq!(kept.iter().map(Received::memory).sum::<usize>(), MOST_READ);
        assert!(pools.take_read().is_empty());
        pools.has_read(Received::from([1; PAGE].as_slice()));
        assert_eq!(pools.take_read().len(), 1);
    }
}
