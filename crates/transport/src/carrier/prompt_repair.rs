//! Makes carriers repair losses sooner than TCP does by default.
//!
//! Linux waits at least 200 ms for an acknowledgment before it resends a lost retransmission or a
//! lost last segment (RFC 6298, section 2.4, requires a second), because a receiver may delay
//! acknowledgments by as long. Each further wait is twice as long, and all data behind the hole
//! waits with it, on all paths. Both ends of a carrier belong to sumlink, so both change: the
//! receiver delays acknowledgments by at most 40 ms, the sender waits at least 50 ms. If the
//! original still arrives later, TCP notices (F-RTO, RFC 5682), at the cost of one segment sent
//! twice.
//!
//! Requires Linux 6.15; with an earlier kernel, carriers behave like other TCP connections.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use sumlink_bond::socket::{DELACK_MAX, RTO_MIN};

use crate::carrier::sockopt;

/// `TCP_RTO_MIN_US` of `linux/tcp.h`, which libc does not name.
const TCP_RTO_MIN_US: libc::c_int = 45;

/// `TCP_DELACK_MAX_US` of `linux/tcp.h`, which libc does not name.
const TCP_DELACK_MAX_US: libc::c_int = 46;

/// Sets both on a TCP socket; fails with `ENOPROTOOPT` before Linux 6.15.
pub(crate) fn set(socket: &impl AsFd) -> io::Result<()> {
    set_micros(socket, TCP_DELACK_MAX_US, DELACK_MAX)?;
    set_micros(socket, TCP_RTO_MIN_US, RTO_MIN)
}

fn set_micros(socket: &impl AsFd, option: libc::c_int, time: Duration) -> io::Result<()> {
    let micros = time.as_micros() as libc::c_int;
    sockopt::set(socket, libc::IPPROTO_TCP, option, micros)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::carrier::tcp_info;

    /// The retransmission timeout of a connection on loopback, with or without the options.
    fn timeout(prompt: bool) -> io::Result<Duration> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        if prompt {
            set(&socket)?;
        }
        socket.connect(&listener.local_addr()?.into())?;
        let mut stream = TcpStream::from(socket);
        let mut served = listener.accept()?.0;
        stream.write_all(b"x")?;
        served.read_exact(&mut [0])?;
        served.write_all(b"y")?;
        stream.read_exact(&mut [0])?;
        Ok(tcp_info::sample(&stream)?.rto)
    }

    #[test]
    fn the_options_shorten_the_retransmission_timeout() {
        assert!(timeout(false).unwrap() >= Duration::from_millis(200));
        match timeout(true) {
            Ok(timeout) => assert!(timeout < Duration::from_millis(100), "{timeout:?}"),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                println!("this kernel is older than 6.15");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
