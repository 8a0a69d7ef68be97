//! The event log, folded into a hash: two runs with equal hashes had the same events.

use crate::clock::Nanos;

/// Kind of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    /// A packet reached an end host: connection and side, sequence number, acknowledgment.
    Packet = 1,
    /// A timer fired: connection and side.
    Timer,
    /// A program received bytes: stream, number of bytes.
    Delivered,
    /// A link changed: link number.
    Link,
    /// A packet reached an end of a QUIC connection: connection and side, numbers.
    Quic,
    /// A timer of a QUIC connection fired: connection and side.
    QuicTimer,
    /// A program received a datagram: flow, number of bytes.
    Datagram,
}

/// All events of a run in order, folded into 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLog {
    hash: u64,
    entries: u64,
}

impl EventLog {
    pub(crate) fn new() -> Self {
        Self {
            // FNV-1a offset basis.
            hash: 0xcbf2_9ce4_8422_2325,
            entries: 0,
        }
    }

    pub(crate) fn note(&mut self, at: Nanos, kind: Kind, a: u64, b: u64) {
        self.entries += 1;
        for word in [at, kind as u64, a, b] {
            // Like FNV, but over 64-bit words instead of bytes; the rotation mixes the upper bits
            // into the lower ones.
            self.hash = (self.hash ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
    }

    /// Appends the hash of another log as one entry.
    pub(crate) fn fold(&mut self, other: &Self) {
        self.note(other.entries, Kind::Link, other.hash, 0);
        // `note` above counted one entry for the other log, which must count as all of its own
        // entries.
        self.entries = self.entries + other.entries - 1;
    }

    /// The hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of events so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_order_and_every_word() {
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
