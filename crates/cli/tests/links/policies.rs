//! Policies of links apply in the running session, at the server, and after a restart.

use std::process::Output;

use serde_json::Value;
use sumlink_lab::Side;
use sumlink_transport::LinkReport;
use sumlink_transport::status::PathStatus;

use crate::bond::{Bond, Plan, active};
use sumlink_test_support::emulated::traffic::Transfer;
use sumlink_test_support::emulated::until;

const LINKS: [&str; 2] = ["a:rate=16mbit,delay=2ms", "b:rate=16mbit,delay=4ms"];

/// More than acknowledgments and keep-alives take during a test, far less than a link carries.
const NEGLIGIBLE: u64 = 200_000;

fn download(bond: &Bond) -> Transfer {
    Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap())
}

/// Runs `sumlink link` at the client.
fn try_link(bond: &Bond, words: &str) -> Output {
    let mut args = vec!["link"];
    args.extend(words.split_whitespace());
    args.extend(["--control", "client.sock", "--json"]);
    bond.bench.program(&args).output().unwrap()
}

#[track_caller]
fn link(bond: &Bond, words: &str) -> LinkReport {
    let output = try_link(bond, words);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    serde_json::from_str(&text).unwrap()
}

fn path(bond: &Bond, name: &str) -> Option<PathStatus> {
    let paths = bond.status(Side::Client).paths;
    paths.into_iter().find(|path| path.link == name)
}

fn received(bond: &Bond, name: &str) -> u64 {
    path(bond, name).map_or(0, |path| path.bytes_received)
}

/// Waits for a part of the transfer without this link. On a busy machine the other link may pause,
/// and this one helps.
#[track_caller]
fn rests(bond: &Bond, transfer: &Transfer, name: &str) {
    let left_out = (0..20).any(|_| {
        let before = received(bond, name);
        transfer.goes_on(4_000_000);
        received(bond, name) < before + NEGLIGIBLE
    });
    assert!(left_out, "{name} carries all the time");
}

/// The source of the policy, in the words of `sumlink link --json`.
fn source(report: &LinkReport) -> Value {
    serde_json::to_value(report.source).unwrap()
}

/// Ends the client as a user does, and starts it again.
fn restart(bond: &mut Bond) {
    bond.client.signal("TERM");
    assert_eq!(bond.client.wait(), Some(0));
    let args = ["client", "--config", "client.toml"];
    bond.client = bond.bench.sumlink("client", &args);
    bond.client.event("connected");
}

#[test]
fn a_backup_carries_during_an_outage_and_a_change_applies_at_once() {
    let client =
        "[[link]]\nname = \"a\"\n[[link]]\nname = \"b\"\npriority = \"backup\"\nlabel = \"5G\"\n";
    let Some(bond) = Plan::new(&LINKS).client(client).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let download = download(&bond);
    download.goes_on(4_000_000);
    assert!(received(&bond, "b") < NEGLIGIBLE);
    let b = path(&bond, "b").unwrap();
    assert_eq!((b.label.as_str(), b.priority.as_str()), ("5G", "backup"));
    bond.bench.set("a", "state=down");
    bond.until("the backup carries", |session| {
        active(session)
            .find(|path| path.link == "b" && path.bytes_received > 1_000_000)
            .map(drop)
    });
    bond.bench.set("a", "state=up");
    bond.until_active(&["a", "b"]);
    bond.until("the first link carries again", |session| {
        active(session)
            .find(|path| path.link == "a" && path.bytes_received > 1_000_000)
            .map(drop)
    });
    let before = received(&bond, "b");
    download.goes_on(4_000_000);
    assert!(received(&bond, "b") < before + NEGLIGIBLE);
    assert_eq!(link(&bond, "b --priority primary").priority, "primary");
    bond.until("the link that was a backup carries", |session| {
        active(session)
            .find(|path| path.link == "b" && path.bytes_received > before + 2_000_000)
            .map(drop)
    });
    download.finish();
    bond.stop();
}

#[test]
fn a_link_set_to_never_is_closed_and_rejoins() {
    let Some(bond) = Plan::new(&LINKS).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let session = bond.status(Side::Client).session;
    let download = download(&bond);
    download.goes_on(500_000);
    link(&bond, "b --priority never");
    bond.until("the link is left", |session| {
        let b = session.paths.iter().find(|path| path.link == "b")?;
        (b.state == "down" && b.reason.contains("its priority is never")).then_some(())
    });
    download.goes_on(500_000);
    link(&bond, "b --reset");
    bond.until_active(&["a", "b"]);
    assert_eq!(bond.status(Side::Client).session, session);
    download.finish();
    bond.stop();
}

#[test]
fn the_server_obeys_a_direction_and_a_limit() {
    let client = "[[link]]\nname = \"a\"\n[[link]]\nname = \"b\"\ndirection = \"up\"\n";
    let Some(bond) = Plan::new(&LINKS).client(client).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let down = download(&bond);
    down.goes_on(4_000_000);
    assert!(received(&bond, "b") < NEGLIGIBLE);
    let up = Transfer::upload(&bond.bench, "10.99.0.1:8081".parse().unwrap());
    bond.until("both links carry upwards", |session| {
        active(session)
            .all(|path| path.bytes_sent > 1_000_000)
            .then_some(())
    });
    link(&bond, "b --send-limit 2mbit");
    bond.until("the link keeps to its limit upwards", |session| {
        let b = active(session).find(|path| path.link == "b")?;
        (b.send_rate_bps > 1e6 && b.send_rate_bps < 2.4e6).then_some(())
    });
    up.finish();
    link(&bond, "b --direction both --receive-limit 2mbit");
    // Waits until earlier traffic has left the average: the link then carries its limit and no
    // more.
    bond.until("the link keeps to its limit", |session| {
        let b = active(session).find(|path| path.link == "b")?;
        let rate = b.receive_rate_bps;
        (b.bytes_received > 1_000_000 && rate > 1e6 && rate < 2.4e6).then_some(())
    });
    link(&bond, "b --receive-limit none");
    bond.until("the limit is gone", |session| {
        let b = active(session).find(|path| path.link == "b")?;
        (b.receive_rate_bps > 8e6).then_some(())
    });
    down.finish();
    bond.stop();
}

#[test]
fn a_link_with_too_much_latency_is_a_backup() {
    let client = "[[link]]\nname = \"a\"\n[[link]]\nname = \"b\"\nmax_added_latency = \"100ms\"\n";
    let Some(bond) = Plan::new(&LINKS).client(client).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let download = download(&bond);
    let carries = |bond: &Bond, more: u64| {
        let before = received(bond, "b");
        bond.until("the link carries", |session| {
            let b = active(session).find(|path| path.link == "b")?;
            (b.bytes_received > before + more).then_some(())
        });
    };
    carries(&bond, 1_000_000);
    bond.bench.set("b", "delay=300ms");
    bond.until("the late link rests", |session| {
        let b = active(session).find(|path| path.link == "b")?;
        (b.receive_rate_bps < 100_000.0).then_some(())
    });
    rests(&bond, &download, "b");
    bond.bench.set("b", "delay=4ms");
    carries(&bond, 1_000_000);
    download.finish();
    bond.stop();
}

#[test]
fn a_link_at_its_data_cap_is_closed_also_after_a_restart() {
    let client = "state = \"links.json\"\n[[link]]\nname = \"a\"\n[[link]]\nname = \"b\"\ncap_day = \"3MB\"\nbeyond = \"never\"\n";
    let Some(mut bond) = Plan::new(&LINKS).client(client).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let download = download(&bond);
    let used_up = |bond: &Bond| {
        bond.until("the link is used up", |session| {
            let b = session.paths.iter().find(|path| path.link == "b")?;
            (b.state == "down" && b.reason.contains("data cap reached")).then_some(())
        });
    };
    used_up(&bond);
    download.goes_on(1_000_000);
    download.finish();
    let moved = link(&bond, "b").usage.unwrap().day_bytes;
    // A quarter of a second at the link's rate, plus the bytes under way.
    assert!((3_000_000..4_500_000).contains(&moved), "{moved}");
    restart(&mut bond);
    used_up(&bond);
    assert_eq!(link(&bond, "b").usage.unwrap().day_bytes, moved);
    link(&bond, "b --cap-day none --keep");
    bond.until_active(&["a", "b"]);
    bond.stop();
}

#[test]
fn kept_policies_survive_a_restart() {
    let Some(mut bond) = Plan::new(&LINKS)
        .client("state = \"links.json\"\nlinks = \"auto\"\n")
        .start()
    else {
        return;
    };
    bond.until_active(&["a", "b"]);
    link(&bond, "a --label passing");
    let kept = link(
        &bond,
        "b --priority backup --cap-month 50GB --reset-day 15 --keep",
    );
    restart(&mut bond);
    bond.until_active(&["a", "b"]);
    let (a, b) = (link(&bond, "a"), link(&bond, "b"));
    assert_eq!(
        (source(&a), a.policy.label.as_str()),
        (Value::from("configuration"), "")
    );
    assert_eq!((source(&b), b.policy), (Value::from("kept"), kept.policy));
    assert_eq!(b.priority, "backup");
    let download = download(&bond);
    rests(&bond, &download, "b");
    download.finish();
    link(&bond, "b --reset");
    restart(&mut bond);
    bond.until_active(&["a", "b"]);
    assert_eq!(source(&link(&bond, "b")), "configuration");
    bond.stop();
}

#[test]
fn a_secondary_link_helps_only_when_primary_links_are_busy() {
    let client = "[[link]]\nname = \"a\"\n[[link]]\nname = \"b\"\nmetered = true\n";
    let Some(bond) = Plan::new(&LINKS).client(client).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    assert_eq!(link(&bond, "b").priority, "secondary");
    let download = download(&bond);
    bond.until("both links carry", |session| {
        active(session)
            .all(|path| path.bytes_received > 1_000_000)
            .then_some(())
    });
    download.finish();
    bond.stop();
}

#[test]
fn impossible_changes_are_reported_on_one_line() {
    let Some(bond) = Plan::new(&LINKS).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    for (words, code, hint) in [
        (
            "c --priority backup",
            5,
            "no link named c; known links: a, b",
        ),
        ("b --reset-day 32", 2, "1 to 31"),
        ("b --send-limit 1kbit", 2, "at least 8000"),
        ("b --priority backup --keep", 1, "--state FILE"),
    ] {
        let output = try_link(&bond, words);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{words}: {text}");
        assert!(text.contains(hint), "{words}: {text}");
    }
    assert_eq!(link(&bond, "b").priority, "primary");
    let output = bond
        .bench
        .program(&["link", "b", "--control", "server.sock"])
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("links belong to the client"), "{error}");
    until("the client still runs", || {
        path(&bond, "b").filter(|path| path.state == "active")
    });
    bond.stop();
}
