//! Why datagrams do not reach a remote.

use crate::target::OpenError;

/// Why datagrams did not reach a remote, as seen from the server: an ICMP error, a refusal by the
/// egress policy, or a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum FlowFailure {
    /// No program has the port (ICMP port unreachable).
    #[error("no program has the port at the remote")]
    Refused,
    /// The host does not answer, or the hop limit was exceeded on the way.
    #[error("the remote host cannot be reached")]
    HostUnreachable,
    /// The server has no route to the remote.
    #[error("the server cannot reach the remote's network")]
    NetworkUnreachable,
    /// A packet filter on the way rejects the datagrams.
    #[error("a packet filter rejects datagrams to the remote")]
    Filtered,
    /// A datagram was too long for the path and could not be fragmented.
    #[error("the datagram was too long for the path (MTU {mtu})")]
    TooBig {
        /// Longest IP packet that the path carries, in bytes; 0 if unknown.
        mtu: u32,
    },
    /// The server's egress policy does not allow the remote.
    #[error("the server's egress policy does not allow this remote")]
    NotAllowed,
    /// The name does not resolve at the server.
    #[error("the name does not resolve at the server")]
    NameNotResolved,
    /// A limit of the server is reached: sources, remotes, descriptors, memory.
    #[error("a limit on datagrams is reached at the server")]
    LimitReached,
    /// Another reason: perhaps one that only a newer peer knows, or the server has no permission
    /// for ICMP echo requests.
    #[error("datagrams to the remote failed")]
    Other,
}

impl FlowFailure {
    /// The meaning of an ICMP error (RFC 792; RFC 1812, section 5.2.7.1) about a datagram over
    /// IPv4. `None` if the error says nothing about the remote. `info` is the MTU of the next hop.
    pub fn from_icmp(kind: u8, code: u8, info: u32) -> Option<Self> {
        match (kind, code) {
            (3, 0 | 6 | 11) => Some(Self::NetworkUnreachable),
            (3, 1 | 2 | 5 | 7 | 8 | 12) | (11, 0) => Some(Self::HostUnreachable),
            (3, 3) => Some(Self::Refused),
            (3, 4) => Some(Self::TooBig { mtu: info }),
            (3, 9 | 10 | 13..=15) => Some(Self::Filtered),
            _ => None,
        }
    }

    /// [`FlowFailure::from_icmp`] for ICMPv6 (RFC 4443, section 3).
    pub fn from_icmp6(kind: u8, code: u8, info: u32) -> Option<Self> {
        match (kind, code) {
            (1, 0 | 2) => Some(Self::NetworkUnreachable),
            (1, 1 | 5 | 6) => Some(Self::Filtered),
            (1, 3) | (3, 0) => Some(Self::HostUnreachable),
            (1, 4) => Some(Self::Refused),
            (2, _) => Some(Self::TooBig { mtu: info }),
            _ => None,
        }
    }

    /// The meaning of a failed send; `None` if the datagram was dropped for want of buffers, which
    /// says nothing about the remote.
    pub fn from_send(error: &std::io::Error) -> Option<Self> {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => Some(Self::Refused),
            Some(libc::ENETUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL) => {
                Some(Self::NetworkUnreachable)
            }
            Some(libc::EHOSTUNREACH | libc::EHOSTDOWN) => Some(Self::HostUnreachable),
            Some(libc::EMSGSIZE) => Some(Self::TooBig { mtu: 0 }),
            // The server host's own packet filter, or a broadcast address.
            Some(libc::EPERM | libc::EACCES) => Some(Self::Filtered),
            Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN | libc::EINTR) => None,
            _ => Some(Self::Other),
        }
    }
}

impl From<OpenError> for FlowFailure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NotAllowed => Self::NotAllowed,
            OpenError::NameNotResolved => Self::NameNotResolved,
            OpenError::Refused => Self::Refused,
            OpenError::Unreachable => Self::NetworkUnreachable,
            OpenError::TimedOut => Self::HostUnreachable,
            OpenError::LimitReached => Self::LimitReached,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icmp_errors_have_their_meaning_in_both_families() {
        let (v4, v6) = (FlowFailure::from_icmp, FlowFailure::from_icmp6);
        assert_eq!(v4(3, 3, 0), v6(1, 4, 0));
        assert_eq!(v4(3, 3, 0), Some(FlowFailure::Refused));
        assert_eq!(v4(3, 4, 1400), Some(FlowFailure::TooBig { mtu: 1400 }));
        assert_eq!(v6(2, 0, 1280), Some(FlowFailure::TooBig { mtu: 1280 }));
        assert_eq!(v4(3, 0, 0), v6(1, 0, 0));
        assert_eq!(v4(3, 1, 0), v6(1, 3, 0));
        assert_eq!(v4(3, 13, 0), v6(1, 1, 0));
        // An expired reassembly and a redirect say nothing about the remote.
        assert_eq!((v4(11, 1, 0), v4(5, 0, 0), v6(3, 1, 0)), (None, None, None));
    }
}
