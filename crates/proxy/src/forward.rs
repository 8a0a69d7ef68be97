//! `--forward LOCAL=REMOTE`: a local port with one target for all connections.

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

/// Why a text is not a valid [`Forward`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The text contains no `=`.
    #[error("`{0}` is not a forward; use LOCAL=REMOTE, for example 8080=example.org:80")]
    NoTarget(String),
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
        let (listen, target) = text
            .split_once('=')
            .ok_or_else(|| ForwardError::NoTarget(text.to_owned()))?;
        let listen = parse_listen(listen, Bare::Loopback)?;
        let target = target.parse().map_err(|error| ForwardError::Target {
            text: target.to_owned(),
            error,
        })?;
        Ok(Self { listen, target })
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.listen, self.target)
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
