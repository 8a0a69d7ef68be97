//! UDP sockets for QUIC, which report the errors that quinn ignores.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use nix::sys::socket::{setsockopt, sockopt};
use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::Notify;

use super::runtime::{Gate, is_time_old};
use crate::carrier::socket::{Binding, SocketError, Way, listen_error, send_by, unmapped};

/// A UDP socket for one endpoint of QUIC.
#[derive(Debug)]
pub(super) struct QuicSocket {
    io: UdpSocket,
    state: UdpSocketState,
    /// Largest UDP payload in bytes that is sent or received.
    largest: u16,
    gate: Arc<Gate>,
    /// Whether anything has arrived.
    heard: AtomicBool,
    failure: Mutex<Option<io::Error>>,
    failed: Notify,
}

/// A socket of a client, before QUIC uses it.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) socket: Socket,
    pub(super) binding: Binding,
    /// MTU of the link in bytes, if the link is known.
    pub(super) mtu: Option<u32>,
}

/// Bytes that the kernel may hold for a socket in either direction: 16 ms at 2 Gbit/s.
const KERNEL_BUFFER: usize = 4 * 1024 * 1024;

/// Largest UDP payload in bytes with IPv4: the kernel joins or splits packets up to this size.
const MAX_OFFLOADED: u16 = 65_507;

/// Errors of a socket that are read at once; the rest wait for the task's next turn.
const MAX_ERRORS: usize = 16;

/// A socket for packets to `remote` that take this way. It is connected, so that the kernel reports
/// ICMP errors and drops packets of others.
pub(super) async fn connect(way: Way<'_>, remote: SocketAddr) -> Result<Bound, SocketError> {
    let remote = unmapped(remote);
    let socket = new_socket(remote)?;
    let (binding, link) = send_by(&socket, way, remote).await?;
    socket
        .connect(&remote.into())
        .map_err(|source| match source.raw_os_error() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EADDRNOTAVAIL) => {
                SocketError::Unreachable { remote }
            }
            _ => SocketError::System {
                action: format!("connect a UDP socket to {remote}"),
                source,
            },
        })?;
    Ok(Bound {
        socket,
        binding,
        mtu: link.map(|link| link.mtu),
    })
}

/// A socket that receives on `address`; `[::]` takes IPv4 packets, too, whatever the system's
/// default is.
pub(super) fn listen(address: SocketAddr) -> Result<Socket, SocketError> {
    let socket = new_socket(address)?;
    let error = |source| listen_error(source, address);
    if address.is_ipv6() {
        socket.set_only_v6(false).map_err(error)?;
    }
    socket.bind(&address.into()).map_err(error)?;
    Ok(socket)
}

/// A socket that another program has bound, with the buffers of [`listen`].
pub(super) fn adopt(socket: std::net::UdpSocket) -> io::Result<Socket> {
    let socket = Socket::from(socket);
    socket.set_nonblocking(true)?;
    enlarge_buffers(&socket);
    Ok(socket)
}

fn new_socket(address: SocketAddr) -> Result<Socket, SocketError> {
    let kind = Type::DGRAM.nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP));
    let socket = socket.map_err(|source| {
        let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
        SocketError::System {
            action: format!("open an {family} UDP socket for {address}"),
            source,
        }
    })?;
    enlarge_buffers(&socket);
    Ok(socket)
}

/// Only a privileged program may exceed net.core.rmem_max and wmem_max. The kernel doubles the
/// values for its own overhead.
fn enlarge_buffers(socket: &Socket) {
    if setsockopt(socket, sockopt::RcvBufForce, &KERNEL_BUFFER).is_err() {
        let _ = socket.set_recv_buffer_size(KERNEL_BUFFER);
    }
    if setsockopt(socket, sockopt::SndBufForce, &KERNEL_BUFFER).is_err() {
        let _ = socket.set_send_buffer_size(KERNEL_BUFFER);
    }
}

impl QuicSocket {
    /// Prepares a socket for UDP payloads of at most `largest` bytes, which is read while `gate` is
    /// open.
    pub(super) fn new(socket: Socket, largest: u16, gate: Arc<Gate>) -> io::Result<Arc<Self>> {
        let io = UdpSocket::from_std(socket.into())?;
        Ok(Arc::new(Self {
            state: UdpSocketState::new((&io).into())?,
            io,
            largest,
            gate,
            heard: AtomicBool::new(false),
            failure: Mutex::default(),
            failed: Notify::new(),
        }))
    }

    /// Whether anything has arrived.
    pub(super) fn heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// Waits for the next error of the system, such as an ICMP message.
    pub(super) async fn failure(&self) -> io::Error {
        loop {
            let failed = self.failed.notified();
            let failure = self
                .failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(error) = failure {
                return error;
            }
            failed.await;
        }
    }

    fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let send = || self.state.try_send((&self.io).into(), transmit);
        self.io.try_io(Interest::WRITABLE, send)
    }

    /// Sends the packets of a batch one by one after `error`: the kernel refuses a whole batch if
    /// its packets are too large for the device, even a last one that is small. With it lost,
    /// quinn would not see that only large packets are, and never make them smaller.
    fn send_segments(&self, transmit: &Transmit<'_>, error: io::Error) -> io::Result<()> {
        let Some(size) = transmit.segment_size.filter(|size| *size > 0) else {
            return Err(error);
        };
        for contents in transmit.contents.chunks(size) {
            let packet = Transmit {
                destination: transmit.destination,
                ecn: transmit.ecn,
                contents,
                segment_size: None,
                src_ip: transmit.src_ip,
            };
            match self.send(&packet) {
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {}
                // A part of the batch has left: the rest is lost rather than sent twice.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                result => result?,
            }
        }
        Ok(())
    }

    fn fail(&self, error: io::Error) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.failed.notify_waiters();
    }
}

impl AsyncUdpSocket for QuicSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller {
            socket: self,
            waiting: None,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let result = match self.send(transmit) {
            Err(error) if is_too_large(&error) => self.send_segments(transmit, error),
            result => result,
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // quinn gives up a connection after an error; for UDP, any error is a lost packet. A
            // packet that is too large for the device is expected while the MTU is searched.
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Ok(()),
            Err(error) => {
                self.fail(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        ready!(self.gate.poll_open(cx.waker()));
        for _ in 0..MAX_ERRORS {
            ready!(self.io.poll_recv_ready(cx))?;
            if is_time_old() {
                break;
            }
            let receive = || self.state.recv((&self.io).into(), bufs, meta);
            match self.io.try_io(Interest::READABLE, receive) {
                Ok(count) => {
                    self.heard.store(true, Ordering::Relaxed);
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => self.fail(error),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        let fitting = usize::from(MAX_OFFLOADED / self.largest);
        self.state.max_gso_segments().min(fitting).max(1)
    }

    fn max_receive_segments(&self) -> usize {
        // quinn multiplies this with the largest payload to get the size of a buffer.
        let fitting = usize::from(MAX_OFFLOADED.div_ceil(self.largest));
        self.state.gro_segments().min(fitting).max(1)
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// Whether a packet, or those of a batch, may be too large for the device. For a batch, the kernel
/// has either error, depending on its version.
fn is_too_large(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::EINVAL))
}

/// Waits for one task of quinn until the socket is writable.
struct Poller {
    socket: Arc<QuicSocket>,
    waiting: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>>,
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Every packet asks; the allocation below is only for a full socket.
        let io = &self.socket.io;
        if self.waiting.is_none() && io.try_io(Interest::WRITABLE, || Ok(())).is_ok() {
            return Poll::Ready(Ok(()));
        }
        let socket = Arc::clone(&self.socket);
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(async move { socket.io.writable().await }));
        let result = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(result)
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").finish_non_exhaustive()
    }
}
