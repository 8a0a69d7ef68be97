//! A carrier: one TCP connection with TLS 1.3 on it, past its handshake, driven by the session's task.
//!
//! Here is what goes through it. What its socket may hold is in `room`, what its TCP knows in `knowledge`, when that is to
//! acknowledge at once in `acknowledgements`, when to begin slow start once more in `restart`, and when to space what it sends in
//! `far`, and whether its large packets get through in `large`.

mod acknowledgements;
mod far;
#[cfg(test)]
mod fixture;
mod ills;
mod knowledge;
mod large;
mod restart;
mod room;

use std::cell::RefCell;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::Instant;

use rustls::Connection;
use sumlink_engine::{PathId, SustainedRate};
use sumlink_qdisc::LocalQueue;
use tokio::net::TcpStream;

use crate::congestion::Chooser;
use crate::groups::CarrierGroups;
use crate::low_water::Reserve;
use crate::pacing;
use crate::socket;
use crate::tcp_info::TcpInfo;

use acknowledgements::Acknowledgements;
use far::Spacing;
pub(crate) use ills::{Ill, Ills};
use large::Large;
use restart::Restart;
use room::{YOUNG_LOWAT, YOUTH};

/// A reliable, ordered, encrypted connection over one link.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) id: PathId,
    /// The link's name at the client.
    pub(crate) link: String,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Name of the congestion control.
    pub(crate) congestion: String,
    /// The most that its IP packets may have, in bytes, where larger ones were lost on its link; nothing otherwise.
    pub(crate) packet_limit: Option<u16>,
    /// Changes it by measurement, where that was asked for.
    chooser: Option<Chooser>,
    /// What outages did to its window.
    restart: Restart,
    /// What the log says it suffers from.
    pub(crate) ills: Ills,
    /// Whether TCP spaces what it sends.
    spacing: Spacing,
    /// Whether its large packets get through.
    large: Large,
    tcp: TcpStream,
    tls: Connection,
    /// Frames that came along with the handshake's last one.
    early: Vec<u8>,
    /// The newest TCP_INFO, and when it was taken.
    info: TcpInfo,
    sampled: Instant,
    /// Present value of TCP_NOTSENT_LOWAT.
    lowat: u32,
    lowat_set: Instant,
    /// How long it is to last under BBR.
    reserve: Reserve,
    /// The socket refused bytes when it was last written to: when it is empty next time, that is too late.
    refused: bool,
    /// Until TCP has so many bytes acknowledged its window is small, and grows with every round trip.
    young_until: u64,
    /// The most that it may send, in bytes per second.
    limit: Option<u64>,
    /// What it delivers for longer than a burst, by the time since it was made.
    sustained: SustainedRate,
    began: Instant,
    /// Bytes handed to the socket since TCP_INFO was taken.
    handed: u64,
    acknowledgements: Acknowledgements,
    /// Encrypted bytes that the socket has not taken.
    unwritten: usize,
    /// Bytes on the wire that have been given account of.
    accounted: u64,
    /// The queue of the interface, where somebody wants to know what waits there.
    local_queue: Option<LocalQueue>,
}

/// Bytes taken out of a socket at once.
const READ: usize = 256 * 1024;

thread_local! {
    /// Where they are until TLS has them, which by itself takes 4 KiB in one go.
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
        let info = TcpInfo::sample(&tcp)?;
        let mut carrier = Self {
            id,
            link,
            local: canonical(tcp.local_addr()?),
            remote: canonical(tcp.peer_addr()?),
            congestion: socket::congestion_name(&tcp).unwrap_or_default(),
            packet_limit: None,
            chooser: None,
            restart: Restart::default(),
            ills: Ills::default(),
            spacing: Spacing::default(),
            large: Large::default(),
            sampled: now,
            lowat: socket::INITIAL_NOTSENT_LOWAT,
            lowat_set: now,
            reserve: Reserve::new(now),
            refused: false,
            young_until: info.bytes_acked + YOUTH,
            limit: None,
            sustained: SustainedRate::default(),
            began: now,
            handed: 0,
            acknowledgements: Acknowledgements::new(now),
            info,
            unwritten: 0,
            accounted: 0,
            local_queue: None,
            tcp,
            tls,
            early,
        };
        carrier.set_lowat(YOUNG_LOWAT, now);
        Ok(carrier)
    }

    /// From now on the congestion control is chosen by measurement.
    pub(crate) fn choose_congestion(&mut self) {
        self.chooser = Some(Chooser::new());
    }

    /// Makes it a sibling of the session's other carriers.
    pub(crate) fn join_group(&self, groups: &dyn CarrierGroups, session: &[u8; 16]) {
        if let Err(error) = groups.join(self.tcp.as_fd(), session) {
            tracing::warn!(path = self.id.0, link = %self.link, %error, "its congestion control sees no siblings");
        }
    }

    /// Gives arrived frame bytes to `sink`, at most about `quota` of them. Ready with how many there were; 0 is the
    /// end of the connection. Pending when there is nothing.
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
                self.acknowledgements.arrived(len as u64, &self.info);
                let mut rest = &arrived[..len];
                // What comes behind the peer's goodbye counts for nothing, and TLS takes none of it.
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
                    // The alert that tells the peer; it may not get out any more.
                    let _ = self.flush();
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    /// Whether the socket takes more; while it does not, the task is woken when it does.
    pub(crate) fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.refused {
            self.look_into_socket();
        }
        while self.tls.wants_write() {
            match self.flush() {
                Ok(()) => self.refused = false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.refused = true;
                    match self.tcp.poll_write_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        other => return other,
                    }
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        match self.is_parked() {
            true => self.poll_window(cx),
            false => Poll::Ready(Ok(())),
        }
    }

    /// Encrypts frames; [`Carrier::poll_writable`] writes them.
    pub(crate) fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        self.unwritten += frames.len();
        self.tls.writer().write_all(frames)
    }

    /// Says goodbye to the peer's TLS, after what has been sent.
    pub(crate) fn send_end(&mut self) {
        self.tls.send_close_notify();
    }

    /// Has TCP send at most so many bytes a second.
    pub(crate) fn limit(&mut self, rate: Option<u64>) {
        self.limit = rate;
        if rate.is_some() {
            self.spacing = Spacing::Settled;
        }
        if let Err(error) = pacing::limit(&self.tcp, rate) {
            let (path, link) = (self.id.0, &self.link);
            tracing::warn!(path, %link, %error, "the limit of the link cannot be kept");
        }
    }

    /// Has TCP acknowledge what little has arrived, unless that goes along with what is sent.
    pub(crate) fn acknowledge(&mut self) {
        if !self.tls.wants_write() {
            self.acknowledgements.tell(&self.tcp, &self.info);
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
        self.handed += self.tls.write_tls(&mut TryIo(&self.tcp))? as u64;
        self.acknowledgements.sent();
        if !self.tls.wants_write() {
            self.unwritten = 0;
        }
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

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
