//! A local port and the connections that come in on it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use sumlink_transport::target::Target;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tracing::{debug, error, info, warn};

use crate::class::{Flow, class_of};
use crate::{Class, ClassRule, Forward, Opener, http_proxy, socks5};
use sumlink_transport::accept::Accepting;
use sumlink_transport::local_hop;
use sumlink_transport::relay::{Upload, relay, tune};
use sumlink_transport::saved_syn;
use sumlink_transport::tasks::spawn_begun;

/// Connections that a [`Listener`] serves at once unless told otherwise. Each takes two file
/// descriptors at most; its buffers are those of its stream.
pub const DEFAULT_MAX_CONNECTIONS: usize = 1024;

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
    #[error("cannot listen on {0} for {1}: {2}")]
    Other(SocketAddr, Service, io::Error),
}

/// A bound port that does not accept yet, until [`Listener::serve`].
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    service: Service,
    max_connections: usize,
    classes: Arc<[ClassRule]>,
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
                max_connections: DEFAULT_MAX_CONNECTIONS,
                classes: Arc::default(),
            }),
            Err(error) => Err(ListenError::new(address, service, error)),
        }
    }

    /// Binds the port of a forward.
    pub async fn forward(forward: Forward) -> Result<Self, ListenError> {
        Self::bind(forward.listen, Service::Forward(forward.target)).await
    }

    /// Serves at most so many connections at once (at least one); further ones wait in the kernel's
    /// queue.
    pub fn with_max_connections(mut self, max_connections: usize) -> Self {
        self.max_connections = max_connections.max(1);
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
            max_connections,
            classes,
        } = self;
        info!(%address, "listening for {service}");
        let mut connections = JoinSet::new();
        let mut accepting = Accepting::new(&service);
        let mut full = false;
        tokio::pin!(shutdown);
        loop {
            let room = connections.len() < max_connections;
            if !room && !full {
                warn!(%address, max_connections, "all connections of {service} are in use; new ones wait");
            }
            full = !room;
            tokio::select! {
                () = &mut shutdown => break,
                (local, peer) = accepting.next(&socket), if room => {
                    debug!(%address, %peer, "connection");
                    let task = connection(local, service.clone(), opener.clone(), Arc::clone(&classes));
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
                    warn!(%target, %error, "forward not opened");
                    // There is no other way to tell a program that speaks an unknown protocol.
                    if let Err(error) = local.set_zero_linger() {
                        debug!(%error, "SO_LINGER not set");
                    }
                }
            }
        }
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
