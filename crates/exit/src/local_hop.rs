//! Connections that stay on this machine: between sumlink and local programs.
//!
//! Their segments are as large as over Ethernet. The kernel sizes a program's send buffer by its
//! segments: with those of the loopback device (64 KiB), it accepts 4 MiB without a reader. Over
//! 30 Mbit/s, a program would be a second ahead of the links before a write waits.
//!
//! If BBR is the system's congestion control, these connections use it too. BBR paces the data with
//! a kernel timer for about every 64 KiB, although the local path has no queue to protect. So they
//! use Reno instead, which every kernel has and allows every program. docs/fbdt.md, "What it
//! costs", has the measured gain.
//!
//! The change must come before the connection is made: a socket that has started pacing keeps
//! pacing.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use socket2::SockRef;
use sumlink_bond::congestion::MODEL_BASED;

use crate::outgoing::Outgoing;

/// The congestion control of local connections, if the system's is BBR.
const UNPACED: &str = "reno";

/// Largest segment in bytes, as announced in both directions (`TCP_MAXSEG`, tcp(7)).
const SEGMENT: u32 = 1460;

/// A port to which no packet is sent (RFC 863).
const DISCARD: u16 = 9;

/// Connects to `address`; a connection that stays on this machine is not paced.
pub(crate) async fn connect(address: SocketAddr, outgoing: &Outgoing) -> io::Result<TcpStream> {
    let is_local = outgoing.device.is_none() && is_this_machine(address.ip());
    if !is_local && outgoing.is_default() {
        return TcpStream::connect(address).await;
    }
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    outgoing.apply(&socket)?;
    if is_local {
        unpace(&socket);
        limit_segments(&socket);
    }
    socket.connect(address).await
}

/// Prepares a port for future connections of local programs: limits their segments, and turns off
/// pacing if no other host can reach the port, because the path to others may have queues.
pub fn tune_listener(listener: &TcpListener) {
    limit_segments(listener);
    let is_local = listener
        .local_addr()
        .is_ok_and(|address| address.ip().to_canonical().is_loopback());
    if is_local {
        unpace(listener);
    }
}

/// Whether packets to `ip` stay on this machine: a loopback address, or an address that is also the
/// source address for itself. (A successful bind would prove nothing: `net.ipv4.ip_nonlocal_bind`.)
fn is_this_machine(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let any = match ip {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    };
    // Sends nothing: the kernel only looks up the route.
    let source = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((ip, DISCARD))?;
        Ok(socket.local_addr()?.ip())
    };
    ip.is_loopback() || ip.is_unspecified() || source().is_ok_and(|source| source == ip)
}

fn limit_segments(socket: &impl AsFd) {
    if let Err(error) = SockRef::from(socket).set_tcp_mss(SEGMENT) {
        tracing::debug!(%error, "cannot limit segments; programs may write far ahead of the links");
    }
}

fn unpace(socket: &impl AsFd) {
    let socket = SockRef::from(socket);
    let is_paced = |name: Vec<u8>| name.starts_with(MODEL_BASED.as_bytes());
    if !socket.tcp_congestion().is_ok_and(is_paced) {
        return;
    }
    if let Err(error) = socket.set_tcp_congestion(UNPACED.as_bytes()) {
        tracing::debug!(
            %error,
            "cannot set the congestion control of a local connection; it stays paced"
        );
    }
}

#[cfg(test)]
mod tests {
    use sumlink_transport::socket::congestion_name;

    use super::*;

    fn set_congestion(socket: &impl AsFd, name: &str) -> io::Result<()> {
        SockRef::from(socket).set_tcp_congestion(name.as_bytes())
    }

    async fn listener(address: &str) -> TcpListener {
        TcpListener::bind(address).await.unwrap()
    }

    /// Whether this kernel lets programs use BBR, and `socket` starts with it.
    fn begins_with_bbr(socket: &impl AsFd) -> bool {
        set_congestion(socket, MODEL_BASED).is_ok()
    }

    #[tokio::test]
    async fn no_connection_to_this_machine_is_paced() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = listener(address).await;
            let address = listener.local_addr().unwrap();
            let stream = connect(address, &Outgoing::default()).await.unwrap();
            let name = congestion_name(&stream).unwrap();
            assert!(!name.starts_with(MODEL_BASED), "{name}");
        }
        // Includes the machine's own addresses beyond loopback.
        assert!(is_this_machine([0, 0, 0, 0].into()));
        assert!(is_this_machine("::ffff:127.0.0.1".parse().unwrap()));
        // RFC 5737: belongs to no host.
        assert!(!is_this_machine([192, 0, 2, 1].into()));
    }

    /// Bytes that the kernel accepts from a program while the other end reads none.
    async fn accepted(program: TcpStream, _unread: TcpStream) -> usize {
        let (block, mut sum) = ([0; 64 * 1024], 0);
        let idle = std::time::Duration::from_millis(100);
        while let Ok(ready) = tokio::time::timeout(idle, program.writable()).await {
            ready.unwrap();
            sum += program.try_write(&block).unwrap_or(0);
        }
        sum
    }

    #[tokio::test]
    async fn the_kernel_accepts_little_from_local_programs_in_both_directions() {
        let entry = listener("127.0.0.1:0").await;
        tune_listener(&entry);
        SockRef::from(&entry)
            .set_recv_buffer_size(32 * 1024)
            .unwrap();
        let program = TcpStream::connect(entry.local_addr().unwrap());
        let (program, (near, _)) = tokio::try_join!(program, entry.accept()).unwrap();
        let entered = accepted(program, near).await;

        let target = listener("127.0.0.1:0").await;
        let outgoing = Outgoing::default();
        let dialed = connect(target.local_addr().unwrap(), &outgoing);
        let (dialed, (program, _)) = tokio::try_join!(dialed, target.accept()).unwrap();
        SockRef::from(&dialed)
            .set_recv_buffer_size(32 * 1024)
            .unwrap();
        let returned = accepted(program, dialed).await;
        // Some 0.4 MB; 4 MB with the segments of the loopback device.
        for sum in [entered, returned] {
            assert!(sum < 1_500_000, "{sum} bytes");
        }
    }

    #[tokio::test]
    async fn only_paced_sockets_are_changed() {
        let socket = TcpSocket::new_v4().unwrap();
        let before = congestion_name(&socket).unwrap();
        let is_paced = begins_with_bbr(&socket);
        unpace(&socket);
        let now = congestion_name(&socket).unwrap();
        assert_eq!(now, if is_paced { UNPACED.to_owned() } else { before });

        set_congestion(&socket, UNPACED).unwrap();
        unpace(&socket);
        assert_eq!(congestion_name(&socket).unwrap(), UNPACED);
    }

    #[tokio::test]
    async fn a_port_that_others_reach_keeps_its_congestion_control() {
        for (address, is_local) in [
            ("127.0.0.1:0", true),
            ("[::1]:0", true),
            ("0.0.0.0:0", false),
        ] {
            let listener = listener(address).await;
            let is_paced = begins_with_bbr(&listener);
            let before = congestion_name(&listener).unwrap();
            tune_listener(&listener);
            let changes = is_paced && is_local;
            let expected = if changes { UNPACED.to_owned() } else { before };
            assert_eq!(congestion_name(&listener).unwrap(), expected, "{address}");

            let port = listener.local_addr().unwrap().port();
            let host = if address.starts_with('[') {
                "::1"
            } else {
                "127.0.0.1"
            };
            let _program = TcpStream::connect((host, port)).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            assert_eq!(congestion_name(&accepted).unwrap(), expected, "{address}");
        }
    }
}
