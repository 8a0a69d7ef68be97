//! The queues of datagrams between programs and a session's task.
//!
//! A *source* corresponds to a UDP socket. Its handle ([`SourceHandle`]) lives as long as
//! the program wants it, and a client's sources outlive their sessions: when a session is lost,
//! the next one opens the same flows again as soon as the program sends.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use sumlink_engine::{Class, DatagramPolicy};
use sumlink_exit::datagram::{DatagramSocket, FlowFailure, MAX_PAYLOAD, Received, SendError};
use sumlink_exit::target::Target;

/// Most datagrams that wait for the session's task, and their bytes. The task empties the queue
/// whenever it runs, so a full queue means that the processor is the bottleneck, or that there is
/// no session.
const OUTBOX: (usize, usize) = (4096, 4 << 20);

/// Most datagrams that wait for one program, and their bytes: those of 20 ms at 1.6 Gbit/s.
/// A program that falls further behind loses the oldest, as with a socket buffer.
const INBOX: (usize, usize) = (8192, 4 << 20);

/// A datagram that waited longer than this for a session is dropped: its program has sent it again.
const STALE: Duration = Duration::from_secs(5);

/// How long datagrams are refused after the peer was found not to know them.
const UNSUPPORTED_FOR: Duration = Duration::from_secs(1);

/// All sources of one side of a bond.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    outbox: Mutex<Outbox>,
    /// The session's task, which empties the outbox.
    task: AtomicWaker,
    inboxes: Mutex<HashMap<u64, Arc<Inbox>>>,
    next: AtomicU64,
    /// When the peer of the current session was last found not to know datagrams.
    unsupported: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Outbox {
    queue: VecDeque<(Instant, Outgoing)>,
    bytes: usize,
    dropped: u64,
    is_closed: bool,
}

/// A request of a program to the session's task.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A datagram for a remote.
    Datagram {
        source: u64,
        remote: Target,
        payload: Bytes,
        class: Option<Class>,
        policy: Option<DatagramPolicy>,
    },
    /// Datagrams of the peer to this remote do not arrive.
    Failed {
        source: u64,
        remote: Target,
        failure: FlowFailure,
    },
    /// The program has dropped its handle.
    Closed { source: u64 },
}

/// The events that wait for one program.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<InboxState>);

#[derive(Debug, Default)]
struct InboxState {
    /// The source stays when its last flow has ended.
    is_lasting: bool,
    queue: VecDeque<(Target, Received)>,
    bytes: usize,
    dropped: u64,
    has_ended: bool,
    reader: Option<Waker>,
}

/// A program's end of a source. Dropping it ends the source and its flows.
#[derive(Debug)]
pub struct SourceHandle {
    id: u64,
    class: Option<Class>,
    policy: Option<DatagramPolicy>,
    inbox: Arc<Inbox>,
    sources: Arc<Sources>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sources {
    /// A new source of this side.
    pub(crate) fn bind(
        self: &Arc<Self>,
        class: Option<Class>,
        policy: Option<DatagramPolicy>,
    ) -> SourceHandle {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.attach(id, class, policy)
    }

    /// [`Sources::attach`] for a source that does not end with its last flow: a published port.
    pub(crate) fn attach_lasting(self: &Arc<Self>, id: u64) -> SourceHandle {
        let handle = self.attach(id, None, None);
        lock(&handle.inbox.0).is_lasting = true;
        handle
    }

    /// The handle of a source with this number, which the peer has opened.
    pub(crate) fn attach(
        self: &Arc<Self>,
        id: u64,
        class: Option<Class>,
        policy: Option<DatagramPolicy>,
    ) -> SourceHandle {
        let inbox = Arc::<Inbox>::default();
        if lock(&self.outbox).is_closed {
            inbox.end();
        } else {
            lock(&self.inboxes).insert(id, Arc::clone(&inbox));
        }
        SourceHandle {
            id,
            class,
            policy,
            inbox,
            sources: Arc::clone(self),
        }
    }

    /// The inbox of a source; none after its handle is gone.
    pub(crate) fn inbox(&self, source: u64) -> Option<Arc<Inbox>> {
        lock(&self.inboxes).get(&source).cloned()
    }

    /// Removes a source after the peer has ended its flows, unless it is a lasting one; its program
    /// reads the end.
    pub(crate) fn end(&self, source: u64) {
        let inbox = {
            let mut inboxes = lock(&self.inboxes);
            let ends = inboxes
                .get(&source)
                .is_some_and(|inbox| !lock(&inbox.0).is_lasting);
            ends.then(|| inboxes.remove(&source)).flatten()
        };
        if let Some(inbox) = inbox {
            inbox.end();
            lock(&self.outbox).dropped += lock(&inbox.0).dropped;
        }
    }

    /// Ends all sources: the bond is closed.
    pub(crate) fn close(&self) {
        let mut outbox = lock(&self.outbox);
        outbox.is_closed = true;
        outbox.queue.clear();
        outbox.bytes = 0;
        drop(outbox);
        for (_, inbox) in lock(&self.inboxes).drain() {
            inbox.end();
        }
    }

    /// Takes requests for the session's task, which is woken for the next one.
    pub(crate) fn take(&self, cx: &mut Context<'_>, most: usize, out: &mut Vec<Outgoing>) {
        self.task.register(cx.waker());
        let mut outbox = lock(&self.outbox);
        let now = Instant::now();
        while out.len() < most
            && let Some((since, outgoing)) = outbox.queue.pop_front()
        {
            outbox.bytes -= outgoing.bytes();
            match outgoing {
                Outgoing::Datagram { .. } if now.duration_since(since) > STALE => {
                    outbox.dropped += 1;
                }
                outgoing => out.push(outgoing),
            }
        }
        let rest = !outbox.queue.is_empty();
        drop(outbox);
        if rest {
            cx.waker().wake_by_ref();
        }
    }

    /// Datagrams that were dropped before the session's task took them, or before their program
    /// did.
    pub(crate) fn dropped(&self) -> u64 {
        let inboxes: Vec<_> = lock(&self.inboxes).values().cloned().collect();
        let unread: u64 = inboxes.iter().map(|inbox| lock(&inbox.0).dropped).sum();
        lock(&self.outbox).dropped + unread
    }

    /// Notes whether the session's peer knows datagrams.
    pub(crate) fn set_unsupported(&self, is_unsupported: bool) {
        *lock(&self.unsupported) = is_unsupported.then(Instant::now);
    }

    /// Whether datagrams are refused because the peer does not know them. One is let through now
    /// and then, because an answer may still come.
    fn is_unsupported(&self) -> bool {
        lock(&self.unsupported).is_some_and(|at| at.elapsed() < UNSUPPORTED_FOR)
    }

    fn send(&self, outgoing: Outgoing) -> Result<(), SendError> {
        let mut outbox = lock(&self.outbox);
        if outbox.is_closed {
            return Err(SendError::Closed);
        }
        let bytes = outgoing.bytes();
        let (most, max_bytes) = OUTBOX;
        // Only datagrams are dropped: the number of other requests is bounded by the sources and
        // their remotes.
        while outbox.queue.len() >= most || outbox.bytes + bytes > max_bytes {
            let is_datagram =
                |entry: &(Instant, Outgoing)| matches!(entry.1, Outgoing::Datagram { .. });
            let Some(oldest) = outbox.queue.iter().position(is_datagram) else {
                break;
            };
            if let Some((_, dropped)) = outbox.queue.remove(oldest) {
                outbox.bytes -= dropped.bytes();
                outbox.dropped += 1;
            }
        }
        outbox.bytes += bytes;
        outbox.queue.push_back((Instant::now(), outgoing));
        let is_first = outbox.queue.len() == 1;
        drop(outbox);
        // The task takes all that waits, so one wake-up is enough for several datagrams.
        if is_first {
            self.task.wake();
        }
        Ok(())
    }
}

impl Outgoing {
    fn bytes(&self) -> usize {
        match self {
            Self::Datagram { payload, .. } => payload.len(),
            Self::Failed { .. } | Self::Closed { .. } => 0,
        }
    }
}

impl Inbox {
    /// Adds an event for the program and wakes it.
    pub(crate) fn push(&self, remote: Target, event: Received) {
        let mut state = lock(&self.0);
        if state.has_ended {
            return;
        }
        let bytes = event_bytes(&event);
        let (most, max_bytes) = INBOX;
        while state.queue.len() >= most
            || (state.bytes + bytes > max_bytes && !state.queue.is_empty())
        {
            if let Some((_, oldest)) = state.queue.pop_front() {
                state.bytes -= event_bytes(&oldest);
                state.dropped += 1;
            }
        }
        state.bytes += bytes;
        state.queue.push_back((remote, event));
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn end(&self) {
        let mut state = lock(&self.0);
        state.has_ended = true;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn poll_take(
        &self,
        cx: &mut Context<'_>,
        out: &mut Vec<(Target, Received)>,
        most: usize,
    ) -> Poll<usize> {
        let mut state = lock(&self.0);
        if state.queue.is_empty() && !state.has_ended {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = state.queue.len().min(most);
        for (remote, event) in state.queue.drain(..count).collect::<Vec<_>>() {
            state.bytes -= event_bytes(&event);
            out.push((remote, event));
        }
        Poll::Ready(count)
    }
}

fn event_bytes(event: &Received) -> usize {
    match event {
        Received::Datagram(payload) => payload.len(),
        Received::Failed(_) => 0,
    }
}

impl SourceHandle {
    /// The source's number in the session.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl DatagramSocket for SourceHandle {
    fn send(&self, remote: &Target, payload: Bytes, class: Option<Class>) -> Result<(), SendError> {
        if payload.len() > MAX_PAYLOAD {
            return Err(SendError::TooBig { most: MAX_PAYLOAD });
        }
        if self.sources.is_unsupported() {
            return Err(SendError::Unsupported);
        }
        self.sources.send(Outgoing::Datagram {
            source: self.id,
            remote: remote.clone(),
            payload,
            class: class.or(self.class),
            policy: self.policy,
        })
    }

    async fn receive(&mut self, out: &mut Vec<(Target, Received)>, limit: usize) -> usize {
        poll_fn(|cx| self.inbox.poll_take(cx, out, limit)).await
    }

    fn report(&self, remote: &Target, failure: FlowFailure) {
        // The session may have ended, and the flow with it.
        let _ = self.sources.send(Outgoing::Failed {
            source: self.id,
            remote: remote.clone(),
            failure,
        });
    }
}

impl Drop for SourceHandle {
    fn drop(&mut self) {
        let removed = {
            let mut inboxes = lock(&self.sources.inboxes);
            let is_own = inboxes
                .get(&self.id)
                .is_some_and(|inbox| Arc::ptr_eq(inbox, &self.inbox));
            is_own && inboxes.remove(&self.id).is_some()
        };
        if removed {
            lock(&self.sources.outbox).dropped += lock(&self.inbox.0).dropped;
            let _ = self.sources.send(Outgoing::Closed { source: self.id });
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::task::noop_waker;

    use super::*;

    fn remote() -> Target {
        Target::new("192.0.2.7", 4000).unwrap()
    }

    fn take(sources: &Sources) -> Vec<Outgoing> {
        let mut out = Vec::new();
        let waker = noop_waker();
        sources.take(&mut Context::from_waker(&waker), usize::MAX, &mut out);
        out
    }

    #[test]
    fn a_full_outbox_drops_the_oldest_datagrams_and_nothing_else() {
        let sources = Arc::<Sources>::default();
        let first = sources.bind(None, None);
        drop(first);
        let source = sources.bind(None, None);
        for number in 0..OUTBOX.0 + 10 {
            let payload = Bytes::copy_from_slice(&number.to_be_bytes());
            source.send(&remote(), payload, None).unwrap();
        }
        let taken = take(&sources);
        assert_eq!(taken.len(), OUTBOX.0);
        assert!(matches!(taken[0], Outgoing::Closed { source: 0 }));
        let Outgoing::Datagram { payload, .. } = &taken[1] else {
            panic!("expected a datagram");
        };
        assert_eq!(payload[..], 11usize.to_be_bytes());
        assert_eq!(sources.dropped(), 11);
    }

    #[tokio::test]
    async fn a_slow_program_loses_the_oldest_and_reads_the_end_last() {
        let sources = Arc::<Sources>::default();
        let mut source = sources.bind(None, None);
        let inbox = sources.inbox(source.id()).unwrap();
        for _ in 0..INBOX.0 + 5 {
            inbox.push(remote(), Received::Datagram(Bytes::from_static(b"x")));
        }
        assert_eq!(sources.dropped(), 5);
        sources.close();
        let mut out = Vec::new();
        assert_eq!(source.receive(&mut out, usize::MAX).await, INBOX.0);
        assert_eq!(source.receive(&mut out, usize::MAX).await, 0);
        let error = source.send(&remote(), Bytes::new(), None);
        assert_eq!(error, Err(SendError::Closed));
    }

    #[test]
    fn a_datagram_that_no_session_could_take_is_refused() {
        let sources = Arc::<Sources>::default();
        let source = sources.bind(None, None);
        let long = Bytes::from(vec![0; MAX_PAYLOAD + 1]);
        let error = source.send(&remote(), long, None);
        assert_eq!(error, Err(SendError::TooBig { most: MAX_PAYLOAD }));
        sources.set_unsupported(true);
        let error = source.send(&remote(), Bytes::new(), None);
        assert_eq!(error, Err(SendError::Unsupported));
    }

    #[test]
    fn a_lasting_source_stays_without_flows() {
        let sources = Arc::<Sources>::default();
        let (lasting, other) = (sources.attach_lasting(7), sources.attach(8, None, None));
        sources.end(7);
        sources.end(8);
        assert!(sources.inbox(7).is_some() && sources.inbox(8).is_none());
        drop((lasting, other));
        assert!(sources.inbox(7).is_none());
    }

    #[test]
    fn a_handle_of_a_former_source_does_not_end_its_successor() {
        let sources = Arc::<Sources>::default();
        let old = sources.attach(7, None, None);
        let new = sources.attach(7, None, None);
        drop(old);
        assert!(sources.inbox(7).is_some());
        assert!(take(&sources).is_empty());
        drop(new);
        assert!(matches!(
            take(&sources)[..],
            [Outgoing::Closed { source: 7 }]
        ));
    }
}
