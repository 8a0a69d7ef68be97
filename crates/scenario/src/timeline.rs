//! Changes scheduled before a run begins.

use std::time::Duration;

use sumlink_link::{Interferer, InterfererId};

use crate::config::LinkChange;

/// A change that can be scheduled.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A change of the link of that number.
    Link(usize, LinkChange),
    /// A change of an interferer.
    Interferer(InterfererId, Interferer),
}

/// Scheduled changes in the order of their times; those with the same time in the order in which
/// they were given.
#[derive(Debug)]
pub struct Timeline {
    /// Time since the beginning, and the change.
    events: Vec<(Duration, Action)>,
    /// The first pending change.
    position: usize,
    /// The beginning by the model's clock; nothing is due before it is set.
    zero: Option<Duration>,
}

impl Timeline {
    /// Accepts changes in any order.
    pub fn new(mut events: Vec<(Duration, Action)>) -> Self {
        events.sort_by_key(|(at, _)| *at);
        Self {
            events,
            position: 0,
            zero: None,
        }
    }

    /// Sets the beginning to `now`, and restarts with the first change.
    pub fn begin(&mut self, now: Duration) {
        self.zero = Some(now);
        self.position = 0;
    }

    /// The beginning, or the model's time zero if it is not set.
    pub fn zero(&self) -> Duration {
        self.zero.unwrap_or_default()
    }

    /// Time of the next change, by the model's clock.
    pub fn next(&self) -> Option<Duration> {
        let (at, _) = self.events.get(self.position)?;
        Some(self.zero?.saturating_add(*at))
    }

    /// The next change that is due by `now`, with its time.
    pub fn pop(&mut self, now: Duration) -> Option<(Duration, Action)> {
        let at = self.next().filter(|at| *at <= now)?;
        let (_, action) = self.events[self.position].clone();
        self.position += 1;
        Some((at, action))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::InterfaceState::{Blackhole, Down, Up};

    #[test]
    fn changes_come_in_order_and_again_after_a_new_beginning() {
        let ms = Duration::from_millis;
        let action = |state| Action::Link(0, LinkChange::state(state));
        let plan =
            [(30, Up), (10, Down), (10, Blackhole)].map(|(at, state)| (ms(at), action(state)));
        let mut timeline = Timeline::new(plan.to_vec());
        assert_eq!(timeline.pop(ms(1000)), None, "not begun");
        for zero in [ms(5), ms(100)] {
            timeline.begin(zero);
            assert_eq!(timeline.next(), Some(zero + ms(10)));
            assert_eq!(timeline.pop(zero + ms(9)), None);
            let mut next = || timeline.pop(zero + ms(50));
            assert_eq!(next(), Some((zero + ms(10), action(Down))));
            assert_eq!(next(), Some((zero + ms(10), action(Blackhole))));
            assert_eq!(next(), Some((zero + ms(30), action(Up))));
            assert_eq!(next(), None);
        }
    }
}
