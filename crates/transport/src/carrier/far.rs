//! Over a long way TCP spaces what it sends.
//!
//! A loss-based control sends when acknowledgements come, and over a long way those of a window come close together: it leaves
//! in a part of the round trip as fast as the link takes it, and nothing in the rest. Where the queue before the link is short
//! for such a way, it overflows while the link is free most of the time, and slow start ends with the window that the
//! queue has room for. Spaced by Linux a window leaves in half of the round trip in slow start and in five sixths of it later,
//! and HyStart takes a train of acknowledgements for a full link at a whole round trip, not at half of one.
//!
//! Over a way of middle length small windows gain nothing by that, so that only a wide one is spaced, from when it has become so,
//! also where a queue or the end of slow start made it.
//!
//! Over a short way a queue holds what a round trip does, and a timer for every few packets of a fast link takes processor
//! time. A young carrier's window is small, and what it is given, a request or a small object, would arrive later.

use std::time::Duration;

use super::Carrier;
use crate::pacing;

/// The least round trip from which on TCP spaces whatever its window: behind a queue of 50 ms that brings nothing at 104 ms and
/// fills the link at 204 (docs/fbdt.md, "A window over a long way").
const FAR: Duration = Duration::from_millis(150);

/// The least round trip from which on TCP spaces a window that is [`WIDE`]; less was not measured.
const FAR_IF_WIDE: Duration = Duration::from_millis(50);

/// In bytes: about what 50 Mbit/s have over such a way, where spacing makes nothing better.
const WIDE: u64 = 1 << 20;

/// Whether TCP spaces what a carrier sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Spacing {
    /// How long the way is has to be seen.
    #[default]
    Undecided,
    /// It will when the window has so many bytes.
    From(u64),
    /// It does, or does not.
    Settled,
}

impl Carrier {
    /// Has TCP space what it sends if the way is long, once and for good: no socket can be told to stop it. How long a way is
    /// taken for is decided when it has carried more than a small object, before anything has stood in a queue for minutes.
    pub(super) fn settle_spacing(&mut self) {
        if self.spacing == Spacing::Settled || self.is_young() {
            return;
        }
        if let (Spacing::Undecided, Some(least)) = (self.spacing, self.info.min_rtt) {
            self.spacing = if least >= FAR {
                Spacing::From(0)
            } else if least >= FAR_IF_WIDE {
                Spacing::From(WIDE)
            } else {
                Spacing::Settled
            };
        }
        let Spacing::From(window) = self.spacing else {
            return;
        };
        if self.info.snd_cwnd_bytes < window {
            return;
        }
        self.spacing = Spacing::Settled;
        if let Err(error) = pacing::space(&self.tcp) {
            let (path, link) = (self.id.0, &self.link);
            tracing::warn!(path, %link, %error, "what is sent over a long way cannot be spaced");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    /// A carrier that has carried something, over a way that is so long.
    async fn carrier(least: Option<Duration>) -> Carrier {
        let (mut carrier, _peer) = fixture::carrier().await;
        carrier.info.min_rtt = least;
        carrier.info.bytes_acked = carrier.young_until;
        carrier
    }

    async fn is_spaced(least: Option<Duration>) -> bool {
        let mut carrier = carrier(least).await;
        carrier.settle_spacing();
        pacing::is_spaced(&carrier.tcp)
    }

    #[tokio::test]
    async fn a_carrier_is_spaced_over_a_long_way_only() {
        assert!(is_spaced(Some(FAR)).await);
        assert!(!is_spaced(Some(FAR - Duration::from_micros(1))).await);
        assert!(!is_spaced(None).await, "nothing is known");
    }

    #[tokio::test]
    async fn over_a_way_of_middle_length_a_carrier_is_spaced_when_its_window_is_wide() {
        let mut carrier = carrier(Some(FAR_IF_WIDE)).await;
        carrier.info.snd_cwnd_bytes = WIDE - 1;
        carrier.settle_spacing();
        assert!(!pacing::is_spaced(&carrier.tcp));
        carrier.info.snd_cwnd_bytes = WIDE;
        carrier.settle_spacing();
        assert!(pacing::is_spaced(&carrier.tcp));
    }

    #[tokio::test]
    async fn a_wide_window_of_a_link_with_a_limit_keeps_the_limit() {
        let mut carrier = carrier(Some(FAR_IF_WIDE)).await;
        carrier.settle_spacing();
        carrier.limit(Some(1_000_000));
        carrier.info.snd_cwnd_bytes = WIDE;
        carrier.settle_spacing();
        assert_eq!(pacing::bound(&carrier.tcp).unwrap(), 1_000_000);
    }

    #[tokio::test]
    async fn over_a_short_way_no_window_is_spaced() {
        let mut carrier = carrier(Some(FAR_IF_WIDE - Duration::from_micros(1))).await;
        carrier.info.snd_cwnd_bytes = WIDE;
        carrier.settle_spacing();
        assert!(!pacing::is_spaced(&carrier.tcp));
    }

    #[tokio::test]
    async fn a_young_carrier_is_spaced_when_it_has_carried_more() {
        let mut carrier = carrier(Some(FAR)).await;
        carrier.info.bytes_acked -= 1;
        carrier.settle_spacing();
        assert!(!pacing::is_spaced(&carrier.tcp));
        carrier.info.bytes_acked += 1;
        carrier.settle_spacing();
        assert!(pacing::is_spaced(&carrier.tcp));
    }

    #[tokio::test]
    async fn a_queue_that_comes_later_does_not_make_a_way_long() {
        for least in [FAR / 2, FAR_IF_WIDE / 2] {
            let mut carrier = carrier(Some(least)).await;
            carrier.settle_spacing();
            carrier.info.min_rtt = Some(FAR);
            carrier.settle_spacing();
            assert!(!pacing::is_spaced(&carrier.tcp), "{least:?}");
        }
    }

    #[tokio::test]
    async fn the_limit_of_a_link_stays_over_a_long_way() {
        let mut carrier = carrier(Some(FAR)).await;
        carrier.limit(Some(1_000_000));
        carrier.settle_spacing();
        assert_eq!(pacing::bound(&carrier.tcp).unwrap(), 1_000_000);
    }
}
