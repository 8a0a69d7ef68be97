//! Which of several servers a client uses.

use std::collections::{BTreeMap, BTreeSet};
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
use crate::api::config::{ClientConfig, ServerChoice};
use crate::links;
use crate::links::names::Names;
use crate::session::command::{Command, Use};

/// Time for the servers to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time for an earlier server of the list once a later one has answered.
const GRACE: Duration = Duration::from_secs(1);

/// Interval of the looks at a session's paths.
const LOOK: Duration = Duration::from_millis(200);

/// How long no path may be known to deliver before the other servers are tried.
const SILENCE: Duration = Duration::from_millis(200);

/// Least time for the server of a silent session to answer a new connection.
const LAST_CHANCE: Duration = Duration::from_millis(700);

/// Pause before the other servers are tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Interval at which an earlier server of the list is tried; doubles up to the second value while
/// none answers.
const RETURN: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(600));

/// How long a server is not tried for a return after a session with it has failed.
const AVOID: Duration = Duration::from_secs(300);

/// The servers of a client, by their place in the configuration.
#[derive(Debug)]
pub(crate) struct Servers {
    /// The configuration of sessions with each server.
    each: Vec<Arc<ClientConfig>>,
    choice: ServerChoice,
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
        let choice = config.server_choice;
        let others = config.alternatives.clone();
        let mut each = vec![Arc::new(config)];
        for other in others {
            let mut config = ClientConfig::clone(&each[0]);
            (config.server, config.server_key) = (other.server, other.server_key);
            each.push(Arc::new(config));
        }
        Self {
            each,
            choice,
            policies,
            failed_at: Mutex::default(),
        }
    }

    /// Number of servers.
    pub(crate) fn len(&self) -> usize {
        self.each.len()
    }

    /// The configuration for sessions with this server.
    pub(crate) fn config(&self, place: usize) -> &Arc<ClientConfig> {
        &self.each[place]
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

    /// The servers of the list before this one to which a session may return.
    fn earlier(&self, current: usize) -> Vec<usize> {
        let failed_at = self.failed_at();
        let failed = |place: &usize| failed_at.get(place).is_some_and(|at| at.elapsed() < AVOID);
        match self.choice {
            ServerChoice::Fastest => Vec::new(),
            ServerChoice::Listed => (0..current).filter(|place| !failed(place)).collect(),
        }
    }

    /// The server for a new session, none of `failed` if there are others. If none answers, the
    /// first of them: the session's own attempt finds the reason.
    pub(crate) async fn choose(&self, failed: &BTreeSet<usize>) -> usize {
        let mut left: Vec<usize> = (0..self.len()).filter(|i| !failed.contains(i)).collect();
        if left.is_empty() {
            left = (0..self.len()).collect();
        }
        match left.as_slice() {
            [only] => *only,
            left => self.answering(left, Over::All).await.unwrap_or(left[0]),
        }
    }

    /// The chosen one of the servers that answer over these links.
    async fn answering(&self, places: &[usize], over: Over) -> Option<usize> {
        let race = async {
            let mut probes: FuturesUnordered<_> = places
                .iter()
                .map(async |place| {
                    let names = Names::new(&self.each[*place]);
                    (*place, self.answers(*place, names, over).await)
                })
                .collect();
            let mut race = Race::new(places, self.choice);
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
                        None => return race.best,
                        Some((place, answers)) => {
                            if race.note(place, answers) {
                                return race.best;
                            }
                            if race.best.is_some() && grace.is_none() {
                                grace = Some(Instant::now() + GRACE);
                            }
                        }
                    },
                    () = over => return race.best,
                }
            }
        };
        timeout(PATIENCE, race).await.unwrap_or(None)
    }

    /// Waits until a session should leave its server: it no longer answers over any link and
    /// another one does, or an earlier one of the list answers again and nothing uses the session.
    /// A server that has a name may have others beside it, behind the same address.
    pub(crate) async fn superseded(
        &self,
        current: usize,
        session: UnboundedSender<Command>,
        names: Arc<Names>,
    ) -> Move {
        if self.len() == 1 {
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
                    sleep(TRY_AGAIN).await;
                }
                continue;
            }
            silent_since = None;
            has_delivered = true;
            if use_of.is_idle && now >= returns_at {
                let earlier = self.earlier(current);
                if !earlier.is_empty()
                    && let Some(to) = self.answering(&earlier, Over::Free).await
                    && look(&session).await.is_some_and(|use_of| use_of.is_idle)
                {
                    let reason = "an earlier server of the list answers again";
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
        let others = (0..self.len()).filter(|place| *place != current || name.is_some());
        let others: Vec<usize> = others.collect();
        let begun = Instant::now();
        let names = match name {
            Some(name) => Names::of(name),
            None => Names::new(&self.each[current]),
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
        let config = &self.each[place];
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
    /// The servers that have not answered, in the order of the list.
    waiting: BTreeSet<usize>,
    choice: ServerChoice,
    /// The best that has answered.
    best: Option<usize>,
}

impl Race {
    fn new(places: &[usize], choice: ServerChoice) -> Self {
        Self {
            waiting: places.iter().copied().collect(),
            choice,
            best: None,
        }
    }

    /// Records an answer, or that there will be none; returns whether the race is over.
    fn note(&mut self, place: usize, answers: bool) -> bool {
        self.waiting.remove(&place);
        if answers && self.best.is_none_or(|best| place < best) {
            self.best = Some(place);
        }
        match (self.best, self.choice) {
            (None, _) => self.waiting.is_empty(),
            (Some(_), ServerChoice::Fastest) => true,
            (Some(best), ServerChoice::Listed) => self.waiting.range(..best).next().is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_fastest_server_ends_the_race() {
        let mut race = Race::new(&[0, 1, 2], ServerChoice::Fastest);
        assert!(!race.note(2, false));
        assert!(race.note(1, true));
        assert_eq!(race.best, Some(1));
    }

    #[test]
    fn a_later_server_of_the_list_waits_for_the_earlier_ones() {
        let mut race = Race::new(&[0, 1, 2], ServerChoice::Listed);
        assert!(!race.note(2, true));
        assert!(!race.note(0, false));
        assert_eq!(race.best, Some(2), "after the grace");
        assert!(race.note(1, true));
        assert_eq!(race.best, Some(1));
    }

    proptest! {
        /// Whatever the order of the answers: the fastest one, or the earliest of the list.
        #[test]
        fn every_race_has_the_right_winner(
            answers in prop::collection::btree_map(0..8_usize, any::<bool>(), 1..8),
            seed in any::<u64>(),
        ) {
            let places: Vec<usize> = answers.keys().copied().collect();
            let mut order = places.clone();
            order.sort_by_key(|place| (*place as u64).wrapping_mul(seed | 1).rotate_left(17));
            for choice in [ServerChoice::Fastest, ServerChoice::Listed] {
                let mut race = Race::new(&places, choice);
                let mut ended = false;
                for place in &order {
                    prop_assert!(!ended);
                    ended = race.note(*place, answers[place]);
                    if ended {
                        break;
                    }
                }
                prop_assert!(ended, "all have answered or failed");
                let answering = |place: &&usize| answers[*place];
                let expected = match choice {
                    ServerChoice::Fastest => order.iter().find(answering),
                    ServerChoice::Listed => places.iter().find(answering),
                };
                prop_assert_eq!(race.best.as_ref(), expected);
            }
        }
    }

    #[test]
    fn a_race_without_answers_ends_with_the_last_failure() {
        for choice in [ServerChoice::Fastest, ServerChoice::Listed] {
            let mut race = Race::new(&[0, 2], choice);
            assert!(!race.note(0, false));
            assert!(race.note(2, false));
            assert_eq!(race.best, None);
        }
    }
}
