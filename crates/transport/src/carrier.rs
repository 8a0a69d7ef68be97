//! A carrier: one TCP connection with TLS 1.3 on it, past its handshake, driven by the session's task.

use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustls::Connection;
use sumlink_engine::{LossState, PathId, PathSample};
use tokio::net::TcpStream;

use crate::congestion::{self, Chooser};
use crate::links::LocalQueue;
use crate::socket;
use crate::tcp_info::{CaState, TcpInfo};

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
    /// Changes it by measurement, where that was asked for.
    chooser: Option<Chooser>,
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
    /// Encrypted bytes that the socket has not taken.
    unwritten: usize,
    /// The queue of the interface, where somebody wants to know what waits there.
    local_queue: Option<LocalQueue>,
}

/// TCP_INFO is not older than this when a decision is made with it.
const SAMPLE_AGE: Duration = Duration::from_millis(1);

/// What may wait unsent in the socket: this long at the present rate ...
const LOWAT_TIME: Duration = Duration::from_millis(3);

/// ... within these bounds.
const LOWAT: std::ops::RangeInclusive<u32> = 12 * 1024..=512 * 1024;

/// TCP_NOTSENT_LOWAT is changed no more often than this.
const LOWAT_PAUSE: Duration = Duration::from_millis(50);

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
        Ok(Self {
            id,
            link,
            local: canonical(tcp.local_addr()?),
            remote: canonical(tcp.peer_addr()?),
            congestion: socket::congestion_name(&tcp).unwrap_or_default(),
            chooser: None,
            info: TcpInfo::sample(&tcp)?,
            sampled: now,
            lowat: socket::INITIAL_NOTSENT_LOWAT,
            lowat_set: now,
            unwritten: 0,
            local_queue: None,
            tcp,
            tls,
            early,
        })
    }

    /// From now on the congestion control is chosen by measurement.
    pub(crate) fn choose_congestion(&mut self) {
        self.chooser = Some(Chooser::new());
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
            match self.tls.read_tls(&mut TryIo(&self.tcp)) {
                Ok(0) => return Poll::Ready(Ok(total)),
                Ok(_) => {
                    if let Err(error) = self.tls.process_new_packets() {
                        // The alert that tells the peer; it may not get out any more.
                        let _ = self.flush();
                        return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.tcp.poll_read_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending if total > 0 => return Poll::Ready(Ok(total)),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Whether the socket takes more; while it does not, the task is woken when it does.
    pub(crate) fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            match self.flush() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.tcp.poll_write_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        other => return other,
                    }
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
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

    /// Bytes to hand over at once: a part of what the socket may hold, so that little is decided early.
    pub(crate) fn budget(&self) -> usize {
        (self.lowat as usize / 2).clamp(8 * 1024, 64 * 1024)
    }

    /// Has [`Carrier::sample`] tell what waits in the interface's queue, from now on.
    pub(crate) fn watch_local_queue(&mut self) {
        match LocalQueue::of(&self.tcp, self.local.ip()) {
            Ok(queue) => self.local_queue = Some(queue),
            Err(error) => {
                let (path, link) = (self.id.0, &self.link);
                tracing::warn!(path, %link, %error, "what waits in the interface's queue is not known");
            }
        }
    }

    /// What TCP knows now; at most a millisecond old.
    pub(crate) fn sample(&mut self, now: Instant) -> PathSample {
        if now.duration_since(self.sampled) >= SAMPLE_AGE || self.info.srtt.is_zero() {
            self.sampled = now;
            if let Ok(info) = TcpInfo::sample(&self.tcp) {
                self.info = info;
            }
            self.adapt_lowat(now);
            self.adapt_congestion(now);
        }
        let info = &self.info;
        PathSample {
            srtt: info.srtt,
            rttvar: info.rttvar,
            min_rtt: info.min_rtt.unwrap_or_default(),
            mss: info.snd_mss,
            cwnd: info.snd_cwnd_bytes,
            ssthresh: info.snd_ssthresh_bytes,
            loss: match info.ca_state {
                CaState::Open => LossState::Open,
                CaState::Loss => LossState::Timeout,
                CaState::Disorder | CaState::Cwr | CaState::Recovery => LossState::Recovery,
            },
            in_flight: info.unacked_bytes,
            unsent: info.notsent_bytes + self.unwritten as u64,
            local_queue: self.local_queue.as_ref().map_or(0, LocalQueue::bytes),
            full: self.tls.wants_write(),
            delivery_rate: info.delivery_rate_bytes_per_s,
            pacing_rate: info.pacing_rate_bytes_per_s.unwrap_or(0),
            segments: u64::from(info.segs_out),
            retransmitted: u64::from(info.total_retrans),
        }
    }

    /// Bytes sent and acknowledged, and bytes received.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.info.bytes_acked + self.info.bytes_received
    }

    /// Whether packets wait in a queue on their way.
    pub(crate) fn is_queueing(&self) -> bool {
        let least = self.info.min_rtt.unwrap_or(self.info.srtt);
        congestion::is_queueing(self.info.srtt.saturating_sub(least), least)
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
        self.tls.write_tls(&mut TryIo(&self.tcp))?;
        if !self.tls.wants_write() {
            self.unwritten = 0;
        }
        Ok(())
    }

    fn adapt_congestion(&mut self, now: Instant) {
        let Some(chooser) = &mut self.chooser else {
            return;
        };
        let Some(change) = chooser.observe(now, &self.info) else {
            return;
        };
        match socket::set_congestion(&self.tcp, change.to) {
            Ok(()) => {
                tracing::info!(path = self.id.0, link = %self.link, congestion = change.to, "{}", change.reason);
                change.to.clone_into(&mut self.congestion);
            }
            Err(error) => {
                tracing::warn!(path = self.id.0, link = %self.link, "{}, but: {error}", change.reason);
                chooser.refused(now);
            }
        }
    }

    /// Lets as much wait in the socket as leaves in a few milliseconds: enough to keep TCP busy between two visits,
    /// little enough to be decided late.
    fn adapt_lowat(&mut self, now: Instant) {
        if now.duration_since(self.lowat_set) < LOWAT_PAUSE {
            return;
        }
        let rate = self.info.delivery_rate_bytes_per_s as f64;
        let wanted = (rate * LOWAT_TIME.as_secs_f64())
            .clamp(*LOWAT.start() as f64, *LOWAT.end() as f64) as u32;
        if wanted.abs_diff(self.lowat) > self.lowat / 4 {
            self.lowat_set = now;
            if socket::set_notsent_lowat(&self.tcp, wanted).is_ok() {
                self.lowat = wanted;
            }
        }
    }
}

/// The non-blocking socket under TLS.
struct TryIo<'a>(&'a TcpStream);

impl Read for TryIo<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buf)
    }
}

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
