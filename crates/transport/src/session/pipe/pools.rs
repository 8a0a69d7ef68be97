//! Memory shared by the pipes of a session.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use sumlink_engine::Received;

use super::memory::{CHUNK, MAX_DOWN, MAX_UP, Pool};

/// Maximum bytes of read pages that the session keeps for reuse. Like the megabyte of spare pages
/// in an engine, they are charged to no stream.
const MAX_READ: usize = CHUNK;

/// The memory of all pipes of a session, by direction.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) up: Pool,
    pub(crate) down: Pool,
    /// Read pages for the session's next received data. They belong to the session, so that an idle
    /// stream holds no memory.
    read: Mutex<Read>,
}

/// Pages that programs have read.
#[derive(Debug, Default)]
struct Read {
    pages: Vec<Received>,
    /// Their size in bytes.
    memory: usize,
}

impl Pools {
    /// Pools of `bytes` in each direction, beyond the streams' floors.
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            up: Pool::new(bytes, MAX_UP),
            down: Pool::new(bytes, MAX_DOWN),
            read: Mutex::default(),
        })
    }

    /// Takes back data that a program has read completely.
    pub(super) fn has_read(&self, received: Received) {
        let memory = received.memory();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.memory + memory <= MAX_READ {
            read.memory += memory;
            read.pages.push(received);
        }
    }

    /// The pages that programs have read since the last call.
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
    fn read_pages_return_to_the_session_up_to_one_chunk() {
        let pools = Pools::new(8 << 20);
        for _ in 0..3 * MAX_READ / PAGE {
            pools.has_read(Received::from([1; PAGE].as_slice()));
        }
        let kept = pools.take_read();
        assert_eq!(kept.iter().map(Received::memory).sum::<usize>(), MAX_READ);
        assert!(pools.take_read().is_empty());
        pools.has_read(Received::from([1; PAGE].as_slice()));
        assert_eq!(pools.take_read().len(), 1);
    }
}
