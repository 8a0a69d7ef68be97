//! One link: its socket, its pace, and whether it carries anything.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::IpMtu};
use socket2::{Domain, Protocol, Socket, Type};
use sumlink_edge::Instant;

use crate::config::{LinkConfig, NodeConfig};
use crate::error::NodeError;
use crate::wire::Kind;

/// How far a link that was served late may catch up at once.
const CATCH_UP: Duration = Duration::from_millis(1);

/// Bytes that the kernel may keep of what has come and was not read yet.
const RECEIVE_BUFFER: usize = 4 << 20;

/// What a new round-trip time counts (RFC 6298, section 2.3).
const GAIN: f64 = 0.125;

/// Whether a link carries anything, as far as its probes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing is known yet; it is used.
    New,
    /// Probes are answered.
    Up,
    /// They are not.
    Down,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent_packets: u64,
    /// With all headers, that of IP included.
    pub(crate) sent_bytes: u64,
    pub(crate) received_packets: u64,
    pub(crate) received_bytes: u64,
    pub(crate) probes: u64,
    pub(crate) answers: u64,
    /// Packets that the kernel did not take.
    pub(crate) refused: u64,
    /// Datagrams that are none of ours.
    pub(crate) foreign: u64,
}

/// The tunnel over one link.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) name: String,
    socket: UdpSocket,
    /// Headers in front of ours, for the pace.
    below: usize,
    pub(crate) pace: Pace,
    /// Was to be sent, and the socket was full.
    pub(crate) pending: Option<Arc<[u8]>>,
    /// The same of a probe and of an answer: a link that is busy must not be taken for a dead one.
    control: [Option<Vec<u8>>; 2],
    pub(crate) liveness: Liveness,
    pub(crate) counts: Counts,
    /// The kernel refused something, and that was told.
    pub(crate) told: bool,
}

impl Tunnel {
    /// Opens the socket; packets of anybody but the remote address do not reach it.
    pub(crate) fn open(link: &LinkConfig, config: &NodeConfig) -> Result<Self, NodeError> {
        let failed = |reason| NodeError::Tunnel {
            link: link.name.clone(),
            local: link.local,
            remote: link.remote,
            reason,
        };
        let socket = connect(link).map_err(failed)?;
        check_mtu(&socket, link, config)?;
        Ok(Self {
            name: link.name.clone(),
            socket,
            below: if link.remote.is_ipv4() { 28 } else { 48 },
            pace: Pace::new(link.rate),
            pending: None,
            control: [None, None],
            liveness: Liveness::new(config.probe, config.dead_after),
            counts: Counts::default(),
            told: false,
        })
    }

    /// Sends a datagram; `false` if the socket has no room for it now. What the kernel refuses for another reason is lost, as
    /// on any link.
    pub(crate) fn send(&mut self, datagram: &[u8], now: Instant) -> bool {
        match self.socket.send(datagram) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) => {
                self.counts.refused += 1;
                if !std::mem::replace(&mut self.told, true) {
                    tracing::warn!(link = %self.name, %error, "the kernel refuses packets of this link");
                }
            }
            Ok(_) => {
                self.told = false;
                self.counts.sent_packets += 1;
                self.counts.sent_bytes += (datagram.len() + self.below) as u64;
            }
        }
        self.pace.sent(datagram.len() + self.below, now);
        true
    }

    /// Sends a probe or an answer, now or before anything else; only the last of each waits.
    pub(crate) fn send_control(&mut self, kind: Kind, datagram: &[u8], now: Instant) {
        if !self.send(datagram, now) {
            self.control[usize::from(kind == Kind::Answer)] = Some(datagram.to_vec());
        }
    }

    /// Sends what [`Tunnel::send_control`] could not; whether nothing is left of it.
    pub(crate) fn flush_control(&mut self, now: Instant) -> bool {
        for waiting in 0..self.control.len() {
            if let Some(datagram) = self.control[waiting].take()
                && !self.send(&datagram, now)
            {
                self.control[waiting] = Some(datagram);
                return false;
            }
        }
        true
    }

    /// Whether something waits for room in the socket.
    pub(crate) fn is_blocked(&self) -> bool {
        self.pending.is_some() || self.control.iter().any(Option::is_some)
    }

    /// The next datagram; `None` when there is none.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        loop {
            match self.socket.recv(buffer) {
                Ok(len) => {
                    self.counts.received_packets += 1;
                    self.counts.received_bytes += (len + self.below) as u64;
                    return Some(len);
                }
                // An ICMP message about something that was sent before: nobody listens there yet, perhaps.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
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
    socket.set_send_buffer_size(link.backlog)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(&link.local.into())?;
    socket.connect(&link.remote.into())?;
    Ok(socket.into())
}

/// Whether the largest packet fits the route as it is now. What does not fit later is refused by the kernel: it is told not to
/// fragment (IP_MTU_DISCOVER is on for connected sockets).
fn check_mtu(socket: &UdpSocket, link: &LinkConfig, config: &NodeConfig) -> Result<(), NodeError> {
    let SocketAddr::V4(_) = link.remote else {
        return Ok(());
    };
    let Ok(takes) = getsockopt(socket, IpMtu) else {
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

/// When the next packet may be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Bits per second.
    rate: Option<u64>,
    ready: Instant,
}

impl Pace {
    fn new(rate: Option<u64>) -> Self {
        Self {
            rate,
            ready: Instant::ZERO,
        }
    }

    /// So many bytes were sent.
    fn sent(&mut self, bytes: usize, now: Instant) {
        if let Some(rate) = self.rate {
            let from = self.ready.max(now.saturating_sub(CATCH_UP));
            let nanos = bytes as u128 * 8 * 1_000_000_000 / u128::from(rate.max(1));
            self.ready = from + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.ready <= now
    }

    pub(crate) fn ready(&self) -> Instant {
        self.ready
    }
}

/// Whether the other end answers over this link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Liveness {
    every: Duration,
    dead_after: Duration,
    next_probe: Instant,
    /// When the last answer came, or this began.
    heard: Instant,
    pub(crate) state: State,
    /// Smoothed.
    pub(crate) rtt: Option<Duration>,
}

impl Liveness {
    fn new(every: Duration, dead_after: Duration) -> Self {
        Self {
            every,
            dead_after,
            next_probe: Instant::ZERO,
            heard: Instant::ZERO,
            state: State::New,
            rtt: None,
        }
    }

    /// When to look again.
    pub(crate) fn poll_timeout(&self) -> Instant {
        match self.state {
            State::Down => self.next_probe,
            _ => self.next_probe.min(self.heard + self.dead_after),
        }
    }

    /// Whether a probe is to be sent now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next_probe <= now;
        if due {
            self.next_probe = now + self.every;
        }
        due
    }

    /// Whether it has just died.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let dead = self.state != State::Down && self.heard + self.dead_after <= now;
        if dead {
            self.state = State::Down;
            self.rtt = None;
        }
        dead
    }

    /// The answer to a probe of that time; whether the link has just come up.
    pub(crate) fn answered(&mut self, sent: Instant, now: Instant) -> bool {
        // An answer that was under way for longer says nothing of now.
        let Some(sample) = now
            .checked_sub(sent)
            .filter(|sample| *sample < self.dead_after)
        else {
            return false;
        };
        self.heard = now;
        self.rtt = Some(match self.rtt {
            Some(rtt) => rtt.mul_f64(1.0 - GAIN) + sample.mul_f64(GAIN),
            None => sample,
        });
        std::mem::replace(&mut self.state, State::Up) != State::Up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn packets_leave_at_the_rate_and_a_late_one_catches_up_a_little() {
        let mut pace = Pace::new(Some(8_000_000)); // 1000 bytes in a millisecond
        pace.sent(1000, Instant::ZERO);
        assert!(!pace.is_ready(MS - Duration::from_nanos(1)) && pace.is_ready(MS));
        // Two milliseconds late: one of them is caught up, the other is lost.
        pace.sent(1000, 3 * MS);
        assert_eq!(pace.ready(), 3 * MS);
        pace.sent(1000, 3 * MS);
        assert_eq!(pace.ready(), 4 * MS);
        let mut unpaced = Pace::new(None);
        unpaced.sent(1 << 30, Instant::ZERO);
        assert!(unpaced.is_ready(Instant::ZERO));
    }

    #[test]
    fn a_link_dies_in_silence_and_comes_back_with_an_answer() {
        let mut link = Liveness::new(100 * MS, 400 * MS);
        assert!(link.is_due(Instant::ZERO) && !link.is_due(50 * MS));
        assert_eq!(link.poll_timeout(), 100 * MS);
        assert!(link.answered(Instant::ZERO, 20 * MS));
        assert!(!link.answered(10 * MS, 30 * MS));
        assert_eq!(link.rtt, Some(20 * MS));
        assert!(!link.expire(429 * MS) && link.expire(430 * MS) && !link.expire(431 * MS));
        assert_eq!((link.state, link.rtt), (State::Down, None));
        assert!(!link.answered(10 * MS, 440 * MS), "that one is too old");
        assert!(link.answered(430 * MS, 450 * MS));
        assert_eq!(link.state, State::Up);
    }

    #[test]
    fn only_the_remote_address_is_heard() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let [remote, stranger] = [(); 2].map(|()| UdpSocket::bind(any).unwrap());
        let link = LinkConfig {
            name: "a".to_owned(),
            local: any,
            remote: remote.local_addr().unwrap(),
            interface: None,
            rate: None,
            backlog: 1 << 16,
        };
        let socket = connect(&link).unwrap();
        let here = socket.local_addr().unwrap();
        stranger.send_to(b"no", here).unwrap();
        remote.send_to(b"yes", here).unwrap();
        let mut buffer = [0; 8];
        let len = loop {
            match socket.recv(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                other => break other.unwrap(),
            }
        };
        assert_eq!(&buffer[..len], b"yes");
    }
}
