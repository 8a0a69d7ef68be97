//! Programs with more to write than their streams' send buffers take.

use std::collections::BTreeSet;

use crate::StreamId;

/// The streams of such programs.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    /// Streams with a short write; their programs are notified when there is space.
    blocked: BTreeSet<StreamId>,
    /// Streams that were reported as writable and have not been written since.
    notified: BTreeSet<StreamId>,
}

impl Writers {
    /// Whether any program is known to have more to write. If not, the paths may carry less than
    /// they could.
    pub(crate) fn are_ahead(&self) -> bool {
        !self.blocked.is_empty() || !self.notified.is_empty()
    }

    /// Whether the stream's program is known to have more to write.
    pub(crate) fn is_ahead(&self, stream: StreamId) -> bool {
        self.blocked.contains(&stream) || self.notified.contains(&stream)
    }

    /// Streams that await space in their send buffer.
    pub(crate) fn blocked(&self) -> &BTreeSet<StreamId> {
        &self.blocked
    }

    /// A program has written; `is_short` if the send buffer did not take all of it.
    pub(crate) fn wrote(&mut self, stream: StreamId, is_short: bool) {
        self.remove(stream);
        if is_short {
            self.blocked.insert(stream);
        }
    }

    /// The stream takes no more bytes.
    pub(crate) fn remove(&mut self, stream: StreamId) {
        self.blocked.remove(&stream);
        self.notified.remove(&stream);
    }

    /// Forgets all streams.
    pub(crate) fn clear(&mut self) {
        self.blocked.clear();
        self.notified.clear();
    }

    /// The blocked streams that `has_space` selects: their programs are to be notified now.
    pub(crate) fn notify(&mut self, has_space: impl Fn(StreamId) -> bool) -> Vec<StreamId> {
        let mut writable = Vec::new();
        self.blocked.retain(|&stream| {
            let is_writable = has_space(stream);
            writable.extend(is_writable.then_some(stream));
            !is_writable
        });
        self.notified.extend(&writable);
        writable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_ahead_from_a_short_write_to_a_whole_one() {
        let mut writers = Writers::default();
        writers.wrote(1, false);
        assert!(!writers.are_ahead());
        writers.wrote(1, true);
        writers.wrote(5, true);
        assert_eq!(writers.blocked().len(), 2);
        assert_eq!(writers.notify(|stream| stream == 1), [1]);
        assert_eq!(writers.notify(|stream| stream == 1), [], "once");
        assert_eq!(writers.notify(|_| true), [5]);
        assert!(writers.blocked().is_empty());
        assert!(writers.are_ahead(), "until they have written");
        assert!(writers.is_ahead(1) && writers.is_ahead(5) && !writers.is_ahead(2));
        writers.wrote(1, false);
        writers.remove(5);
        assert!(!writers.are_ahead());
    }
}
