//! The name server on the internet host, over UDP and TCP. Every name has the address of that host,
//! except that the first label asks for something else:
//!
//! | label | answer |
//! | --- | --- |
//! | `h9` | address number 9 of the internet host |
//! | `private` | a private address |
//! | `short` | a time to live of 1 s instead of 300 s |
//! | `big` | 60 addresses: truncated over UDP |
//! | `missing` | there is no such name |
//! | `silent` | none |

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::LabError;
use crate::netns::Namespace;
use crate::topology::Kernel;

use super::message::Query;
use super::{INTERNET_V4, INTERNET_V6};

const PORT: u16 = 53;
/// Largest datagram with a question.
const LARGEST: usize = 4096;
/// Time for a connection to send its next question.
const PATIENCE: Duration = Duration::from_secs(5);
/// Questions that are kept; further ones are answered and not recorded.
const KEPT: usize = 100_000;

/// A question that the name server received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name in lower case, without the last dot.
    pub name: String,
    /// The type of the wanted records: 1 for A, 28 for AAAA.
    pub kind: u16,
    /// Where it came from.
    pub from: SocketAddr,
    /// Whether it came over TCP.
    pub over_tcp: bool,
}

type Log = Arc<Mutex<Vec<Question>>>;

/// The running name server; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Resolver {
    log: Log,
    /// Closing it ends the thread; `None` only during drop.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Resolver {
    /// Starts it in the namespace of the internet host.
    pub(crate) fn start(internet: &Namespace, kernel: Kernel) -> Result<Self, LabError> {
        let failed = |error: io::Error| LabError::system("starting the name server", error);
        let mut addresses = vec![IpAddr::from(INTERNET_V4)];
        if kernel.ipv6 {
            addresses.push(INTERNET_V6.into());
        }
        // Sockets stay in the namespace in which they were made.
        let sockets = internet
            .run(move || Sockets::open(&addresses))?
            .map_err(failed)?;
        let log = Log::default();
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let kept = Arc::clone(&log);
        let thread = thread::Builder::new()
            .name("resolver".to_owned())
            .spawn(move || sockets.serve(&stopped, &kept))
            .map_err(failed)?;
        Ok(Self {
            log,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The questions so far.
    pub(crate) fn questions(&self) -> Vec<Question> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.clone()
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Sockets {
    datagrams: Vec<UdpSocket>,
    listeners: Vec<TcpListener>,
}

impl Sockets {
    fn open(addresses: &[IpAddr]) -> io::Result<Self> {
        let at = |address: &IpAddr| SocketAddr::new(*address, PORT);
        let datagrams = addresses.iter().map(|address| UdpSocket::bind(at(address)));
        let datagrams: Vec<UdpSocket> = datagrams.collect::<io::Result<_>>()?;
        let listeners = addresses
            .iter()
            .map(|address| TcpListener::bind(at(address)));
        let listeners: Vec<TcpListener> = listeners.collect::<io::Result<_>>()?;
        for socket in &datagrams {
            socket.set_nonblocking(true)?;
        }
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        Ok(Self {
            datagrams,
            listeners,
        })
    }

    /// Answers until the other end of `stopped` is closed.
    fn serve(&self, stopped: &UnixStream, log: &Log) {
        let sockets = self.datagrams.iter().map(AsFd::as_fd);
        let sockets = sockets.chain(self.listeners.iter().map(AsFd::as_fd));
        let all = sockets.chain([stopped.as_fd()]);
        let mut waiting: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        loop {
            if poll(&mut waiting, PollTimeout::NONE).is_err() {
                continue;
            }
            if waiting.last().and_then(PollFd::any) == Some(true) {
                return;
            }
            for socket in &self.datagrams {
                answer_datagrams(socket, log);
            }
            for listener in &self.listeners {
                while let Ok((stream, from)) = listener.accept() {
                    let log = Arc::clone(log);
                    // Ends with the connection, at the latest after the time for a question.
                    thread::spawn(move || answer_stream(stream, from, &log));
                }
            }
        }
    }
}

fn answer_datagrams(socket: &UdpSocket, log: &Log) {
    let mut buffer = [0; LARGEST];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        if let Some(answer) = answer(&buffer[..length], from, false, log) {
            // A datagram that cannot be sent is lost, as on any network.
            let _ = socket.send_to(&answer, from);
        }
    }
}

/// Each message follows its length (RFC 1035, section 4.2.2).
fn answer_stream(mut stream: TcpStream, from: SocketAddr, log: &Log) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut message)?;
        if let Some(answer) = answer(&message, from, true, log) {
            let length = u16::try_from(answer.len()).unwrap_or(u16::MAX);
            stream.write_all(&[&length.to_be_bytes()[..], &answer].concat())?;
        }
    }
}

fn answer(message: &[u8], from: SocketAddr, over_tcp: bool, log: &Log) -> Option<Vec<u8>> {
    let query = Query::parse(message)?;
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    if log.len() < KEPT {
        log.push(Question {
            name: query.name.clone(),
            kind: query.kind,
            from,
            over_tcp,
        });
    }
    drop(log);
    query.answer(over_tcp)
}
