//! Real networks: modems on the same subnet, links that appear later, networks that lead nowhere.

use std::io::{Read, Write};
use std::process::Output;
use std::thread;

use rustls::{ServerConnection, StreamOwned};
use serde_json::Value;
use sumlink_engine::frame::{Frame, RefuseCode};
use sumlink_lab::Side;
use sumlink_transport::tls::{self, Authorized};
use sumlink_transport::{SecretKey, SessionStatus};

use crate::bond::{Plan, SERVER, active};
use sumlink_test_support::emulated::Bench;
use sumlink_test_support::emulated::traffic::{Transfer, listen};

const LINKS: [&str; 2] = ["a:rate=20mbit,delay=5ms", "b:rate=20mbit,delay=10ms"];

/// Lines for `ip -batch`.
fn ip(bench: &Bench, side: Side, lines: &str) {
    let file = bench.write("ip-batch", lines);
    bench.run(side, &["ip", "-batch", file.to_str().unwrap()]);
}

#[test]
fn two_modems_on_the_same_subnet_are_both_used() {
    let plan = Plan::new(&LINKS);
    let Some(bench) = plan.bench() else { return };
    // As two USB modems of one make do: the same subnet and gateway on both.
    ip(
        &bench,
        Side::Client,
        "addr flush dev a\naddr flush dev b\n\
         addr add 192.168.8.100/24 dev a\naddr add 192.168.8.101/24 dev b\n\
         route add default via 192.168.8.1 dev a metric 101\n\
         route add default via 192.168.8.1 dev b metric 102\n",
    );
    ip(
        &bench,
        Side::Server,
        "addr flush dev a\naddr flush dev b\n\
         addr add 192.168.8.1/32 dev a\naddr add 192.168.8.1/32 dev b\n\
         route add 192.168.8.100/32 dev a\nroute add 192.168.8.101/32 dev b\n",
    );
    let bond = plan.start_on(bench);
    bond.until_active(&["a", "b"]);
    let download = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    bond.until("both modems carry", |session| {
        active(session)
            .all(|path| path.bytes_received > 1_000_000)
            .then_some(())
    });
    download.finish();
    bond.stop();
}

#[test]
fn a_link_that_appears_after_the_start_joins() {
    let plan = Plan::new(&LINKS).client("[[link]]\nname = \"a\"\n[[link]]\nname = \"b*\"\n");
    let Some(bench) = plan.bench() else { return };
    bench.set("b", "state=removed");
    let bond = plan.start_on(bench);
    bond.until_active(&["a"]);
    let session = bond.status(Side::Client).session;
    let download = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    download.goes_on(500_000);
    bond.bench.set("b", "state=up");
    bond.until("the new link carries", |session| {
        active(session)
            .find(|path| path.link == "b" && path.bytes_received > 500_000)
            .map(drop)
    });
    assert_eq!(bond.status(Side::Client).session, session);
    download.finish();
    bond.stop();
}

#[test]
fn sixteen_links_of_two_families_are_one_bond() {
    let names: Vec<String> = (1..=16).map(|number| format!("l{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let specs = names
        .iter()
        .map(|name| format!("{name}:rate=3mbit,delay=5ms"));
    let specs: Vec<String> = specs.collect();
    let plan = Plan::new(&specs.iter().map(String::as_str).collect::<Vec<_>>())
        .client("[[link]]\nname = \"l*\"\n")
        .server("bond.test:7000")
        .hosts("127.0.0.1 localhost\n10.99.0.1 bond.test\nfd99::1 bond.test\n");
    let Some(bench) = plan.bench() else { return };
    for (number, name) in names.iter().enumerate() {
        let other = ["-6", "-4"][number % 2];
        bench.run(Side::Client, &["ip", other, "addr", "flush", "dev", name]);
    }
    let bond = plan.start_on(bench);
    bond.until_active(&names);
    let download = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    let all_carry = |session: &SessionStatus| {
        let carrying = active(session).filter(|path| path.bytes_received > 200_000);
        (carrying.count() == names.len()).then_some(())
    };
    bond.until("all links carry", all_carry);
    let paths = bond.status(Side::Client).paths;
    let of_ipv6 = paths.iter().filter(|path| path.remote.starts_with('['));
    assert_eq!(of_ipv6.count(), 8);
    download.finish();
    bond.stop();
}

#[test]
fn a_link_with_ipv4_only_and_one_with_ipv6_only_are_one_bond() {
    let plan = Plan::new(&LINKS)
        .server("bond.test:7000")
        .hosts("127.0.0.1 localhost\n10.99.0.1 bond.test\nfd99::1 bond.test\n");
    let Some(bench) = plan.bench() else { return };
    bench.run(Side::Client, &["ip", "-6", "addr", "flush", "dev", "a"]);
    bench.run(Side::Client, &["ip", "-4", "addr", "flush", "dev", "b"]);
    let bond = plan.start_on(bench);
    bond.until_active(&["a", "b"]);
    let remotes = bond.status(Side::Client).paths.into_iter();
    let mut remotes: Vec<String> = remotes.map(|path| path.remote).collect();
    remotes.sort();
    assert_eq!(remotes, ["10.99.0.1:7000", "[fd99::1]:7000"]);
    let download = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    bond.until("both families carry", |session| {
        active(session)
            .all(|path| path.bytes_received > 1_000_000)
            .then_some(())
    });
    download.finish();
    bond.stop();
}

/// Runs a client that must fail; returns its exit code and its line.
fn refused(bench: &Bench, changes: &[(&str, &str)]) -> (i32, String) {
    let mut flags = vec![
        ("--server", SERVER),
        ("--server-key", &bench.server_key),
        ("--key", "client.key"),
        ("--socks", "127.0.0.1:0"),
    ];
    flags.retain(|(flag, _)| changes.iter().all(|(changed, _)| changed != flag));
    let mut args = vec!["client", "-q"];
    args.extend(
        flags
            .iter()
            .chain(changes)
            .flat_map(|(flag, value)| [*flag, *value]),
    );
    let output: Output = bench.run_sumlink(Side::Client, &args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.lines().count(), 1, "one line, not: {error}");
    (output.status.code().unwrap(), error)
}

#[test]
fn a_client_that_cannot_connect_reports_the_reason_on_one_line() {
    let plan = Plan::new(&LINKS);
    let Some(bench) = plan.bench() else { return };
    // No process listens yet.
    let (code, error) = refused(&bench, &[]);
    assert_eq!(code, 5, "{error}");

    let bond = plan.start_on(bench);
    bond.until_active(&["a", "b"]);
    let bench = &bond.bench;
    let stranger = bench.key("stranger.key");
    for change in [
        ("--server-key", stranger.as_str()),
        ("--key", "stranger.key"),
    ] {
        let (code, error) = refused(bench, &[change]);
        assert_eq!(code, 6, "{change:?}: {error}");
    }
    let (code, error) = refused(bench, &[("--link", "nosuch0")]);
    assert!(code == 5 && error.contains("nosuch0"), "{code}: {error}");
    // The port of the running client.
    let (code, error) = refused(bench, &[("--socks", "127.0.0.1:1080")]);
    assert!(
        code == 5 && error.contains("127.0.0.1:1080"),
        "{code}: {error}"
    );

    bench.run(Side::Client, &["ip", "route", "del", "default", "dev", "b"]);
    let (code, error) = refused(bench, &[("--link", "b")]);
    assert!(code == 5 && error.contains("no route"), "{code}: {error}");
    bond.until_active(&["a"]);
    // No link has a route.
    bench.run(Side::Client, &["ip", "route", "del", "default", "dev", "a"]);
    let (code, error) = refused(bench, &[]);
    assert_eq!(code, 5, "{error}");
    bond.stop();
}

#[test]
fn a_silent_network_is_reported_on_one_line() {
    let Some(bench) = Plan::new(&LINKS).bench() else {
        return;
    };
    for link in ["a", "b"] {
        bench.set(link, "state=blackhole");
    }
    let (code, error) = refused(&bench, &[]);
    assert_eq!(code, 5, "{error}");
}

#[test]
fn a_server_of_another_version_has_its_exit_code() {
    let Some(bench) = Plan::new(&LINKS).bench() else {
        return;
    };
    let key = SecretKey::load(&bench.path("server.key")).unwrap();
    let authorized = Authorized::new([bench.client_key.parse().unwrap()]);
    let config = tls::server_config(&key, &authorized);
    let listener = listen(&bench, SERVER.parse().unwrap());
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let tls = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(tls, tcp.unwrap());
            let _ = stream.read(&mut [0; 1024]);
            let mut out = Vec::new();
            let code = RefuseCode::Version.code();
            Frame::Refuse {
                code,
                reason: b"this server speaks version 2, not 1",
            }
            .encode(&mut out);
            let _ = stream.write_all(&out);
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    let (code, error) = refused(&bench, &[]);
    assert_eq!(code, 7, "{error}");
    let json = [
        "client",
        "-q",
        "--json",
        "--server",
        SERVER,
        "--key",
        "client.key",
    ];
    let args = [&json[..], &["--server-key", &bench.server_key]].concat();
    let output = bench.run_sumlink(Side::Client, &args);
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["error"]["exit_code"], 7, "{error}");
}
