//! Receiving datagrams and ICMP errors.

use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, recvmsg,
};
use tokio::io::Interest;

use super::{Arrival, SocketError, UdpIo};
use crate::datagram::FlowFailure;

/// Buffers filled by one system call. With `UDP_GRO`, each may hold up to 64 datagrams.
const BUFFERS: usize = 16;

/// Size of a buffer: no IP packet is longer.
const BUFFER: usize = 65_535;

/// ICMP errors taken at once.
const ERRORS: usize = 32;

thread_local! {
    /// The buffers of this thread, 1 MiB. The system provides a page when it is first written.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl UdpIo {
    /// Receives the datagrams of one system call, passes each to `each` in order of arrival
    /// and returns their number.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is there. An ICMP error is not an error here.
    pub fn try_receive(&self, mut each: impl FnMut(Arrival<'_>)) -> io::Result<usize> {
        self.socket.try_io(Interest::READABLE, || {
            let mut scratch = SCRATCH.take();
            if scratch.is_empty() {
                scratch = vec![0; BUFFERS * BUFFER];
            }
            let mut received = receive(&self.socket, &mut scratch, &mut each);
            // The kernel reports an ICMP error once in place of a datagram.
            if received.is_err_and(|error| error != Errno::EAGAIN) {
                received = receive(&self.socket, &mut scratch, &mut each);
            }
            SCRATCH.set(scratch);
            Ok(received?)
        })
    }

    /// Passes ICMP errors to `each`, at most 32. Those that say nothing about a remote are left
    /// out.
    pub fn take_errors(&self, mut each: impl FnMut(SocketError)) {
        // The only failure is an empty queue, after which `ready` waits for the next error.
        let _ = self.socket.try_io(Interest::ERROR, || {
            for _ in 0..ERRORS {
                if let Some(error) = error_of(&self.socket)? {
                    each(error);
                }
            }
            Ok(())
        });
    }
}

fn receive(
    socket: &impl AsRawFd,
    scratch: &mut [u8],
    each: &mut impl FnMut(Arrival<'_>),
) -> Result<usize, Errno> {
    let mut slices: Vec<[IoSliceMut<'_>; 1]> = scratch
        .chunks_exact_mut(BUFFER)
        .map(|buffer| [IoSliceMut::new(buffer)])
        .collect();
    let control = cmsg_space!(i32, i32, u8, libc::in6_pktinfo, libc::sockaddr_in6);
    // Not kept for the next call: the kernel shortens the lengths in it.
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(slices.len(), Some(control));
    let messages = recvmmsg(
        socket.as_raw_fd(),
        &mut headers,
        slices.iter_mut(),
        MsgFlags::MSG_DONTWAIT,
        None,
    )?;
    let mut count = 0;
    for message in messages {
        let Some(remote) = message.address.and_then(address) else {
            continue;
        };
        let bytes = message.iovs().next().unwrap_or(&[]);
        let mut arrival = Arrival {
            remote,
            local: None,
            original: None,
            dscp: None,
            payload: bytes,
        };
        let mut stride = bytes.len();
        for control in message.cmsgs().into_iter().flatten() {
            match control {
                ControlMessageOwned::UdpGroSegments(length) => {
                    stride = usize::try_from(length).unwrap_or(stride);
                }
                ControlMessageOwned::Ipv4Tos(class) => arrival.dscp = Some(class >> 2),
                ControlMessageOwned::Ipv6TClass(class) => {
                    arrival.dscp = u8::try_from(class).ok().map(|class| class >> 2);
                }
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    let local = Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes());
                    arrival.local = Some(local.into());
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    let local = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                    arrival.local = Some(IpAddr::from(local).to_canonical());
                }
                ControlMessageOwned::Ipv4OrigDstAddr(to) => {
                    let ip = Ipv4Addr::from(to.sin_addr.s_addr.to_ne_bytes());
                    let port = u16::from_be(to.sin_port);
                    arrival.original = Some(SocketAddr::from((ip, port)));
                }
                ControlMessageOwned::Ipv6OrigDstAddr(to) => {
                    let ip = IpAddr::from(to.sin6_addr.s6_addr).to_canonical();
                    let port = u16::from_be(to.sin6_port);
                    arrival.original = Some(SocketAddr::from((ip, port)));
                }
                _ => {}
            }
        }
        if bytes.is_empty() {
            each(arrival);
            count += 1;
        }
        for payload in bytes.chunks(stride.max(1)) {
            each(Arrival { payload, ..arrival });
            count += 1;
        }
    }
    Ok(count)
}

/// Takes one entry of the error queue; `None` if it says nothing about a remote.
fn error_of(socket: &impl AsRawFd) -> Result<Option<SocketError>, Errno> {
    // The queue returns the datagram as well, which is cut off.
    let mut payload = [0u8; 1];
    let mut slices = [IoSliceMut::new(&mut payload)];
    let mut control = cmsg_space!(
        libc::sock_extended_err,
        libc::sockaddr_in6,
        i32,
        u8,
        libc::in6_pktinfo
    );
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut slices,
        Some(&mut control),
        MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT,
    )?;
    let Some(remote) = message.address.and_then(address) else {
        return Ok(None);
    };
    let failure = message.cmsgs().into_iter().flatten().find_map(|control| {
        let (ControlMessageOwned::Ipv4RecvErr(error, _)
        | ControlMessageOwned::Ipv6RecvErr(error, _)) = control
        else {
            return None;
        };
        let (kind, code, info) = (error.ee_type, error.ee_code, error.ee_info);
        match error.ee_origin {
            libc::SO_EE_ORIGIN_ICMP => FlowFailure::from_icmp(kind, code, info),
            libc::SO_EE_ORIGIN_ICMP6 => FlowFailure::from_icmp6(kind, code, info),
            // Of this machine: a datagram longer than the path's MTU.
            libc::SO_EE_ORIGIN_LOCAL => Some(FlowFailure::TooBig { mtu: info }),
            _ => None,
        }
    });
    Ok(failure.map(|failure| SocketError { remote, failure }))
}

/// The address, with an IPv4 address inside of IPv6 as IPv4.
fn address(storage: SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddrV4::from(*v4).into());
    }
    let v6 = SocketAddrV6::from(*storage.as_sockaddr_in6()?);
    match v6.ip().to_canonical() {
        IpAddr::V4(ip) => Some(SocketAddr::from((ip, v6.port()))),
        IpAddr::V6(_) => Some(v6.into()),
    }
}
