//! Brings links into a session and keeps them there: dials, notices changes, dials again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sumlink_engine::PathId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::dialer::{Dialer, rank};
use super::resolver::{Answer, Resolver};
use super::{ConnectError, is_lost};
use crate::carrier::Carrier;
use crate::config::ClientConfig;
use crate::driver::{CarrierNews, Command, Driver, LinkStates};
use crate::links::{self, Link};
use crate::socket::Binding;

/// How a session ended, seen from the client.
#[derive(Debug)]
pub(super) enum Outcome {
    /// This side wanted it.
    Closed,
    /// It never began.
    Failed(ConnectError),
    /// The server does not have it any more, or no path came back in time.
    Lost { lasted: Duration },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Manager {
    dialer: Arc<Dialer>,
    commands: UnboundedSender<Command>,
    news: UnboundedReceiver<CarrierNews>,
    states: LinkStates,
    links: BTreeMap<String, LinkState>,
    dials: JoinSet<Dialed>,
    began: Instant,
    /// The server's addresses, as last resolved.
    servers: Vec<SocketAddr>,
    resolver: Resolver,
}

/// One link, as far as this session is concerned.
#[derive(Debug, Default)]
struct LinkState {
    /// Its path and the path's local address.
    path: Option<(PathId, SocketAddr)>,
    dialing: bool,
    /// Failed dials in a row.
    failures: u32,
    /// No dial before.
    retry_at: Option<Instant>,
    /// The link and its ways to the server when it was last looked at; a change is worth a dial at once.
    seen: Option<(Link, Ways)>,
}

/// The server's addresses that a link leads to, each with the source address that the routing tables choose.
type Ways = Vec<(SocketAddr, IpAddr)>;

#[derive(Debug)]
struct Dialed {
    link: String,
    result: Result<(Carrier, Binding), ConnectError>,
}

/// Pause before a link that failed is tried again; doubles up to the second value.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Links are looked at this often even when nothing was heard of them.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Manager {
    pub(super) fn new(
        config: Arc<ClientConfig>,
        session: [u8; 16],
        commands: UnboundedSender<Command>,
        news: UnboundedReceiver<CarrierNews>,
        states: LinkStates,
    ) -> Self {
        let resolver = Resolver::new(&config.server);
        let dialer = Arc::new(Dialer::new(config, session));
        let (links, dials) = (BTreeMap::new(), JoinSet::new());
        Self {
            dialer,
            commands,
            news,
            states,
            links,
            dials,
            began: Instant::now(),
            servers: Vec::new(),
            resolver,
        }
    }

    /// Runs the session: `driver` is its task, `connected` is called with the first path.
    pub(super) async fn run(
        mut self,
        driver: Driver,
        closing: &mut watch::Receiver<bool>,
        connected: impl FnOnce(),
    ) -> Outcome {
        let mut connected = Some(connected);
        let mut driver = tokio::spawn(driver);
        let mut watch = links::Watch::new().ok();
        let mut best_error = None;
        let resolved = tokio::select! {
            resolved = self.resolver.resolve() => resolved,
            () = until_true(closing) => {
                driver.abort();
                return Outcome::Closed;
            }
        };
        let begun = match resolved {
            Ok(servers) => {
                self.servers = servers;
                self.refresh(true).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = begun {
            driver.abort();
            return Outcome::Failed(error);
        }
        let mut is_closing = false;
        loop {
            let changed = async {
                match &mut watch {
                    Some(watch) => watch.changed().await,
                    None => std::future::pending().await,
                }
            };
            let next_look = self.next_look();
            tokio::select! {
                _ = &mut driver => {
                    let lasted = self.began.elapsed();
                    return if is_closing { Outcome::Closed } else { Outcome::Lost { lasted } };
                }
                () = until_true(closing), if !is_closing => {
                    is_closing = true;
                    let _ = self.commands.send(Command::Close("the client is stopping".to_owned()));
                }
                result = changed => {
                    if result.is_err() {
                        watch = links::Watch::new().ok();
                    }
                    self.on_change().await;
                }
                resolved = self.resolver.answer() => {
                    self.on_resolved(resolved);
                    self.look_again().await;
                }
                Some(news) = self.news.recv() => self.on_news(news),
                Some(Ok(dialed)) = self.dials.join_next() => {
                    match self.on_dialed(dialed, connected.is_none()) {
                        Ok(true) => if let Some(connected) = connected.take() { connected() },
                        Ok(false) => {}
                        Err(error) => {
                            let lost = matches!(&error, ConnectError::Carrier { error, .. } if is_lost(error));
                            if lost && connected.is_none() {
                                let _ = self.commands.send(Command::Close("the server lost the session".to_owned()));
                            }
                            if best_error.as_ref().is_none_or(|best| rank(&error) > rank(best)) {
                                best_error = Some(error);
                            }
                        }
                    }
                    if connected.is_some() && self.dials.is_empty() && let Some(error) = best_error.take() {
                        driver.abort();
                        return Outcome::Failed(error);
                    }
                }
                () = tokio::time::sleep(next_look), if connected.is_none() => self.look_again().await,
            }
        }
    }

    /// Something has changed about some link, address or route. Many changes concern none of ours (a container comes
    /// up, a router advertises again), so [`Manager::use_link`] finds out which link may be dialed at once.
    async fn on_change(&mut self) {
        self.look_again().await;
    }

    async fn look_again(&mut self) {
        if let Err(error) = self.refresh(false).await {
            tracing::debug!(%error, "cannot look at the links");
        }
    }

    /// Looks at all links: leaves those that are gone, dials those that can be used.
    async fn refresh(&mut self, first: bool) -> Result<(), ConnectError> {
        let servers = self.servers.clone();
        let all = links::list().await?;
        let wanted = self.wanted(&all, &servers);
        let mut unusable = self.missing(&all);
        let mut present = BTreeSet::new();
        for link in wanted {
            present.insert(link.name.clone());
            match ways(link, &servers).await {
                Ok(ways) => self.use_link(link, ways),
                Err(reason) => {
                    self.leave(&link.name, &reason);
                    unusable.push((link.name.clone(), reason));
                }
            }
        }
        let gone: Vec<String> = self
            .links
            .keys()
            .filter(|name| !present.contains(*name))
            .cloned()
            .collect();
        for name in gone {
            self.leave(&name, "the link is gone");
            self.links.remove(&name);
        }
        for (name, reason) in &unusable {
            self.states.set(name, "down", reason.clone());
        }
        let is_known =
            |name: &str| present.contains(name) || unusable.iter().any(|(n, _)| n == name);
        self.states.retain(is_known);
        if self.links.values().any(|state| state.path.is_none()) {
            self.resolver.ask_again();
        }
        if first && self.dials.is_empty() {
            let reasons: Vec<String> = unusable.into_iter().map(|(_, reason)| reason).collect();
            return Err(ConnectError::NoLink(match reasons.is_empty() {
                true => "this machine has no interface besides loopback".to_owned(),
                false => reasons.join("; "),
            }));
        }
        if first {
            for (_, reason) in unusable
                .iter()
                .filter(|_| !self.dialer.config.links.is_empty())
            {
                tracing::warn!("{reason}");
            }
        }
        Ok(())
    }

    /// Without an answer the old addresses stay: they are better than none.
    fn on_resolved(&mut self, resolved: Answer) {
        match resolved {
            Ok(servers) if !servers.is_empty() => self.servers = servers,
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "keeping the server's old addresses"),
        }
    }

    /// The links to use: those that were named, or all but loopback, or only that for a server on this machine.
    fn wanted<'a>(&self, all: &'a [Link], servers: &[SocketAddr]) -> Vec<&'a Link> {
        let named = &self.dialer.config.links;
        let is_named = |link: &Link| {
            named
                .iter()
                .any(|n| links::name_matches(&n.name, &link.name))
        };
        let here = servers
            .iter()
            .all(|server| server.ip().to_canonical().is_loopback());
        let fits = |link: &&Link| {
            if named.is_empty() {
                link.loopback == here
            } else {
                is_named(link)
            }
        };
        all.iter().filter(fits).collect()
    }

    /// Names for which there is no interface.
    fn missing(&self, all: &[Link]) -> Vec<(String, String)> {
        let named = self.dialer.config.links.iter().map(|link| &link.name);
        let missing =
            named.filter(|name| !all.iter().any(|link| links::name_matches(name, &link.name)));
        missing
            .map(|name| {
                let reason = if links::is_pattern(name) {
                    format!("no link matches {name}")
                } else {
                    links::LinkError::NoSuchLink { name: name.clone() }.to_string()
                };
                (name.clone(), reason)
            })
            .collect()
    }

    fn use_link(&mut self, link: &Link, ways: Ways) {
        let servers = ways.iter().map(|(server, _)| *server).collect();
        let state = self.links.entry(link.name.clone()).or_default();
        let now_seen = Some((link.clone(), ways));
        if state.seen != now_seen {
            state.seen = now_seen;
            state.retry_at = None;
        }
        if let Some((id, local)) = state.path {
            if link.addresses.contains(&local.ip()) {
                return;
            }
            let reason = format!("the address {} is gone", local.ip());
            let _ = self.commands.send(Command::Remove(id, reason));
            state.path = None;
        }
        if state.dialing || state.retry_at.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.dial(&link.name, servers);
    }

    fn dial(&mut self, link: &str, servers: Vec<SocketAddr>) {
        let state = self.links.entry(link.to_owned()).or_default();
        state.dialing = true;
        if state.path.is_none() {
            self.states
                .set(link, "connecting", "asking the server".to_owned());
        }
        let (dialer, link) = (Arc::clone(&self.dialer), link.to_owned());
        self.dials.spawn(async move {
            let result = dialer.dial(&link, &servers).await;
            Dialed { link, result }
        });
    }

    /// The link cannot be used at the moment.
    fn leave(&mut self, name: &str, reason: &str) {
        let Some(state) = self.links.get_mut(name) else {
            return;
        };
        if let Some((id, _)) = state.path.take() {
            let _ = self.commands.send(Command::Remove(id, reason.to_owned()));
        }
        state.failures = 0;
        state.retry_at = None;
        self.states.set(name, "down", reason.to_owned());
    }

    fn on_news(&mut self, news: CarrierNews) {
        match news {
            CarrierNews::Silent { id, link } => {
                // A new connection may get through where the old one waits for ever longer timeouts.
                let stuck = self.links.get(&link).is_some_and(|state| {
                    state.path.is_some_and(|(path, _)| path == id)
                        && !state.dialing
                        && state.retry_at.is_none_or(|at| at <= Instant::now())
                });
                if stuck {
                    self.redial(&link);
                }
            }
            CarrierNews::Ended { id, link, reason } => {
                let Some(state) = self.links.get_mut(&link) else {
                    return;
                };
                if state.path.is_some_and(|(path, _)| path == id) {
                    state.path = None;
                    state.retry_at = Some(Instant::now() + RETRY_PAUSE.0);
                    self.states.set(&link, "down", reason);
                }
            }
        }
    }

    /// Tries the link anew beside its present path.
    fn redial(&mut self, link: &str) {
        let Some(state) = self.links.get_mut(link) else {
            return;
        };
        state.dialing = true;
        let (dialer, servers) = (Arc::clone(&self.dialer), self.servers.clone());
        let link = link.to_owned();
        self.dials.spawn(async move {
            let result = dialer.dial(&link, &servers).await;
            Dialed { link, result }
        });
    }

    /// Whether a path has joined; `connected` says whether one had before.
    fn on_dialed(&mut self, dialed: Dialed, connected: bool) -> Result<bool, ConnectError> {
        let state = self.links.entry(dialed.link.clone()).or_default();
        state.dialing = false;
        match dialed.result {
            Ok((carrier, binding)) => {
                state.failures = 0;
                state.retry_at = None;
                if let Binding::SourceAddress(source) = binding {
                    tracing::warn!(link = %dialed.link, %source, "SO_BINDTODEVICE is not permitted: bound to the source address only, so packets leave by the preferred link unless a routing rule says otherwise");
                }
                let (id, local) = (carrier.id, carrier.local);
                let before = state.path.replace((id, local));
                self.states.clear(&dialed.link);
                let _ = self.commands.send(Command::Add(Box::new(carrier)));
                if let Some((old, _)) = before {
                    let reason = "replaced by a new connection on the same link".to_owned();
                    let _ = self.commands.send(Command::Remove(old, reason));
                }
                Ok(true)
            }
            Err(error) => {
                state.failures += 1;
                let pause = RETRY_PAUSE.0 * 2u32.pow(state.failures.min(8) - 1);
                state.retry_at = Some(Instant::now() + pause.min(RETRY_PAUSE.1));
                if state.path.is_none() {
                    self.states.set(&dialed.link, "down", error.to_string());
                }
                // The first connection's failure is returned; later ones are news once.
                if state.failures == 1 && connected {
                    tracing::warn!(link = %dialed.link, "{error}");
                }
                Err(error)
            }
        }
    }

    /// Time until a link is due to be tried again.
    fn next_look(&self) -> Duration {
        let waiting = self
            .links
            .values()
            .filter(|state| state.path.is_none() && !state.dialing);
        let at = waiting.filter_map(|state| state.retry_at).min();
        let at = at.map(|at| at.saturating_duration_since(Instant::now()));
        at.unwrap_or(LOOK_EVERY).clamp(RETRY_PAUSE.0, LOOK_EVERY)
    }
}

/// Waits until the flag is set; a flag that nobody can set any more counts as set.
pub(super) async fn until_true(flag: &mut watch::Receiver<bool>) {
    let _ = flag.wait_for(|set| *set).await;
}

/// How the link leads to the server, or why it does not.
async fn ways(link: &Link, servers: &[SocketAddr]) -> Result<Ways, String> {
    let mut ways = Vec::new();
    let mut reason = "the server's name has no address".to_owned();
    for &server in servers {
        match links::can_reach(link, server).await {
            Ok(source) => ways.push((server, source)),
            Err(error) => reason = error.to_string(),
        }
    }
    if ways.is_empty() {
        Err(reason)
    } else {
        Ok(ways)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use sumlink_engine::Role;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::sync::{broadcast, oneshot};

    use super::*;
    use crate::driver::Listeners;
    use crate::fixture::{client_config, server_config};
    use crate::keys::SecretKey;
    use crate::links::netns::Netns;
    use crate::server::Server;

    /// A manager for a session over all links; what it asks of the session goes nowhere.
    fn manager(server: &str) -> Manager {
        let key = SecretKey::generate().unwrap();
        let mut config = client_config(&key, &key, server);
        config.links.clear();
        let (commands, _) = unbounded_channel();
        let (_, news) = unbounded_channel();
        Manager::new(
            Arc::new(config),
            [7; 16],
            commands,
            news,
            LinkStates::default(),
        )
    }

    /// A resolver may take half a minute, and nobody has to wait for it who wants to stop.
    #[tokio::test]
    async fn who_stops_does_not_wait_for_the_resolver() {
        let key = SecretKey::generate().unwrap();
        let config = client_config(&key, &key, "slow.invalid:1");
        let (driver, mut manager) = session(&key, config);
        let (asked, is_asked) = oneshot::channel();
        let asked = Mutex::new(Some(asked));
        manager.resolver = Resolver::with(Duration::ZERO, move || {
            if let Some(asked) = asked.lock().unwrap().take() {
                asked.send(()).unwrap();
            }
            std::future::pending().boxed()
        });
        let (close, mut closing) = watch::channel(false);
        let stopped = tokio::spawn(async move { manager.run(driver, &mut closing, || ()).await });
        is_asked.await.unwrap();
        close.send_replace(true);
        let outcome = tokio::time::timeout(Duration::from_secs(10), stopped).await;
        assert!(matches!(outcome, Ok(Ok(Outcome::Closed))), "{outcome:?}");
    }

    /// The server goes, and its name with it: what is left to do is done with pauses.
    #[tokio::test]
    async fn a_name_that_does_not_resolve_any_more_makes_no_busy_loop() {
        let (server, client) = (
            SecretKey::generate().unwrap(),
            SecretKey::generate().unwrap(),
        );
        let running = Server::bind(server_config(&server, &client)).await.unwrap();
        let address = running.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(running.run(async {
            let _ = stopped.await;
        }));
        let mut config = client_config(&server, &client, "gone.invalid:1");
        config.session.session_timeout = Duration::from_secs(3);
        let (driver, mut manager) = session(&server, config);
        let look_ups = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&look_ups);
        manager.resolver = Resolver::with(Duration::from_secs(1), move || {
            let first = count.fetch_add(1, Ordering::Relaxed) == 0;
            let gone = ConnectError::ServerAddress("the resolver knows nothing".to_owned());
            async move { first.then(|| vec![address]).ok_or(gone) }.boxed()
        });
        let (connected, is_connected) = oneshot::channel();
        let (_closing, mut closing) = watch::channel(false);
        let session = tokio::spawn(async move {
            let connected = || connected.send(()).unwrap();
            manager.run(driver, &mut closing, connected).await
        });
        is_connected.await.unwrap();
        // Aborted, so that it says no goodbye: the session waits for a path until its timeout.
        running.abort();
        drop(stop);
        let dials = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&dials);
        let taken = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let dialed = tokio::spawn(async move {
            while taken.accept().await.is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let outcome = session.await.unwrap();
        dialed.abort();
        assert!(matches!(outcome, Outcome::Lost { .. }), "{outcome:?}");
        // In three seconds: one look-up a second, and dials with pauses from 250 ms upwards.
        let (look_ups, dials) = (
            look_ups.load(Ordering::Relaxed),
            dials.load(Ordering::Relaxed),
        );
        assert!((2..=5).contains(&look_ups), "{look_ups} look-ups");
        assert!((2..=8).contains(&dials), "{dials} dials");
    }

    /// A session and what keeps links in it.
    fn session(server: &SecretKey, config: ClientConfig) -> (Driver, Manager) {
        let (events, _) = broadcast::channel(1);
        let (news_sender, news) = unbounded_channel();
        let listeners = Listeners {
            incoming: None,
            carriers: Some(news_sender),
            events,
            links: LinkStates::default(),
            max_paths: 1,
        };
        let (id, peer) = ([7; 16], server.public());
        let made = Driver::new(Role::Client, id, peer, &config.session, listeners);
        let (driver, commands) = made.unwrap();
        let states = LinkStates::default();
        let manager = Manager::new(Arc::new(config), id, commands, news, states);
        (driver, manager)
    }

    #[test]
    fn a_change_resets_the_back_off_of_the_link_that_changed_only() {
        let Some(ns) = Netns::new() else { return };
        for (link, host) in [("up1", 1), ("up2", 2)] {
            ns.ip(&format!("link add {link} type veth peer name {link}-peer"));
            for end in [link, &format!("{link}-peer")] {
                ns.ip(&format!("link set {end} addrgenmode none"));
                ns.ip(&format!("link set {end} up"));
            }
            ns.ip(&format!("addr add 192.0.2.{host}/24 dev {link}"));
            ns.ip(&format!(
                "route add default via 192.0.2.254 dev {link} metric {host}"
            ));
        }
        let ip = ns.commands();
        ns.run(async move || {
            let mut manager = manager("203.0.113.1:443");
            manager.servers = vec!["203.0.113.1:443".parse().unwrap()];
            manager.refresh(true).await.unwrap();
            let later = Instant::now() + Duration::from_secs(3600);
            // As if both had failed.
            let fail = |manager: &mut Manager| {
                for name in ["up1", "up2"] {
                    let state = manager.links.get_mut(name).unwrap();
                    (state.dialing, state.retry_at) = (false, Some(later));
                }
            };
            let dialing = |manager: &Manager| {
                let names = manager.links.iter().filter(|(_, state)| state.dialing);
                names.map(|(name, _)| name.clone()).collect::<Vec<_>>()
            };
            for (change, dialed) in [
                ("link add other type veth peer name other-peer", None),
                ("addr add 198.51.100.1/24 dev up1-peer", None),
                ("addr add 198.51.100.2/24 dev up2", Some("up2")),
                ("addr del 198.51.100.2/24 dev up2", Some("up2")),
                ("link set up1 mtu 1400", Some("up1")),
            ] {
                fail(&mut manager);
                ip(change);
                manager.on_change().await;
                assert_eq!(
                    dialing(&manager),
                    Vec::from_iter(dialed.map(str::to_owned)),
                    "{change}"
                );
            }
        });
    }
}
