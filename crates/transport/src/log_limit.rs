//! A bound on the log lines that anybody on the network can cause.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lets so many lines a second through and counts the others.
#[derive(Debug)]
pub(crate) struct LogLimit {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the present second began.
    since: Instant,
    /// Lines let through in it.
    written: u32,
    /// Lines that were not, since the count was last taken.
    left_out: u64,
}

/// Lines that one second may have.
pub(crate) const LINES: u32 = 10;

const SECOND: Duration = Duration::from_secs(1);

impl LogLimit {
    pub(crate) fn new() -> Self {
        let state = State {
            since: Instant::now(),
            written: 0,
            left_out: 0,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Whether a line may be written at `now`; one that may not is counted.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        let mut state = self.lock();
        if now.duration_since(state.since) >= SECOND {
            (state.since, state.written) = (now, 0);
        }
        let admitted = state.written < LINES;
        state.written += u32::from(admitted);
        state.left_out += u64::from(!admitted);
        admitted
    }

    /// When the lines that were left out are to be told; nothing if there are none.
    pub(crate) fn due(&self) -> Option<Instant> {
        let state = self.lock();
        (state.left_out > 0).then_some(state.since + SECOND)
    }

    /// How many lines were left out since the last call.
    pub(crate) fn take_left_out(&self) -> u64 {
        std::mem::take(&mut self.lock().left_out)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_lines_and_the_others_are_counted() {
        let limit = LogLimit::new();
        let start = Instant::now();
        let burst = |at, lines: u32| (0..lines).filter(|_| limit.admits(at)).count();
        assert_eq!(burst(start, LINES), LINES as usize);
        assert_eq!(limit.due(), None);
        assert_eq!(burst(start + SECOND / 2, 90), 0);
        assert!(limit.due().is_some_and(|due| due <= start + SECOND));
        assert_eq!(limit.take_left_out(), 90);
        assert_eq!((limit.due(), limit.take_left_out()), (None, 0));
        assert_eq!(burst(start + SECOND, 100), LINES as usize);
        assert_eq!(limit.take_left_out(), 100 - u64::from(LINES));
    }
}
