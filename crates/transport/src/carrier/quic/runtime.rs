//! Runs quinn's tasks, and stops reading from the socket while one of them lags behind.
//!
//! quinn has one task that reads packets, and one for each connection that decrypts them. The
//! channel in between has no limit. Decryption is the slower part, so a peer that ignores
//! congestion control could fill the memory, and any overload would become a delay of seconds.
//! Here, a connection's turn lasts until its channel is empty. A turn that lasts longer than
//! [`LONGEST_TURN`] pauses the reading task, and the kernel drops what does not fit in the socket.
//! The channel therefore holds the packets of that time.
//!
//! The reading task takes the time once, before it reads. If the thread is interrupted in between,
//! the packets seem to arrive before they did, and the least round trip is wrong for the rest of
//! the connection. Such a turn ends before it reads.
//!

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};

/// The runtime of one endpoint.
#[derive(Debug)]
pub(super) struct GatedRuntime {
    gate: Arc<Gate>,
    /// Whether quinn has spawned its reading task, the first one of an endpoint.
    has_reader: AtomicBool,
}

/// Pauses the reading task while a connection has a long turn.
#[derive(Debug)]
pub(super) struct Gate {
    epoch: Instant,
    /// The beginnings of the present turns in nanoseconds since the epoch, at least 1; 0 in a free
    /// place. A thread runs one turn at a time.
    turns: [AtomicU64; PLACES],
    reader: AtomicWaker,
    is_waiting: AtomicBool,
}

/// A connection's turn.
struct Turn<'a> {
    gate: &'a Gate,
    /// `None` if there are more threads than places: the turn is not watched.
    place: Option<usize>,
}

/// A connection's task.
struct Watched<F> {
    gate: Arc<Gate>,
    task: F,
}

/// Time that a connection may take for arrived packets: 500 kB at 2 Gbit/s.
const LONGEST_TURN: Duration = Duration::from_millis(2);

/// Error of the arrival times that is tolerated.
const LARGEST_ERROR: Duration = Duration::from_micros(500);

thread_local! {
    /// When quinn last took the time.
    static TAKEN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Most turns at the same time that are watched.
const PLACES: usize = 64;

impl GatedRuntime {
    /// A runtime, and the gate for its socket.
    pub(super) fn new() -> (Arc<Self>, Arc<Gate>) {
        let gate = Arc::new(Gate {
            epoch: Instant::now(),
            turns: [const { AtomicU64::new(0) }; PLACES],
            reader: AtomicWaker::new(),
            is_waiting: AtomicBool::new(false),
        });
        let runtime = Self {
            gate: Arc::clone(&gate),
            has_reader: AtomicBool::new(false),
        };
        (Arc::new(runtime), gate)
    }
}

impl Runtime for GatedRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        if !self.has_reader.swap(true, Ordering::Relaxed) {
            return TokioRuntime.spawn(task);
        }
        let gate = Arc::clone(&self.gate);
        // Without tokio's budget, which would end a turn before the channel is empty.
        let task = tokio::task::unconstrained(Watched { gate, task });
        TokioRuntime.spawn(Box::pin(task));
    }

    fn wrap_udp_socket(&self, socket: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        let now = TokioRuntime.now();
        TAKEN.set(Some(now));
        now
    }
}

/// Whether packets that are read now would get a wrong arrival time.
pub(super) fn is_time_old() -> bool {
    let taken = TAKEN.get();
    taken.is_some_and(|taken| TokioRuntime.now().saturating_duration_since(taken) > LARGEST_ERROR)
}

impl Gate {
    /// Ready unless a turn lasts too long; then the task is woken at its end.
    pub(super) fn poll_open(&self, reader: &Waker) -> Poll<()> {
        if !self.has_long_turn() {
            return Poll::Ready(());
        }
        self.reader.register(reader);
        self.is_waiting.store(true, Ordering::SeqCst);
        // The turn may have ended in between.
        match self.has_long_turn() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    fn has_long_turn(&self) -> bool {
        let now = self.now();
        let longest = LONGEST_TURN.as_nanos() as u64;
        let mut turns = self.turns.iter();
        turns.any(|turn| match turn.load(Ordering::SeqCst) {
            0 => false,
            begun => now.saturating_sub(begun) > longest,
        })
    }

    fn begin(&self) -> Turn<'_> {
        let now = self.now();
        let place = self.turns.iter().position(|turn| {
            turn.compare_exchange(0, now, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        });
        Turn { gate: self, place }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).map_or(u64::MAX, |now| now.max(1))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.gate.turns[place].store(0, Ordering::SeqCst);
            if self.gate.is_waiting.swap(false, Ordering::SeqCst) {
                self.gate.reader.wake();
            }
        }
    }
}

impl<F: Future<Output = ()> + Unpin> Future for Watched<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { gate, task } = &mut *self;
        let _turn = gate.begin();
        Pin::new(task).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Woken(AtomicBool);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_long_turn_closes_the_gate_until_it_ends() {
        let (_, gate) = GatedRuntime::new();
        let woken = Arc::<Woken>::default();
        let reader = Waker::from(Arc::clone(&woken));
        let short = gate.begin();
        let is_open = gate.poll_open(&reader).is_ready();
        // On a busy machine, this thread may have paused here.
        assert!(is_open || gate.has_long_turn());
        drop(short);
        let long = gate.begin();
        while !gate.has_long_turn() {
            std::thread::yield_now();
        }
        let other = gate.begin();
        assert!(gate.poll_open(&reader).is_pending());
        drop(other);
        // Woken too early, the reader asks again.
        assert!(gate.poll_open(&reader).is_pending());
        woken.0.store(false, Ordering::SeqCst);
        drop(long);
        assert!(woken.0.load(Ordering::SeqCst));
        assert!(gate.poll_open(&reader).is_ready());
    }

    #[test]
    fn packets_are_read_only_with_a_recent_time() {
        let (runtime, _) = GatedRuntime::new();
        assert!(!is_time_old());
        let taken = runtime.now();
        while taken.elapsed() <= LARGEST_ERROR {
            std::thread::yield_now();
        }
        assert!(is_time_old());
        runtime.now();
        // This thread may be interrupted right here, but not every time.
        while is_time_old() {
            runtime.now();
        }
    }

    #[test]
    fn more_turns_than_places_are_not_watched() {
        let (_, gate) = GatedRuntime::new();
        let turns: Vec<Turn<'_>> = (0..PLACES + 1).map(|_| gate.begin()).collect();
        assert_eq!(turns.iter().filter(|turn| turn.place.is_none()).count(), 1);
        drop(turns);
        assert!(gate.begin().place.is_some());
    }
}
