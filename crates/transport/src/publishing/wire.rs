//! The messages of published ports (docs/protocol-publish.md). All integers are in network order.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sumlink_engine::peer_text::PeerText;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::api::publish::{Protocol, PublicPort};

/// The version in a request.
const VERSION: u8 = 1;

/// Protocol numbers (RFC 791).
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Types of an address as in RFC 1928, section 5, and one for all addresses.
const ANY: u8 = 0;
const V4: u8 = 1;
const V6: u8 = 4;

/// A client's request: the first message on a separate stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The client's number for the port.
    pub(crate) entry: u16,
    /// For UDP, the client's source for its datagrams.
    pub(crate) source: u64,
    pub(crate) listen: PublicPort,
}

/// The server's answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) result: Result<(), Refusal>,
    /// The reason for people; at most 255 bytes.
    pub(crate) reason: String,
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The server's configuration does not permit the port to this client.
    NotPermitted,
    /// The port is taken.
    Taken,
    /// The system refuses it.
    System,
    /// The client publishes too many ports.
    Limit,
    /// The request cannot be read, or for another reason.
    Other,
}

/// The beginning of a stream for a connection to a published TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The number of [`Request::entry`].
    pub(crate) entry: u16,
    /// The remote's address.
    pub(crate) peer: SocketAddr,
    /// The server's address to which it has connected.
    pub(crate) local: SocketAddr,
}

impl Request {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let protocol = match self.listen.protocol {
            Protocol::Tcp => TCP,
            Protocol::Udp => UDP,
        };
        let mut out = vec![VERSION, protocol];
        out.extend(self.entry.to_be_bytes());
        out.extend(self.source.to_be_bytes());
        encode_ip(self.listen.address, &mut out);
        out.extend(self.listen.port.to_be_bytes());
        out
    }

    /// Reads a request.
    ///
    /// # Errors
    ///
    /// `InvalidData` for another version or a malformed request; those of the stream.
    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        if stream.read_u8().await? != VERSION {
            return Err(malformed());
        }
        let protocol = match stream.read_u8().await? {
            TCP => Protocol::Tcp,
            UDP => Protocol::Udp,
            _ => return Err(malformed()),
        };
        let entry = stream.read_u16().await?;
        let source = stream.read_u64().await?;
        let address = read_ip(stream).await?;
        let port = stream.read_u16().await?;
        if port == 0 {
            return Err(malformed());
        }
        let listen = PublicPort {
            protocol,
            address,
            port,
        };
        Ok(Self {
            entry,
            source,
            listen,
        })
    }
}

impl Answer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let code = match self.result {
            Ok(()) => 0,
            Err(refusal) => refusal.code(),
        };
        let mut end = self.reason.len().min(usize::from(u8::MAX));
        while !self.reason.is_char_boundary(end) {
            end -= 1;
        }
        let reason = &self.reason.as_bytes()[..end];
        let length = u8::try_from(reason.len()).unwrap_or(u8::MAX);
        [&[code, length], reason].concat()
    }

    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let code = stream.read_u8().await?;
        let length = stream.read_u8().await?;
        let mut reason = vec![0; length.into()];
        stream.read_exact(&mut reason).await?;
        let result = match code {
            0 => Ok(()),
            code => Err(Refusal::of(code)),
        };
        let reason = PeerText::new(&reason).as_str().to_owned();
        Ok(Self { result, reason })
    }
}

impl Refusal {
    fn code(self) -> u8 {
        match self {
            Self::NotPermitted => 1,
            Self::Taken => 2,
            Self::System => 3,
            Self::Limit => 4,
            Self::Other => 5,
        }
    }

    fn of(code: u8) -> Self {
        match code {
            1 => Self::NotPermitted,
            2 => Self::Taken,
            3 => Self::System,
            4 => Self::Limit,
            _ => Self::Other,
        }
    }
}

impl Head {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.entry.to_be_bytes().to_vec();
        for address in [self.peer, self.local] {
            encode_ip(Some(address.ip()), &mut out);
            out.extend(address.port().to_be_bytes());
        }
        out
    }

    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let entry = stream.read_u16().await?;
        let mut addresses = [SocketAddr::from(([0; 4], 0)); 2];
        for address in &mut addresses {
            let ip = read_ip(stream).await?.ok_or_else(malformed)?;
            *address = SocketAddr::new(ip, stream.read_u16().await?);
        }
        let [peer, local] = addresses;
        Ok(Self { entry, peer, local })
    }
}

fn encode_ip(ip: Option<IpAddr>, out: &mut Vec<u8>) {
    match ip.map(|ip| ip.to_canonical()) {
        None => out.push(ANY),
        Some(IpAddr::V4(ip)) => {
            out.push(V4);
            out.extend(ip.octets());
        }
        Some(IpAddr::V6(ip)) => {
            out.push(V6);
            out.extend(ip.octets());
        }
    }
}

async fn read_ip(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<IpAddr>> {
    match stream.read_u8().await? {
        ANY => Ok(None),
        V4 => Ok(Some(Ipv4Addr::from(stream.read_u32().await?).into())),
        V6 => {
            let ip = Ipv6Addr::from(stream.read_u128().await?);
            Ok(Some(IpAddr::from(ip).to_canonical()))
        }
        _ => Err(malformed()),
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_come_back_unchanged_and_every_cut_is_an_error() {
        for text in ["tcp:8443", "udp:192.0.2.1:53", "tcp:[2001:db8::1]:1"] {
            let request = Request {
                entry: 513,
                source: 1 << 40,
                listen: text.parse().unwrap(),
            };
            let bytes = request.encode();
            assert_eq!(Request::read(&mut &bytes[..]).await.unwrap(), request);
            for cut in 0..bytes.len() {
                assert!(Request::read(&mut &bytes[..cut]).await.is_err());
            }
        }
        let head = Head {
            entry: 7,
            peer: "203.0.113.9:50000".parse().unwrap(),
            local: "[2001:db8::1]:443".parse().unwrap(),
        };
        let bytes = head.encode();
        assert_eq!(Head::read(&mut &bytes[..]).await.unwrap(), head);
        for cut in 0..bytes.len() {
            assert!(Head::read(&mut &bytes[..cut]).await.is_err());
        }
        for code in 0..=5 {
            let answer = Answer {
                result: if code == 0 {
                    Ok(())
                } else {
                    Err(Refusal::of(code))
                },
                reason: "why".to_owned(),
            };
            assert_eq!(answer.encode()[0], code);
            let read = Answer::read(&mut &answer.encode()[..]).await.unwrap();
            assert_eq!(read, answer);
        }
    }

    #[tokio::test]
    async fn a_long_reason_is_cut_between_characters() {
        let answer = Answer {
            result: Err(Refusal::System),
            reason: "é".repeat(200),
        };
        let read = Answer::read(&mut &answer.encode()[..]).await.unwrap();
        assert_eq!(read.reason, "é".repeat(127));
    }

    #[tokio::test]
    async fn other_versions_protocols_and_ports_are_refused() {
        let good = Request {
            entry: 1,
            source: 2,
            listen: "tcp:1".parse().unwrap(),
        };
        let good = good.encode();
        for (index, byte) in [(0, 2), (1, 1), (12, 3), (good.len() - 1, 0)] {
            let mut bad = good.clone();
            bad[index] = byte;
            assert!(Request::read(&mut &bad[..]).await.is_err(), "{index}");
        }
    }
}
