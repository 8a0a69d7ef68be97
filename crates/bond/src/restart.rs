//! Restarts slow start for a connection that an outage has left with a tiny window.
//!
//! A loss-based control takes the losses of an outage for a full queue, and the losses during their
//! repair for another one. TCP is left with the window of a far slower link, and CUBIC then needs
//! seconds to fill the link again, the longer the faster the link is. A new connection would begin
//! with slow start (RFC 5681, section 3.1) and fill it in a few round trips. This module achieves
//! the same for the existing connection: Linux restarts slow start when the control of a connection
//! is changed to BBR, which forgets the threshold, and back at once. If BBR is not available, the
//! window grows as usual.
//!
//! [`Restart`] has no socket and no clock. It requests slow start when one episode of repairs has
//! reduced the window by more than congestion does, while the window is a small part of the former
//! one, is full, and meets no queue. If a queue or a loss ends the slow start before the window is
//! back, it is tried again, with pauses.

use std::time::Duration;

use crate::{CaState, Instant, TcpInfo, congestion};

/// A window below one in this number of the window before an outage is worth another slow start.
/// Congestion leaves more: CUBIC takes three tenths, Reno a half, and the same once more when a
/// timeout follows.
const SMALL: u64 = 4;

/// A window of one in this number counts as regained.
const REGAINED: u64 = 2;

/// Initial window in segments (RFC 6928): a connection with a smaller window loses nothing by an
/// outage.
const INITIAL_WINDOW: u64 = 10;

/// How long the window before an outage describes the link.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Pause after a slow start that did not restore the window; doubles with each.
const PAUSE: Duration = Duration::from_millis(250);

/// The controls that may be replaced for a moment: those without state outside the connection.
pub(crate) const LOSS_BASED: [&str; 2] = ["cubic", "reno"];

/// Decides when a connection restarts slow start.
#[derive(Debug, Default)]
pub(crate) struct Restart {
    /// The congestion window when TCP last had nothing to repair, in bytes.
    window: u64,
    /// TCP has been repairing losses since then.
    is_repairing: bool,
    outage: Option<Outage>,
}

/// An outage whose consequences last.
#[derive(Clone, Copy, Debug)]
struct Outage {
    /// The congestion window before it, in bytes.
    window: u64,
    /// How long the window is remembered.
    until: Instant,
    /// The earliest time of the next slow start.
    not_before: Instant,
    pause: Duration,
}

impl Restart {
    /// Takes a sample of the connection; returns whether it should restart slow start now.
    pub(crate) fn observe(&mut self, now: Instant, info: &TcpInfo) -> bool {
        match info.ca_state {
            CaState::Open => {
                let before = std::mem::replace(&mut self.window, info.snd_cwnd_bytes);
                // Below its threshold TCP is in slow start already.
                let threshold = info.snd_ssthresh_bytes.unwrap_or(u64::MAX);
                let left = self.window.max(threshold);
                if std::mem::take(&mut self.is_repairing) && left < before / SMALL {
                    self.has_collapsed(before, now);
                }
                self.is_worth_it(now, info)
            }
            CaState::Disorder => false,
            CaState::Cwr | CaState::Recovery | CaState::Loss => {
                self.is_repairing = true;
                false
            }
        }
    }

    fn has_collapsed(&mut self, before: u64, now: Instant) {
        let outage = self.outage.get_or_insert(Outage {
            window: before,
            until: now,
            not_before: now,
            pause: PAUSE,
        });
        outage.window = outage.window.max(before);
        outage.until = now + REMEMBERED;
    }

    fn is_worth_it(&mut self, now: Instant, info: &TcpInfo) -> bool {
        let Some(outage) = &mut self.outage else {
            return false;
        };
        let window = info.snd_cwnd_bytes;
        if window >= outage.window / REGAINED || now >= outage.until {
            self.outage = None;
            return false;
        }
        let least = INITIAL_WINDOW * u64::from(info.snd_mss);
        let is_small = window < outage.window / SMALL && outage.window / SMALL >= least;
        let is_over = info
            .snd_ssthresh_bytes
            .is_some_and(|threshold| window >= threshold);
        let is_full = info.unacked_bytes >= window / 2;
        let longer = info.srtt.saturating_sub(info.min_rtt.unwrap_or(info.srtt));
        let meets_queue = congestion::is_queueing(longer, info.min_rtt.unwrap_or(info.srtt));
        let is_worth_it =
            is_small && is_over && is_full && !meets_queue && now >= outage.not_before;
        if is_worth_it {
            outage.not_before = now + outage.pause;
            outage.pause *= 2;
        }
        is_worth_it
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{START, TcpState};

    const MSS: u64 = 1448;
    const MS: Duration = Duration::from_millis(1);

    /// A connection with a full window of `window` segments, over a round trip of 5 ms without a
    /// queue.
    fn info(ca_state: CaState, window: u64, threshold: u64) -> TcpInfo {
        TcpInfo {
            state: TcpState::Established,
            ca_state,
            srtt: 5 * MS,
            min_rtt: Some(5 * MS),
            snd_mss: MSS as u32,
            snd_cwnd_bytes: window * MSS,
            snd_ssthresh_bytes: Some(threshold * MSS),
            unacked_bytes: window * MSS,
            ..TcpInfo::default()
        }
    }

    /// A connection whose window an outage has reduced from 3973 segments (`thesis-4-5/mobility`),
    /// and the time of its end.
    fn after_outage() -> (Restart, Instant) {
        let (mut restart, start) = (Restart::default(), START);
        let before = [
            (CaState::Open, 3973, 2783),
            (CaState::Recovery, 3059, 2783),
            (CaState::Loss, 51, 2783),
            (CaState::Recovery, 17, 88),
        ];
        for (ca_state, window, threshold) in before {
            assert!(!restart.observe(start, &info(ca_state, window, threshold)));
        }
        (restart, start)
    }

    #[test]
    fn slow_start_restores_a_window_after_an_outage() {
        let (mut restart, now) = after_outage();
        assert!(restart.observe(now, &info(CaState::Open, 88, 88)));
        // The window grows undisturbed; once it is back, the outage is forgotten.
        assert!(!restart.observe(now + MS, &info(CaState::Open, 88, 88)));
        assert!(!restart.observe(now + 20 * MS, &info(CaState::Open, 1987, 1 << 20)));
        assert!(restart.outage.is_none());
        let later = now + 1000 * MS;
        assert!(!restart.observe(later, &info(CaState::Open, 88, 88)));
    }

    #[test]
    fn an_interrupted_restart_is_tried_again_with_pauses() {
        let (mut restart, start) = after_outage();
        let small = info(CaState::Open, 88, 88);
        let tried: Vec<u32> = (0..12_000)
            .filter(|&ms| restart.observe(start + MS * ms, &small))
            .collect();
        assert_eq!(tried, [0, 250, 750, 1750, 3750, 7750]);
    }

    #[test]
    fn no_restart_without_a_benefit() {
        let sample = info(CaState::Open, 88, 88);
        let unless = [
            ("the window is not small", info(CaState::Open, 994, 88)),
            ("it is one already", info(CaState::Open, 88, 89)),
            (
                "nothing was lost so far",
                TcpInfo {
                    snd_ssthresh_bytes: None,
                    ..sample
                },
            ),
            (
                "too little data to send",
                TcpInfo {
                    unacked_bytes: 43 * MSS,
                    ..sample
                },
            ),
            (
                "packets wait in a queue",
                TcpInfo {
                    srtt: 11 * MS,
                    ..sample
                },
            ),
            (
                "losses are being repaired",
                TcpInfo {
                    ca_state: CaState::Recovery,
                    ..sample
                },
            ),
        ];
        for (why, sample) in unless {
            let (mut restart, now) = after_outage();
            assert!(!restart.observe(now, &sample), "{why}");
        }
        let (mut restart, now) = after_outage();
        let nothing_to_send = TcpInfo {
            unacked_bytes: 0,
            ..sample
        };
        assert!(!restart.observe(now, &nothing_to_send));
        assert!(
            !restart.observe(now + REMEMBERED, &sample),
            "the outage is forgotten"
        );
    }

    /// Each is a separate episode: on a link that has become slow, TCP's estimate stays.
    #[test]
    fn reductions_one_after_the_other_are_congestion() {
        let (mut restart, mut now) = (Restart::default(), START);
        for window in [4000, 2800, 1960, 980, 490, 240, 120, 60, 30] {
            for (ca_state, window) in [(CaState::Loss, 1), (CaState::Open, window)] {
                assert!(!restart.observe(now, &info(ca_state, window, window)));
                now += MS;
            }
        }
    }

    /// A timeout after the loss of a last segment: a threshold as high as the former window
    /// restores it without help.
    #[test]
    fn a_window_already_in_slow_start_is_left_alone() {
        let (mut restart, now) = (Restart::default(), START);
        for (ca_state, window) in [(CaState::Open, 4000), (CaState::Loss, 1)] {
            assert!(!restart.observe(now, &info(ca_state, window, 2800)));
        }
        assert!(!restart.observe(now, &info(CaState::Open, 2, 2800)));
        assert!(restart.outage.is_none());
    }

    /// A spurious timeout keeps the window, and the next repairs may reduce it.
    #[test]
    fn an_outage_in_parts_counts_as_well() {
        let (mut restart, now) = (Restart::default(), START);
        let before = [
            (CaState::Open, 3716, 2700),
            (CaState::Loss, 1, 2604),
            (CaState::Open, 3842, 2700),
            (CaState::Recovery, 35, 2732),
            (CaState::Recovery, 8, 35),
        ];
        for (ca_state, window, threshold) in before {
            assert!(!restart.observe(now, &info(ca_state, window, threshold)));
        }
        assert!(restart.observe(now, &info(CaState::Open, 48, 35)));
    }

    /// The window of a new connection is no larger than a few segments.
    #[test]
    fn a_small_window_has_lost_nothing() {
        let (mut restart, now) = (Restart::default(), START);
        for (ca_state, window) in [(CaState::Open, 39), (CaState::Loss, 1)] {
            assert!(!restart.observe(now, &info(ca_state, window, 20)));
        }
        assert!(!restart.observe(now, &info(CaState::Open, 3, 2)));
    }
}
