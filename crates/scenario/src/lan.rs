//! The topology with a gateway: a LAN host reaches an internet host through the client and the
//! links.

/// Name of the topology in scenario files.
pub const LAN: &str = "lan";
/// Name of the topology without a gateway.
pub const PAIR: &str = "pair";

/// The interface of the gateway to the LAN, and that of the LAN host.
pub const LAN_INTERFACE: &str = "lan0";
/// The interface between the server and the internet host.
pub const UPLINK: &str = "net0";
/// The names that links cannot have.
pub(crate) const INTERFACES: [&str; 2] = [LAN_INTERFACE, UPLINK];

/// The surroundings of the links: a host behind the client, and one behind the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LanConfig {
    /// The reverse path filter of the gateway's interfaces.
    pub rp_filter: ReversePath,
}

/// Which packets the kernel drops because of their source address (RFC 3704), as in the sysctl
/// `rp_filter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePath {
    /// None.
    #[default]
    Off,
    /// Those with a source that is not reached over the interface on which they arrive.
    Strict,
    /// Those with a source that is not reached at all.
    Loose,
}

impl ReversePath {
    const NAMES: [(&'static str, Self); 3] = [
        ("off", Self::Off),
        ("strict", Self::Strict),
        ("loose", Self::Loose),
    ];

    /// The filter of that name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let named = Self::NAMES.iter().find(|(name, _)| *name == text);
        let named = named.map(|(_, filter)| *filter);
        named.ok_or_else(|| format!("'{text}' is none of off, strict, loose"))
    }

    /// The value of the sysctl.
    pub fn sysctl(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Strict => 1,
            Self::Loose => 2,
        }
    }
}

/// Parses the name of a topology; whether it has a LAN.
pub(crate) fn parse_topology(text: &str) -> Result<bool, String> {
    match text {
        PAIR => Ok(false),
        LAN => Ok(true),
        _ => Err(format!("'{text}' is none of {PAIR}, {LAN}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_have_the_numbers_of_the_kernel() {
        let number = |name| ReversePath::parse(name).map(ReversePath::sysctl);
        assert_eq!(
            ["off", "strict", "loose"].map(number),
            [Ok(0), Ok(1), Ok(2)]
        );
        assert!(
            number("on")
                .unwrap_err()
                .contains("none of off, strict, loose")
        );
        assert_eq!(ReversePath::default(), ReversePath::Off);
    }
}
