//! TCP sockets for carriers: bound to their link, with a chosen congestion control and little
//! unsent data in the kernel.

mod binding;
mod congestion;
mod error;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
pub use sumlink_bond::socket::{INITIAL_NOTSENT_LOWAT, USER_TIMEOUT};
use sumlink_bond::socket::{KEEPALIVE_INTERVAL, KEEPALIVE_PROBES, KEEPALIVE_TIME};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::carrier::prompt_repair;
pub use binding::Binding;
pub(crate) use binding::{Way, send_by};
use congestion::first_congestion;
pub(crate) use congestion::set_congestion;
pub use congestion::{check_congestion, congestion_name};
pub use error::SocketError;
pub(crate) use error::{connect_error, listen_error};

/// A TCP connection over a link.
#[derive(Debug)]
#[non_exhaustive]
pub struct Connected {
    /// The connection.
    pub stream: TcpStream,
    /// How it is bound to its link.
    pub binding: Binding,
}

/// Connects to `remote` over `link`, or over the link chosen by the routing table for `None`.
///
/// `congestion` is a name from `tcp_available_congestion_control`; `None` leaves the kernel's
/// default. The congestion control, [`INITIAL_NOTSENT_LOWAT`], [`USER_TIMEOUT`], TCP_NODELAY and
/// keepalives are set before the first packet. The route to `remote` is checked first, so that a
/// link without one fails at once and not by a timeout.
pub async fn connect_on_link(
    link: Option<&str>,
    remote: SocketAddr,
    congestion: Option<&str>,
    timeout: Duration,
) -> Result<Connected, SocketError> {
    let way = Way { link, mark: None };
    connect_with_packets(way, remote, congestion, None, timeout).await
}

/// [`connect_on_link`] with IP packets of at most `packet_limit` bytes in both directions:
/// `TCP_MAXSEG` (tcp(7)) limits the peer's segments, too.
pub(crate) async fn connect_with_packets(
    way: Way<'_>,
    remote: SocketAddr,
    congestion: Option<&str>,
    packet_limit: Option<u16>,
    timeout: Duration,
) -> Result<Connected, SocketError> {
    let remote = unmapped(remote);
    let socket = new_socket(remote)?;
    let (binding, _) = send_by(&socket, way, remote).await?;
    tune(&socket, congestion)?;
    if let Some(limit) = packet_limit {
        let headers = if remote.is_ipv6() { 60 } else { 40 };
        let segment = u32::from(limit.saturating_sub(headers));
        socket
            .set_tcp_mss(segment)
            .map_err(|source| SocketError::System {
                action: format!("limit segments to {segment} bytes"),
                source,
            })?;
    }
    let socket = TcpSocket::from_std_stream(socket.into());
    match tokio::time::timeout(timeout, socket.connect(remote)).await {
        Ok(Ok(stream)) => Ok(Connected { stream, binding }),
        Ok(Err(error)) => Err(connect_error(error, remote, timeout)),
        Err(_) => Err(SocketError::TimedOut { remote, timeout }),
    }
}

/// A socket that listens on `address`; `[::]` accepts IPv4 connections, too, whatever the system's
/// default is. Port 0 lets the kernel choose one.
///
/// Accepted connections inherit `congestion`; still call [`tune_accepted`] on them.
pub fn listen(address: SocketAddr, congestion: Option<&str>) -> Result<TcpListener, SocketError> {
    let socket = new_socket(address)?;
    let system = |source| SocketError::System {
        action: format!("listen on {address}"),
        source,
    };
    if address.is_ipv6() {
        socket.set_only_v6(false).map_err(system)?;
    }
    // A restarted server must not wait for old connections in TIME-WAIT (RFC 9293, section 3.4.2).
    // On Linux this does not let two programs listen on one port.
    socket.set_reuse_address(true).map_err(system)?;
    first_congestion(&socket, congestion)?;
    // Inherited: the first round trip of an accepted connection is measured before the connection
    // can be tuned.
    let _ = prompt_repair::set(&socket);
    socket
        .bind(&address.into())
        .and_then(|()| socket.listen(BACKLOG))
        .map_err(|source| listen_error(source, address))?;
    TcpListener::from_std(socket.into()).map_err(system)
}

/// Listens with a socket that another program has bound; the rest is as for [`listen`].
pub fn adopt(
    listener: std::net::TcpListener,
    congestion: Option<&str>,
) -> Result<TcpListener, SocketError> {
    let system = |source| SocketError::System {
        action: "use the socket that this program was started with".to_owned(),
        source,
    };
    let socket = Socket::from(listener);
    socket.set_nonblocking(true).map_err(system)?;
    first_congestion(&socket, congestion)?;
    let _ = prompt_repair::set(&socket);
    // The other program may have chosen a shorter backlog, or not listened yet.
    socket.listen(BACKLOG).map_err(system)?;
    TcpListener::from_std(socket.into()).map_err(system)
}

/// Sets the options of [`connect_on_link`] on an accepted connection.
pub fn tune_accepted(stream: &TcpStream, congestion: Option<&str>) -> Result<(), SocketError> {
    tune(&SockRef::from(stream), congestion)
}

/// Sets the limit on unsent data in a TCP socket, in bytes, above which it is not writable
/// (`TCP_NOTSENT_LOWAT`, tcp(7)). Costs one system call.
pub fn set_notsent_lowat(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    SockRef::from(socket).set_tcp_notsent_lowat(bytes)
}

/// Whether less than half of `TCP_NOTSENT_LOWAT` waits unsent, or the connection has failed. If
/// not, the kernel reports later when it is.
pub(crate) fn is_writable(socket: &impl AsFd) -> io::Result<bool> {
    let mut asked = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    Ok(poll(&mut asked, PollTimeout::ZERO)? > 0)
}

/// Backlog of connections to be accepted; the kernel's `net.core.somaxconn` may allow fewer.
const BACKLOG: i32 = 1024;

/// When a silent peer is probed, and after how many probes the connection ends.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(KEEPALIVE_TIME)
    .with_interval(KEEPALIVE_INTERVAL)
    .with_retries(KEEPALIVE_PROBES);

/// An IPv4-mapped IPv6 address needs an IPv4 socket to be bound and routed like IPv4.
pub(crate) fn unmapped(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip.is_ipv4() => SocketAddr::new(ip, address.port()),
        _ => address,
    }
}

fn new_socket(address: SocketAddr) -> Result<Socket, SocketError> {
    let kind = Type::STREAM.nonblocking();
    Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP)).map_err(|source| {
        let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
        SocketError::System {
            action: format!("open an {family} socket for {address}"),
            source,
        }
    })
}

fn tune(socket: &Socket, congestion: Option<&str>) -> Result<(), SocketError> {
    first_congestion(socket, congestion)?;
    if let Err(error) = prompt_repair::set(socket) {
        tracing::debug!(
            %error,
            "cannot set the retransmission timeouts; losses wait for TCP's default ones"
        );
    }
    socket
        .set_tcp_nodelay(true)
        .and_then(|()| socket.set_tcp_notsent_lowat(INITIAL_NOTSENT_LOWAT))
        .and_then(|()| socket.set_tcp_user_timeout(Some(USER_TIMEOUT)))
        .and_then(|()| socket.set_tcp_keepalive(&KEEPALIVE))
        .map_err(|source| SocketError::System {
            action: "set TCP options".to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::LinkError;
    use sumlink_test_support::netns::Netns;

    const SOON: Duration = Duration::from_secs(5);

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    async fn connect(remote: SocketAddr) -> Result<Connected, SocketError> {
        connect_on_link(None, remote, None, SOON).await
    }

    fn assert_tuned(stream: &TcpStream, congestion: &str) {
        let socket = SockRef::from(stream);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), INITIAL_NOTSENT_LOWAT);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
        assert_eq!(congestion_name(stream).unwrap(), congestion);
    }

    #[tokio::test]
    async fn both_ends_are_tuned_and_use_the_configured_congestion_control() {
        let path = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
        let names = std::fs::read_to_string(path).unwrap();
        let names: Vec<&str> = names.split_whitespace().collect();
        let (one, other) = (names[0], names[names.len() - 1]);
        let listener = listen(addr("127.0.0.1:0"), Some(one)).unwrap();
        let remote = listener.local_addr().unwrap();
        let client = connect_on_link(Some("lo"), remote, Some(other), SOON)
            .await
            .unwrap();
        assert_eq!(client.binding, Binding::Device);
        assert_tuned(&client.stream, other);
        let device = SockRef::from(&client.stream).device().unwrap();
        assert_eq!(device.as_deref(), Some(&b"lo"[..]));
        let (server, _) = listener.accept().await.unwrap();
        assert_eq!(congestion_name(&server).unwrap(), one);
        tune_accepted(&server, Some(other)).unwrap();
        assert_tuned(&server, other);
        set_notsent_lowat(&server, 4096).unwrap();
        assert_eq!(SockRef::from(&server).tcp_notsent_lowat().unwrap(), 4096);
    }

    #[tokio::test]
    async fn an_ipv6_wildcard_takes_ipv4_too() {
        let listener = listen(addr("[::]:0"), None).unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"] {
            let client = connect(addr(&format!("{host}:{port}"))).await.unwrap();
            assert_eq!(client.binding, Binding::None, "{host}");
            listener.accept().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let listener = listen(addr("127.0.0.1:0"), None).unwrap();
        let address = listener.local_addr().unwrap();
        let error = listen(address, None).unwrap_err();
        assert!(matches!(error, SocketError::PortTaken { .. }), "{error}");
        assert!(
            error.to_string().contains(&address.port().to_string()),
            "{error}"
        );
        let error = listen(addr("192.0.2.77:0"), None).unwrap_err();
        assert!(matches!(error, SocketError::NotLocal { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_closed_port_refuses_and_a_missing_link_is_named() {
        // Bound and not listening: no other program can take the port meanwhile.
        let closed = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        closed.bind(&addr("127.0.0.1:0").into()).unwrap();
        let remote = closed.local_addr().unwrap().as_socket().unwrap();
        let error = connect(remote).await.unwrap_err();
        assert!(matches!(error, SocketError::Refused { .. }), "{error}");
        let error = connect_on_link(Some("nosuchlink0"), remote, None, SOON)
            .await
            .unwrap_err();
        assert!(
            matches!(error, SocketError::Link(LinkError::NoSuchLink { .. })),
            "{error}"
        );
    }

    /// A client with two links to the server; the second has no default route.
    fn two_links() -> Option<(Netns, Netns)> {
        let (client, server) = (Netns::new()?, Netns::new()?);
        for (name, net) in [("a0", 1), ("b0", 2)] {
            client.ip(&format!(
                "link add {name} type veth peer name {name} netns {}",
                server.name()
            ));
            for (ns, host) in [(&client, 2), (&server, 1)] {
                ns.ip(&format!("addr add 10.0.{net}.{host}/24 dev {name}"));
                ns.ip(&format!(
                    "-6 addr add 2001:db8:{net}::{host}/64 dev {name} nodad"
                ));
                ns.ip(&format!("link set {name} up"));
            }
        }
        for address in ["192.0.2.1/32", "2001:db8:f::1/128"] {
            server.ip(&format!("addr add {address} dev lo"));
        }
        client.ip("route add default via 10.0.1.1 metric 100");
        client.ip("-6 route add default via 2001:db8:1::1 metric 100");
        Some((client, server))
    }

    #[test]
    fn a_connection_leaves_by_its_link_and_not_by_the_preferred_one() {
        let Some((client, server)) = two_links() else {
            return;
        };
        client.ip("route add default via 10.0.2.1 metric 200");
        client.ip("-6 route add default via 2001:db8:2::1 metric 200");
        for (host, a, b) in [
            ("192.0.2.1", "10.0.1.2", "10.0.2.2"),
            ("[2001:db8:f::1]", "2001:db8:1::2", "2001:db8:2::2"),
        ] {
            let listener =
                server.run(async || listen(addr("[::]:0"), None).unwrap().into_std().unwrap());
            let remote = addr(&format!("{host}:{}", listener.local_addr().unwrap().port()));
            for (link, source) in [("a0", a), ("b0", b)] {
                let local = client.run(async move || {
                    let client = connect_on_link(Some(link), remote, None, SOON)
                        .await
                        .unwrap();
                    client.stream.local_addr().unwrap().ip().to_string()
                });
                assert_eq!(local, source, "{link}");
            }
        }
    }

    #[test]
    fn a_link_that_cannot_reach_the_server_fails_at_once_and_a_silent_server_by_timeout() {
        let Some((client, _server)) = two_links() else {
            return;
        };
        client.run(async || {
            let connect = async |link, remote: &str, timeout| {
                connect_on_link(link, addr(remote), None, timeout)
                    .await
                    .unwrap_err()
            };
            for server in ["192.0.2.1:443", "[2001:db8:f::1]:443"] {
                let error = connect(Some("b0"), server, SOON).await;
                assert!(
                    matches!(error, SocketError::Link(LinkError::NoRoute { .. })),
                    "{error}"
                );
                let error = connect(Some("a0"), server, SOON).await;
                assert!(matches!(error, SocketError::Refused { .. }), "{error}");
            }
            // A neighbor that does not exist: ARP retries for seconds.
            let brief = Duration::from_millis(50);
            let error = connect(Some("a0"), "10.0.1.99:443", brief).await;
            assert!(matches!(error, SocketError::TimedOut { .. }), "{error}");
        });
        client.ip("route del default");
        client.run(async || {
            let error = connect(addr("192.0.2.1:443")).await.unwrap_err();
            assert!(matches!(error, SocketError::Unreachable { .. }), "{error}");
        });
    }
}
