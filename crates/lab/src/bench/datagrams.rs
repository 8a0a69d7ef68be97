//! The figures of datagrams that bars are compared with.

use std::time::Duration;

use crate::results::{Datagrams, Measurement};
use crate::scenario::Scenario;

use super::bar::Quantity;
use super::percentile::{Over, Part};

/// The value of a quantity about datagrams; `None` without a figure, and for other quantities.
/// `alone` has the links alone with the same seed.
pub(super) fn value(
    quantity: Quantity,
    own: &Measurement,
    alone: Option<&Measurement>,
    scenario: &Scenario,
    seed: u64,
) -> Option<f64> {
    match quantity {
        Quantity::LostDatagrams => {
            flows(own).next()?;
            Some(flows(own).map(|flow| flow.lost as f64).sum())
        }
        Quantity::Loss => worst(own, |flow| Some(flow.loss())),
        Quantity::Gap => worst(own, |flow| Some(flow.gap_ms)),
        Quantity::Delay { part, over } => worst(own, |flow| {
            let reference = match over {
                Over::Best => best(alone?, flow, part)?,
                Over::Idle => idle(scenario, seed, &flow.direction)?,
            };
            Some(delay(flow, part)? - reference)
        }),
        Quantity::RoundTrip { part } => {
            let probe = own.datagrams.iter().find(|flow| is_probe(flow))?;
            Some(delay(probe, part)? - idle(scenario, seed, &probe.direction)?)
        }
        _ => None,
    }
}

/// The flows of datagrams that are not probes.
fn flows(of: &Measurement) -> impl Iterator<Item = &Datagrams> {
    of.datagrams.iter().filter(|flow| !is_probe(flow))
}

fn is_probe(flow: &Datagrams) -> bool {
    flow.direction == "echo"
}

fn delay(flow: &Datagrams, part: Part) -> Option<f64> {
    flow.delay_ms.as_ref().map(|delay| part.of(delay))
}

/// The largest value of a flow; `None` if one has no value.
fn worst(of: &Measurement, value: impl Fn(&Datagrams) -> Option<f64>) -> Option<f64> {
    let values = flows(of).map(value).collect::<Option<Vec<_>>>()?;
    values.into_iter().reduce(f64::max)
}

/// A percentile of the delay on the best link alone, in the same direction.
fn best(alone: &Measurement, flow: &Datagrams, part: Part) -> Option<f64> {
    let links = flows(alone).filter(|alone| alone.direction == flow.direction);
    links.filter_map(|link| delay(link, part)).reduce(f64::min)
}

/// The shortest delay that the scenario sets for a link, in milliseconds; of the round trip for
/// probes.
fn idle(scenario: &Scenario, seed: u64, direction: &str) -> Option<f64> {
    let of_way = |[up, down]: [Duration; 2]| match direction {
        "up" => up,
        "down" => down,
        _ => up + down,
    };
    let links = scenario.min_delays(seed).into_iter().map(of_way);
    Some(links.min()?.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::super::quantities::Measured;
    use super::super::quantities::fixture::{run, scenario};
    use super::*;
    use crate::results::ALONE;
    use crate::results::Quantiles;

    #[test]
    fn datagrams_are_judged_in_the_worse_direction() {
        let flow = |link: Option<&str>, direction: &str, p99: f64, lost| Datagrams {
            link: link.map(str::to_owned),
            direction: direction.to_owned(),
            sent: 1000,
            lost,
            gap_ms: p99 * 2.0,
            delay_ms: Quantiles::of([p99]),
            ..Datagrams::default()
        };
        let with = |datagrams| Measurement {
            datagrams,
            ..Measurement::default()
        };
        let alone = with(vec![
            flow(Some("a"), "down", 11.0, 0),
            flow(Some("a"), "up", 12.0, 0),
            flow(Some("b"), "down", 26.0, 0),
        ]);
        let own = with(vec![
            flow(None, "down", 15.0, 1),
            flow(None, "up", 14.0, 2),
            flow(None, "echo", 50.0, 7),
        ]);
        let scenario = scenario("workload = { kind = \"call\" }");
        let runs = [run(ALONE, 1, alone), run("x", 1, own)];
        let measured = Measured {
            scenario: &scenario,
            runs: &runs,
        };
        let value = |quantity| measured.values(quantity, None, "x");
        assert_eq!(value(Quantity::LostDatagrams), [3.0]);
        assert_eq!(value(Quantity::Loss), [0.002]);
        assert_eq!(value(Quantity::Gap), [30.0]);
        let part = Part::P99;
        assert_eq!(
            value(Quantity::Delay {
                part,
                over: Over::Best
            }),
            [4.0]
        );
        assert_eq!(
            value(Quantity::Delay {
                part,
                over: Over::Idle
            }),
            [5.0]
        );
        assert_eq!(value(Quantity::RoundTrip { part }), [30.0]);
    }
}
