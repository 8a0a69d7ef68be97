//! What every store promises, for a file and for a database.

use sumlink_store::{
    Batch, Change, Client, Contents, DatabaseUrl, Invitation, Location, News, Quota, Secret, Store,
    Traffic, Used,
};
use sumlink_test_support::postgres::Postgres;
use sumlink_transport::PublicKey;
use sumlink_transport::policy::Beyond;

/// Runs a check with an empty store of each kind.
fn with_each(check: impl Fn(&Location)) {
    let dir = tempfile::tempdir().unwrap();
    check(&Location::File(dir.path().join("clients.db")));
    let Some(server) = Postgres::start() else {
        return;
    };
    let url = DatabaseUrl::new(&server.url("sumlink"), None).unwrap();
    check(&Location::Database(url));
}

fn key(byte: u8) -> PublicKey {
    PublicKey::from_bytes([byte; 32]).unwrap()
}

fn invitation(byte: u8, name: &str) -> Invitation {
    let secret = Secret::from_bytes([byte; 16]);
    Invitation {
        tag: secret.tag(),
        digest: secret.digest(),
        name: name.to_owned(),
        created: 5,
        expires: 100 + u64::from(byte),
        quota: Some(quota()),
        client_expires: Some(7_000_000_000),
    }
}

fn quota() -> Quota {
    Quota {
        bytes: i64::MAX as u64,
        reset_day: 31,
        beyond: Some(Beyond::Limit(1_000_000)),
    }
}

fn client(byte: u8, name: &str) -> Client {
    Client {
        name: name.to_owned(),
        key: key(byte),
        created: 17,
        disabled: false,
        expires: Some(7_000_000_000),
        quota: Some(quota()),
        traffic: Traffic::new("2026-11-20".parse().unwrap(), 31),
    }
}

/// Adds a client by an invitation.
fn add(store: &mut dyn Store, byte: u8, name: &str) {
    assert!(store.invite(&invitation(byte, name)).unwrap());
    let tag = Secret::from_bytes([byte; 16]).tag();
    assert!(store.redeem(&tag, &client(byte, name)).unwrap());
}

fn used(byte: u8, day: &str, sent: u64, received: u64) -> Used {
    Used {
        key: key(byte),
        day: day.parse().unwrap(),
        sent,
        received,
    }
}

#[test]
fn contents_come_back_the_same_after_a_restart() {
    with_each(|location| {
        let mut store = location.open_or_create().unwrap();
        assert_eq!(store.contents().unwrap(), Contents::default());
        add(&mut *store, 9, "büro");
        add(&mut *store, 8, "laptop");
        assert!(store.invite(&invitation(7, "open")).unwrap());
        drop(store);
        let mut store = location.open().unwrap();
        let contents = store.contents().unwrap();
        let mut clients = contents.clients;
        clients.sort_by_key(|client| client.name.clone());
        assert_eq!(clients, [client(9, "büro"), client(8, "laptop")]);
        assert_eq!(contents.invitations, [invitation(7, "open")]);
    });
}

#[test]
fn an_invitation_serves_once_and_its_name_is_taken() {
    with_each(|location| {
        let mut store = location.open_or_create().unwrap();
        let (one, tag) = (invitation(1, "one"), Secret::from_bytes([1; 16]).tag());
        assert!(store.invite(&one).unwrap());
        assert!(!store.invite(&invitation(2, "one")).unwrap());
        assert!(store.redeem(&tag, &client(1, "one")).unwrap());
        // Another client comes too late. The same one may ask whether it was added.
        assert!(!store.redeem(&tag, &client(2, "one")).unwrap());
        assert!(store.redeem(&tag, &client(1, "one")).unwrap());
        assert!(!store.invite(&invitation(3, "one")).unwrap());
        assert_eq!(store.contents().unwrap().clients, [client(1, "one")]);

        // A key of a client does not use up an invitation.
        assert!(store.invite(&invitation(4, "four")).unwrap());
        let tag = Secret::from_bytes([4; 16]).tag();
        assert!(!store.redeem(&tag, &client(1, "four")).unwrap());
        assert_eq!(store.contents().unwrap().invitations.len(), 1);
        assert!(store.cancel(&tag).unwrap());
        assert!(!store.cancel(&tag).unwrap());
        assert!(!store.redeem(&tag, &client(4, "four")).unwrap());

        assert!(store.remove(&key(1)).unwrap());
        assert!(!store.remove(&key(1)).unwrap());
        assert_eq!(store.contents().unwrap(), Contents::default());
    });
}

#[test]
fn expired_invitations_are_forgotten() {
    with_each(|location| {
        let mut store = location.open_or_create().unwrap();
        for byte in [1, 2, 3] {
            let open = invitation(byte, &format!("n{byte}"));
            assert!(store.invite(&open).unwrap());
        }
        store.forget_expired(102).unwrap();
        assert_eq!(store.contents().unwrap().invitations, [invitation(3, "n3")]);
    });
}

#[test]
fn changes_are_kept_and_touch_nothing_else() {
    with_each(|location| {
        let mut store = location.open_or_create().unwrap();
        add(&mut *store, 1, "one");
        add(&mut *store, 2, "two");
        let batch = Batch {
            number: 1,
            used: vec![used(1, "2026-11-20", 10, 1)],
        };
        store.count(&batch).unwrap();
        let mut expected = client(1, "one");
        expected.count(10, 1, "2026-11-20".parse().unwrap());
        let changes = [
            Change::Disabled(true),
            Change::Quota(None),
            Change::Expires(None),
            Change::Quota(Some(quota())),
            Change::Expires(Some(1)),
            Change::Disabled(false),
        ];
        for change in changes {
            assert!(store.change(&key(1), &change).unwrap());
            assert!(!store.change(&key(9), &change).unwrap());
            expected.apply(&change);
            let clients = store.contents().unwrap().clients;
            assert_eq!(clients, [expected.clone(), client(2, "two")], "{change:?}");
        }
    });
}

#[test]
fn a_batch_of_usage_counts_once_and_by_its_days() {
    with_each(|location| {
        let mut store = location.open_or_create().unwrap();
        add(&mut *store, 1, "one");
        add(&mut *store, 2, "two");
        // The month begins on the last day.
        let days = [("2026-11-20", 10), ("2026-11-29", 20), ("2026-11-30", 40)];
        let mut all: Vec<Used> = days.map(|(day, sent)| used(1, day, sent, 1)).into();
        // The second client has none, and the third one does not exist.
        all.push(used(3, "2026-11-20", 5, 5));
        let batch = Batch {
            number: 1,
            used: all,
        };
        for _ in 0..3 {
            store.count(&batch).unwrap();
        }
        let clients = store.contents().unwrap().clients;
        let traffic = clients[0].traffic;
        assert_eq!((traffic.sent, traffic.received), (70, 3));
        assert_eq!(traffic.sent_now.month_bytes, 40);
        assert_eq!(clients[1], client(2, "two"));
        let batch = Batch {
            number: 2,
            used: vec![used(1, "2026-11-30", u64::MAX, u64::MAX)],
        };
        store.count(&batch).unwrap();
        let traffic = store.contents().unwrap().clients[0].traffic;
        assert_eq!(traffic.sent, i64::MAX as u64);
        assert_eq!(traffic.sent_now.month_bytes, u64::MAX);
    });
}

#[test]
fn a_store_alone_has_no_news_of_others() {
    with_each(|location| {
        let mut store = location.open_or_create().unwrap();
        store.contents().unwrap();
        assert_eq!(store.news().unwrap(), News::Clients(Vec::new()));
        store.check().unwrap();
    });
}
