//! Brings links into a session and keeps them there: dials, watches for changes, dials again.

#[cfg(test)]
mod black_hole;
mod dials;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod lookups;
#[cfg(test)]
mod rest;
mod survey;
#[cfg(test)]
mod tests;

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
use crate::api::config::ClientConfig;
use crate::api::error::{ConnectError, is_lost};
use crate::links::policy::Policies;
use crate::links::{self, InterfaceCheck};
use crate::session::command::Command;
use crate::session::driver::{CarrierNews, Driver, LinkStates};
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
    /// Queries interface carrier state; opened on first use.
    interfaces: Option<InterfaceCheck>,
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
            interfaces: None,
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
                    self.on_interface_state(answer).await;
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
