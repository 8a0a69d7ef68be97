//! The clients of a running server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sumlink_transport::PublicKey;

use crate::client::{NameError, check_name};
use crate::{Client, Invitation, Now, Quota, Secret, Standing, Store, StoreError, Tag, Traffic};

/// All clients and invitations of a store, in memory.
#[derive(Debug)]
pub struct Registry<S> {
    store: S,
    clients: BTreeMap<String, Client>,
    invitations: BTreeMap<Tag, Invitation>,
    /// The clients with usage that the store does not have yet.
    unwritten: BTreeSet<PublicKey>,
}

/// A change of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It may not connect, or may connect again.
    Disabled(bool),
    /// It has this quota from now on, or none.
    Quota(Option<Quota>),
    /// It may not connect from this time on, in seconds since 1970.
    Expires(Option<u64>),
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The user's fault: there is no such client.
    #[error(
        "there is no client `{}` in the store: `sumlink clients list` shows all",
        .0.escape_debug()
    )]
    NoSuchClient(String),
    /// The user's fault: the name belongs to another client or invitation.
    #[error("the name `{0}` is taken by a client or an open invitation: choose another")]
    NameTaken(String),
    /// The user's fault: the name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The user's fault: too many invitations are open.
    #[error("{MAX_INVITATIONS} invitations are open: wait for one of them to end")]
    TooMany,
    /// The store cannot be written; nothing changed.
    #[error("nothing changed: {0}")]
    Store(#[from] StoreError),
}

/// Most open invitations.
const MAX_INVITATIONS: usize = 1000;

impl<S: Store> Registry<S> {
    /// Reads a store.
    pub fn new(mut store: S) -> Result<Self, StoreError> {
        let clients = store.clients()?.into_iter();
        let clients = clients
            .map(|client| (client.name.clone(), client))
            .collect();
        let invitations = store.invitations()?.into_iter();
        let invitations = invitations.map(|open| (open.tag, open)).collect();
        Ok(Self {
            store,
            clients,
            invitations,
            unwritten: BTreeSet::new(),
        })
    }

    /// All clients, by name.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        self.clients.values()
    }

    /// The client with this name.
    pub fn client(&self, name: &str) -> Result<&Client, ChangeError> {
        let client = self.clients.get(name);
        client.ok_or_else(|| ChangeError::NoSuchClient(name.to_owned()))
    }

    /// The invitations that are open now.
    pub fn invitations(&self, now: Now) -> impl Iterator<Item = &Invitation> {
        let open = self.invitations.values();
        open.filter(move |open| open.expires > now.seconds)
    }

    /// Changes a client and writes it.
    pub fn change(&mut self, name: &str, change: Change) -> Result<&Client, ChangeError> {
        let mut changed = self.client(name)?.clone();
        match change {
            Change::Disabled(disabled) => changed.disabled = disabled,
            Change::Quota(quota) => changed.quota = quota,
            Change::Expires(expires) => changed.expires = expires,
        }
        self.store.write(&[&changed])?;
        self.unwritten.remove(&changed.key);
        self.clients.insert(name.to_owned(), changed);
        self.client(name)
    }

    /// Copies the store to a new file, the usage of this moment included.
    pub fn back_up(&mut self, copy: &Path) -> Result<(), StoreError> {
        self.flush()?;
        self.store.back_up(copy)
    }

    /// Removes a client and returns it.
    pub fn remove(&mut self, name: &str) -> Result<Client, ChangeError> {
        let key = self.client(name)?.key;
        self.store.remove(&key)?;
        self.unwritten.remove(&key);
        let removed = self.clients.remove(name);
        removed.ok_or_else(|| ChangeError::NoSuchClient(name.to_owned()))
    }

    /// A name that no client and no invitation has: `client-1`, or the next number.
    pub fn free_name(&self) -> String {
        let mut numbers = 1..;
        let name = numbers.find_map(|number| {
            let name = format!("client-{number}");
            (!self.is_taken(&name)).then_some(name)
        });
        name.unwrap_or_default()
    }

    /// Adds an invitation.
    pub fn invite(&mut self, invitation: Invitation, now: Now) -> Result<(), ChangeError> {
        check_name(&invitation.name)?;
        self.forget_expired(now)?;
        if self.is_taken(&invitation.name) {
            return Err(ChangeError::NameTaken(invitation.name));
        }
        if self.invitations.len() >= MAX_INVITATIONS {
            return Err(ChangeError::TooMany);
        }
        self.store.invite(&invitation)?;
        self.invitations.insert(invitation.tag, invitation);
        Ok(())
    }

    /// Ends the open invitation with this name and returns it; `None` if there is none.
    pub fn cancel(&mut self, name: &str) -> Result<Option<Invitation>, StoreError> {
        let mut open = self.invitations.values();
        let Some(tag) = open.find(|open| open.name == name).map(|open| open.tag) else {
            return Ok(None);
        };
        self.store.cancel(&tag)?;
        Ok(self.invitations.remove(&tag))
    }

    /// Makes the holder of the secret a client; `None` if no open invitation has it, or if the key
    /// is a client's already. An invitation serves once.
    pub fn redeem(
        &mut self,
        secret: &Secret,
        key: PublicKey,
        now: Now,
    ) -> Result<Option<&Client>, StoreError> {
        let tag = secret.tag();
        let open = self.invitations.get(&tag);
        let open = open.filter(|open| open.digest.matches(secret) && open.expires > now.seconds);
        let Some(open) = open.filter(|_| self.by_key(&key).is_none()) else {
            return Ok(None);
        };
        let client = Client {
            name: open.name.clone(),
            key,
            created: now.seconds,
            disabled: false,
            expires: open.client_expires,
            quota: open.quota,
            traffic: Traffic::new(now.today, open.quota.map_or(1, |quota| quota.reset_day)),
        };
        let is_redeemed = self.store.redeem(&tag, &client)?;
        self.invitations.remove(&tag);
        let name = client.name.clone();
        if is_redeemed {
            self.clients.insert(name.clone(), client);
        }
        Ok(self.clients.get(&name).filter(|_| is_redeemed))
    }

    /// Adds to the usage of clients: bytes sent to them and received from them, by key.
    /// [`Registry::flush`] writes it. Other keys are ignored.
    pub fn count(&mut self, usage: &[(PublicKey, u64, u64)], now: Now) {
        if usage.is_empty() {
            return;
        }
        let names: BTreeMap<PublicKey, String> = self
            .clients
            .values()
            .map(|client| (client.key, client.name.clone()))
            .collect();
        for (key, sent, received) in usage {
            let client = names.get(key).and_then(|name| self.clients.get_mut(name));
            if let Some(client) = client {
                client.count(*sent, *received, now);
                self.unwritten.insert(*key);
            }
        }
    }

    /// Writes the usage that the store does not have yet, in one transaction. If that fails, the
    /// next call tries again.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        if self.unwritten.is_empty() {
            return self.store.check();
        }
        let clients = self.clients.values();
        let dirty: Vec<&Client> = clients
            .filter(|client| self.unwritten.contains(&client.key))
            .collect();
        self.store.write(&dirty)?;
        self.unwritten.clear();
        Ok(())
    }

    /// Removes the invitations that have expired.
    pub fn forget_expired(&mut self, now: Now) -> Result<(), StoreError> {
        let mut open = self.invitations.values();
        if open.any(|open| open.expires <= now.seconds) {
            self.store.forget_expired(now.seconds)?;
            self.invitations
                .retain(|_, open| open.expires > now.seconds);
        }
        Ok(())
    }

    /// The clients with what they may do now.
    pub fn standings(&self, now: Now) -> impl Iterator<Item = (&Client, Standing)> {
        let clients = self.clients.values();
        clients.map(move |client| (client, client.standing(now)))
    }

    fn by_key(&self, key: &PublicKey) -> Option<&Client> {
        self.clients.values().find(|client| client.key == *key)
    }

    fn is_taken(&self, name: &str) -> bool {
        let mut open = self.invitations.values();
        self.clients.contains_key(name) || open.any(|open| open.name == name)
    }
}
