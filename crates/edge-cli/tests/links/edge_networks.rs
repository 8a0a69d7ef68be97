//! `sumlink-edge` over IPv6, inside and outside of its tunnels, and with packets larger than a link
//! accepts.

use std::net::SocketAddr;

use ring::digest::{SHA256, digest};
use serde_json::Value;
use sumlink_lab::Side;

use crate::edge::LINKS;
use sumlink_test_support::emulated::Daemon;
use sumlink_test_support::emulated::traffic::Pattern;
use sumlink_test_support::emulated::{Bench, finish, until};

/// The address of an end on a link, with the tunnel's port.
fn address(v6: bool, link: usize, side: Side) -> SocketAddr {
    let host = [2, 1][side as usize];
    let text = match v6 {
        true => format!("[fd77:{link}::{host}]:7400"),
        false => format!("10.77.{}.{host}:7400", link + 1),
    };
    text.parse().unwrap()
}

/// The file of one end: its tunnels use one address family, the packets inside the other.
fn file(side: Side, v6_outside: bool, top: &str) -> String {
    let mut text = match side {
        Side::Server => format!(
            "role = \"node\"\ncontrol = \"node.sock\"\n{top}\ntun.addresses = [\"10.88.0.1/24\", \"fd88::1/64\"]\n"
        ),
        Side::Client => format!(
            "role = \"user\"\ncontrol = \"user.sock\"\n{top}\ntun.addresses = [\"10.88.0.2/24\", \"fd88::2/64\"]\n\
             tun.routes = [\"10.99.0.1\", \"fd99::1\"]\n"
        ),
        side => panic!("no end of an edge node is on {side:?}"),
    };
    let other = match side {
        Side::Server => Side::Client,
        _ => Side::Server,
    };
    for (link, name) in ["a", "b"].into_iter().enumerate() {
        let (local, remote) = (
            address(v6_outside, link, side),
            address(v6_outside, link, other),
        );
        text.push_str(&format!(
            "[[link]]\nname = \"{name}\"\ninterface = \"{name}\"\nlocal = \"{local}\"\nremote = \"{remote}\"\nrate = \"7mbit\"\n"
        ));
    }
    text
}

/// A laboratory with IPv6 addresses on its links, too.
fn bench() -> Option<Bench> {
    let bench = crate::bench(&LINKS.map(str::to_owned))?;
    for side in [Side::Server, Side::Client] {
        for (link, name) in ["a", "b"].into_iter().enumerate() {
            let net = format!("{}/64", address(true, link, side).ip());
            let words = ["ip", "addr", "add", &net, "dev", name, "nodad"];
            bench.run(side, &words);
        }
    }
    Some(bench)
}

pub(crate) fn start(bench: &Bench, side: Side) -> Daemon {
    let name = ["user", "node"][side as usize];
    let file = format!("{name}.toml");
    let end = bench.sumlink_on(side, name, &["run", "--config", &file]);
    end.event("ready");
    end
}

/// Waits until both links are up at that end.
pub(crate) fn until_up(bench: &Bench, side: Side) {
    let socket = ["user.sock", "node.sock"][side as usize];
    until("both links are up", || {
        let words = ["status", "--json", "--control", socket];
        let output = bench.run_sumlink(side, &words);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let links = report["edge"]["links"].as_array()?;
        let up = |link: &Value| link["state"] == "up";
        (links.len() == 2 && links.iter().all(up)).then_some(())
    });
}

#[test]
fn ipv6_inside_and_outside_in_every_mode() {
    for (mode, v6_outside) in [
        ("lwip", true),
        ("lwa", true),
        ("lwip+visible", true),
        ("lwa", false),
    ] {
        let Some(bench) = bench() else { return };
        let mut nginx = bench.serve_files();
        let lines = format!("mode = \"{mode}\"\nsteering = \"roundrobin\"");
        bench.write("node.toml", file(Side::Server, v6_outside, &lines));
        bench.write("user.toml", file(Side::Client, v6_outside, ""));
        let ends = [Side::Server, Side::Client].map(|side| start(&bench, side));
        for side in [Side::Server, Side::Client] {
            until_up(&bench, side);
        }
        let contents = Pattern::bytes(6, 2_000_000);
        bench.write("www/file", &contents);
        for (url, what) in [("[fd99::1]", "IPv6"), ("10.99.0.1", "IPv4")] {
            let url = format!("http://{url}/file");
            let words = ["curl", "-gsSf", "--max-time", "80", "-o", "copy", &url];
            finish(&words, bench.spawn(Side::Client, &words));
            let copy = std::fs::read(bench.path("copy")).unwrap();
            let same = digest(&SHA256, &copy).as_ref() == digest(&SHA256, &contents).as_ref();
            assert!(same, "{what} in {mode}, tunnels over IPv6: {v6_outside}");
        }
        for mut end in ends {
            end.signal("TERM");
            assert_eq!(end.wait(), Some(0));
        }
        nginx.kill().unwrap();
        nginx.wait().unwrap();
    }
}

#[test]
fn packets_too_large_for_a_link_report_its_mtu() {
    for (v6_outside, needed, fits) in [(false, 1436, 1364), (true, 1456, 1344)] {
        let Some(bench) = bench() else { return };
        bench.run(
            Side::Server,
            &["ip", "link", "set", "dev", "b", "mtu", "1400"],
        );
        bench.write(
            "node.toml",
            file(Side::Server, v6_outside, "mode = \"lwip\""),
        );
        let words = ["run", "--config", "node.toml"];
        let output = bench.run_sumlink(Side::Server, &words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{error}");
        for words in [
            "link b",
            &format!("grow to {needed}"),
            &format!("lower `mtu` to {fits}"),
        ] {
            assert!(error.contains(words), "{words}: {error}");
        }
        // It starts with that value.
        let lower = format!("mode = \"lwip\"\ntun.mtu = {fits}");
        bench.write("node.toml", file(Side::Server, v6_outside, &lower));
        let mut node = start(&bench, Side::Server);
        node.signal("TERM");
        assert_eq!(node.wait(), Some(0));
    }
}

/// Both ends of a connection would send larger segments: routes and device accept 1360 bytes of
/// payload.
#[test]
fn segments_obey_the_size_of_the_node() {
    let Some(bench) = bench() else { return };
    let mut nginx = bench.serve_files();
    let lines = "mode = \"lwip\"\ntun.mss = 1000";
    bench.write("node.toml", file(Side::Server, false, lines));
    bench.write("user.toml", file(Side::Client, false, ""));
    let ends = [Side::Server, Side::Client].map(|side| start(&bench, side));
    bench.write("www/file", Pattern::bytes(7, 30_000_000));
    for (url, family, most) in [("[fd99::1]", "-6", 980), ("10.99.0.1", "-4", 1000)] {
        let url = format!("http://{url}/file");
        let words = [
            "curl",
            "-gsSf",
            "--limit-rate",
            "100K",
            "--max-time",
            "8",
            "-o",
            "copy",
            &url,
        ];
        let mut curl = bench.spawn(Side::Client, &words);
        for (side, filter) in [(Side::Server, "sport = :80"), (Side::Client, "dport = :80")] {
            let mss = until("a connection is open", || {
                let output = bench.run(
                    side,
                    &["ss", family, "-Htnio", "state", "established", filter],
                );
                let mss = output
                    .split_whitespace()
                    .find_map(|word| word.strip_prefix("mss:"))?;
                mss.parse::<u32>().ok()
            });
            assert!((most - 40..=most).contains(&mss), "{mss} at {side:?}");
        }
        // It ends at its time limit.
        curl.wait().unwrap();
    }
    drop(ends);
    nginx.kill().unwrap();
    nginx.wait().unwrap();
}
