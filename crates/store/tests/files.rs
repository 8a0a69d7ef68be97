//! The file of a store: its creation, its permissions, damage, and a second process.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sumlink_store::{Client, Now, Registry, Secret, Sqlite, Store, StoreError, Traffic};
use sumlink_store::{Invitation, Quota};
use sumlink_transport::PublicKey;

fn now() -> Now {
    Now {
        seconds: 1_000_000,
        today: "2026-11-20".parse().unwrap(),
    }
}

fn key(byte: u8) -> PublicKey {
    PublicKey::from_bytes([byte; 32]).unwrap()
}

/// Adds a client.
fn add(registry: &mut Registry, byte: u8) -> String {
    let secret = Secret::from_bytes([byte; 16]);
    let name = format!("client-{byte}");
    let invitation = Invitation {
        tag: secret.tag(),
        digest: secret.digest(),
        name: name.clone(),
        created: 1,
        expires: u64::MAX >> 1,
        quota: Some(Quota {
            bytes: 1000,
            reset_day: 5,
            beyond: None,
        }),
        client_expires: Some(2_000_000),
    };
    registry.invite(invitation, now()).unwrap();
    let client = registry.redeem(&secret, key(byte), now()).unwrap();
    assert_eq!(client.unwrap().name, name);
    name
}

/// A store with two clients, closed.
fn store(dir: &Path) -> PathBuf {
    let file = dir.join("clients.db");
    let mut registry = Registry::new(Box::new(Sqlite::open_or_create(&file).unwrap())).unwrap();
    add(&mut registry, 7);
    add(&mut registry, 8);
    file
}

fn open(file: &Path) -> Result<Vec<Client>, StoreError> {
    Ok(Sqlite::open_or_create(file)?.contents()?.clients)
}

#[test]
fn a_store_is_private_and_comes_back_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let file = store(dir.path());
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let clients = open(&file).unwrap();
    let names: Vec<_> = clients.iter().map(|client| client.name.as_str()).collect();
    assert_eq!(names, ["client-7", "client-8"]);
    assert_eq!(clients[0].expires, Some(2_000_000));
    assert_eq!(clients[0].traffic, Traffic::new(now().today, 5));
    // Nothing is left beside the file once it is closed.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_missing_store_is_made_only_by_its_server() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("clients.db");
    let error = Sqlite::open(&file).unwrap_err();
    assert!(matches!(error, StoreError::Missing(_)), "{error}");
    assert!(!file.exists());
    let absent = dir.path().join("none/clients.db");
    let error = Sqlite::open_or_create(&absent).unwrap_err();
    assert!(matches!(error, StoreError::System { .. }), "{error}");
    assert_eq!(open(&file).unwrap(), []);
}

#[test]
fn one_process_has_the_store_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = store(dir.path());
    let first = Sqlite::open(&file).unwrap();
    let error = Sqlite::open(&file).unwrap_err();
    assert!(matches!(error, StoreError::InUse(_)), "{error}");
    drop(first);
    assert_eq!(open(&file).unwrap().len(), 2);
}

/// Every kind of damage is refused, and the file stays as it is.
#[test]
fn a_damaged_store_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = store(dir.path());
    let whole = fs::read(&file).unwrap();
    let mut middle = whole.clone();
    // The pages after the first one: tables and indices.
    middle[4096..8192].fill(0x5a);
    let mut header = whole.clone();
    header[..16].copy_from_slice(b"no SQLite at all");
    let damages = [
        ("empty", Vec::new()),
        ("cut", whole[..whole.len() / 2].to_vec()),
        ("another file", b"[client]\nkey = 1\n".repeat(400)),
        ("header", header),
        ("middle", middle),
    ];
    for (damage, bytes) in damages {
        fs::write(&file, &bytes).unwrap();
        let error = open(&file).unwrap_err();
        assert!(
            matches!(error, StoreError::Damaged { .. }),
            "{damage}: {error}"
        );
        let text = error.to_string();
        assert!(
            text.contains("clients.db") && text.contains("not changed"),
            "{text}"
        );
        assert_eq!(fs::read(&file).unwrap(), bytes, "{damage}");
    }
    fs::write(&file, &whole).unwrap();
    assert_eq!(open(&file).unwrap().len(), 2);
}

#[test]
fn other_databases_and_newer_stores_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = store(dir.path());
    let set = |name: &str, value: u32| {
        let connection = rusqlite::Connection::open(&file).unwrap();
        connection.pragma_update(None, name, value).unwrap();
    };
    set("user_version", 99);
    let error = open(&file).unwrap_err();
    assert!(
        matches!(error, StoreError::Newer { found: 99, .. }),
        "{error}"
    );
    set("user_version", 1);
    set("application_id", 5);
    let error = open(&file).unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
}

#[test]
fn usage_that_could_not_be_written_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let file = store(dir.path());
    let mut registry = Registry::new(Box::new(Sqlite::open(&file).unwrap())).unwrap();
    registry.count(&[(key(7), 10, 1), (key(9), 5, 5)], now());
    registry.flush().unwrap();
    registry.count(&[(key(7), 10, 1)], now());
    // Not flushed: a killed process loses it, and nothing else.
    drop(registry);
    let clients = open(&file).unwrap();
    let traffic = clients[0].traffic;
    assert_eq!((traffic.sent, traffic.received), (10, 1));
    assert_eq!(traffic.sent_now.month_bytes, 10);
}
