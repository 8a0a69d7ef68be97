//! The clients of a running server.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::NaiveDate;
use sumlink_transport::PublicKey;

use crate::client::{NameError, check_name};
use crate::{
    Batch, Change, Client, Contents, Invitation, News, Now, Secret, ServerEntry, Standing, Store,
    StoreError, Tag, Traffic, Used,
};

/// All clients and invitations of a store, in memory.
///
/// The usage in memory is that of the store, as it was read last, and what this server has counted
/// since.
#[derive(Debug)]
pub struct Registry {
    store: Box<dyn Store>,
    clients: BTreeMap<String, Client>,
    invitations: BTreeMap<Tag, Invitation>,
    /// Usage that was not given to the store yet: bytes sent and received.
    counted: BTreeMap<(PublicKey, NaiveDate), (u64, u64)>,
    /// Usage that was given to the store, which has not confirmed it. It may have written it.
    sending: Option<Batch>,
    /// The number of the last batch.
    batches: u64,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The user's fault: there is no such client.
    #[error(
        "there is no client `{}` in the store, where an open invitation is none yet: `sumlink \
        clients list` shows all",
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

impl Registry {
    /// Reads a store.
    pub fn new(mut store: Box<dyn Store>) -> Result<Self, StoreError> {
        let contents = store.contents()?;
        let mut registry = Self {
            store,
            clients: BTreeMap::new(),
            invitations: BTreeMap::new(),
            counted: BTreeMap::new(),
            sending: None,
            batches: 0,
        };
        registry.replace(contents);
        Ok(registry)
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

    /// Changes a client, after its usage was written.
    pub fn change(&mut self, name: &str, change: Change) -> Result<&Client, ChangeError> {
        let key = self.client(name)?.key;
        self.flush()?;
        if !self.store.change(&key, &change)? {
            self.clients.remove(name);
        }
        if let Some(client) = self.clients.get_mut(name) {
            client.apply(&change);
        }
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
        let is_removed = self.store.remove(&key)?;
        self.counted.retain(|(counted, _), _| *counted != key);
        let removed = self.clients.remove(name).filter(|_| is_removed);
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
        if !self.store.invite(&invitation)? {
            return Err(ChangeError::NameTaken(invitation.name));
        }
        self.invitations.insert(invitation.tag, invitation);
        Ok(())
    }

    /// Ends the open invitation with this name and returns it; `None` if there is none.
    pub fn cancel(&mut self, name: &str) -> Result<Option<Invitation>, StoreError> {
        let mut open = self.invitations.values();
        let Some(tag) = open.find(|open| open.name == name).map(|open| open.tag) else {
            return Ok(None);
        };
        let is_cancelled = self.store.cancel(&tag)?;
        Ok(self.invitations.remove(&tag).filter(|_| is_cancelled))
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
                client.count(*sent, *received, now.today);
                let counted = self.counted.entry((*key, now.today)).or_default();
                counted.0 = counted.0.saturating_add(*sent);
                counted.1 = counted.1.saturating_add(*received);
            }
        }
    }

    /// Writes the usage that the store does not have yet. If that fails, the next call tries again,
    /// and nothing counts twice.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        if self.sending.is_none() && self.counted.is_empty() {
            return self.store.check();
        }
        while self.sending.is_some() || !self.counted.is_empty() {
            let counted = &mut self.counted;
            let batches = &mut self.batches;
            let batch = self.sending.get_or_insert_with(|| {
                *batches += 1;
                let used = std::mem::take(counted).into_iter();
                let used = used.map(|((key, day), (sent, received))| Used {
                    key,
                    day,
                    sent,
                    received,
                });
                Batch {
                    number: *batches,
                    used: used.collect(),
                }
            });
            self.store.count(batch)?;
            self.sending = None;
        }
        Ok(())
    }

    /// Bytes that were counted and are not known to be written.
    pub fn unwritten(&self) -> u64 {
        let sending = self.sending.iter().flat_map(|batch| &batch.used);
        let sending = sending.map(|used| used.sent.saturating_add(used.received));
        let counted = self.counted.values();
        let counted = counted.map(|(sent, received)| sent.saturating_add(*received));
        sending.chain(counted).fold(0, u64::saturating_add)
    }

    /// Writes the usage, forgets expired invitations, and takes over what other servers have
    /// changed.
    pub fn sync(&mut self, now: Now) -> Result<(), StoreError> {
        // In this order: the news contain the usage that was written.
        self.flush()?;
        self.forget_expired(now)?;
        match self.store.news()? {
            News::Clients(clients) => {
                for client in clients {
                    self.put(client);
                }
            }
            News::All(contents) => self.replace(contents),
        }
        Ok(())
    }

    /// Enters this server into the list of all servers of the store, and returns the list.
    pub fn announce(&mut self, server: &ServerEntry) -> Result<Vec<ServerEntry>, StoreError> {
        self.store.announce(server)?;
        self.store.servers()
    }

    /// The servers of the store.
    pub fn servers(&mut self) -> Result<Vec<ServerEntry>, StoreError> {
        self.store.servers()
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

    fn replace(&mut self, contents: Contents) {
        self.clients.clear();
        for client in contents.clients {
            self.put(client);
        }
        let invitations = contents.invitations.into_iter();
        self.invitations = invitations.map(|open| (open.tag, open)).collect();
    }

    /// Takes a client of the store over, with the usage that the store does not have yet.
    fn put(&mut self, mut client: Client) {
        for used in self.sending.iter().flat_map(|batch| &batch.used) {
            if used.key == client.key {
                client.count(used.sent, used.received, used.day);
            }
        }
        let days = (client.key, NaiveDate::MIN)..=(client.key, NaiveDate::MAX);
        for ((_, day), (sent, received)) in self.counted.range(days) {
            client.count(*sent, *received, *day);
        }
        self.clients.insert(client.name.clone(), client);
    }

    fn by_key(&self, key: &PublicKey) -> Option<&Client> {
        self.clients.values().find(|client| client.key == *key)
    }

    fn is_taken(&self, name: &str) -> bool {
        let mut open = self.invitations.values();
        self.clients.contains_key(name) || open.any(|open| open.name == name)
    }
}
