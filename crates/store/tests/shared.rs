//! Several servers with one database, and its faults.
#![cfg(feature = "postgres")]

use std::sync::Barrier;
use std::thread;

use sumlink_store::{
    Change, Client, DatabaseUrl, Invitation, Location, Now, Quota, Registry, Secret, ServerEntry,
    Standing, Store, StoreError, Traffic,
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

/// The last line of an error, which must be the only one.
#[track_caller]
fn line(error: &StoreError, words: &str) {
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(words), "{text}");
    assert!(!text.contains("secret"), "{text}");
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
fn usage_of_an_outage_is_written_once() {
    let Some(mut server) = Postgres::start() else {
        return;
    };
    let (mut a, mut b) = (registry(&server), registry(&server));
    let name = add(&mut a, 1);
    b.sync(now()).unwrap();
    a.count(&[(key(1), 1, 0)], now());
    a.sync(now()).unwrap();
    server.stop();
    for _ in 0..3 {
        for registry in [&mut a, &mut b] {
            registry.count(&[(key(1), 10, 0)], now());
            let error = registry.sync(now()).unwrap_err();
            assert!(error.may_pass(), "{error}");
        }
    }
    // The client stays known, with what this server has counted.
    assert_eq!(a.client(&name).unwrap().traffic.sent, 31);
    assert_eq!((a.unwritten(), b.unwritten()), (30, 30));
    let refused = a.invite(invitation(2), now()).unwrap_err().to_string();
    assert!(
        refused.starts_with("nothing changed: postgres://"),
        "{refused}"
    );
    server.run();
    for registry in [&mut a, &mut b] {
        // Attempts pause after one that failed.
        while registry.sync(now()).is_err() {
            thread::yield_now();
        }
    }
    a.sync(now()).unwrap();
    for registry in [&a, &b] {
        assert_eq!(registry.client(&name).unwrap().traffic.sent, 61);
        assert_eq!(registry.unwritten(), 0);
    }
}

/// A connection is cut at a random moment, also between a commit and its answer.
#[test]
fn a_cut_connection_loses_nothing_and_counts_nothing_twice() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let mut own = registry(&server);
    let name = add(&mut own, 1);
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE application_name = 'sumlink'";
    let rounds = 30;
    thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut cuts = 0;
            for _ in 0..rounds {
                own.count(&[(key(1), 1, 1)], now());
                while own.sync(now()).is_err() {
                    cuts += 1;
                }
            }
            cuts
        });
        while !counting.is_finished() {
            server.sql("sumlink", cut);
        }
        assert!(counting.join().unwrap() > 0);
    });
    let written = server.sql("sumlink", "SELECT sent FROM sumlink_clients");
    assert_eq!(written, rounds.to_string());
    let traffic = own.client(&name).unwrap().traffic;
    assert_eq!((traffic.sent, traffic.received), (rounds, rounds));
}

#[test]
fn a_database_that_cannot_be_used_is_refused_with_one_line() {
    let Some(mut server) = Postgres::start() else {
        return;
    };
    let refused = |url: &str| location(url).open_or_create().unwrap_err();
    let denied = [
        (
            server.tcp_url("sumlink:wrong-secret", "sumlink"),
            "password authentication failed",
        ),
        (
            server.tcp_url("nobody:wrong-secret", "sumlink"),
            "password authentication failed",
        ),
        (
            server.tcp_url("sumlink:secret", "absent"),
            "\"absent\" does not exist",
        ),
        (server.tcp_url("sumlink", "sumlink"), "password missing"),
        (
            server.tcp_url("sumlink:secret", "postgres"),
            "permission denied for schema public",
        ),
        (
            server.tcp_url("sumlink:secret", "sumlink") + "?sslmode=require",
            "server does not support TLS",
        ),
    ];
    for (url, words) in denied {
        let error = refused(&url);
        assert!(matches!(error, StoreError::Denied { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(words) && text.lines().count() == 1, "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
    let missing = location(&server.url("sumlink")).open().unwrap_err();
    assert!(matches!(missing, StoreError::Missing(_)), "{missing}");

    let url = server.url("sumlink");
    server.sql(
        "postgres",
        "ALTER DATABASE sumlink SET default_transaction_read_only = on",
    );
    line(&refused(&url), "is read-only");
    server.sql(
        "postgres",
        "ALTER DATABASE sumlink RESET default_transaction_read_only",
    );
    drop(registry(&server));
    let mut running = registry(&server);
    server.sql("sumlink", "UPDATE sumlink_state SET version = 99");
    line(&refused(&url), "format 99");
    line(&running.sync(now()).unwrap_err(), "format 99");
    server.sql("sumlink", "UPDATE sumlink_state SET version = 1");
    running.sync(now()).unwrap();
    server.sql("sumlink", "ALTER TABLE sumlink_clients RENAME TO aside");
    line(&running.sync(now()).unwrap_err(), "sumlink_clients");
    server.sql("sumlink", "ALTER TABLE aside RENAME TO sumlink_clients");

    let copy = running.back_up(std::path::Path::new("copy")).unwrap_err();
    line(&copy, "pg_dump");
    server.stop();
    let error = refused(&server.tcp_url("sumlink:secret", "sumlink"));
    assert!(error.may_pass(), "{error}");
    line(&error, "Connection refused");
}

#[test]
fn a_password_comes_from_a_private_file() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    let url = server.tcp_url("sumlink", "sumlink");
    let open = || {
        let url = DatabaseUrl::new(&url, Some(&file)).unwrap();
        Location::Database(url).open_or_create()
    };
    line(&open().unwrap_err(), "No such file");
    std::fs::write(&file, "secret\n").unwrap();
    let set_mode = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&file, permissions).unwrap();
    };
    set_mode(0o644);
    line(&open().unwrap_err(), "other users can read it");
    set_mode(0o640);
    open().unwrap();
    std::fs::write(&file, "\n").unwrap();
    line(&open().unwrap_err(), "first line is empty");
}

#[test]
fn certificates_are_checked_as_sslmode_says() {
    let settings = "ssl = on\nssl_cert_file = '../cert.pem'\nssl_key_file = '../key.pem'";
    let Some(mut server) = Postgres::start() else {
        return;
    };
    // A certificate of an authority of its own, for another name than 127.0.0.1.
    let dir = tempfile::tempdir().unwrap();
    let script = "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 9 \
                  -subj /CN=authority && \
                  openssl req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem \
                  -subj /CN=localhost && \
                  echo subjectAltName=DNS:localhost > names && \
                  openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial \
                  -extfile names -days 9 -out cert.pem";
    let made = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    server.stop();
    for name in ["cert.pem", "key.pem"] {
        let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
        server.write(name, &text, 0o600);
    }
    server.configure(settings);
    server.run();
    let ca = dir.path().join("ca.pem").display().to_string();
    let own_ca = format!("&sslrootcert={ca}");
    let try_mode = |host: &str, options: &str| {
        let url = server.tcp_url("sumlink:secret", "sumlink");
        let url = format!("{}?{options}", url.replace("127.0.0.1", host));
        location(&url).open_or_create().map(drop)
    };
    for mode in ["disable", "prefer", "require"] {
        try_mode("127.0.0.1", &format!("sslmode={mode}")).unwrap();
    }
    try_mode("127.0.0.1", &format!("sslmode=verify-ca{own_ca}")).unwrap();
    try_mode("localhost", &format!("sslmode=verify-full{own_ca}")).unwrap();
    let unknown = try_mode("localhost", "sslmode=verify-full").unwrap_err();
    line(&unknown, "UnknownIssuer");
    let unknown = try_mode("localhost", "sslmode=verify-ca").unwrap_err();
    line(&unknown, "UnknownIssuer");
    let named = try_mode("127.0.0.1", &format!("sslmode=verify-full{own_ca}")).unwrap_err();
    line(&named, "not valid for name");
    assert!(matches!(named, StoreError::Denied { .. }), "{named:?}");
    let absent = try_mode("localhost", "sslmode=verify-full&sslrootcert=/absent").unwrap_err();
    line(&absent, "sslrootcert /absent");
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
