//! The memory that the sources of a client share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of memory that a client's sources may use.
#[derive(Debug)]
pub(super) struct Budget {
    most: usize,
    used: AtomicUsize,
}

impl Budget {
    pub(super) fn new(most: usize) -> Arc<Self> {
        let used = AtomicUsize::new(0);
        Arc::new(Self { most, used })
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// The part of a [`Budget`] that one source uses. It is returned when the source ends.
#[derive(Debug)]
pub(super) struct Account {
    budget: Arc<Budget>,
    charged: usize,
}

impl Account {
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            charged: 0,
        }
    }

    /// Takes the bytes, if the budget has them.
    pub(super) fn charge(&mut self, bytes: usize) -> bool {
        let most = self.budget.most;
        let used = &self.budget.used;
        let taken = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= most)
        });
        if taken.is_ok() {
            self.charged += bytes;
        }
        taken.is_ok()
    }

    pub(super) fn release(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.charged, "released more than was charged");
        let bytes = bytes.min(self.charged);
        self.charged -= bytes;
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.release(self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_share_a_budget_and_return_it() {
        let budget = Budget::new(100);
        let mut one = Account::new(&budget);
        let mut other = Account::new(&budget);
        assert!(one.charge(60) && !other.charge(41) && other.charge(40));
        one.release(10);
        assert!(other.charge(10) && !other.charge(usize::MAX));
        drop(other);
        assert_eq!(budget.used(), 50);
        drop(one);
        assert_eq!(budget.used(), 0);
    }
}
