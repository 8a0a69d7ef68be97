//! The source of a program's datagrams, which is opened when it is needed.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sumlink_exit::datagram::{Backlog, DatagramSocket, Received, SendError};
use sumlink_exit::udp::{DNS_IDLE, Expiry};
use sumlink_transport::descriptors;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, warn};

use crate::{Class, Client, DatagramOpener, Limit, OpenError, Origin, Place, Target};

/// Pause after a source could not be opened, in which datagrams are dropped.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Idle time after which a source is closed (RFC 4787, REQ-5: the recommended default). The server
/// may close it earlier.
const IDLE: Duration = Duration::from_secs(300);

/// Most sources by default: fewer than the 1024 that a server allows. The rest is for sources that
/// no entry has opened, and for those that the server has not yet seen end.
const MAX: usize = 960;

/// Idle time after which a source makes room for a new one of the same client.
const YIELD_AFTER: Duration = Duration::from_secs(5);

/// Least time between two log lines about one thing.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// Limit on the sources that programs have at once: SOCKS5 associations, and the addresses that
/// send to a [`UdpForwarder`](crate::UdpForwarder) or through a
/// [`TransparentUdp`](crate::TransparentUdp). Clones share one limit, which clients share fairly
/// ([`shares`](crate::shares)).
///
/// The default is 960, or an eighth of the process's descriptors if that is less: an association
/// takes two.
#[derive(Clone, Debug)]
pub struct SourceLimit {
    places: Limit,
    idle: Duration,
    log: Arc<Mutex<Throttle>>,
}

impl SourceLimit {
    /// A limit of `most` sources, at least one.
    pub fn new(most: usize) -> Self {
        Self::of(most.max(1))
    }

    fn of(most: usize) -> Self {
        Self {
            places: Limit::new("sources of datagrams", most, Some(YIELD_AFTER)),
            idle: IDLE,
            log: Arc::default(),
        }
    }

    /// Sets the time without datagrams after which a source is closed; the default is 5 minutes. An
    /// association stays and opens another one for its next datagram. A source that only sent to
    /// port 53 is closed 10 s after the answer, and one of echo requests after 30 s.
    pub fn with_idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// A limit that allows no source.
    pub(crate) fn none() -> Self {
        Self::of(0)
    }

    /// A place for a source of `client`, if one is free or another source must make room. The
    /// source must end when its place is lost.
    pub fn place(&self, client: Client) -> Option<Place> {
        let place = self.places.place(client);
        if place.is_none() {
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(refused) = log.count(1, Instant::now()) {
                warn!(
                    max_sources = self.places.most(),
                    %client, refused,
                    "limit on sources of datagrams reached; further ones are refused"
                );
            }
        }
        place
    }

    /// The time without datagrams after which a source is closed.
    pub fn idle(&self) -> Duration {
        self.idle
    }
}

impl Default for SourceLimit {
    fn default() -> Self {
        Self::new(MAX.min(descriptors::for_streams() / 6))
    }
}

/// Limits log lines about something that may happen for every packet.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    last: Option<Instant>,
    count: u64,
}

impl Throttle {
    /// Counts occurrences. Returns their number since the last log line if another one is due.
    pub(crate) fn count(&mut self, occurrences: u64, now: Instant) -> Option<u64> {
        self.count = self.count.saturating_add(occurrences);
        let is_due = |last| now.saturating_duration_since(last) >= LOG_PAUSE;
        if self.count == 0 || !self.last.is_none_or(is_due) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

/// A source that is opened by the first datagram, and again by the first one after it has ended:
/// when it was idle, when the session was lost, when the server was restarted.
pub struct Source<D: DatagramOpener> {
    opener: D,
    origin: Option<Origin>,
    class: Option<Class>,
    idle: Duration,
    state: State<D::Socket>,
    expiry: Expiry,
    dropped: u64,
}

enum State<S> {
    Closed,
    Opening(Opening<S>, Backlog<Datagram>),
    Open(S),
    /// It could not be opened; tried again after this time.
    Failed(Instant),
}

type Opening<S> = Pin<Box<dyn Future<Output = Result<S, OpenError>> + Send>>;

/// A datagram that waits for its source.
struct Datagram {
    remote: Target,
    payload: Bytes,
    class: Option<Class>,
}

impl<D: DatagramOpener> Source<D> {
    /// A source that is not open yet, with the program behind it, the class of flows without one,
    /// and the time without datagrams after which it is closed.
    pub fn new(opener: D, origin: Option<Origin>, class: Option<Class>, idle: Duration) -> Self {
        Self {
            opener,
            origin,
            class,
            idle,
            state: State::Closed,
            expiry: Expiry::new(idle, DNS_IDLE, Instant::now()),
            dropped: 0,
        }
    }

    /// Sends a datagram, or keeps it while the source is being opened. Never waits.
    ///
    /// # Errors
    ///
    /// The datagram was dropped. The source can still be used: [`SendError::Closed`] means that it
    /// is opened again for the next datagram, or some time after it could not be opened.
    pub fn send(
        &mut self,
        remote: &Target,
        payload: Bytes,
        class: Option<Class>,
    ) -> Result<(), SendError> {
        let now = Instant::now();
        match &mut self.state {
            State::Open(socket) => {
                if let Err(error) = socket.send(remote, payload, class) {
                    debug!(%remote, %error, "a datagram is dropped");
                    self.dropped += 1;
                    if error == SendError::Closed {
                        self.state = State::Closed;
                    }
                    return Err(error);
                }
                self.expiry.sent(remote.port, now);
                return Ok(());
            }
            State::Opening(_, waiting) => {
                let length = payload.len();
                waiting.push(Datagram::new(remote, payload, class), length, now);
                return Ok(());
            }
            State::Failed(until) if now < *until => {
                self.dropped += 1;
                return Err(SendError::Closed);
            }
            State::Closed | State::Failed(_) => {}
        }
        let (opener, origin, own_class) = (self.opener.clone(), self.origin, self.class);
        let opening = Box::pin(async move {
            match origin {
                Some(origin) => opener.bind_from(origin, own_class).await,
                None => opener.bind(own_class).await,
            }
        });
        let mut waiting = Backlog::default();
        let length = payload.len();
        waiting.push(Datagram::new(remote, payload, class), length, now);
        self.state = State::Opening(opening, waiting);
        Ok(())
    }

    /// Opens the source if it is due, waits for events, appends at most `limit` and returns their
    /// number. 0 means that the source has ended, or could not be opened some time ago; the next
    /// datagram opens another one. Without a source, it waits forever. Cancel safe.
    pub async fn receive(&mut self, out: &mut Vec<(Target, Received)>, limit: usize) -> usize {
        if let State::Opening(opening, _) = &mut self.state {
            let opened = opening.as_mut().await;
            self.opened(opened);
        }
        let deadline = self.expiry.deadline();
        match &mut self.state {
            State::Open(socket) => {
                let received = timeout_at(deadline, socket.receive(out, limit)).await;
                if let Ok(count @ 1..) = received {
                    self.expiry.received(Instant::now());
                    return count;
                }
            }
            State::Failed(until) => sleep_until(*until).await,
            State::Closed | State::Opening(..) => return pending().await,
        }
        self.state = State::Closed;
        0
    }

    /// Datagrams dropped on the way to the session so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn opened(&mut self, opened: Result<D::Socket, OpenError>) {
        let now = Instant::now();
        let before = std::mem::replace(&mut self.state, State::Closed);
        let State::Opening(_, mut waiting) = before else {
            return;
        };
        self.state = match opened {
            Ok(socket) => {
                self.expiry = Expiry::new(self.idle, DNS_IDLE, now);
                for datagram in waiting.take(now) {
                    let Datagram {
                        remote,
                        payload,
                        class,
                    } = datagram;
                    self.expiry.sent(remote.port, now);
                    if let Err(error) = socket.send(&remote, payload, class) {
                        debug!(%remote, %error, "a datagram is dropped");
                        self.dropped += 1;
                    }
                }
                State::Open(socket)
            }
            Err(error) => {
                debug!(%error, "cannot open a source of datagrams");
                self.dropped += waiting.take(now).count() as u64;
                State::Failed(now + FAILURE_PAUSE)
            }
        };
        self.dropped += waiting.dropped();
    }
}

impl Datagram {
    fn new(remote: &Target, payload: Bytes, class: Option<Class>) -> Self {
        Self {
            remote: remote.clone(),
            payload,
            class,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use sumlink_exit::datagram::{PairSocket, pair};

    /// Opens pairs, and keeps their other ends.
    #[derive(Clone, Default)]
    struct Pairs {
        far: Arc<Mutex<Vec<PairSocket>>>,
        opened: Arc<AtomicUsize>,
        is_down: Arc<Mutex<bool>>,
    }

    impl DatagramOpener for Pairs {
        type Socket = PairSocket;

        async fn bind(&self, _: Option<Class>) -> Result<PairSocket, OpenError> {
            self.opened.fetch_add(1, Ordering::Relaxed);
            if *self.is_down.lock().unwrap() {
                return Err(OpenError::SessionClosed);
            }
            let (near, far) = pair(100);
            self.far.lock().unwrap().push(far);
            Ok(near)
        }
    }

    impl Pairs {
        async fn sent(&self) -> Vec<Bytes> {
            let mut far = self.far.lock().unwrap().pop().unwrap();
            let mut events = Vec::new();
            far.receive(&mut events, 100).await;
            self.far.lock().unwrap().push(far);
            let payloads = events.into_iter().map(|(_, event)| match event {
                Received::Datagram(payload) => payload,
                other => panic!("{other:?}"),
            });
            payloads.collect()
        }
    }

    fn remote() -> Target {
        "192.0.2.1:9".parse().unwrap()
    }

    const BRIEF: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn the_first_datagram_opens_and_the_next_one_after_the_end_again() {
        let pairs = Pairs::default();
        let mut source = Source::new(pairs.clone(), None, None, IDLE);
        let mut events = Vec::new();
        let nothing = tokio::time::timeout(2 * IDLE, source.receive(&mut events, 9));
        assert!(nothing.await.is_err());
        assert_eq!(pairs.opened.load(Ordering::Relaxed), 0);
        for opened in 1..3 {
            source
                .send(&remote(), Bytes::from_static(b"1"), None)
                .unwrap();
            source
                .send(&remote(), Bytes::from_static(b"2"), None)
                .unwrap();
            let nothing = tokio::time::timeout(BRIEF, source.receive(&mut events, 9));
            assert!(nothing.await.is_err());
            source
                .send(&remote(), Bytes::from_static(b"3"), None)
                .unwrap();
            assert_eq!(pairs.sent().await, ["1", "2", "3"]);
            assert_eq!(pairs.opened.load(Ordering::Relaxed), opened);
            pairs.far.lock().unwrap().clear();
            assert_eq!(source.receive(&mut events, 9).await, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_source_is_closed_and_traffic_in_either_direction_keeps_it() {
        let pairs = Pairs::default();
        let mut source = Source::new(pairs.clone(), None, None, IDLE);
        let mut events = Vec::new();
        source.send(&remote(), Bytes::new(), None).unwrap();
        let nothing = tokio::time::timeout(BRIEF, source.receive(&mut events, 9));
        assert!(nothing.await.is_err());
        tokio::time::advance(IDLE - 2 * BRIEF).await;
        let answer = Bytes::from_static(b"answer");
        pairs.far.lock().unwrap()[0]
            .send(&remote(), answer, None)
            .unwrap();
        assert_eq!(source.receive(&mut events, 9).await, 1);
        tokio::time::advance(IDLE - BRIEF).await;
        source.send(&remote(), Bytes::new(), None).unwrap();
        let last = Instant::now();
        assert_eq!(source.receive(&mut events, 9).await, 0);
        assert!(last.elapsed() >= IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_of_a_lookup_is_closed_soon_after_the_answer() {
        let pairs = Pairs::default();
        let resolver: Target = "192.0.2.1:53".parse().unwrap();
        let mut source = Source::new(pairs.clone(), None, None, IDLE);
        let mut events = Vec::new();
        for is_answered in [true, false] {
            source.send(&resolver, Bytes::new(), None).unwrap();
            let nothing = tokio::time::timeout(BRIEF, source.receive(&mut events, 9));
            assert!(nothing.await.is_err());
            if is_answered {
                let far = pairs.far.lock().unwrap().pop().unwrap();
                far.send(&resolver, Bytes::new(), None).unwrap();
                pairs.far.lock().unwrap().push(far);
                assert_eq!(source.receive(&mut events, 9).await, 1);
            }
            let last = Instant::now();
            assert_eq!(source.receive(&mut events, 9).await, 0);
            assert!(last.elapsed() <= if is_answered { DNS_IDLE } else { IDLE / 10 });
        }
    }

    /// 1200 lookups of one machine, each from a port of its own.
    #[tokio::test(start_paused = true)]
    async fn lookups_of_one_machine_leave_room_for_others() {
        let limit = SourceLimit::new(MAX);
        let busy = Client::lan([192, 0, 2, 7].into());
        let mut held: Vec<Place> = (0..1200).filter_map(|_| limit.place(busy)).collect();
        assert_eq!(held.len(), MAX);
        for client in [Client::Host, Client::lan([192, 0, 2, 8].into())] {
            let mut new = limit.place(client).unwrap();
            new.used();
            held.push(new);
        }
        held[0].lost().await;
        held[1].lost().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_is_down_is_not_asked_for_every_datagram() {
        let pairs = Pairs::default();
        *pairs.is_down.lock().unwrap() = true;
        let mut source = Source::new(pairs.clone(), None, None, IDLE);
        let mut events = Vec::new();
        for number in 0..100 {
            let sent = source.send(&remote(), Bytes::new(), None);
            assert_eq!(sent.is_ok(), number == 0);
            let ended = tokio::time::timeout(BRIEF, source.receive(&mut events, 9));
            assert!(ended.await.is_err());
        }
        assert_eq!(pairs.opened.load(Ordering::Relaxed), 1);
        assert_eq!(source.dropped(), 100);
        assert_eq!(source.receive(&mut events, 9).await, 0);
        *pairs.is_down.lock().unwrap() = false;
        source.send(&remote(), Bytes::new(), None).unwrap();
        let nothing = tokio::time::timeout(BRIEF, source.receive(&mut events, 9));
        assert!(nothing.await.is_err());
        assert_eq!(pairs.opened.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn log_lines_are_rare_and_count_what_happened() {
        let (mut log, start) = (Throttle::default(), Instant::now());
        assert_eq!(log.count(0, start), None);
        assert_eq!(log.count(3, start), Some(3));
        assert_eq!(log.count(4, start), None);
        assert_eq!(log.count(5, start + LOG_PAUSE), Some(9));
        assert_eq!(log.count(0, start + 2 * LOG_PAUSE), None);
    }
}
