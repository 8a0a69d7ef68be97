//! The usage of each client, and restrictions that a program sets at run time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{ServerHandle, Shared};
use crate::carrier::Moved;
use crate::carrier::keys::PublicKey;
use crate::session::account::Account;

/// The bytes of a client on its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientUsage {
    /// The client.
    pub key: PublicKey,
    /// Bytes sent to it, with the headers of TCP, UDP and IP.
    pub sent: u64,
    /// Bytes received from it, likewise.
    pub received: u64,
}

/// A restriction of an authorized client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restriction {
    /// It gets no session, for this reason, which it is sent.
    Blocked(String),
    /// Its streams and datagrams together get at most this rate in each direction, in bit/s.
    Rate(u64),
}

/// The accounts of all clients.
#[derive(Debug, Default)]
pub(super) struct Accounts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Those of clients with sessions, or with usage that was not taken yet.
    open: HashMap<PublicKey, Arc<Account>>,
    restrictions: HashMap<PublicKey, Restriction>,
}

impl Accounts {
    /// The account of a client.
    pub(super) fn of(&self, client: &PublicKey) -> Arc<Account> {
        let mut state = self.state();
        let rate = state.rate(client);
        let account = state.open.entry(*client).or_insert_with(|| {
            let account = Account::default();
            account.pace.set(rate);
            Arc::new(account)
        });
        Arc::clone(account)
    }

    /// Why the client may have no session.
    pub(super) fn blocked(&self, client: &PublicKey) -> Option<String> {
        match self.state().restrictions.get(client) {
            Some(Restriction::Blocked(reason)) => Some(reason.clone()),
            _ => None,
        }
    }

    fn take(&self) -> Vec<ClientUsage> {
        let mut usage = Vec::new();
        self.state().open.retain(|key, account| {
            // Before the bytes are taken: the last session may end in between.
            let in_use = Arc::strong_count(account) > 1;
            let Moved { sent, received } = account.take();
            if sent > 0 || received > 0 {
                usage.push(ClientUsage {
                    key: *key,
                    sent,
                    received,
                });
            }
            in_use
        });
        usage
    }

    fn restrict(&self, restrictions: HashMap<PublicKey, Restriction>) {
        let mut state = self.state();
        state.restrictions = restrictions;
        for (key, account) in &state.open {
            account.pace.set(state.rate(key));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The rate limit of a client, in bytes per second.
    fn rate(&self, client: &PublicKey) -> Option<u64> {
        match self.restrictions.get(client) {
            Some(Restriction::Rate(rate)) => Some(rate / 8),
            _ => None,
        }
    }
}

impl ServerHandle {
    /// The usage of all clients since the last call; clients without any are left out.
    pub fn take_usage(&self) -> Vec<ClientUsage> {
        self.shared.accounts.take()
    }

    /// Replaces the restrictions of all clients. Sessions of blocked clients end.
    pub fn set_restrictions(&self, restrictions: HashMap<PublicKey, Restriction>) {
        self.shared.accounts.restrict(restrictions);
        for ((key, _), entry) in self.shared.sessions().iter() {
            if let Some(reason) = self.shared.accounts.blocked(key) {
                entry.close(&reason);
            }
        }
    }
}

impl Shared {
    /// The rate limit of a client's streams.
    pub(super) fn pace_of(&self, client: &PublicKey) -> Arc<sumlink_exit::pace::Pace> {
        Arc::clone(&self.accounts.of(client).pace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> PublicKey {
        PublicKey::from_bytes([byte; 32]).unwrap()
    }

    #[test]
    fn usage_is_taken_once_and_outlives_the_session() {
        let accounts = Accounts::default();
        let account = accounts.of(&key(7));
        let moved = Moved {
            sent: 5,
            received: 3,
        };
        account.count(moved);
        accounts.of(&key(7)).count(moved);
        let usage = ClientUsage {
            key: key(7),
            sent: 10,
            received: 6,
        };
        assert_eq!(accounts.take(), [usage]);
        assert_eq!(accounts.take(), []);
        account.count(moved);
        drop(account);
        assert_eq!(accounts.take().len(), 1);
        assert!(accounts.state().open.is_empty());
    }

    #[test]
    fn a_restriction_applies_to_its_client() {
        let accounts = Accounts::default();
        let blocked = Restriction::Blocked("used up".to_owned());
        accounts.restrict([(key(7), blocked), (key(8), Restriction::Rate(8000))].into());
        assert_eq!(accounts.blocked(&key(7)).as_deref(), Some("used up"));
        assert_eq!(accounts.blocked(&key(8)), None);
        assert_eq!(accounts.state().rate(&key(8)), Some(1000));
        accounts.restrict(HashMap::new());
        assert_eq!(accounts.blocked(&key(7)), None);
    }
}
