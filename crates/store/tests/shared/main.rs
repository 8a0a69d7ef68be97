//! Several servers with one database.
#![cfg(feature = "postgres")]

mod faults;

use std::sync::Barrier;
use std::thread;

use sumlink_store::{
    Change, Client, DatabaseUrl, Invitation, Location, Now, Quota, Registry, Secret, ServerEntry,
    Standing, Store, Traffic,
};
use sumlink_test_support::postgres::Postgres;
use sumlink_transport::PublicKey;

fn now() -> Now {
    Now {
        seconds: 1_000_000,
        today: "2026-11-20".parse().unwrap(),
    }
}

fn key(number: u8) -> PublicKey {
    PublicKey::from_bytes([number; 32]).unwrap()
}

fn location(url: &str) -> Location {
    Location::Database(DatabaseUrl::new(url, None).unwrap())
}

fn store(server: &Postgres) -> Box<dyn Store> {
    location(&server.url("sumlink")).open_or_create().unwrap()
}

fn registry(server: &Postgres) -> Registry {
    Registry::new(store(server)).unwrap()
}

fn invitation(number: u8) -> Invitation {
    let secret = Secret::from_bytes([number; 16]);
    Invitation {
        tag: secret.tag(),
        digest: secret.digest(),
        name: format!("client-{number}"),
        created: 1,
        expires: 2_000_000,
        quota: Some(Quota {
            bytes: 1000,
            reset_day: 1,
            beyond: None,
        }),
        client_expires: None,
    }
}

/// Adds a client; returns its name.
fn add(registry: &mut Registry, number: u8) -> String {
    registry.invite(invitation(number), now()).unwrap();
    let secret = Secret::from_bytes([number; 16]);
    let client = registry.redeem(&secret, key(number), now()).unwrap();
    client.unwrap().name.clone()
}

fn new_client(number: u8, name: &str) -> Client {
    Client {
        name: name.to_owned(),
        key: key(number),
        created: 1,
        disabled: false,
        expires: None,
        quota: None,
        traffic: Traffic::new(now().today, 1),
    }
}

#[test]
fn each_server_sees_what_the_others_change() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let (mut a, mut b) = (registry(&server), registry(&server));
    let name = add(&mut a, 1);
    b.sync(now()).unwrap();
    assert_eq!(b.client(&name).unwrap().key, key(1));
    // An invitation of one server serves at another.
    a.invite(invitation(2), now()).unwrap();
    b.sync(now()).unwrap();
    let secret = Secret::from_bytes([2; 16]);
    assert!(b.redeem(&secret, key(2), now()).unwrap().is_some());
    assert!(a.redeem(&secret, key(3), now()).unwrap().is_none());
    a.sync(now()).unwrap();
    assert_eq!(a.clients().count(), 2);

    b.change(&name, Change::Disabled(true)).unwrap();
    a.sync(now()).unwrap();
    let standing = a.standings(now()).next().unwrap().1;
    assert_eq!(standing, Standing::Disabled);
    b.remove(&name).unwrap();
    // The first server does not know that yet.
    assert!(a.change(&name, Change::Disabled(false)).is_err());
    a.sync(now()).unwrap();
    assert!(a.client(&name).is_err());
    assert_eq!(a.clients().count(), 1);
    // A name that another server has given away meanwhile.
    b.invite(invitation(5), now()).unwrap();
    let error = a.invite(invitation(5), now()).unwrap_err();
    assert!(error.to_string().contains("taken"), "{error}");
}

#[test]
fn a_quota_covers_the_usage_at_all_servers() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let (mut a, mut b) = (registry(&server), registry(&server));
    add(&mut a, 1);
    b.sync(now()).unwrap();
    for registry in [&mut a, &mut b] {
        registry.count(&[(key(1), 300, 200)], now());
        let standing = registry.standings(now()).next().unwrap().1;
        assert_eq!(standing, Standing::Good);
    }
    for registry in [&mut a, &mut b] {
        registry.flush().unwrap();
    }
    for registry in [&mut a, &mut b] {
        registry.sync(now()).unwrap();
        let (client, standing) = registry.standings(now()).next().unwrap();
        assert!(matches!(standing, Standing::UsedUp(_)));
        assert_eq!((client.traffic.sent, client.traffic.received), (600, 400));
    }
}

/// Each of these servers reads while the others write.
#[test]
fn nothing_of_many_servers_is_lost_or_counts_twice() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let mut first = registry(&server);
    for number in 1..=20 {
        add(&mut first, number);
    }
    const SERVERS: u64 = 4;
    const ROUNDS: u64 = 30;
    let start = Barrier::new(SERVERS as usize);
    let totals: Vec<Vec<u64>> = thread::scope(|scope| {
        let work = |_| {
            scope.spawn(|| {
                let mut own = registry(&server);
                start.wait();
                for _ in 0..ROUNDS {
                    let usage: Vec<_> = (1..=20).map(|number| (key(number), 1, 2)).collect();
                    own.count(&usage, now());
                    own.sync(now()).unwrap();
                }
                start.wait();
                own.sync(now()).unwrap();
                own.clients().map(|client| client.traffic.sent).collect()
            })
        };
        let threads: Vec<_> = (0..SERVERS).map(work).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    });
    for totals in totals {
        assert_eq!(totals, vec![SERVERS * ROUNDS; 20]);
    }
}

#[test]
fn one_of_many_servers_redeems_an_invitation() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let mut first = registry(&server);
    const SERVERS: usize = 6;
    let mut stores: Vec<_> = (0..SERVERS).map(|_| store(&server)).collect();
    for round in 1..=10_u8 {
        let open = invitation(round);
        first.invite(open.clone(), now()).unwrap();
        let start = Barrier::new(SERVERS);
        let winners = thread::scope(|scope| {
            let threads: Vec<_> = stores
                .iter_mut()
                .zip(100..)
                .map(|(store, number)| {
                    let (start, open) = (&start, &open);
                    scope.spawn(move || {
                        let client = new_client(number + round * 6, &open.name);
                        start.wait();
                        store.redeem(&open.tag, &client).unwrap()
                    })
                })
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap());
            joined.filter(|is_winner| *is_winner).count()
        });
        assert_eq!(winners, 1);
    }
    first.sync(now()).unwrap();
    assert_eq!(first.clients().count(), 10);
}

#[test]
fn servers_that_start_together_make_the_tables_once() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let start = Barrier::new(5);
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                start.wait();
                registry(&server);
            });
        }
    });
    assert_eq!(
        server.sql("sumlink", "SELECT version FROM sumlink_state"),
        "1"
    );
}

#[test]
fn servers_are_listed_for_a_day() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let (mut a, mut b) = (registry(&server), registry(&server));
    let entry = |number: u8, name: &str| ServerEntry {
        name: name.to_owned(),
        key: key(number),
        addresses: vec![format!("{name}.example.org:7443")],
    };
    assert_eq!(a.announce(&entry(1, "a")).unwrap(), [entry(1, "a")]);
    assert_eq!(
        b.announce(&entry(2, "b")).unwrap(),
        [entry(1, "a"), entry(2, "b")]
    );
    // A server with a new key has the same addresses.
    let both = [entry(3, "a"), entry(2, "b")];
    assert_eq!(a.announce(&entry(3, "a")).unwrap(), both);
    server.sql(
        "sumlink",
        "UPDATE sumlink_servers SET seen = now() - interval '25 hours'",
    );
    assert_eq!(a.announce(&entry(3, "a")).unwrap(), [entry(3, "a")]);
}
