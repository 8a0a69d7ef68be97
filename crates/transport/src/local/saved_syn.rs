//! Reads the DSCP with which a program opened a TCP connection to this machine.
//!
//! A TCP socket does not report the type of service of incoming packets: `IP_TOS` is for outgoing
//! packets, and `IP_RECVTOS` is for datagrams. But Linux keeps the headers of the first packet
//! (SYN) for a listener that requests it (`TCP_SAVE_SYN`, tcp(7)), and returns them once for each
//! accepted connection (`TCP_SAVED_SYN`).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::carrier::sockopt;

/// Makes the kernel keep the SYN of each connection to this listener.
pub fn save_syn(listener: &impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    sockopt::set(listener, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, on)
}

/// The DSCP (RFC 2474, 0 to 63) of an accepted connection's SYN, if [`save_syn`] was called on its
/// listener. The kernel returns it only once.
pub fn dscp(accepted: &impl AsFd) -> Option<u8> {
    // The fixed IP header would suffice, but the kernel rejects a buffer that is too short.
    let mut headers = [0u8; 256];
    let mut len = headers.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `headers`, which has that length; both
    // outlive the call, and the borrow keeps the descriptor open.
    let result = unsafe {
        libc::getsockopt(
            accepted.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_SAVED_SYN,
            headers.as_mut_ptr().cast(),
            &mut len,
        )
    };
    let headers = headers.get(..len as usize)?;
    if result == 0 {
        traffic_class(headers).map(|class| class >> 2)
    } else {
        None
    }
}

/// The type of service of an IPv4 header (RFC 791) or the traffic class of an IPv6 one (RFC 8200).
fn traffic_class(header: &[u8]) -> Option<u8> {
    let (&first, &second) = (header.first()?, header.get(1)?);
    match first >> 4 {
        4 => Some(second),
        6 => Some(first << 4 | second >> 4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn the_dscp_of_a_connection_is_that_of_its_first_packet() {
        // Expedited forwarding (RFC 3246) is 46.
        for (address, domain) in [("127.0.0.1:0", Domain::IPV4), ("[::1]:0", Domain::IPV6)] {
            let listener = TcpListener::bind(address.parse::<SocketAddr>().unwrap()).unwrap();
            save_syn(&listener).unwrap();
            let socket = Socket::new(domain, Type::STREAM, None).unwrap();
            match domain {
                Domain::IPV4 => socket.set_tos_v4(46 << 2).unwrap(),
                _ => socket.set_tclass_v6(46 << 2).unwrap(),
            }
            socket
                .connect(&listener.local_addr().unwrap().into())
                .unwrap();
            let (accepted, _) = listener.accept().unwrap();
            assert_eq!(dscp(&accepted), Some(46), "{address}");
            assert_eq!(dscp(&accepted), None, "it is given once");
        }
    }

    #[test]
    fn without_save_syn_there_is_no_dscp() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(dscp(&listener.accept().unwrap().0), None);
    }
}
