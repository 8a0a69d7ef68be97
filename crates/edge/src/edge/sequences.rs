//! LWA: which users have sequence numbers, and the next one of each.
//!
//! Those beyond the bound are sent packets without a number, which their receiver gives out as they come: a sequence that
//! several users share would be one order here and several at a receiver that knows others of them. A user who has been idle for
//! long makes room, and begins anew when there is something for it again. The receiver is told: see
//! [`is_young`](crate::lwa::is_young).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::Instant;

/// Users with sequence numbers.
pub(super) const MOST_USERS: usize = 4096;

/// Who was sent nothing for so long makes room for others. Longer than [`crate::lwa::FORGOTTEN`] by more than any packet is under
/// way, so that a receiver that is told of a young order has not heard of the one before for that time.
pub(super) const IDLE: Duration = Duration::from_secs(60);

/// For so long an order is told to be young.
const YOUNG: Duration = Duration::from_secs(10);

/// How often is looked for idle ones, where there were none.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// See the module.
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
    /// The next number for a user, and whether its order is young; nothing if it has none.
    pub(super) fn next(&mut self, user: IpAddr, now: Instant) -> Option<(u32, bool)> {
        if !self.users.contains_key(&user) {
            self.make_room(now);
            if self.users.len() >= MOST_USERS {
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
        if self.users.len() < MOST_USERS || now < self.full_until {
            return;
        }
        let is_used = |sequence: &Sequence| now.saturating_sub(sequence.used) < IDLE;
        self.users.retain(|_, sequence| is_used(sequence));
        if self.users.len() >= MOST_USERS {
            self.full_until = now + LOOK_AGAIN;
        }
    }
}
