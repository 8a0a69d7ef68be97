//! How large the packets of a link may be, where not all that leave it arrive.
//!
//! A router whose next link takes smaller packets says so to who sends larger ones (RFC 1191, RFC 8201). Where that word is
//! lost, connections are made, small packets go through and large ones vanish: a new connection gets stuck like the old one. So
//! after two of them in a row the next is made for smaller packets (`TCP_MAXSEG`, which binds the peer as well), and for still
//! smaller ones if that does not help.

use std::time::Duration;

use crate::Instant;

/// Sizes of IP packets that are tried one after the other, in bytes: what every IPv6 link carries (RFC 8200, section 5), what is
/// left of that in a tunnel or two, and what every IPv4 host takes (RFC 791). The first costs half a percent of the rate against
/// 1500 bytes, so that nothing between is worth an attempt.
const SIZES: [u16; 3] = [1280, 1000, 576];

/// Two connections that get stuck within this time are no coincidence.
const MEMORY: Duration = Duration::from_secs(60);

/// A link on which a new connection is made within this time, after the old one got stuck, has not gone away.
const ALIVE: Duration = Duration::from_secs(5);

/// Larger packets are tried again after this time; doubles up to the second value.
const RETRY: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(86_400));

/// What is known of a link's packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// The most that new connections are made for; nothing where the link's own size counts.
    limit: Option<u16>,
    /// A carrier of the present size got stuck then, and nobody knows whether the link is alive.
    doubted: Option<Instant>,
    /// One did, and the link was alive.
    stuck: Option<Instant>,
    /// Which size is known to help while a larger one is tried.
    helps: Option<u16>,
    /// When larger ones are tried again, and how long after that once more.
    retry: Option<(Instant, Duration)>,
}

impl Packets {
    /// The size that the next connection is made for. Where a limit is old the link's own size is tried.
    pub fn next_size(&mut self, now: Instant) -> Option<u16> {
        if self.limit.is_some() && self.is_due(now) {
            self.helps = self.limit.take();
            (self.doubted, self.stuck) = (None, None);
        }
        self.limit
    }

    /// Whether larger packets are to be tried again.
    pub fn is_due(&self, now: Instant) -> bool {
        self.limit.is_some() && self.retry.is_some_and(|(at, _)| at <= now)
    }

    /// A connection of this size is stuck as if its large packets were lost. Returns the size that is used from now on if it
    /// is another one: `Some(None)` is the link's own.
    pub fn stuck(&mut self, size: Option<u16>, now: Instant) -> Option<Option<u16>> {
        if size != self.limit || self.is_beyond_help(now) {
            return None;
        }
        let was_stuck = self.stuck.is_some_and(|at| now.saturating_sub(at) < MEMORY);
        if !was_stuck && self.helps.is_none() {
            self.doubted.get_or_insert(now);
            return None;
        }
        Some(self.lower(now))
    }

    /// A new connection has been made.
    pub fn joined(&mut self, now: Instant) {
        if let Some(at) = self.doubted.take()
            && now.saturating_sub(at) < ALIVE
        {
            self.stuck = Some(now);
        }
    }

    /// What a limit was found for is another network now.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    fn lower(&mut self, now: Instant) -> Option<u16> {
        let (before, helps) = (self.limit, self.helps.take());
        let next = SIZES.iter().find(|size| before.is_none_or(|b| **size < b));
        self.limit = helps.or(next.copied());
        (self.doubted, self.stuck) = (None, None);
        // A size that was found to help, and a larger one again not to, is kept for longer each time.
        let pause = match (helps, self.retry) {
            (Some(_), Some((_, pause))) => (pause * 2).min(RETRY.1),
            _ => RETRY.0,
        };
        // Where not even the smallest packets help, it is not their size: it is left alone for as long.
        self.retry = Some((now + pause, pause));
        self.limit
    }

    /// No size has helped a while ago.
    fn is_beyond_help(&self, now: Instant) -> bool {
        self.limit.is_none() && self.helps.is_none() && self.retry.is_some_and(|(at, _)| now < at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::START;

    const SECOND: Duration = Duration::from_secs(1);

    /// Connections that get stuck, one after the other, and are replaced at once; what each was made for.
    fn sizes(packets: &mut Packets, start: Instant, connections: u32) -> Vec<Option<u16>> {
        let mut made = Vec::new();
        for round in 0..connections {
            let now = start + 4 * SECOND * round;
            let size = packets.next_size(now);
            packets.joined(now);
            made.push(size);
            packets.stuck(size, now + 3 * SECOND);
        }
        made
    }

    #[test]
    fn the_size_falls_until_one_helps_and_is_left_alone_where_none_does() {
        let (mut packets, start) = (Packets::default(), START);
        let made = sizes(&mut packets, start, 12);
        let twice = |size| [Some(size); 2];
        let expected = [twice(1280), twice(1000), twice(576)].concat();
        assert_eq!(made[..2], [None, None]);
        assert_eq!(made[2..8], expected[..]);
        assert_eq!(made[8..], [None; 4], "it is not the size");
        // Later it may be.
        let later = start + 3 * RETRY.0;
        assert_eq!(sizes(&mut packets, later, 3)[2], Some(1280));
    }

    #[test]
    fn a_larger_size_is_tried_again_and_ever_more_seldom() {
        let (mut packets, start) = (Packets::default(), START);
        sizes(&mut packets, start, 2);
        let mut now = start + 8 * SECOND;
        assert_eq!(packets.next_size(now), Some(1280));
        for pause in [RETRY.0, 2 * RETRY.0, 4 * RETRY.0] {
            now += pause;
            assert!(packets.is_due(now));
            assert_eq!(packets.next_size(now), None);
            packets.joined(now);
            // One that gets stuck is enough.
            assert_eq!(packets.stuck(None, now + SECOND), Some(Some(1280)));
            now += SECOND;
            assert!(!packets.is_due(now + pause));
        }
        now += RETRY.1;
        assert_eq!(packets.next_size(now), None, "and it may work now");
    }

    #[test]
    fn a_link_that_was_away_is_not_taken_for_one_that_loses_large_packets() {
        let (mut packets, start) = (Packets::default(), START);
        for round in 0..10 {
            let now = start + 30 * SECOND * round;
            packets.stuck(None, now);
            packets.joined(now + 2 * ALIVE);
        }
        assert_eq!(packets, Packets::default());
        // Nor one that got stuck now and then.
        for round in 0..10 {
            let now = start + 2 * MEMORY * round;
            assert_eq!(packets.stuck(None, now), None);
            packets.joined(now + SECOND);
        }
        packets.forget();
        // Nor are those that were made before the size was lowered a reason to lower it once more.
        sizes(&mut packets, start, 2);
        assert_eq!(packets.stuck(None, start + 9 * SECOND), None);
        assert_eq!(packets.next_size(start + 9 * SECOND), Some(1280));
    }
}
