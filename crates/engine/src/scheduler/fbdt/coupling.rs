//! Coupled mode: scales the send windows of the paths so that all of them together take no more
//! than a fair share.

use crate::PathId;
use crate::path::Path;
use crate::scheduler::View;

/// How FBDT scales the paths' send windows, by section 4.2.3 of the thesis, "FBDT Congestion
/// Control".
///
/// There a path's send window is min(cwnd, rwnd), and two factors scale it: alpha for the forward
/// path, beta for every backward one. The carriers' congestion control is not changed: a path with
/// that many bytes in flight gets no more. The thesis leaves the choice of the factors open (its
/// goal 2, "do no harm"); [`Coupling::Fair`] is the choice made here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Coupling {
    /// Each carrier sends as much as its own congestion control permits.
    #[default]
    Decoupled,
    /// Fixed factors, each above 0 and up to 1.
    Scaled {
        /// Factor of the forward path.
        alpha: f64,
        /// Factor of the backward paths.
        beta: f64,
    },
    /// Alpha and beta such that all paths together get the rate of the best one alone, if nothing
    /// else changes: over a shared bottleneck a rival recovers two fifths of its loss beside a
    /// decoupled bond (docs/fbdt.md).
    Fair,
}

impl Coupling {
    /// Whether the factors are in range.
    pub(super) fn is_valid(self) -> bool {
        match self {
            Self::Scaled { alpha, beta } => [alpha, beta]
                .iter()
                .all(|factor| *factor > 0.0 && *factor <= 1.0),
            Self::Decoupled | Self::Fair => true,
        }
    }

    /// Whether `path` may have more data in flight.
    pub(super) fn lets_send(self, path: &Path, forward: Option<PathId>, view: &View<'_>) -> bool {
        let factor = match self {
            Self::Decoupled => return true,
            Self::Scaled { alpha, .. } if forward == Some(path.id()) => alpha,
            Self::Scaled { beta, .. } => beta,
            Self::Fair => {
                // thesis eq. 4.3: throughput = sum over the paths of W / RTT; its largest term,
                // divided by the sum
                let terms = view
                    .active_paths()
                    .map(|path| path.sample().cwnd as f64 / path.srtt().as_secs_f64());
                let (sum, best) = terms.fold((0.0, 0.0), |(sum, best), term: f64| {
                    (sum + term, f64::max(best, term))
                });
                if sum > 0.0 { best / sum } else { 1.0 }
            }
        };
        let sample = path.sample();
        let under_way = sample.in_flight + sample.unsent + view.handed();
        // A path without measurements has no window to scale.
        sample.cwnd == 0 || (under_way as f64) < factor * sample.cwnd as f64
    }
}
