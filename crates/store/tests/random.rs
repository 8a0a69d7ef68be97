//! Random operations on a registry, in a file and in a database, and on a simple model of it. The
//! process "dies" at any time: then everything but usage that was not flushed is still there.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use sumlink_store::{
    Change, ChangeError, Invitation, Location, Now, Quota, Registry, Secret, Standing,
};
use sumlink_test_support::postgres::Postgres;
use sumlink_transport::PublicKey;

#[derive(Clone, Debug)]
enum Step {
    Invite {
        secret: u8,
        name: u8,
        seconds: u64,
    },
    Redeem {
        secret: u8,
        key: u8,
    },
    Disable(u8, bool),
    Quota(u8, Option<u64>),
    Remove(u8),
    Count {
        key: u8,
        sent: u64,
        received: u64,
    },
    Flush,
    /// The process ends without a flush, and another one opens the file.
    Die,
    Pass(u64),
    ForgetExpired,
}

#[derive(Clone, Debug, PartialEq)]
struct ModelClient {
    key: u8,
    disabled: bool,
    quota: Option<u64>,
    sent: u64,
    received: u64,
    /// The part that has been written.
    written: (u64, u64),
}

#[derive(Default)]
struct Model {
    clients: BTreeMap<String, ModelClient>,
    /// Name and end, by secret.
    open: BTreeMap<u8, (String, u64)>,
}

impl Model {
    fn has_name(&self, name: &str) -> bool {
        self.clients.contains_key(name) || self.open.values().any(|(open, _)| open == name)
    }

    /// The usage of all clients is written.
    fn write(&mut self) {
        for client in self.clients.values_mut() {
            client.written = (client.sent, client.received);
        }
    }

    fn of_key(&mut self, key: u8) -> Option<&mut ModelClient> {
        self.clients.values_mut().find(|client| client.key == key)
    }
}

fn step() -> impl Strategy<Value = Step> {
    let few = 0..4_u8;
    prop_oneof![
        3 => (few.clone(), few.clone(), 1..50_u64)
            .prop_map(|(secret, name, seconds)| Step::Invite { secret, name, seconds }),
        4 => (few.clone(), few.clone()).prop_map(|(secret, key)| Step::Redeem { secret, key }),
        1 => (few.clone(), any::<bool>()).prop_map(|(name, is)| Step::Disable(name, is)),
        2 => (few.clone(), proptest::option::of(1..100_u64))
            .prop_map(|(name, quota)| Step::Quota(name, quota)),
        1 => few.clone().prop_map(Step::Remove),
        4 => (few, 0..50_u64, 0..50_u64)
            .prop_map(|(key, sent, received)| Step::Count { key, sent, received }),
        2 => Just(Step::Flush),
        1 => Just(Step::Die),
        1 => (1..30_u64).prop_map(Step::Pass),
        1 => Just(Step::ForgetExpired),
    ]
}

fn secret(number: u8) -> Secret {
    Secret::from_bytes([number; 16])
}

fn key(number: u8) -> PublicKey {
    PublicKey::from_bytes([number + 7; 32]).unwrap()
}

fn name(number: u8) -> String {
    format!("n{number}")
}

fn quota(bytes: u64) -> Quota {
    Quota {
        bytes,
        reset_day: 1,
        beyond: None,
    }
}

#[test]
fn a_registry_in_a_file_does_what_its_model_does() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("clients.db");
    check(64, &Location::File(file.clone()), || {
        let _ = std::fs::remove_file(&file);
    });
}

#[test]
fn a_registry_in_a_database_does_what_its_model_does() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let url = sumlink_store::DatabaseUrl::new(&server.url("sumlink"), None).unwrap();
    check(16, &Location::Database(url), || {
        let tables = "DROP TABLE IF EXISTS sumlink_state, sumlink_clients, sumlink_invitations, \
                      sumlink_writers, sumlink_servers";
        server.sql("sumlink", tables);
    });
}

/// Tries random steps in an empty store each.
fn check(cases: u32, location: &Location, empty: impl Fn()) {
    let config = ProptestConfig {
        cases: cases.min(ProptestConfig::default().cases),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let steps = proptest::collection::vec(step(), 1..60);
    let result = TestRunner::new(config).run(&steps, |steps| {
        empty();
        try_steps(steps, location)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

fn try_steps(steps: Vec<Step>, location: &Location) -> Result<(), TestCaseError> {
    let open = || Registry::new(location.open_or_create().unwrap()).unwrap();
    let mut registry = Some(open());
    let mut model = Model::default();
    let mut now = Now {
        seconds: 1000,
        today: "2026-11-20".parse().unwrap(),
    };
    for step in steps {
        let live = registry.as_mut().unwrap();
        match step {
            Step::Invite {
                secret: number,
                name: of,
                seconds,
            } => {
                let invitation = Invitation {
                    tag: secret(number).tag(),
                    digest: secret(number).digest(),
                    name: name(of),
                    created: now.seconds,
                    expires: now.seconds + seconds,
                    quota: None,
                    client_expires: None,
                };
                model.open.retain(|_, (_, expires)| *expires > now.seconds);
                // A secret is drawn at random: the same one never returns while it is open.
                if model.open.contains_key(&number) {
                    continue;
                }
                let result = live.invite(invitation, now);
                if model.has_name(&name(of)) {
                    prop_assert!(matches!(result, Err(ChangeError::NameTaken(_))));
                } else {
                    prop_assert!(result.is_ok());
                    model.open.insert(number, (name(of), now.seconds + seconds));
                }
            }
            Step::Redeem {
                secret: number,
                key: of,
            } => {
                let redeemed = live.redeem(&secret(number), key(of), now).unwrap();
                let redeemed = redeemed.map(|client| client.name.clone());
                let open = model.open.get(&number).cloned();
                let open = open.filter(|(_, expires)| *expires > now.seconds);
                let expected = open.filter(|_| model.of_key(of).is_none());
                prop_assert_eq!(&redeemed, &expected.clone().map(|(name, _)| name));
                if let Some((name, _)) = expected {
                    model.open.remove(&number);
                    let client = ModelClient {
                        key: of,
                        disabled: false,
                        quota: None,
                        sent: 0,
                        received: 0,
                        written: (0, 0),
                    };
                    model.clients.insert(name, client);
                }
            }
            Step::Disable(of, is) => {
                let changed = live.change(&name(of), Change::Disabled(is)).is_ok();
                let client = model.clients.get_mut(&name(of));
                prop_assert_eq!(changed, client.is_some());
                if let Some(client) = client {
                    client.disabled = is;
                    model.write();
                }
            }
            Step::Quota(of, bytes) => {
                let change = Change::Quota(bytes.map(quota));
                let changed = live.change(&name(of), change).is_ok();
                let client = model.clients.get_mut(&name(of));
                prop_assert_eq!(changed, client.is_some());
                if let Some(client) = client {
                    client.quota = bytes;
                    model.write();
                }
            }
            Step::Remove(of) => {
                let removed = live.remove(&name(of)).is_ok();
                prop_assert_eq!(removed, model.clients.remove(&name(of)).is_some());
            }
            Step::Count {
                key: of,
                sent,
                received,
            } => {
                live.count(&[(key(of), sent, received)], now);
                if let Some(client) = model.of_key(of) {
                    client.sent += sent;
                    client.received += received;
                }
            }
            Step::Flush => {
                live.flush().unwrap();
                model.write();
            }
            Step::Die => {
                drop(registry.take());
                registry = Some(open());
                for client in model.clients.values_mut() {
                    (client.sent, client.received) = client.written;
                }
            }
            Step::Pass(seconds) => now.seconds += seconds,
            Step::ForgetExpired => {
                live.forget_expired(now).unwrap();
                model.open.retain(|_, (_, expires)| *expires > now.seconds);
            }
        }
        let live = registry.as_ref().unwrap();
        let found: BTreeMap<String, _> = live
            .standings(now)
            .map(|(client, standing)| {
                let traffic = &client.traffic;
                let is_used_up = matches!(standing, Standing::UsedUp(_));
                let values = (client.key, traffic.sent, traffic.received, client.disabled);
                (client.name.clone(), (values, is_used_up))
            })
            .collect();
        let expected: BTreeMap<String, _> = model
            .clients
            .iter()
            .map(|(name, client)| {
                let total = client.sent + client.received;
                let is_used_up = !client.disabled && client.quota.is_some_and(|q| total >= q);
                let values = (
                    key(client.key),
                    client.sent,
                    client.received,
                    client.disabled,
                );
                (name.clone(), (values, is_used_up))
            })
            .collect();
        prop_assert_eq!(found, expected);
        let open = live
            .invitations(now)
            .map(|open| open.name.clone())
            .collect::<Vec<_>>();
        let expected = model
            .open
            .values()
            .filter(|(_, expires)| *expires > now.seconds);
        let mut expected: Vec<_> = expected.map(|(name, _)| name.clone()).collect();
        let mut open = open;
        open.sort();
        expected.sort();
        prop_assert_eq!(open, expected);
    }
    Ok(())
}
