//! A local port and its incoming connections.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sumlink_transport::target::Target;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tracing::{debug, error, info, warn};

use crate::associations::{Associations, NoDatagrams};
use crate::classes::Classes;
use crate::connection_limit::Admission;
use crate::{
    Active, Class, ClassRule, Client, ConnectionLimit, DatagramOpener, Forward, ListenError,
    OpenError, Opener, Origin, SourceLimit, Usage, http_proxy, socks5, transparent,
};
use sumlink_exit::local_hop;
use sumlink_exit::relay::{Upload, relay, tune};
use sumlink_transport::accept::Accepting;
use sumlink_transport::saved_syn;
use sumlink_transport::tasks::spawn_begun;

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
    /// Connections of this machine's programs to other machines, which a packet filter redirects to
    /// the port (REDIRECT). Others are reset.
    Redirect,
    /// Connections of other machines' programs to further ones, which a packet filter passes to the
    /// port as they are (TPROXY). Others are reset. Binding needs CAP_NET_ADMIN.
    Transparent,
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

/// The opener of one connection's streams, or a stand-in that refuses every stream.
#[derive(Clone)]
struct Gate<O> {
    opener: O,
    origin: Origin,
    /// The use of the connection's place; `None` refuses every stream.
    usage: Option<Usage>,
}

impl<O: Opener> Opener for Gate<O> {
    type Stream = Active<O::Stream>;

    async fn open(&self, target: Target, class: Option<Class>) -> Result<Self::Stream, OpenError> {
        match &self.usage {
            Some(usage) => {
                let open = || self.opener.open_from(self.origin, target.clone(), class);
                usage.open(open).await
            }
            None => Err(OpenError::LimitReached),
        }
    }
}

impl Listener {
    /// Binds the port. Programs that connect from now on wait until it is served. `[::]:PORT`
    /// accepts IPv4 as well. Must be called within a tokio runtime.
    pub async fn bind(address: SocketAddr, service: Service) -> Result<Self, ListenError> {
        let bound = async {
            let socket = match service {
                Service::Transparent => transparent::bind(address)?,
                _ => TcpListener::bind(address).await?,
            };
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
                    let origin = service.origin(peer, &local, address);
                    let admission = limit.admit(Client::from(origin));
                    let usage = match &admission {
                        Some(Admission::Served(place)) => Some(place.usage()),
                        _ => None,
                    };
                    if usage.is_none() && logged_full.is_none_or(|at| at.elapsed() >= FULL_PAUSE) {
                        logged_full = Some(Instant::now());
                        warn!(
                            %address,
                            max_connections = limit.most(),
                            "connection limit of {service} reached; further connections are refused"
                        );
                    }
                    let Some(admission) = admission else {
                        reset(&local);
                        continue;
                    };
                    let gate = Gate {
                        opener: opener.clone(),
                        origin,
                        usage: usage.clone(),
                    };
                    let (service, classes) = (service.clone(), Arc::clone(&classes));
                    let associations = Associations {
                        opener: datagrams.clone(),
                        origin,
                        limit: match &usage {
                            Some(_) => sources.clone(),
                            None => SourceLimit::none(),
                        },
                        usage,
                    };
                    let serving = connection(local, address, service, gate, associations, classes);
                    let task = async move {
                        match admission {
                            Admission::Served(mut place) => tokio::select! {
                                () = serving => {}
                                // Dropping the relay resets the connection.
                                () = place.lost() => debug!(%peer, "a connection makes room"),
                            },
                            Admission::Refused(_place) => serving.await,
                        }
                    };
                    spawn_begun(&mut connections, task).await;
                }
                Some(ended) = connections.join_next() => log_panic(ended, address),
            }
        }
        drop(socket);
        info!(%address, open = connections.len(), "no longer listening for {service}");
        while let Some(ended) = connections.join_next().await {
            log_panic(ended, address);
        }
    }
}

async fn connection<O: Opener, D: DatagramOpener>(
    local: TcpStream,
    address: SocketAddr,
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
            if let Err(error) = pass(local, &target, opener, classes).await {
                match error {
                    // Every further connection would repeat the warning.
                    OpenError::LimitReached => {
                        debug!(%target, %error, "cannot open the forward's target")
                    }
                    error => warn!(%target, %error, "cannot open the forward's target"),
                }
            }
        }
        Service::Redirect | Service::Transparent => {
            let Some(target) = transparent::target(&local, &service, address) else {
                debug!(%address, "a connection to the port itself is reset");
                reset(&local);
                return;
            };
            if let Err(error) = pass(local, &target, opener, classes).await {
                debug!(%target, %error, "cannot open the target of a connection");
            }
        }
    }
}

/// Relays a connection of unknown protocol. It is reset if the target cannot be opened: a program
/// cannot be refused in any other way.
async fn pass<O: Opener>(
    local: TcpStream,
    target: &Target,
    opener: O,
    classes: Classes,
) -> Result<(), OpenError> {
    match opener.open(target.clone(), classes.of(target, None)).await {
        Ok(stream) => {
            relay(local, stream, &[], Upload::Unlimited).await;
            Ok(())
        }
        Err(error) => {
            reset(&local);
            Err(error)
        }
    }
}

/// Makes closing the connection send a reset.
fn reset(local: &TcpStream) {
    if let Err(error) = local.set_zero_linger() {
        debug!(%error, "cannot set SO_LINGER");
    }
}

fn log_panic(ended: Result<(), JoinError>, address: SocketAddr) {
    if let Err(error) = ended {
        error!(%address, %error, "internal error: one connection was closed; please report it");
    }
}

impl Service {
    /// The program of an accepted connection. `own` is the address of the port.
    fn origin(&self, peer: SocketAddr, accepted: &TcpStream, own: SocketAddr) -> Origin {
        match self {
            Self::Redirect => Origin::host(peer),
            Self::Transparent => Origin::lan(peer),
            // The connection may have been reset already.
            _ => Origin::at_entry(peer, accepted.local_addr().unwrap_or(own)),
        }
    }
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socks5 => f.write_str("SOCKS5"),
            Self::HttpProxy => f.write_str("the HTTP proxy"),
            Self::Forward(target) => write!(f, "the forward to {target}"),
            Self::Redirect => f.write_str("redirected connections"),
            Self::Transparent => f.write_str("connections of other machines"),
        }
    }
}
