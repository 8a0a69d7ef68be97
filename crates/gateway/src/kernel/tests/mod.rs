//! Tests with real routes, firewall tables and sockets in network namespaces, and of plans.

mod capture;
mod clean;
mod follow;
mod kill_switch;
mod neighbors;
mod plans;
mod refusals;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tun_rs::{DeviceBuilder, SyncDevice};

use super::*;
use sumlink_test_support::netns::{self, Netns};

/// Longest wait of a test for an expected event.
const PATIENCE: Duration = Duration::from_secs(10);

/// Wait of a test for an event that must not happen.
const SHORT: Duration = Duration::from_millis(300);

/// A gateway between a LAN and the rest of the world.
///
/// ```text
/// lan: 192.168.7.50 -lan0- gateway: 192.168.7.1, 10.0.1.2 -wan0- outside: 10.0.1.1, 203.0.113.1
/// ```
struct World {
    gateway: Netns,
    lan: Netns,
    outside: Netns,
    directory: tempfile::TempDir,
}

impl World {
    /// `None` where tests with namespaces are skipped.
    fn new() -> Option<Self> {
        let (gateway, lan, outside) = (Netns::new()?, Netns::new()?, Netns::new()?);
        for (there, name) in [(&lan, "lan0"), (&outside, "wan0")] {
            let peer = there.name();
            gateway.ip(&format!(
                "link add {name} type veth peer name eth0 netns {peer}"
            ));
            // Link-local addresses would appear between two snapshots.
            gateway.ip(&format!("link set {name} addrgenmode none"));
            gateway.ip(&format!("link set {name} up"));
            there.ip("link set eth0 up");
        }
        for (netns, device, addresses) in [
            (&gateway, "lan0", ["192.168.7.1/24", "2001:db8:7::1/64"]),
            (&gateway, "wan0", ["10.0.1.2/24", "2001:db8:1::2/64"]),
            (&lan, "eth0", ["192.168.7.50/24", "2001:db8:7::50/64"]),
            (&outside, "eth0", ["10.0.1.1/24", "2001:db8:1::1/64"]),
            (&outside, "lo", ["203.0.113.1/32", "2001:db8:ff::1/128"]),
        ] {
            for address in addresses {
                let nodad = if address.contains(':') { " nodad" } else { "" };
                netns.ip(&format!("address add {address} dev {device}{nodad}"));
            }
        }
        gateway.ip("route add default via 10.0.1.1 metric 100");
        gateway.ip("-6 route add default via 2001:db8:1::1 metric 100");
        lan.ip("route add default via 192.168.7.1");
        lan.ip("-6 route add default via 2001:db8:7::1");
        outside.ip("route add 192.168.7.0/24 via 10.0.1.2");
        outside.ip("-6 route add 2001:db8:7::/64 via 2001:db8:1::2");
        Some(Self {
            gateway,
            lan,
            outside,
            directory: tempfile::tempdir().unwrap(),
        })
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("gateway.json")
    }

    /// Routes, rules, firewall and parameters of the gateway.
    fn snapshot(&self) -> String {
        self.gateway.enter(|| {
            let mut text = String::new();
            for command in [
                "ip rule show",
                "ip -6 rule show",
                "ip route show table all",
                "ip -6 route show table all",
                "nft -s list ruleset",
                "sysctl -a --pattern ^net",
            ] {
                let output = netns::command(command);
                // The machine has one set of congestion controls, which other tests change.
                let others = ["nf_conntrack_count", "congestion_control"];
                let kept = output
                    .lines()
                    .filter(|line| !others.iter().any(|other| line.contains(other)));
                text.extend(kept.flat_map(|line| [line.trim_end(), "\n"]));
            }
            text
        })
    }
}

/// Fails with the lines that differ.
#[track_caller]
fn assert_same(after: &str, before: &str, context: impl std::fmt::Debug) {
    let missing = |from: &str, there: &str| {
        let lines = from
            .lines()
            .filter(|line| !there.lines().any(|other| other == *line));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (added, removed) = (missing(after, before), missing(before, after));
    assert!(
        after == before,
        "{context:?}: added {added:#?}, removed {removed:#?}"
    );
}

/// The settings of the test's gateway.
fn settings() -> Settings {
    Settings {
        lan: vec!["lan0".to_owned()],
        links: vec!["wan0".to_owned()],
        ..Settings::default()
    }
}

/// A TUN device in the namespace of the calling thread; it vanishes when it is dropped.
async fn tun() -> SyncDevice {
    until("the end of another device", is_without_device).await;
    DeviceBuilder::new().name("sumlink0").build_sync().unwrap()
}

fn is_without_device() -> bool {
    nix::net::if_::if_nametoindex("sumlink0").is_err()
}

/// Drops the device and awaits its end: a program that another test starts may hold it briefly.
async fn vanish(tun: SyncDevice) {
    drop(tun);
    until("the end of the device", is_without_device).await;
}

/// Starts a gateway in the namespace of the calling thread.
async fn start(state: PathBuf, settings: &Settings) -> (SyncDevice, Applied) {
    let prepared = Prepared::new(&state, settings).await.unwrap();
    let tun = tun().await;
    let plan = prepared.plan(settings).unwrap();
    (tun, prepared.apply(plan).await.unwrap())
}

/// The addresses outside.
const OUTSIDE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 1)),
];

/// Addresses that only the bond could reach.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xee, 0, 0, 0, 0, 7)),
];

fn loopback(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}

fn anywhere(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Reads packets from the device until one ends with these bytes; returns it.
fn read_until(tun: &SyncDevice, end: &[u8]) -> Vec<u8> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut packet = [0; 2048];
    loop {
        let mut ready = [PollFd::new(tun.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(PATIENCE).unwrap();
        assert_eq!(poll(&mut ready, patience).unwrap(), 1, "no packet in time");
        let length = tun.recv(&mut packet).unwrap();
        if packet[..length].ends_with(end) {
            return packet[..length].to_vec();
        }
    }
}

/// A socket bound to this address; transparent if asked for.
fn bound(kind: Type, address: SocketAddr, transparent: bool) -> Socket {
    let protocol = if kind == Type::STREAM {
        Protocol::TCP
    } else {
        Protocol::UDP
    };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol)).unwrap();
    socket.set_reuse_address(true).unwrap();
    if address.is_ipv6() {
        socket.set_only_v6(true).unwrap();
    }
    if transparent {
        match address {
            SocketAddr::V4(_) => socket.set_ip_transparent_v4(true).unwrap(),
            SocketAddr::V6(_) => socket.set_ip_transparent_v6(true).unwrap(),
        }
    }
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.bind(&address.into()).unwrap();
    socket
}

/// The listeners of a gateway, of both families.
struct Listeners {
    redirect: [TcpListener; 2],
    tcp: [TcpListener; 2],
    udp: [Socket; 2],
}

impl Listeners {
    fn new() -> Self {
        let at = |family| SocketAddr::new(loopback(family), 0);
        let listen = |family, transparent| {
            let socket = bound(Type::STREAM, at(family), transparent);
            socket.listen(16).unwrap();
            TcpListener::from(socket)
        };
        let udp = |family: Family| {
            let socket = bound(Type::DGRAM, at(family), true);
            match family {
                Family::V4 => {
                    nix::sys::socket::setsockopt(
                        &socket,
                        nix::sys::socket::sockopt::Ipv4OrigDstAddr,
                        &true,
                    )
                    .unwrap();
                }
                Family::V6 => {
                    nix::sys::socket::setsockopt(
                        &socket,
                        nix::sys::socket::sockopt::Ipv6OrigDstAddr,
                        &true,
                    )
                    .unwrap();
                }
            }
            socket
        };
        Self {
            redirect: Family::ALL.map(|family| listen(family, false)),
            tcp: Family::ALL.map(|family| listen(family, true)),
            udp: Family::ALL.map(udp),
        }
    }

    /// Settings with these ports.
    fn settings(&self) -> Settings {
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let udp_port = |socket: &Socket| socket.local_addr().unwrap().as_socket().unwrap().port();
        let ports = |number: usize| ListenerPorts {
            redirect: port(&self.redirect[number]),
            transparent_tcp: port(&self.tcp[number]),
            transparent_udp: udp_port(&self.udp[number]),
        };
        Settings {
            ipv4_ports: ports(0),
            ipv6_ports: ports(1),
            ..settings()
        }
    }
}

/// Opens a TCP connection with a time limit.
fn connect(remote: SocketAddr) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&remote, SHORT)
}

/// Opens a TCP connection as carriers do.
fn connect_as_carrier(remote: SocketAddr, device: &str) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM, None)?;
    socket.set_mark(CARRIER_MARK)?;
    socket.bind_device(Some(device.as_bytes()))?;
    socket.connect_timeout(&remote.into(), PATIENCE)?;
    Ok(socket.into())
}

/// Opens a TCP connection over an interface of the program's choice.
fn connect_bound(remote: SocketAddr, device: &str) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM, None)?;
    socket.bind_device(Some(device.as_bytes()))?;
    socket.connect_timeout(&remote.into(), SHORT)?;
    Ok(socket.into())
}

/// Sends a byte there and gets one back.
fn exchange(client: TcpStream, server: TcpStream) {
    for (mut from, mut to) in [(&client, &server), (&server, &client)] {
        to.set_read_timeout(Some(PATIENCE)).unwrap();
        from.write_all(b"x").unwrap();
        let mut byte = [0];
        to.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }
}

/// The destination that a redirected connection had.
fn original_destination(stream: &TcpStream) -> SocketAddr {
    let socket = socket2::SockRef::from(stream);
    let found: SockAddr = match stream.local_addr().unwrap() {
        SocketAddr::V4(_) => socket.original_dst_v4().unwrap(),
        SocketAddr::V6(_) => socket.original_dst_v6().unwrap(),
    };
    found.as_socket().unwrap()
}

/// Receives a datagram: payload, source, and the destination that it had.
fn receive_with_destination(socket: &Socket) -> (Vec<u8>, SocketAddr, SocketAddr) {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
    let mut data = [0; 2048];
    let mut control = nix::cmsg_space!(nix::libc::sockaddr_in6);
    let mut parts = [std::io::IoSliceMut::new(&mut data)];
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::empty(),
    )
    .unwrap();
    let destination = message.cmsgs().unwrap().find_map(|cmsg| match cmsg {
        ControlMessageOwned::Ipv4OrigDstAddr(address) => Some(SocketAddr::V4(
            nix::sys::socket::SockaddrIn::from(address).into(),
        )),
        ControlMessageOwned::Ipv6OrigDstAddr(address) => Some(SocketAddr::V6(
            nix::sys::socket::SockaddrIn6::from(address).into(),
        )),
        _ => None,
    });
    let source = message.address.unwrap();
    let source = source
        .as_sockaddr_in()
        .map(|address| SocketAddr::V4((*address).into()))
        .or_else(|| {
            source
                .as_sockaddr_in6()
                .map(|address| SocketAddr::V6((*address).into()))
        });
    let length = message.bytes;
    (
        data[..length].to_vec(),
        source.unwrap(),
        destination.unwrap(),
    )
}

/// Awaits a condition.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "not in time: {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
