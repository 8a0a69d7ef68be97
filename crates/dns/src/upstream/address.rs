//! Addresses of upstream resolvers, as they are written in a configuration.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use http::Uri;
use rustls_pki_types::ServerName;
use sumlink_exit::target::{Host, RESOLVER, Target};

/// The bond's server as a resolver.
const SERVER: &str = "server";

const DNS_PORT: u16 = 53;
const TLS_PORT: u16 = 853;
const HTTPS_PORT: u16 = 443;

/// The path of an address without one (RFC 8484, section 4.1.1).
const DNS_PATH: &str = "/dns-query";

/// Where a resolver is, and how it is asked.
///
/// | text | meaning |
/// |---|---|
/// | `server` | the bond's server asks its own resolvers |
/// | `udp://ADDRESS[:PORT]` | UDP, and TCP for long answers; port 53 |
/// | `tcp://ADDRESS[:PORT]` | TCP only; port 53 |
/// | `tls://ADDRESS[:PORT][#NAME]` | DNS over TLS (RFC 7858); port 853 |
/// | `https://HOST[:PORT][/PATH][#NAME]` | DNS over HTTPS (RFC 8484); port 443, `/dns-query` |
///
/// TLS is version 1.3. `#NAME` is the name in the resolver's certificate; without one, the
/// certificate is for the host in front.
///
/// A host of `https://` may be a name, which the opener resolves. A link's local exit resolves it
/// with the resolvers of this machine, which may be this forwarder: write an address with `#NAME`
/// for those.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpstreamAddress {
    /// The bond's server.
    Server,
    /// UDP, and TCP when the answer is long or UDP gives none.
    Udp(SocketAddr),
    /// TCP.
    Tcp(Target),
    /// DNS over TLS.
    Tls {
        /// Where it is.
        target: Target,
        /// The name in its certificate.
        name: ServerName<'static>,
    },
    /// DNS over HTTPS.
    Https {
        /// Where it is.
        target: Target,
        /// The name in its certificate.
        name: ServerName<'static>,
        /// The URI of its service.
        uri: Uri,
    },
}

/// Why a text is not an [`UpstreamAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamAddressError {
    /// The scheme is unknown.
    #[error(
        "a resolver is `server`, or starts with `udp://`, `tcp://`, `tls://` or `https://`; write \
         `udp://192.0.2.53` for a plain address"
    )]
    Scheme,
    /// Not an IP address, with or without a port.
    #[error("behind `udp://`, `tcp://` and `tls://` is an IP address, with `:PORT` if it differs")]
    Address,
    /// The name for the certificate is not a host name.
    #[error("behind `#` is the host name in the resolver's certificate")]
    Name,
    /// Not a URI.
    #[error("a resolver over HTTPS is `https://HOST/PATH`, with `:PORT` if it is not 443")]
    Uri,
}

impl UpstreamAddress {
    /// Whether the resolver's certificate must be for its IP address, because no name is written.
    pub fn is_nameless(&self) -> bool {
        match self {
            Self::Tls { name, .. } | Self::Https { name, .. } => {
                matches!(name, ServerName::IpAddress(_))
            }
            Self::Server | Self::Udp(_) | Self::Tcp(_) => false,
        }
    }

    /// Where it is.
    pub(crate) fn target(&self) -> Target {
        match self {
            Self::Server => Target {
                host: Host::Name(RESOLVER.to_owned()),
                port: DNS_PORT,
            },
            Self::Udp(address) => Target::from(*address),
            Self::Tcp(target) | Self::Tls { target, .. } | Self::Https { target, .. } => {
                target.clone()
            }
        }
    }
}

impl FromStr for UpstreamAddress {
    type Err = UpstreamAddressError;

    fn from_str(text: &str) -> Result<Self, UpstreamAddressError> {
        if text == SERVER {
            return Ok(Self::Server);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UpstreamAddressError::Scheme)?;
        let (rest, name) = match rest.split_once('#') {
            Some((rest, name)) => (rest, Some(name)),
            None => (rest, None),
        };
        if name.is_some() && !matches!(scheme, "tls" | "https") {
            return Err(UpstreamAddressError::Address);
        }
        match scheme {
            "udp" => Ok(Self::Udp(socket_address(rest, DNS_PORT)?)),
            "tcp" => Ok(Self::Tcp(socket_address(rest, DNS_PORT)?.into())),
            "tls" => {
                let address = socket_address(rest, TLS_PORT)?;
                let name = match name {
                    Some(name) => server_name(name)?,
                    None => ServerName::from(address.ip()),
                };
                Ok(Self::Tls {
                    target: address.into(),
                    name,
                })
            }
            "https" => https(rest, name),
            _ => Err(UpstreamAddressError::Scheme),
        }
    }
}

fn https(rest: &str, name: Option<&str>) -> Result<UpstreamAddress, UpstreamAddressError> {
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, DNS_PATH),
    };
    // RFC 8484 writes addresses as templates for GET; the forwarder uses POST.
    let path = path.strip_suffix("{?dns}").unwrap_or(path);
    let uri = |authority: &str| format!("https://{authority}{path}").parse::<Uri>();
    let written = uri(authority).map_err(|_| UpstreamAddressError::Uri)?;
    if authority.contains('@') {
        return Err(UpstreamAddressError::Uri);
    }
    let host = written.host().ok_or(UpstreamAddressError::Uri)?;
    let port = written.port_u16().unwrap_or(HTTPS_PORT);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let target = Target::new(host, port).map_err(|_| UpstreamAddressError::Uri)?;
    let (name, uri) = match name {
        // The service is called by its name, wherever it is.
        Some(name) => {
            let host = match name.parse::<Ipv6Addr>() {
                Ok(address) => format!("[{address}]"),
                Err(_) => name.to_owned(),
            };
            let authority = match port {
                HTTPS_PORT => host,
                port => format!("{host}:{port}"),
            };
            let uri = uri(&authority).map_err(|_| UpstreamAddressError::Name)?;
            (server_name(name)?, uri)
        }
        None => (
            server_name(host).map_err(|_| UpstreamAddressError::Uri)?,
            written,
        ),
    };
    Ok(UpstreamAddress::Https { target, name, uri })
}

fn server_name(text: &str) -> Result<ServerName<'static>, UpstreamAddressError> {
    ServerName::try_from(text.to_owned()).map_err(|_| UpstreamAddressError::Name)
}

fn socket_address(text: &str, port: u16) -> Result<SocketAddr, UpstreamAddressError> {
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    let parsed = match bare.parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::new(address, port)),
        Err(_) => text.parse::<SocketAddr>(),
    };
    match parsed {
        Ok(address) if address.port() != 0 => Ok(address),
        _ => Err(UpstreamAddressError::Address),
    }
}

/// The text that [`UpstreamAddress::from_str`] reads, with all defaults.
impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str(SERVER),
            Self::Udp(address) => write!(f, "udp://{address}"),
            Self::Tcp(target) => write!(f, "tcp://{target}"),
            Self::Tls { target, name } => write!(f, "tls://{target}#{}", name.to_str()),
            Self::Https { target, name, uri } => {
                write!(f, "https://{target}{}#{}", uri.path(), name.to_str())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_the_ports_of_their_protocols() {
        for (text, shown) in [
            ("server", "server"),
            ("udp://10.0.0.53", "udp://10.0.0.53:53"),
            ("udp://10.0.0.53:5353", "udp://10.0.0.53:5353"),
            ("udp://2001:db8::1", "udp://[2001:db8::1]:53"),
            ("tcp://[2001:db8::1]:54", "tcp://[2001:db8::1]:54"),
            ("tcp://[2001:db8::1]", "tcp://[2001:db8::1]:53"),
            ("tls://9.9.9.9", "tls://9.9.9.9:853#9.9.9.9"),
            (
                "tls://9.9.9.9#dns.quad9.net",
                "tls://9.9.9.9:853#dns.quad9.net",
            ),
            (
                "https://dns.example",
                "https://dns.example:443/dns-query#dns.example",
            ),
            (
                "https://dns.example:8443/q{?dns}",
                "https://dns.example:8443/q#dns.example",
            ),
            (
                "https://9.9.9.9/dns-query#dns.quad9.net",
                "https://9.9.9.9:443/dns-query#dns.quad9.net",
            ),
            (
                "https://[2001:db8::1]/",
                "https://[2001:db8::1]:443/#2001:db8::1",
            ),
        ] {
            let address: UpstreamAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(shown.parse::<UpstreamAddress>().unwrap().to_string(), shown);
            let is_nameless = shown.ends_with("#9.9.9.9") || shown.ends_with("#2001:db8::1");
            assert_eq!(address.is_nameless(), is_nameless, "{text}");
        }
    }

    #[test]
    fn a_service_at_an_address_is_called_by_its_name() {
        let address = "https://9.9.9.9/dns-query#dns.quad9.net".parse().unwrap();
        let UpstreamAddress::Https { target, uri, .. } = address else {
            panic!("{address}");
        };
        assert_eq!(target.to_string(), "9.9.9.9:443");
        assert_eq!(uri.to_string(), "https://dns.quad9.net/dns-query");
    }

    #[test]
    fn texts_that_are_no_addresses_say_what_is_expected() {
        let error = |text: &str| text.parse::<UpstreamAddress>().unwrap_err();
        assert_eq!(error("1.1.1.1"), UpstreamAddressError::Scheme);
        assert_eq!(error("quic://1.1.1.1"), UpstreamAddressError::Scheme);
        assert_eq!(error("udp://dns.example"), UpstreamAddressError::Address);
        assert_eq!(error("udp://1.1.1.1:0"), UpstreamAddressError::Address);
        assert_eq!(error("udp://1.1.1.1#name"), UpstreamAddressError::Address);
        assert_eq!(error("tls://1.1.1.1#a b"), UpstreamAddressError::Name);
        assert_eq!(error("https://"), UpstreamAddressError::Uri);
        assert_eq!(
            error("https://user@dns.example/"),
            UpstreamAddressError::Uri
        );
        assert_eq!(error("https://a b/"), UpstreamAddressError::Uri);
    }
}
