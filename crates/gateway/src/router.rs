//! Applies the rules to streams and to flows of datagrams.
//!
//! A [`Router`] is in front of the bond's opener and is an opener itself, so all entries can use
//! it. It decides for each stream, and for each remote of a source of datagrams:
//!
//! - `bond`: the bond's opener.
//! - `link NAME` and `direct`: a local exit. Its sockets are bound to the link and marked, so that
//!   they are not captured.
//! - `block`: a stream is refused, and a datagram answered as unreachable.
//!
//! While the bond is down, [`WithoutBond`] says what happens to the traffic that would take it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sumlink_exit::target::Host;
use sumlink_proxy::{Class, DatagramOpener, OpenError, Opener, Origin, Side, Target};
use tokio::sync::watch;
use tracing::debug;

use crate::names::SharedNames;
use crate::rules::{Action, Decision, Protocol, Query, Rules};
use counters::Counters;
pub use counters::{RouteStats, Taken};
pub use facts::{Inspector, Owner, SystemInspector};
pub use local::{LocalExits, LocalSettings, UsableLinks};
pub use socket::RouterSocket;
pub use stream::RouterStream;
use without_ipv6::Ipv6;

mod cgroups;
mod counters;
mod facts;
mod local;
mod neighbors;
mod socket;
mod stream;
#[cfg(test)]
mod tests;
mod without_ipv6;

/// What happens to the traffic of the bond while the bond is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WithoutBond {
    /// It waits, and fails if that takes too long.
    #[default]
    Block,
    /// It takes the best link. Streams stay there when the bond is back. Flows of datagrams return
    /// to the bond after a silence of 10 s.
    Direct,
}

/// An opener that applies the rules in front of the bond's opener `O`. Clones share everything.
#[derive(Debug)]
pub struct Router<O> {
    shared: Arc<Shared<O>>,
}

/// The parts of a [`Router`].
#[derive(Debug)]
pub struct Parts<O> {
    /// Opens streams and sources over the bond.
    pub bond: O,
    /// The rules.
    pub rules: Rules,
    /// Names of addresses.
    pub names: SharedNames,
    /// Exits over single links.
    pub local: LocalExits,
    /// Looks up the facts that rules need.
    pub inspector: Arc<dyn Inspector>,
    /// What happens while the bond is down.
    pub without_bond: WithoutBond,
    /// Whether the bond is up. Without its sender, the last value stays.
    pub is_up: watch::Receiver<bool>,
}

#[derive(Debug)]
struct Shared<O> {
    parts: Parts<O>,
    counters: Counters,
    ipv6: Ipv6,
}

/// The exit that a stream or a flow takes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    Bond,
    /// This link.
    Link(String),
    /// The best link: as the rules say, or because the bond is down.
    Direct {
        is_fallback: bool,
    },
    Blocked,
}

impl<O> Router<O> {
    /// A router of these parts.
    pub fn new(parts: Parts<O>) -> Self {
        Self {
            shared: Arc::new(Shared {
                parts,
                counters: Counters::default(),
                ipv6: Ipv6::default(),
            }),
        }
    }

    /// The rules, which may be changed at any time. Open streams stay on their way; flows of
    /// datagrams follow with their next datagram.
    pub fn rules(&self) -> &Rules {
        &self.shared.parts.rules
    }

    /// The rules' decision about traffic to `target`, regardless of the bond's state. `origin` is
    /// its program, if it has one.
    pub fn decide(&self, protocol: Protocol, target: &Target, origin: Option<Origin>) -> Decision {
        self.shared.decide(protocol, target, origin)
    }

    /// How many streams and flows have taken each way so far.
    pub fn stats(&self) -> RouteStats {
        self.shared.counters.stats()
    }
}

impl<O> Clone for Router<O> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<O: Opener> Opener for Router<O> {
    type Stream = RouterStream<O::Stream>;

    async fn open(&self, target: Target, class: Option<Class>) -> Result<Self::Stream, OpenError> {
        self.shared.open(None, target, class).await
    }

    async fn open_from(
        &self,
        origin: Origin,
        target: Target,
        class: Option<Class>,
    ) -> Result<Self::Stream, OpenError> {
        self.shared.open(Some(origin), target, class).await
    }
}

impl<O: DatagramOpener> DatagramOpener for Router<O> {
    type Socket = RouterSocket<O>;

    /// Never fails: the exits of the source are opened when they are needed.
    async fn bind(&self, class: Option<Class>) -> Result<Self::Socket, OpenError> {
        Ok(RouterSocket::new(Arc::clone(&self.shared), None, class))
    }

    async fn bind_from(
        &self,
        origin: Origin,
        class: Option<Class>,
    ) -> Result<Self::Socket, OpenError> {
        Ok(RouterSocket::new(
            Arc::clone(&self.shared),
            Some(origin),
            class,
        ))
    }
}

impl<O: Opener> Shared<O> {
    async fn open(
        &self,
        origin: Option<Origin>,
        target: Target,
        class: Option<Class>,
    ) -> Result<RouterStream<O::Stream>, OpenError> {
        let way = self.way(Protocol::Tcp, &target, origin);
        let way = match way {
            Way::Bond => match self.open_bond(origin, &target, class).await {
                Some(opened) => {
                    self.counters.stream(&Way::Bond);
                    return opened.map(RouterStream::bond);
                }
                None => Way::Direct { is_fallback: true },
            },
            way => way,
        };
        self.counters.stream(&way);
        let local = &self.parts.local;
        let dialed = match &way {
            Way::Link(name) => local.dial_over(name, &target).await,
            Way::Direct { .. } => local.dial(&target).await,
            Way::Bond | Way::Blocked => return Err(OpenError::NotAllowed),
        };
        dialed.map(RouterStream::local)
    }

    /// Opens a stream over the bond; `None` if the bond is down and the stream may take a link.
    async fn open_bond(
        &self,
        origin: Option<Origin>,
        target: &Target,
        class: Option<Class>,
    ) -> Option<Result<O::Stream, OpenError>> {
        let opening = self.open_at_server(origin, target, class);
        if self.parts.without_bond == WithoutBond::Block {
            return Some(opening.await);
        }
        let mut is_up = self.parts.is_up.clone();
        let opened = tokio::select! {
            biased;
            opened = opening => opened,
            () = down(&mut is_up) => return None,
        };
        match opened {
            Err(OpenError::SessionClosed | OpenError::TimedOut) if !*is_up.borrow() => None,
            opened => Some(opened),
        }
    }

    /// Opens a stream over the bond: to the name of an IPv6 address if the server has no IPv6.
    async fn open_at_server(
        &self,
        origin: Option<Origin>,
        target: &Target,
        class: Option<Class>,
    ) -> Result<O::Stream, OpenError> {
        let bond = &self.parts.bond;
        let open = async |target: &Target| match origin {
            Some(origin) => bond.open_from(origin, target.clone(), class).await,
            None => bond.open(target.clone(), class).await,
        };
        let Some(by_name) = without_ipv6::by_name(target, &self.parts.names) else {
            return open(target).await;
        };
        if !self.ipv6.is_missing(Instant::now()) {
            match open(target).await {
                Err(OpenError::Unreachable) => self.ipv6.note_missing(Instant::now()),
                opened => return opened,
            }
        }
        debug!(%target, %by_name, "the server has no route to the IPv6 address; it gets the name");
        open(&by_name).await
    }
}

impl<O> Shared<O> {
    /// The exit for traffic to `target`, according to the rules and the state of the bond.
    fn way(&self, protocol: Protocol, target: &Target, origin: Option<Origin>) -> Way {
        let Decision { action, reason, .. } = self.decide(protocol, target, origin);
        let way = match action {
            Action::Bond if self.is_fallback() => Way::Direct { is_fallback: true },
            Action::Bond => Way::Bond,
            Action::Link(name) => Way::Link(name),
            Action::Direct => Way::Direct { is_fallback: false },
            Action::Block => Way::Blocked,
        };
        debug!(%protocol, %target, ?way, %reason, "a way is chosen");
        way
    }

    /// Whether the bond's traffic takes a link now.
    fn is_fallback(&self) -> bool {
        self.parts.without_bond == WithoutBond::Direct && !*self.parts.is_up.borrow()
    }

    fn decide(&self, protocol: Protocol, target: &Target, origin: Option<Origin>) -> Decision {
        let parts = &self.parts;
        let needs = parts.rules.needs();
        let (mut names, mut ip) = (Vec::new(), None);
        match &target.host {
            Host::Name(name) => names.push(Arc::from(name.as_str())),
            Host::Ip(address) => {
                ip = Some(*address);
                if needs.names {
                    names = parts.names.of(*address);
                }
            }
        }
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        let mut query = Query {
            names: &names,
            ip,
            port: target.port,
            protocol: Some(protocol),
            ..Query::default()
        };
        let Some(origin) = origin else {
            return parts.rules.decide(&query);
        };
        let remote = ip.map(|ip| SocketAddr::new(ip, target.port));
        let (user, cgroup);
        match origin.from {
            Side::Host if needs.uid || needs.cgroup => {
                let inspector = &*parts.inspector;
                if let Some(owner) = facts::owner(inspector, protocol, &origin, remote) {
                    query.uid = Some(owner.uid);
                    if needs.user {
                        user = inspector.user_name(owner.uid);
                        query.user = user.as_deref();
                    }
                    if needs.cgroup {
                        cgroup = owner.cgroup.and_then(|id| inspector.cgroup_path(id));
                        query.cgroup = cgroup.as_deref();
                    }
                }
            }
            Side::Host => {}
            Side::Lan => {
                query.device = Some(origin.source.ip());
                if needs.mac {
                    query.mac = parts.inspector.mac(origin.source.ip());
                }
            }
        }
        parts.rules.decide(&query)
    }
}

/// Completes when the bond is down.
async fn down(is_up: &mut watch::Receiver<bool>) {
    if is_up.wait_for(|is_up| !is_up).await.is_err() {
        // It cannot change any more.
        std::future::pending::<()>().await;
    }
}
