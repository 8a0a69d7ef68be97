//! SOCKS5 messages (RFC 1928, RFC 1929) as pure functions over bytes.
//!
//! Every `decode` takes the bytes received so far. It returns `Ok(None)` if the message is
//! incomplete, otherwise the message and its length; bytes after it are ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sumlink_transport::target::{Host, OpenError, Target, TargetError};

/// Longest message that a client can send: [`Credentials`] with both fields full.
pub const MAX_MESSAGE: usize = 3 + 2 * u8::MAX as usize;

/// The version byte of every SOCKS5 message but [`Credentials`].
const VERSION: u8 = 5;

/// The version byte of [`Credentials`] (RFC 1929, section 2).
const CREDENTIALS_VERSION: u8 = 1;

/// The client's first message: the authentication methods it offers (RFC 1928, section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Numbers of the methods, at most 255.
    pub methods: Vec<u8>,
}

/// How a client authenticates (RFC 1928, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Method {
    /// Without authentication.
    None = 0x00,
    /// By name and password, RFC 1929.
    Credentials = 0x02,
    /// The server's answer if it supports none of the offered methods.
    NoneAcceptable = 0xff,
}

/// Name and password (RFC 1929, section 2), each at most 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub username: Vec<u8>,
    /// The password.
    pub password: Vec<u8>,
}

/// A client's request (RFC 1928, section 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// The host; an unspecified address if the command needs none.
    pub address: Address,
    /// The port; 0 is possible but not a valid target.
    pub port: u16,
}

/// The command of a [`Request`] (RFC 1928, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Connect to the address.
    Connect,
    /// Wait for a connection from the address.
    Bind,
    /// Relay datagrams.
    UdpAssociate,
    /// A number that the RFC does not define.
    Other(u8),
}

/// The address of a [`Request`] (RFC 1928, section 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Type 1 or 4.
    Ip(IpAddr),
    /// Type 3, as it arrived: at most 255 bytes of anything.
    Name(Vec<u8>),
}

/// The header in front of each datagram (RFC 1928, section 7).
///
/// From a client, the address is the one to send to; from the server, the one that has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// Number of the fragment; 0 for a complete datagram.
    pub fragment: u8,
    /// The remote host.
    pub address: Address,
    /// The remote port; 0 is possible but not a valid target.
    pub port: u16,
}

/// The server's answer to a [`Request`] (RFC 1928, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// Succeeded.
    Succeeded = 0,
    /// General SOCKS server failure.
    Failure = 1,
    /// Connection not allowed by ruleset.
    NotAllowed = 2,
    /// Network unreachable.
    NetworkUnreachable = 3,
    /// Host unreachable.
    HostUnreachable = 4,
    /// Connection refused.
    Refused = 5,
    /// TTL expired.
    TtlExpired = 6,
    /// Command not supported.
    CommandNotSupported = 7,
    /// Address type not supported.
    AddressTypeNotSupported = 8,
}

/// Why a client's bytes are not the expected message. The client is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// A SOCKS4 or SOCKS4a client.
    #[error("the program speaks SOCKS4, but this port expects SOCKS5 (socks5h://)")]
    Socks4,
    /// An HTTP request.
    #[error(
        "the program speaks HTTP, but this is a SOCKS5 port; configure it as the SOCKS proxy \
         (socks5h://), \
         or use the HTTP proxy port"
    )]
    Http,
    /// A TLS handshake.
    #[error(
        "the program speaks TLS, but this is a SOCKS5 port; configure it as the SOCKS proxy \
         (socks5h://)"
    )]
    Tls,
    /// A first byte other than the message's version.
    #[error("the program does not speak SOCKS5 (version byte {0:#04x})")]
    Version(u8),
    /// An address type that RFC 1928 does not define.
    #[error("address type {0:#04x} is not IPv4 (1), a name (3) or IPv6 (4)")]
    AddressType(u8),
}

impl Greeting {
    /// Parses a greeting; recognizes common wrong protocols by their first byte.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, MessageError> {
        match bytes.first() {
            None => return Ok(None),
            Some(&VERSION) => {}
            Some(4) => return Err(MessageError::Socks4),
            // TLS: ContentType handshake (RFC 8446, section 5.1).
            Some(0x16) => return Err(MessageError::Tls),
            Some(byte) if byte.is_ascii_alphabetic() => return Err(MessageError::Http),
            Some(&byte) => return Err(MessageError::Version(byte)),
        }
        let mut input = Input { bytes, used: 1 };
        let Some(methods) = input.counted() else {
            return Ok(None);
        };
        let methods = methods.to_vec();
        Ok(Some((Self { methods }, input.used)))
    }

    /// Appends the message; methods after the 255th are omitted.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        push_counted(out, &self.methods);
    }

    /// The method that this server selects: no authentication if offered, otherwise name and
    /// password, since the port is local and accepts any. With `named`, because a rule needs the
    /// name, the order is reversed.
    pub fn method(&self, named: bool) -> Method {
        let mut methods = [Method::None, Method::Credentials];
        if named {
            methods.reverse();
        }
        methods
            .into_iter()
            .find(|method| self.methods.contains(&(*method as u8)))
            .unwrap_or(Method::NoneAcceptable)
    }
}

impl Method {
    /// The server's answer to a [`Greeting`].
    pub fn encode(self) -> [u8; 2] {
        [VERSION, self as u8]
    }
}

impl Credentials {
    /// The server's answer: accepted (RFC 1929, section 2).
    pub const ACCEPTED: [u8; 2] = [CREDENTIALS_VERSION, 0];

    /// Parses name and password.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, MessageError> {
        match bytes.first() {
            None => return Ok(None),
            Some(&CREDENTIALS_VERSION) => {}
            Some(&byte) => return Err(MessageError::Version(byte)),
        }
        let mut input = Input { bytes, used: 1 };
        let (Some(username), Some(password)) = (input.counted(), input.counted()) else {
            return Ok(None);
        };
        let credentials = Self {
            username: username.to_vec(),
            password: password.to_vec(),
        };
        Ok(Some((credentials, input.used)))
    }

    /// Appends the message, with at most 255 bytes of each field.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(CREDENTIALS_VERSION);
        push_counted(out, &self.username);
        push_counted(out, &self.password);
    }
}

impl Request {
    /// Parses a request. The reserved byte may have any value, as with other servers.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, MessageError> {
        if let Some(&byte) = bytes.first()
            && byte != VERSION
        {
            return Err(MessageError::Version(byte));
        }
        let mut input = Input { bytes, used: 0 };
        let Some([_, command, _, address_type]) = input.array() else {
            return Ok(None);
        };
        let Some((address, port)) = input.address(address_type)? else {
            return Ok(None);
        };
        let request = Self {
            command: Command::from_number(command),
            address,
            port,
        };
        Ok(Some((request, input.used)))
    }

    /// Appends the message, with at most 255 bytes of a name.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend([VERSION, self.command.number(), 0]);
        push_address(out, &self.address, self.port);
    }

    /// The request's address as a target. A name that is a literal address, with or without
    /// brackets, becomes that address.
    pub fn target(&self) -> Result<Target, TargetError> {
        self.address.target(self.port)
    }
}

impl Address {
    fn target(&self, port: u16) -> Result<Target, TargetError> {
        match self {
            Self::Ip(ip) if port != 0 => Ok(SocketAddr::new(*ip, port).into()),
            Self::Ip(_) => Err(TargetError::BadPort),
            Self::Name(name) => {
                let name = std::str::from_utf8(name).map_err(|_| TargetError::BadHost)?;
                let inner = name
                    .strip_prefix('[')
                    .and_then(|rest| rest.strip_suffix(']'));
                Target::new(inner.unwrap_or(name), port)
            }
        }
    }
}

impl DatagramHeader {
    /// Parses a header; the payload follows it. `Ok(None)` means that the datagram is cut off. The
    /// reserved bytes may have any value.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, MessageError> {
        let mut input = Input { bytes, used: 0 };
        let Some([_, _, fragment, address_type]) = input.array() else {
            return Ok(None);
        };
        let Some((address, port)) = input.address(address_type)? else {
            return Ok(None);
        };
        let header = Self {
            fragment,
            address,
            port,
        };
        Ok(Some((header, input.used)))
    }

    /// Appends the header, with at most 255 bytes of a name.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend([0, 0, self.fragment]);
        push_address(out, &self.address, self.port);
    }

    /// The header's address as a target; see [`Request::target`].
    pub fn target(&self) -> Result<Target, TargetError> {
        self.address.target(self.port)
    }
}

impl From<&Target> for DatagramHeader {
    fn from(target: &Target) -> Self {
        let address = match &target.host {
            Host::Ip(ip) => Address::Ip(*ip),
            Host::Name(name) => Address::Name(name.clone().into_bytes()),
        };
        Self {
            fragment: 0,
            address,
            port: target.port,
        }
    }
}

impl Command {
    fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Connect,
            2 => Self::Bind,
            3 => Self::UdpAssociate,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Connect => 1,
            Self::Bind => 2,
            Self::UdpAssociate => 3,
            Self::Other(number) => number,
        }
    }
}

impl Reply {
    /// The reply with the connection's address at the far end, which is unknown here: 0.0.0.0:0, as
    /// programs expect from a proxy that does not know it.
    pub fn encode(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }

    /// The reply with an address of this server, to which the client sends its datagrams.
    pub fn encode_with(self, address: SocketAddr) -> Vec<u8> {
        let mut out = vec![VERSION, self as u8, 0];
        push_address(&mut out, &Address::Ip(address.ip()), address.port());
        out
    }
}

impl From<OpenError> for Reply {
    /// RFC 1928, section 6 does not assign codes to all failures. A name that does not resolve
    /// becomes "host unreachable". A timeout becomes "TTL expired", the only remaining code that
    /// means "no answer". Tor's SOCKS port uses both in this way, too.
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NotAllowed => Self::NotAllowed,
            OpenError::NameNotResolved => Self::HostUnreachable,
            OpenError::Refused => Self::Refused,
            OpenError::Unreachable => Self::NetworkUnreachable,
            OpenError::TimedOut => Self::TtlExpired,
            _ => Self::Failure,
        }
    }
}

/// A message being parsed; every field is complete or `None`.
struct Input<'a> {
    bytes: &'a [u8],
    used: usize,
}

impl<'a> Input<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let part = self.bytes.get(self.used..)?.first_chunk()?;
        self.used += N;
        Some(*part)
    }

    /// A length byte and that number of bytes.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let [length] = self.array()?;
        let part = self.bytes.get(self.used..)?.get(..usize::from(length))?;
        self.used += part.len();
        Some(part)
    }

    /// An address of this type, and a port.
    fn address(&mut self, address_type: u8) -> Result<Option<(Address, u16)>, MessageError> {
        let address = match address_type {
            1 => self
                .array()
                .map(|ip: [u8; 4]| Address::Ip(Ipv4Addr::from(ip).into())),
            3 => self.counted().map(|name| Address::Name(name.to_vec())),
            4 => self
                .array()
                .map(|ip: [u8; 16]| Address::Ip(Ipv6Addr::from(ip).into())),
            other => return Err(MessageError::AddressType(other)),
        };
        let port = address.is_some().then(|| self.array()).flatten();
        Ok(address.zip(port.map(u16::from_be_bytes)))
    }
}

fn push_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(u8::MAX.into())];
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}

fn push_address(out: &mut Vec<u8>, address: &Address, port: u16) {
    match address {
        Address::Ip(ip) => push_ip(out, *ip),
        Address::Name(name) => {
            out.push(3);
            push_counted(out, name);
        }
    }
    out.extend(port.to_be_bytes());
}

fn push_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            out.push(1);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(4);
            out.extend(ip.octets());
        }
    }
}

#[cfg(test)]
mod tests;
