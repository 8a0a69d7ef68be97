//! The dials and paths of one link: when it is dialed, and what follows from the result.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sumlink_bond::dial::{ENDED_PAUSE, LOOK_EVERY, REFUSED_PAUSE, next_look};
use sumlink_bond::{Link as Plan, LinkTraffic, Moved, Silence};
use sumlink_engine::{Instant as Moment, PathId};
use tokio::task::AbortHandle;
use tracing::Instrument;

use super::Manager;
use super::survey::Ways;
use crate::api::error::ConnectError;
use crate::carrier::Carrier;
use crate::carrier::socket::Binding;
use crate::links::Link;
use crate::links::datagrams::{DatagramLink, DatagramLinks, keep};
use crate::session::command::Command;
use crate::session::driver::CarrierNews;

/// One link of this session.
#[derive(Debug, Default)]
pub(super) struct LinkState {
    /// The dial schedule, and the link's paths with their local addresses.
    pub(super) plan: Plan<SocketAddr>,
    /// The task of the current dial and its number; results of abandoned dials are ignored.
    task: Option<AbortHandle>,
    pub(super) number: Option<u64>,
    /// The error of the last dial, if a captive portal intercepts the link.
    portal: Option<String>,
    /// The link and its routes to the server at the last listing; a change triggers a dial at once.
    pub(super) seen: Option<(Link, Ways)>,
}

/// The result of a dial.
#[derive(Debug)]
pub(super) struct Dialed {
    link: String,
    number: u64,
    result: Result<(Carrier, Binding), ConnectError>,
}

impl Manager {
    pub(super) fn use_link(&mut self, link: &Link, ways: Ways) {
        let servers: Vec<SocketAddr> = ways.iter().map(|(server, _)| *server).collect();
        let state = self.links.entry(link.name.clone()).or_default();
        let before = state.seen.as_ref();
        let has_moved = before.is_some_and(|(_, before)| servers_of(before) != servers_of(&ways));
        let now_seen = Some((link.clone(), ways));
        if state.seen != now_seen {
            state.seen = now_seen;
            state.portal = None;
            state.plan.changed();
        }
        let commands = &self.commands;
        let before = state.plan.paths.len();
        state.plan.paths.retain(|(id, local)| {
            let has_address = link.addresses.contains(&local.ip());
            if !has_address {
                let reason = format!("the address {} is gone", local.ip());
                let _ = commands.send(Command::Remove(*id, reason));
            }
            has_address
        });
        if state.plan.paths.len() < before {
            // The dial started from the address that is gone.
            state.give_up();
        }
        let mut replacing = None;
        if has_moved && state.plan.is_dialing {
            // The dial continues to the server's old addresses.
            replacing = state.plan.replacing();
            state.give_up();
        }
        if replacing.is_some() || self.is_due(&link.name) {
            self.dial(&link.name, servers, replacing);
        }
    }

    /// Ends the link's paths and dials: it cannot be used at the moment.
    pub(super) fn leave(&mut self, name: &str, reason: &str) {
        let Some(state) = self.links.get_mut(name) else {
            return;
        };
        state.give_up();
        for (id, _) in state.plan.leave() {
            let _ = self.commands.send(Command::Remove(id, reason.to_owned()));
        }
        self.states.set(name, "down", reason.to_owned());
    }

    pub(super) fn on_news(&mut self, news: CarrierNews) {
        match news {
            CarrierNews::Moving => self.ask_for_interface_state(),
            CarrierNews::Silent {
                id,
                link,
                loses_large,
                packet_limit,
            } => {
                // A new connection may get through where the old one waits for ever longer
                // timeouts.
                let now = self.now();
                let state = self.links.get_mut(&link);
                let Some(state) = state.filter(|state| state.plan.has(id)) else {
                    return;
                };
                let silence = state.plan.on_silence(loses_large, packet_limit, now);
                let Silence {
                    dials,
                    gives_up,
                    size,
                } = silence;
                if let Some(size) = size {
                    log_size(&link, packet_limit, size);
                }
                if gives_up {
                    // The current dial uses the packet size that does not work.
                    state.end_task();
                }
                if dials {
                    self.dial(&link, self.servers.clone(), Some(id));
                }
                if self.is_lost() {
                    // Nothing reaches the server's known addresses.
                    self.resolver.ask_again(true);
                }
            }
            CarrierNews::Recovered { id, link } => {
                let state = self.links.get_mut(&link);
                if let Some(state) = state
                    && state.plan.recovered(id)
                {
                    state.end_task();
                }
            }
            CarrierNews::Refused { id, link, reason } => {
                self.on_end(id, &link, reason, REFUSED_PAUSE);
            }
            CarrierNews::Ended { id, link, reason } => {
                self.on_end(id, &link, reason, ENDED_PAUSE);
            }
            CarrierNews::Traffic(links) => self.on_traffic(&links),
            CarrierNews::Datagrams(are_wanted) => self.wants_datagrams = are_wanted,
        }
    }

    /// A path of the link has ended; another one is dialed after `pause`.
    fn on_end(&mut self, id: PathId, link: &str, reason: String, pause: Duration) {
        let now = self.now();
        let Some(state) = self.links.get_mut(link) else {
            return;
        };
        if !state.plan.ended(id, pause, now) {
            return;
        }
        if state.plan.paths.is_empty() {
            self.states.set(link, "down", reason);
        }
        self.apply_terms(link);
    }

    /// Sends the session the terms of a link's paths, which share the link's limits.
    fn apply_terms(&self, link: &str) {
        let Some(state) = self.links.get(link) else {
            return;
        };
        let terms = self.policies.terms(link, state.plan.paths.len());
        for (id, _) in &state.plan.paths {
            let _ = self.commands.send(Command::Terms(*id, Box::new(terms)));
        }
    }

    /// Applies changed policies and data caps.
    pub(super) fn apply_all_terms(&self) {
        self.links.keys().for_each(|link| self.apply_terms(link));
    }

    /// Adjusts the number of carriers of each link to its traffic.
    fn on_traffic(&mut self, links: &[LinkTraffic<String>]) {
        let now = self.now();
        let session = links.iter().map(|link| link.bytes).sum();
        for traffic in links {
            let moved = Moved {
                link: traffic.bytes,
                session,
                is_queueing: traffic.is_queueing,
            };
            let Some(state) = self.links.get_mut(&traffic.link) else {
                continue;
            };
            let Some((before, carriers)) = state.plan.on_traffic(moved, now) else {
                continue;
            };
            if carriers != before {
                tracing::info!(
                    link = %traffic.link,
                    before,
                    carriers,
                    "number of carriers changed"
                );
            }
            if carriers < before {
                let (superfluous, gives_up) = state.plan.superfluous(carriers.into());
                if gives_up {
                    state.end_task();
                }
                let reason = "one connection fewer is enough for the link".to_owned();
                if let Some(id) = superfluous {
                    let _ = self.commands.send(Command::Remove(id, reason));
                }
                self.apply_terms(&traffic.link);
            }
            if self.is_due(&traffic.link) {
                self.dial(&traffic.link, self.servers.clone(), None);
            }
        }
    }

    /// The time as used by the dial schedules.
    pub(super) fn now(&self) -> Moment {
        self.began.elapsed()
    }

    /// Whether the link lacks a carrier and may be dialed now.
    fn is_due(&self, link: &str) -> bool {
        let carriers = self.dialer.config.carriers_of(link);
        let state = self.links.get(link);
        state.is_some_and(|state| state.plan.is_due(carriers, self.now()))
    }

    /// Takes the result of a dial and returns whether a path has joined; `connected` says whether
    /// one had before.
    pub(super) fn on_dialed(
        &mut self,
        dialed: Dialed,
        connected: bool,
    ) -> Result<bool, ConnectError> {
        let now = self.now();
        let state = self.links.get_mut(&dialed.link);
        let Some(state) = state.filter(|state| state.number == Some(dialed.number)) else {
            // The dial was abandoned just after it had succeeded.
            return Ok(false);
        };
        state.task = None;
        match dialed.result {
            Ok((carrier, binding)) => {
                if let Binding::SourceAddress(source) = binding {
                    tracing::warn!(
                        link = %dialed.link,
                        %source,
                        "SO_BINDTODEVICE is not permitted: bound to the source address only, so \
                        packets leave by the preferred link unless a routing rule says otherwise"
                    );
                }
                let (id, local) = (carrier.id, carrier.local);
                let replaced = state.plan.joined(id, local, now);
                state.portal = None;
                self.states.clear(&dialed.link);
                let _ = self.commands.send(Command::Add(Box::new(carrier)));
                if let Some(old) = replaced {
                    let reason = "replaced by a new connection on the same link".to_owned();
                    let _ = self.commands.send(Command::Remove(old, reason));
                }
                self.apply_terms(&dialed.link);
                // The next carrier of several: a working link need not be checked again first.
                if self.is_due(&dialed.link) {
                    self.dial(&dialed.link, self.servers.clone(), None);
                }
                Ok(true)
            }
            Err(error) => {
                let is_portal = matches!(error, ConnectError::Portal { .. });
                state.portal = is_portal.then(|| error.to_string());
                if is_portal && state.plan.is_silent(now) {
                    // The network has forgotten its connections, or holds them until someone signs
                    // in; a new one is made then.
                    for (id, _) in std::mem::take(&mut state.plan.paths) {
                        let _ = self.commands.send(Command::Remove(id, error.to_string()));
                    }
                }
                let failures = state.plan.failed(now);
                if state.plan.paths.is_empty() {
                    self.states.set(&dialed.link, "down", error.to_string());
                }
                // The failure of the first connection is returned; of later failures only the first
                // in a row is logged.
                if failures == 1 && connected {
                    tracing::warn!(link = %dialed.link, "{error}");
                }
                Err(error)
            }
        }
    }

    /// Starts the task that keeps the links' datagram carriers; it ends with its handle.
    pub(super) fn keep_datagrams(&self) -> AbortOnDrop {
        let links = self.datagrams.subscribe();
        let task = keep(Arc::clone(&self.dialer), links, self.commands.clone());
        AbortOnDrop(tokio::spawn(task.in_current_span()).abort_handle())
    }

    /// Publishes the links that have a path, if they have changed.
    pub(super) fn publish_datagram_links(&self) {
        let is_on = self.dialer.config.udp && !self.is_closing;
        let connected = self
            .links
            .iter()
            .filter(|(_, state)| is_on && !state.plan.paths.is_empty());
        let links: DatagramLinks = connected
            .filter_map(|(name, state)| {
                let (_, ways) = state.seen.as_ref()?;
                let link = DatagramLink {
                    servers: ways.iter().map(|(server, _)| *server).collect(),
                    is_wanted: self.wants_datagrams,
                };
                Some((name.clone(), link))
            })
            .collect();
        self.datagrams.send_if_modified(|published| {
            let is_new = *published != links;
            *published = links;
            is_new
        });
    }

    /// Time until a link is due for another dial.
    pub(super) fn next_look(&self) -> Duration {
        let lacking = |(link, state): &(&String, &LinkState)| {
            let carriers = self.dialer.config.carriers_of(link);
            state.plan.lacks(carriers) && !state.plan.is_dialing
        };
        let waiting = self.links.iter().filter(lacking);
        let retries = waiting.filter_map(|(_, state)| state.plan.retry_at);
        let looked = self.looked.saturating_duration_since(self.began);
        next_look(looked, retries).saturating_sub(self.now())
    }

    /// Retries larger packets on links that were limited a while ago, as long as another link
    /// delivers.
    pub(super) fn try_larger_packets(&mut self) {
        let now = self.now();
        let delivering = self.links.values().filter(|link| link.plan.delivers(now));
        if delivering.count() < 2 {
            return;
        }
        let due = self.links.iter().find_map(|(link, state)| {
            let path = state.plan.tries_larger_packets(now)?;
            Some((link.clone(), path))
        });
        if let Some((link, path)) = due {
            tracing::info!(%link, "trying larger packets again");
            self.dial(&link, self.servers.clone(), Some(path));
        }
    }

    /// Whether no link is known to reach the server.
    pub(super) fn is_lost(&self) -> bool {
        let now = self.now();
        !self.links.values().any(|link| link.plan.delivers(now))
    }

    /// Time until the server's name is resolved again because no link reaches it.
    pub(super) fn next_question(&self) -> Duration {
        match self.is_lost() {
            true => self
                .resolver
                .due(true)
                .saturating_duration_since(Instant::now()),
            // The event that makes the server unreachable starts a lookup itself.
            false => LOOK_EVERY,
        }
    }

    /// Dials the link, in addition to its current paths; the new path replaces the path
    /// `replacing`.
    fn dial(&mut self, link: &str, servers: Vec<SocketAddr>, replacing: Option<PathId>) {
        if self.is_closing {
            return;
        }
        let (carriers, now) = (self.dialer.config.carriers_of(link), self.now());
        self.dialed += 1;
        let number = self.dialed;
        let state = self.links.entry(link.to_owned()).or_default();
        state.number = Some(number);
        let size = state.plan.dial(replacing, carriers, now);
        if state.plan.paths.is_empty() {
            // The user needs the portal's address for longer than the pause between two dials.
            let (shown, reason) = match &state.portal {
                Some(portal) => ("down", portal.clone()),
                None => ("connecting", "waiting for the server's answer".to_owned()),
            };
            self.states.set(link, shown, reason);
        }
        let (dialer, link) = (Arc::clone(&self.dialer), link.to_owned());
        let task = self.dials.spawn(async move {
            let result = match replacing {
                // The link is silent, and it is unknown when it will recover.
                Some(_) => dialer.dial_until_answered(&link, &servers, size).await,
                None => dialer.dial(&link, &servers, size).await,
            };
            Dialed {
                link,
                number,
                result,
            }
        });
        state.task = Some(task);
    }
}

/// Stops a task when it is dropped.
pub(super) struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Logs that the link's connections use another packet size from now on.
fn log_size(link: &str, before: Option<u16>, size: Option<u16>) {
    match size {
        Some(mtu) => tracing::warn!(
            link,
            mtu,
            "large packets are lost on the way and small ones are not: connecting with smaller ones"
        ),
        None => tracing::warn!(
            link,
            tried = before,
            "connections stall with packets of every size: connecting with the link's own size"
        ),
    }
}

/// The server's addresses that a link can reach; a set, because resolvers vary their order.
fn servers_of(ways: &Ways) -> BTreeSet<SocketAddr> {
    ways.iter().map(|(server, _)| *server).collect()
}

impl LinkState {
    /// Abandons the current dial, if there is one.
    fn give_up(&mut self) {
        if self.plan.give_up() {
            self.end_task();
        }
    }

    /// Stops the task of a dial that was abandoned.
    fn end_task(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.number = None;
    }
}
