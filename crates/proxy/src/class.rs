//! Rules that assign a class to a connection's stream, by target port, DSCP or SOCKS user name.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use sumlink_transport::Class;

/// One rule: a connection that meets every condition gets the class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassRule {
    /// Target ports; any if `None`.
    pub ports: Option<Ports>,
    /// DSCP of the program's connection; any if `None`.
    pub dscp: Option<Dscp>,
    /// Name by which the program authenticates at the SOCKS5 entry; any or none if `None`.
    pub user: Option<String>,
    /// The class.
    pub class: Class,
}

/// Properties of a connection when its stream is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow<'a> {
    /// The target's port.
    pub port: u16,
    /// DSCP of the connection's first packet, if the system reports it.
    pub dscp: Option<u8>,
    /// SOCKS user name, if the program sent one.
    pub user: Option<&'a [u8]>,
}

/// The class of the first matching rule; `None` if none matches, in which case the class is learned
/// from the traffic.
pub fn class_of(rules: &[ClassRule], flow: &Flow<'_>) -> Option<Class> {
    let fits = |rule: &&ClassRule| {
        let port = rule
            .ports
            .as_ref()
            .is_none_or(|ports| ports.contain(flow.port));
        let dscp = rule.dscp.is_none_or(|dscp| flow.dscp == Some(dscp.0));
        let user = rule.user.as_ref();
        port && dscp && user.is_none_or(|user| flow.user == Some(user.as_bytes()))
    };
    rules.iter().find(fits).map(|rule| rule.class)
}

/// The class of a flow of datagrams: that of the first matching rule, or else conversational for a
/// DSCP of calls and games, [`CONVERSATIONAL_DSCP`] or more. `None` leaves the class to the
/// session.
pub fn class_of_datagrams(rules: &[ClassRule], flow: &Flow<'_>) -> Option<Class> {
    let marked = || {
        let dscp = flow.dscp.filter(|dscp| *dscp >= CONVERSATIONAL_DSCP);
        dscp.map(|_| Class::Conversational)
    };
    class_of(rules, flow).or_else(marked)
}

/// The lowest DSCP of real-time traffic: CS4. Above are AF41 to AF43 for video calls, CS5 and EF
/// for telephony (RFC 4594, figure 3), and network control.
pub const CONVERSATIONAL_DSCP: u8 = 32;

/// Ports and port ranges: `22`, `5004-5005,3478`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(Vec<RangeInclusive<u16>>);

impl Ports {
    /// Whether the port is one of them.
    pub fn contain(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// A differentiated services code point (RFC 2474): 0 to 63, or one of the names of RFC 2474
/// (`cs0` to `cs7`), RFC 2597 (`af11` to `af43`), RFC 3246 (`ef`) and RFC 8622 (`le`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(u8);

/// A text that is not a valid port list, code point or class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClassRuleError {
    /// Not a list of ports.
    #[error(
        "`{0}` is not a port list; use numbers from 1 to 65535 and ranges, for example 22 or \
         5004-5005,3478"
    )]
    Ports(String),
    /// Not a code point.
    #[error("`{0}` is not a DSCP; use 0 to 63, ef, le, cs0 to cs7, or af11 to af43")]
    Dscp(String),
    /// Not a class.
    #[error(
        "`{0}` is not a class; the classes are {names}",
        names = Class::ALL.map(Class::name).join(", ")
    )]
    Class(String),
}

/// Parses the name of a class.
pub fn parse_class(name: &str) -> Result<Class, ClassRuleError> {
    let mut all = Class::ALL.into_iter();
    all.find(|class| class.name() == name)
        .ok_or_else(|| ClassRuleError::Class(name.to_owned()))
}

impl FromStr for Ports {
    type Err = ClassRuleError;

    fn from_str(text: &str) -> Result<Self, ClassRuleError> {
        let wrong = |part: &str| ClassRuleError::Ports(part.to_owned());
        let port = |number: &str| number.trim().parse::<u16>().ok().filter(|port| *port > 0);
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = port(first)
                .zip(port(last))
                .filter(|(first, last)| first <= last);
            range
                .map(|(first, last)| first..=last)
                .ok_or_else(|| wrong(part.trim()))
        };
        text.split(',')
            .map(range)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl FromStr for Dscp {
    type Err = ClassRuleError;

    fn from_str(text: &str) -> Result<Self, ClassRuleError> {
        let wrong = || ClassRuleError::Dscp(text.to_owned());
        let name = text.to_ascii_lowercase();
        let digits = |prefix: &str| name.strip_prefix(prefix).map(str::as_bytes);
        let value = match name.as_str() {
            "ef" => 46,
            "le" => 1,
            _ => match (digits("cs"), digits("af")) {
                (Some(&[class @ b'0'..=b'7']), _) => (class - b'0') * 8,
                // RFC 2597, section 6: class 1 to 4, drop precedence 1 to 3
                (_, Some(&[class @ b'1'..=b'4', drop @ b'1'..=b'3'])) => {
                    (class - b'0') * 8 + (drop - b'0') * 2
                }
                _ => name
                    .parse()
                    .ok()
                    .filter(|value| *value < 64)
                    .ok_or_else(wrong)?,
            },
        };
        Ok(Self(value))
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(ports: &str, dscp: &str, user: &str, class: Class) -> ClassRule {
        ClassRule {
            ports: (!ports.is_empty()).then(|| ports.parse().unwrap()),
            dscp: (!dscp.is_empty()).then(|| dscp.parse().unwrap()),
            user: (!user.is_empty()).then(|| user.to_owned()),
            class,
        }
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let rules = [
            rule("22", "8", "", Class::Background),
            rule("22,5000-5010", "", "", Class::Interactive),
            rule("", "ef", "", Class::Conversational),
            rule("", "", "tv", Class::Streaming),
        ];
        let class = |port, dscp, user: &'static str| {
            let user = (!user.is_empty()).then_some(user.as_bytes());
            class_of(&rules, &Flow { port, dscp, user })
        };
        assert_eq!(class(22, Some(8), ""), Some(Class::Background));
        assert_eq!(class(22, Some(46), ""), Some(Class::Interactive));
        assert_eq!(class(5010, None, ""), Some(Class::Interactive));
        assert_eq!(class(80, Some(46), "tv"), Some(Class::Conversational));
        assert_eq!(class(80, Some(0), "tv"), Some(Class::Streaming));
        assert_eq!(class(80, Some(0), "tvs"), None);
        assert_eq!(class(80, None, ""), None);
    }

    #[test]
    fn datagrams_of_calls_are_conversational_unless_a_rule_says_otherwise() {
        let rules = [rule("5004", "", "", Class::Streaming)];
        let class = |port, dscp| {
            let user = None;
            class_of_datagrams(&rules, &Flow { port, dscp, user })
        };
        assert_eq!(class(5004, Some(46)), Some(Class::Streaming));
        assert_eq!(class(3478, Some(46)), Some(Class::Conversational));
        assert_eq!(class(3478, Some(34)), Some(Class::Conversational));
        assert_eq!(class(3478, Some(31)), None);
        assert_eq!(class(3478, None), None);
    }

    #[test]
    fn code_points_have_numbers_and_names() {
        let value = |text: &str| text.parse::<Dscp>().map(|dscp| dscp.0);
        for (text, expected) in [
            ("0", 0),
            ("63", 63),
            ("ef", 46),
            ("EF", 46),
            ("le", 1),
            ("cs1", 8),
            ("cs7", 56),
            ("af11", 10),
            ("af43", 38),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
        for text in ["", "64", "-1", "cs8", "af14", "af50", "af1", "voice"] {
            assert_eq!(value(text), Err(ClassRuleError::Dscp(text.to_owned())));
        }
    }

    #[test]
    fn ports_display_as_they_are_written() {
        for text in ["22", "5004-5005,3478", "1-65535"] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), text);
        }
        assert_eq!("80-80, 443".parse::<Ports>().unwrap().to_string(), "80,443");
    }

    #[test]
    fn a_bad_port_is_named() {
        for (text, part) in [
            ("0", "0"),
            ("22,x", "x"),
            ("70000", "70000"),
            ("9-8", "9-8"),
            ("", ""),
            ("1-", "1-"),
        ] {
            let error = text.parse::<Ports>().unwrap_err();
            assert_eq!(error, ClassRuleError::Ports(part.to_owned()), "{text}");
        }
        assert!(
            parse_class("bulk")
                .unwrap_err()
                .to_string()
                .contains("background")
        );
        assert_eq!(parse_class("streaming"), Ok(Class::Streaming));
    }
}
