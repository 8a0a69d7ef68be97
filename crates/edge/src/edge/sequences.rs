//! LWA: the users with sequence numbers, and the next number of each.
//!
//! Users beyond the bound get packets without a number, which their receiver delivers as they
//! arrive. Several users cannot share one sequence: a receiver that knows only some of them would
//! see gaps. A user that has been idle for long makes room and starts a new sequence with its next
//! packet. The receiver is notified: see [`is_young`](crate::lwa::is_young).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::Instant;

/// Most users with sequence numbers.
pub(super) const MAX_USERS: usize = 4096;

/// A user without packets for this long makes room for others. The time exceeds
/// [`crate::lwa::FORGOTTEN`] by more than any packet's transit time. A receiver that learns of a
/// young sequence has therefore received nothing of the previous one for that time.
pub(super) const IDLE: Duration = Duration::from_secs(60);

/// How long a sequence is marked as young.
const YOUNG: Duration = Duration::from_secs(10);

/// Interval between searches for idle users when none was found.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// LWA sequence numbers by user.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    users: BTreeMap<IpAddr, Sequence>,
    full_until: Instant,
}

#[derive(Debug)]
struct Sequence {
    next: u32,
    begun: Instant,
    used: Instant,
}

impl Sequences {
    /// The next number of a user, and whether its sequence is young; `None` if the user has no
    /// numbers.
    pub(super) fn next(&mut self, user: IpAddr, now: Instant) -> Option<(u32, bool)> {
        if !self.users.contains_key(&user) {
            self.make_room(now);
            if self.users.len() >= MAX_USERS {
                return None;
            }
        }
        let sequence = self.users.entry(user).or_insert(Sequence {
            next: 0,
            begun: now,
            used: now,
        });
        let number = sequence.next;
        sequence.next = number.wrapping_add(1);
        sequence.used = now;
        Some((number, now.saturating_sub(sequence.begun) < YOUNG))
    }

    fn make_room(&mut self, now: Instant) {
        if self.users.len() < MAX_USERS || now < self.full_until {
            return;
        }
        let is_used = |sequence: &Sequence| now.saturating_sub(sequence.used) < IDLE;
        self.users.retain(|_, sequence| is_used(sequence));
        if self.users.len() >= MAX_USERS {
            self.full_until = now + SEARCH_INTERVAL;
        }
    }
}
