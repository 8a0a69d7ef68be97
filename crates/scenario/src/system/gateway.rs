//! The options of sumlink systems where the client is a gateway.

use super::System;

/// How the traffic reaches sumlink where the client is a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayVariant {
    /// The way of capture.
    pub capture: Option<Capture>,
    /// Whether the traffic starts on the gateway itself and not on the LAN host.
    pub from_gateway: bool,
}

/// A way from the traffic's programs into sumlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// nftables redirects connections.
    Nftables,
    /// A TUN device takes packets.
    Tun,
    /// The programs speak SOCKS5 to a client that captures nothing: the reference.
    Socks,
}

impl Capture {
    const NAMES: [(&'static str, Self); 3] = [
        ("nftables", Self::Nftables),
        ("tun", Self::Tun),
        ("socks", Self::Socks),
    ];

    /// The name in systems and, except for `socks`, in `[gateway]`.
    pub fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(_, capture)| *capture == self);
        named.map_or("", |(name, _)| *name)
    }
}

impl GatewayVariant {
    /// Why it has no meaning in this topology; `None` if it has one.
    pub fn missing(self, has_lan: bool) -> Option<String> {
        let given = self != Self::default();
        (given && !has_lan)
            .then(|| "capture and from are for scenarios with topology = \"lan\"".to_owned())
    }

    /// Sets a value; `None` if the key is not about gateways.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Option<Result<(), String>> {
        match key {
            "capture" => {
                let named = Capture::NAMES.iter().find(|(name, _)| *name == value);
                self.capture = named.map(|(_, capture)| *capture);
                let known = self.capture.is_some();
                Some(
                    known
                        .then_some(())
                        .ok_or_else(|| format!("'{value}' is none of nftables, tun, socks")),
                )
            }
            "from" => {
                self.from_gateway = value == "gateway";
                Some(match value {
                    "lan" | "gateway" => Ok(()),
                    _ => Err(format!("'{value}' is none of lan, gateway")),
                })
            }
            _ => None,
        }
    }
}

/// The name of the same system with the traffic over SOCKS5 instead of a capture, for comparison
/// with the ways of capture. `None` for systems without captures.
pub fn with_socks(name: &str) -> Option<String> {
    let Ok(System::Sumlink(variant)) = System::parse(name) else {
        return None;
    };
    let socks = format!("capture={}", Capture::Socks.name());
    if let Some(capture) = variant.gateway.capture {
        return Some(name.replace(&format!("capture={}", capture.name()), &socks));
    }
    let (head, tail) = name.split_at(name.find(['@', '+']).unwrap_or(name.len()));
    Some(format!("{head}:{socks}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_compared_with_socks() {
        let named = |name: &str| with_socks(name);
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(named("sumlink:fbdt"), some("sumlink:fbdt:capture=socks"));
        assert_eq!(
            named("sumlink:fbdt:capture=tun:from=gateway+bbr"),
            some("sumlink:fbdt:capture=socks:from=gateway+bbr")
        );
        assert_eq!(
            named("sumlink:fbdt@base+bbr"),
            some("sumlink:fbdt:capture=socks@base+bbr")
        );
        assert_eq!(named("mptcp"), None);
        let System::Sumlink(variant) =
            System::parse("sumlink:fbdt:capture=tun:from=gateway").unwrap()
        else {
            panic!("no sumlink");
        };
        assert_eq!(variant.gateway.capture, Some(Capture::Tun));
        assert!(variant.gateway.from_gateway);
        for (name, reason) in [
            ("sumlink:fbdt:capture=pf", "none of nftables, tun, socks"),
            ("sumlink:fbdt:from=wan", "none of lan, gateway"),
        ] {
            let error = System::parse(name).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
