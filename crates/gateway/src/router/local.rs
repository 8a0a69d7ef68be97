//! Exits of this machine, over single links and without the bond.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sumlink_exit::datagram::{PairSocket, pair};
use sumlink_exit::dial::dial_over;
use sumlink_exit::egress::EgressPolicy;
use sumlink_exit::outgoing::Outgoing;
use sumlink_exit::udp::{UdpExit, UdpSettings};
use sumlink_proxy::{Class, DatagramOpener, OpenError, Target};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::debug;

/// Datagrams in each direction between a source and its exit.
const QUEUE: usize = 128;

/// The links that carry traffic now.
pub trait UsableLinks: Send + Sync + 'static {
    /// Their names, the best first.
    fn in_order(&self) -> Vec<String>;
}

impl<F: Fn() -> Vec<String> + Send + Sync + 'static> UsableLinks for F {
    fn in_order(&self) -> Vec<String> {
        self()
    }
}

/// Settings of [`LocalExits`].
#[derive(Clone, Debug)]
pub struct LocalSettings {
    /// The mark of all packets, so that they are not captured; `None` without capture.
    pub mark: Option<u32>,
    /// Time for a name lookup and a connection together.
    pub connect_timeout: Duration,
    /// Limits of the UDP sockets over each link.
    pub udp: UdpSettings,
}

impl Default for LocalSettings {
    fn default() -> Self {
        Self {
            mark: None,
            connect_timeout: Duration::from_secs(30),
            udp: UdpSettings::default(),
        }
    }
}

/// The exits of this machine. Clones share them.
#[derive(Clone)]
pub struct LocalExits {
    shared: Arc<Shared>,
}

struct Shared {
    links: Arc<dyn UsableLinks>,
    policy: watch::Receiver<Arc<EgressPolicy>>,
    settings: LocalSettings,
    /// The exit for datagrams of each link that has been used. There are as many as links in rules
    /// and in [`UsableLinks`].
    datagrams: Mutex<HashMap<String, UdpExit>>,
}

impl LocalExits {
    /// Exits over these links.
    ///
    /// `policy` says which targets they reach. [`LocalExits::policy`] is one for programs that may
    /// use the networks of the links, but not the services of this machine.
    pub fn new(
        links: Arc<dyn UsableLinks>,
        policy: watch::Receiver<Arc<EgressPolicy>>,
        settings: LocalSettings,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                links,
                policy,
                settings,
                datagrams: Mutex::default(),
            }),
        }
    }

    /// A policy that allows private networks, too: a link's router and the hosts behind it.
    pub fn policy() -> EgressPolicy {
        let networks = [
            "allow 10.0.0.0/8",
            "allow 172.16.0.0/12",
            "allow 192.168.0.0/16",
            "allow 100.64.0.0/10",
            "allow [fc00::]/7",
        ];
        EgressPolicy::new(networks.iter().filter_map(|rule| rule.parse().ok()))
    }

    /// Connects over the best link. If that link cannot reach the target at all, the others are
    /// tried in order.
    pub(super) async fn dial(&self, target: &Target) -> Result<TcpStream, OpenError> {
        let deadline = Instant::now() + self.shared.settings.connect_timeout;
        for link in self.shared.links.in_order() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.dial_within(&link, target, left).await {
                Err(OpenError::Unreachable) => debug!(%link, %target, "unreachable over a link"),
                dialed => return dialed,
            }
        }
        Err(OpenError::Unreachable)
    }

    /// Connects over the link of this name.
    pub(super) async fn dial_over(
        &self,
        link: &str,
        target: &Target,
    ) -> Result<TcpStream, OpenError> {
        let timeout = self.shared.settings.connect_timeout;
        self.dial_within(link, target, timeout).await
    }

    async fn dial_within(
        &self,
        link: &str,
        target: &Target,
        timeout: Duration,
    ) -> Result<TcpStream, OpenError> {
        let policy = Arc::clone(&self.shared.policy.borrow());
        dial_over(target, &policy, timeout, &self.outgoing(link)).await
    }

    /// The names of the usable links, the best first.
    pub(super) fn links(&self) -> Vec<String> {
        self.shared.links.in_order()
    }

    /// Opens sources of datagrams over the link of this name.
    pub(super) fn over(&self, link: &str) -> LinkOpener {
        LinkOpener {
            exits: self.clone(),
            link: link.to_owned(),
        }
    }

    fn datagrams(&self, link: &str) -> UdpExit {
        let shared = &self.shared;
        let mut exits = shared
            .datagrams
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(exit) = exits.get(link) {
            return exit.clone();
        }
        let settings = UdpSettings {
            outgoing: self.outgoing(link),
            ..shared.settings.udp.clone()
        };
        let exit = UdpExit::new(shared.policy.clone(), settings, None);
        exits.insert(link.to_owned(), exit.clone());
        exit
    }

    fn outgoing(&self, link: &str) -> Outgoing {
        Outgoing {
            device: Some(link.to_owned()),
            mark: self.shared.settings.mark,
        }
    }
}

impl fmt::Debug for LocalExits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalExits")
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}

/// Opens sources over one link.
#[derive(Clone, Debug)]
pub(super) struct LinkOpener {
    exits: LocalExits,
    link: String,
}

impl DatagramOpener for LinkOpener {
    type Socket = PairSocket;

    /// Never fails: a missing link is a failure of the datagrams. Flows of a local exit have no
    /// class.
    async fn bind(&self, _: Option<Class>) -> Result<PairSocket, OpenError> {
        let (near, far) = pair(QUEUE);
        let exit = self.exits.datagrams(&self.link);
        // Ends when the near end is dropped, or when the exit finds the source idle.
        tokio::spawn(async move { exit.serve(far).await });
        Ok(near)
    }
}
