//! The rule against links with simulated rates.

use super::*;
use crate::START;

/// A link and its session, sampled twice per second.
struct Running {
    width: Width,
    now: Instant,
    bytes: u64,
}

impl Running {
    fn new() -> Self {
        Self {
            width: Width::new(),
            now: START,
            bytes: 0,
        }
    }

    /// The numbers of carriers over `seconds`, each with its start in seconds. `link` gives the
    /// rate of a number of carriers in bytes per second, and whether packets then wait in a queue.
    fn run(&mut self, seconds: u64, link: impl Fn(u8) -> (u64, bool)) -> Vec<(u8, u64)> {
        let mut carriers = vec![(self.width.carriers(), 0)];
        for half in 0..seconds * 2 {
            let (rate, is_queueing) = link(self.width.carriers());
            self.bytes += rate / 2;
            let moved = Moved {
                link: self.bytes,
                session: 2 * self.bytes,
                is_queueing,
            };
            self.now += Duration::from_millis(500);
            self.width.observe(self.now, moved);
            if carriers.last().map(|(count, _)| *count) != Some(self.width.carriers()) {
                carriers.push((self.width.carriers(), half / 2));
            }
        }
        carriers
    }
}

/// The numbers alone.
fn run(seconds: u64, is_queueing: bool, rate: impl Fn(u8) -> u64) -> Vec<u8> {
    let carriers = Running::new().run(seconds, |n| (rate(n), is_queueing));
    carriers.into_iter().map(|(count, _)| count).collect()
}

/// Each connection gets the same rate of a lossy link.
fn lossy(carriers: u8) -> (u64, bool) {
    (2_000_000 * u64::from(carriers), false)
}

#[test]
fn carriers_are_added_while_they_help_up_to_eight() {
    let enough = run(180, false, |n| lossy(n.min(4)).0);
    assert_eq!(enough[..4], [1, 2, 3, 4]);
    let stays = |n: &u8| [3, 4, 5].contains(n);
    assert!(enough[4..].iter().all(stays), "{enough:?}");
    assert!(enough.len() < 20, "trials become rare: {enough:?}");
    let most = run(180, false, |n| 2_000_000 * 2u64.pow(n.into()));
    assert_eq!(most[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(most[8..].iter().all(|n| [7, 8].contains(n)), "{most:?}");
}

/// The losses are over, and another flow fills the queue: each additional connection takes from
/// that flow.
#[test]
fn a_carrier_added_for_losses_is_removed_from_a_shared_queue() {
    let mut running = Running::new();
    let added = running.run(40, lossy);
    let (most, _) = *added.last().unwrap();
    assert!(most >= 4, "{added:?}");
    let shared = |n: u8| (8_000_000 * u64::from(n) / (u64::from(n) + 1), true);
    let taken = running.run(60, shared);
    let (left, since) = *taken.last().unwrap();
    assert_eq!(left, 1, "{taken:?}");
    assert!(since <= 12 + 3 * u64::from(most), "{taken:?}");
}

#[test]
fn a_stalled_carrier_is_removed_even_without_a_queue() {
    let mut running = Running::new();
    running.run(40, lossy);
    let taken = running.run(600, |_| (8_000_000, false));
    assert!(taken.iter().any(|(count, _)| *count == 1), "{taken:?}");
    // One more is tried now and then, and removed again.
    let end = running.run(60, |_| (8_000_000, false));
    assert!(end.iter().all(|(count, _)| *count <= 2), "{end:?}");
}

/// Four connections fill the link between losses, three do not.
#[test]
fn a_missed_carrier_returns_and_is_removed_ever_less_often() {
    let link = |n: u8| (lossy(n.min(4)).0, n >= 4);
    let carriers = Running::new().run(1800, link);
    let taken: Vec<u64> = carriers
        .windows(2)
        .filter(|pair| pair[1].0 < pair[0].0 && pair[0].0 == 4)
        .map(|pair| pair[1].1)
        .collect();
    assert!(taken.len() >= 6 && taken.len() <= 20, "{carriers:?}");
    let gaps: Vec<u64> = taken.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[gaps.len() - 1] > 100, "{gaps:?}");
    let at_four = carriers
        .windows(2)
        .filter(|pair| pair[0].0 == 4)
        .map(|pair| pair[1].1 - pair[0].1)
        .sum::<u64>();
    assert!(at_four > 1500, "{at_four} s of 1800 with four");
}

#[test]
fn a_single_queue_removes_no_carrier() {
    let mut running = Running::new();
    let (most, _) = *running.run(40, lossy).last().unwrap();
    let bursts = running.run(4, |n| (lossy(n).0, true));
    assert!(bursts.iter().all(|(count, _)| *count >= most), "{bursts:?}");
}

#[test]
fn none_is_added_to_a_full_queue() {
    assert_eq!(run(600, true, |n| 2_000_000 * u64::from(n)), [1]);
}

/// The transfer ends during the trial of one carrier fewer, or of one more.
#[test]
fn a_link_that_became_idle_changes_nothing() {
    for end in 1..200 {
        let mut running = Running::new();
        let busy = running.run(end, |n| (lossy(n.min(3)).0, false));
        let at_its_end = busy.last().unwrap().0;
        let idle = running.run(600, |_| (0, false));
        // Half of the first measurement still belongs to the transfer.
        let grows = |pair: &[(u8, u64)]| pair[1].1 >= 4 && pair[1].0 > pair[0].0;
        assert!(!idle.windows(2).any(grows), "{end}: {busy:?}, {idle:?}");
        let after = idle.last().unwrap().0;
        assert!(after.abs_diff(at_its_end) <= 1, "{idle:?}");
        let again = running.run(1, lossy);
        assert_eq!(again[0].0, after);
    }
}

#[test]
fn none_is_added_to_an_idle_link() {
    assert_eq!(run(600, false, |_| 1000), [1]);
}

#[test]
fn trials_without_gain_become_rare() {
    let trials = run(3600, false, |_| 2_000_000).len() / 2;
    assert!((5..=12).contains(&trials), "{trials} trials in an hour");
}

#[test]
fn a_carrier_that_costs_the_session_more_is_removed() {
    let (mut width, begin) = (Width::new(), START);
    let (mut link, mut session) = (0, 0);
    for half in 0..30 {
        link += 1_000_000 * u64::from(width.carriers());
        session += 9_000_000 - 2_000_000 * u64::from(width.carriers() - 1);
        let moved = Moved {
            link,
            session,
            is_queueing: false,
        };
        width.observe(begin + Duration::from_millis(500) * half, moved);
    }
    assert_eq!(width.carriers(), 1);
    assert!(width.not_before.is_some(), "a trial has ended");
}
