//! A local port and its incoming connections.

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

use crate::associations::{Associations, NoDatagrams};
use crate::class::{Flow, class_of, class_of_datagrams};
use crate::{
    Class, ClassRule, DatagramOpener, Forward, OpenError, Opener, SourceLimit, http_proxy, socks5,
};
use sumlink_exit::local_hop;
use sumlink_exit::relay::{Upload, relay, tune};
use sumlink_transport::accept::Accepting;
use sumlink_transport::descriptors;
use sumlink_transport::saved_syn;
use sumlink_transport::tasks::spawn_begun;

/// Most connections beyond the limit that are answered at once; further ones are reset. An answer
/// takes as long as the program needs to send its request.
const REFUSALS: usize = 32;

/// Minimum time between two log lines about the connection limit.
const FULL_PAUSE: Duration = Duration::from_secs(60);

/// Protocol that a [`Listener`] serves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Service {
    /// SOCKS5; see [`socks5`].
    Socks5,
    /// HTTP proxy; see [`http_proxy`].
    HttpProxy,
    /// Every connection goes to this target, in order of arrival.
    Forward(Target),
}

/// Why listening on a port failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another program uses the port.
    #[error(
        "cannot listen on {0} for {1}: the port is taken; choose another one, or stop the program \
         that has it (`ss -ltnp` shows which)"
    )]
    Taken(SocketAddr, Service),
    /// Ports below 1024 require a privilege.
    #[error(
        "cannot listen on {0} for {1}: not permitted; choose a port above 1023, or grant \
         CAP_NET_BIND_SERVICE"
    )]
    NotPermitted(SocketAddr, Service),
    /// The address does not belong to this machine.
    #[error(
        "cannot listen on {0} for {1}: this machine does not have that address (`ip address` lists \
         its addresses)"
    )]
    NoSuchAddress(SocketAddr, Service),
    /// Another reason.
    #[error("cannot listen on {0} for {1}: {reason}", reason = plain(.2))]
    Other(SocketAddr, Service, io::Error),
}

/// A bound port that does not accept connections until [`Listener::serve`].
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    service: Service,
    limit: ConnectionLimit,
    sources: SourceLimit,
    classes: Arc<[ClassRule]>,
}

/// Limit on connections served at once. Clones share one limit, as the entries of a client do. The
/// default is the share of the open-files limit that remains for streams
/// ([`descriptors::for_streams`]).
///
/// A connection beyond it is refused at once, in its own protocol.
#[derive(Clone, Debug)]
pub struct ConnectionLimit {
    most: usize,
    places: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
}

/// How a connection is handled.
#[derive(Debug)]
enum Place {
    /// It is served with a stream.
    Served(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
    /// It is refused with an answer.
    Refused(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
}

impl ConnectionLimit {
    /// A limit of `most` connections, at least one.
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            most,
            places: Arc::new(Semaphore::new(most)),
            refusals: Arc::new(Semaphore::new(REFUSALS)),
        }
    }

    /// A place for a new connection; `None` if even the places for refusals are taken.
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

/// An opener, or a stand-in that refuses every stream.
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
    /// Binds the port. Programs that connect from now on wait until it is served. `[::]:PORT`
    /// accepts IPv4 as well. Must be called within a tokio runtime.
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
                sources: SourceLimit::default(),
                classes: Arc::default(),
            }),
            Err(error) => Err(ListenError::new(address, service, error)),
        }
    }

    /// Binds the port of a forward.
    pub async fn forward(forward: Forward) -> Result<Self, ListenError> {
        Self::bind(forward.listen, Service::Forward(forward.target)).await
    }

    /// Serves connections within this limit, shared with the other listeners that have it.
    pub fn with_limit(mut self, limit: ConnectionLimit) -> Self {
        self.limit = limit;
        self
    }

    /// Serves SOCKS5 associations within this limit, shared with the other entries that have it.
    pub fn with_sources(mut self, limit: SourceLimit) -> Self {
        self.sources = limit;
        self
    }

    /// Gives each stream, and each flow of datagrams, the class of the first matching rule.
    pub fn with_classes(mut self, rules: Arc<[ClassRule]>) -> Self {
        if rules.iter().any(|rule| rule.dscp.is_some())
            && let Err(error) = saved_syn::save_syn(&self.socket)
        {
            warn!(
                address = %self.address,
                %error,
                "cannot read the DSCP of incoming connections; DSCP rules will not match"
            );
        }
        self.classes = rules;
        self
    }

    /// The bound address; with port 0, it has the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections over `opener` until `shutdown` completes, then closes the port and
    /// returns when all open connections have ended.
    ///
    /// Dropping the future closes the port and resets the connections. To limit the time for the
    /// remaining connections, wrap the future in a [`tokio::time::timeout`].
    pub async fn serve<O: Opener>(self, opener: O, shutdown: impl Future<Output = ()>) {
        self.run(opener, None::<NoDatagrams>, shutdown).await;
    }

    /// [`Listener::serve`] with datagrams: SOCKS5 programs may use UDP ASSOCIATE.
    pub async fn serve_with_datagrams<O: Opener + DatagramOpener>(
        self,
        opener: O,
        shutdown: impl Future<Output = ()>,
    ) {
        let datagrams = Some(opener.clone());
        self.run(opener, datagrams, shutdown).await;
    }

    async fn run<O: Opener, D: DatagramOpener>(
        self,
        opener: O,
        datagrams: Option<D>,
        shutdown: impl Future<Output = ()>,
    ) {
        let Self {
            socket,
            address,
            service,
            limit,
            sources,
            classes,
        } = self;
        info!(%address, "listening for {service}");
        let mut connections = JoinSet::new();
        let mut accepting = Accepting::new(&service);
        let mut logged_full: Option<Instant> = None;
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                (local, peer) = accepting.next(&socket) => {
                    debug!(%address, %peer, "connection");
                    let place = limit.place();
                    let is_open = matches!(place, Some(Place::Served(_)));
                    if !is_open && logged_full.is_none_or(|at| at.elapsed() >= FULL_PAUSE) {
                        logged_full = Some(Instant::now());
                        warn!(
                            %address,
                            max_connections = limit.most,
                            "connection limit reached; further {service} connections are refused"
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
                    let associations = Associations {
                        opener: datagrams.clone(),
                        limit: match is_open {
                            true => sources.clone(),
                            false => SourceLimit::none(),
                        },
                    };
                    let task = async move {
                        let _place = place;
                        connection(local, service, gate, associations, classes).await;
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

async fn connection<O: Opener, D: DatagramOpener>(
    local: TcpStream,
    service: Service,
    opener: O,
    associations: Associations<D>,
    rules: Arc<[ClassRule]>,
) {
    if let Err(error) = tune(&local) {
        // The connection has been reset already; its service will notice.
        debug!(%error, "cannot set socket options");
    }
    let by_dscp = rules.iter().any(|rule| rule.dscp.is_some());
    let dscp = if by_dscp {
        saved_syn::dscp(&local)
    } else {
        None
    };
    let classes = Classes { rules, dscp };
    match service {
        Service::Socks5 => socks5::serve(local, opener, associations, classes).await,
        Service::HttpProxy => http_proxy::serve(local, opener, classes).await,
        Service::Forward(target) => {
            match opener.open(target.clone(), classes.of(&target, None)).await {
                Ok(stream) => relay(local, stream, &[], Upload::Unlimited).await,
                Err(error) => {
                    match error {
                        // Every further connection would repeat the warning.
                        OpenError::LimitReached => {
                            debug!(%target, %error, "cannot open the forward's target")
                        }
                        error => warn!(%target, %error, "cannot open the forward's target"),
                    }
                    // An unknown protocol offers no other way to refuse a program.
                    reset(&local);
                }
            }
        }
    }
}

/// Makes closing the connection send a reset.
fn reset(local: &TcpStream) {
    if let Err(error) = local.set_zero_linger() {
        debug!(%error, "cannot set SO_LINGER");
    }
}

/// The rules, and the properties of a connection known before its request.
#[derive(Debug)]
pub(crate) struct Classes {
    rules: Arc<[ClassRule]>,
    dscp: Option<u8>,
}

impl Classes {
    /// The class of a stream to `target`, requested by `user` if a name was sent.
    pub(crate) fn of(&self, target: &Target, user: Option<&[u8]>) -> Option<Class> {
        let (port, dscp) = (target.port, self.dscp);
        class_of(&self.rules, &Flow { port, dscp, user })
    }

    /// The class of a flow of datagrams to `target`, with the DSCP of its first datagram.
    pub(crate) fn of_datagrams(
        &self,
        target: &Target,
        user: Option<&[u8]>,
        dscp: Option<u8>,
    ) -> Option<Class> {
        let port = target.port;
        class_of_datagrams(&self.rules, &Flow { port, dscp, user })
    }

    /// Whether a rule depends on the user name.
    pub(crate) fn needs_user(&self) -> bool {
        self.rules.iter().any(|rule| rule.user.is_some())
    }
}

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        error!(%error, "a connection's task panicked");
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
