//! Which of several servers a client uses.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use rustls::pki_types::ServerName;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::dialer::{Dialer, NO_SESSION};
use super::manager::{wanted, ways};
use super::policy::Policies;
use super::resolver::Resolver;
use super::services::{Preferred, is_service, servers_of};
use crate::api::config::{ClientConfig, ServerChoice};
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

/// Interval at which preferred servers are tried; doubles up to the second value while
/// none answers.
const RETURN: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(600));

/// How long a server is not tried for a return after a session with it has failed.
const AVOID: Duration = Duration::from_secs(300);

/// Interval at which the DNS is asked again for the servers of a client.
const REFRESH: Duration = Duration::from_secs(300);

/// Age of the DNS's answer up to which a client without a session uses it again.
const FRESH: Duration = Duration::from_secs(30);

/// The servers of a client. Each keeps its place, a number, while the client runs.
#[derive(Debug)]
pub(crate) struct Servers {
    /// The configuration as given, with names of SRV records.
    config: Arc<ClientConfig>,
    known: Mutex<Known>,
    policies: Policies,
    /// When a session with each server failed last.
    failed_at: Mutex<BTreeMap<usize, Instant>>,
}

/// The servers known so far, by their place.
#[derive(Debug, Default)]
struct Known {
    each: Vec<Server>,
    /// When the SRV records were looked up last, with or without success.
    asked: Option<Instant>,
}

/// One of several servers.
#[derive(Debug)]
struct Server {
    /// The configuration of sessions with it.
    config: Arc<ClientConfig>,
    rank: Rank,
    /// The entry of the configuration that it comes from.
    entry: usize,
    /// Whether it is still in the DNS; always for HOST:PORT.
    is_listed: bool,
}

/// Place in the order of preference; a client prefers the least, and among equal ones the server
/// that answers first.
type Rank = (usize, usize, usize);

impl Known {
    /// Replaces the servers of an entry of the configuration; those from before keep their place.
    fn set(&mut self, config: &ClientConfig, entry: usize, found: &[Preferred]) {
        for server in self.each.iter_mut().filter(|server| server.entry == entry) {
            server.is_listed = false;
        }
        let (_, server_key) = config.servers().nth(entry).expect("an entry of the list");
        for (at, one) in found.iter().enumerate() {
            let rank = match config.server_choice {
                ServerChoice::Fastest => (0, one.group, 0),
                ServerChoice::Listed => (entry, one.group, at),
            };
            let mut servers = self.each.iter_mut();
            let known =
                servers.find(|server| server.entry == entry && server.config.server == one.server);
            match known {
                Some(known) => {
                    known.is_listed = true;
                    // Another draw of the weights is no reason to move.
                    if known.rank.1 != one.group {
                        known.rank = rank;
                    }
                }
                None => {
                    let mut config = config.clone();
                    (config.server, config.server_key) = (one.server.clone(), server_key);
                    self.each.push(Server {
                        config: Arc::new(config),
                        rank,
                        entry,
                        is_listed: true,
                    });
                }
            }
        }
    }
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
        let mut known = Known::default();
        for (entry, (server, _)) in config.servers().enumerate() {
            if !is_service(server) {
                let only = Preferred {
                    server: server.to_owned(),
                    group: 0,
                };
                known.set(&config, entry, &[only]);
            }
        }
        Self {
            config: Arc::new(config),
            known: Mutex::new(known),
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
        Arc::clone(&self.known().each[place].config)
    }

    /// Whether there is a server besides these.
    pub(crate) fn has_others(&self, than: &BTreeSet<usize>) -> bool {
        self.places().iter().any(|place| !than.contains(place))
    }

    /// The places of the servers to use now.
    fn places(&self) -> Vec<usize> {
        let known = self.known();
        let listed = known.each.iter().enumerate();
        listed
            .filter(|(_, server)| server.is_listed)
            .map(|(place, _)| place)
            .collect()
    }

    fn rank(&self, place: usize) -> Rank {
        self.known().each[place].rank
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
        let asked = self.known().asked;
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
            let mut known = self.known();
            known.asked = Some(Instant::now());
            for (entry, name, found) in answers {
                match found {
                    Ok(found) => known.set(&self.config, entry, &found),
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
                            if race.best.is_some() && grace.is_none() {
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

/// The answers of servers so far.
#[derive(Debug)]
struct Race {
    /// The servers that have not answered, by preference.
    waiting: BTreeSet<(Rank, usize)>,
    /// The best that has answered.
    best: Option<(Rank, usize)>,
}

impl Race {
    fn new(servers: impl IntoIterator<Item = (Rank, usize)>) -> Self {
        Self {
            waiting: servers.into_iter().collect(),
            best: None,
        }
    }

    fn best(&self) -> Option<usize> {
        self.best.map(|(_, place)| place)
    }

    /// Records an answer, or that there will be none; returns whether the race is over.
    fn note(&mut self, place: usize, answers: bool) -> bool {
        let server = self.waiting.iter().find(|(_, waiting)| *waiting == place);
        let Some((rank, _)) = server.copied() else {
            return self.is_over();
        };
        self.waiting.remove(&(rank, place));
        if answers && self.best.is_none_or(|(best, _)| rank < best) {
            self.best = Some((rank, place));
        }
        self.is_over()
    }

    fn is_over(&self) -> bool {
        let first = self.waiting.first();
        match self.best {
            None => first.is_none(),
            Some((best, _)) => first.is_none_or(|(rank, _)| *rank >= best),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::io;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use proptest::prelude::*;

    use super::*;
    use crate::carrier::keys::SecretKey;
    use crate::links::{Lookup, Service};

    /// A rank for a list without priorities.
    fn listed(place: usize) -> (Rank, usize) {
        ((place, 0, 0), place)
    }

    #[test]
    fn the_fastest_of_equal_servers_ends_the_race() {
        let mut race = Race::new([0, 1, 2].map(|place| ((0, 0, 0), place)));
        assert!(!race.note(2, false));
        assert!(race.note(1, true));
        assert_eq!(race.best(), Some(1));
    }

    #[test]
    fn a_later_server_of_the_list_waits_for_the_earlier_ones() {
        let mut race = Race::new([0, 1, 2].map(listed));
        assert!(!race.note(2, true));
        assert!(!race.note(0, false));
        assert_eq!(race.best(), Some(2), "after the grace");
        assert!(race.note(1, true));
        assert_eq!(race.best(), Some(1));
    }

    proptest! {
        /// Whatever the order of the answers: the first answer among the most preferred servers
        /// that answer.
        #[test]
        fn every_race_has_the_right_winner(
            answers in prop::collection::btree_map(0..8_usize, (any::<bool>(), 0..3_usize), 1..8),
            seed in any::<u64>(),
        ) {
            let rank = |place: usize| (0, answers[&place].1, 0);
            let mut order: Vec<usize> = answers.keys().copied().collect();
            let mut race = Race::new(order.iter().map(|place| (rank(*place), *place)));
            order.sort_by_key(|place| (*place as u64).wrapping_mul(seed | 1).rotate_left(17));
            let mut ended = false;
            for place in &order {
                prop_assert!(!ended);
                ended = race.note(*place, answers[place].0);
                if ended {
                    break;
                }
            }
            prop_assert!(ended, "all have answered or failed");
            let answering = order.iter().copied().filter(|place| answers[place].0);
            prop_assert_eq!(race.best(), answering.min_by_key(|place| rank(*place)));
        }
    }

    #[test]
    fn a_race_without_answers_ends_with_the_last_failure() {
        let mut race = Race::new([0, 2].map(listed));
        assert!(!race.note(0, false));
        assert!(race.note(2, false));
        assert_eq!(race.best(), None);
    }

    /// The DNS: each time the next of these answers, `None` for a failure.
    #[derive(Debug)]
    struct Zone {
        answers: Vec<Option<Vec<(&'static str, u16)>>>,
        asked: AtomicUsize,
    }

    impl Lookup for Zone {
        fn look_up(&self, _: String, _: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
            ready(Err(io::Error::other("not in this test"))).boxed()
        }

        fn look_up_services(&self, _: String) -> BoxFuture<'static, io::Result<Vec<Service>>> {
            let answer = &self.answers[self.asked.fetch_add(1, Ordering::Relaxed)];
            let services = answer.as_ref().map(|servers| {
                let service = |&(host, priority): &(&str, u16)| Service {
                    host: host.to_owned(),
                    port: 443,
                    priority,
                    weight: 1,
                };
                servers.iter().map(service).collect()
            });
            ready(services.ok_or_else(|| io::Error::other("no answer"))).boxed()
        }
    }

    type ZoneAnswer = Option<Vec<(&'static str, u16)>>;

    fn servers(choice: ServerChoice, answers: Vec<ZoneAnswer>) -> Servers {
        let key = SecretKey::generate().unwrap();
        let mut config = ClientConfig::new("_sumlink._tcp.example.org", key.public(), key.clone())
            .server_choice(choice);
        config.lookup = Some(Arc::new(Zone {
            answers,
            asked: AtomicUsize::new(0),
        }));
        Servers::new(config, Policies::new(&[], None).unwrap())
    }

    fn listed_names(servers: &Servers) -> Vec<String> {
        let places = servers.places();
        let name = |place: &usize| servers.config(*place).server.clone();
        places.iter().map(name).collect()
    }

    #[tokio::test]
    async fn servers_of_the_dns_come_and_go_and_keep_their_places() {
        let both = vec![("a", 1), ("b", 1)];
        let servers = servers(
            ServerChoice::Fastest,
            vec![Some(both), Some(vec![("b", 1), ("c", 2)]), None],
        );
        assert_eq!(listed_names(&servers), [""; 0]);
        servers.refresh(Duration::ZERO).await.unwrap();
        let mut first = listed_names(&servers);
        first.sort();
        assert_eq!(first, ["a:443", "b:443"]);
        let of_b = |servers: &Servers| {
            let places = servers.places();
            let is_b = |place: &usize| servers.config(*place).server == "b:443";
            places.into_iter().find(is_b).unwrap()
        };
        let place = of_b(&servers);
        servers.refresh(FRESH).await.unwrap();
        assert_eq!(of_b(&servers), place, "not asked again");
        servers.refresh(Duration::ZERO).await.unwrap();
        assert_eq!(of_b(&servers), place);
        let mut second = listed_names(&servers);
        second.sort();
        assert_eq!(second, ["b:443", "c:443"]);
        servers.refresh(Duration::ZERO).await.unwrap();
        assert_eq!(listed_names(&servers).len(), 2, "a failure changes nothing");
        let failed = BTreeSet::from([place]);
        assert!(servers.has_others(&failed));
    }

    #[tokio::test]
    async fn a_session_returns_to_a_server_with_a_lower_priority_number() {
        for choice in [ServerChoice::Fastest, ServerChoice::Listed] {
            let all = vec![("spare", 20), ("main", 10)];
            let servers = servers(choice, vec![Some(all)]);
            servers.refresh(Duration::ZERO).await.unwrap();
            let place = |name: &str| {
                let places = servers.places();
                let is_it = |place: &usize| servers.config(*place).server == name;
                places.into_iter().find(is_it).unwrap()
            };
            let (main, spare) = (place("main:443"), place("spare:443"));
            assert_eq!(servers.preferred(spare), [main]);
            assert_eq!(servers.preferred(main), [0; 0]);
            servers.note_failure(main);
            assert_eq!(servers.preferred(spare), [0; 0], "a failed one rests");
        }
    }

    #[tokio::test]
    async fn a_name_without_servers_is_an_error() {
        for answer in [None, Some(vec![]), Some(vec![(".", 0)])] {
            let servers = servers(ServerChoice::Fastest, vec![answer]);
            let error = servers.choose(&BTreeSet::new()).await.unwrap_err();
            let text = error.to_string();
            assert!(text.contains("_sumlink._tcp.example.org"), "{text}");
        }
    }
}
