//! Published ports, with programs that know nothing of sumlink: a web server, curl, iperf3.

use std::fs;

use serde_json::Value;
use sumlink_lab::Side;

use crate::bond::{Bond, Plan, SERVER};
use crate::datagrams::LINKS;
use sumlink_test_support::emulated::{finish, until};

/// The server's host.
const PUBLIC: &str = "10.99.0.1";

/// The options of a test with datagrams.
const UDP: [&str; 5] = ["-u", "-b", "2M", "-l", "1200"];

/// A bond whose client publishes these ports on its own services.
fn bond(ports: &[(&str, u16)], permitted: &str) -> Option<Bond> {
    let blocks = ports.iter().map(|(listen, port)| {
        format!("[[publish]]\nlisten = \"{listen}\"\ntarget = \"127.0.0.1:{port}\"\n")
    });
    Plan::new(&LINKS)
        .client(&blocks.collect::<String>())
        .server_tables(&format!("publish = [{permitted}]\n"))
        .start()
}

/// Waits until the first published port has this state.
fn until_published(bond: &Bond, state: &str) {
    bond.until(&format!("the ports are {state}"), |status| {
        let is_so = |port: &sumlink_transport::status::PublishStatus| port.state == state;
        status.published.iter().all(is_so).then_some(())
    });
}

fn curl(bond: &Bond, url: &str) -> String {
    bond.bench
        .run(Side::Server, &["curl", "-sS", "--max-time", "20", url])
}

#[test]
fn a_web_server_behind_the_client_is_reached_and_returns_after_restarts() {
    let Some(mut bond) = bond(&[("tcp:8443", 80)], "\"tcp:8443\"") else {
        return;
    };
    let files = bond.bench.serve_files_on(Side::Client, &["127.0.0.1"]);
    bond.keep(files);
    fs::write(bond.bench.path("www/page"), "behind the client").unwrap();
    until_published(&bond, "published");
    let url = format!("http://{PUBLIC}:8443/page");
    assert_eq!(curl(&bond, &url), "behind the client");

    // A client that is killed leaves its port to its successor.
    bond.client.signal("KILL");
    bond.client.wait();
    bond.client = bond
        .bench
        .sumlink("client-2", &["client", "--config", "client.toml"]);
    bond.client.event("connected");
    until_published(&bond, "published");
    assert_eq!(curl(&bond, &url), "behind the client");

    // A client that is stopped closes it at once.
    bond.client.signal("TERM");
    assert_eq!(bond.client.wait(), Some(0));
    let filter = "sport = :8443";
    let listening = || bond.bench.run(Side::Server, &["ss", "-Htln", filter]);
    until("the port is closed", || {
        listening().is_empty().then_some(())
    });
    bond.client = bond
        .bench
        .sumlink("client-3", &["client", "--config", "client.toml"]);
    bond.client.event("connected");
    until_published(&bond, "published");

    bond.server.signal("TERM");
    assert_eq!(bond.server.wait(), Some(0));
    bond.server = bond
        .bench
        .sumlink("server-2", &["server", "--config", "server.toml"]);
    bond.server.event("listening");
    until_published(&bond, "published");
    assert_eq!(curl(&bond, &url), "behind the client");
    assert!(SERVER.starts_with(PUBLIC));
    bond.stop();
}

#[test]
fn a_port_without_permission_is_logged_once_and_opened_by_a_reload() {
    let Some(bond) = bond(&[("tcp:8443", 80)], "") else {
        return;
    };
    until_published(&bond, "refused");
    assert_eq!(bond.client.lines_with("cannot publish a port"), 1);
    let file = bond.bench.path("server.toml");
    let text = fs::read_to_string(&file).unwrap();
    let permitted = text.replace("publish = []", "publish = [\"tcp:8000-9000\"]");
    fs::write(&file, permitted).unwrap();
    bond.server.signal("HUP");
    until_published(&bond, "published");
    assert_eq!(bond.client.lines_with("cannot publish a port"), 1);
    bond.stop();
}

/// iperf3 opens several connections and relies on their order, and its datagrams need both ports.
#[test]
fn iperf3_behind_the_client_serves_connections_and_datagrams() {
    let permitted = "\"tcp:5201\", \"udp:5201\"";
    let Some(bond) = bond(&[("tcp:5201", 5201), ("udp:5201", 5201)], permitted) else {
        return;
    };
    until_published(&bond, "published");
    let iperf3 = |more: &[&str]| {
        // One server per test: it refuses a client while it closes the previous one.
        let serve = ["iperf3", "-s", "-1"];
        let server = bond.bench.spawn(Side::Client, &serve);
        bond.bench.until_listening(Side::Client, 5201);
        let words = [&["iperf3", "-c", PUBLIC, "-t", "2", "-J"], more].concat();
        let report: Value = serde_json::from_str(&bond.bench.run(Side::Server, &words)).unwrap();
        finish(&serve, server);
        report["end"].clone()
    };
    for direction in [&[][..], &["-R"], &["--bidir"], &["-P", "4"]] {
        let end = iperf3(direction);
        let bytes = end["sum_received"]["bytes"].as_u64().unwrap();
        assert!(bytes > 500_000, "{direction:?}: {end}");
    }
    for direction in [&UDP[..], &[&UDP[..], &["-R"]].concat()] {
        let end = iperf3(direction);
        let lost = end["sum"]["lost_percent"].as_f64().unwrap();
        assert!(lost < 20.0, "{direction:?}: {end}");
    }
    bond.stop();
}
