//! The parts of conditions: domains, users, control groups and devices.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::RuleError;

/// Longest domain name and longest label, in bytes (RFC 1035, section 2.3.4, without the dot at the
/// end and the lengths).
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A set of domains, each with all names below it. Finding a name in a large set takes as long as
/// in a small one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domains(BTreeSet<String>);

impl Domains {
    /// Adds a domain: `example.org` or `*.example.org`, which mean the same.
    ///
    /// # Errors
    ///
    /// [`RuleError::Domain`] if it is not a domain name.
    pub fn insert(&mut self, text: &str) -> Result<(), RuleError> {
        let name = text.strip_prefix("*.").unwrap_or(text);
        let name = name.trim_matches('.').to_ascii_lowercase();
        let is_label = |label: &str| {
            let mut bytes = label.bytes();
            !label.is_empty()
                && label.len() <= MAX_LABEL
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        // An address would never match: programs that have one do not ask for a name.
        if name.len() > MAX_NAME || !name.split('.').all(is_label) || name.parse::<IpAddr>().is_ok()
        {
            return Err(RuleError::Domain(text.to_owned()));
        }
        self.0.insert(name);
        Ok(())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The domains in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The narrowest domain that contains `name`.
    pub fn matching(&self, name: &str) -> Option<&str> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let mut rest = name.as_str();
        loop {
            if let Some(domain) = self.0.get(rest) {
                return Some(domain);
            }
            (_, rest) = rest.split_once('.')?;
        }
    }
}

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// By id.
    Id(u32),
    /// By name.
    Name(String),
}

impl User {
    pub(super) fn is(&self, uid: Option<u32>, name: Option<&str>) -> bool {
        match self {
            Self::Id(id) => uid == Some(*id),
            Self::Name(user) => name == Some(user),
        }
    }
}

impl FromStr for User {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        let is_name = !text.is_empty()
            && !text.starts_with(|first: char| first.is_ascii_digit() || first == '-')
            && text
                .chars()
                .all(|c| c.is_alphanumeric() || "._-@$".contains(c));
        match is_name {
            true => Ok(Self::Name(text.to_owned())),
            false => Err(RuleError::User(text.to_owned())),
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let wrong = || RuleError::Device(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts
                .next()
                .filter(|part| part.len() == 2)
                .ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        match parts.next() {
            None => Ok(Self(bytes)),
            Some(_) => Err(wrong()),
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A machine on the network behind this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// By its hardware address.
    Mac(Mac),
    /// By its address, or several by their network.
    Network(IpNet),
}

impl Device {
    pub(super) fn is(&self, ip: Option<IpAddr>, mac: Option<Mac>) -> bool {
        match self {
            Self::Mac(known) => mac == Some(*known),
            Self::Network(network) => ip.is_some_and(|ip| network.contains(&ip)),
        }
    }
}

impl FromStr for Device {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if let Ok(mac) = text.parse() {
            return Ok(Self::Mac(mac));
        }
        let network = network(text).ok_or_else(|| RuleError::Device(text.to_owned()))?;
        Ok(Self::Network(network))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => mac.fmt(f),
            Self::Network(network) => network.fmt(f),
        }
    }
}

/// A network, or an address as the network with only that address. Bits behind the prefix are
/// cleared, and IPv4 inside of IPv6 is IPv4.
pub(super) fn network(text: &str) -> Option<IpNet> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(IpNet::from(ip.to_canonical()));
    }
    text.parse::<IpNet>().ok().map(|network| network.trunc())
}

/// The path of a control group without the mount point and the slash at the end.
pub(super) fn cgroup(text: &str) -> Result<String, RuleError> {
    let path = text.strip_prefix("/sys/fs/cgroup").unwrap_or(text);
    let path = path.trim_end_matches('/');
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    let is_plain = |c: char| !c.is_control();
    match path.strip_prefix('/') {
        Some(parts) if parts.split('/').all(is_part) && path.chars().all(is_plain) => {
            Ok(path.to_owned())
        }
        None if path.is_empty() && text.starts_with('/') => Ok("/".to_owned()),
        _ => Err(RuleError::Cgroup(text.to_owned())),
    }
}

/// Whether the control group `path` is `above`, or one below it.
pub(super) fn is_within(path: &str, above: &str) -> bool {
    match path.strip_prefix(above.trim_end_matches('/')) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}
