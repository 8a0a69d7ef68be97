//! Answers requests about clients from the store, and says which clients may connect.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;
use sumlink_store::{
    Change, ChangeError, Client, Invitation, InvitationLink, Now, Quota, Registry, Secret,
    ServerEntry, Standing, Store, StoreError, check_name,
};
use sumlink_transport::config::AuthorizedClient;
use sumlink_transport::policy::Beyond;
use sumlink_transport::{PublicKey, Restriction};

use super::report::{ClientReport, InviteReport};
use crate::config::ClientsSettings;
use crate::control::{ClientsRequest, InviteRequest, Refusal, RefusalKind};
use crate::table;

/// The store, the clients of the configuration, and the values for invitations.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) registry: Registry,
    /// The clients of the configuration.
    pub(super) configured: Vec<AuthorizedClient>,
    beyond: Beyond,
    pub(super) server_key: PublicKey,
}

/// The clients that may connect, and how far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) authorized: Vec<(PublicKey, String)>,
    pub(super) restrictions: HashMap<PublicKey, Restriction>,
}

impl Desk {
    pub(super) fn new(
        store: Box<dyn Store>,
        settings: &ClientsSettings,
        server_key: PublicKey,
        configured: Vec<AuthorizedClient>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            registry: Registry::new(store)?,
            configured,
            beyond: settings.beyond,
            server_key,
        })
    }

    /// Answers a request.
    pub(super) fn answer(&mut self, asked: ClientsRequest, now: Now) -> Result<Value, Refusal> {
        match asked {
            ClientsRequest::List {} => {
                let stored = self.registry.clients();
                let mut all: Vec<ClientReport> = stored
                    .map(|client| ClientReport::of(client, now, self.beyond))
                    .collect();
                let others = self.configured.iter().filter(|other| {
                    let mut stored = self.registry.clients();
                    stored.all(|client| client.key != other.key)
                });
                all.extend(
                    others
                        .map(|other| ClientReport::configured(&other.name, other.key.to_string())),
                );
                let open = self.registry.invitations(now);
                all.extend(open.map(|open| ClientReport::invited(open, self.beyond)));
                value(&all)
            }
            ClientsRequest::Show { name } => self.report(&name, now),
            ClientsRequest::Disable { name } => self.change(&name, Change::Disabled(true), now),
            ClientsRequest::Enable { name } => self.change(&name, Change::Disabled(false), now),
            ClientsRequest::Quota { name, quota } => {
                if quota.is_some_and(|quota| !is_valid(&quota)) {
                    return Err(usage(BAD_QUOTA));
                }
                self.change(&name, Change::Quota(quota), now)
            }
            ClientsRequest::Remove { name } => {
                self.must_be_stored(&name)?;
                if let Some(open) = self.registry.cancel(&name).map_err(|e| refusal(e.into()))? {
                    return value(&ClientReport::invited(&open, self.beyond));
                }
                let removed = self.registry.remove(&name).map_err(refusal)?;
                value(&ClientReport::of(&removed, now, self.beyond))
            }
            ClientsRequest::Expire { name, seconds } => {
                let expires = seconds.map(|seconds| now.seconds.saturating_add(seconds));
                self.change(&name, Change::Expires(expires), now)
            }
            ClientsRequest::Backup { file } => {
                let copied = self.registry.back_up(&file);
                copied.map_err(|error| refusal(error.into()))?;
                value(&serde_json::json!({ "file": file }))
            }
            ClientsRequest::Invite(asked) => self.invite(asked, now),
        }
    }

    /// Makes the holder of a secret a client; `None` if no open invitation has it.
    pub(super) fn redeem(
        &mut self,
        secret: [u8; 16],
        key: PublicKey,
        now: Now,
    ) -> Result<Option<String>, StoreError> {
        let secret = Secret::from_bytes(secret);
        let client = self.registry.redeem(&secret, key, now)?;
        Ok(client.map(|client| client.name.clone()))
    }

    /// The clients that may connect now. A client of the configuration may in any case; its name
    /// and ports are those of the configuration, its quota that of the store.
    pub(super) fn admission(&self, now: Now) -> Admission {
        let mut admission = Admission::default();
        let configured: HashMap<PublicKey, &AuthorizedClient> = self
            .configured
            .iter()
            .map(|client| (client.key, client))
            .collect();
        for (client, standing) in self.registry.standings(now) {
            let is_configured = configured.contains_key(&client.key);
            match standing {
                Standing::Disabled | Standing::Expired => continue,
                Standing::UsedUp(until) => {
                    let restriction = self.restriction(client, until);
                    admission.restrictions.insert(client.key, restriction);
                }
                _ => {}
            }
            if !is_configured {
                let name = client.name.clone();
                admission.authorized.push((client.key, name));
            }
        }
        admission
    }

    fn restriction(&self, client: &Client, until: chrono::NaiveDate) -> Restriction {
        let beyond = client.quota.and_then(|quota| quota.beyond);
        match beyond.unwrap_or(self.beyond) {
            Beyond::Limit(rate) => Restriction::Rate(rate),
            _ => {
                let quota = table::bytes(client.quota.map_or(0, |quota| quota.bytes));
                Restriction::Blocked(format!(
                    "the quota of {quota} a month is used up; the next month begins on {until}"
                ))
            }
        }
    }

    fn invite(&mut self, asked: InviteRequest, now: Now) -> Result<Value, Refusal> {
        let name = asked.name.unwrap_or_else(|| self.registry.free_name());
        check_name(&name).map_err(|error| usage(&error.to_string()))?;
        if self.configured.iter().any(|client| client.name == name) {
            return Err(refusal(ChangeError::NameTaken(name)));
        }
        if asked.addresses.is_empty() {
            return Err(usage(
                "no address of the server is known: give --address HOST:PORT, as clients reach it",
            ));
        }
        if asked.addresses.len() > InvitationLink::MAX_ADDRESSES {
            let most = InvitationLink::MAX_ADDRESSES;
            return Err(usage(&format!(
                "an invitation has at most {most} addresses: give fewer with --address"
            )));
        }
        if asked.quota.is_some_and(|quota| !is_valid(&quota)) {
            return Err(usage(BAD_QUOTA));
        }
        let secret = Secret::generate().ok_or_else(|| Refusal {
            error: "the operating system has no random numbers yet: try again later".to_owned(),
            kind: RefusalKind::Other,
        })?;
        let after = |seconds| now.seconds.saturating_add(seconds);
        let expires = after(asked.seconds);
        let invitation = Invitation {
            tag: secret.tag(),
            digest: secret.digest(),
            name: name.clone(),
            created: now.seconds,
            expires,
            quota: asked.quota,
            client_expires: asked.client_seconds.map(after),
        };
        let link = InvitationLink {
            others: self.others(&asked.addresses),
            addresses: asked.addresses.clone(),
            server_key: self.server_key,
            secret,
        };
        let again = link.to_string().parse::<InvitationLink>();
        if !again.is_ok_and(|again| again.addresses == link.addresses) {
            let addresses = asked.addresses.join(", ");
            return Err(usage(&format!(
                "not addresses that clients can use: {addresses}; give HOST:PORT with --address"
            )));
        }
        self.registry.invite(invitation, now).map_err(refusal)?;
        value(&InviteReport {
            invitation: link.to_string(),
            name,
            expires,
            addresses: asked.addresses,
        })
    }

    /// The other servers of the store, as far as an invitation has room for them.
    fn others(&mut self, own: &[String]) -> Vec<(String, PublicKey)> {
        let servers = self.registry.servers().unwrap_or_else(|error| {
            tracing::warn!(%error, "the invitation names no other server");
            Vec::new()
        });
        let is_other = |server: &ServerEntry| !server.addresses.iter().any(|a| own.contains(a));
        let others = servers.into_iter().filter(is_other);
        let first = |server: ServerEntry| Some((server.addresses.first()?.clone(), server.key));
        let room = InvitationLink::MAX_ADDRESSES.saturating_sub(own.len());
        others.filter_map(first).take(room).collect()
    }

    fn change(&mut self, name: &str, change: Change, now: Now) -> Result<Value, Refusal> {
        self.must_be_stored(name)?;
        self.registry.change(name, change).map_err(refusal)?;
        self.report(name, now)
    }

    fn report(&self, name: &str, now: Now) -> Result<Value, Refusal> {
        let configured = self.configured.iter().find(|client| client.name == name);
        let mut open = self.registry.invitations(now);
        if let Some(open) = open.find(|open| open.name == name) {
            return value(&ClientReport::invited(open, self.beyond));
        }
        match (self.registry.client(name), configured) {
            (Ok(client), _) => value(&ClientReport::of(client, now, self.beyond)),
            (_, Some(client)) => value(&ClientReport::configured(name, client.key.to_string())),
            (Err(error), _) => Err(refusal(error)),
        }
    }

    /// Refuses changes of clients of the configuration.
    fn must_be_stored(&self, name: &str) -> Result<(), Refusal> {
        let key = self.registry.client(name).map(|client| client.key);
        let by_configuration = |client: &AuthorizedClient| match &key {
            Ok(key) => client.key == *key,
            Err(_) => client.name == name,
        };
        match self.configured.iter().any(by_configuration) {
            true => Err(usage(&format!(
                "`{name}` is a client of the server's configuration: change it there"
            ))),
            false => Ok(()),
        }
    }
}

/// The reason to refuse a quota.
const BAD_QUOTA: &str = "a quota has at least one byte, and a reset day from 1 to 31";

fn is_valid(quota: &Quota) -> bool {
    quota.bytes > 0 && (1..=31).contains(&quota.reset_day)
}

fn value(answer: &impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(answer).map_err(|error| Refusal {
        error: error.to_string(),
        kind: RefusalKind::Other,
    })
}

fn usage(reason: &str) -> Refusal {
    Refusal {
        error: reason.to_owned(),
        kind: RefusalKind::Usage,
    }
}

fn refusal(error: ChangeError) -> Refusal {
    let kind = match error {
        ChangeError::Store(StoreError::HasOwnBackUp(_)) => RefusalKind::Usage,
        ChangeError::Store(_) => RefusalKind::Other,
        _ => RefusalKind::Usage,
    };
    Refusal {
        error: error.to_string(),
        kind,
    }
}
