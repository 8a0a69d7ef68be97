//! Checks the figures of links against the links' own counters.

use std::collections::BTreeMap;

use crate::error::LabError;
use crate::results::{Measurement, Series};

/// A link measured alone carries at least this share of all wire bytes: the others have no traffic.
const OWN_PART: f64 = 0.9;
/// A link carries at least this share of the bytes that a program receives over it. The wire adds
/// headers, but the counters are read shortly before the end of the last flow and may lack this
/// share and a few packets.
const PART: f64 = 0.98;
const PACKETS: f64 = 4500.0;

/// Traffic of the links in the directions of the data, by name.
pub(super) type Carried = BTreeMap<String, Counted>;

/// Traffic of a link from the start of the laboratory to the end of the run, by its own counters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// Wire bytes delivered.
    pub(super) bytes: u64,
    /// Whether it is up at the end and has a rate. For other links no traffic is a valid figure: 0.
    pub(super) is_usable: bool,
}

/// Checks every figure that is attributed to a link: traffic bound to it, and all traffic where a
/// link is measured `alone`. `bound` lists the links that the system's routes are bound to. Without
/// emulation there are no counters, and the check is skipped.
///
/// # Errors
///
/// [`LabError::Refused`] with a line that names the link and its traffic.
pub(super) fn check(
    measurement: &Measurement,
    alone: Option<&str>,
    bound: &[&str],
    carried: &Carried,
) -> Result<(), LabError> {
    if carried.is_empty() {
        return Ok(());
    }
    let of = |link: &str| carried.get(link).map_or(0, |counted| counted.bytes) as f64;
    let all = carried.values().map(|counted| counted.bytes).sum::<u64>() as f64;
    let most = carried.iter().max_by_key(|(_, counted)| counted.bytes);
    let most = most.map_or("no link", |(link, _)| link.as_str());
    for link in alone.iter().chain(bound) {
        let is_usable = carried.get(*link).is_none_or(|counted| counted.is_usable);
        let is_elsewhere = alone == Some(*link) && all > 0.0;
        if of(link) <= 0.0 && (is_usable || is_elsewhere) {
            let instead = match is_elsewhere {
                true => format!("; {most} carried {:.0} bytes instead", of(most)),
                false => String::new(),
            };
            return Err(refused(link, &format!("it carried nothing{instead}")));
        }
    }
    // A few packets that hosts send on their own, such as neighbor discovery, do not count.
    let is_elsewhere = |link: &&str| of(link) < OWN_PART * all && all - of(link) > PACKETS;
    if let Some(link) = alone.filter(is_elsewhere) {
        let part = 100.0 * of(link) / all;
        let what = format!("it carried {part:.0} % of the wire bytes, and {most} the most");
        return Err(refused(link, &what));
    }
    for (link, bytes) in claimed(measurement) {
        let carried = of(link);
        if carried + PACKETS < bytes * PART {
            let what = format!("{bytes:.0} bytes arrived over it, and it carried {carried:.0}");
            return Err(refused(link, &what));
        }
    }
    Ok(())
}

/// Bytes attributed to each link by the figures of flows, objects or a video, whichever are larger.
fn claimed(measurement: &Measurement) -> BTreeMap<&str, f64> {
    let mut flows: BTreeMap<&str, f64> = BTreeMap::new();
    for flow in &measurement.flows {
        if let Some(link) = &flow.link {
            *flows.entry(link).or_default() += bytes(&flow.goodput);
        }
    }
    let mut objects: BTreeMap<&str, f64> = BTreeMap::new();
    for object in &measurement.completions {
        if let Some(link) = &object.link {
            *objects.entry(link).or_default() += object.size_bytes as f64;
        }
    }
    for (link, bytes) in objects {
        let known = flows.entry(link).or_default();
        *known = known.max(bytes);
    }
    flows
}

fn bytes(series: &Series) -> f64 {
    series.bps.iter().sum::<f64>() * series.interval_s / 8.0
}

fn refused(link: &str, what: &str) -> LabError {
    LabError::Refused(format!("link {link} has no figure: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Completion, Flow};

    /// Flows with the bytes received over each link.
    fn measured(flows: &[(Option<&str>, f64)]) -> Measurement {
        let series = |bytes: f64| Series {
            start_s: 0.0,
            interval_s: 0.5,
            bps: vec![bytes * 8.0; 2],
        };
        Measurement {
            flows: flows
                .iter()
                .map(|(link, bytes)| Flow {
                    link: link.map(str::to_owned),
                    direction: "down".to_owned(),
                    goodput: series(*bytes),
                    ..Flow::default()
                })
                .collect(),
            ..Measurement::default()
        }
    }

    /// The objection for this traffic of the links.
    fn objection(
        measurement: &Measurement,
        carried: &[(&str, u64)],
        alone: Option<&str>,
        bound: &[&str],
    ) -> String {
        // A link named "dead" is down.
        let carried = carried.iter().map(|(link, bytes)| {
            let (bytes, is_usable) = (*bytes, *link != "dead");
            ((*link).to_owned(), Counted { bytes, is_usable })
        });
        match check(measurement, alone, bound, &carried.collect()) {
            Ok(()) => String::new(),
            Err(error) => {
                assert!(matches!(error, LabError::Refused(_)), "{error}");
                error.to_string()
            }
        }
    }

    #[test]
    fn a_command_that_ignores_its_link_has_no_figure_for_it() {
        let command = measured(&[]);
        let first = [("wifi", 1_000_000), ("lte", 0)];
        assert_eq!(objection(&command, &first, Some("wifi"), &[]), "");
        let error = objection(&command, &first, Some("lte"), &[]);
        let line = "link lte has no figure: it carried nothing; wifi carried 1000000 bytes instead";
        assert!(error.ends_with(line), "{error}");
        let mixed = [("wifi", 800_000), ("lte", 200_000)];
        let error = objection(&command, &mixed, Some("lte"), &[]);
        assert!(
            error.contains("20 % of the wire bytes, and wifi the most"),
            "{error}"
        );
    }

    #[test]
    fn a_link_must_have_carried_the_traffic_bound_to_it() {
        let bound = ["wifi", "lte"];
        let both = measured(&[(Some("wifi"), 9e5), (Some("lte"), 3e5)]);
        let fine = [("wifi", 1_000_000), ("lte", 400_000)];
        assert_eq!(objection(&both, &fine, None, &bound), "");
        let absent = [("wifi", 1_000_000), ("lte", 0)];
        let one = measured(&[(Some("wifi"), 9e5)]);
        assert!(objection(&one, &absent, None, &bound).contains("link lte has no figure"));
        let elsewhere = [("wifi", 1_300_000), ("lte", 1000)];
        let error = objection(&both, &elsewhere, None, &bound);
        assert!(
            error.contains("300000 bytes arrived over it, and it carried 1000"),
            "{error}"
        );
        let mut object = measured(&[]);
        object.completions = vec![Completion {
            size_bytes: 50_000,
            link: Some("lte".to_owned()),
            ..Completion::default()
        }];
        let error = objection(&object, &elsewhere, None, &[]);
        assert!(error.contains("50000 bytes arrived over it"), "{error}");
    }

    #[test]
    fn zero_is_a_valid_figure_of_a_link_that_is_down() {
        let flows = measured(&[(Some("wifi"), 9e5), (Some("dead"), 0.0)]);
        let carried = [("wifi", 1_000_000), ("dead", 0)];
        assert_eq!(objection(&flows, &carried, None, &["wifi", "dead"]), "");
        assert_eq!(
            objection(
                &measured(&[]),
                &[("wifi", 0), ("dead", 0)],
                Some("dead"),
                &[]
            ),
            ""
        );
        // A link that is down still objects to figures carried by another link.
        assert!(objection(&flows, &carried, Some("dead"), &[]).contains("wifi carried 1000000"));
    }

    #[test]
    fn a_bond_may_omit_a_link_and_cables_do_not_count() {
        let bond = measured(&[(None, 9e5)]);
        assert_eq!(
            objection(&bond, &[("wifi", 1_000_000), ("lte", 0)], None, &[]),
            ""
        );
        let bound = measured(&[(Some("wifi"), 1e6)]);
        assert_eq!(objection(&bound, &[], Some("wifi"), &["wifi"]), "");
    }
}
