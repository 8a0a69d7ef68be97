//! Chooses the packet size of a link on which large packets may be lost.
//!
//! A router whose next link has a smaller MTU reports this to the sender (RFC 1191, RFC 8201). If
//! the reports are lost, connections are made, small packets get through and large ones vanish: a
//! new connection stalls like the old one. After two stalled connections in a row, the next one
//! uses smaller packets (`TCP_MAXSEG`, which binds the peer as well), and still smaller ones if
//! that does not help.

use std::time::Duration;

use crate::Instant;

/// Sizes of IP packets that are tried in turn, in bytes: the minimum of every IPv6 link (RFC 8200,
/// section 5), the rest of it in a tunnel or two, and the minimum of every IPv4 host (RFC 791). The
/// first costs half a percent of the rate compared with 1500 bytes, so that no size in between is
/// worth an attempt.
const SIZES: [u16; 3] = [1280, 1000, 576];

/// Time within which two stalled connections are no coincidence.
const MEMORY: Duration = Duration::from_secs(60);

/// A link counts as alive if a new connection is made within this time after the old one stalled.
const ALIVE: Duration = Duration::from_secs(5);

/// Pause before larger packets are tried again; doubles up to the second value.
const RETRY: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(86_400));

/// The packet size of a link, with the observations behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Packet size of new connections; `None` is the link's own.
    limit: Option<u16>,
    /// When a carrier of the current size stalled, while it is unknown whether the link is alive.
    suspected_at: Option<Instant>,
    /// When a carrier stalled although the link was alive.
    stalled_at: Option<Instant>,
    /// The size known to work, while a larger one is tried.
    helps: Option<u16>,
    /// When larger packets are tried again, and the pause after that.
    retry: Option<(Instant, Duration)>,
}

impl Packets {
    /// The packet size of the next connection. When a limit is old, the link's own size is tried.
    pub fn next_size(&mut self, now: Instant) -> Option<u16> {
        if self.limit.is_some() && self.is_due(now) {
            self.helps = self.limit.take();
            (self.suspected_at, self.stalled_at) = (None, None);
        }
        self.limit
    }

    /// Whether a try of larger packets is due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.limit.is_some() && self.retry.is_some_and(|(at, _)| at <= now)
    }

    /// Records that a connection of this size stalls as if its large packets were lost. Returns
    /// the new size if it changes: `Some(None)` is the link's own.
    pub fn note_stalled(&mut self, size: Option<u16>, now: Instant) -> Option<Option<u16>> {
        if size != self.limit || self.is_beyond_help(now) {
            return None;
        }
        let was_stalled = self
            .stalled_at
            .is_some_and(|at| now.saturating_sub(at) < MEMORY);
        if !was_stalled && self.helps.is_none() {
            self.suspected_at.get_or_insert(now);
            return None;
        }
        Some(self.lower(now))
    }

    /// Records that a new connection has been made.
    pub fn joined(&mut self, now: Instant) {
        if let Some(at) = self.suspected_at.take()
            && now.saturating_sub(at) < ALIVE
        {
            self.stalled_at = Some(now);
        }
    }

    /// Forgets the limit: the link is on another network now.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    fn lower(&mut self, now: Instant) -> Option<u16> {
        let (before, helps) = (self.limit, self.helps.take());
        let next = SIZES.iter().find(|size| before.is_none_or(|b| **size < b));
        self.limit = helps.or(next.copied());
        (self.suspected_at, self.stalled_at) = (None, None);
        // If a size works and a larger one again does not, the limit is kept for longer each time.
        let pause = match (helps, self.retry) {
            (Some(_), Some((_, pause))) => (pause * 2).min(RETRY.1),
            _ => RETRY.0,
        };
        // If not even the smallest packets help, the size is not the cause: it stays unchanged for
        // as long.
        self.retry = Some((now + pause, pause));
        self.limit
    }

    /// Whether no size helped recently.
    fn is_beyond_help(&self, now: Instant) -> bool {
        self.limit.is_none() && self.helps.is_none() && self.retry.is_some_and(|(at, _)| now < at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::START;

    const SECOND: Duration = Duration::from_secs(1);

    /// The packet sizes of connections that stall one after the other and are replaced at once.
    fn sizes(packets: &mut Packets, start: Instant, connections: u32) -> Vec<Option<u16>> {
        let mut made = Vec::new();
        for round in 0..connections {
            let now = start + 4 * SECOND * round;
            let size = packets.next_size(now);
            packets.joined(now);
            made.push(size);
            packets.note_stalled(size, now + 3 * SECOND);
        }
        made
    }

    #[test]
    fn the_size_falls_until_one_helps_and_stays_if_none_does() {
        let (mut packets, start) = (Packets::default(), START);
        let made = sizes(&mut packets, start, 12);
        let twice = |size| [Some(size); 2];
        let expected = [twice(1280), twice(1000), twice(576)].concat();
        assert_eq!(made[..2], [None, None]);
        assert_eq!(made[2..8], expected[..]);
        assert_eq!(made[8..], [None; 4], "the size is not the cause");
        // Later it may be the size.
        let later = start + 3 * RETRY.0;
        assert_eq!(sizes(&mut packets, later, 3)[2], Some(1280));
    }

    #[test]
    fn a_larger_size_is_tried_again_ever_less_often() {
        let (mut packets, start) = (Packets::default(), START);
        sizes(&mut packets, start, 2);
        let mut now = start + 8 * SECOND;
        assert_eq!(packets.next_size(now), Some(1280));
        for pause in [RETRY.0, 2 * RETRY.0, 4 * RETRY.0] {
            now += pause;
            assert!(packets.is_due(now));
            assert_eq!(packets.next_size(now), None);
            packets.joined(now);
            // One stalled connection is enough.
            assert_eq!(packets.note_stalled(None, now + SECOND), Some(Some(1280)));
            now += SECOND;
            assert!(!packets.is_due(now + pause));
        }
        now += RETRY.1;
        assert_eq!(packets.next_size(now), None, "the own size is tried again");
    }

    #[test]
    fn a_link_outage_does_not_count_as_loss_of_large_packets() {
        let (mut packets, start) = (Packets::default(), START);
        for round in 0..10 {
            let now = start + 30 * SECOND * round;
            packets.note_stalled(None, now);
            packets.joined(now + 2 * ALIVE);
        }
        assert_eq!(packets, Packets::default());
        // Neither do connections that stall now and then.
        for round in 0..10 {
            let now = start + 2 * MEMORY * round;
            assert_eq!(packets.note_stalled(None, now), None);
            packets.joined(now + SECOND);
        }
        packets.forget();
        // Connections from before the reduction do not reduce the size again.
        sizes(&mut packets, start, 2);
        assert_eq!(packets.note_stalled(None, start + 9 * SECOND), None);
        assert_eq!(packets.next_size(start + 9 * SECOND), Some(1280));
    }
}
