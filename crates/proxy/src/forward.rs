//! `--forward LOCAL=REMOTE` and `--forward udp:LOCAL=REMOTE`: a local port with one target.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use sumlink_transport::address::{AddressError, Bare, parse_listen};
use sumlink_transport::target::{Target, TargetError};

/// A port to listen on and the target of its connections.
///
/// Written `LOCAL=REMOTE`. LOCAL is `PORT` (on 127.0.0.1), `IPV4:PORT`, `[IPV6]:PORT` or `*:PORT`
/// (all addresses). REMOTE is `HOST:PORT` or `[IPV6]:PORT` as seen from the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    /// Listening address; with port 0 the system chooses a port.
    pub listen: SocketAddr,
    /// Target of every connection.
    pub target: Target,
}

/// A UDP port and the target of its datagrams. Written `udp:LOCAL=REMOTE`, with the parts of a
/// [`Forward`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UdpForward {
    /// Local address; with port 0 the system chooses a port.
    pub listen: SocketAddr,
    /// Target of every datagram.
    pub target: Target,
}

/// A forward of either kind, as an option or a file has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AnyForward {
    /// Of connections: `LOCAL=REMOTE`.
    Tcp(Forward),
    /// Of datagrams: `udp:LOCAL=REMOTE`.
    Udp(UdpForward),
}

/// The prefix of a [`UdpForward`].
const UDP: &str = "udp:";

/// Why a text is not a valid [`Forward`] or [`UdpForward`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The text contains no `=`.
    #[error("`{0}` is not a forward; use LOCAL=REMOTE, for example 8080=example.org:80")]
    NoTarget(String),
    /// The text of a [`UdpForward`] does not begin with `udp:`.
    #[error("`{0}` is not a forward of datagrams; use udp:LOCAL=REMOTE")]
    NotUdp(String),
    /// The part before `=` is not a port or an address with a port.
    #[error(transparent)]
    Listen(#[from] AddressError),
    /// The part after `=` is not a target.
    #[error("`{text}` is not a target: {error}")]
    Target {
        /// The part after `=`.
        text: String,
        /// The reason.
        error: TargetError,
    },
}

impl FromStr for Forward {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, ForwardError> {
        let (listen, target) = parse(text, text)?;
        Ok(Self { listen, target })
    }
}

impl FromStr for UdpForward {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, ForwardError> {
        let pair = text
            .strip_prefix(UDP)
            .ok_or_else(|| ForwardError::NotUdp(text.to_owned()))?;
        let (listen, target) = parse(text, pair)?;
        Ok(Self { listen, target })
    }
}

impl FromStr for AnyForward {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, ForwardError> {
        match text.starts_with(UDP) {
            true => text.parse().map(Self::Udp),
            false => text.parse().map(Self::Tcp),
        }
    }
}

/// The two parts of `pair`, which is `text` or the end of it.
fn parse(text: &str, pair: &str) -> Result<(SocketAddr, Target), ForwardError> {
    let (listen, target) = pair
        .split_once('=')
        .ok_or_else(|| ForwardError::NoTarget(text.to_owned()))?;
    let listen = parse_listen(listen, Bare::Loopback)?;
    let target = target.parse().map_err(|error| ForwardError::Target {
        text: target.to_owned(),
        error,
    })?;
    Ok((listen, target))
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.listen, self.target)
    }
}

impl fmt::Display for UdpForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{UDP}{}={}", self.listen, self.target)
    }
}

impl fmt::Display for AnyForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(forward) => forward.fmt(f),
            Self::Udp(forward) => forward.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_display_with_the_full_address() {
        for (text, form) in [
            ("8080=host:80", "127.0.0.1:8080=host:80"),
            ("127.0.0.1:8080=host:80", "127.0.0.1:8080=host:80"),
            ("[::1]:8080=[2001:db8::1]:80", "[::1]:8080=[2001:db8::1]:80"),
            ("0.0.0.0:0=192.0.2.7:22", "0.0.0.0:0=192.0.2.7:22"),
            ("*:8080=host:80", "[::]:8080=host:80"),
        ] {
            let forward: Forward = text.parse().unwrap();
            assert_eq!(forward.to_string(), form);
            assert_eq!(form.parse::<Forward>().unwrap(), forward);
        }
    }

    #[test]
    fn the_prefix_distinguishes_datagrams_from_connections() {
        for (text, form) in [
            ("udp:5353=10.0.0.1:53", "udp:127.0.0.1:5353=10.0.0.1:53"),
            (
                "udp:[::1]:5353=[2001:db8::1]:53",
                "udp:[::1]:5353=[2001:db8::1]:53",
            ),
            (
                "udp:*:51820=vpn.example:51820",
                "udp:[::]:51820=vpn.example:51820",
            ),
        ] {
            let forward: AnyForward = text.parse().unwrap();
            assert!(matches!(forward, AnyForward::Udp(_)));
            assert_eq!(forward.to_string(), form);
            assert_eq!(form.parse::<AnyForward>().unwrap(), forward);
            assert!(text.parse::<Forward>().is_err());
        }
        let tcp: AnyForward = "5353=10.0.0.1:53".parse().unwrap();
        assert!(matches!(tcp, AnyForward::Tcp(_)));
        assert_eq!(tcp.to_string(), "127.0.0.1:5353=10.0.0.1:53");
        let error = "5353=10.0.0.1:53".parse::<UdpForward>().unwrap_err();
        assert_eq!(error, ForwardError::NotUdp("5353=10.0.0.1:53".to_owned()));
        let error = "udp:5353".parse::<AnyForward>().unwrap_err();
        assert_eq!(error, ForwardError::NoTarget("udp:5353".to_owned()));
        assert!("udp:x=a:1".parse::<AnyForward>().is_err());
        assert!("udp:53=a".parse::<AnyForward>().is_err());
    }

    #[test]
    fn an_error_names_the_invalid_half() {
        let error = |text: &str| text.parse::<Forward>().unwrap_err();
        assert_eq!(error("8080"), ForwardError::NoTarget("8080".to_owned()),);
        for text in ["", "70000", "::1:8080", "localhost:8080", "127.0.0.1"] {
            let error = error(&format!("{text}=host:80"));
            assert!(matches!(error, ForwardError::Listen(_)), "{error}");
        }
        assert_eq!(
            error("8080=host").to_string(),
            "`host` is not a target: no port: write HOST:PORT, or [IPV6]:PORT"
        );
    }
}
