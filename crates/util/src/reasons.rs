//! Reasons of repeated failures, each of which is logged once.

use std::collections::BTreeSet;

/// Most reasons that are remembered; more are forgotten all at once, and logged again.
const MOST: usize = 16;

/// The reasons of failures since the last success.
#[derive(Clone, Debug, Default)]
pub struct Reasons(BTreeSet<String>);

impl Reasons {
    /// Whether the reason is not yet known. Attempts over several links fail for several reasons
    /// in turn.
    pub fn is_new(&mut self, reason: &str) -> bool {
        if self.0.contains(reason) {
            return false;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(reason.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_alternate_are_new_once() {
        let mut reasons = Reasons::default();
        assert!(reasons.is_new("a") && reasons.is_new("b"));
        assert!(!reasons.is_new("a") && !reasons.is_new("b"));
        // However many there are, not all of them are kept.
        assert!((0..100).all(|number| reasons.is_new(&number.to_string())));
        assert!(reasons.0.len() <= MOST);
    }
}
