//! Decides when TCP paces a carrier's data: on high-RTT paths.
//!
//! A loss-based control sends when acknowledgments arrive, and on a high-RTT path those of a
//! window arrive close together. The window then leaves in a part of the round trip at the link's
//! full rate, and nothing leaves in the rest. A queue before the link that is short for such a path
//! overflows although the link is idle most of the time, and slow start ends with the window that
//! this queue can hold. With pacing, Linux spreads a window over half of the round trip in slow
//! start and over five sixths of it afterwards, and HyStart takes a train of acknowledgments for a
//! full link after a whole round trip instead of half of one.
//!
//! On a medium-RTT path small windows gain nothing. Such a path is paced from the moment its window
//! is wide, even if a queue or the end of slow start made it so.
//!
//! On a low-RTT path a queue holds the data of a whole round trip, and a timer for every few
//! packets of a fast link costs processor time. A young carrier has a small window, and its data, a
//! request or a small object, would arrive later.

use std::time::Duration;

use crate::TcpInfo;

/// The least round trip from which TCP paces with any window: with a queue of 50 ms, pacing gains
/// nothing at 104 ms and fills the link at 204 ms (docs/fbdt.md, "A window over a long way").
const HIGH: Duration = Duration::from_millis(150);

/// The least round trip from which TCP paces a window that is [`WIDE`]; lower ones were not
/// measured.
const HIGH_IF_WIDE: Duration = Duration::from_millis(50);

/// In bytes: about what 50 Mbit/s need on such a path; below, pacing gains nothing.
const WIDE: u64 = 1 << 20;

/// Whether TCP paces a carrier's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// The round-trip time of the path is unknown.
    #[default]
    Undecided,
    /// TCP will pace when the window has this many bytes.
    From(u64),
    /// The decision is final.
    Settled,
}

impl Spacing {
    /// Whether TCP should pace from now on, for a carrier that is no longer young.
    ///
    /// Returns true at most once, because no socket can stop pacing. The round trip is judged when
    /// the carrier has sent more than a small object, before data has stood in a queue for minutes.
    pub(crate) fn begins(&mut self, info: &TcpInfo) -> bool {
        if let (Self::Undecided, Some(least)) = (*self, info.min_rtt) {
            *self = if least >= HIGH {
                Self::From(0)
            } else if least >= HIGH_IF_WIDE {
                Self::From(WIDE)
            } else {
                Self::Settled
            };
        }
        let Self::From(window) = *self else {
            return false;
        };
        let begins = info.snd_cwnd_bytes >= window;
        if begins {
            *self = Self::Settled;
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn info(least: Option<Duration>, window: u64) -> TcpInfo {
        TcpInfo {
            min_rtt: least,
            snd_cwnd_bytes: window,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn only_a_high_rtt_path_is_paced() {
        let begins = |least| Spacing::default().begins(&info(least, 0));
        assert!(begins(Some(HIGH)));
        assert!(!begins(Some(HIGH - Duration::from_micros(1))));
        assert!(!begins(None), "nothing is known");
    }

    #[test]
    fn a_medium_rtt_path_is_paced_when_its_window_is_wide() {
        let mut spacing = Spacing::default();
        assert!(!spacing.begins(&info(Some(HIGH_IF_WIDE), WIDE - 1)));
        assert!(spacing.begins(&info(Some(HIGH_IF_WIDE), WIDE)));
        assert!(
            !spacing.begins(&info(Some(HIGH_IF_WIDE), WIDE)),
            "pacing begins only once"
        );
    }

    #[test]
    fn no_window_is_paced_on_a_low_rtt_path() {
        let short = HIGH_IF_WIDE - Duration::from_micros(1);
        assert!(!Spacing::default().begins(&info(Some(short), WIDE)));
    }

    #[test]
    fn a_later_queue_does_not_make_a_path_high_rtt() {
        for least in [HIGH / 2, HIGH_IF_WIDE / 2] {
            let mut spacing = Spacing::default();
            assert!(!spacing.begins(&info(Some(least), 0)));
            assert!(!spacing.begins(&info(Some(HIGH), 0)), "{least:?}");
        }
    }

    proptest! {
        #[test]
        fn pacing_begins_once_at_most(samples in proptest::collection::vec(
            (proptest::option::of(0u64..400), 0u64..4 << 20), 1..50,
        )) {
            let mut spacing = Spacing::default();
            let begins = samples.iter().filter(|(least, window)| {
                let least = least.map(Duration::from_millis);
                spacing.begins(&info(least, *window))
            });
            prop_assert!(begins.count() <= 1);
        }
    }
}
