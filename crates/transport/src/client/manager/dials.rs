//! One link's dials and its path: when it is tried, and what becomes of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sumlink_engine::PathId;

use super::Manager;
use super::survey::Ways;
use crate::carrier::Carrier;
use crate::client::ConnectError;
use crate::driver::{CarrierNews, Command};
use crate::links::Link;
use crate::socket::Binding;

/// One link, as far as this session is concerned.
#[derive(Debug, Default)]
pub(super) struct LinkState {
    /// Its path and the path's local address.
    pub(super) path: Option<(PathId, SocketAddr)>,
    pub(super) dialing: bool,
    /// Failed dials in a row.
    failures: u32,
    /// No dial before.
    pub(super) retry_at: Option<Instant>,
    /// The link and its ways to the server when it was last looked at; a change is worth a dial at once.
    seen: Option<(Link, Ways)>,
}

/// How a dial went.
#[derive(Debug)]
pub(super) struct Dialed {
    link: String,
    result: Result<(Carrier, Binding), ConnectError>,
}

/// Pause before a link that failed is tried again; doubles up to the second value.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Links are looked at this often even when nothing was heard of them.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Manager {
    pub(super) fn use_link(&mut self, link: &Link, ways: Ways) {
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

    /// The link cannot be used at the moment.
    pub(super) fn leave(&mut self, name: &str, reason: &str) {
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

    pub(super) fn on_news(&mut self, news: CarrierNews) {
        match news {
            CarrierNews::Silent { id, link } => {
                // A new connection may get through where the old one waits for ever longer timeouts.
                let stuck = self.links.get(&link).is_some_and(|state| {
                    state.path.is_some_and(|(path, _)| path == id)
                        && !state.dialing
                        && state.retry_at.is_none_or(|at| at <= Instant::now())
                });
                if stuck {
                    self.dial(&link, self.servers.clone());
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

    /// Whether a path has joined; `connected` says whether one had before.
    pub(super) fn on_dialed(
        &mut self,
        dialed: Dialed,
        connected: bool,
    ) -> Result<bool, ConnectError> {
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
    pub(super) fn next_look(&self) -> Duration {
        let waiting = self
            .links
            .values()
            .filter(|state| state.path.is_none() && !state.dialing);
        // Counted from the last look: other news must not put it off for ever.
        let regular = self.looked + LOOK_EVERY;
        let retry = waiting.filter_map(|state| state.retry_at).min();
        let at = retry.map_or(regular, |retry| retry.min(regular));
        at.saturating_duration_since(Instant::now())
            .clamp(RETRY_PAUSE.0, LOOK_EVERY)
    }

    /// Tries the link, beside its present path if it has one.
    fn dial(&mut self, link: &str, servers: Vec<SocketAddr>) {
        if self.is_closing {
            return;
        }
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
}
