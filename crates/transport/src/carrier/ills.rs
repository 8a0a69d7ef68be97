//! What a path suffers from, as the log has it.

/// A way in which a path is ill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ill {
    /// What this side sends on it is not confirmed.
    Stalled,
    /// The peer says so of what it sends.
    Doubted,
}

/// What the log says of a path. Each line of illness is followed by one of recovery, or by that of the path's
/// end, and neither is repeated: a line is written where [`Ills::set`] says that something has changed.
#[derive(Debug, Default)]
pub(crate) struct Ills([bool; 2]);

impl Ills {
    /// Notes whether the path suffers from `ill`; whether that is new.
    #[must_use]
    pub(crate) fn set(&mut self, ill: Ill, is_ill: bool) -> bool {
        std::mem::replace(&mut self.0[ill as usize], is_ill) != is_ill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_news() {
        let mut ills = Ills::default();
        assert!(!ills.set(Ill::Stalled, false), "it was well");
        assert!(ills.set(Ill::Stalled, true));
        assert!(ills.set(Ill::Doubted, true), "another illness");
        assert!(!ills.set(Ill::Doubted, true), "said before");
        assert!(ills.set(Ill::Doubted, false));
        assert!(ills.set(Ill::Stalled, false));
    }
}
