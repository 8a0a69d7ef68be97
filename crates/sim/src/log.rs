//! The log of events, as a hash: two runs are the same when it is.

use crate::clock::Nanos;

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    /// A packet reached an end: connection and side, sequence number, acknowledgement.
    Packet = 1,
    /// A timer fired: connection and side.
    Timer,
    /// A program was given bytes: stream, number of bytes.
    Delivered,
    /// A link changed: its number.
    Link,
}

/// Every event of a run in the order in which they happened, folded into 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLog {
    hash: u64,
    entries: u64,
}

impl EventLog {
    pub(crate) fn new() -> Self {
        Self {
            // The offset basis of FNV-1a.
            hash: 0xcbf2_9ce4_8422_2325,
            entries: 0,
        }
    }

    pub(crate) fn note(&mut self, at: Nanos, kind: Kind, a: u64, b: u64) {
        self.entries += 1;
        for word in [at, kind as u64, a, b] {
            // Words in place of FNV's bytes; the rotation carries the upper bits down again.
            self.hash = (self.hash ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
    }

    /// Adds another log as a whole.
    pub(crate) fn fold(&mut self, other: &Self) {
        self.note(other.entries, Kind::Link, other.hash, 0);
        // The note above counts as one; an empty log leaves none.
        self.entries = self.entries + other.entries - 1;
    }

    /// The hash of everything so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many events there were.
    pub fn entries(&self) -> u64 {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_every_word_count() {
        let log = |entries: &[(Nanos, Kind, u64, u64)]| {
            let mut log = EventLog::new();
            entries
                .iter()
                .for_each(|(at, kind, a, b)| log.note(*at, *kind, *a, *b));
            log.hash()
        };
        let (one, two) = ((1, Kind::Packet, 2, 3), (1, Kind::Timer, 2, 3));
        let all = [
            log(&[one, two]),
            log(&[two, one]),
            log(&[one]),
            log(&[(1, Kind::Packet, 3, 2), two]),
            log(&[(2, Kind::Packet, 2, 3), two]),
        ];
        for (index, hash) in all.iter().enumerate() {
            assert!(!all[..index].contains(hash), "{index}");
        }
    }
}
