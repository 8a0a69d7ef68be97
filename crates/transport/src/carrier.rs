//! A carrier: one TCP connection with TLS 1.3 on it, past its handshake, driven by the session's task.

use std::cell::RefCell;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustls::Connection;
use socket2::SockRef;
use sumlink_engine::{LossState, PathId, PathSample};
use sumlink_qdisc::LocalQueue;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::congestion::{self, Chooser};
use crate::groups::CarrierGroups;
use crate::low_water::{self, Reserve};
use crate::pacing;
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
    /// How long it is to last under BBR.
    reserve: Reserve,
    /// The socket refused bytes when it was last written to: when it is empty next time, that is too late.
    refused: bool,
    /// Until TCP has so many bytes acknowledged its window is small, and grows with every round trip.
    young_until: u64,
    /// Something was handed to the socket since TCP_INFO was taken.
    moved: bool,
    /// So little has arrived since something was last sent that TCP may wait with its acknowledgement.
    owes_ack: bool,
    /// When something last arrived, and how much since nothing had for a round trip.
    arrived: (Instant, u64),
    /// Encrypted bytes that the socket has not taken.
    unwritten: usize,
    /// Bytes on the wire that have been given account of.
    accounted: u64,
    /// The queue of the interface, where somebody wants to know what waits there.
    local_queue: Option<LocalQueue>,
}

/// TCP_INFO is not older than this when a decision is made with it.
const SAMPLE_AGE: Duration = Duration::from_millis(1);

/// TCP_NOTSENT_LOWAT is changed no more often than this, unless twice as much is wanted.
const LOWAT_PAUSE: Duration = Duration::from_millis(50);

/// A carrier is young until so much of what it sends has been acknowledged, after it was made and after a pause in
/// which TCP forgets its window (RFC 5681, section 4.1): four round trips of slow start.
const YOUTH: u64 = 256 * 1024;

/// TCP_NOTSENT_LOWAT of a young carrier: it is writable when nothing waits.
const YOUNG_LOWAT: u32 = 2;

/// What TCP puts into a segment of its queue before it divides it for the link (`tcp_send_mss` in Linux).
const SOCKET_SEGMENT: u32 = 64 * 1024;

/// Most bytes handed over at once.
const MOST_AT_ONCE: usize = 64 * 1024;

/// Fewest bytes of frames handed over at once: less would hold hardly any data.
const LEAST_AT_ONCE: u64 = 512;

/// Bytes of frames in a full record of TLS 1.3, and what it has beside them: header, type and tag (RFC 8446, section 5.2).
const RECORD: u64 = 16 * 1024;
const RECORD_OVERHEAD: u64 = 22;

/// More segments than this without a pause are a flow of them: an initial window (RFC 6928).
const FLOW: u64 = 10;

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
            chooser: None,
            sampled: now,
            lowat: socket::INITIAL_NOTSENT_LOWAT,
            lowat_set: now,
            reserve: Reserve::new(now),
            refused: false,
            young_until: info.bytes_acked + YOUTH,
            moved: true,
            owes_ack: false,
            arrived: (now, 0),
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
                self.note_arrival(len as u64);
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

    /// Whether the socket may take more than is wanted, and is to be asked before it is given anything.
    ///
    /// Of a young carrier, when something waits there for TCP's window to open: a window of ten segments and a low-water
    /// mark of as much would be taken for twice the window; what waits leaves a round trip later, and another path could
    /// have had it there by then. Of others, when the low-water mark is small: TCP looks at it only where a new segment
    /// begins in its queue, and such a segment takes [`SOCKET_SEGMENT`].
    fn is_parked(&mut self) -> bool {
        if self.is_young() && (self.moved || self.info.notsent_bytes > 0) {
            self.refresh(Instant::now());
        }
        match self.is_young() {
            true => self.info.notsent_bytes > 0,
            false => self.is_exact(),
        }
    }

    /// The kernel tells that a socket takes more when less than this waits in it.
    fn wakes_at(&self) -> u64 {
        u64::from(self.lowat / 2)
    }

    /// Whether its low-water mark is so small that TCP by itself would take far more.
    fn is_exact(&self) -> bool {
        self.lowat < 2 * SOCKET_SEGMENT
    }

    /// Ready when less than half of the low-water mark waits in the socket.
    fn poll_window(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            // poll(2) has the kernel tell when the window opens, which it does only for those who were refused.
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

    /// Of every second segment TCP tells at once, and in a stream of them a segment more or less makes no difference.
    fn note_arrival(&mut self, len: u64) {
        let (last, burst) = self.arrived;
        let now = Instant::now();
        let goes_on = now.duration_since(last) < self.info.srtt;
        self.arrived = (now, len + if goes_on { burst } else { 0 });
        let mss = u64::from(self.info.snd_mss);
        self.owes_ack = len < 2 * mss && self.arrived.1 < FLOW * mss;
    }

    /// Has TCP acknowledge what little has arrived, unless that goes along with what is sent.
    ///
    /// It would wait for 40 ms and more for something to send it with (TCP_DELACK_MIN in Linux; RFC 9293, section 3.8.6.3), which
    /// the peer takes for the round trip: of paths that carry a request now and then it would not know which one is the shortest.
    pub(crate) fn acknowledge(&mut self) {
        // Where more is under way than a word now and then, there soon is something to send it with.
        let flows = self.info.unacked_bytes > 2 * u64::from(self.info.snd_mss);
        if self.owes_ack && !flows && !self.tls.wants_write() {
            self.owes_ack = false;
            // One that cannot is as before.
            let _ = SockRef::from(&self.tcp).set_tcp_quickack(true);
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

    /// Bytes to hand over at once: a part of what the socket may hold, so that little is decided early; of a young
    /// carrier what TCP can send now, and a segment, by which the kernel tells when it can send more.
    pub(crate) fn budget(&self) -> usize {
        if self.is_young() {
            let info = &self.info;
            let waits = info.notsent_bytes + self.unwritten as u64;
            let room = info
                .snd_cwnd_bytes
                .saturating_sub(info.unacked_bytes + waits);
            return frames_in_whole_segments(room, waits, u64::from(info.snd_mss)) as usize;
        }
        (self.lowat as usize / 2).clamp(8 * 1024, MOST_AT_ONCE)
    }

    /// Whether its window is small and grows.
    fn is_young(&self) -> bool {
        self.info.bytes_acked < self.young_until
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

    /// What TCP knows now: at most a millisecond old, and of a young carrier no older than what was last sent.
    pub(crate) fn sample(&mut self, now: Instant) -> PathSample {
        let is_old = now.duration_since(self.sampled) >= SAMPLE_AGE;
        if is_old || self.info.srtt.is_zero() || self.is_young() && self.moved {
            self.refresh(now);
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
            local_queue: (self.local_queue.as_ref().and_then(LocalQueue::bytes)).unwrap_or(0),
            full: self.tls.wants_write()
                || self.is_exact() && info.notsent_bytes >= self.wakes_at(),
            delivery_rate: info.delivery_rate_bytes_per_s,
            pacing_rate: info.pacing_rate_bytes_per_s.unwrap_or(0),
            segments: u64::from(info.segs_out),
            retransmitted: u64::from(info.total_retrans),
            delivered: u64::from(info.delivered),
            received: info.bytes_received,
        }
    }

    fn refresh(&mut self, now: Instant) {
        (self.sampled, self.moved) = (now, false);
        if let Ok(info) = TcpInfo::sample(&self.tcp) {
            self.info = info;
        }
        if self.refused {
            self.reserve.visited(self.info.notsent_bytes == 0, now);
        }
        // BBR keeps its window through a pause.
        let forgets = !self.is_model_based();
        if forgets && self.info.since_data_sent > self.info.rto && self.info.unacked_bytes == 0 {
            self.young_until = self.info.bytes_acked + YOUTH;
        }
        match self.is_young() {
            true => self.set_lowat(YOUNG_LOWAT, now),
            false => self.adapt_lowat(now),
        }
        self.adapt_congestion(now);
    }

    /// Notes under BBR whether a socket that was full has run empty, once in a sample's age.
    fn look_into_socket(&mut self) {
        let now = Instant::now();
        if self.is_model_based() && now.duration_since(self.sampled) >= SAMPLE_AGE {
            self.refresh(now);
        }
    }

    fn is_model_based(&self) -> bool {
        self.congestion == congestion::MODEL_BASED
    }

    /// Bytes sent and acknowledged, and bytes received.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.info.bytes_acked + self.info.bytes_received
    }

    /// Bytes that its packets took on the link since this was last asked, both ways, with the headers of TCP and IP.
    pub(crate) fn wire_bytes(&mut self) -> u64 {
        self.refresh(Instant::now());
        // With the timestamps that nearly every connection has (RFC 7323).
        let header = if self.remote.is_ipv4() { 52 } else { 72 };
        let info = &self.info;
        let packets = u64::from(info.segs_out) + u64::from(info.segs_in);
        let total = info.bytes_sent + info.bytes_received + packets * header;
        let before = std::mem::replace(&mut self.accounted, total);
        total.saturating_sub(before)
    }

    /// Has TCP send at most so many bytes a second.
    pub(crate) fn limit(&self, rate: Option<u64>) {
        if let Err(error) = pacing::limit(&self.tcp, rate) {
            let (path, link) = (self.id.0, &self.link);
            tracing::warn!(path, %link, %error, "the limit of the link cannot be kept");
        }
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
        (self.moved, self.owes_ack) = (true, false);
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
        let reserve = self.is_model_based().then_some(&self.reserve);
        let wanted = low_water::wanted(&self.info, reserve);
        let is_due = now.duration_since(self.lowat_set) >= LOWAT_PAUSE;
        let has_grown = wanted / 2 >= self.lowat;
        if has_grown || is_due && wanted.abs_diff(self.lowat) > self.lowat / 4 {
            self.set_lowat(wanted, now);
        }
    }

    fn set_lowat(&mut self, lowat: u32, now: Instant) {
        if lowat != self.lowat {
            self.lowat_set = now;
            if socket::set_notsent_lowat(&self.tcp, lowat).is_ok() {
                self.lowat = lowat;
            }
        }
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

/// Bytes of frames that fill the `room` of a window and a segment beyond it, to its last byte, behind what `waits` in the
/// socket. A rest would leave as a packet of its own when the window opens, and a window has room for so many packets, however
/// small: a young one would carry a third less.
fn frames_in_whole_segments(room: u64, waits: u64, segment: u64) -> u64 {
    let segment = segment.max(1);
    let end = (waits + room) / segment * segment + segment;
    let wire = match end - waits {
        crumb if crumb < LEAST_AT_ONCE + RECORD_OVERHEAD => crumb + segment,
        wire => wire.min(MOST_AT_ONCE as u64),
    };
    let records = wire.div_ceil(RECORD + RECORD_OVERHEAD);
    wire.saturating_sub(records * RECORD_OVERHEAD)
        .max(LEAST_AT_ONCE)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::keys::SecretKey;
    use crate::tls::{Authorized, client_config, server_config, server_name};

    /// Both ends of a carrier on loopback.
    async fn carrier() -> (Carrier, Carrier) {
        let (client, server) = (
            SecretKey::generate().unwrap(),
            SecretKey::generate().unwrap(),
        );
        let authorized = Authorized::new([client.public()]);
        let connector = TlsConnector::from(client_config(&client, &server.public()));
        let acceptor = TlsAcceptor::from(server_config(&server, &authorized));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = async {
            let tcp = TcpStream::connect(listener.local_addr().unwrap()).await?;
            connector.connect(server_name(), tcp).await
        };
        let accept = async { acceptor.accept(listener.accept().await?.0).await };
        let (client, server) = tokio::try_join!(connect, accept).unwrap();
        let new = |tcp, tls| Carrier::new(PathId(0), "lo".to_owned(), tcp, tls, Vec::new());
        let (tcp, tls) = client.into_inner();
        let client = new(tcp, Connection::Client(tls)).unwrap();
        let (tcp, tls) = server.into_inner();
        (client, new(tcp, Connection::Server(tls)).unwrap())
    }

    /// Else TCP waits for 40 ms, by far more than loopback takes.
    #[tokio::test]
    async fn what_little_arrives_is_acknowledged_before_a_second_segment() {
        let (mut from, mut to) = carrier().await;
        let mut round_trips = Vec::new();
        for message in 0..100 {
            from.send(&[7; 100]).unwrap();
            std::future::poll_fn(|cx| from.poll_writable(cx))
                .await
                .unwrap();
            let mut received = 0;
            while received < 100 {
                let some = std::future::poll_fn(|cx| to.poll_receive(cx, 1000, |_| {}));
                received += some.await.unwrap();
            }
            to.refresh(Instant::now());
            to.acknowledge();
            while from.info.unacked_bytes > 0 || from.moved {
                tokio::time::sleep(Duration::from_millis(1)).await;
                from.refresh(Instant::now());
            }
            // TCP acknowledges the first ones at once in any case.
            if message >= 60 {
                round_trips.push(from.info.srtt);
            }
        }
        round_trips.sort();
        let median = round_trips[round_trips.len() / 2];
        assert!(median < Duration::from_millis(20), "{round_trips:?}");
    }

    #[tokio::test]
    async fn a_flow_of_segments_is_left_to_tcp_until_it_pauses() {
        let (mut carrier, _peer) = carrier().await;
        (carrier.info.srtt, carrier.info.snd_mss) = (Duration::from_secs(3600), 1000);
        let owes: Vec<bool> = (0..20)
            .map(|_| {
                carrier.note_arrival(900);
                carrier.owes_ack
            })
            .collect();
        // As long as they are fewer bytes than ten segments.
        assert_eq!(owes, [vec![true; 11], vec![false; 9]].concat());
        carrier.info.srtt = Duration::ZERO;
        carrier.note_arrival(900);
        assert!(carrier.owes_ack, "a pause of a round trip");
        carrier.note_arrival(2000);
        assert!(!carrier.owes_ack, "TCP acknowledges two at once");
    }

    #[test]
    fn what_a_young_carrier_is_given_ends_with_a_whole_segment() {
        let wire = |frames: u64| frames + frames.div_ceil(RECORD) * RECORD_OVERHEAD;
        for room in [0, 1, 1448, 14_480, 40_000] {
            for waits in [0, 1, 28, 1447, 1448, 5000] {
                let given = wire(frames_in_whole_segments(room, waits, 1448));
                let beyond = waits + given - (waits + room);
                assert_eq!((waits + given) % 1448, 0, "{room} {waits}");
                assert!((1..=2 * 1448).contains(&beyond), "{room} {waits}: {given}");
            }
        }
        assert_eq!(frames_in_whole_segments(0, 0, 100), LEAST_AT_ONCE);
        assert!(frames_in_whole_segments(1 << 30, 0, 1448) <= MOST_AT_ONCE as u64);
    }

    #[tokio::test]
    async fn no_more_waits_in_a_socket_than_is_wanted() {
        let (mut carrier, _peer) = carrier().await;
        carrier.young_until = 0;
        let lowat = 12 * 1024;
        carrier.set_lowat(lowat, Instant::now());
        // Until the peer's window is full, and what may wait does.
        let waits = std::future::poll_fn(|cx| {
            loop {
                if carrier.poll_writable(cx)?.is_pending() {
                    return Poll::Ready(TcpInfo::sample(&carrier.tcp).map(|i| i.notsent_bytes));
                }
                carrier.send(&vec![0; carrier.budget()])?;
            }
        });
        let waits = waits.await.unwrap();
        let most = u64::from(lowat / 2) + carrier.budget() as u64 + 64;
        assert!((1..=most).contains(&waits), "{waits} bytes of {most}");
    }
}
