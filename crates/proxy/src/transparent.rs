//! Connections to other machines that a packet filter passes to a port of this one.

use std::io;
use std::net::SocketAddr;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::origin::canonical;
use crate::{Service, Target};

/// Connections that wait to be accepted; `net.core.somaxconn` limits them, too.
const QUEUE: u32 = 4096;

/// Binds a port that accepts connections to any address.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    match address {
        SocketAddr::V4(_) => SockRef::from(&socket).set_ip_transparent_v4(true)?,
        SocketAddr::V6(_) => SockRef::from(&socket).set_ip_transparent_v6(true)?,
    }
    socket.bind(address)?;
    socket.listen(QUEUE)
}

/// Where the program of an accepted connection wanted to connect. `None` if it wanted to connect to
/// the port, `own`: a relay to it would be a loop.
pub(crate) fn target(accepted: &TcpStream, service: &Service, own: SocketAddr) -> Option<Target> {
    let original = match service {
        Service::Transparent => accepted.local_addr(),
        _ => redirected(accepted),
    };
    let original = canonical(original.ok()?);
    let own = canonical(own);
    let is_own =
        original.port() == own.port() && (original.ip() == own.ip() || own.ip().is_unspecified());
    (!is_own && original.port() != 0).then(|| Target::from(original))
}

/// The destination of a connection before the packet filter has redirected it
/// (`SO_ORIGINAL_DST`). Without a redirection, that is the port, or an error.
fn redirected(accepted: &TcpStream) -> io::Result<SocketAddr> {
    let is_v4 = accepted.local_addr()?.ip().to_canonical().is_ipv4();
    let socket = SockRef::from(accepted);
    let original = match is_v4 {
        true => socket.original_dst_v4(),
        false => socket.original_dst_v6(),
    }?;
    original
        .as_socket()
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
