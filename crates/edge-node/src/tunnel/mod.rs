//! One link: its socket, its pacing, and its liveness.

mod inbox;
mod liveness;
mod pace;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use nix::libc;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{GetStruct, IpMtu};
use quinn_udp::{Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use sumlink_edge::Instant;
use sumlink_qdisc::LocalQueue;

use crate::config::{LinkConfig, NodeConfig};
use crate::error::NodeError;
use crate::outbox::Outbox;
use crate::wire::{Header, Kind};

pub(crate) use inbox::Inbox;
use liveness::Liveness;
pub(crate) use liveness::State;
use pace::Pace;

/// Share of the backlog below a link that is passed to the kernel at once.
const BACKLOG_PART: usize = 4;

/// Receive buffer of the socket in bytes.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent_packets: u64,
    /// Including all headers, down to IP.
    pub(crate) sent_bytes: u64,
    pub(crate) received_packets: u64,
    pub(crate) received_bytes: u64,
    pub(crate) probes: u64,
    pub(crate) answers: u64,
    /// Packets that the kernel refused.
    pub(crate) refused: u64,
    /// Datagrams that do not belong to this tunnel.
    pub(crate) foreign: u64,
}

/// The tunnel over one link.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) name: String,
    socket: UdpSocket,
    offload: UdpSocketState,
    remote: SocketAddr,
    /// Bytes of the headers below the tunnel's, for pacing.
    below: usize,
    pub(crate) pace: Pace,
    /// Packets to be sent next, and the bytes of them that are passed to the kernel at once.
    outbox: Outbox,
    part: usize,
    /// The socket is full.
    is_full: bool,
    /// A probe and an answer that the socket had no room for: a busy link must not count as dead.
    control: [Option<Vec<u8>>; 2],
    pub(crate) liveness: Liveness,
    pub(crate) counts: Counts,
    /// A refusal by the kernel has been logged.
    pub(crate) refusal_logged: bool,
    /// The queue of the interface, if the kernel reports it.
    interface: Option<LocalQueue>,
}

impl Tunnel {
    /// Opens the socket; only packets from the remote address reach it.
    pub(crate) fn open(link: &LinkConfig, config: &NodeConfig) -> Result<Self, NodeError> {
        let failed = |reason| NodeError::Tunnel {
            link: link.name.clone(),
            local: link.local,
            remote: link.remote,
            reason,
        };
        let socket = connect(link).map_err(failed)?;
        check_mtu(&socket, link, config)?;
        let offload = UdpSocketState::new((&socket).into()).map_err(failed)?;
        Ok(Self {
            name: link.name.clone(),
            socket,
            offload,
            remote: link.remote,
            below: if link.remote.is_ipv4() { 28 } else { 48 },
            pace: Pace::new(link.rate),
            outbox: Outbox::default(),
            part: link.backlog / BACKLOG_PART,
            is_full: false,
            control: [None, None],
            liveness: Liveness::new(config.probe, config.dead_after),
            counts: Counts::default(),
            refusal_logged: false,
            interface: None,
        })
    }

    /// Starts queries of the interface's queue. Must be called inside a tokio runtime.
    pub(crate) fn watch_interface(&mut self) {
        let local = self.socket.local_addr().map(|local| local.ip());
        match local.and_then(|local| LocalQueue::of(&self.socket, local)) {
            Ok(queue) => self.interface = Some(queue),
            Err(error) => {
                tracing::debug!(link = %self.name, %error, "cannot query the interface's queue");
            }
        }
    }

    /// Bytes in the queueing discipline of the interface, from all programs.
    pub(crate) fn interface_bytes(&self) -> Option<u64> {
        self.interface.as_ref()?.bytes()
    }

    /// Whether the link takes another packet: pacing allows it, and the socket is not full.
    pub(crate) fn takes_more(&mut self, now: Instant) -> bool {
        if self.outbox.len() >= self.part {
            self.flush();
        }
        !self.is_full && self.pace.has_burst(now)
    }

    /// Queues a packet, which leaves with [`Tunnel::flush`] at the latest.
    pub(crate) fn push(&mut self, header: Header, packet: &[u8], now: Instant) {
        let len = self.outbox.push(|out| header.write(packet, out));
        self.pace.sent(len + self.below, now);
    }

    /// Sends the queued packets while the socket has room; returns whether all were sent.
    pub(crate) fn flush(&mut self) -> bool {
        self.is_full = false;
        while let Some(run) = self.outbox.run(self.offload.max_gso_segments()) {
            let sent = transmit(
                &self.socket,
                &self.offload,
                self.remote,
                run.bytes,
                run.size,
            );
            let (len, count) = (run.bytes.len(), run.count);
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_full = true;
                    return false;
                }
                // The interface cannot split them and reports this only now: they leave one by one.
                Err(_) if count > 1 && self.offload.max_gso_segments() == 1 => continue,
                result => self.note(result, count, len),
            }
            self.outbox.remove(count);
        }
        true
    }

    /// Counts datagrams passed to the kernel. A refused datagram is lost, as on any link.
    fn note(&mut self, result: io::Result<()>, count: usize, len: usize) {
        match result {
            Err(error) => {
                self.counts.refused += count as u64;
                if !std::mem::replace(&mut self.refusal_logged, true) {
                    tracing::warn!(
                        link = %self.name,
                        %error,
                        "the kernel refused a packet; it is lost"
                    );
                }
            }
            Ok(()) => {
                self.refusal_logged = false;
                self.counts.sent_packets += count as u64;
                self.counts.sent_bytes += (len + count * self.below) as u64;
            }
        }
    }

    /// Drops the queued packets of a dead link.
    pub(crate) fn clear(&mut self) {
        self.outbox.clear();
        self.is_full = false;
    }

    /// Sends a probe or an answer, at once or before anything else; only the last of each kind
    /// waits.
    pub(crate) fn send_control(&mut self, kind: Kind, datagram: Vec<u8>, now: Instant) {
        let len = datagram.len();
        match transmit(&self.socket, &self.offload, self.remote, &datagram, len) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.control[usize::from(kind == Kind::Answer)] = Some(datagram);
            }
            result => {
                self.note(result, 1, len);
                self.pace.sent(len + self.below, now);
            }
        }
    }

    /// Sends packets that the socket had no room for; returns whether all were sent.
    pub(crate) fn resume(&mut self, now: Instant) -> bool {
        for (waiting, kind) in [Kind::Probe, Kind::Answer].into_iter().enumerate() {
            if let Some(datagram) = self.control[waiting].take() {
                self.send_control(kind, datagram, now);
            }
        }
        self.control.iter().all(Option::is_none) && (!self.is_full || self.flush())
    }

    /// Whether packets wait for room in the socket.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_full || self.control.iter().any(Option::is_some)
    }

    /// Reads once; `false` if no datagram is available.
    pub(crate) fn receive(&mut self, inbox: &mut Inbox) -> bool {
        let (socket, offload) = (&self.socket, &self.offload);
        loop {
            match inbox.fill(|slices, metas| offload.recv(socket.into(), slices, metas)) {
                Ok(()) => break,
                // An ICMP error for an earlier datagram: the remote end may not be listening yet.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        for datagram in inbox.datagrams() {
            self.counts.received_packets += 1;
            self.counts.received_bytes += (datagram.len() + self.below) as u64;
        }
        true
    }
}

/// Passes datagrams of equal size to the kernel; the last one may be shorter.
fn transmit(
    socket: &UdpSocket,
    offload: &UdpSocketState,
    destination: SocketAddr,
    contents: &[u8],
    size: usize,
) -> io::Result<()> {
    let transmit = Transmit {
        destination,
        ecn: None,
        contents,
        segment_size: Some(size),
        src_ip: None,
    };
    offload.try_send(socket.into(), &transmit)
}

impl AsFd for Tunnel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn connect(link: &LinkConfig) -> io::Result<UdpSocket> {
    let domain = Domain::for_address(link.remote);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if let Some(interface) = &link.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.set_nonblocking(true)?;
    // The kernel doubles the value to cover the overhead per packet, which is small when several
    // datagrams travel as one.
    socket.set_send_buffer_size(link.backlog.div_ceil(2))?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(&link.local.into())?;
    socket.connect(&link.remote.into())?;
    Ok(socket.into())
}

/// MTU of the route of a connected socket (IPV6_MTU, ipv6(7)).
#[derive(Clone, Copy, Debug)]
struct Ipv6Mtu;

nix::getsockopt_impl!(
    Ipv6Mtu,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU,
    libc::c_int,
    GetStruct<libc::c_int>
);

/// Checks that the largest packet fits the current route. If a packet no longer fits later, the
/// kernel refuses it: connected sockets do not fragment (IP_MTU_DISCOVER).
fn check_mtu(socket: &UdpSocket, link: &LinkConfig, config: &NodeConfig) -> Result<(), NodeError> {
    let takes = match link.remote {
        SocketAddr::V4(_) => getsockopt(socket, IpMtu),
        SocketAddr::V6(_) => getsockopt(socket, Ipv6Mtu),
    };
    let Ok(takes) = takes else {
        return Ok(());
    };
    let needed = config.tun.mtu + config.overhead(link);
    let takes = usize::try_from(takes).unwrap_or(0);
    if needed <= takes {
        return Ok(());
    }
    Err(NodeError::Mtu {
        link: link.name.clone(),
        mtu: config.tun.mtu,
        needed,
        takes,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use sumlink_test_support::netns::Netns;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn link(remote: SocketAddr) -> LinkConfig {
        LinkConfig {
            name: "a".to_owned(),
            local: "127.0.0.1:0".parse().unwrap(),
            remote,
            interface: None,
            rate: None,
            backlog: 1 << 20,
        }
    }

    fn config() -> NodeConfig {
        NodeConfig {
            role: crate::Role::Node,
            core: sumlink_edge::Config::default(),
            tun: crate::TunConfig::default(),
            links: Vec::new(),
            tunnel: 0,
            only: None,
            reorder: Default::default(),
            probe: 100 * MS,
            dead_after: 500 * MS,
        }
    }

    /// A tunnel and the address of its socket.
    fn tunnel(remote: SocketAddr) -> (Tunnel, SocketAddr) {
        let tunnel = Tunnel::open(&link(remote), &config()).unwrap();
        let here = tunnel.socket.local_addr().unwrap();
        (tunnel, here)
    }

    #[test]
    fn datagrams_of_any_size_arrive_intact_and_in_order() {
        let unused: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let (_, free) = tunnel(unused);
        let (mut from, here) = tunnel(free);
        let mut to = Tunnel::open(
            &LinkConfig {
                local: free,
                ..link(here)
            },
            &config(),
        )
        .unwrap();
        let header = Header {
            kind: Kind::Packet,
            tunnel: 7,
            epoch: 1,
        };
        let lengths = [1400; 30].into_iter().chain([20, 1400, 1400, 900, 1, 1]);
        let sent: Vec<Vec<u8>> = lengths
            .enumerate()
            .map(|(i, len)| vec![i as u8; len])
            .collect();
        let (mut inbox, mut received) = (Inbox::new(), Vec::new());
        for packet in &sent {
            from.push(header, packet, Instant::ZERO);
        }
        let end = std::time::Instant::now() + Duration::from_secs(30);
        while received.len() < sent.len() && std::time::Instant::now() < end {
            from.flush();
            if to.receive(&mut inbox) {
                let read = |datagram| Header::read(datagram).unwrap().1.to_vec();
                received.extend(inbox.datagrams().map(read));
            }
        }
        assert_eq!(received, sent);
        assert!(!from.is_blocked() && !to.receive(&mut inbox));
        assert_eq!(from.counts.sent_packets, sent.len() as u64);
        assert_eq!(from.counts.sent_bytes, to.counts.received_bytes);
    }

    #[test]
    fn the_interface_queue_stays_within_the_backlog() {
        let Some(ns) = Netns::new() else { return };
        let ip = ns.commands();
        ip("link add a0 type veth peer name a1");
        ip("addr add 10.9.0.1/24 dev a0");
        ip("link set a0 up");
        ip("link set a1 up");
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev a0");
        // 100 kB/s, and room for ten times the permitted backlog.
        let tbf = "qdisc add dev a0 root tbf rate 800kbit burst 3kb limit 640kb";
        let tc = Command::new("tc")
            .args(["-n", ns.name()])
            .args(tbf.split(' '))
            .output();
        assert!(tc.unwrap().status.success());
        let most = 64 * 1024;
        let waited = ns.run(async move || {
            let below = LinkConfig {
                local: "10.9.0.1:0".parse().unwrap(),
                backlog: most,
                ..link("10.9.0.2:9".parse().unwrap())
            };
            let mut tunnel = Tunnel::open(&below, &config()).unwrap();
            tunnel.watch_interface();
            let header = Header {
                kind: Kind::Packet,
                tunnel: 0,
                epoch: 1,
            };
            let mut waited = Vec::new();
            let end = std::time::Instant::now() + Duration::from_secs(30);
            while waited.len() < 30 && std::time::Instant::now() < end {
                while tunnel.takes_more(Instant::ZERO) {
                    tunnel.push(header, &[7; 1000], Instant::ZERO);
                }
                waited.extend(tunnel.interface_bytes());
                tokio::time::sleep(10 * MS).await;
            }
            waited
        });
        let greatest = *waited.iter().max().unwrap();
        assert!((10_000..=most as u64).contains(&greatest), "{waited:?}");
    }

    #[test]
    fn datagrams_from_other_addresses_are_ignored() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let [remote, stranger] = [(); 2].map(|()| UdpSocket::bind(any).unwrap());
        let (mut tunnel, here) = tunnel(remote.local_addr().unwrap());
        stranger.send_to(b"no", here).unwrap();
        remote.send_to(b"yes", here).unwrap();
        let mut inbox = Inbox::new();
        while !tunnel.receive(&mut inbox) {
            std::thread::yield_now();
        }
        assert_eq!(inbox.datagrams().collect::<Vec<_>>(), [b"yes"]);
    }
}
