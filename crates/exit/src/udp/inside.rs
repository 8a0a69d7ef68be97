//! A source without its sockets: its tables, its limits and the client's end.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info};

use super::client::{Client, Direction, Place, count};
use super::expiry::Expiry;
use super::limits::Account;
use super::names::Names;
use super::remotes::{Inbound, Remotes};
use crate::bucket::Bucket;
use crate::datagram::{DatagramSocket, FlowFailure, SendError};
use crate::egress::EgressPolicy;
use crate::target::{ECHO_PORT, Target};
use crate::udp_io::{Arrival, SocketError};

/// Reports to the client, at once and per second.
pub(super) const REPORTS: f64 = 64.0;

/// Bytes of payload from unsolicited remotes to one source: at once, and per second. Enough for
/// connectivity checks and a call; the client's links must not be flooded by anyone who finds the
/// port.
const STRANGERS: f64 = 128.0 * 1024.0;

/// A source without its sockets.
pub(super) struct Inside<'a, S> {
    pub(super) client: &'a Client,
    pub(super) place: Place<'a>,
    pub(super) socket: S,
    updates: watch::Receiver<Arc<EgressPolicy>>,
    pub(super) policy: Arc<EgressPolicy>,
    pub(super) remotes: Remotes,
    pub(super) names: Names,
    pub(super) expiry: Expiry,
    pub(super) account: Account,
    reports: Bucket,
    /// Bytes from unsolicited remotes.
    strangers: Bucket,
    pub(super) is_closed: bool,
}

impl<'a, S: DatagramSocket> Inside<'a, S> {
    pub(super) fn new(client: &'a Client, place: Place<'a>, socket: S) -> Self {
        let now = Instant::now();
        let settings = &client.settings;
        let mut updates = client.policy.clone();
        let policy = Arc::clone(&updates.borrow_and_update());
        Self {
            client,
            place,
            socket,
            updates,
            policy,
            remotes: Remotes::new(settings.remotes, settings.unsolicited),
            names: Names::new(settings.remotes),
            expiry: Expiry::new(settings.idle, settings.dns_idle, now),
            account: client.account(),
            reports: Bucket::new(REPORTS, REPORTS, now),
            strangers: Bucket::new(STRANGERS, STRANGERS, now),
            is_closed: false,
        }
    }

    pub(super) fn update_policy(&mut self) {
        // Without its sender, the policy stays as it is.
        if self.updates.has_changed().unwrap_or(false) {
            self.policy = Arc::clone(&self.updates.borrow_and_update());
            self.remotes.policy_changed();
        }
    }

    /// A datagram has arrived from a remote.
    pub(super) fn arrived(&mut self, arrival: Arrival<'_>, now: Instant) {
        let (client, remote) = (self.client, arrival.remote);
        // An answer without a request, or one so late that its remote was forgotten.
        if remote.port() == ECHO_PORT && self.remotes.target(&remote).is_none() {
            return;
        }
        let inbound = self
            .remotes
            .inbound(remote, &self.policy, &mut self.account, now);
        let target = match inbound {
            Inbound::Solicited(target) => {
                self.expiry.received(now);
                self.place.touch(now);
                target
            }
            Inbound::Unsolicited(target) => {
                if !self.strangers.take(arrival.payload.len(), now) {
                    return count(&client.counters.over_rate);
                }
                target
            }
            Inbound::Refused => return count(&client.counters.refused),
            Inbound::Full => return count(&client.counters.over_limit),
        };
        if !client.within_rate(Direction::ToClient, arrival.payload.len(), now) {
            return;
        }
        // A copy of its own size, so that the memory in use is the memory that queues count.
        let payload = Bytes::copy_from_slice(arrival.payload);
        self.is_closed |= !deliver(client, &self.socket, target, payload);
    }

    /// The server's resolvers have answered a query, or have not.
    pub(super) fn answered(
        &mut self,
        target: &Target,
        result: Result<Bytes, FlowFailure>,
        now: Instant,
    ) {
        let answer = match result {
            Ok(answer) => answer,
            Err(failure) => return self.report(target, failure, now),
        };
        self.expiry.received(now);
        self.place.touch(now);
        if self
            .client
            .within_rate(Direction::ToClient, answer.len(), now)
        {
            self.is_closed |= !deliver(self.client, &self.socket, target, answer);
        }
    }

    /// An ICMP error has arrived. One about a remote to which the client has not sent is forged, or
    /// late.
    pub(super) fn error(&mut self, error: SocketError, now: Instant) {
        if let Some(target) = self.remotes.target(&error.remote).cloned() {
            count(&self.client.counters.icmp_errors);
            self.report(&target, error.failure, now);
        }
    }

    pub(super) fn unsent(&mut self, remote: SocketAddr, failure: FlowFailure, now: Instant) {
        count(&self.client.counters.unsent);
        if let Some(target) = self.remotes.target(&remote).cloned() {
            self.report(&target, failure, now);
        }
    }

    pub(super) fn over_limit(&mut self, target: &Target, now: Instant) {
        count(&self.client.counters.over_limit);
        self.report(target, FlowFailure::LimitReached, now);
    }

    pub(super) fn report(&mut self, target: &Target, failure: FlowFailure, now: Instant) {
        if self.reports.take(1, now) {
            match failure {
                FlowFailure::NotAllowed if target.own_service().is_none() => {
                    info!(%target, "datagrams refused by the egress policy");
                }
                _ => debug!(%target, %failure, "a datagram does not reach its target"),
            }
            self.socket.report(target, failure);
        }
    }
}

/// Passes a datagram to the client; returns whether the client's end is still there.
pub(super) fn deliver(
    client: &Client,
    socket: &impl DatagramSocket,
    target: &Target,
    payload: Bytes,
) -> bool {
    match socket.send(target, payload, None) {
        Ok(()) => {
            count(&client.counters.received);
            true
        }
        Err(error) => {
            count(&client.counters.not_taken);
            error != SendError::Closed
        }
    }
}
