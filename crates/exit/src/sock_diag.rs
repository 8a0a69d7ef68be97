//! The kernel's report about a socket on this machine (sock_diag(7)).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The protocol of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A socket of a program on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Bytes that the program has not read.
    pub unread: u32,
    /// The user who owns the socket.
    pub uid: u32,
    /// The id of its control group (version 2), which is the inode number of the group's directory.
    /// `None` on kernels before 5.9, or without control groups.
    pub cgroup: Option<u64>,
}

/// `SOCK_DIAG_BY_FAMILY`, linux/sock_diag.h.
const BY_FAMILY: u16 = 20;

/// Sizes of `struct nlmsghdr`, of the `struct inet_diag_req_v2` (linux/inet_diag.h) after it, and
/// of the `struct inet_diag_msg` in the answer.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;
const ANSWER: usize = HEADER + 72;

/// Offsets in the answer: the socket's id, `idiag_rqueue` and `idiag_uid`, after family, state,
/// timer, retrans (4), the id (48) and expires (4).
const ID: usize = HEADER + 4;
const RQUEUE: usize = HEADER + 56;
const UID: usize = HEADER + 64;

/// `INET_DIAG_CGROUP_ID`, linux/inet_diag.h.
const CGROUP: u16 = 21;

/// Asks about the socket with the address `own` that is connected to `peer`. A UDP socket is found
/// if it would receive a datagram from `peer`, so it may also be unconnected.
///
/// # Errors
///
/// `NotFound`, or another error if the kernel does not report sockets of this kind.
pub fn find(protocol: Protocol, own: SocketAddr, peer: SocketAddr) -> io::Result<Report> {
    let mut request = [0; REQUEST];
    let len = REQUEST as u32;
    request[..4].copy_from_slice(&len.to_ne_bytes());
    request[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    let body = &mut request[HEADER..];
    body[0] = match own.ip().to_canonical() {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    } as u8;
    body[1] = match protocol {
        Protocol::Tcp => libc::IPPROTO_TCP,
        Protocol::Udp => libc::IPPROTO_UDP,
    } as u8;
    // Sockets in any state.
    body[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    // The kernel reads the two addresses of a UDP socket in the reverse order (`udp_dump_one`).
    let (first, second) = match protocol {
        Protocol::Tcp => (own, peer),
        Protocol::Udp => (peer, own),
    };
    let id = &mut body[8..56];
    id[..2].copy_from_slice(&first.port().to_be_bytes());
    id[2..4].copy_from_slice(&second.port().to_be_bytes());
    put(&mut id[4..20], first.ip());
    put(&mut id[20..36], second.ip());
    // With any cookie.
    id[40..48].fill(0xff);
    let mut answer = [0; 1024];
    let len = exchange(&request, &mut answer)?;
    let report = parse(answer.get(..len).unwrap_or_default())?;
    let (own, peer) = (own.port(), peer.port());
    match (protocol, report.0) {
        // Not a listener, which has no peer.
        (Protocol::Tcp, ports) if ports == (own, peer) => Ok(report.1),
        (Protocol::Udp, ports) if ports.0 == own => Ok(report.1),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// The ports of the reported socket, and the report.
fn parse(answer: &[u8]) -> io::Result<((u16, u16), Report)> {
    if answer.get(4..6) != Some(&BY_FAMILY.to_ne_bytes()) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let port = |at: usize| -> io::Result<u16> {
        let bytes = answer.get(at..).and_then(|rest| rest.first_chunk());
        let bytes = bytes.ok_or(io::ErrorKind::InvalidData)?;
        Ok(u16::from_be_bytes(*bytes))
    };
    let number = |at: usize| -> io::Result<u32> {
        let bytes = answer.get(at..).and_then(|rest| rest.first_chunk());
        let bytes = bytes.ok_or(io::ErrorKind::InvalidData)?;
        Ok(u32::from_ne_bytes(*bytes))
    };
    let report = Report {
        unread: number(RQUEUE)?,
        uid: number(UID)?,
        cgroup: answer.get(ANSWER..).and_then(cgroup),
    };
    Ok(((port(ID)?, port(ID + 2)?), report))
}

/// The id of the control group among the attributes of an answer (netlink(7)).
fn cgroup(mut attributes: &[u8]) -> Option<u64> {
    loop {
        let (length, rest) = attributes.split_first_chunk()?;
        let (kind, _) = rest.split_first_chunk()?;
        let length = usize::from(u16::from_ne_bytes(*length));
        if u16::from_ne_bytes(*kind) == CGROUP {
            let value = attributes.get(4..length)?.first_chunk()?;
            return Some(u64::from_ne_bytes(*value));
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
}

fn put(field: &mut [u8], ip: IpAddr) {
    match ip.to_canonical() {
        IpAddr::V4(ip) => field[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => field.copy_from_slice(&ip.octets()),
    }
}

/// Sends a request to the kernel and receives its answer, which is available at once.
fn exchange(request: &[u8], answer: &mut [u8]) -> io::Result<usize> {
    static KERNEL: OnceLock<Option<Mutex<OwnedFd>>> = OnceLock::new();
    let kernel = KERNEL.get_or_init(|| open().ok().map(Mutex::new));
    let kernel = kernel.as_ref().ok_or(io::ErrorKind::Unsupported)?;
    let kernel = kernel.lock().unwrap_or_else(PoisonError::into_inner);
    let fd = kernel.as_raw_fd();
    // SAFETY: the kernel reads `request` up to the given length, and the lock's owner keeps the
    // descriptor open.
    let sent = unsafe {
        libc::send(
            fd,
            request.as_ptr().cast(),
            request.len(),
            libc::MSG_DONTWAIT,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel writes at most the length of `answer` into it.
    let received = unsafe {
        libc::recv(
            fd,
            answer.as_mut_ptr().cast(),
            answer.len(),
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes three numbers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use nix::unistd::geteuid;

    use super::*;

    /// Whether the kernel reports the socket; some kernels lack the modules.
    fn report(protocol: Protocol, own: SocketAddr, peer: SocketAddr) -> Option<Report> {
        let report = find(protocol, own, peer);
        report
            .inspect_err(|error| eprintln!("skipped: {protocol:?} is not reported: {error}"))
            .ok()
    }

    #[test]
    fn a_connection_is_reported_with_its_user_and_control_group() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let ends = (own.local_addr().unwrap(), own.peer_addr().unwrap());
            let Some(report) = report(Protocol::Tcp, ends.0, ends.1) else {
                return;
            };
            assert_eq!((report.uid, report.unread), (geteuid().as_raw(), 0));
            assert!(report.cgroup.is_none_or(|id| id > 0));
        }
        // RFC 5737: belongs to no host.
        let unused = "192.0.2.1:1".parse().unwrap();
        assert!(find(Protocol::Tcp, unused, unused).is_err());
    }

    #[test]
    fn connected_and_unconnected_udp_sockets_are_reported() {
        let remote = "127.0.0.1:9".parse().unwrap();
        for is_connected in [false, true] {
            for local in ["127.0.0.1:0", "0.0.0.0:0"] {
                let own = UdpSocket::bind(local).unwrap();
                if is_connected {
                    own.connect(remote).unwrap();
                }
                let port = own.local_addr().unwrap().port();
                let source = SocketAddr::from(([127, 0, 0, 1], port));
                let Some(report) = report(Protocol::Udp, source, remote) else {
                    return;
                };
                assert_eq!(report.uid, geteuid().as_raw(), "{local} {is_connected}");
            }
        }
    }

    #[test]
    fn attributes_are_searched_within_their_bounds() {
        let mut attributes = Vec::new();
        for (kind, value) in [(8u16, &[1u8][..]), (CGROUP, &77u64.to_ne_bytes())] {
            let length = 4 + value.len() as u16;
            attributes.extend(length.to_ne_bytes());
            attributes.extend(kind.to_ne_bytes());
            attributes.extend(value);
            attributes.resize(attributes.len().next_multiple_of(4), 0);
        }
        assert_eq!(cgroup(&attributes), Some(77));
        for cut in 0..attributes.len() {
            assert_eq!(cgroup(&attributes[..cut]), None);
        }
        assert_eq!(cgroup(&[0; 64]), None);
    }
}
