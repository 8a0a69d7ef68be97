//! The forwarder: from a client's question to the answer.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use sumlink_proxy::Client;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::cache::{Cache, Cached};
use crate::chain;
use crate::flight::{Flights, Landed};
use crate::lifetime::{FAILURE, lifetime};
use crate::log::Throttle;
use crate::resolved::Resolved;
use crate::rules::{Decision, Rules};
use crate::settings::Settings;
use crate::statistics::{Counters, Statistics};
use crate::upstream::Group;
use crate::wire::{
    Age, ClientQuery, INTERNET, Message, Query, Unreadable, code, kind, local, render, storable,
};
use crate::{clock, private, special};

/// Time without an answer after which a client gets expired data instead (RFC 8767, section 5).
const STALE_PATIENCE: Duration = Duration::from_millis(1800);

/// TTL of expired data, in seconds (RFC 8767, section 4).
const STALE_TTL: u32 = 30;

/// Extended errors (RFC 8914, section 4).
mod extended {
    pub(super) const STALE: u16 = 3;
    pub(super) const BLOCKED: u16 = 15;
    pub(super) const NO_REACHABLE_AUTHORITY: u16 = 22;
}

/// A DNS forwarder. Clones share everything.
#[derive(Clone)]
pub struct Forwarder(Arc<Inner>);

struct Inner {
    settings: Settings,
    rules: RwLock<Arc<Rules>>,
    cache: Mutex<Cache>,
    flights: Flights,
    counters: Arc<Counters>,
    log: Mutex<Throttle>,
    /// Counts the changes of rules. Answers to questions under earlier rules are not cached.
    generation: AtomicU64,
    clock: fn() -> Duration,
}

/// The protocol over which a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// UDP: the answer may be truncated.
    Udp,
    /// TCP.
    Tcp,
}

/// The forwarder's immediate reaction to a message.
pub(crate) enum Step {
    /// The answer.
    Reply(Vec<u8>),
    /// No answer.
    Ignore,
    /// [`Forwarder::finish`] gets the answer.
    Ask(Question),
}

/// A question that goes upstream.
pub(crate) struct Question {
    client: ClientQuery,
    group: Arc<Group>,
    may_be_private: bool,
    stale: Option<Bytes>,
    limit: usize,
    generation: u64,
}

impl Forwarder {
    /// A forwarder with these rules.
    pub fn new(settings: Settings, rules: Rules) -> Self {
        Self::with_clock(settings, rules, clock::since_boot)
    }

    pub(crate) fn with_clock(settings: Settings, rules: Rules, clock: fn() -> Duration) -> Self {
        Self(Arc::new(Inner {
            cache: Mutex::new(Cache::new(settings.cache_bytes, settings.serve_stale)),
            flights: Flights::new(settings.max_open),
            rules: RwLock::new(Arc::new(rules)),
            counters: Arc::default(),
            log: Mutex::default(),
            generation: AtomicU64::new(0),
            settings,
            clock,
        }))
    }

    /// Replaces the rules, and forgets the answers under the earlier ones.
    pub fn set_rules(&self, rules: Rules) {
        *self.0.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        self.flush();
    }

    /// Forgets all answers.
    pub fn flush(&self) {
        let mut cache = self.0.cache();
        self.0.generation.fetch_add(1, Ordering::Release);
        cache.clear();
        self.0.flights.forget();
    }

    /// The statistics so far.
    pub fn statistics(&self) -> Statistics {
        let counters = &*self.0.counters;
        let (entries, bytes) = self.0.cache().size();
        let upstreams = self.0.rules().upstreams();
        Statistics {
            queries: counters.queries.read(),
            cached: counters.cached.read(),
            stale: counters.stale.read(),
            merged: counters.merged.read(),
            local: counters.local.read(),
            blocked: counters.blocked.read(),
            rebinding: counters.rebinding.read(),
            failed: counters.failed.read(),
            malformed: counters.malformed.read(),
            truncated: counters.truncated.read(),
            strangers: counters.strangers.read(),
            limited: counters.limited.read(),
            cache_entries: entries as u64,
            cache_bytes: bytes as u64,
            upstreams: upstreams
                .iter()
                .map(|upstream| upstream.statistics())
                .collect(),
        }
    }

    /// Answers a message of a program on this machine; `None` if it gets no answer.
    pub async fn answer(&self, message: &[u8], via: Via) -> Option<Vec<u8>> {
        match self.begin(message, via) {
            Step::Reply(reply) => Some(reply),
            Step::Ignore => None,
            Step::Ask(question) => self.finish(question, Client::Host).await,
        }
    }

    /// Handles a message as far as possible without an upstream.
    pub(crate) fn begin(&self, message: &[u8], via: Via) -> Step {
        let inner = &*self.0;
        let client = match ClientQuery::read(message) {
            Ok(client) => client,
            Err(unreadable) => {
                inner.counters.malformed.count();
                return match unreadable {
                    Unreadable::Ignore => Step::Ignore,
                    Unreadable::Reply(reply) => Step::Reply(reply),
                };
            }
        };
        inner.counters.queries.count();
        let limit = match via {
            Via::Udp => client.udp_limit(),
            Via::Tcp => usize::from(u16::MAX),
        };
        let question = &client.query.question;
        // In this order, so that an answer under earlier rules never counts as one under later
        // ones.
        let generation = inner.generation.load(Ordering::Acquire);
        let rules = inner.rules();
        let decision = match rules.explicit(&question.name) {
            Some(decision) => decision,
            None => match special::answer(question) {
                Some(stored) => {
                    inner.counters.local.count();
                    return inner.reply(&client, &stored, Age::Seconds(0), limit, None);
                }
                None => rules.default(&question.name),
            },
        };
        let (group, may_be_private) = match decision {
            Decision::Forward {
                group,
                may_be_private,
            } => (group, may_be_private),
            Decision::Block => {
                inner.counters.blocked.count();
                let stored = local(question, code::NO_SUCH_NAME, 0, &[]);
                let error = Some(extended::BLOCKED);
                return inner.reply(&client, &stored, Age::Seconds(0), limit, error);
            }
        };
        if question.kind == kind::AAAA && question.class == INTERNET && !inner.settings.ipv6 {
            inner.counters.local.count();
            let stored = local(question, code::NO_ERROR, 0, &[]);
            return inner.reply(&client, &stored, Age::Seconds(0), limit, None);
        }
        let cached = inner.cache().find(&client.query, (inner.clock)());
        let stale = match cached {
            Cached::Fresh(stored, age) => {
                inner.counters.cached.count();
                return inner.reply(&client, &stored, Age::Seconds(age), limit, None);
            }
            Cached::Stale(stored) => Some(stored),
            Cached::Missing => None,
        };
        Step::Ask(Question {
            client,
            group,
            may_be_private,
            stale,
            limit,
            generation,
        })
    }

    /// Gets the answer from upstream, for a question of `asker`.
    pub(crate) async fn finish(&self, question: Question, asker: Client) -> Option<Vec<u8>> {
        let Question {
            client,
            group,
            may_be_private,
            stale,
            limit,
            generation,
        } = question;
        let inner = &*self.0;
        let query = &client.query;
        let resolve = {
            let (this, query) = (Arc::clone(&self.0), query.clone());
            async move {
                this.resolve(&query, &group, may_be_private, generation)
                    .await
            }
        };
        let landed = match inner.flights.join(query, asker, resolve) {
            Landed::Full => {
                debug!("too many questions are open; another one fails");
                None
            }
            Landed::First(landing) | Landed::Merged(landing) if stale.is_some() => {
                timeout(STALE_PATIENCE, landing).await.ok()
            }
            Landed::First(landing) => Some(landing.await),
            Landed::Merged(landing) => {
                inner.counters.merged.count();
                Some(landing.await)
            }
        };
        let zero = Age::Seconds(0);
        let step = match (landed, stale) {
            (Some(Resolved::Response(stored)), _) => {
                inner.reply(&client, &stored, zero, limit, None)
            }
            (Some(Resolved::Private), _) => {
                inner.counters.rebinding.count();
                let stored = local(&query.question, code::NO_ERROR, 0, &[]);
                inner.reply(&client, &stored, zero, limit, Some(extended::BLOCKED))
            }
            (Some(Resolved::Failure(_) | Resolved::Failed) | None, Some(stored)) => {
                inner.counters.stale.count();
                let error = Some(extended::STALE);
                inner.reply(&client, &stored, Age::Stale(STALE_TTL), limit, error)
            }
            (Some(Resolved::Failure(stored)), None) => {
                inner.counters.failed.count();
                inner.reply(&client, &stored, zero, limit, None)
            }
            (Some(Resolved::Failed) | None, None) => {
                inner.counters.failed.count();
                let stored = local(&query.question, code::SERVER_FAILURE, 0, &[]);
                let error = Some(extended::NO_REACHABLE_AUTHORITY);
                inner.reply(&client, &stored, zero, limit, error)
            }
        };
        match step {
            Step::Reply(reply) => Some(reply),
            Step::Ignore | Step::Ask(_) => None,
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }
}

impl Inner {
    /// Asks the upstreams, checks their response and caches it.
    async fn resolve(
        &self,
        query: &Query,
        group: &Group,
        may_be_private: bool,
        generation: u64,
    ) -> Resolved {
        let response = match group.resolve(query).await {
            Ok(response) => response,
            Err(error) => {
                debug!(name = %query.question.name, %error, "a name is not resolved");
                let failure = local(&query.question, code::SERVER_FAILURE, 0, &[]);
                self.keep_failure(query, failure, generation);
                return Resolved::Failed;
            }
        };
        let Ok(message) = Message::read(&response.message) else {
            return Resolved::Failed;
        };
        let is_protected = self.settings.rebinding_protection
            && !may_be_private
            && !special::has_private_answers(&query.question.name);
        if is_protected && let Some(address) = private::find(&message, &self.settings.own_networks)
        {
            self.warn_of(query, address);
            return Resolved::Private;
        }
        let stored = storable(&message, response.age);
        if !matches!(message.code(), code::NO_ERROR | code::NO_SUCH_NAME) {
            self.keep_failure(query, stored.clone(), generation);
            return Resolved::Failure(stored);
        }
        let kept = Message::read(&stored)
            .ok()
            .and_then(|message| lifetime(query, &message));
        if let Some(lifetime) = kept {
            let mut cache = self.cache();
            if self.generation.load(Ordering::Acquire) == generation {
                cache.insert(query, stored.clone(), lifetime, (self.clock)());
            }
        }
        Resolved::Response(stored)
    }

    /// Keeps a failure for a moment, but not in place of data that may still serve.
    fn keep_failure(&self, query: &Query, stored: Bytes, generation: u64) {
        let now = (self.clock)();
        let mut cache = self.cache();
        if self.generation.load(Ordering::Acquire) == generation
            && cache.find(query, now) == Cached::Missing
        {
            cache.insert(query, stored, FAILURE, now);
        }
    }

    /// The response to a client, after the observer has seen its addresses.
    fn reply(
        &self,
        client: &ClientQuery,
        stored: &[u8],
        age: Age,
        limit: usize,
        error: Option<u16>,
    ) -> Step {
        let Ok(reply) = render(client, stored, age, limit, error) else {
            self.counters.failed.count();
            return Step::Ignore;
        };
        let Ok(message) = Message::read(&reply) else {
            self.counters.failed.count();
            return Step::Ignore;
        };
        if message.flags & crate::wire::flag::TRUNCATED != 0 {
            self.counters.truncated.count();
        } else if let Some(observer) = &self.settings.observer {
            chain::report(&message, |names, address, ttl| {
                observer(names, address, ttl)
            });
        }
        Step::Reply(reply)
    }

    fn warn_of(&self, query: &Query, address: IpAddr) {
        let name = &query.question.name;
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        match log.count() {
            Some(refused) => warn!(
                %name, %address, refused,
                "a public name has an address of a private network, and is not answered; allow \
                the domain if it is yours"
            ),
            None => debug!(%name, %address, "a public name has a private address"),
        }
    }

    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
