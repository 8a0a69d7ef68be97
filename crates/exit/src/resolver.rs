//! The server's own resolvers, for the name lookups of its clients.
//!
//! A client addresses them by the name [`RESOLVER`](crate::target::RESOLVER) and never learns
//! their addresses. So they may be private, as those of most machines are, without an egress rule
//! that opens the private network: nothing but their DNS port can be reached in this way.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use nix::net::if_::if_nametoindex;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, info, warn};

use crate::dial::connect_in_order;
use crate::relay;
use crate::target::{DNS_PORT, OpenError};

/// The file with the system's resolvers (resolv.conf(5)).
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Where the addresses of the resolvers come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolverSource {
    /// There are none: clients are refused.
    Off,
    /// The `nameserver` lines of this file, which is read again after a change.
    File(PathBuf),
    /// These.
    Listed(Vec<SocketAddr>),
}

impl Default for ResolverSource {
    fn default() -> Self {
        Self::File(RESOLV_CONF.into())
    }
}

/// Resolvers of a server. Clones share their state.
#[derive(Clone, Debug)]
pub struct Resolvers {
    source: Arc<ResolverSource>,
    /// Firewall mark of queries over UDP.
    mark: Option<u32>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The resolvers of a file.
    read: Vec<SocketAddr>,
    /// Identity of the file when it was read.
    mark: Option<Mark>,
    /// Time of the next check of the file.
    look_at: Option<Instant>,
    /// The resolver that has answered last; it is asked first.
    best: Option<SocketAddr>,
    /// Whether a refusal for lack of a resolver has been logged.
    is_reported: bool,
}

/// Identity of a file's contents: time of the change and length.
type Mark = (SystemTime, u64);

/// Most resolvers that are asked, as in the C library (`MAXNS`, resolv.conf(5)).
const MOST: usize = 3;

/// Time between two checks of the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Wait for an answer before the next resolver is asked, too.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Longest wait for an answer. Clients have repeated the query by then.
const PATIENCE: Duration = Duration::from_secs(8);

/// Longest query in bytes; larger ones take TCP.
const MAX_QUERY: usize = 4096;

/// Length of a DNS header (RFC 1035, section 4.1.1).
const HEADER: usize = 12;

impl Resolvers {
    /// Resolvers from this source. Reads nothing yet.
    pub fn new(source: ResolverSource) -> Self {
        Self {
            source: Arc::new(source),
            mark: None,
            state: Arc::default(),
        }
    }

    /// Sends the queries of [`Resolvers::ask`] with this firewall mark (`SO_MARK`, socket(7)). That
    /// needs CAP_NET_ADMIN.
    #[must_use]
    pub fn with_mark(mut self, mark: u32) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Their addresses, in the order in which they are asked.
    ///
    /// # Errors
    ///
    /// [`OpenError::NotAllowed`] if clients may not ask, [`OpenError::NameNotResolved`] if there is
    /// no resolver. The first of these errors is logged.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, OpenError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut addresses = match &*self.source {
            ResolverSource::Off => {
                if !std::mem::replace(&mut state.is_reported, true) {
                    info!("a client's name lookup is refused: `[dns]` of this server excludes it");
                }
                return Err(OpenError::NotAllowed);
            }
            ResolverSource::Listed(addresses) => addresses.clone(),
            ResolverSource::File(file) => {
                state.look(file, Instant::now());
                state.read.clone()
            }
        };
        addresses.truncate(MOST);
        if addresses.is_empty() {
            if !std::mem::replace(&mut state.is_reported, true) {
                let source = match &*self.source {
                    ResolverSource::File(file) => file.display().to_string(),
                    _ => "the configuration".to_owned(),
                };
                warn!(
                    "a client's name lookup fails: {source} names no resolver; set `resolvers` in \
                     `[dns]`"
                );
            }
            return Err(OpenError::NameNotResolved);
        }
        state.is_reported = false;
        if let Some(best) = state.best
            && let Some(index) = addresses.iter().position(|address| *address == best)
        {
            addresses[..=index].rotate_right(1);
        }
        Ok(addresses)
    }

    /// A TCP connection to the first of them that answers.
    ///
    /// # Errors
    ///
    /// Those of [`Resolvers::addresses`], or the most informative one of all attempts.
    pub async fn connect(&self, timeout: Duration) -> Result<TcpStream, OpenError> {
        let addresses = self.addresses()?;
        let stream = connect_in_order(addresses, Instant::now() + timeout).await?;
        if let Err(error) = relay::tune(&stream) {
            debug!(%error, "cannot set socket options of a connection to a resolver");
        }
        Ok(stream)
    }

    /// Asks one query over UDP. If a resolver fails to resolve the name, or does not answer within
    /// a second, the next one is asked as well. The first useful answer counts.
    ///
    /// Each query has a separate socket: its random port makes forged answers harder (RFC 5452,
    /// section 9.2).
    ///
    /// # Errors
    ///
    /// Those of [`Resolvers::addresses`]; [`OpenError::BadTarget`] if this is no query; otherwise
    /// why none answered.
    pub async fn ask(&self, query: &[u8]) -> Result<Bytes, OpenError> {
        let is_query = query.get(2).is_some_and(|flags| flags & 0x80 == 0);
        if !is_query || !(HEADER..=MAX_QUERY).contains(&query.len()) {
            return Err(OpenError::BadTarget);
        }
        let mut waiting = self.addresses()?.into_iter();
        let deadline = Instant::now() + PATIENCE;
        let mut running = FuturesUnordered::new();
        let mut next_attempt = Instant::now();
        let (mut failure, mut unhelpful) = (OpenError::TimedOut, None);
        loop {
            if next_attempt <= Instant::now() || running.is_empty() {
                match waiting.next() {
                    Some(address) => running.push(ask_one(address, query, self.mark)),
                    None if running.is_empty() => break,
                    None => {}
                }
                next_attempt = Instant::now() + ATTEMPT;
            }
            let has_more = waiting.len() > 0;
            let ended = async {
                tokio::select! {
                    Some(ended) = running.next() => Some(ended),
                    () = sleep_until(next_attempt), if has_more => None,
                }
            };
            match timeout_at(deadline, ended).await {
                Err(_) => break,
                Ok(None) => {}
                Ok(Some((address, Ok(answer)))) if is_helpful(&answer) => {
                    let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                    state.best = Some(address);
                    return Ok(answer);
                }
                Ok(Some((_, Ok(answer)))) => {
                    unhelpful = Some(answer);
                    next_attempt = Instant::now();
                }
                Ok(Some((resolver, Err(error)))) => {
                    debug!(%resolver, %error, "a resolver does not answer");
                    failure = match error.raw_os_error() {
                        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                            OpenError::LimitReached
                        }
                        Some(libc::ECONNREFUSED) => OpenError::Refused,
                        _ => OpenError::Unreachable,
                    };
                    next_attempt = Instant::now();
                }
            }
        }
        unhelpful.ok_or(failure)
    }
}

impl State {
    /// Reads the file again if it may have changed.
    fn look(&mut self, file: &Path, now: Instant) {
        if self.look_at.is_some_and(|at| now < at) {
            return;
        }
        self.look_at = Some(now + LOOK_EVERY);
        let mark = std::fs::metadata(file)
            .and_then(|metadata| Ok((metadata.modified()?, metadata.len())))
            .ok();
        if mark.is_some() && mark == self.mark {
            return;
        }
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| {
            debug!(file = %file.display(), %error, "cannot read the system's resolvers");
            String::new()
        });
        self.mark = mark;
        self.read = nameservers(&text);
        debug!(resolvers = ?self.read, "read the system's resolvers");
    }
}

/// Sends the query to one resolver and waits for its answer.
async fn ask_one(
    resolver: SocketAddr,
    query: &[u8],
    mark: Option<u32>,
) -> (SocketAddr, io::Result<Bytes>) {
    let exchange = async {
        let local = match resolver {
            SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
            SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
        };
        let socket = UdpSocket::bind(local).await?;
        if let Some(mark) = mark {
            SockRef::from(&socket).set_mark(mark)?;
        }
        // The kernel drops datagrams of others, and reports ICMP errors.
        socket.connect(resolver).await?;
        socket.send(query).await?;
        loop {
            let ready = socket.ready(Interest::READABLE | Interest::ERROR).await?;
            if ready.is_error() {
                // Waits for the next error afterwards.
                let taken = socket.try_io(Interest::ERROR, || {
                    socket.take_error()?.ok_or(io::ErrorKind::WouldBlock.into())
                });
                if let Ok(error) = taken {
                    return Err(error);
                }
            }
            match receive(&socket) {
                Ok(answer) if answers(&answer, query) => return Ok(answer),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    };
    (resolver, exchange.await)
}

fn receive(socket: &UdpSocket) -> io::Result<Bytes> {
    // Not part of a future, which would keep it while it waits.
    let mut buffer = [0; 65_535];
    let length = socket.try_recv(&mut buffer)?;
    Ok(Bytes::copy_from_slice(&buffer[..length]))
}

/// Whether this may be the answer to the query: the same identifier, and marked as an answer.
fn answers(answer: &[u8], query: &[u8]) -> bool {
    answer.len() >= HEADER && answer[..2] == query[..2] && answer[2] & 0x80 != 0
}

/// Whether the resolver has resolved the name, or found that it does not exist. Other resolvers may
/// succeed after SERVFAIL, NOTIMP and REFUSED (RFC 1035, section 4.1.1).
fn is_helpful(answer: &[u8]) -> bool {
    !matches!(answer.get(3).map(|flags| flags & 0x0f), Some(2 | 4 | 5))
}

/// The resolvers in the text of a resolv.conf(5): the first three that have an address.
pub fn nameservers(text: &str) -> Vec<SocketAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => parse_nameserver(words.next()?),
            _ => None,
        }
    });
    addresses.take(MOST).collect()
}

/// An address, which for link-local ones has the interface: `fe80::1%eth0`.
fn parse_nameserver(text: &str) -> Option<SocketAddr> {
    if let Some((ip, scope)) = text.split_once('%') {
        let scope = match scope.parse() {
            Ok(index) => index,
            Err(_) => if_nametoindex(scope).ok()?,
        };
        let address = SocketAddrV6::new(ip.parse().ok()?, DNS_PORT, 0, scope);
        return Some(address.into());
    }
    let ip: IpAddr = text.parse().ok()?;
    Some(SocketAddr::new(ip, DNS_PORT))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::fixture::closed_port;

    const QUERY: [u8; 17] = [7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1];

    /// A resolver that answers with this code (RCODE); after a forged answer.
    async fn resolver(code: u8) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let mut answer = buffer[..length].to_vec();
                answer[2] |= 0x80;
                answer[3] = code;
                let mut forged = answer.clone();
                forged[0] ^= 1;
                socket.send_to(&forged, from).await.unwrap();
                socket.send_to(&[1, 2, 3], from).await.unwrap();
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        address
    }

    fn listed(addresses: impl Into<Vec<SocketAddr>>) -> Resolvers {
        Resolvers::new(ResolverSource::Listed(addresses.into()))
    }

    #[tokio::test]
    async fn the_next_resolver_answers_for_one_that_cannot() {
        let (closed, failing, good) = (closed_port().await, resolver(2).await, resolver(0).await);
        let resolvers = listed([closed, failing, good]);
        let answer = resolvers.ask(&QUERY).await.unwrap();
        assert_eq!((&answer[..2], answer[3]), (&QUERY[..2], 0));
        // The good one is asked first from now on.
        assert_eq!(resolvers.addresses(), Ok(vec![good, closed, failing]));
        // The answer of a resolver without success is better than none.
        let resolvers = listed([failing, closed]);
        assert_eq!(resolvers.ask(&QUERY).await.unwrap()[3], 2);
        let resolvers = listed([closed]);
        assert_eq!(resolvers.ask(&QUERY).await, Err(OpenError::Refused));
    }

    #[tokio::test]
    async fn a_silent_resolver_costs_one_attempt() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let resolvers = listed([silent.local_addr().unwrap(), resolver(3).await]);
        let begun = Instant::now();
        assert_eq!(resolvers.ask(&QUERY).await.unwrap()[3], 3);
        assert!(begun.elapsed() >= ATTEMPT);
        let begun = Instant::now();
        resolvers.ask(&QUERY).await.unwrap();
        assert!(begun.elapsed() < ATTEMPT);
    }

    #[tokio::test]
    async fn connections_go_to_the_first_that_accepts() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let resolvers = listed([closed_port().await, address]);
        let stream = resolvers.connect(PATIENCE).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
    }

    #[tokio::test]
    async fn refusals_say_whether_there_is_a_resolver() {
        let off = Resolvers::new(ResolverSource::Off);
        assert_eq!(off.ask(&QUERY).await, Err(OpenError::NotAllowed));
        assert_eq!(
            listed([]).ask(&QUERY).await,
            Err(OpenError::NameNotResolved)
        );
        let good = listed([resolver(0).await]);
        for bad in [&QUERY[..11], &[0xff; 20], &[0; MAX_QUERY + 1], &[]] {
            assert_eq!(good.ask(bad).await, Err(OpenError::BadTarget));
        }
    }

    #[test]
    fn the_file_is_read_again_after_a_change() {
        let file = std::env::temp_dir().join(format!("sumlink-resolv-{}", std::process::id()));
        let mut state = State::default();
        let start = Instant::now();
        state.look(&file, start);
        assert!(state.read.is_empty());
        std::fs::write(
            &file,
            "# a\nnameserver 192.0.2.53\nsearch x\n nameserver ::1 # b\n",
        )
        .unwrap();
        state.look(&file, start);
        assert!(state.read.is_empty(), "it looks once a second");
        state.look(&file, start + LOOK_EVERY);
        let expected = ["192.0.2.53:53", "[::1]:53"].map(|text| text.parse().unwrap());
        assert_eq!(state.read, expected);
        std::fs::remove_file(&file).unwrap();
        state.look(&file, start + 2 * LOOK_EVERY);
        assert!(state.read.is_empty());
    }

    #[test]
    fn hostile_lines_are_skipped_and_a_scope_is_kept() {
        let text = "nameserver\nnameserver x\nnameserver fe80::1%1\nnameserver 1.1.1.1 2.2.2.2\n\
                    nameservers 3.3.3.3\nnameserver fe80::1%no-such-link\n";
        let found: Vec<String> = nameservers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["[fe80::1%1]:53", "1.1.1.1:53"]);
    }
}
