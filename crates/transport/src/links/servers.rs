//! Which of several servers a client uses.

mod known;
mod race;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use rustls::pki_types::ServerName;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use self::known::{Known, Rank};
use self::race::Race;
use super::dialer::{Dialer, NO_SESSION};
use super::manager::{wanted, ways};
use super::policy::Policies;
use super::resolver::Resolver;
use super::services::{is_service, servers_of};
use crate::api::config::ClientConfig;
use crate::api::error::ConnectError;
use crate::links;
use crate::links::names::Names;
use crate::session::command::{Command, Use};

/// Time for the servers to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time for preferred servers once another one has answered.
const GRACE: Duration = Duration::from_secs(1);

/// Interval of the looks at a session's paths.
const LOOK: Duration = Duration::from_millis(200);

/// How long no path may be known to deliver before the other servers are tried.
const SILENCE: Duration = Duration::from_millis(200);

/// Least time for the server of a silent session to answer a new connection.
const LAST_CHANCE: Duration = Duration::from_millis(700);

/// Pause before the other servers are tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Interval at which preferred servers are tried; doubles up to the second value while none
/// answers.
const RETURN: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(600));

/// How long a server is not tried for a return after a session with it has failed.
const AVOID: Duration = Duration::from_secs(300);

/// Interval at which the DNS is asked again for the servers of a client.
const REFRESH: Duration = Duration::from_secs(300);

/// Age of the DNS's answer up to which a client without a session uses it again.
const FRESH: Duration = Duration::from_secs(30);

/// The servers of a client, each with its place ([`Known`]).
#[derive(Debug)]
pub(crate) struct Servers {
    /// The configuration as given, with names of SRV records.
    config: Arc<ClientConfig>,
    known: Mutex<Known>,
    /// When the SRV records were looked up last, with or without success.
    asked: Mutex<Option<Instant>>,
    policies: Policies,
    /// When a session with each server failed last.
    failed_at: Mutex<BTreeMap<usize, Instant>>,
}

/// Why a session leaves its server for another one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// The other server.
    pub(crate) to: usize,
    pub(crate) reason: &'static str,
}

impl Servers {
    pub(crate) fn new(config: ClientConfig, policies: Policies) -> Self {
        Self {
            known: Mutex::new(Known::of(&config)),
            config: Arc::new(config),
            asked: Mutex::default(),
            policies,
            failed_at: Mutex::default(),
        }
    }

    /// The first server as configured: HOST:PORT, or a name of SRV records.
    pub(crate) fn configured(&self) -> &str {
        &self.config.server
    }

    /// The configuration for sessions with this server.
    pub(crate) fn config(&self, place: usize) -> Arc<ClientConfig> {
        Arc::new(self.known().config(&self.config, place))
    }

    /// Whether there is a server besides these.
    pub(crate) fn has_others(&self, than: &BTreeSet<usize>) -> bool {
        self.places().iter().any(|place| !than.contains(place))
    }

    /// The places of the servers to use now.
    fn places(&self) -> Vec<usize> {
        self.known().places()
    }

    fn rank(&self, place: usize) -> Rank {
        self.known().rank(place)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, Option<Instant>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_services(&self) -> bool {
        self.config.servers().any(|(server, _)| is_service(server))
    }

    /// Looks up the SRV records of the configuration, unless the last answers are younger than
    /// `age`. If that fails, the servers from before stay.
    ///
    /// # Errors
    ///
    /// The last error, if no server is known.
    async fn refresh(&self, age: Duration) -> Result<(), ConnectError> {
        let asked = *self.asked();
        let is_due = asked.is_none_or(|asked| asked.elapsed() >= age) || self.places().is_empty();
        if !self.has_services() || !is_due {
            return Ok(());
        }
        let names = self.config.servers().enumerate();
        let names = names.filter(|(_, (server, _))| is_service(server));
        let look_ups = names.map(async |(entry, (name, _))| {
            let found = servers_of(name, &self.config).await;
            (entry, name, found)
        });
        let answers = futures_util::future::join_all(look_ups).await;
        let mut last = None;
        {
            *self.asked() = Some(Instant::now());
            let mut known = self.known();
            for (entry, name, found) in answers {
                match found {
                    Ok(found) => known.set(self.config.server_choice, entry, &found),
                    Err(error) => {
                        tracing::debug!(%name, %error, "cannot look up the servers");
                        last = Some(error);
                    }
                }
            }
        }
        match last {
            Some(error) if self.places().is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// No session could be made with this server.
    pub(crate) fn note_failure(&self, place: usize) {
        self.failed_at().insert(place, Instant::now());
    }

    fn failed_at(&self) -> MutexGuard<'_, BTreeMap<usize, Instant>> {
        self.failed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The preferred servers to which a session with this one may return.
    fn preferred(&self, current: usize) -> Vec<usize> {
        let rank = self.rank(current);
        let mut found = self.places();
        found.retain(|place| self.rank(*place) < rank);
        let failed_at = self.failed_at();
        found.retain(|place| failed_at.get(place).is_none_or(|at| at.elapsed() >= AVOID));
        found
    }

    /// The server for a new session, none of `failed` if there are others. If none answers, the
    /// most preferred of them: the session's own attempt finds the reason.
    ///
    /// # Errors
    ///
    /// No server is known, because the DNS does not list one.
    pub(crate) async fn choose(&self, failed: &BTreeSet<usize>) -> Result<usize, ConnectError> {
        self.refresh(FRESH).await?;
        let all = self.places();
        let mut left = all.clone();
        left.retain(|place| !failed.contains(place));
        if left.is_empty() {
            left = all;
        }
        left.sort_by_key(|place| self.rank(*place));
        Ok(match left.as_slice() {
            [only] => *only,
            left => self.answering(left, Over::All).await.unwrap_or(left[0]),
        })
    }

    /// The chosen one of the servers that answer over these links.
    async fn answering(&self, places: &[usize], over: Over) -> Option<usize> {
        let race = async {
            let mut probes: FuturesUnordered<_> = places
                .iter()
                .map(async |place| {
                    let names = Names::new(&self.config(*place));
                    (*place, self.answers(*place, names, over).await)
                })
                .collect();
            let ranks = places.iter().map(|place| (self.rank(*place), *place));
            let mut race = Race::new(ranks);
            let mut grace = None;
            loop {
                let over = async {
                    match grace {
                        Some(end) => sleep_until(end).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    next = probes.next() => match next {
                        None => return race.best(),
                        Some((place, answers)) => {
                            if race.note(place, answers) {
                                return race.best();
                            }
                            if race.best().is_some() && grace.is_none() {
                                grace = Some(Instant::now() + GRACE);
                            }
                        }
                    },
                    () = over => return race.best(),
                }
            }
        };
        timeout(PATIENCE, race).await.unwrap_or(None)
    }

    /// Waits until a session should leave its server: it no longer answers over any link and
    /// another one does, or a preferred one answers again and nothing uses the session.
    /// A server that has a name may have others beside it, behind the same address.
    pub(crate) async fn superseded(
        &self,
        current: usize,
        session: UnboundedSender<Command>,
        names: Arc<Names>,
    ) -> Move {
        let refreshed = async {
            loop {
                sleep(REFRESH).await;
                if let Err(never) = self.refresh(REFRESH).await {
                    tracing::debug!(error = %never, "no server is known");
                }
            }
        };
        tokio::select! {
            found = self.other(current, session, names) => found,
            never = refreshed => {
                let never: Infallible = never;
                match never {}
            }
        }
    }

    async fn other(
        &self,
        current: usize,
        session: UnboundedSender<Command>,
        names: Arc<Names>,
    ) -> Move {
        if !self.has_services() && self.places().len() == 1 {
            names.named().await;
        }
        let begun = Instant::now();
        let mut has_delivered = false;
        let mut silent_since = None;
        let mut pause = RETURN.0;
        let mut returns_at = begun + pause;
        loop {
            sleep(LOOK).await;
            let Some(use_of) = look(&session).await else {
                return std::future::pending().await;
            };
            let now = Instant::now();
            if !use_of.delivers {
                let since = *silent_since.get_or_insert(now);
                let is_connecting = !has_delivered && now < begun + PATIENCE;
                if now >= since + SILENCE && !is_connecting {
                    if let Some(to) = self.replacement(current, names.own()).await
                        && look(&session).await.is_some_and(|use_of| !use_of.delivers)
                    {
                        let reason = "the server no longer answers, and another one does";
                        return Move { to, reason };
                    }
                    let refreshed = timeout(TRY_AGAIN, self.refresh(FRESH));
                    let _ = tokio::join!(sleep(TRY_AGAIN), refreshed);
                }
                continue;
            }
            silent_since = None;
            has_delivered = true;
            if use_of.is_idle && now >= returns_at {
                let preferred = self.preferred(current);
                if !preferred.is_empty()
                    && let Some(to) = self.answering(&preferred, Over::Free).await
                    && look(&session).await.is_some_and(|use_of| use_of.is_idle)
                {
                    let reason = "a preferred server answers again";
                    return Move { to, reason };
                }
                pause = RETURN.1.min(2 * pause);
                returns_at = Instant::now() + pause;
            }
        }
    }

    /// Another server that answers, unless this one does as well: after an outage of the client's
    /// links both do, and the session goes on. `name` is the name of this server; without it, any
    /// server behind the same address may answer.
    async fn replacement(
        &self,
        current: usize,
        name: Option<ServerName<'static>>,
    ) -> Option<usize> {
        let mut others = self.places();
        others.retain(|place| *place != current || name.is_some());
        let begun = Instant::now();
        let names = match name {
            Some(name) => Names::of(name),
            None => Names::new(&self.config(current)),
        };
        let mut here = std::pin::pin!(self.answers(current, names, Over::All));
        let mut there = std::pin::pin!(self.answering(&others, Over::All));
        tokio::select! {
            answers = &mut here => match answers {
                true => None,
                false => there.await,
            },
            found = &mut there => {
                let to = found?;
                let last = begun + LAST_CHANCE.max(2 * begun.elapsed());
                match timeout_at(last, here).await {
                    Ok(true) => None,
                    _ => Some(to),
                }
            }
        }
    }

    /// Whether a server would accept a session over any of these links.
    async fn answers(&self, place: usize, names: Names, over: Over) -> bool {
        let config = &self.config(place);
        let mut resolver = Resolver::new(&config.server, config.lookup.clone());
        let (Ok(servers), Ok(all)) = (resolver.resolve().await, links::list().await) else {
            return false;
        };
        let dialer = Dialer::with_names(Arc::clone(config), NO_SESSION, names);
        let mut probes = FuturesUnordered::new();
        for link in wanted(config, &all, &servers) {
            let policy = self.policies.report(&link.name).policy;
            let costs = policy.metered || policy.has_cap();
            if self.policies.bars(&link.name).is_some() || (costs && over == Over::Free) {
                continue;
            }
            if let Ok(ways) = ways(link, &servers, config.mark).await {
                let dialer = &dialer;
                probes.push(async move {
                    let servers: Vec<_> = ways.iter().map(|(server, _)| *server).collect();
                    dialer.is_answered(&link.name, &servers).await
                });
            }
        }
        while let Some(is_answered) = probes.next().await {
            if is_answered {
                return true;
            }
        }
        false
    }
}

/// The links over which servers are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// All that may be used.
    All,
    /// Of these, those that are neither metered nor have a data cap.
    Free,
}

/// `None` if the session has ended.
async fn look(session: &UnboundedSender<Command>) -> Option<Use> {
    let (reply, answer) = oneshot::channel();
    session.send(Command::Look(reply)).ok()?;
    answer.await.ok()
}
