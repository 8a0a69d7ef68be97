//! Connects to a stream's target from the server: resolves the name, checks each address, races the
//! address families.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout as time_limit, timeout_at};
use tracing::debug;

use crate::egress::EgressPolicy;
use crate::happy_eyeballs::Race;
use crate::local_hop;
use crate::outgoing::Outgoing;
use crate::relay;
use crate::target::{Host, OpenError, Target};

/// Concurrent name lookups of one session. The system's resolver takes a thread per lookup and
/// cannot be interrupted, even if the result is no longer wanted. Some hundred names that are never
/// answered would leave no thread for other clients.
pub(crate) const LOOK_UPS: usize = 16;

/// Longest wait of a resolved target for earlier requests to the same target.
const TURN_WAIT: Duration = Duration::from_millis(100);

/// Maximum number of addresses tried per name, so that a hostile zone cannot make the server scan.
const MAX_ADDRESSES: usize = 16;

/// Connects to `target`, resolving its name first, within `timeout` for both together.
///
/// The policy checks each resolved address, and only addresses that it has checked are connected
/// to: a name that resolves differently a moment later (DNS rebinding) reaches nothing new. The
/// addresses are tried in the resolver's order with the families interleaved, a new one every 250
/// ms or as soon as the last attempt has failed (RFC 8305); the first to answer wins. The stream
/// has TCP_NODELAY and the same keepalives as a program's connection, and is not paced if it stays
/// on this machine.
///
/// Errors: [`OpenError::NameNotResolved`] also when the resolver does not answer in time,
/// [`OpenError::LimitReached`] when this machine lacks descriptors or memory,
/// [`OpenError::NotAllowed`] when the policy allows none of the addresses; otherwise the most
/// informative error of all attempts: refused, then timed out, then unreachable. An address that
/// has not answered by then has timed out.
pub async fn dial(
    target: &Target,
    policy: &EgressPolicy,
    timeout: Duration,
) -> Result<TcpStream, OpenError> {
    dial_in_turn(target, policy, timeout, Turns::default().next(&[])).await
}

/// Connects to a target on this side of the bond, without a policy, because its owner named it.
/// Otherwise as [`dial_in_turn`].
pub async fn dial_freely(
    target: &Target,
    timeout: Duration,
    turn: Turn,
    outgoing: &Outgoing,
) -> Result<TcpStream, OpenError> {
    let deadline = Instant::now() + timeout;
    let Turn {
        look_ups,
        before,
        begun,
    } = turn;
    let mut addresses = resolve(target, deadline, look_ups).await?;
    addresses.truncate(MAX_ADDRESSES);
    connect_in_turn(target, addresses, deadline, (before, begun), outgoing).await
}

/// [`dial`] with packets that leave as `outgoing` says. If the interface does not exist, the error
/// is [`OpenError::Unreachable`].
pub async fn dial_over(
    target: &Target,
    policy: &EgressPolicy,
    timeout: Duration,
    outgoing: &Outgoing,
) -> Result<TcpStream, OpenError> {
    let turn = Turns::default().next(&[]);
    dial_with(target, policy, timeout, turn, outgoing).await
}

/// The order in which a session requests connections. Connections to one target start in this
/// order, however long each name lookup takes.
#[derive(Debug)]
pub struct Turns {
    look_ups: Arc<Semaphore>,
    /// The latest request. Programs whose connections are ordered open them back to back.
    last: Option<(Vec<u8>, oneshot::Receiver<Infallible>)>,
}

/// A connection's place in the order.
#[derive(Debug)]
pub struct Turn {
    look_ups: Arc<Semaphore>,
    /// Completes when the previous connection has started or was abandoned.
    before: Option<oneshot::Receiver<Infallible>>,
    /// Dropped when this connection has started.
    begun: oneshot::Sender<Infallible>,
}

impl Turns {
    /// Takes the next place for a connection to `target`, encoded as in an OPEN frame.
    pub fn next(&mut self, target: &[u8]) -> Turn {
        let (begun, receiver) = oneshot::channel();
        let last = self.last.replace((target.to_vec(), receiver));
        let before = last
            .filter(|(last, _)| last == target)
            .map(|(_, receiver)| receiver);
        let look_ups = Arc::clone(&self.look_ups);
        Turn {
            look_ups,
            before,
            begun,
        }
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            look_ups: Arc::new(Semaphore::new(LOOK_UPS)),
            last: None,
        }
    }
}

/// [`dial`], after the previous connection has started or `TURN_WAIT` has passed. If the target
/// is an address and its turn has come, the connection starts at the first poll.
pub async fn dial_in_turn(
    target: &Target,
    policy: &EgressPolicy,
    timeout: Duration,
    turn: Turn,
) -> Result<TcpStream, OpenError> {
    dial_with(target, policy, timeout, turn, &Outgoing::default()).await
}

async fn dial_with(
    target: &Target,
    policy: &EgressPolicy,
    timeout: Duration,
    turn: Turn,
    outgoing: &Outgoing,
) -> Result<TcpStream, OpenError> {
    let deadline = Instant::now() + timeout;
    let addresses = resolve(target, deadline, turn.look_ups).await?;
    let allowed: Vec<SocketAddr> = addresses
        .into_iter()
        .filter(|address| match policy.check(address.ip(), address.port()) {
            Ok(()) => true,
            Err(why) => {
                debug!(%target, %address, %why, "egress policy refuses the address");
                false
            }
        })
        .take(MAX_ADDRESSES)
        .collect();
    if allowed.is_empty() {
        return Err(OpenError::NotAllowed);
    }
    let order = (turn.before, turn.begun);
    connect_in_turn(target, allowed, deadline, order, outgoing).await
}

/// Connects to one of the addresses, after the previous connection in the order.
async fn connect_in_turn(
    target: &Target,
    addresses: Vec<SocketAddr>,
    deadline: Instant,
    (before, begun): (
        Option<oneshot::Receiver<Infallible>>,
        oneshot::Sender<Infallible>,
    ),
    outgoing: &Outgoing,
) -> Result<TcpStream, OpenError> {
    if let Some(before) = before {
        // The channel carries no value; the sender is dropped.
        let _ = time_limit(TURN_WAIT, before).await;
    }
    let mut connecting = pin!(connect_first(addresses, deadline, outgoing));
    let first = poll_fn(|cx| Poll::Ready(connecting.as_mut().poll(cx))).await;
    drop(begun);
    let stream = match first {
        Poll::Ready(result) => result?,
        Poll::Pending => connecting.await?,
    };
    // Without the options the stream is slower but correct.
    if let Err(error) = relay::tune(&stream) {
        debug!(%target, %error, "cannot set socket options; the stream may be slower");
    }
    Ok(stream)
}

pub(crate) async fn resolve(
    target: &Target,
    deadline: Instant,
    look_ups: Arc<Semaphore>,
) -> Result<Vec<SocketAddr>, OpenError> {
    let name = match &target.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, target.port)]),
        Host::Name(name) => name,
    };
    let asked = (name.to_string(), target.port);
    let look_up = async {
        // Held until the resolver has answered, even if the caller gives up earlier.
        let permit = look_ups.acquire_owned().await;
        let look_up = spawn_blocking(move || -> io::Result<Vec<SocketAddr>> {
            let _permit = permit;
            Ok(asked.to_socket_addrs()?.collect())
        });
        look_up.await.map_err(io::Error::other)?
    };
    let addresses: Vec<SocketAddr> = match timeout_at(deadline, look_up).await {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(error)) => {
            debug!(%target, %error, "cannot resolve the name of the target");
            // The resolver opens files and sockets and does not report a lack of descriptors.
            if let Err(lack) = TcpSocket::new_v4()
                && open_error(&lack) == OpenError::LimitReached
            {
                return Err(OpenError::LimitReached);
            }
            Vec::new()
        }
        Err(_) => {
            debug!(%target, "the resolver did not answer in time");
            Vec::new()
        }
    };
    if addresses.is_empty() {
        Err(OpenError::NameNotResolved)
    } else {
        Ok(addresses)
    }
}

/// Races connection attempts to the addresses. Dropping the losers closes their sockets.
async fn connect_first(
    addresses: Vec<SocketAddr>,
    deadline: Instant,
    outgoing: &Outgoing,
) -> Result<TcpStream, OpenError> {
    let mut race = Race::new(addresses, |address| local_hop::connect(address, outgoing));
    let mut failure = None;
    loop {
        let error = match timeout_at(deadline, race.next()).await {
            Ok(Some(Ok(stream))) => return Ok(stream),
            Ok(Some(Err(error))) => open_error(&error),
            Ok(None) => break,
            Err(_) => {
                failure = failure.max(Some(Informative(OpenError::TimedOut)));
                break;
            }
        };
        failure = failure.max(Some(Informative(error)));
    }
    Err(failure.map_or(OpenError::Unreachable, |Informative(error)| error))
}

/// Connects to the first of these addresses that answers, without a policy. They are tried as by
/// [`dial`].
pub(crate) async fn connect_in_order(
    addresses: Vec<SocketAddr>,
    deadline: Instant,
) -> Result<TcpStream, OpenError> {
    connect_first(addresses, deadline, &Outgoing::default()).await
}

/// Maps a failed `connect` to the error for the requesting program.
fn open_error(error: &io::Error) -> OpenError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => OpenError::Refused,
        io::ErrorKind::TimedOut => OpenError::TimedOut,
        // The server host's own packet filter.
        io::ErrorKind::PermissionDenied => OpenError::NotAllowed,
        _ => match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                OpenError::LimitReached
            }
            _ => OpenError::Unreachable,
        },
    }
}

/// Orders errors by how much they say about the target: if IPv6 has no route and IPv4 is refused,
/// the program should read "refused".
#[derive(PartialEq, Eq)]
struct Informative(OpenError);

impl Informative {
    fn rank(&self) -> u8 {
        match self.0 {
            OpenError::Refused => 4,
            OpenError::TimedOut => 3,
            OpenError::NotAllowed => 2,
            OpenError::LimitReached => 1,
            _ => 0,
        }
    }
}

impl Ord for Informative {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Informative {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Silent, closed_port};
    use crate::happy_eyeballs::ATTEMPT_DELAY;
    use socket2::SockRef;
    use tokio::net::TcpListener;

    const LONG: Duration = Duration::from_secs(20);

    fn loopback_allowed() -> EgressPolicy {
        let rules = ["allow 127.0.0.0/8", "allow [::1]"];
        EgressPolicy::new(rules.map(|rule| rule.parse().unwrap()))
    }

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn connects_by_name_and_by_address_of_both_families() {
        for (listen, host) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("127.0.0.1:0", "localhost"),
            ("[::1]:0", "[::1]"),
        ] {
            let listener = TcpListener::bind(listen).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let target = target(&format!("{host}:{port}"));
            let stream = dial(&target, &loopback_allowed(), LONG).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap().port(), port);
            assert!(stream.nodelay().unwrap());
        }
    }

    #[tokio::test]
    async fn a_refused_address_is_not_connected_to_whatever_its_name() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // Only the resolver reads the last three as loopback.
        for host in [
            "127.0.0.1",
            "[::ffff:127.0.0.1]",
            "localhost",
            "127.1",
            "2130706433",
            "0",
        ] {
            let target = target(&format!("{host}:{port}"));
            let error = dial(&target, &EgressPolicy::default(), LONG).await;
            assert_eq!(error.unwrap_err(), OpenError::NotAllowed, "{target}");
        }
        // The listener is non-blocking; a connection over loopback would already be in its queue.
        let accepted = listener.into_std().unwrap().accept();
        assert_eq!(accepted.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[tokio::test]
    async fn failures_have_their_name() {
        let closed = closed_port().await;
        let error = dial(&closed.into(), &loopback_allowed(), LONG).await;
        assert_eq!(error.unwrap_err(), OpenError::Refused);

        // RFC 6761, section 6.4: `.invalid` never resolves.
        let error = dial(&target("host.invalid:80"), &loopback_allowed(), LONG).await;
        assert_eq!(error.unwrap_err(), OpenError::NameNotResolved);

        let silent = Silent::new().await;
        let error = dial(
            &silent.address.into(),
            &loopback_allowed(),
            2 * ATTEMPT_DELAY,
        )
        .await;
        assert_eq!(error.unwrap_err(), OpenError::TimedOut);

        // An answer from one address outweighs the silence of another.
        let order = vec![closed_port().await, silent.address];
        let by_default = &Outgoing::default();
        let error = connect_first(order, Instant::now() + 2 * ATTEMPT_DELAY, by_default).await;
        assert_eq!(error.unwrap_err(), OpenError::Refused);
    }

    #[tokio::test]
    async fn lookups_of_one_session_wait_for_each_other() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (name, policy) = (target(&format!("localhost:{port}")), loopback_allowed());
        let mut turns = Turns::default();
        // As if [`LOOK_UPS`] names were never answered.
        let all = u32::try_from(LOOK_UPS).unwrap();
        let unanswered = Arc::clone(&turns.look_ups);
        let unanswered = unanswered.acquire_many(all).await.unwrap();
        let error = dial_in_turn(&name, &policy, ATTEMPT_DELAY, turns.next(b"1")).await;
        assert_eq!(error.unwrap_err(), OpenError::NameNotResolved);
        // Addresses need no lookup, and another session has its own limit.
        let address = target(&format!("127.0.0.1:{port}"));
        let by_address = dial_in_turn(&address, &policy, LONG, turns.next(b"2"));
        by_address.await.unwrap();
        dial(&name, &policy, LONG).await.unwrap();
        drop(unanswered);
        let again = dial_in_turn(&name, &policy, LONG, turns.next(b"3")).await;
        assert!(SockRef::from(&again.unwrap()).keepalive().unwrap());
    }

    #[tokio::test]
    async fn a_silent_address_delays_by_one_attempt_and_a_refusing_one_by_none() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = listener.local_addr().unwrap();
        let silent = Silent::new().await;
        let deadline = Instant::now() + LONG;
        let by_default = &Outgoing::default();

        let start = Instant::now();
        let order = vec![silent.address, live];
        let stream = connect_first(order, deadline, by_default).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), live);
        assert!(start.elapsed() >= ATTEMPT_DELAY);

        let order = vec![closed_port().await, live];
        let start = Instant::now();
        connect_first(order, deadline, by_default).await.unwrap();
        assert!(start.elapsed() < ATTEMPT_DELAY);
    }

    #[tokio::test]
    async fn connections_to_one_target_begin_in_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let policy = loopback_allowed();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost"] {
            let target = target(&format!("{host}:{port}"));
            let mut turns = Turns::default();
            let (first, second) = (turns.next(host.as_bytes()), turns.next(host.as_bytes()));
            // The second connection runs first.
            let (second, first) = tokio::join!(
                dial_in_turn(&target, &policy, LONG, second),
                dial_in_turn(&target, &policy, LONG, first),
            );
            for tcp in [first.unwrap(), second.unwrap()] {
                let (_, peer) = listener.accept().await.unwrap();
                assert_eq!(peer, tcp.local_addr().unwrap(), "{host}");
            }

            // Neither an abandoned connection nor one to another target delays the next.
            drop(turns.next(host.as_bytes()));
            let third = turns.next(host.as_bytes());
            dial_in_turn(&target, &policy, LONG, third).await.unwrap();
            listener.accept().await.unwrap();
            let _waiting = turns.next(b"elsewhere");
            assert!(turns.next(host.as_bytes()).before.is_none());
        }
    }

    #[tokio::test]
    async fn the_most_informative_error_is_reported() {
        let deadline = Instant::now() + LONG;
        let broadcast: SocketAddr = "255.255.255.255:9".parse().unwrap();
        for order in [
            [broadcast, closed_port().await],
            [closed_port().await, broadcast],
        ] {
            let error = connect_first(order.into(), deadline, &Outgoing::default())
                .await
                .unwrap_err();
            assert_eq!(error, OpenError::Refused);
        }
    }
}
