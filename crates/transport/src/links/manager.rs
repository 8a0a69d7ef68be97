//! Brings links into a session and keeps them there: dials, watches for changes, dials again.

#[cfg(test)]
mod black_hole;
mod dials;
#[cfg(test)]
mod rest;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tracing::Instrument;

use super::datagrams::DatagramLinks;
use super::dialer::{Dialer, rank};
use super::names::Names;
use super::resolver::{Answer, Resolver};
use crate::api::client::{ConnectError, is_lost};
use crate::api::config::ClientConfig;
use crate::links::policy::Policies;
use crate::links::{self, CarrierCheck};
use crate::session::driver::{CarrierNews, Command, Driver, LinkStates};
use dials::{Dialed, LinkState};
pub(super) use survey::{wanted, ways};

/// How often the links' usage is saved: a killed process loses at most this much.
const KEEP_EVERY: Duration = Duration::from_secs(10);

/// The outcome of a session at the client.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// This side closed it.
    Closed,
    /// It never started.
    Failed(ConnectError),
    /// The server no longer has it, or no path came back in time.
    Lost { lasted: Duration },
}

/// Manages the links of a session; see the module.
#[derive(Debug)]
pub(crate) struct Manager {
    dialer: Arc<Dialer>,
    commands: UnboundedSender<Command>,
    news: UnboundedReceiver<CarrierNews>,
    states: LinkStates,
    policies: Policies,
    /// When the link state was last saved.
    kept: Instant,
    links: BTreeMap<String, LinkState>,
    dials: JoinSet<Dialed>,
    /// Number of dials so far.
    dialed: u64,
    began: Instant,
    /// The server's addresses, as last resolved.
    servers: Vec<SocketAddr>,
    resolver: Resolver,
    /// When all links were last listed.
    looked: Instant,
    /// Queries the carrier state of interfaces; opened on first use.
    carriers: Option<CarrierCheck>,
    /// The query in progress.
    asking: JoinSet<io::Result<bool>>,
    /// The session is being closed: links are no longer dialed.
    is_closing: bool,
    /// The links that have a path, for their datagram carriers.
    datagrams: watch::Sender<DatagramLinks>,
    /// Whether these carriers are wanted now.
    wants_datagrams: bool,
}

impl Manager {
    pub(crate) fn new(
        config: Arc<ClientConfig>,
        session: [u8; 16],
        commands: UnboundedSender<Command>,
        news: UnboundedReceiver<CarrierNews>,
        states: LinkStates,
        policies: Policies,
    ) -> Self {
        let resolver = Resolver::new(&config.server, config.lookup.clone());
        let dialer = Arc::new(Dialer::new(config, session));
        let (links, dials) = (BTreeMap::new(), JoinSet::new());
        Self {
            dialer,
            commands,
            news,
            states,
            policies,
            kept: Instant::now(),
            links,
            dials,
            dialed: 0,
            began: Instant::now(),
            servers: Vec::new(),
            resolver,
            looked: Instant::now(),
            carriers: None,
            asking: JoinSet::new(),
            is_closing: false,
            datagrams: watch::channel(DatagramLinks::new()).0,
            wants_datagrams: true,
        }
    }

    /// The names that the session's connections send.
    pub(crate) fn names(&self) -> Arc<Names> {
        Arc::clone(&self.dialer.names)
    }

    /// Runs the session: `driver` is its task, `connected` is called with the first path.
    pub(crate) async fn run(
        mut self,
        driver: Driver,
        closing: &mut watch::Receiver<bool>,
        connected: impl FnOnce(),
    ) -> Outcome {
        let mut connected = Some(connected);
        let mut driver = tokio::spawn(driver.in_current_span());
        // A session that moves to another server does not wait for this one's end.
        let _end = AbortOnDrop(driver.abort_handle());
        let _datagrams = self.keep_datagrams();
        let mut watch = links::Watch::new().ok();
        let mut policies = self.policies.changes();
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
        loop {
            let changed = async {
                match &mut watch {
                    Some(watch) => watch.changed().await,
                    None => std::future::pending().await,
                }
            };
            self.publish_datagram_links();
            let (next_look, next_question) = (self.next_look(), self.next_question());
            tokio::select! {
                _ = &mut driver => {
                    let lasted = self.began.elapsed();
                    return match connected {
                        _ if self.is_closing => Outcome::Closed,
                        Some(_) => Outcome::Failed(best_error.unwrap_or_else(not_in_time)),
                        None => Outcome::Lost { lasted },
                    };
                }
                () = until_true(closing), if !self.is_closing => {
                    self.is_closing = true;
                    let _ = self.commands.send(Command::Close("the client is stopping".to_owned()));
                }
                result = changed => {
                    if result.is_err() {
                        watch = links::Watch::new().ok();
                    }
                    self.look_again().await;
                }
                resolved = self.resolver.answer() => {
                    // Before the first path a failed link is not retried: a retry would delay the
                    // failure of the whole connect.
                    if self.on_resolved(resolved) || connected.is_none() {
                        self.look_again().await;
                    }
                }
                Ok(()) = policies.changed() => self.look_again().await,
                Some(news) = self.news.recv() => self.on_news(news),
                Some(answer) = self.asking.join_next() => if let Ok(answer) = answer {
                    self.on_carriers(answer).await;
                },
                Some(dialed) = self.dials.join_next() => {
                    // The result of an abandoned dial is ignored.
                    let joined = dialed.map_or(Ok(false), |dialed| self.on_dialed(dialed, connected.is_none()));
                    match joined {
                        Ok(true) => if let Some(connected) = connected.take() { connected() },
                        Ok(false) => {}
                        Err(error) => {
                            let lost = matches!(&error, ConnectError::Carrier { error, .. } if is_lost(error));
                            // A load balancer may have led this connection to another server.
                            let may_err = self.dialer.names.own().is_some() && !self.is_lost();
                            if lost && connected.is_none() && !may_err {
                                let _ = self.commands.send(Command::Close("the server lost the session".to_owned()));
                            }
                            if best_error.as_ref().is_none_or(|best| rank(&error) > rank(best)) {
                                best_error = Some(error);
                            }
                        }
                    }
                    if connected.is_some() && self.dials.is_empty() {
                        driver.abort();
                        return Outcome::Failed(best_error.unwrap_or_else(all_left));
                    }
                }
                () = tokio::time::sleep(next_question), if !self.is_closing => {
                    if self.is_lost() {
                        self.resolver.ask_again(true);
                    }
                }
                () = tokio::time::sleep(next_look), if connected.is_none() && !self.is_closing => {
                    if watch.is_none() {
                        watch = links::Watch::new().ok();
                    }
                    self.look_again().await;
                }
            }
        }
    }

    /// Many changes do not concern the session's links (a container starts, a router advertises
    /// again), so [`Manager::use_link`] finds out which link may be dialed at once.
    async fn look_again(&mut self) {
        if let Err(error) = self.refresh(false).await {
            tracing::debug!(%error, "cannot list the links; keeping the known ones");
        }
        // A new day or month ends data caps, without any event.
        self.apply_all_terms();
        self.try_larger_packets();
        if self.kept.elapsed() >= KEEP_EVERY {
            self.kept = Instant::now();
            let policies = self.policies.clone();
            tokio::task::spawn_blocking(move || policies.save_or_warn());
        }
    }

    /// Takes the resolver's answer; returns whether the server's addresses have changed. An error
    /// keeps the old addresses.
    fn on_resolved(&mut self, resolved: Answer) -> bool {
        match resolved {
            Ok(servers) if !servers.is_empty() => {
                let set = |servers: &[SocketAddr]| BTreeSet::from_iter(servers.iter().copied());
                let has_moved = set(&servers) != set(&self.servers);
                if has_moved {
                    tracing::info!(
                        ?servers,
                        "the server's name resolves to other addresses; dialing them"
                    );
                }
                self.servers = servers;
                has_moved
            }
            Ok(_) => false,
            Err(error) => {
                tracing::debug!(
                    %error,
                    "cannot resolve the server's name; keeping its old addresses"
                );
                false
            }
        }
    }
}

/// Ends a task, if it has not ended yet.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The session timed out before any link had connected.
fn not_in_time() -> ConnectError {
    ConnectError::NoLink("none reached the server within the session's timeout".to_owned())
}

/// All links disappeared before any had connected.
fn all_left() -> ConnectError {
    ConnectError::NoLink("all dialed links are gone".to_owned())
}

/// Waits until the flag is set; a flag without a sender counts as set.
pub(crate) async fn until_true(flag: &mut watch::Receiver<bool>) {
    let _ = flag.wait_for(|set| *set).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use sumlink_bond::Early;
    use sumlink_engine::{PathId, Priority, Role};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::sync::{broadcast, oneshot};

    use super::*;
    use crate::api::client::Client;
    use crate::carrier::keys::SecretKey;
    use crate::fixture::{Silent, client_config, serve, server_config};
    use crate::links::resolver::Pauses;
    use crate::server::Server;
    use crate::session::driver::{Listeners, Opening};
    use crate::session::sources::Sources;
    use sumlink_exit::target::Target;
    use sumlink_test_support::netns::Netns;

    /// A resolver may take half a minute; closing the client does not wait for it.
    #[tokio::test]
    async fn stopping_does_not_wait_for_the_resolver() {
        let key = SecretKey::generate().unwrap();
        let config = client_config(&key, &key, "slow.invalid:1");
        let (driver, mut manager) = session(&key, config);
        let (asked, is_asked) = oneshot::channel();
        let asked = Mutex::new(Some(asked));
        manager.resolver = Resolver::with(pauses(Duration::ZERO), move || {
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

    /// The caller of the first connection gets the error, however long dials continue.
    #[tokio::test]
    async fn a_session_that_times_out_before_the_first_path_has_failed() {
        let key = SecretKey::generate().unwrap();
        let silent = Silent::new().await;
        let mut config = client_config(&key, &key, &silent.address.to_string());
        config.session.session_timeout = Duration::from_secs(1);
        let (driver, manager) = session(&key, config);
        let (_closing, mut closing) = watch::channel(false);
        let outcome = manager.run(driver, &mut closing, || panic!("connected"));
        let outcome = outcome.await;
        let Outcome::Failed(error) = outcome else {
            panic!("{outcome:?}");
        };
        let text = error.to_string();
        assert!(text.contains("within the session's timeout"), "{text}");
    }

    /// The server and its name disappear: the remaining work is done with pauses.
    #[tokio::test]
    async fn a_name_that_no_longer_resolves_causes_no_busy_loop() {
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
        manager.resolver = Resolver::with(pauses(Duration::from_secs(1)), move || {
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
        // Aborted, so that it sends no CLOSE: the session waits for a path until its timeout.
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
        // In three seconds: one lookup per second, and dials with pauses from 250 ms upwards.
        let (look_ups, dials) = (
            look_ups.load(Ordering::Relaxed),
            dials.load(Ordering::Relaxed),
        );
        assert!((2..=5).contains(&look_ups), "{look_ups} look-ups");
        assert!((2..=8).contains(&dials), "{dials} dials");
    }

    /// The server receives every SYN but has no return route over the first link, which the routing
    /// tables prefer. That dial runs into its timeout, and the other link does not wait for it.
    #[test]
    fn a_dead_first_link_delays_no_other() {
        let (Some(here), Some(there)) = (Netns::new(), Netns::new()) else {
            return;
        };
        for (link, net, metric) in [("dead", "192.0.2", 1), ("live", "198.51.100", 2)] {
            here.ip(&format!(
                "link add {link} type veth peer name {link} netns {}",
                there.name()
            ));
            there.ip(&format!("link set {link} address 02:00:00:00:00:0{metric}"));
            for ns in [&here, &there] {
                ns.ip(&format!("link set {link} addrgenmode none"));
                ns.ip(&format!("link set {link} up"));
            }
            here.ip(&format!("addr add {net}.1/24 dev {link}"));
            here.ip(&format!(
                "neigh add {net}.254 lladdr 02:00:00:00:00:0{metric} dev {link} nud permanent"
            ));
            here.ip(&format!(
                "route add default via {net}.254 dev {link} metric {metric}"
            ));
        }
        there.ip("addr add 198.51.100.254/24 dev live");
        there.ip("addr add 203.0.113.1/32 dev lo");

        let (server, key) = (
            SecretKey::generate().unwrap(),
            SecretKey::generate().unwrap(),
        );
        let mut config = server_config(&server, &key);
        config.listen = "203.0.113.1:7443".parse().unwrap();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = std::thread::spawn(move || {
            there.run(async move || {
                let server = Server::bind(config).await.unwrap();
                ready.send(()).unwrap();
                let until = async {
                    let _ = stopped.await;
                };
                server.run(until).await;
            });
        });
        is_ready.recv().unwrap();
        let mut config = client_config(&server, &key, "203.0.113.1:7443");
        config.links.clear();
        let paths = here.run(async move || {
            let client = Client::connect(config).await.unwrap();
            let paths = client.status().await.paths;
            client.close().await;
            paths
        });
        drop(stop);
        serving.join().unwrap();
        let states: Vec<(&str, &str)> = paths
            .iter()
            .map(|path| (path.link.as_str(), path.state.as_str()))
            .collect();
        // While the first link's dial is still in progress.
        assert!(states.contains(&("live", "active")), "{states:?}");
        assert!(states.contains(&("dead", "connecting")), "{states:?}");
    }

    /// A capped link may be used again on the next day, and its live paths get the new terms
    /// without any event.
    #[tokio::test]
    async fn a_new_day_ends_a_data_cap() {
        static NEXT_DAY: AtomicBool = AtomicBool::new(false);
        let today = || {
            let day = 22 + u32::from(NEXT_DAY.load(Ordering::Relaxed));
            chrono::NaiveDate::from_ymd_opt(2026, 11, day).unwrap()
        };
        let key = SecretKey::generate().unwrap();
        let mut config = client_config(&key, &key, "127.0.0.1:1");
        config.links[0].policy.cap_day = Some(1000);
        let policies = Policies::with(&config.links, None, today).unwrap();
        let (commands, mut received) = unbounded_channel();
        let (_news, news) = unbounded_channel();
        let states = LinkStates::default();
        let mut manager = Manager::new(
            Arc::new(config),
            [7; 16],
            commands,
            news,
            states,
            policies.clone(),
        );
        manager.servers = vec!["127.0.0.1:1".parse().unwrap()];
        let path = (PathId(0), "127.0.0.1:2".parse().unwrap());
        let link = manager.links.entry("lo".to_owned()).or_default();
        link.plan.paths.push(path);
        policies.count("lo", 1000);
        for (next_day, priority) in [(false, Priority::Backup), (true, Priority::Primary)] {
            NEXT_DAY.store(next_day, Ordering::Relaxed);
            manager.look_again().await;
            match received.try_recv().ok() {
                Some(Command::Terms(PathId(0), terms)) => assert_eq!(terms.own.priority, priority),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The traffic of a session without streams, joins and PINGs, causes no wake-up.
    #[tokio::test]
    async fn a_session_reports_that_its_streams_move_bytes() {
        let (server, key) = (
            SecretKey::generate().unwrap(),
            SecretKey::generate().unwrap(),
        );
        let address = serve(server_config(&server, &key)).await;
        let (driver, mut manager) = session(&server, client_config(&server, &key, "127.0.0.1:1"));
        let driver = tokio::spawn(driver);
        manager.servers = vec![address];
        manager.refresh(true).await.unwrap();
        let dialed = manager.dials.join_next().await.unwrap().unwrap();
        assert!(manager.on_dialed(dialed, false).unwrap());
        let (reply, status) = oneshot::channel();
        let _ = manager.commands.send(Command::Status(reply));
        assert_eq!(status.await.unwrap().paths.len(), 1);
        assert!(manager.news.try_recv().is_err());
        let (reply, stream) = oneshot::channel();
        let _ = manager.commands.send(Command::Open(Opening {
            target: Target::from(address).encode(),
            class: None,
            early: Some(Early::Never),
            reply,
            since: Instant::now(),
        }));
        assert!(stream.await.unwrap().is_ok());
        let news = tokio::time::timeout(Duration::from_secs(10), manager.news.recv()).await;
        assert_eq!(news, Ok(Some(CarrierNews::Moving)));
        driver.abort();
    }

    fn pauses(both: Duration) -> Pauses {
        Pauses {
            reached: both,
            lost: both,
        }
    }

    /// The server's name changes while the server is unreachable, and the client follows it.
    #[tokio::test]
    async fn a_server_that_has_moved_is_followed_within_three_seconds() {
        let (server, client) = (
            SecretKey::generate().unwrap(),
            SecretKey::generate().unwrap(),
        );
        let first = Server::bind(server_config(&server, &client)).await.unwrap();
        let old = first.local_addr().unwrap();
        let way = silenced_way(old).await;
        let mut config = client_config(&server, &client, "moves.invalid:1");
        config.session.session_timeout = Duration::from_secs(30);
        let (driver, mut manager) = session(&server, config);
        let now_at = Arc::new(Mutex::new(way.address));
        let asked = Arc::clone(&now_at);
        manager.resolver = Resolver::new("moves.invalid:1", None).answering(move || {
            let address = *asked.lock().unwrap();
            async move { Ok(vec![address]) }.boxed()
        });
        let (connected, is_connected) = oneshot::channel();
        let (close, mut closing) = watch::channel(false);
        let serving = tokio::spawn(first.run(std::future::pending()));
        let commands = manager.commands.clone();
        let session = tokio::spawn(async move {
            let connected = || connected.send(()).unwrap();
            manager.run(driver, &mut closing, connected).await
        });
        is_connected.await.unwrap();
        // The old address is silent, without any error.
        way.silence();
        *now_at.lock().unwrap() = old;
        let began = Instant::now();
        let is_there = async {
            loop {
                let (reply, status) = oneshot::channel();
                let _ = commands.send(Command::Status(reply));
                let paths = status.await.unwrap().paths;
                let is_new = |path: &crate::api::status::PathStatus| {
                    path.state == "active" && path.remote == old.to_string()
                };
                if paths.iter().any(is_new) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), is_there)
            .await
            .expect("the client looks the name up again");
        let took = began.elapsed();
        // Three seconds to detect the silent path, and at most three more.
        assert!(took < Duration::from_secs(10), "{took:?}");
        close.send_replace(true);
        session.await.unwrap();
        serving.abort();
    }

    /// An address that leads to a server until it goes silent.
    struct Way {
        address: SocketAddr,
        silent: watch::Sender<bool>,
    }

    impl Way {
        fn silence(&self) {
            self.silent.send_replace(true);
        }
    }

    async fn silenced_way(server: SocketAddr) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (silent, is_silent) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let mut is_silent = is_silent.clone();
                tokio::spawn(async move {
                    let mut far = tokio::net::TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        biased;
                        () = until_true(&mut is_silent) => std::future::pending().await,
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    }
                });
            }
        });
        Way { address, silent }
    }

    /// A session and its manager.
    fn session(server: &SecretKey, config: ClientConfig) -> (Driver, Manager) {
        session_with(server, config, &Arc::default())
    }

    pub(super) fn session_with(
        server: &SecretKey,
        config: ClientConfig,
        sources: &Arc<Sources>,
    ) -> (Driver, Manager) {
        let (events, _) = broadcast::channel(1);
        let (news_sender, news) = unbounded_channel();
        let listeners = Listeners {
            incoming: None,
            carriers: Some(news_sender),
            wants_traffic: false,
            events,
            former: Default::default(),
            links: LinkStates::default(),
            policies: None,
            account: None,
            max_paths: 1,
            sources: Arc::clone(sources),
            udp: true,
            datagram_exit: None,
        };
        let (id, peer) = ([7; 16], server.public());
        let made = Driver::new(Role::Client, id, peer, &config.session, listeners);
        let (driver, commands) = made.unwrap();
        let states = LinkStates::default();
        let policies = Policies::new(&config.links, None).unwrap();
        let manager = Manager::new(Arc::new(config), id, commands, news, states, policies);
        (driver, manager)
    }
}
