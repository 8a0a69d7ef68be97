//! Loss models.

use core::ops::Range;
use core::time::Duration;

use crate::ModelError;
use crate::error::share;
use crate::random::Random;

/// Loss model, applied after the rate server: a packet that a radio sends in vain has still used
/// the air.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// Loses each packet with this probability, 0.0..=1.0 (other values are clamped, NaN means 0),
    /// independently of all others.
    Independent(f64),
    /// Loses packets in bursts.
    GilbertElliott(GilbertElliott),
    /// Loses listed packets.
    Script(LossScript),
}

impl Loss {
    /// No loss.
    pub const NONE: Self = Self::Independent(0.0);
}

/// A channel with a good and a bad state (Gilbert 1960, Elliott 1963). Before each packet but the
/// first the state changes with probability `p` or `r`. The state at the first packet is drawn from
/// the stationary distribution.
///
/// The share of packets in the bad state is `p / (p + r)`; a bad spell lasts `1 / r` packets on
/// average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability per packet of a change from good to bad.
    p: f64,
    /// Probability per packet of a change from bad to good.
    r: f64,
    /// Probability that a packet is lost in the good state.
    loss_good: f64,
    /// Probability that a packet is lost in the bad state.
    loss_bad: f64,
}

impl GilbertElliott {
    /// Creates the model from four probabilities, each 0.0..=1.0, named as the fields of
    /// [`GilbertElliott`].
    pub fn new(p: f64, r: f64, loss_good: f64, loss_bad: f64) -> Result<Self, ModelError> {
        share("p (good to bad)", p)?;
        share("r (bad to good)", r)?;
        share("the loss in the good state", loss_good)?;
        share("the loss in the bad state", loss_bad)?;
        Ok(Self {
            p,
            r,
            loss_good,
            loss_bad,
        })
    }

    /// Loses no packet in the good state and every packet in the bad state: a share `loss` of all
    /// packets (0.0..1.0), in bursts of `burst` packets on average (at least 1, and long enough for
    /// that share).
    pub fn bursts(loss: f64, burst: f64) -> Result<Self, ModelError> {
        if !(0.0..1.0).contains(&loss) {
            return Err(ModelError::OutOfRange {
                what: "the mean loss",
                value: loss,
                range: "from 0 to below 1",
            });
        }
        if !(burst >= 1.0 && burst.is_finite()) {
            return Err(ModelError::OutOfRange {
                what: "the mean burst length in packets",
                value: burst,
                range: "at least 1",
            });
        }
        // From loss = p / (p + r) and burst = 1 / r.
        let r = 1.0 / burst;
        let p = r * loss / (1.0 - loss);
        if p > 1.0 {
            let least = loss / (1.0 - loss);
            return Err(ModelError::BurstTooShort { loss, burst, least });
        }
        Self::new(p, r, 0.0, 1.0)
    }

    /// The long-term share of lost packets.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.share_of_bad();
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }

    fn share_of_bad(&self) -> f64 {
        if self.p == 0.0 {
            0.0
        } else {
            self.p / (self.p + self.r)
        }
    }
}

/// An explicit list of losses. A packet is lost if it is in either list; the lists need not be
/// sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossScript {
    /// Packet numbers, counted from 0 with the first packet that leaves the rate server after the
    /// script was set.
    pub packets: Vec<Range<u64>>,
    /// Time windows, in the link's time. Every packet whose last bit leaves the rate server in one
    /// is lost.
    pub times: Vec<Range<Duration>>,
}

/// Decides packet by packet.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    kind: Kind,
    /// Source of random numbers.
    random: Random,
}

#[derive(Clone, Debug)]
enum Kind {
    Independent(f64),
    GilbertElliott {
        model: GilbertElliott,
        state: State,
    },
    Script {
        /// Number of the next packet.
        next: u64,
        packets: Windows<u64>,
        times: Windows<Duration>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Unknown,
    Good,
    Bad,
}

impl LossProcess {
    pub(crate) fn new(probability: f64, random: Random) -> Self {
        let mut process = Self {
            kind: Kind::Independent(0.0),
            random,
        };
        process.set(Loss::Independent(probability));
        process
    }

    /// Changes the loss model from now on.
    pub(crate) fn set(&mut self, loss: Loss) {
        self.kind = match loss {
            Loss::Independent(p) if p.is_nan() => Kind::Independent(0.0),
            Loss::Independent(p) => Kind::Independent(p.clamp(0.0, 1.0)),
            Loss::GilbertElliott(model) => Kind::GilbertElliott {
                model,
                state: State::Unknown,
            },
            Loss::Script(script) => Kind::Script {
                next: 0,
                packets: Windows::new(script.packets),
                times: Windows::new(script.times),
            },
        };
    }

    /// Whether the next packet, sent at `now`, is lost.
    ///
    /// Draws two numbers for each packet, whether the model uses them or not. A change in the
    /// middle of a run therefore leaves the rest of the random sequence in place.
    pub(crate) fn loses_next(&mut self, now: Duration) -> bool {
        let dice = [self.random.next_f64(), self.random.next_f64()];
        match &mut self.kind {
            Kind::Independent(probability) => dice[0] < *probability,
            Kind::GilbertElliott { model, state } => {
                let bad = match state {
                    State::Unknown => dice[1] < model.share_of_bad(),
                    State::Good => dice[1] < model.p,
                    State::Bad => dice[1] >= model.r,
                };
                *state = if bad { State::Bad } else { State::Good };
                dice[0] < if bad { model.loss_bad } else { model.loss_good }
            }
            Kind::Script {
                next,
                packets,
                times,
            } => {
                let number = *next;
                *next += 1;
                // Both lists must advance, so no short circuit here.
                packets.contains_next(number) | times.contains_next(now)
            }
        }
    }
}

/// Windows that are queried in rising order.
#[derive(Clone, Debug)]
struct Windows<T> {
    /// Disjoint and sorted, the next one last.
    ahead: Vec<Range<T>>,
}

impl<T: Ord + Copy> Windows<T> {
    fn new(mut windows: Vec<Range<T>>) -> Self {
        windows.retain(|window| window.start < window.end);
        windows.sort_unstable_by_key(|window| window.start);
        let mut ahead: Vec<Range<T>> = Vec::with_capacity(windows.len());
        for window in windows {
            match ahead.last_mut() {
                Some(last) if window.start <= last.end => last.end = last.end.max(window.end),
                _ => ahead.push(window),
            }
        }
        ahead.reverse();
        Self { ahead }
    }

    /// Whether a window contains `value`, which must not be below an earlier query.
    fn contains_next(&mut self, value: T) -> bool {
        while self.ahead.last().is_some_and(|window| window.end <= value) {
            self.ahead.pop();
        }
        self.ahead
            .last()
            .is_some_and(|window| window.start <= value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(n: u32, loss: Loss) -> Vec<bool> {
        let mut process = LossProcess::new(0.0, Random::new(42));
        process.set(loss);
        (0..n)
            .map(|i| process.loses_next(Duration::from_millis(i.into())))
            .collect()
    }

    fn lost_of(n: u32, loss: Loss) -> u32 {
        losses(n, loss).into_iter().map(u32::from).sum()
    }

    #[test]
    fn losses_match_the_configured_share() {
        assert_eq!(lost_of(10_000, Loss::NONE), 0);
        assert_eq!(lost_of(10_000, Loss::Independent(1.0)), 10_000);
        let lost = lost_of(100_000, Loss::Independent(0.05));
        // Five standard deviations of a binomial distribution: 5 * sqrt(n p (1 - p)) = 345.
        assert!(lost.abs_diff(5_000) < 345, "{lost} of 100000 lost at 5 %");
    }

    #[test]
    fn invalid_probabilities_are_clamped() {
        assert_eq!(lost_of(100, Loss::Independent(f64::NAN)), 0);
        assert_eq!(lost_of(100, Loss::Independent(-1.0)), 0);
        assert_eq!(lost_of(100, Loss::Independent(7.0)), 100);
    }

    #[test]
    fn bursts_have_the_mean_loss_and_the_mean_length() {
        let model = GilbertElliott::bursts(0.05, 4.0).unwrap();
        assert!((model.mean_loss() - 0.05).abs() < 1e-12);
        let losses = losses(1_000_000, Loss::GilbertElliott(model));
        let lost = losses.iter().filter(|lost| **lost).count() as f64;
        let bursts = losses.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        assert!((lost / 1e6 - 0.05).abs() < 0.003, "{lost}");
        assert!((lost / bursts - 4.0).abs() < 0.2, "{}", lost / bursts);
    }

    #[test]
    fn four_probabilities_are_checked_and_used() {
        let model = GilbertElliott::new(0.01, 0.03, 0.02, 0.5).unwrap();
        // A quarter of the packets meet the bad state.
        assert!((model.mean_loss() - (0.75 * 0.02 + 0.25 * 0.5)).abs() < 1e-12);
        let lost = f64::from(lost_of(1_000_000, Loss::GilbertElliott(model)));
        assert!((lost / 1e6 - model.mean_loss()).abs() < 0.01, "{lost}");
        let never = GilbertElliott::new(0.0, 0.0, 0.0, 1.0).unwrap();
        assert_eq!(lost_of(100, Loss::GilbertElliott(never)), 0);
    }

    #[test]
    fn impossible_bursts_are_rejected() {
        let message = |loss, burst| GilbertElliott::bursts(loss, burst).unwrap_err().to_string();
        assert!(message(1.0, 2.0).contains("mean loss is 1"));
        assert!(message(0.1, 0.5).contains("burst length in packets is 0.5"));
        assert!(message(0.1, f64::NAN).contains("must be at least 1"));
        assert!(message(0.75, 1.0).contains("at least 3 packets"));
        assert!(GilbertElliott::new(0.1, 1.1, 0.0, 1.0).is_err());
    }

    #[test]
    fn a_script_is_exact_to_the_packet() {
        let ms = Duration::from_millis;
        let script = LossScript {
            packets: vec![7..9, 2..3, 8..10, 5..5],
            times: vec![ms(20)..ms(22), ms(9)..ms(12)],
        };
        let lost: Vec<usize> = losses(30, Loss::Script(script))
            .into_iter()
            .enumerate()
            .filter_map(|(i, lost)| lost.then_some(i))
            .collect();
        assert_eq!(lost, [2, 7, 8, 9, 10, 11, 20, 21]);
    }
}
