//! Rules as text, and in files.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sumlink_proxy::Ports;

use super::conditions::{cgroup, network};
use super::{Action, Conditions, Domains, Protocol, Rule, RuleError};

/// Longest name of a network interface (`IFNAMSIZ` less the terminator).
const MAX_LINK: usize = 15;

/// A rule in a file, or the words of one, before it is checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    domain: Option<List>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<List>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<List>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<List>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cgroup: Option<List>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<List>,
    action: String,
}

/// Values of a condition: a number, a text with commas, or a list of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum List {
    Number(u32),
    Text(String),
    Many(Vec<List>),
}

impl List {
    /// The values, without the spaces around them.
    fn values(&self) -> Vec<String> {
        match self {
            Self::Number(number) => vec![number.to_string()],
            Self::Text(text) => {
                let values = text.split(',').map(str::trim);
                values.map(str::to_owned).collect()
            }
            Self::Many(many) => many.iter().flat_map(Self::values).collect(),
        }
    }

    /// The shortest form of some values.
    fn of(values: impl IntoIterator<Item = String>) -> Option<Self> {
        let mut values: Vec<Self> = values.into_iter().map(Self::Text).collect();
        match values.len() {
            0 => None,
            1 => values.pop(),
            _ => Some(Self::Many(values)),
        }
    }
}

/// The checked values of a condition; none without the condition.
fn each<T>(
    list: &Option<List>,
    name: &str,
    parse: impl Fn(&str) -> Result<T, RuleError>,
) -> Result<Vec<T>, RuleError> {
    let Some(list) = list else {
        return Ok(Vec::new());
    };
    let values = list.values();
    if values.iter().all(String::is_empty) {
        return Err(RuleError::NoValue(name.to_owned()));
    }
    values.iter().map(|value| parse(value)).collect()
}

impl TryFrom<Raw> for Rule {
    type Error = RuleError;

    fn try_from(raw: Raw) -> Result<Self, RuleError> {
        let mut domains = Domains::default();
        for name in each(&raw.domain, "domain", |name| Ok(name.to_owned()))? {
            domains.insert(&name)?;
        }
        let to_network =
            |text: &str| network(text).ok_or_else(|| RuleError::Network(text.to_owned()));
        let ports = each(&raw.port, "port", |port| Ok(port.to_owned()))?;
        let ports = match ports.is_empty() {
            true => None,
            false => Some(ports.join(",").parse::<Ports>()?),
        };
        let protocol = raw
            .protocol
            .as_deref()
            .map(str::parse::<Protocol>)
            .transpose()?;
        if protocol == Some(Protocol::Icmp) && ports.is_some() {
            return Err(RuleError::PortsOfIcmp);
        }
        let conditions = Conditions {
            domains,
            networks: each(&raw.to, "to", to_network)?,
            ports,
            protocol,
            users: each(&raw.user, "user", str::parse)?,
            cgroups: each(&raw.cgroup, "cgroup", cgroup)?,
            devices: each(&raw.device, "device", str::parse)?,
        };
        let of_host = !conditions.users.is_empty() || !conditions.cgroups.is_empty();
        if of_host && !conditions.devices.is_empty() {
            return Err(RuleError::BothSides);
        }
        let action = raw.action.parse::<Action>()?;
        Ok(Self { conditions, action })
    }
}

impl From<Rule> for Raw {
    fn from(rule: Rule) -> Self {
        let Rule { conditions, action } = rule;
        fn texts<T: fmt::Display>(values: &[T]) -> Option<List> {
            List::of(values.iter().map(T::to_string))
        }
        Self {
            domain: List::of(conditions.domains.iter().map(str::to_owned)),
            to: texts(&conditions.networks),
            port: conditions.ports.map(|ports| List::Text(ports.to_string())),
            protocol: conditions.protocol.map(|protocol| protocol.to_string()),
            user: texts(&conditions.users),
            cgroup: texts(&conditions.cgroups),
            device: texts(&conditions.devices),
            action: action.to_string(),
        }
    }
}

/// `CONDITION... ACTION`, in any order. An action is `bond`, `direct`, `block` or `link NAME`. A
/// condition is one of these, with several values between commas:
///
/// | condition | met by |
/// |---|---|
/// | `domain=example.org` | this name and all names below it |
/// | `to=192.0.2.0/24` | targets in this network |
/// | `port=443,8000-8010` | targets with these ports |
/// | `protocol=udp` | `tcp`, `udp` or `icmp` |
/// | `user=alice` | programs of this user (name or id) on this machine |
/// | `cgroup=/user.slice` | programs in this control group on this machine, or in one below it |
/// | `device=192.168.1.7` | the machine with this address or MAC, or all of a network |
impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut raw = Raw::default();
        let mut action: Vec<&str> = Vec::new();
        for word in text.split_whitespace() {
            let Some((name, values)) = word.split_once('=') else {
                action.push(word);
                continue;
            };
            let list = List::Text(values.to_owned());
            let is_new = match name {
                "domain" => raw.domain.replace(list).is_none(),
                "to" => raw.to.replace(list).is_none(),
                "port" => raw.port.replace(list).is_none(),
                "protocol" => raw.protocol.replace(values.to_owned()).is_none(),
                "user" => raw.user.replace(list).is_none(),
                "cgroup" => raw.cgroup.replace(list).is_none(),
                "device" => raw.device.replace(list).is_none(),
                _ => return Err(RuleError::Condition(word.to_owned())),
            };
            if !is_new {
                return Err(RuleError::Twice(name.to_owned()));
            }
        }
        raw.action = action.join(" ");
        Self::try_from(raw)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = Raw::from(self.clone());
        let lists = [
            ("domain", &raw.domain),
            ("to", &raw.to),
            ("port", &raw.port),
            ("user", &raw.user),
            ("cgroup", &raw.cgroup),
            ("device", &raw.device),
        ];
        for (name, list) in lists {
            if let Some(list) = list {
                write!(f, "{name}={} ", list.values().join(","))?;
            }
        }
        if let Some(protocol) = &raw.protocol {
            write!(f, "protocol={protocol} ")?;
        }
        f.write_str(&raw.action)
    }
}

impl FromStr for Action {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            [] => Err(RuleError::NoAction),
            ["bond"] => Ok(Self::Bond),
            ["direct"] => Ok(Self::Direct),
            ["block"] => Ok(Self::Block),
            ["link", name] => {
                let is_name = name.len() <= MAX_LINK
                    && !name.contains('/')
                    && !name.chars().any(char::is_control);
                match is_name {
                    true => Ok(Self::Link((*name).to_owned())),
                    false => Err(RuleError::Link((*name).to_owned())),
                }
            }
            ["link"] => Err(RuleError::Link(String::new())),
            // A forgotten `=`, or a word of an action that does not exist.
            _ => Err(RuleError::Action(words.join(" "))),
        }
    }
}

impl FromStr for Protocol {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        match text.to_ascii_lowercase().as_str() {
            "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            "icmp" => Ok(Self::Icmp),
            _ => Err(RuleError::Protocol(text.to_owned())),
        }
    }
}
