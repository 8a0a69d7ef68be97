//! The verdict of a trial: the traffic with the path compared with that without it.

use std::time::Duration;

use super::measure::Sample;
use crate::selector::mbit;

/// Relative difference at which two delays count as different, with [`MIN_DELAY`] as the minimum.
const DELAY: f64 = 0.25;

/// A smaller difference is not noticeable.
const MIN_DELAY: Duration = Duration::from_millis(20);

/// A trial: periods with the path and without it. The kind with two periods came before and after
/// the other, so that unrelated changes are not attributed to the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    with: [Sample; 2],
    without: [Sample; 2],
}

/// The outcome.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    /// The traffic is measurably better without the path.
    pub(super) hurts: bool,
    /// The path measurably increases goodput, or does no harm.
    pub(super) helps: bool,
    /// Share of the goodput that the middle period cost, from 0 to 1.
    pub(super) cost: f64,
    /// The reason, with figures.
    pub(super) reason: String,
}

impl Compared {
    /// An active path was left out between two periods with it.
    pub(super) fn left_out(before: Sample, during: Sample, after: Sample) -> Self {
        Self {
            with: [before, after],
            without: [during; 2],
        }
    }

    /// A parked path was let in between two periods without it.
    pub(super) fn let_in(before: Sample, during: Sample, after: Sample) -> Self {
        Self {
            with: [during; 2],
            without: [before, after],
        }
    }

    /// None if the traffic was too small for a result.
    pub(super) fn verdict(&self, margin: f64) -> Option<Verdict> {
        let all = [self.with, self.without].concat();
        if !all.iter().all(|sample| sample.is_significant) {
            return None;
        }
        // Goodput reflects the paths only if the programs offered more than the paths took.
        let greedy = all.iter().all(|sample| sample.greedy);
        let (with, without) = (Arm::of(&self.with), Arm::of(&self.without));
        // Better means better than both periods of the other kind.
        let faster = greedy && without.least > (1.0 + margin) * with.most;
        let brings = with.least > (1.0 + margin) * without.most;
        let late = is_longer(with.min_delay, without.max_delay, 1.0);
        // Half of that is inconclusive: a path parked for more must stay below it.
        let rather_late = is_longer(with.max_delay, without.min_delay, 0.5);
        let rather_slower = with.most < (1.0 - margin / 2.0) * without.least;
        Some(Verdict {
            hurts: faster || late && !brings,
            helps: brings || !rather_late && !rather_slower,
            cost: match greedy {
                true => self.cost(with.mean, without.mean),
                false => 0.0,
            },
            reason: reason(&with, &without),
        })
    }

    /// The cost of the middle period, which appears twice here.
    fn cost(&self, with: f64, without: f64) -> f64 {
        let (usual, tried) = match self.without[0] == self.without[1] {
            true => (with, without),
            false => (without, with),
        };
        if usual > 0.0 {
            (1.0 - tried / usual).max(0.0)
        } else {
            0.0
        }
    }
}

/// Both periods of a kind.
struct Arm {
    least: f64,
    most: f64,
    mean: f64,
    min_delay: Option<Duration>,
    max_delay: Option<Duration>,
}

impl Arm {
    fn of([a, b]: &[Sample; 2]) -> Self {
        let delays = a.delay.zip(b.delay);
        Self {
            least: a.goodput.min(b.goodput),
            most: a.goodput.max(b.goodput),
            mean: (a.goodput + b.goodput) / 2.0,
            min_delay: delays.map(|(a, b)| a.min(b)),
            max_delay: delays.map(|(a, b)| a.max(b)),
        }
    }
}

fn is_longer(delay: Option<Duration>, than: Option<Duration>, part: f64) -> bool {
    let Some((delay, than)) = delay.zip(than) else {
        return false;
    };
    let more = delay.saturating_sub(than);
    more > delay.mul_f64(DELAY * part) && more > MIN_DELAY.mul_f64(part)
}

/// `+140 ms delivery delay for +2.0 Mbit/s`: the path's cost and its benefit.
fn reason(with: &Arm, without: &Arm) -> String {
    let more = with.mean - without.mean;
    let sign = if more < 0.0 { "-" } else { "+" };
    let goodput = format!("{sign}{}", mbit(more.abs()));
    match with.min_delay.zip(without.max_delay) {
        Some((with, without)) => {
            let more = with.as_secs_f64() - without.as_secs_f64();
            format!("{:+.0} ms delivery delay for {goodput}", more * 1e3)
        }
        None => format!(
            "{goodput} with it: {} against {}",
            mbit(with.mean),
            mbit(without.mean)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(mbit: f64) -> Sample {
        Sample {
            goodput: mbit * 1e6 / 8.0,
            delay: None,
            greedy: true,
            is_significant: true,
        }
    }

    fn live(ms: u64) -> Sample {
        Sample {
            delay: Some(Duration::from_millis(ms)),
            greedy: false,
            ..bulk(4.0)
        }
    }

    #[test]
    fn a_path_that_costs_goodput_hurts_and_one_that_adds_some_helps() {
        let of = |with: [f64; 2], without: f64| {
            let [before, after] = with.map(bulk);
            let compared = Compared::left_out(before, bulk(without), after);
            compared.verdict(0.05).unwrap()
        };
        let hurts = of([12.0, 11.0], 15.0);
        assert!(hurts.hurts && !hurts.helps && hurts.cost == 0.0);
        assert_eq!(
            hurts.reason,
            "-3.5 Mbit/s with it: 12 Mbit/s against 15 Mbit/s"
        );
        let helps = of([12.0, 11.0], 9.0);
        assert!(!helps.hurts && helps.helps);
        assert!((helps.cost - 2.5 / 11.5).abs() < 1e-9, "{}", helps.cost);
        // Unrelated changes affect both outer periods.
        assert!(!of([10.0, 14.0], 14.5).hurts);
        assert!(of([10.0, 10.2], 10.1).helps);
    }

    #[test]
    fn delay_counts_where_no_goodput_is_lost() {
        let compared = Compared::left_out(live(200), live(60), live(220));
        let verdict = compared.verdict(0.05).unwrap();
        assert!(verdict.hurts && !verdict.helps);
        assert_eq!(verdict.reason, "+140 ms delivery delay for +0.000 Mbit/s");
        let slower = Sample {
            goodput: 2e6 / 8.0,
            ..live(60)
        };
        let verdict = Compared::left_out(live(200), slower, live(220)).verdict(0.05);
        assert!(
            !verdict.unwrap().hurts,
            "the link brings more than it costs"
        );
        // Neither 15 ms nor a tenth is significant.
        for (with, without) in [(25, 10), (1000, 900)] {
            let compared = Compared::left_out(live(with), live(without), live(with));
            assert!(!compared.verdict(0.05).unwrap().hurts);
        }
    }

    #[test]
    fn a_parked_path_returns_only_well_below_the_harm_it_was_parked_for() {
        let of = |with, without| Compared::let_in(live(without), live(with), live(without));
        assert!(!of(100, 60).verdict(0.05).unwrap().helps);
        assert!(of(65, 60).verdict(0.05).unwrap().helps);
    }

    #[test]
    fn too_little_traffic_gives_no_verdict() {
        let silent = Sample {
            is_significant: false,
            ..bulk(0.0)
        };
        assert_eq!(
            Compared::left_out(bulk(1.0), silent, bulk(1.0)).verdict(0.05),
            None
        );
    }
}
