//! The figures of a flow of datagrams: loss, delay, jitter, order, gaps, and the quality of a call.
//!
//! Pure arithmetic on the records of both ends. All times are seconds on one clock, since the start
//! of the run.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Quantiles;
use super::emodel::{mean_opinion_score, rating};

/// A datagram that the receiving program got; every copy is a separate arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Arrival {
    /// Its number in the flow, from 0.
    pub number: u64,
    /// When the sending program sent it.
    pub sent_s: f64,
    /// When the receiving program had it.
    pub arrived_s: f64,
    /// Bytes of its payload.
    pub bytes: u32,
}

/// How an arrival is written: a run has hundreds of thousands of them.
type Written = (u64, f64, f64, u32);

impl From<Written> for Arrival {
    fn from((number, sent_s, arrived_s, bytes): Written) -> Self {
        Self {
            number,
            sent_s,
            arrived_s,
            bytes,
        }
    }
}

impl From<Arrival> for Written {
    fn from(arrival: Arrival) -> Self {
        (
            arrival.number,
            arrival.sent_s,
            arrival.arrived_s,
            arrival.bytes,
        )
    }
}

/// The part of a run that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// End of the warm-up.
    pub from_s: f64,
    /// End of the run.
    pub until_s: f64,
}

/// Datagrams due less than this before the end of the run are not counted: they may still be under
/// way.
pub const SETTLE: Duration = Duration::from_secs(1);

/// How a call is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Playout {
    /// Depth of the de-jitter buffer. A datagram is played this time after the arrival of the
    /// fastest one, relative to when both were sent. Datagrams that arrive later count as lost.
    pub buffer: Duration,
    /// The time of speech in one datagram; it passes before the datagram can be sent.
    pub frame: Duration,
}

/// The figures of a flow over the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Datagrams {
    /// The link that the flow was bound to, if any.
    pub link: Option<String>,
    /// `down`, `up`, or `echo` for datagrams that the far end returned: their delay is that of the
    /// round trip.
    pub direction: String,
    /// Datagrams due in the measured time, without the last second ([`SETTLE`]).
    pub sent: u64,
    /// Those among them that never arrived.
    pub lost: u64,
    /// Datagrams that arrived more than once; the number of surplus copies.
    pub duplicates: u64,
    /// Datagrams that arrived after one with a higher number (RFC 4737, section 3.3).
    pub reordered: u64,
    /// Payload of the first copies that arrived in the measured time, in bit/s.
    pub goodput_bps: f64,
    /// Milliseconds from sending to arrival; absent if nothing arrived.
    pub delay_ms: Option<Quantiles>,
    /// Mean of the interarrival jitter J in milliseconds (RFC 3550, section 6.4.1, and appendix
    /// A.8), over all arrivals.
    pub jitter_ms: f64,
    /// The longest time without an arrival, in milliseconds.
    pub gap_ms: f64,
    /// The quality, if the flow is a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Call>,
}

/// The quality of a call in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Depth of the de-jitter buffer in milliseconds.
    pub buffer_ms: f64,
    /// Datagrams that arrived too late to be played; not among the lost ones.
    pub late: u64,
    /// Delay from mouth to ear in milliseconds: one frame, the network, and the buffer.
    pub mouth_to_ear_ms: f64,
    /// The transmission rating R of the E-model.
    pub rating: f64,
    /// The mean opinion score by the E-model, 1 to 4.5.
    pub mos: f64,
}

impl Datagrams {
    /// The part of the datagrams that never arrived, 0..=1.
    pub fn loss(&self) -> f64 {
        ratio(self.lost, self.sent)
    }

    /// The figures of a flow. `due_s` has the time at which each datagram was to be sent, in the
    /// order of their numbers; `arrivals` is in the order of arrival. Arrivals with numbers that
    /// were never sent are ignored.
    pub fn of(
        due_s: &[f64],
        arrivals: &[Arrival],
        measured: Measured,
        playout: Option<Playout>,
    ) -> Self {
        let Measured { from_s, until_s } = measured;
        let settled_s = until_s - SETTLE.as_secs_f64();
        let counted = |number: u64| {
            let due = usize::try_from(number)
                .ok()
                .and_then(|number| due_s.get(number));
            due.is_some_and(|due| (from_s..settled_s).contains(due))
        };
        let mut flow = Self {
            sent: (0..due_s.len() as u64)
                .filter(|number| counted(*number))
                .count() as u64,
            ..Self::default()
        };
        let mut seen = BTreeSet::new();
        let mut highest = None;
        let mut bits = 0.0;
        let mut delays = Vec::new();
        let mut jitter = Jitter::default();
        let mut gap = Gap {
            last_s: from_s,
            longest_s: 0.0,
        };
        for arrival in arrivals.iter().filter(|a| a.number < due_s.len() as u64) {
            if !seen.insert(arrival.number) {
                flow.duplicates += u64::from(counted(arrival.number));
                continue;
            }
            if (from_s..until_s).contains(&arrival.arrived_s) {
                bits += f64::from(arrival.bytes) * 8.0;
                gap.arrival(arrival.arrived_s);
            }
            let overtaken = highest > Some(arrival.number);
            highest = highest.max(Some(arrival.number));
            if counted(arrival.number) {
                flow.reordered += u64::from(overtaken);
                jitter.arrival(arrival);
                delays.push((arrival.arrived_s - arrival.sent_s) * 1e3);
            }
        }
        gap.arrival(until_s);
        flow.lost = flow.sent.saturating_sub(delays.len() as u64);
        flow.goodput_bps = bits / (until_s - from_s).max(f64::MIN_POSITIVE);
        flow.jitter_ms = jitter.mean_s() * 1e3;
        flow.gap_ms = gap.longest_s * 1e3;
        flow.call = playout.map(|playout| Call::of(playout, flow.sent, flow.lost, &delays));
        flow.delay_ms = Quantiles::of(delays);
        flow
    }
}

impl Call {
    /// The quality from the delays of the datagrams that arrived, in milliseconds.
    fn of(playout: Playout, sent: u64, lost: u64, delays_ms: &[f64]) -> Self {
        let buffer_ms = playout.buffer.as_secs_f64() * 1e3;
        let least_ms = delays_ms.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let played_ms = least_ms + buffer_ms;
        let late = delays_ms.iter().filter(|delay| **delay > played_ms).count() as u64;
        let mouth_to_ear_ms = playout.frame.as_secs_f64() * 1e3 + played_ms;
        let rating = rating(mouth_to_ear_ms, ratio(lost + late, sent));
        Self {
            buffer_ms,
            late,
            mouth_to_ear_ms,
            rating,
            mos: mean_opinion_score(rating),
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// The interarrival jitter: J += (|D| - J) / 16.
#[derive(Debug, Default)]
struct Jitter {
    transit_s: Option<f64>,
    now_s: f64,
    sum_s: f64,
    count: u64,
}

impl Jitter {
    fn arrival(&mut self, arrival: &Arrival) {
        let transit_s = arrival.arrived_s - arrival.sent_s;
        if let Some(before) = self.transit_s.replace(transit_s) {
            self.now_s += ((transit_s - before).abs() - self.now_s) / 16.0;
            self.sum_s += self.now_s;
            self.count += 1;
        }
    }

    fn mean_s(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum_s / self.count as f64
        }
    }
}

/// The longest time between two arrivals.
#[derive(Debug)]
struct Gap {
    last_s: f64,
    longest_s: f64,
}

impl Gap {
    fn arrival(&mut self, at_s: f64) {
        self.longest_s = self.longest_s.max(at_s - self.last_s);
        self.last_s = self.last_s.max(at_s);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEASURED: Measured = Measured {
        from_s: 1.0,
        until_s: 10.0,
    };
    const PLAYOUT: Playout = Playout {
        buffer: Duration::from_millis(60),
        frame: Duration::from_millis(20),
    };

    /// A call of ten seconds: 50 datagrams per second of 172 bytes, each 40 ms under way.
    fn call(change: impl Fn(&mut Arrival) -> bool) -> Datagrams {
        let due: Vec<f64> = (0..500).map(|n| f64::from(n) * 0.02).collect();
        let arrivals = due.iter().enumerate().filter_map(|(number, sent_s)| {
            let arrived_s = sent_s + 0.04;
            let number = number as u64;
            let mut arrival = Arrival {
                number,
                sent_s: *sent_s,
                arrived_s,
                bytes: 172,
            };
            change(&mut arrival).then_some(arrival)
        });
        let mut arrivals: Vec<_> = arrivals.filter(|a| a.arrived_s < 10.0).collect();
        arrivals.sort_by(|a, b| a.arrived_s.total_cmp(&b.arrived_s));
        Datagrams::of(&due, &arrivals, MEASURED, Some(PLAYOUT))
    }

    #[test]
    fn a_steady_flow_has_its_delay_and_nothing_else() {
        let flow = call(|_| true);
        assert_eq!(
            (flow.sent, flow.lost, flow.duplicates, flow.reordered),
            (400, 0, 0, 0)
        );
        let delay = flow.delay_ms.unwrap();
        assert!((delay.p50 - 40.0).abs() < 1e-6 && (delay.p99 - 40.0).abs() < 1e-6);
        assert!(flow.jitter_ms < 1e-6 && (flow.gap_ms - 20.0).abs() < 20.0);
        assert!(
            (flow.goodput_bps - 68_800.0).abs() < 500.0,
            "{}",
            flow.goodput_bps
        );
        let quality = flow.call.unwrap();
        assert!((quality.mouth_to_ear_ms - 120.0).abs() < 1e-6);
        assert!(quality.mos > 4.3 && quality.late == 0, "{quality:?}");
    }

    #[test]
    fn a_blackout_is_one_gap_and_its_datagrams_are_lost() {
        let flow = call(|a| !(4.0..6.0).contains(&a.sent_s));
        assert_eq!(flow.lost, 100);
        assert!((flow.gap_ms - 2020.0).abs() < 1.0, "{}", flow.gap_ms);
        let quality = flow.call.unwrap();
        assert!(quality.mos < 2.5, "{quality:?}");
    }

    #[test]
    fn a_late_datagram_is_not_played() {
        // Number 100 arrives 70 ms later than the others, after its three successors.
        let flow = call(|a| {
            a.arrived_s += if a.number == 100 { 0.07 } else { 0.0 };
            true
        });
        assert_eq!((flow.lost, flow.reordered), (0, 1));
        assert_eq!(flow.call.unwrap().late, 1);
        assert!(flow.jitter_ms > 0.0);
    }

    #[test]
    fn the_jitter_is_that_of_the_standard() {
        // Alternately 40 and 48 ms: |D| is 8 ms, and J approaches it.
        let flow = call(|a| {
            a.arrived_s += if a.number % 2 == 1 { 0.008 } else { 0.0 };
            true
        });
        assert!((7.5..=8.0).contains(&flow.jitter_ms), "{}", flow.jitter_ms);
    }

    #[test]
    fn nothing_arrived() {
        let flow = call(|_| false);
        assert_eq!((flow.sent, flow.lost), (400, 400));
        assert_eq!(
            (flow.loss(), flow.delay_ms, flow.gap_ms),
            (1.0, None, 9000.0)
        );
        // Losing everything costs 95 * 100 / 125.1 of the rating.
        assert!(flow.call.unwrap().mos < 1.2);
    }

    proptest! {
        /// Whatever arrives, the counts add up and all figures are finite.
        #[test]
        fn any_arrivals_have_figures(
            raw in proptest::collection::vec((0u64..80, -1.0..12.0f64, 0.0..12.0f64), 0..200),
        ) {
            let due: Vec<f64> = (0..60).map(|n| f64::from(n) * 0.2).collect();
            let arrivals: Vec<_> = raw
                .into_iter()
                .map(|(number, sent_s, arrived_s)| Arrival { number, sent_s, arrived_s, bytes: 9 })
                .collect();
            let flow = Datagrams::of(&due, &arrivals, MEASURED, Some(PLAYOUT));
            let arrived = flow.delay_ms.as_ref().map_or(0, |delay| delay.count) as u64;
            prop_assert_eq!(flow.lost + arrived, flow.sent);
            prop_assert!(flow.duplicates + arrived <= arrivals.len() as u64);
            prop_assert!(flow.reordered <= arrived);
            prop_assert!(flow.jitter_ms.is_finite() && flow.gap_ms >= 0.0);
            let quality = flow.call.unwrap();
            prop_assert!((1.0..=4.5).contains(&quality.mos) && quality.late <= arrived);
        }
    }
}
