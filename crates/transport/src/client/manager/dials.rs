//! One link's dials and its path: when it is tried, and what becomes of it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sumlink_engine::PathId;
use tokio::task::AbortHandle;

use super::Manager;
use super::packets::Packets;
use super::survey::Ways;
use super::width::{Moved, Width};
use crate::carrier::Carrier;
use crate::client::ConnectError;
use crate::config::Carriers;
use crate::driver::{CarrierNews, Command, LinkTraffic};
use crate::links::Link;
use crate::socket::Binding;

/// One link, as far as this session is concerned.
#[derive(Debug, Default)]
pub(super) struct LinkState {
    /// Its paths and their local addresses, oldest first.
    pub(super) paths: Vec<(PathId, SocketAddr)>,
    /// How many there should be, where that is found by measurement.
    width: Option<Width>,
    pub(super) dialing: bool,
    /// The path that the present dial is to replace.
    replacing: Option<PathId>,
    /// The present dial's task, and its number among all: of one that was given up nothing is taken any more.
    task: Option<AbortHandle>,
    pub(super) number: Option<u64>,
    /// Failed dials in a row.
    failures: u32,
    /// No dial before.
    pub(super) retry_at: Option<Instant>,
    /// How large its packets may be.
    packets: Packets,
    /// When one of its paths was last found silent.
    pub(super) silent_at: Option<Instant>,
    /// The link and its ways to the server when it was last looked at; a change is worth a dial at once.
    pub(super) seen: Option<(Link, Ways)>,
}

/// How a dial went.
#[derive(Debug)]
pub(super) struct Dialed {
    link: String,
    number: u64,
    result: Result<(Carrier, Binding), ConnectError>,
}

/// Pause before a link that failed is tried again; doubles up to the second value.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// The same for a link whose path the session did not take: another path has to go first.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// A link is silent for so long after it was last found so: while it is, it is found so twice a second.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// Links are looked at this often even when nothing was heard of them.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Manager {
    pub(super) fn use_link(&mut self, link: &Link, ways: Ways) {
        let servers: Vec<SocketAddr> = ways.iter().map(|(server, _)| *server).collect();
        let state = self.links.entry(link.name.clone()).or_default();
        let before = state.seen.as_ref();
        let has_moved = before.is_some_and(|(_, before)| servers_of(before) != servers_of(&ways));
        let now_seen = Some((link.clone(), ways));
        if state.seen != now_seen {
            state.seen = now_seen;
            state.retry_at = None;
            state.packets.forget();
            // What failed before says nothing about the link as it is now.
            state.failures = 0;
        }
        let commands = &self.commands;
        let before = state.paths.len();
        state.paths.retain(|(id, local)| {
            let has_address = link.addresses.contains(&local.ip());
            if !has_address {
                let reason = format!("the address {} is gone", local.ip());
                let _ = commands.send(Command::Remove(*id, reason));
            }
            has_address
        });
        if state.paths.len() < before {
            // It began at the address that is gone.
            state.give_up();
        }
        let mut replacing = None;
        if has_moved && state.dialing {
            // It goes on asking where the server was.
            replacing = state.replacing;
            state.give_up();
        }
        if replacing.is_some() || self.is_due(&link.name) {
            self.dial(&link.name, servers, replacing);
        }
    }

    /// The link cannot be used at the moment.
    pub(super) fn leave(&mut self, name: &str, reason: &str) {
        let Some(state) = self.links.get_mut(name) else {
            return;
        };
        state.give_up();
        for (id, _) in state.paths.drain(..) {
            let _ = self.commands.send(Command::Remove(id, reason.to_owned()));
        }
        state.failures = 0;
        state.retry_at = None;
        self.states.set(name, "down", reason.to_owned());
    }

    pub(super) fn on_news(&mut self, news: CarrierNews) {
        match news {
            CarrierNews::Moving => self.ask_for_carriers(),
            CarrierNews::Silent {
                id,
                link,
                loses_large,
                packet_limit,
            } => {
                // A new connection may get through where the old one waits for ever longer timeouts.
                let Some(state) = self.links.get_mut(&link).filter(|state| state.has(id)) else {
                    return;
                };
                let now = Instant::now();
                state.silent_at = Some(now);
                if loses_large && let Some(size) = state.packets.stuck(packet_limit, now) {
                    tell_of_size(&link, packet_limit, size);
                    // The present dial is for the size that does not work.
                    state.give_up();
                }
                if state.may_dial() {
                    self.dial(&link, self.servers.clone(), Some(id));
                }
                if self.is_lost() {
                    // Nothing gets through to where the server was.
                    self.resolver.ask_again(true);
                }
            }
            CarrierNews::Recovered { id, link } => {
                let state = self.links.get_mut(&link);
                if let Some(state) = state.filter(|state| state.replacing == Some(id)) {
                    state.give_up();
                }
            }
            CarrierNews::Refused { id, link, reason } => {
                self.on_end(id, &link, reason, REFUSED_PAUSE);
            }
            CarrierNews::Ended { id, link, reason } => {
                self.on_end(id, &link, reason, RETRY_PAUSE.0);
            }
            CarrierNews::Traffic(links) => self.on_traffic(&links),
        }
    }

    /// A path of the link is no more; another one is tried after `pause`.
    fn on_end(&mut self, id: PathId, link: &str, reason: String, pause: Duration) {
        let Some(state) = self.links.get_mut(link).filter(|state| state.has(id)) else {
            return;
        };
        state.paths.retain(|(path, _)| *path != id);
        state.retry_at = Some(Instant::now() + pause);
        if state.paths.is_empty() {
            self.states.set(link, "down", reason);
        }
        self.apply_terms(link);
    }

    /// Tells the session what the paths of a link may be used for; they share what its limits allow.
    fn apply_terms(&self, link: &str) {
        let Some(state) = self.links.get(link) else {
            return;
        };
        let terms = self.policies.terms(link, state.paths.len());
        for (id, _) in &state.paths {
            let _ = self.commands.send(Command::Terms(*id, terms));
        }
    }

    /// Policies have changed, or a link has moved what it may.
    pub(super) fn apply_all_terms(&self) {
        self.links.keys().for_each(|link| self.apply_terms(link));
    }

    /// Links may get more carriers, or fewer.
    fn on_traffic(&mut self, links: &[LinkTraffic]) {
        let now = Instant::now();
        let session = links.iter().map(|link| link.bytes).sum();
        for traffic in links {
            let state = self.links.get_mut(&traffic.link);
            let Some(state) = state.filter(|state| !state.paths.is_empty()) else {
                continue;
            };
            let Some(width) = &mut state.width else {
                continue;
            };
            let before = width.carriers();
            width.observe(
                now,
                Moved {
                    link: traffic.bytes,
                    session,
                    is_queueing: traffic.is_queueing,
                },
            );
            let carriers = width.carriers();
            if carriers != before {
                tracing::info!(link = %traffic.link, carriers, "number of carriers");
            }
            if carriers < before {
                let superfluous = state.superfluous(carriers.into());
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

    /// How many carriers the link should have.
    fn carriers_wanted(&self, link: &str) -> usize {
        let measured = self.links.get(link).and_then(|state| state.width.as_ref());
        match (self.dialer.config.carriers_of(link), measured) {
            (Carriers::Fixed(count), _) => count.get().into(),
            (Carriers::Auto, width) => width.map_or(1, |width| width.carriers().into()),
        }
    }

    /// Whether the link lacks a carrier and may be asked for one now.
    fn is_due(&self, link: &str) -> bool {
        let state = self.links.get(link);
        state
            .is_some_and(|state| state.paths.len() < self.carriers_wanted(link) && state.may_dial())
    }

    /// Whether a path has joined; `connected` says whether one had before.
    pub(super) fn on_dialed(
        &mut self,
        dialed: Dialed,
        connected: bool,
    ) -> Result<bool, ConnectError> {
        let state = self.links.get_mut(&dialed.link);
        let Some(state) = state.filter(|state| state.number == Some(dialed.number)) else {
            // Given up when it had just been made.
            return Ok(false);
        };
        state.dialing = false;
        state.task = None;
        match dialed.result {
            Ok((carrier, binding)) => {
                state.failures = 0;
                state.packets.joined(Instant::now());
                // The pause after another path's end stays: a server that refuses what has just joined would be dialed
                // without any.
                if let Binding::SourceAddress(source) = binding {
                    tracing::warn!(link = %dialed.link, %source, "SO_BINDTODEVICE is not permitted: bound to the source address only, so packets leave by the preferred link unless a routing rule says otherwise");
                }
                let (id, local) = (carrier.id, carrier.local);
                let replaced = state.replacing.take().filter(|old| state.has(*old));
                state.paths.retain(|(path, _)| Some(*path) != replaced);
                state.paths.push((id, local));
                self.states.clear(&dialed.link);
                let _ = self.commands.send(Command::Add(Box::new(carrier)));
                if let Some(old) = replaced {
                    let reason = "replaced by a new connection on the same link".to_owned();
                    let _ = self.commands.send(Command::Remove(old, reason));
                }
                self.apply_terms(&dialed.link);
                // The next one of several: a link that works need not be looked at again first.
                if self.is_due(&dialed.link) {
                    self.dial(&dialed.link, self.servers.clone(), None);
                }
                Ok(true)
            }
            Err(error) => {
                state.failures += 1;
                let pause = RETRY_PAUSE.0 * 2u32.pow(state.failures.min(8) - 1);
                state.retry_at = Some(Instant::now() + pause.min(RETRY_PAUSE.1));
                if state.paths.is_empty() {
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
    pub(super) fn next_look(&self) -> Duration {
        let lacking = |(link, state): &(&String, &LinkState)| {
            state.paths.len() < self.carriers_wanted(link) && !state.dialing
        };
        let waiting = self.links.iter().filter(lacking);
        // Counted from the last look: other news, of which there are many while bytes move, must not put it off for ever.
        let regular = self.looked + LOOK_EVERY;
        let retry = waiting.filter_map(|(_, state)| state.retry_at).min();
        let at = retry.map_or(regular, |retry| retry.min(regular));
        at.max(self.looked + RETRY_PAUSE.0)
            .saturating_duration_since(Instant::now())
    }

    /// Tries larger packets again on links that were limited a while ago, as long as another link delivers.
    pub(super) fn try_larger_packets(&mut self) {
        let now = Instant::now();
        let delivers = |state: &LinkState| !state.paths.is_empty() && !state.is_silent();
        if self.links.values().filter(|link| delivers(link)).count() < 2 {
            return;
        }
        let is_due =
            |state: &LinkState| delivers(state) && state.may_dial() && state.packets.is_due(now);
        let due = self.links.iter().find(|(_, state)| is_due(state));
        let due = due.and_then(|(link, state)| Some((link.clone(), state.paths.first()?.0)));
        if let Some((link, path)) = due {
            tracing::info!(%link, "trying larger packets again");
            self.dial(&link, self.servers.clone(), Some(path));
        }
    }

    /// Whether the server is reached over no link, as far as anybody knows.
    pub(super) fn is_lost(&self) -> bool {
        let mut links = self.links.values();
        links.all(|link| link.paths.is_empty() || link.is_silent())
    }

    /// Time until the server's name is looked up again because it is reached over no link.
    pub(super) fn next_question(&self) -> Duration {
        match self.is_lost() {
            true => self
                .resolver
                .due(true)
                .saturating_duration_since(Instant::now()),
            // Whatever makes it lost asks by itself.
            false => LOOK_EVERY,
        }
    }

    /// Tries the link, beside its present paths if it has any; `replacing` is one of them that goes for the new one.
    fn dial(&mut self, link: &str, servers: Vec<SocketAddr>, replacing: Option<PathId>) {
        if self.is_closing {
            return;
        }
        let measured = self.dialer.config.carriers_of(link) == Carriers::Auto;
        self.dialed += 1;
        let number = self.dialed;
        let state = self.links.entry(link.to_owned()).or_default();
        state.number = Some(number);
        if measured {
            state.width.get_or_insert_with(Width::new);
        }
        state.dialing = true;
        state.replacing = replacing;
        if state.paths.is_empty() {
            self.states
                .set(link, "connecting", "asking the server".to_owned());
        }
        let size = state.packets.next_size(Instant::now());
        let (dialer, link) = (Arc::clone(&self.dialer), link.to_owned());
        let task = self.dials.spawn(async move {
            let result = match replacing {
                // The link is silent: nobody knows when it will not be any more.
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

/// A link's connections are made for another size of packets from now on.
fn tell_of_size(link: &str, before: Option<u16>, size: Option<u16>) {
    match size {
        Some(mtu) => tracing::warn!(
            link,
            mtu,
            "large packets are lost on the way and small ones are not: connecting with smaller ones"
        ),
        None => tracing::warn!(
            link,
            tried = before,
            "connections get stuck with packets of every size: connecting with the link's own size"
        ),
    }
}

/// The server's addresses that a link leads to; resolvers name them in another order each time.
fn servers_of(ways: &Ways) -> BTreeSet<SocketAddr> {
    ways.iter().map(|(server, _)| *server).collect()
}

impl LinkState {
    fn has(&self, path: PathId) -> bool {
        self.paths.iter().any(|(id, _)| *id == path)
    }

    /// The path that is one too many where so many are enough: one that was to be replaced, or else the newest. A dial that
    /// would bring one too many ends.
    fn superfluous(&mut self, enough: usize) -> Option<PathId> {
        let useless = self.replacing.filter(|id| self.has(*id));
        if self.dialing && self.paths.len() + usize::from(useless.is_none()) > enough {
            self.give_up();
        }
        if self.paths.len() <= enough {
            return None;
        }
        let newest = self.paths.last().map(|(id, _)| *id);
        let superfluous = useless.or(newest);
        self.paths.retain(|(id, _)| Some(*id) != superfluous);
        superfluous
    }

    /// The present dial is not wanted any more, if there is one.
    fn give_up(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            self.number = None;
            self.dialing = false;
            self.replacing = None;
        }
    }

    /// Whether nothing is confirmed on its paths now.
    fn is_silent(&self) -> bool {
        self.silent_at.is_some_and(|at| at.elapsed() < SILENT_FOR)
    }

    fn may_dial(&self) -> bool {
        !self.dialing && self.retry_at.is_none_or(|at| at <= Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link with so many paths, and a dial that may be to replace one.
    fn link(paths: u32, replacing: Option<u32>, is_dialing: bool) -> LinkState {
        let local: SocketAddr = "192.0.2.1:1".parse().unwrap();
        let task = is_dialing.then(|| tokio::spawn(std::future::pending::<()>()).abort_handle());
        LinkState {
            paths: (0..paths).map(|id| (PathId(id), local)).collect(),
            replacing: replacing.map(PathId),
            dialing: is_dialing,
            task,
            ..LinkState::default()
        }
    }

    #[tokio::test]
    async fn one_connection_fewer_ends_a_dial_or_the_useless_path_or_the_newest() {
        // paths, the one to be replaced, dialing, enough; the one that goes, and whether the dial goes on
        for (paths, replacing, dialing, enough, goes, goes_on) in [
            (2, None, false, 1, Some(1), false),
            (1, None, true, 1, None, false),
            (0, None, true, 1, None, true),
            (2, Some(0), true, 1, Some(0), false),
            (2, Some(0), true, 2, None, true),
            (3, Some(7), true, 2, Some(2), false),
        ] {
            let mut state = link(paths, replacing, dialing);
            assert_eq!(state.superfluous(enough), goes.map(PathId));
            assert_eq!(state.dialing, goes_on, "{paths} {replacing:?} {enough}");
            assert_eq!(state.task.is_some(), goes_on);
        }
    }
}
