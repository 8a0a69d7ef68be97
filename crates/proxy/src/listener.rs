//! A local port and the connections that come in on it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sumlink_transport::target::Target;
use sumlink_util::plain;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tracing::{debug, error, info, warn};

use crate::class::{Flow, class_of};
use crate::{Class, ClassRule, Forward, OpenError, Opener, http_proxy, socks5};
use sumlink_transport::accept::Accepting;
use sumlink_transport::descriptors;
use sumlink_transport::local_hop;
use sumlink_transport::relay::{Upload, relay, tune};
use sumlink_transport::saved_syn;
use sumlink_transport::tasks::spawn_begun;

/// Connections beyond the limit that are answered at once; further ones are reset. An answer takes the time in which
/// a program sends its request.
const REFUSALS: usize = 32;

/// Time between two lines of the log that say that the limit is reached.
const FULL_PAUSE: Duration = Duration::from_secs(60);

/// What a [`Listener`] does with its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Service {
    /// SOCKS5; see [`socks5`].
    Socks5,
    /// HTTP proxy; see [`http_proxy`].
    HttpProxy,
    /// Every connection is opened to this target, in the order in which they come in.
    Forward(Target),
}

/// Why a port cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another program has it.
    #[error(
        "cannot listen on {0} for {1}: the port is taken; choose another one, or stop the program \
         that has it (`ss -ltnp` shows which)"
    )]
    Taken(SocketAddr, Service),
    /// Ports below 1024 need a privilege.
    #[error(
        "cannot listen on {0} for {1}: not permitted; choose a port above 1023, or grant \
         CAP_NET_BIND_SERVICE"
    )]
    NotPermitted(SocketAddr, Service),
    /// The address is not one of this machine's.
    #[error(
        "cannot listen on {0} for {1}: this machine does not have that address (`ip address` shows them)"
    )]
    NoSuchAddress(SocketAddr, Service),
    /// Another reason.
    #[error("cannot listen on {0} for {1}: {reason}", reason = plain(.2))]
    Other(SocketAddr, Service, io::Error),
}

/// A bound port that does not accept yet, until [`Listener::serve`].
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    service: Service,
    limit: ConnectionLimit,
    classes: Arc<[ClassRule]>,
}

/// How many connections are served at once; clones share one limit, as the entries of a client do. The default is
/// what the limit on open files leaves for streams ([`descriptors::for_streams`]).
///
/// A connection beyond it is refused at once, in its own protocol.
#[derive(Clone, Debug)]
pub struct ConnectionLimit {
    most: usize,
    places: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
}

/// What a connection gets.
#[derive(Debug)]
enum Place {
    /// A stream.
    Served(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
    /// The answer that there is no place.
    Refused(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
}

impl ConnectionLimit {
    /// At most so many connections, at least one.
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            most,
            places: Arc::new(Semaphore::new(most)),
            refusals: Arc::new(Semaphore::new(REFUSALS)),
        }
    }

    /// A place for a connection that has just come in; none even for an answer when there are too many of those.
    fn place(&self) -> Option<Place> {
        let served = Arc::clone(&self.places).try_acquire_owned();
        match served {
            Ok(place) => Some(Place::Served(place)),
            Err(_) => {
                let refused = Arc::clone(&self.refusals).try_acquire_owned();
                refused.ok().map(Place::Refused)
            }
        }
    }
}

impl Default for ConnectionLimit {
    fn default() -> Self {
        Self::new(descriptors::for_streams())
    }
}

/// An opener, or what refuses every stream in its place.
#[derive(Clone)]
struct Gate<O> {
    opener: O,
    is_open: bool,
}

impl<O: Opener> Opener for Gate<O> {
    type Stream = O::Stream;

    async fn open(&self, target: Target, class: Option<Class>) -> Result<O::Stream, OpenError> {
        match self.is_open {
            true => self.opener.open(target, class).await,
            false => Err(OpenError::LimitReached),
        }
    }
}

impl Listener {
    /// Binds the port; programs that connect from now on wait until it is served. `[::]:PORT` takes
    /// IPv4 too. Must be called within a tokio runtime.
    pub async fn bind(address: SocketAddr, service: Service) -> Result<Self, ListenError> {
        let bound = async {
            let socket = TcpListener::bind(address).await?;
            local_hop::tune_listener(&socket);
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        match bound.await {
            Ok((socket, address)) => Ok(Self {
                socket,
                address,
                service,
                limit: ConnectionLimit::default(),
                classes: Arc::default(),
            }),
            Err(error) => Err(ListenError::new(address, service, error)),
        }
    }

    /// Binds the port of a forward.
    pub async fn forward(forward: Forward) -> Result<Self, ListenError> {
        Self::bind(forward.listen, Service::Forward(forward.target)).await
    }

    /// Serves connections within this limit, together with the other listeners that have it.
    pub fn with_limit(mut self, limit: ConnectionLimit) -> Self {
        self.limit = limit;
        self
    }

    /// Gives streams the class that the first fitting rule says.
    pub fn with_classes(mut self, rules: Arc<[ClassRule]>) -> Self {
        if rules.iter().any(|rule| rule.dscp.is_some())
            && let Err(error) = saved_syn::save_syn(&self.socket)
        {
            warn!(address = %self.address, %error, "this system does not tell the DSCP of connections: rules by it do not fit");
        }
        self.classes = rules;
        self
    }

    /// The address, with the port that the system chose where 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections over `opener` until `shutdown` completes, then closes the port and returns
    /// when the connections that are open have ended.
    ///
    /// Dropping the future closes the port and resets the connections, so a limit on the time they
    /// get is a [`tokio::time::timeout`] around it.
    pub async fn serve<O: Opener>(self, opener: O, shutdown: impl Future<Output = ()>) {
        let Self {
            socket,
            address,
            service,
            limit,
            classes,
        } = self;
        info!(%address, "listening for {service}");
        let mut connections = JoinSet::new();
        let mut accepting = Accepting::new(&service);
        let mut told_full: Option<Instant> = None;
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                (local, peer) = accepting.next(&socket) => {
                    debug!(%address, %peer, "connection");
                    let place = limit.place();
                    let is_open = matches!(place, Some(Place::Served(_)));
                    if !is_open && told_full.is_none_or(|at| at.elapsed() >= FULL_PAUSE) {
                        told_full = Some(Instant::now());
                        warn!(
                            %address,
                            max_connections = limit.most,
                            "all connections are in use; further ones of {service} are refused"
                        );
                    }
                    let Some(place) = place else {
                        reset(&local);
                        continue;
                    };
                    let gate = Gate {
                        opener: opener.clone(),
                        is_open,
                    };
                    let (service, classes) = (service.clone(), Arc::clone(&classes));
                    let task = async move {
                        let _place = place;
                        connection(local, service, gate, classes).await;
                    };
                    spawn_begun(&mut connections, task).await;
                }
                Some(ended) = connections.join_next() => log_panic(ended),
            }
        }
        drop(socket);
        info!(%address, open = connections.len(), "no longer listening for {service}");
        while let Some(ended) = connections.join_next().await {
            log_panic(ended);
        }
    }
}

async fn connection<O: Opener>(
    local: TcpStream,
    service: Service,
    opener: O,
    rules: Arc<[ClassRule]>,
) {
    if let Err(error) = tune(&local) {
        // A connection that is reset already; its service finds out.
        debug!(%error, "socket options not set");
    }
    let by_dscp = rules.iter().any(|rule| rule.dscp.is_some());
    let dscp = if by_dscp {
        saved_syn::dscp(&local)
    } else {
        None
    };
    let classes = Classes { rules, dscp };
    match service {
        Service::Socks5 => socks5::serve(local, opener, classes).await,
        Service::HttpProxy => http_proxy::serve(local, opener, classes).await,
        Service::Forward(target) => {
            match opener.open(target.clone(), classes.of(&target, None)).await {
                Ok(stream) => relay(local, stream, &[], Upload::Unlimited).await,
                Err(error) => {
                    match error {
                        // Every further connection would say it again.
                        OpenError::LimitReached => debug!(%target, %error, "forward not opened"),
                        error => warn!(%target, %error, "forward not opened"),
                    }
                    // There is no other way to refuse a program that speaks an unknown protocol.
                    reset(&local);
                }
            }
        }
    }
}

/// Makes the end of a connection a reset.
fn reset(local: &TcpStream) {
    if let Err(error) = local.set_zero_linger() {
        debug!(%error, "SO_LINGER not set");
    }
}

/// The rules, and what is known of a connection before its request.
#[derive(Debug)]
pub(crate) struct Classes {
    rules: Arc<[ClassRule]>,
    dscp: Option<u8>,
}

impl Classes {
    /// The class of a stream to `target`, asked for by `user` if one was named.
    pub(crate) fn of(&self, target: &Target, user: Option<&[u8]>) -> Option<Class> {
        let (port, dscp) = (target.port, self.dscp);
        class_of(&self.rules, &Flow { port, dscp, user })
    }

    /// Whether it matters who asks.
    pub(crate) fn look_at_users(&self) -> bool {
        self.rules.iter().any(|rule| rule.user.is_some())
    }
}

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        error!(%error, "a connection's task failed");
    }
}

impl ListenError {
    fn new(address: SocketAddr, service: Service, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::Taken(address, service),
            io::ErrorKind::PermissionDenied => Self::NotPermitted(address, service),
            io::ErrorKind::AddrNotAvailable => Self::NoSuchAddress(address, service),
            _ => Self::Other(address, service, error),
        }
    }
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socks5 => f.write_str("SOCKS5"),
            Self::HttpProxy => f.write_str("the HTTP proxy"),
            Self::Forward(target) => write!(f, "the forward to {target}"),
        }
    }
}
