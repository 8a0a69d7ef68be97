//! Slots for slow connections: a new connection beyond the limit ends the oldest one.
//!
//! If new connections waited for a free slot instead, idle connections could block them.

use std::collections::VecDeque;

use tokio::sync::oneshot;

/// A limited number of connection slots.
#[derive(Debug)]
pub struct Slots {
    most: usize,
    /// Oldest first.
    taken: VecDeque<oneshot::Sender<()>>,
}

/// A connection's slot until it is dropped; a message means that another connection needs it.
pub type Slot = oneshot::Receiver<()>;

impl Slots {
    /// Makes `most` slots, at least one.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            taken: VecDeque::new(),
        }
    }

    /// Takes a slot; if none is free, the oldest connection loses its own.
    pub fn enter(&mut self) -> Slot {
        self.taken.retain(|slot| !slot.is_closed());
        if self.taken.len() >= self.most
            && let Some(oldest) = self.taken.pop_front()
        {
            let _ = oldest.send(());
        }
        let (end, slot) = oneshot::channel();
        self.taken.push_back(end);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_loses_its_slot_if_none_is_free() {
        let mut slots = Slots::new(2);
        let (mut first, second) = (slots.enter(), slots.enter());
        assert!(first.try_recv().is_err());
        drop(second);
        let mut third = slots.enter();
        assert!(first.try_recv().is_err(), "one was free");
        let _fourth = slots.enter();
        assert!(first.try_recv().is_ok() && third.try_recv().is_err());
    }
}
