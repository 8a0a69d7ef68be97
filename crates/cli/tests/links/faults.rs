//! Links fail during transfers and return: no data is lost, no transfer ends early, and a returned
//! link carries again in the same session.

use std::thread;
use std::time::Duration;

use sumlink_lab::Side;
use sumlink_transport::status::PathStatus;

use crate::bond::{Bond, Plan, active};
use sumlink_test_support::emulated::traffic::Transfer;

const LINKS: [&str; 3] = [
    "a:rate=16mbit,delay=5ms",
    "b:rate=12mbit,delay=15ms",
    "c:rate=8mbit,delay=30ms",
];

/// Bytes in each direction after which a link counts as returned.
const PROOF: u64 = 100_000;

/// A way in which a link fails and returns; the number counts its failures.
trait Death {
    fn kill(&self, bond: &Bond, path: &PathStatus, round: usize);
    fn revive(&self, bond: &Bond, path: &PathStatus, round: usize);
}

/// A state of a link in the laboratory.
struct State(&'static str);

impl Death for State {
    fn kill(&self, bond: &Bond, path: &PathStatus, _: usize) {
        bond.bench.set(&path.link, self.0);
    }

    fn revive(&self, bond: &Bond, path: &PathStatus, _: usize) {
        bond.bench.set(&path.link, "state=up");
    }
}

/// The connection is reset: first towards the client, then towards the server.
struct Reset;

impl Death for Reset {
    fn kill(&self, bond: &Bond, path: &PathStatus, round: usize) {
        let (_, port) = path.local.rsplit_once(':').unwrap();
        let (side, end) = [(Side::Server, "dport"), (Side::Client, "sport")][round % 2];
        let killed = bond
            .bench
            .run(side, &["ss", "-HKtn", end, "=", &format!(":{port}")]);
        assert!(!killed.is_empty(), "ss has not killed {}", path.local);
    }

    fn revive(&self, _: &Bond, _: &PathStatus, _: usize) {}
}

/// The link gets another address, as from DHCP; the old one is removed first.
struct Readdressed;

impl Death for Readdressed {
    fn kill(&self, bond: &Bond, path: &PathStatus, _: usize) {
        let (old, _) = path.local.rsplit_once(':').unwrap();
        let old = format!("{old}/24");
        bond.bench.run(
            Side::Client,
            &["ip", "addr", "del", &old, "dev", &path.link],
        );
    }

    fn revive(&self, bond: &Bond, path: &PathStatus, round: usize) {
        let number = 1 + LINKS
            .iter()
            .position(|link| link.starts_with(&path.link))
            .unwrap();
        let (address, gateway) = (
            format!("10.77.{number}.{}/24", 77 + round),
            format!("10.77.{number}.1"),
        );
        let (metric, link) = (format!("{}", 100 + number), path.link.as_str());
        bond.bench
            .run(Side::Client, &["ip", "addr", "add", &address, "dev", link]);
        // The route was removed with the old address.
        let route = [
            "ip", "route", "replace", "default", "via", &gateway, "dev", link, "metric", &metric,
        ];
        bond.bench.run(Side::Client, &route);
    }
}

/// Fails each of three links twice during a download and an upload by curl.
fn survives(death: &dyn Death) {
    let Some(bond) = Plan::new(&LINKS).memory("8MiB", "4MiB").start() else {
        return;
    };
    let session = bond.status(Side::Client).session;
    let down = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    let up = Transfer::upload(&bond.bench, "10.99.0.1:8081".parse().unwrap());
    for link in ["a", "b", "c"] {
        for round in 0..2 {
            bond.until_active(&["a", "b", "c"]);
            let path = bond.until(&format!("{link} carries"), |session| {
                active(session)
                    .find(|path| path.link == link && carries(path, None))
                    .cloned()
            });
            death.kill(&bond, &path, round);
            bond.until(&format!("the death of {link} is noticed"), |session| {
                (!active(session).any(|other| other.id == path.id)).then_some(())
            });
            // Both continue over the others.
            down.goes_on(2 * PROOF);
            up.goes_on(2 * PROOF);
            death.revive(&bond, &path, round);
            bond.until(&format!("{link} carries again"), |session| {
                active(session)
                    .find(|now| now.link == link && carries(now, Some(&path)))
                    .map(drop)
            });
        }
    }
    assert_eq!(
        bond.status(Side::Client).session,
        session,
        "a new session was made"
    );
    assert_eq!(bond.sessions(Side::Server).len(), 1);
    assert!(down.finish() > 6 * 2 * PROOF);
    assert!(up.finish() > 6 * 2 * PROOF);
    bond.stop();
}

/// Whether a path has carried data in both directions, as a new path or since `before`.
fn carries(path: &PathStatus, before: Option<&PathStatus>) -> bool {
    let before = before.filter(|before| before.id == path.id);
    let since = |now: u64, then: Option<u64>| now.saturating_sub(then.unwrap_or(0)) > PROOF;
    since(path.bytes_received, before.map(|path| path.bytes_received))
        && since(path.bytes_sent, before.map(|path| path.bytes_sent))
}

#[test]
fn a_deleted_device_loses_no_data_and_rejoins() {
    survives(&State("state=removed"));
}

#[test]
fn a_pulled_cable_loses_no_data_and_rejoins() {
    survives(&State("state=down"));
}

#[test]
fn a_link_that_drops_everything_loses_no_data_and_rejoins() {
    survives(&State("state=blackhole"));
}

#[test]
fn a_reset_connection_loses_no_data_and_is_replaced() {
    survives(&Reset);
}

#[test]
fn a_new_address_loses_no_data() {
    survives(&Readdressed);
}

#[test]
fn all_links_dead_for_five_seconds_lose_no_data() {
    let Some(bond) = Plan::new(&LINKS).memory("8MiB", "4MiB").start() else {
        return;
    };
    bond.until_active(&["a", "b", "c"]);
    let session = bond.status(Side::Client).session;
    let down = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    let up = Transfer::upload(&bond.bench, "10.99.0.1:8081".parse().unwrap());
    for state in ["state=blackhole", "state=removed"] {
        down.goes_on(10 * PROOF);
        up.goes_on(10 * PROOF);
        for link in ["a", "b", "c"] {
            bond.bench.set(link, state);
        }
        bond.until_active(&[]);
        thread::sleep(Duration::from_secs(5));
        for link in ["a", "b", "c"] {
            bond.bench.set(link, "state=up");
        }
        bond.until_active(&["a", "b", "c"]);
    }
    down.goes_on(10 * PROOF);
    up.goes_on(10 * PROOF);
    assert_eq!(
        bond.status(Side::Client).session,
        session,
        "a new session was made"
    );
    down.finish();
    up.finish();
    bond.stop();
}
