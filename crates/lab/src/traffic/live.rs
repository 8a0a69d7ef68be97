//! A flow inside this process, which records the time of every arrival.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::connection::connect;
use super::pattern::Pattern;
use super::{Route, Window, now_ns, sleep_until_ns};
use crate::config::Direction;
use crate::error::LabError;
use crate::laboratory::Lab;

/// Interval at which blocking calls check whether the flow is over.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for the connection, including proxies and tunnels.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for the last bytes after the sender has stopped.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Bytes moved by one call.
const CHUNK: usize = 64 << 10;

/// The traffic of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// Bulk traffic.
    Bulk,
    /// A message of this size at this interval.
    Messages { bytes: usize, every: Duration },
}

/// Bytes read from the receiver's socket at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// On the monotonic clock.
    pub(crate) at_ns: u64,
    pub(crate) bytes: u64,
}

/// A running flow. Dropping it stops both ends without checking the arrivals.
pub(crate) struct Live {
    stop: Arc<AtomicBool>,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    /// Returns the number of bytes sent.
    sender: Option<JoinHandle<io::Result<u64>>>,
    /// Returns the number of bytes received, or the first error in them.
    receiver: Option<JoinHandle<Result<u64, String>>>,
}

impl Live {
    /// Listens on a port of the server's side, connects to it over `route`, and starts to send.
    pub(crate) fn start(
        lab: &Lab,
        route: &Route,
        direction: Direction,
        pace: Pace,
    ) -> Result<Self, LabError> {
        let failed = |what: &str, error: String| LabError::Failed {
            what: format!("the flow: {what}"),
            log: error,
        };
        let port = route.target.port();
        let [near, serving] = lab.ends();
        let listener = lab.run(serving, move || {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        })?;
        let listener = listener.map_err(|error| failed("listening", error.to_string()))?;
        let route = route.clone();
        let window = Window {
            epoch_ns: now_ns(),
            duration_ms: CONNECT_LIMIT.as_millis() as u64,
        };
        let client = lab.run(near, move || connect(&route, window))?;
        let client = client.map_err(|error| failed("connecting", error))?;
        let client = client.ok_or_else(|| failed("connecting", "no answer".to_owned()))?;
        let server = accept(&listener).map_err(|error| failed("accepting", error.to_string()))?;
        let (from, to) = match direction {
            Direction::Up => (client, server),
            Direction::Down => (server, client),
        };
        for socket in [&from, &to] {
            socket
                .set_read_timeout(Some(POLL_INTERVAL))
                .and_then(|()| socket.set_write_timeout(Some(POLL_INTERVAL)))
                .and_then(|()| socket.set_nodelay(true))
                .map_err(|error| failed("a socket", error.to_string()))?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let (stop_sender, stop_receiver) = (Arc::clone(&stop), Arc::clone(&stop));
        let account = Arc::clone(&arrivals);
        Ok(Self {
            sender: Some(thread::spawn(move || send(&from, pace, &stop_sender))),
            receiver: Some(thread::spawn(move || {
                receive(&to, &stop_receiver, &account)
            })),
            stop,
            arrivals,
        })
    }

    /// Fails if an end has stopped prematurely.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let has_ended = |over: Option<bool>| over.unwrap_or(true);
        let ended = has_ended(self.sender.as_ref().map(JoinHandle::is_finished))
            || has_ended(self.receiver.as_ref().map(JoinHandle::is_finished));
        match ended {
            false => Ok(()),
            true => Err(broken("it ended prematurely")),
        }
    }

    /// Stops sending, waits for the last byte, and returns all arrivals; fails if any byte is wrong
    /// or missing.
    pub(crate) fn finish(mut self) -> Result<Vec<Arrival>, LabError> {
        self.stop.store(true, Ordering::Release);
        let panicked = |_| broken("one of its threads panicked");
        let sent = self.sender.take().map(JoinHandle::join).transpose();
        let sent = sent.map_err(panicked)?.transpose();
        let sent = sent.map_err(|error| broken(&format!("sending: {error}")))?;
        let received = self.receiver.take().map(JoinHandle::join).transpose();
        let received = received.map_err(panicked)?.transpose();
        let received = received.map_err(|error| broken(&error))?;
        if sent != received {
            return Err(broken(&format!(
                "{} bytes were sent and {} arrived",
                sent.unwrap_or(0),
                received.unwrap_or(0)
            )));
        }
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut arrivals))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn broken(what: &str) -> LabError {
    LabError::Failed {
        what: "the flow broke".to_owned(),
        log: what.to_owned(),
    }
}

fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => return stream.set_nonblocking(false).map(|()| stream),
            Err(error) if is_patience(&error) && start.elapsed() < CONNECT_LIMIT => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
}

fn send(mut socket: &TcpStream, pace: Pace, stop: &AtomicBool) -> io::Result<u64> {
    let pattern = Pattern::new();
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0u64;
    let mut due = now_ns();
    while !stop.load(Ordering::Acquire) {
        let len = match pace {
            Pace::Bulk => CHUNK,
            Pace::Messages { bytes, .. } => bytes.min(CHUNK),
        };
        pattern.fill(offset, &mut buffer[..len]);
        let mut rest = &buffer[..len];
        while !rest.is_empty() && !stop.load(Ordering::Acquire) {
            match socket.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    offset += written as u64;
                }
                Err(error) if is_patience(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if let Pace::Messages { every, .. } = pace {
            due += every.as_nanos() as u64;
            sleep_until_ns(due);
        }
    }
    socket.shutdown(Shutdown::Write)?;
    Ok(offset)
}

fn receive(
    mut socket: &TcpStream,
    stop: &AtomicBool,
    arrivals: &Mutex<Vec<Arrival>>,
) -> Result<u64, String> {
    let pattern = Pattern::new();
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0u64;
    let mut last = Instant::now();
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return Ok(offset),
            Ok(len) => {
                let at_ns = now_ns();
                last = Instant::now();
                let bytes = len as u64;
                let mut all = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
                all.push(Arrival { at_ns, bytes });
                drop(all);
                if let Some(at) = pattern.difference(offset, &buffer[..len]) {
                    return Err(format!("byte {at} differs from the sent one"));
                }
                offset += bytes;
            }
            Err(error) if is_patience(&error) => {
                if stop.load(Ordering::Acquire) && last.elapsed() > END_LIMIT {
                    return Err(format!("nothing arrived after byte {offset}"));
                }
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn is_patience(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
