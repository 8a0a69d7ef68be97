//! An established datagram carrier.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, ConnectionError, RecvStream, SendDatagramError, SendStream};
use sumlink_bond::datagram::Room;
use sumlink_bond::datagram::quic::SEND_BUFFER;
use sumlink_engine::PathId;

use super::config::CLOSE;
use super::controller::Meter;
use super::error::Ended;

/// A QUIC connection over one link that has joined a session. Dropping it closes it.
pub struct DatagramCarrier {
    path: PathId,
    link: String,
    local: Option<SocketAddr>,
    remote: SocketAddr,
    connection: Connection,
    meter: Arc<Meter>,
    /// Bytes that quinn accepts in any case; renewed when they are used up.
    room: usize,
    /// The largest datagram when the room was last renewed.
    largest: usize,
    /// The wait for the next datagram, while there is none.
    receiving: Option<Receiving>,
    /// The handshake's stream. As long as it exists, the peer may open no other one.
    _join: (SendStream, RecvStream),
}

type Receiving = Pin<Box<dyn Future<Output = Result<Bytes, ConnectionError>> + Send>>;

/// Why a datagram was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// As many datagrams as leave within a few milliseconds wait already. Returns this one; wait
    /// with [`DatagramCarrier::poll_writable`].
    #[error("the carrier has no room")]
    Full(Bytes),
    /// The datagram is larger than the path takes. Datagrams accepted earlier may be lost for the
    /// same reason when the path's limit falls.
    #[error("the datagram is larger than the {limit} bytes that the path takes")]
    TooLarge {
        /// Largest datagram in bytes now.
        limit: usize,
    },
    /// The carrier has ended.
    #[error("the carrier has ended: {0}")]
    Ended(#[from] Ended),
}

/// The state of a datagram carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuicSample {
    /// Smoothed round trip (RFC 9002, section 5.3).
    pub srtt: Duration,
    /// Least round trip of the connection.
    pub min_rtt: Duration,
    /// Mean deviation of the round trip.
    pub rttvar: Duration,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Bytes sent and neither acknowledged nor lost. Exact after each acknowledgment; in between,
    /// the datagrams sent since are added.
    pub in_flight: u64,
    /// Bytes of datagrams that quinn holds, including its overhead of 32 bytes for each.
    pub buffered: usize,
    /// Largest datagram in bytes.
    pub max_datagram: usize,
    /// Largest UDP payload in bytes that the path has proved to take.
    pub mtu: u16,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets lost, without probes for larger packets.
    pub lost_packets: u64,
    /// Bytes of the lost packets.
    pub lost_bytes: u64,
    /// Times that the congestion window was reduced.
    pub congestion_events: u64,
    /// Times that the peer reported new CE marks; 0 if the path erases ECN.
    pub ecn_marks: u64,
    /// Times that the path stopped taking large packets (RFC 8899, section 4.3).
    pub black_holes: u64,
    /// Datagrams that have arrived. Those that [`DatagramCarrier::poll_receive`] has not passed on
    /// wait, or were dropped because too many waited.
    pub received_datagrams: u64,
    /// UDP bytes sent, with QUIC's overhead and acknowledgments.
    pub sent_bytes: u64,
    /// UDP bytes received.
    pub received_bytes: u64,
    /// UDP datagrams sent.
    pub sent_udp: u64,
    /// UDP datagrams received.
    pub received_udp: u64,
}

/// quinn's overhead for a datagram in its send buffer in bytes.
const BUFFERED_OVERHEAD: usize = size_of::<Bytes>();

impl DatagramCarrier {
    pub(super) fn new(
        path: PathId,
        link: String,
        local: Option<SocketAddr>,
        connection: Connection,
        join: (SendStream, RecvStream),
    ) -> Self {
        let meter = Meter::of(&connection).expect("this module configures every connection");
        let remote = connection.remote_address();
        Self {
            path,
            link,
            local,
            remote: SocketAddr::new(remote.ip().to_canonical(), remote.port()),
            connection,
            meter,
            room: 0,
            largest: 0,
            receiving: None,
            _join: join,
        }
    }

    /// The path of the session.
    pub fn path(&self) -> PathId {
        self.path
    }

    /// The link's name at the client.
    pub fn link(&self) -> &str {
        &self.link
    }

    /// This side's address; at the server, only its IP address if the system reports it.
    pub fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Sends a datagram, which may be lost like any datagram. Never waits.
    ///
    /// [`SendError::Full`] while [`DatagramCarrier::send_space`] is not more than its length;
    /// [`SendError::TooLarge`] if it exceeds [`DatagramCarrier::max_datagram`].
    pub fn send(&mut self, datagram: Bytes) -> Result<(), SendError> {
        let len = datagram.len();
        if self.room <= len {
            self.look_for_room();
            if self.room <= len {
                // A datagram that never fits is not worth waiting for.
                let limit = self.max_datagram();
                return Err(match self.connection.close_reason() {
                    Some(reason) => Ended::from(reason).into(),
                    None if len > limit => SendError::TooLarge { limit },
                    None => SendError::Full(datagram),
                });
            }
        }
        match self.connection.send_datagram(datagram) {
            Ok(()) => {
                self.room = self.room.saturating_sub(len + BUFFERED_OVERHEAD);
                self.meter.hand(len);
                Ok(())
            }
            Err(SendDatagramError::ConnectionLost(reason)) => Err(Ended::from(reason).into()),
            // The peer's transport parameters allow datagrams: the handshake checks it.
            Err(_) => Err(SendError::TooLarge {
                limit: self.max_datagram(),
            }),
        }
    }

    /// Bytes that have room: a shorter datagram is accepted. They are those that leave within a few
    /// milliseconds at the path's rate, less those that wait already.
    ///
    /// The queue of a path should be where its order can be changed: above this carrier.
    pub fn send_space(&mut self) -> usize {
        if self.room <= self.largest {
            self.look_for_room();
        }
        self.room
    }

    /// Ready when a datagram of the largest size has room, or the carrier has ended. If pending,
    /// the task is woken when there is room; the end of a carrier wakes it through
    /// [`DatagramCarrier::poll_receive`] or [`DatagramCarrier::closed`] only.
    pub fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.room > self.largest || self.look_for_room() {
            return Poll::Ready(());
        }
        let excess = self.buffered().saturating_sub(self.limit().refill_at());
        self.meter.wake_after(excess.max(1) as u64, cx.waker());
        let ended = self.connection.close_reason().is_some();
        if self.look_for_room() || ended {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Waits until a datagram of the largest size has room, or the carrier has ended.
    pub async fn writable(&mut self) {
        let connection = self.connection.clone();
        tokio::select! {
            () = poll_fn(|cx| self.poll_writable(cx)) => {}
            _ = connection.closed() => {}
        }
    }

    /// Passes received datagrams to `sink`, at most `most` of them. Ready with their number, which
    /// is at least 1; pending if none has arrived.
    ///
    /// Each datagram keeps the buffer of all packets alive that arrived with it, up to 64 KiB. A
    /// receiver that holds one for long should copy it.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        mut sink: impl FnMut(Bytes),
    ) -> Poll<Result<usize, Ended>> {
        let mut count = 0;
        while count < most {
            let next = match &mut self.receiving {
                Some(receiving) => receiving.as_mut().poll(cx),
                None => pin!(self.connection.read_datagram()).poll(cx),
            };
            match next {
                Poll::Ready(Ok(datagram)) => {
                    self.receiving = None;
                    sink(datagram);
                    count += 1;
                }
                Poll::Ready(Err(reason)) => {
                    self.receiving = None;
                    // The next call reports the end.
                    if count == 0 {
                        return Poll::Ready(Err(reason.into()));
                    }
                    break;
                }
                Poll::Pending if count > 0 => break,
                Poll::Pending if self.receiving.is_some() => return Poll::Pending,
                Poll::Pending => {
                    let connection = self.connection.clone();
                    self.receiving =
                        Some(Box::pin(async move { connection.read_datagram().await }));
                }
            }
        }
        Poll::Ready(Ok(count))
    }

    /// Waits for datagrams and appends at most `most` of them. Returns their number, at least 1.
    pub async fn receive(&mut self, out: &mut Vec<Bytes>, most: usize) -> Result<usize, Ended> {
        poll_fn(|cx| self.poll_receive(cx, most, |datagram| out.push(datagram))).await
    }

    /// The largest datagram in bytes that the path takes now. It grows while larger packets are
    /// tried, and falls when large packets disappear.
    pub fn max_datagram(&self) -> usize {
        self.connection.max_datagram_size().unwrap_or(0)
    }

    /// The carrier's state.
    pub fn sample(&self) -> QuicSample {
        let stats = self.connection.stats();
        QuicSample {
            srtt: self.meter.srtt().unwrap_or(stats.path.rtt),
            min_rtt: stats.path.min_rtt,
            rttvar: self.meter.rttvar(),
            cwnd: stats.path.cwnd,
            in_flight: self.meter.in_flight(),
            buffered: self.buffered(),
            max_datagram: self.max_datagram(),
            mtu: stats.path.current_mtu,
            sent_packets: stats.path.sent_packets,
            lost_packets: stats.path.lost_packets,
            lost_bytes: stats.path.lost_bytes,
            congestion_events: stats.path.congestion_events,
            ecn_marks: self.meter.ecn_marks(),
            black_holes: stats.path.black_holes_detected,
            received_datagrams: stats.frame_rx.datagram,
            sent_bytes: stats.udp_tx.bytes,
            received_bytes: stats.udp_rx.bytes,
            sent_udp: stats.udp_tx.datagrams,
            received_udp: stats.udp_rx.datagrams,
        }
    }

    /// Closes the carrier; the peer gets the reason, cut to one packet. Datagrams that wait are
    /// lost.
    pub fn close(&self, reason: &str) {
        self.connection.close(CLOSE, reason.as_bytes());
    }

    /// Waits for the end of the carrier. The future does not borrow it.
    pub fn closed(&self) -> impl Future<Output = Ended> + Send + 'static {
        let connection = self.connection.clone();
        async move { connection.closed().await.into() }
    }

    /// The base of the congestion control, once measured.
    #[cfg(test)]
    pub(super) fn base(&self) -> Option<Duration> {
        Meter::base(&self.connection)
    }

    /// Renews the room; whether a datagram of the largest size fits.
    fn look_for_room(&mut self) -> bool {
        self.largest = self.max_datagram();
        self.room = self.limit().left(self.buffered());
        self.room > self.largest
    }

    /// The limit on what quinn holds.
    fn limit(&self) -> Room {
        let window = self.meter.window();
        let open = window.saturating_sub(self.meter.in_flight());
        let sizes = (self.largest, BUFFERED_OVERHEAD);
        Room::new(window, open, self.meter.srtt(), sizes)
    }

    /// Bytes of datagrams that quinn holds.
    fn buffered(&self) -> usize {
        // quinn's space is for one more datagram, whose overhead is already taken off.
        let space = self.connection.datagram_send_buffer_space();
        (SEND_BUFFER - BUFFERED_OVERHEAD).saturating_sub(space)
    }
}

impl Drop for DatagramCarrier {
    fn drop(&mut self) {
        // Futures of `closed` keep the connection alive.
        self.connection.close(CLOSE, b"");
    }
}

impl fmt::Debug for DatagramCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramCarrier")
            .field("path", &self.path)
            .field("link", &self.link)
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}
