//! Accepts connections, and survives a lack of descriptors or memory.
//!
//! Such a lack lasts, and the waiting connection keeps the listening socket ready. An accept loop
//! that retries immediately uses a whole core, and one that logs each failure fills a disk.
//! [`Accepting`] pauses between attempts, and logs one line when the failures begin and one when
//! they have ended.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Instant, sleep_until};

/// A listening socket.
pub trait Listen {
    /// The type of an accepted connection.
    type Connection;

    /// The next connection.
    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Connection>>;
}

impl Listen for TcpListener {
    type Connection = (TcpStream, SocketAddr);

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Connection>> {
        self.poll_accept(cx)
    }
}

impl Listen for UnixListener {
    type Connection = UnixStream;

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Connection>> {
        self.poll_accept(cx).map_ok(|(stream, _)| stream)
    }
}

/// The pause after a failure; doubles up to the second value.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Time without failures after which they count as over: near the limit they come and go with every
/// connection.
const QUIET: Duration = Duration::from_secs(10);

/// The failure state of an accept loop.
#[derive(Debug)]
pub struct Accepting {
    /// The purpose of the connections, as named in the log.
    what: String,
    fault: Option<Fault>,
}

/// Failures that are not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    began: Instant,
    latest: Instant,
    count: u64,
    pause: Duration,
    /// The earliest time of the next attempt.
    again: Instant,
}

impl Accepting {
    /// For connections to `what`, such as "the control socket".
    pub fn new(what: impl fmt::Display) -> Self {
        Self {
            what: what.to_string(),
            fault: None,
        }
    }

    /// The next connection, however long the lack of resources lasts. Cancel safe: the pause after
    /// a failure carries over to the next call.
    pub async fn next<L: Listen>(&mut self, listener: &L) -> L::Connection {
        loop {
            if let Some(fault) = self.fault {
                sleep_until(fault.again).await;
            }
            let quiet = self.fault.map(|fault| fault.latest + QUIET);
            tokio::select! {
                biased;
                accepted = poll_fn(|cx| listener.poll_next(cx)) => match accepted {
                    Ok(connection) => {
                        if let Some(fault) = &mut self.fault {
                            fault.pause = PAUSE.0;
                        }
                        return connection;
                    }
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => self.failed(Instant::now(), &error),
                },
                () = at(quiet) => self.ended(),
            }
        }
    }

    fn failed(&mut self, now: Instant, error: &io::Error) {
        if self.fault.is_none() {
            let what = &self.what;
            tracing::warn!(
                %error,
                "cannot accept connections to {what}; new ones wait in the listen queue"
            );
        }
        let fault = self.fault.get_or_insert(Fault {
            began: now,
            latest: now,
            count: 0,
            pause: PAUSE.0,
            again: now,
        });
        fault.latest = now;
        fault.count += 1;
        fault.again = now + fault.pause;
        fault.pause = (fault.pause * 2).min(PAUSE.1);
    }

    fn ended(&mut self) {
        if let Some(fault) = self.fault.take() {
            let seconds = fault.latest.duration_since(fault.began).as_secs();
            let (what, failures) = (&self.what, fault.count);
            tracing::info!(seconds, failures, "accepting connections to {what} again");
        }
    }
}

/// Whether the failure concerns this connection only, and the next one may succeed (accept(2),
/// "Error handling").
fn is_of_one_connection(error: &io::Error) -> bool {
    let network = [
        libc::ENETDOWN,
        libc::EPROTO,
        libc::ENOPROTOOPT,
        libc::EHOSTDOWN,
        libc::ENONET,
        libc::EHOSTUNREACH,
        libc::EOPNOTSUPP,
        libc::ENETUNREACH,
        libc::ECONNABORTED,
        libc::EINTR,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| network.contains(&code))
}

/// Waits until `time`; forever for `None`.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;

    use super::*;

    /// Yields these results in order, and then nothing.
    struct Script {
        results: RefCell<VecDeque<Result<u32, i32>>>,
        attempts: Cell<u32>,
    }

    impl Script {
        fn new(results: impl IntoIterator<Item = Result<u32, i32>>) -> Self {
            Self {
                results: RefCell::new(results.into_iter().collect()),
                attempts: Cell::new(0),
            }
        }
    }

    impl Listen for Script {
        type Connection = u32;

        fn poll_next(&self, _: &mut Context<'_>) -> Poll<io::Result<u32>> {
            self.attempts.set(self.attempts.get() + 1);
            match self.results.borrow_mut().pop_front() {
                Some(result) => Poll::Ready(result.map_err(io::Error::from_raw_os_error)),
                None => Poll::Pending,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lack_of_descriptors_causes_growing_pauses() {
        let (start, mut accepting) = (Instant::now(), Accepting::new("a test"));
        let script = Script::new([Err(libc::EMFILE); 100].into_iter().chain([Ok(7)]));
        assert_eq!(accepting.next(&script).await, 7);
        // 100, 200, 400 and 800 ms, and then a second each.
        assert_eq!(start.elapsed().as_secs(), 97);
        let fault = accepting.fault.expect("the failure is not over");
        assert_eq!((fault.began, fault.count), (start, 100));
    }

    #[tokio::test(start_paused = true)]
    async fn intermittent_failures_are_one_fault() {
        let mut accepting = Accepting::new("a test");
        // Each connection that ends makes room for another.
        let script = Script::new([Err(libc::EMFILE), Ok(1)].repeat(50));
        for _ in 0..50 {
            accepting.next(&script).await;
        }
        assert_eq!(accepting.fault.unwrap().count, 50);
        let end = tokio::time::timeout(2 * QUIET, accepting.next(&script)).await;
        assert!(end.is_err() && accepting.fault.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_call_does_not_shorten_the_pause() {
        let mut accepting = Accepting::new("a test");
        let script = Script::new([Err(libc::ENFILE); 1000]);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            let shortly = Duration::from_millis(1);
            let _ = tokio::time::timeout(shortly, accepting.next(&script)).await;
        }
        assert!(
            script.attempts.get() < 20,
            "{} attempts",
            script.attempts.get()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_gone_delays_no_other() {
        let (start, mut accepting) = (Instant::now(), Accepting::new("a test"));
        let script = Script::new([Err(libc::ECONNABORTED), Err(libc::EPROTO), Ok(1)]);
        accepting.next(&script).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(accepting.fault, None);
    }
}
