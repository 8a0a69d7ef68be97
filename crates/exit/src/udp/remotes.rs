//! The remotes of a source: who may send and receive, and by which target the client knows them.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::limits::Account;
use crate::egress::EgressPolicy;
use crate::recent::Recent;
use crate::target::{Host, Target};

/// Memory of a remote in bytes: its entry, and its place in two indexes. A name comes on top.
pub(super) const REMOTE_COST: usize = 256;

/// Silence after which an unsolicited remote makes room for another one. Without it, a flood from
/// many forged addresses would open a flow at the client for each of them.
pub(super) const UNSOLICITED_LIFETIME: Duration = Duration::from_secs(30);

/// Refused remotes that are remembered. The policy checks others each time.
const MAX_REFUSED: usize = 64;

/// Least time between two reports about one refused remote.
const REPORT_PAUSE: Duration = Duration::from_secs(1);

/// The remotes of one source. The policy decides about each remote once after every change.
#[derive(Debug)]
pub(super) struct Remotes {
    most: usize,
    max_unsolicited: usize,
    /// Remotes to which the client has sent.
    solicited: Recent<SocketAddr, Remote>,
    /// Other remotes, which have sent only.
    unsolicited: Recent<SocketAddr, Remote>,
    /// Refused remotes, and the last report about each.
    refused: Recent<SocketAddr, Instant>,
    /// The number of changes of the policy.
    generation: u64,
}

#[derive(Debug)]
struct Remote {
    /// How the client calls the remote.
    target: Target,
    /// The policy that has allowed it.
    generation: u64,
    /// When it last sent; only for unsolicited ones.
    heard: Instant,
}

/// The fate of a datagram from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outbound {
    /// It is sent.
    Allowed,
    /// The policy refuses the remote.
    Refused {
        /// The client is due a report.
        report: bool,
    },
    /// The client has no memory left for another remote.
    Full,
}

/// The fate of a datagram from a remote.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inbound<'a> {
    /// It goes to the client, from this target.
    Solicited(&'a Target),
    /// The same, from a remote to which the client has not sent.
    Unsolicited(&'a Target),
    /// The policy refuses the remote.
    Refused,
    /// There are too many remotes to which the client has not sent.
    Full,
}

impl Remotes {
    pub(super) fn new(most: usize, max_unsolicited: usize) -> Self {
        Self {
            most: most.max(1),
            max_unsolicited,
            solicited: Recent::default(),
            unsolicited: Recent::default(),
            refused: Recent::default(),
            generation: 0,
        }
    }

    /// The policy has changed: every remote is checked again.
    pub(super) fn policy_changed(&mut self) {
        self.generation += 1;
        self.refused = Recent::default();
    }

    /// The client sends to `address`, which it calls `target`.
    pub(super) fn outbound(
        &mut self,
        address: SocketAddr,
        target: &Target,
        policy: &EgressPolicy,
        account: &mut Account,
        now: Instant,
    ) -> Outbound {
        let generation = self.generation;
        if let Some(remote) = self.solicited.touch(&address) {
            if remote.generation == generation || policy.check(address.ip(), address.port()).is_ok()
            {
                remote.generation = generation;
                if remote.target != *target {
                    account.release(cost(&remote.target));
                    // Less than before, or at most a name more than was free.
                    if !account.charge(cost(target)) {
                        self.solicited.remove(&address);
                        return Outbound::Full;
                    }
                    remote.target = target.clone();
                }
                return Outbound::Allowed;
            }
            if let Some(remote) = self.solicited.remove(&address) {
                account.release(cost(&remote.target));
            }
            return self.refuse(address, now);
        }
        if self.refused.get(&address).is_some()
            || policy.check(address.ip(), address.port()).is_err()
        {
            return self.refuse(address, now);
        }
        if let Some(remote) = self.unsolicited.remove(&address) {
            account.release(cost(&remote.target));
        }
        if self.solicited.len() >= self.most
            && let Some((_, remote)) = self.solicited.pop_oldest()
        {
            account.release(cost(&remote.target));
        }
        while !account.charge(cost(target)) {
            if !self.forget_oldest(account) {
                return Outbound::Full;
            }
        }
        let remote = Remote {
            target: target.clone(),
            generation,
            heard: now,
        };
        self.solicited.insert(address, remote);
        Outbound::Allowed
    }

    /// A datagram has arrived from `address`.
    pub(super) fn inbound(
        &mut self,
        address: SocketAddr,
        policy: &EgressPolicy,
        account: &mut Account,
        now: Instant,
    ) -> Inbound<'_> {
        for solicited in [true, false] {
            let remotes = match solicited {
                true => &mut self.solicited,
                false => &mut self.unsolicited,
            };
            let Some(remote) = remotes.touch(&address) else {
                continue;
            };
            if remote.generation != self.generation
                && policy.check(address.ip(), address.port()).is_err()
            {
                if let Some(remote) = remotes.remove(&address) {
                    account.release(cost(&remote.target));
                }
                return Inbound::Refused;
            }
            remote.generation = self.generation;
            remote.heard = now;
            let target = match solicited {
                true => self.solicited.get(&address),
                false => self.unsolicited.get(&address),
            };
            return match target {
                Some(remote) if solicited => Inbound::Solicited(&remote.target),
                Some(remote) => Inbound::Unsolicited(&remote.target),
                None => Inbound::Full,
            };
        }
        if self.unsolicited.len() >= self.max_unsolicited {
            let oldest = self.unsolicited.oldest().map(|(_, remote)| remote.heard);
            let is_silent = |heard| now.saturating_duration_since(heard) >= UNSOLICITED_LIFETIME;
            if !oldest.is_some_and(is_silent) {
                return Inbound::Full;
            }
            if let Some((_, remote)) = self.unsolicited.pop_oldest() {
                account.release(cost(&remote.target));
            }
        }
        if policy.check(address.ip(), address.port()).is_err() {
            return Inbound::Refused;
        }
        let target = Target::from(address);
        if !account.charge(cost(&target)) {
            return Inbound::Full;
        }
        let remote = Remote {
            target,
            generation: self.generation,
            heard: now,
        };
        self.unsolicited.insert(address, remote);
        match self.unsolicited.get(&address) {
            Some(remote) => Inbound::Unsolicited(&remote.target),
            None => Inbound::Full,
        }
    }

    /// How the client calls a remote to which it has sent.
    pub(super) fn target(&self, address: &SocketAddr) -> Option<&Target> {
        self.solicited.get(address).map(|remote| &remote.target)
    }

    fn refuse(&mut self, address: SocketAddr, now: Instant) -> Outbound {
        let is_due = |at: &Instant| now.saturating_duration_since(*at) >= REPORT_PAUSE;
        let report = match self.refused.touch(&address) {
            Some(at) if is_due(at) => {
                *at = now;
                true
            }
            Some(_) => false,
            None => {
                if self.refused.len() >= MAX_REFUSED {
                    self.refused.pop_oldest();
                }
                self.refused.insert(address, now);
                true
            }
        };
        Outbound::Refused { report }
    }

    /// Frees memory for a remote to which the client sends.
    fn forget_oldest(&mut self, account: &mut Account) -> bool {
        let oldest = self.unsolicited.pop_oldest();
        let oldest = oldest.or_else(|| self.solicited.pop_oldest());
        if let Some((_, remote)) = &oldest {
            account.release(cost(&remote.target));
        }
        oldest.is_some()
    }
}

fn cost(target: &Target) -> usize {
    REMOTE_COST
        + match &target.host {
            Host::Name(name) => name.len(),
            Host::Ip(_) => 0,
        }
}

#[cfg(test)]
mod tests;
