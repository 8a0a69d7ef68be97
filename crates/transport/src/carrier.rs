//! A carrier: one TCP connection with TLS 1.3, after its handshake, driven by the session's task.
//!
//! This module moves the bytes. The policy of [`sumlink_bond`], which accesses the socket through
//! `kernel`, decides how many bytes are sent and how TCP is configured.
//!
//! The submodules are what a carrier is made of: the handshake, TLS and the keys that it proves,
//! and the options and counters of its TCP socket.

pub mod congestion;
#[cfg(test)]
mod fixture;
pub(crate) mod groups;
pub(crate) mod handshake;
mod kernel;
pub mod keys;
mod pacing;
mod prompt_repair;
pub mod quic;
pub mod socket;
#[expect(
    unsafe_code,
    reason = "these options of setsockopt have no safe wrapper"
)]
pub(crate) mod sockopt;
mod stats;
pub(crate) mod tag;
#[expect(unsafe_code, reason = "getsockopt(TCP_INFO) has no safe wrapper")]
pub mod tcp_info;
pub mod tls;

use std::cell::RefCell;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustls::Connection;
use socket2::SockRef;
use sumlink_bond::{Carrier as Policy, EndToEnd, LoggedStates};
use sumlink_engine::PathId;
use sumlink_qdisc::LocalQueue;
use tokio::io::Interest;
use tokio::net::TcpStream;

use groups::CarrierGroups;
use kernel::Kernel;

/// A reliable, ordered, encrypted connection over one link.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) id: PathId,
    /// The link's name at the client.
    pub(crate) link: String,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Bytes of frames that were sent before those of the session.
    pub(crate) sent_before: u64,
    /// The peer's reports, if TCP ends at a load balancer.
    pub(crate) end_to_end: Option<EndToEnd>,
    /// Maximum size of its IP packets in bytes, if larger ones were lost on its link; `None`
    /// otherwise.
    pub(crate) packet_limit: Option<u16>,
    /// The states of the path that the log has reported.
    pub(crate) logged_states: LoggedStates,
    /// Decides how many bytes the carrier gets and how TCP is configured.
    policy: Policy,
    /// Time zero of the policy.
    began: Instant,
    tcp: TcpStream,
    tls: Connection,
    /// Frames received together with the last frame of the handshake.
    early: Vec<u8>,
    /// Bytes on the wire that have been charged to the link.
    accounted: Moved,
    /// The interface's queue, if its length is needed.
    local_queue: Option<LocalQueue>,
}

/// Bytes on a link in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl Moved {
    /// Both directions together.
    pub(crate) fn sum(self) -> u64 {
        self.sent.saturating_add(self.received)
    }

    /// The bytes added since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            received: self.received.saturating_sub(before.received),
        }
    }
}

/// Bytes read from a socket at once.
const READ: usize = 256 * 1024;

thread_local! {
    /// Holds received bytes until TLS has taken them, which takes only 4 KiB at a time.
    static ARRIVED: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into());
}

impl Carrier {
    pub(crate) fn new(
        id: PathId,
        link: String,
        tcp: TcpStream,
        mut tls: Connection,
        early: Vec<u8>,
    ) -> io::Result<Self> {
        tls.set_buffer_limit(None);
        let now = Instant::now();
        let info = tcp_info::sample(&tcp)?;
        let congestion = socket::congestion_name(&tcp).unwrap_or_default();
        let mut kernel = Kernel {
            tcp: &tcp,
            path: id.0,
            link: &link,
        };
        let policy = Policy::new(congestion, info, &mut kernel, Duration::ZERO);
        Ok(Self {
            id,
            local: canonical(tcp.local_addr()?),
            remote: canonical(tcp.peer_addr()?),
            link,
            sent_before: 0,
            end_to_end: None,
            packet_limit: None,
            logged_states: LoggedStates::default(),
            policy,
            began: now,
            accounted: Moved::default(),
            local_queue: None,
            tcp,
            tls,
            early,
        })
    }

    /// Turns on the choice of the congestion control by measurement.
    pub(crate) fn choose_congestion(&mut self) {
        self.policy.choose_congestion();
    }

    /// Adds the carrier's socket to the group of its session.
    pub(crate) fn join_group(&self, groups: &dyn CarrierGroups, session: &[u8; 16]) {
        if let Err(error) = groups.join(self.tcp.as_fd(), session) {
            tracing::warn!(
                path = self.id.0,
                link = %self.link,
                %error,
                "congestion control of the carrier sees no siblings; it runs uncoupled"
            );
        }
    }

    /// Passes received frame bytes to `sink`, at most about `quota` of them. Ready with their
    /// number, 0 at the end of the connection; pending if nothing has arrived.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        quota: usize,
        mut sink: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut total = self.early.len();
        if total > 0 {
            sink(&std::mem::take(&mut self.early));
        }
        loop {
            let ended = self.drain_plaintext(&mut total, &mut sink)?;
            if ended || total >= quota {
                return Poll::Ready(Ok(total));
            }
            let arrived = ARRIVED.with_borrow_mut(|arrived| {
                let len = self.tcp.try_read(arrived)?;
                let now = self.began.elapsed();
                self.policy.arrived(len as u64, now);
                let mut rest = &arrived[..len];
                // Data after the peer's close_notify is ignored, and TLS accepts none of it.
                while !rest.is_empty() && self.tls.read_tls(&mut rest)? > 0 {
                    if let Err(error) = self.tls.process_new_packets() {
                        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                    }
                    self.drain_plaintext(&mut total, &mut sink)?;
                }
                Ok(len)
            });
            match arrived {
                Ok(0) => return Poll::Ready(Ok(total)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.tcp.poll_read_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending if total > 0 => return Poll::Ready(Ok(total)),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                Err(error) => {
                    // Sends the alert to the peer, if the socket still accepts it.
                    let _ = self.flush();
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    /// Whether the socket accepts more data; if not, the task is woken when it does.
    pub(crate) fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let now = self.began.elapsed();
        let mut kernel = Kernel {
            tcp: &self.tcp,
            path: self.id.0,
            link: &self.link,
        };
        self.policy.look_into_full_socket(&mut kernel, now);
        while self.tls.wants_write() {
            match self.flush() {
                Ok(()) => self.policy.set_refused(false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.policy.set_refused(true);
                    match self.tcp.poll_write_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        other => return other,
                    }
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let now = self.began.elapsed();
        let mut kernel = Kernel {
            tcp: &self.tcp,
            path: self.id.0,
            link: &self.link,
        };
        match self.policy.must_ask_first(&mut kernel, now) {
            true => self.poll_window(cx),
            false => Poll::Ready(Ok(())),
        }
    }

    /// Ready when less than half of the low-water mark waits in the socket.
    fn poll_window(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            // poll(2) makes the kernel report when the window opens; it does so only after a
            // refused write.
            let ask = || match socket::is_writable(&self.tcp)? {
                true => Ok(()),
                false => Err(io::ErrorKind::WouldBlock.into()),
            };
            match self.tcp.try_io(Interest::WRITABLE, ask) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.tcp.poll_write_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        other => return other,
                    }
                }
                result => return Poll::Ready(result),
            }
        }
    }

    /// Encrypts frames; [`Carrier::poll_writable`] writes them.
    pub(crate) fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        self.policy.queued(frames.len() as u64);
        self.tls.writer().write_all(frames)
    }

    /// Sends close_notify to the peer's TLS, after all data.
    pub(crate) fn send_end(&mut self) {
        self.tls.send_close_notify();
    }

    /// Limits TCP to `rate` bytes per second.
    pub(crate) fn limit(&mut self, rate: Option<u64>) {
        let mut kernel = Kernel {
            tcp: &self.tcp,
            path: self.id.0,
            link: &self.link,
        };
        self.policy.set_limit(rate, &mut kernel);
    }

    /// Records that a call uses its link, so that the link's queue is kept short, and the number of
    /// the session's carriers over the link; `None` if no call does.
    pub(crate) fn set_call(&mut self, carriers: Option<u32>) {
        let mut kernel = Kernel {
            tcp: &self.tcp,
            path: self.id.0,
            link: &self.link,
        };
        self.policy.set_call(carriers, &mut kernel);
    }

    /// Makes TCP acknowledge small amounts of received data at once, unless data is about to be
    /// sent.
    pub(crate) fn acknowledge(&mut self) {
        if self.policy.acknowledges_now(self.tls.wants_write()) {
            // A socket without the option acknowledges as before.
            let _ = SockRef::from(&self.tcp).set_tcp_quickack(true);
        }
    }

    fn drain_plaintext(
        &mut self,
        total: &mut usize,
        sink: &mut impl FnMut(&[u8]),
    ) -> io::Result<bool> {
        let mut reader = self.tls.reader();
        loop {
            let len = match reader.fill_buf() {
                Ok([]) => return Ok(true),
                Ok(bytes) => {
                    sink(bytes);
                    bytes.len()
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            *total += len;
            reader.consume(len);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = self.tls.write_tls(&mut TryIo(&self.tcp))? as u64;
        self.policy.handed(bytes, self.tls.wants_write());
        Ok(())
    }
}

/// The non-blocking socket that TLS writes to.
struct TryIo<'a>(&'a TcpStream);

impl Write for TryIo<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.try_write(buf)
    }

    fn write_vectored(&mut self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
