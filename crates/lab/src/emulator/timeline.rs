//! Changes that are planned before the emulator starts.

use std::time::Duration;

use crate::config::LinkChange;

/// Planned changes in the order of their times; those of the same time in the order in which they were
/// given.
#[derive(Debug)]
pub(super) struct Timeline {
    /// Time since the beginning, number of the link, change.
    events: Vec<(Duration, usize, LinkChange)>,
    /// The first one that has not been carried out.
    position: usize,
    /// When the beginning was, by the model's clock; nothing happens before there is one.
    zero: Option<Duration>,
}

impl Timeline {
    pub(super) fn new(mut events: Vec<(Duration, usize, LinkChange)>) -> Self {
        events.sort_by_key(|(at, ..)| *at);
        Self {
            events,
            position: 0,
            zero: None,
        }
    }

    /// Counts from `now` on, and from the first event on.
    pub(super) fn begin(&mut self, now: Duration) {
        self.zero = Some(now);
        self.position = 0;
    }

    /// The beginning, or the model's own time zero before there was one.
    pub(super) fn zero(&self) -> Duration {
        self.zero.unwrap_or_default()
    }

    /// When the next change is planned, by the model's clock.
    pub(super) fn next(&self) -> Option<Duration> {
        let (at, ..) = self.events.get(self.position)?;
        Some(self.zero?.saturating_add(*at))
    }

    /// The next change that is due by `now`, with its time and link.
    pub(super) fn pop(&mut self, now: Duration) -> Option<(Duration, usize, LinkChange)> {
        let at = self.next().filter(|at| *at <= now)?;
        let (_, link, change) = self.events[self.position].clone();
        self.position += 1;
        Some((at, link, change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::InterfaceState::{Blackhole, Down, Up};

    #[test]
    fn changes_come_in_order_and_again_after_a_new_beginning() {
        let ms = Duration::from_millis;
        let plan = [(30, Up), (10, Down), (10, Blackhole)]
            .map(|(at, state)| (ms(at), 0, LinkChange::state(state)));
        let mut timeline = Timeline::new(plan.to_vec());
        assert_eq!(timeline.pop(ms(1000)), None, "not begun");
        for zero in [ms(5), ms(100)] {
            timeline.begin(zero);
            assert_eq!(timeline.next(), Some(zero + ms(10)));
            assert_eq!(timeline.pop(zero + ms(9)), None);
            let mut next = || timeline.pop(zero + ms(50));
            assert_eq!(next(), Some((zero + ms(10), 0, LinkChange::state(Down))));
            assert_eq!(
                next(),
                Some((zero + ms(10), 0, LinkChange::state(Blackhole)))
            );
            assert_eq!(next(), Some((zero + ms(30), 0, LinkChange::state(Up))));
            assert_eq!(next(), None);
        }
    }
}
