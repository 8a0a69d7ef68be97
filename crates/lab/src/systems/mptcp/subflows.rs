//! The kernel's state of the subflows of a laboratory, by sock_diag(7).

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::error::LabError;
use crate::laboratory::LabHandle;
use crate::topology::{SERVER_V4, Side};

/// `SOCK_DIAG_BY_FAMILY`, linux/sock_diag.h.
const BY_FAMILY: u16 = 20;
/// `INET_DIAG_INFO`, linux/inet_diag.h: the attribute with a `struct tcp_info`.
const INFO: u16 = 2;
/// `TCP_ESTABLISHED`, as a bit of `idiag_states`.
const ESTABLISHED: u32 = 1 << 1;
/// Sizes of `struct nlmsghdr`, of the `struct inet_diag_req_v2` after it, and of the `struct
/// inet_diag_msg` in an answer.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;
const ANSWER: usize = HEADER + 72;
/// More than the kernel puts into one datagram of a dump.
const RECEIVED: usize = 64 << 10;

/// A subflow over one link, as one end sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Subflow {
    /// The number of the link, from 0.
    pub(super) link: usize,
    pub(super) srtt: Duration,
    pub(super) mss: u64,
    /// Timeouts since the last acknowledgment.
    pub(super) timeouts: u32,
    /// Whether it has unsent or unacknowledged data.
    pub(super) is_busy: bool,
    /// Bytes that this end has received in order.
    pub(super) received: u64,
    /// Segments that this end has retransmitted.
    pub(super) retransmissions: u64,
}

/// Lists the subflows of one side.
#[derive(Debug)]
pub(super) struct Subflows {
    kernel: Socket,
    side: Side,
    /// The port of the workload's server.
    port: u16,
}

impl Subflows {
    /// Opens a socket to the kernel in the namespace of that side.
    pub(super) fn open(lab: &LabHandle, side: Side, port: u16) -> Result<Self, LabError> {
        let opened = lab.run(side, || {
            let diagnosis = Protocol::from(libc::NETLINK_SOCK_DIAG);
            Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(diagnosis))
        })?;
        let kernel = opened.map_err(|error| LabError::system("opening sock_diag", error))?;
        Ok(Self { kernel, side, port })
    }

    /// The established subflows, by link; several connections over a link are listed each.
    pub(super) fn list(&self) -> io::Result<Vec<Subflow>> {
        let mut kernel = &self.kernel;
        kernel.write_all(&request())?;
        let mut found = Vec::new();
        let mut buffer = vec![0; RECEIVED];
        loop {
            let len = kernel.read(&mut buffer)?;
            let mut rest = buffer.get(..len).unwrap_or_default();
            while let Some((kind, message, after)) = next_message(rest) {
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(found),
                    libc::NLMSG_ERROR => return Err(io::ErrorKind::Unsupported.into()),
                    _ => found.extend(parse(message, self.side, self.port)),
                }
                rest = after;
            }
        }
    }
}

/// A dump of all established TCP connections over IPv4, with their `tcp_info`.
fn request() -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    request[..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    let body = &mut request[HEADER..];
    body[0] = libc::AF_INET as u8;
    body[1] = libc::IPPROTO_TCP as u8;
    body[2] = 1 << (INFO - 1);
    body[4..8].copy_from_slice(&ESTABLISHED.to_ne_bytes());
    request
}

/// Type and content of the first message (header included), and what follows it.
fn next_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32_at(bytes, 0)? as usize;
    let message = bytes.get(..len.max(HEADER))?;
    let after = bytes.get(len.max(HEADER).next_multiple_of(4)..);
    Some((u16_at(bytes, 4)?, message, after.unwrap_or_default()))
}

/// A connection between a client's end of a link and the server's port; `None` for others.
fn parse(message: &[u8], side: Side, port: u16) -> Option<Subflow> {
    // `struct inet_diag_sockid` follows family, state, timer and retrans: ports and addresses.
    let id = message.get(HEADER + 4..)?;
    let port_at = |at| Some(u16::from_be_bytes(*id.get(at..)?.first_chunk()?));
    let address_at = |at| Some(Ipv4Addr::from(*id.get(at..)?.first_chunk::<4>()?));
    let (own, peer) = (
        (address_at(4)?, port_at(0)?),
        (address_at(20)?, port_at(2)?),
    );
    let (server, client) = match side {
        Side::Server => (own, peer),
        _ => (peer, own),
    };
    // The client's address on link N is 10.77.N.x.
    let [10, 77, number, _] = client.0.octets() else {
        return None;
    };
    let link = usize::from(number).checked_sub(1)?;
    if server != (SERVER_V4, port) {
        return None;
    }
    let info = attribute(message.get(ANSWER..)?, INFO)?;
    // Offsets in `struct tcp_info`, linux/tcp.h.
    let (unacknowledged, unsent) = (u32_at(info, 24)?, u32_at(info, 144)?);
    Some(Subflow {
        link,
        srtt: Duration::from_micros(u32_at(info, 68)?.into()),
        mss: u32_at(info, 16)?.into(),
        timeouts: info.get(2).copied()?.into(),
        is_busy: unacknowledged > 0 || unsent > 0,
        received: u64_at(info, 128)?,
        retransmissions: u32_at(info, 100)?.into(),
    })
}

/// The content of an attribute (netlink(7)).
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16_at(attributes, 0)?);
        if u16_at(attributes, 2)? == wanted {
            return attributes.get(4..len);
        }
        attributes = attributes.get(len.max(4).next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 5000;

    /// An answer of the kernel about a socket with these addresses.
    fn answer(own: (Ipv4Addr, u16), peer: (Ipv4Addr, u16)) -> Vec<u8> {
        let mut message = vec![0; ANSWER];
        message[HEADER + 4..HEADER + 6].copy_from_slice(&own.1.to_be_bytes());
        message[HEADER + 6..HEADER + 8].copy_from_slice(&peer.1.to_be_bytes());
        message[HEADER + 8..HEADER + 12].copy_from_slice(&own.0.octets());
        message[HEADER + 24..HEADER + 28].copy_from_slice(&peer.0.octets());
        let mut info = vec![0; 148];
        info[2] = 3;
        info[16..20].copy_from_slice(&1428_u32.to_ne_bytes());
        info[68..72].copy_from_slice(&20_000_u32.to_ne_bytes());
        info[100..104].copy_from_slice(&7_u32.to_ne_bytes());
        info[128..136].copy_from_slice(&77_u64.to_ne_bytes());
        info[144..148].copy_from_slice(&50_u32.to_ne_bytes());
        // Another attribute comes first.
        message.extend([5, 0, 1, 0, 9, 0, 0, 0]);
        message.extend((info.len() as u16 + 4).to_ne_bytes());
        message.extend(INFO.to_ne_bytes());
        message.extend(info);
        message
    }

    #[test]
    fn subflows_are_recognized_by_the_address_of_their_link() {
        let client = (Ipv4Addr::new(10, 77, 2, 2), 40_000);
        let server = (SERVER_V4, PORT);
        let expected = Subflow {
            link: 1,
            srtt: Duration::from_millis(20),
            mss: 1428,
            timeouts: 3,
            is_busy: true,
            received: 77,
            retransmissions: 7,
        };
        assert_eq!(
            parse(&answer(client, server), Side::Client, PORT),
            Some(expected)
        );
        assert_eq!(
            parse(&answer(server, client), Side::Server, PORT),
            Some(expected)
        );
        let strangers = [
            (client, (SERVER_V4, PORT + 1)),
            ((Ipv4Addr::LOCALHOST, 40_000), server),
            ((Ipv4Addr::new(10, 77, 0, 2), 40_000), server),
        ];
        for (own, peer) in strangers {
            assert_eq!(parse(&answer(own, peer), Side::Client, PORT), None);
        }
    }

    #[test]
    fn a_cut_answer_is_no_subflow() {
        let whole = answer((Ipv4Addr::new(10, 77, 1, 2), 40_000), (SERVER_V4, PORT));
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len], Side::Client, PORT), None, "{len}");
            let _ = next_message(&whole[..len]);
        }
    }
}
