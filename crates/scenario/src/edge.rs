//! The edge node as a system: its modes, and their parameters by name.
//!
//! `MODE[:STEERING][@PARAMETER=VALUE[:PARAMETER=VALUE]...]`, for example `lwip`,
//! `lwa:roundrobin@timer=50ms` or `lwip+visible:qdepl@boost=off:sack=strip`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use sumlink_edge::visible::Boost;
use sumlink_edge::{Config, LinkSettings, Mode, Sack, lwa::ReorderConfig, steering};

use crate::plan::LabConfig;
use sumlink_settings::units::{format_duration, parse_duration};

/// The TCP of the hosts at both ends of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    /// Linux defaults: SACK, losses by time (RACK), and spurious reductions undone.
    #[default]
    Linux,
    /// The same without SACK: losses by duplicate acknowledgments, and reductions undone by time
    /// stamps. Linux needs three duplicates, and after observed reordering more, up to
    /// `tcp_max_reordering` (300); the simulator always needs three.
    NoSack,
    /// SACK, but spurious reductions stay: no D-SACK, no time stamps, no detection of spurious
    /// timeouts (F-RTO).
    NoUndo,
    /// NewReno of RFC 6582: three duplicates, and no reduction is undone. The closest configuration
    /// of Linux.
    NewReno,
}

impl Hosts {
    /// All variants by name.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("linux", Self::Linux),
        ("nosack", Self::NoSack),
        ("noundo", Self::NoUndo),
        ("newreno", Self::NewReno),
    ];

    /// The variant with that name; the error lists all names.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        named(name, &Self::NAMES).map_err(|name| {
            let names = Self::NAMES.map(|(name, _)| name).join(", ");
            format!("there are no hosts '{name}' (hosts: {names})")
        })
    }
}

/// An edge node and its environment.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeVariant {
    /// The node's configuration, except its links.
    pub config: Config,
    /// Maximum packets queued before each link, 1 to 100000.
    pub queue: usize,
    /// For LWA: how long the receiver waits for a gap (t-Reordering).
    pub timer: Duration,
    /// The part of each link's one-way delay between the servers and the node; `None` means half of
    /// the shortest.
    pub far: Option<Duration>,
    /// TCP connections of each flow of the workload, 1 to 64.
    pub flows: usize,
    /// Acknowledgments are steered like other packets; otherwise they use the first link.
    pub steers_acks: bool,
    /// The hosts' TCP; `None` means the scenario's.
    pub hosts: Option<Hosts>,
}

/// Whether a mode has a parameter.
type Has = fn(Mode) -> bool;
/// Sets a value.
type Set = fn(&mut EdgeVariant, &str) -> Result<(), String>;

/// All parameters: name, values, applicable modes, setter.
const PARAMETERS: &[(&str, &str, Has, Set)] = &[
    ("queue", "packets, 1 to 100000", all, |variant, text| {
        within(text, 1..=100_000).map(|value| variant.queue = value)
    }),
    ("flows", "1 to 64", all, |variant, text| {
        within(text, 1..=64).map(|value| variant.flows = value)
    }),
    ("far", "a duration", all, |variant, text| {
        time(text).map(|value| variant.far = Some(value))
    }),
    ("acks", "first or steered", all, |variant, text| {
        named(text, &[("first", false), ("steered", true)]).map(|value| variant.steers_acks = value)
    }),
    (
        "hosts",
        "linux, nosack, noundo or newreno",
        all,
        |variant, text| named(text, &Hosts::NAMES).map(|value| variant.hosts = Some(value)),
    ),
    (
        "timer",
        "a duration",
        |mode| mode == Mode::Lwa,
        |variant, text| time(text).map(|value| variant.timer = value),
    ),
    ("boost", "on, off or many", visible, |variant, text| {
        named(text, &Boost::NAMES).map(|value| variant.config.visible.boost = value)
    }),
    ("sack", "rewrite or strip", visible, |variant, text| {
        let names = [("rewrite", Sack::Rewrite), ("strip", Sack::Strip)];
        named(text, &names).map(|value| variant.config.sack = value)
    }),
    ("proof", "on or off", visible, |variant, text| {
        named(text, &[("on", true), ("off", false)])
            .map(|value| variant.config.visible.proof = value)
    }),
    ("alpha", "0 to 1", visible, |variant, text| {
        within(text, 0.0..=1.0).map(|value| variant.config.visible.rise = value)
    }),
    ("beta", "0 to 1", visible, |variant, text| {
        within(text, 0.0..=1.0).map(|value| variant.config.visible.fall = value)
    }),
    ("theta", "0 to 1", visible, |variant, text| {
        within(text, 0.0..=1.0).map(|value| variant.config.visible.min_free = value)
    }),
    ("phi", "0 to 1", visible, |variant, text| {
        within(text, 0.0..=1.0).map(|value| variant.config.visible.boost_fraction = value)
    }),
    (
        "held",
        "duplicates, 0 to 100000",
        visible,
        |variant, text| {
            within(text, 0.0..=1e5).map(|value| variant.config.visible.held_at_first = value)
        },
    ),
    ("retransmissions", "0 to 1000", visible, |variant, text| {
        within(text, 0..=1000).map(|value| variant.config.visible.max_retransmissions = value)
    }),
];

impl EdgeVariant {
    /// The node with that name; `None` if the name does not denote a node.
    pub fn parse(name: &str) -> Option<Result<Self, String>> {
        let (head, parameters) = match name.split_once('@') {
            Some((head, parameters)) => (head, Some(parameters)),
            None => (name, None),
        };
        let (mode, steering) = match head.split_once(':') {
            Some((mode, steering)) => (mode, Some(steering)),
            None => (head, None),
        };
        let mode = Mode::named(mode)?;
        Some(Self::build(mode, steering, parameters))
    }

    /// The one-way delay between the servers and the node, which precedes the links of `config`.
    ///
    /// # Errors
    ///
    /// The requested delay is longer than that of a link.
    pub fn far_before(&self, config: &LabConfig) -> Result<Duration, String> {
        let shortest = config.shortest_delay();
        match self.far {
            Some(far) if far > shortest => Err(format!(
                "far={} is longer than the shortest link's delay of {}",
                format_duration(far),
                format_duration(shortest)
            )),
            far => Ok(far.unwrap_or(shortest / 2)),
        }
    }

    fn build(mode: Mode, policy: Option<&str>, parameters: Option<&str>) -> Result<Self, String> {
        let mut config = Config {
            mode,
            ..Config::default()
        };
        if let Some(policy) = policy {
            if steering::build(policy).is_none() {
                let names: Vec<&str> = steering::POLICIES.iter().map(|(name, ..)| *name).collect();
                let names = names.join(", ");
                return Err(format!(
                    "the edge node has no steering '{policy}' (steering: {names})"
                ));
            }
            policy.clone_into(&mut config.steering);
        }
        let mut variant = Self {
            config,
            queue: LinkSettings::default().queue,
            timer: ReorderConfig::default().timer,
            far: None,
            flows: 1,
            steers_acks: false,
            hosts: None,
        };
        for parameter in parameters.into_iter().flat_map(|all| all.split(':')) {
            variant.set(parameter)?;
        }
        Ok(variant)
    }

    /// `NAME=VALUE`.
    fn set(&mut self, parameter: &str) -> Result<(), String> {
        let mode = self.config.mode;
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let known = PARAMETERS
            .iter()
            .find(|(known, _, has, _)| *known == name && has(mode));
        let Some((_, values, _, set)) = known else {
            let names: Vec<&str> = PARAMETERS
                .iter()
                .filter(|(_, _, has, _)| has(mode))
                .map(|(name, ..)| *name)
                .collect();
            let (mode, names) = (mode_name(mode), names.join(", "));
            return Err(format!(
                "{mode} has no parameter '{name}' (parameters: {names})"
            ));
        };
        set(self, value).map_err(|value| format!("{name}={value}: {values}"))
    }

    /// The configuration of a node with this number of links.
    pub fn node(&self, links: usize) -> Config {
        let link = LinkSettings {
            queue: self.queue,
            ..LinkSettings::default()
        };
        Config {
            links: vec![link; links],
            ..self.config.clone()
        }
    }
}

fn all(_: Mode) -> bool {
    true
}

fn visible(mode: Mode) -> bool {
    mode == Mode::LwipVisible
}

fn mode_name(mode: Mode) -> &'static str {
    let known = Mode::NAMES.iter().find(|(_, of)| *of == mode);
    known.map_or("", |(name, _)| name)
}

/// A number within a range; the error is the text.
fn within<T: FromStr + PartialOrd + Display>(
    text: &str,
    range: RangeInclusive<T>,
) -> Result<T, String> {
    let value = text.parse().ok().filter(|value| range.contains(value));
    value.ok_or_else(|| text.to_owned())
}

fn named<T: Copy>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
    let value = names.iter().find(|(name, _)| *name == text);
    value
        .map(|(_, value)| *value)
        .ok_or_else(|| text.to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> EdgeVariant {
        EdgeVariant::parse(name).unwrap().unwrap()
    }

    fn error(name: &str) -> String {
        EdgeVariant::parse(name).unwrap().unwrap_err()
    }

    #[test]
    fn every_mode_takes_every_steering() {
        for (name, mode) in Mode::NAMES {
            assert_eq!(parse(name).config.mode, mode);
            for (policy, ..) in steering::POLICIES {
                assert_eq!(parse(&format!("{name}:{policy}")).config.steering, *policy);
            }
        }
        assert_eq!(EdgeVariant::parse("sumlink:fbdt"), None);
        assert_eq!(EdgeVariant::parse("lwipper"), None);
    }

    #[test]
    fn parameters_set_their_fields() {
        let variant = parse(
            "lwip+visible:lrtt@boost=off:sack=strip:alpha=0.5:beta=0.05:theta=0.1:phi=0.3:held=100:\
             retransmissions=5:queue=20:flows=4:far=10ms:hosts=newreno",
        );
        let visible = &variant.config.visible;
        assert!(visible.boost == Boost::Off && variant.config.sack == Sack::Strip);
        for (name, boost) in Boost::NAMES {
            let variant = parse(&format!("lwip+visible@boost={name}"));
            assert_eq!(variant.config.visible.boost, boost);
        }
        assert_eq!((visible.rise, visible.fall), (0.5, 0.05));
        assert_eq!((visible.min_free, visible.boost_fraction), (0.1, 0.3));
        assert_eq!(
            (visible.held_at_first, visible.max_retransmissions),
            (100.0, 5)
        );
        assert_eq!((variant.flows, variant.hosts), (4, Some(Hosts::NewReno)));
        assert_eq!(variant.far, Some(Duration::from_millis(10)));
        let node = variant.node(3);
        assert!(node.check().is_ok() && node.links.len() == 3 && node.links[2].queue == 20);
        assert!(!variant.steers_acks && parse("lwip@acks=steered").steers_acks);
        assert_eq!(parse("lwa@timer=50ms").timer, Duration::from_millis(50));
    }

    #[test]
    fn errors_list_the_choices() {
        assert_eq!(
            error("lwip:best"),
            "the edge node has no steering 'best' (steering: qdepl, lrtt, roundrobin, flowhash)"
        );
        assert_eq!(
            error("lwip@boost=off"),
            "lwip has no parameter 'boost' (parameters: queue, flows, far, acks, hosts)"
        );
        assert_eq!(error("lwip+visible@alpha=2"), "alpha=2: 0 to 1");
        assert_eq!(error("lwip+visible@alpha"), "alpha=: 0 to 1");
        assert_eq!(error("lwa@timer=soon"), "timer=soon: a duration");
        assert!(error("lwip@").starts_with("lwip has no parameter ''"));
        assert!(error("lwip@flows=0").starts_with("flows=0"));
        assert!(error("lwip+visible@theta=NaN").starts_with("theta=NaN"));
    }
}
