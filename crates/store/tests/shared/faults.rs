//! A database that is gone or cannot be used, and its password and certificates.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use sumlink_store::{DatabaseUrl, Location, StoreError};
use sumlink_test_support::postgres::Postgres;

use super::{add, invitation, key, location, now, registry};

/// Checks the one line of an error.
#[track_caller]
fn line(error: &StoreError, words: &str) {
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(words), "{text}");
    assert!(!text.contains("secret"), "{text}");
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
    // The client stays known, with the usage counted by this server.
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
    let rounds = thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let (mut cuts, mut rounds) = (0, 0);
            // At least one cut must have hit; a busy machine may take a while to send it.
            while rounds < 30 || cuts == 0 {
                own.count(&[(key(1), 1, 1)], now());
                while own.sync(now()).is_err() {
                    cuts += 1;
                }
                rounds += 1;
            }
            rounds
        });
        while !counting.is_finished() {
            server.sql("sumlink", cut);
        }
        counting.join().unwrap()
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

    let copy = running.back_up(Path::new("copy")).unwrap_err();
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
    fs::write(&file, "secret\n").unwrap();
    let set_mode = |mode| {
        let permissions = PermissionsExt::from_mode(mode);
        fs::set_permissions(&file, permissions).unwrap();
    };
    set_mode(0o644);
    line(&open().unwrap_err(), "other users can read it");
    set_mode(0o640);
    open().unwrap();
    fs::write(&file, "\n").unwrap();
    line(&open().unwrap_err(), "first line is empty");
}

#[test]
fn certificates_are_checked_as_sslmode_says() {
    let settings = "ssl = on\nssl_cert_file = '../cert.pem'\nssl_key_file = '../key.pem'";
    let Some(mut server) = Postgres::start() else {
        return;
    };
    // A certificate of an unknown authority, for another name than 127.0.0.1.
    let dir = tempfile::tempdir().unwrap();
    let script = "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 9 \
                  -subj /CN=authority && \
                  openssl req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem \
                  -subj /CN=localhost && \
                  echo subjectAltName=DNS:localhost > names && \
                  openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial \
                  -extfile names -days 9 -out cert.pem";
    let made = Command::new("sh")
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
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
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
