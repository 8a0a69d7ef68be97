//! Coupled mode: the send windows of the paths are scaled, so that all of them together take no more than they should.

use crate::PathId;
use crate::path::Path;
use crate::scheduler::View;

/// How FBDT scales the paths' send windows, by section 4.2.3 of the thesis, "FBDT Congestion Control".
///
/// There a path's send window is min(cwnd, rwnd), and two factors scale it: alpha for the forward path, beta for every
/// backward one. The congestion control of the carriers is left alone: a path with that much under way is given nothing
/// more. The thesis leaves open how the factors are chosen (its goal 2, "do no harm"); [`Coupling::Fair`] is the
/// choice made here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Coupling {
    /// Each carrier sends what its own congestion control allows.
    #[default]
    Decoupled,
    /// Fixed factors, each above 0 and up to 1.
    Scaled {
        /// Of the forward path.
        alpha: f64,
        /// Of the backward paths.
        beta: f64,
    },
    /// Alpha and beta such that all paths together would get what the best of them would get alone, if the rest stayed as it is: over
    /// a shared bottleneck the rival gets two fifths of what it misses beside a decoupled bond (docs/fbdt.md).
    Fair,
}

impl Coupling {
    /// Whether the factors make sense.
    pub(super) fn is_valid(self) -> bool {
        match self {
            Self::Scaled { alpha, beta } => [alpha, beta]
                .iter()
                .all(|factor| *factor > 0.0 && *factor <= 1.0),
            Self::Decoupled | Self::Fair => true,
        }
    }

    /// Whether `path` may have more under way.
    pub(super) fn lets_send(self, path: &Path, forward: Option<PathId>, view: &View<'_>) -> bool {
        let factor = match self {
            Self::Decoupled => return true,
            Self::Scaled { alpha, .. } if forward == Some(path.id()) => alpha,
            Self::Scaled { beta, .. } => beta,
            Self::Fair => {
                // thesis eq. 4.3: throughput = sum over the paths of W / RTT; the best term of it, divided by all
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
        // A path that was not measured yet has no window to scale.
        sample.cwnd == 0 || (under_way as f64) < factor * sample.cwnd as f64
    }
}
