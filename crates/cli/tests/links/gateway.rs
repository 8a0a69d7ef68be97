//! `sumlink up`: a whole host and a LAN over the bond, with real programs.

mod browser;
mod bypass;
mod call;
mod failover;
mod faults;
mod inbound;
mod portal;
mod programs;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Child, Output};

use serde_json::Value;
use sumlink_lab::{Capture, LanConfig, ReversePath, Side};
use sumlink_test_support::emulated::lan::{Lan, leaks, packets_of};
use sumlink_test_support::emulated::{text, until};

const LINKS: [&str; 2] = ["wifi:rate=40mbit,delay=5ms", "lte:rate=20mbit,delay=10ms"];

/// Both ways of capture.
const CAPTURES: [&str; 2] = ["nftables", "tun"];

/// The internet host.
const V4: &str = "203.0.113.1";
const V6: &str = "2001:db8:3::1";

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_sumlink"))
}

fn lan() -> Option<Lan> {
    lan_with_server("")
}

/// A LAN with a server that has these lines in its file.
fn lan_with_server(lines: &str) -> Option<Lan> {
    let mut lan = Lan::of(program(), &LINKS)?;
    lan.serve(lines);
    Some(lan)
}

/// A program of the test, while it is needed.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Something has passed over the links, but nothing beside the bond.
#[track_caller]
fn assert_no_leak(captures: Vec<Capture>, what: &str) {
    let packets = packets_of(captures);
    assert!(!packets.is_empty(), "{what}");
    let leaked = leaks(&packets);
    assert!(leaked.is_empty(), "{what}: {leaked:?}");
}

/// A page of the internet host as `side` gets it: the status code.
fn page(lan: &Lan, side: Side, url: &str) -> String {
    let words = [
        "curl",
        "--silent",
        "--show-error",
        "--max-time",
        "10",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
        url,
    ];
    let output = lan.try_on(side, &words);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The answers of the internet host's name server to a question at `server`.
fn dig(lan: &Lan, side: Side, server: &str, name: &str) -> String {
    let server = format!("@{server}");
    let words = ["dig", "+short", "+tries=2", "+time=3", &server, name];
    text(lan.try_on(side, &words))
}

/// `sumlink` on the gateway, in the folder of the laboratory.
fn sumlink(lan: &Lan, args: &[&str]) -> Output {
    lan.bench.run_sumlink(Side::Client, args)
}

/// The report of the gateway.
fn status(lan: &Lan) -> Value {
    let report = sumlink(lan, &["status", "--json", "--control", "client.sock"]);
    serde_json::from_str(&text(report)).unwrap()
}

/// The links that carry the session, in alphabetical order.
fn active(lan: &Lan) -> Vec<String> {
    let report = status(lan);
    let paths = report["sessions"][0]["paths"].as_array().cloned();
    let paths = paths.unwrap_or_default();
    let active = paths.iter().filter(|path| path["state"] == "active");
    let mut links: Vec<String> = active
        .filter_map(|path| path["link"].as_str().map(str::to_owned))
        .collect();
    links.sort();
    links.dedup();
    links
}

fn until_active(lan: &Lan, links: &[&str]) {
    until(&format!("{links:?} are active"), || {
        (active(lan) == links).then_some(())
    });
}

fn route(lan: &Lan, args: &[&str]) -> Output {
    let all = [&["route"], args, &["--control", "client.sock"]].concat();
    sumlink(lan, &all)
}

#[test]
fn programs_of_the_lan_and_of_the_gateway_use_the_bond_unchanged() {
    for capture in CAPTURES {
        let Some(mut lan) = lan() else { return };
        let _files = Helper(lan.serve_files());
        let captures = lan.capture_links();
        lan.up(&format!("capture = \"{capture}\"\n"));
        for side in [Side::Lan, Side::Client] {
            let code = page(&lan, side, &format!("http://{V4}/"));
            assert_ne!(code, "000", "{capture}, {side:?}");
            let code = page(&lan, side, &format!("http://[{V6}]/"));
            assert_ne!(code, "000", "IPv6, {capture}, {side:?}");
            for address in [V4, V6] {
                let pinged = lan.try_on(side, &["ping", "-c", "2", "-W", "5", address]);
                assert!(
                    pinged.status.success(),
                    "ping {address}, {capture}, {side:?}"
                );
            }
            // A name server that answers over UDP, and over TCP because its answer is large.
            assert!(dig(&lan, side, V4, "www.example.test").contains(V4));
            assert!(dig(&lan, side, V4, "big.example.test").lines().count() > 50);
        }
        // The gateway's own forwarder, which asks the server's resolver.
        assert!(dig(&lan, Side::Lan, "192.168.8.1", "www.example.test").contains(V4));
        assert_eq!(lan.end_gateway(), Some(0), "{capture}");
        assert_no_leak(captures, capture);
    }
}

#[test]
fn nothing_is_left_behind_after_any_end() {
    let Some(mut lan) = lan() else { return };
    let before = lan.traces();
    for (capture, end) in [
        ("nftables", "TERM"),
        ("tun", "down"),
        ("nftables", "KILL"),
        ("tun", "KILL"),
    ] {
        lan.up(&format!("capture = \"{capture}\"\n"));
        assert_ne!(lan.traces(), before);
        match end {
            "down" => {
                let down = sumlink(&lan, &["down", "--control", "client.sock"]);
                assert!(text(down).contains("has ended"));
                let gateway = lan.gateway.as_mut().unwrap();
                assert_eq!(gateway.wait(), Some(0));
            }
            "KILL" => {
                let gateway = lan.gateway.as_mut().unwrap();
                gateway.signal("KILL");
                gateway.wait();
                let cleaned = text(sumlink(&lan, &["down", "--clean"]));
                assert!(cleaned.contains("removed:"), "{cleaned}");
            }
            _ => assert_eq!(lan.end_gateway(), Some(0)),
        }
        assert_eq!(lan.traces(), before, "{capture}, {end}");
    }
    let again = text(sumlink(&lan, &["down", "--clean"]));
    assert!(again.contains("none has left anything"), "{again}");
}

#[test]
fn a_killed_gateway_leaves_the_kill_switch_and_the_next_one_takes_over() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    lan.up("");
    let gateway = lan.gateway.as_mut().unwrap();
    gateway.signal("KILL");
    gateway.wait();
    let captures = lan.capture_links();
    for side in [Side::Lan, Side::Client] {
        assert_eq!(page(&lan, side, &format!("http://{V4}/")), "000");
        let pinged = lan.try_on(side, &["ping", "-c", "1", "-W", "1", V4]);
        assert!(!pinged.status.success());
    }
    let leaked = packets_of(captures);
    assert!(leaks(&leaked).is_empty(), "{:?}", leaks(&leaked));
    lan.up("");
    assert_ne!(page(&lan, Side::Lan, &format!("http://{V4}/")), "000");
    assert_eq!(lan.end_gateway(), Some(0));
}

#[test]
fn without_the_bond_traffic_is_blocked_or_takes_a_link_as_the_setting_says() {
    for (setting, expected) in [("block", false), ("direct", true)] {
        let Some(mut lan) = lan() else { return };
        let _files = Helper(lan.serve_files());
        lan.up(&format!("without_bond = \"{setting}\"\n"));
        let server = lan.server.as_mut().unwrap();
        server.signal("KILL");
        server.wait();
        let captures = lan.capture_links();
        if expected {
            let reached = until("the page without the bond", || {
                let code = page(&lan, Side::Lan, &format!("http://{V4}/"));
                (code != "000").then_some(code)
            });
            assert!(!reached.is_empty());
        } else {
            assert_eq!(page(&lan, Side::Lan, &format!("http://{V4}/")), "000");
        }
        assert_eq!(lan.end_gateway(), Some(0));
        let packets = packets_of(captures);
        assert_eq!(leaks(&packets).is_empty(), !expected, "{setting}");
    }
}

#[test]
fn rules_decide_at_run_time_and_the_test_names_the_rule() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    lan.up("[[gateway.rule]]\nport = 81\naction = \"block\"\n");
    let url = format!("http://{V4}/");
    assert_ne!(page(&lan, Side::Lan, &url), "000");
    let added = text(route(
        &lan,
        &["add", "to=203.0.113.0/24", "port=80", "block"],
    ));
    assert!(added.contains("until the gateway ends"), "{added}");
    assert_eq!(page(&lan, Side::Lan, &url), "000");
    let tested = text(route(&lan, &["test", &format!("{V4}:80")]));
    assert!(tested.starts_with("block: rule 2:"), "{tested}");
    let local = text(route(&lan, &["test", "192.168.8.2"]));
    assert!(local.starts_with("bypass:"), "{local}");
    let other = text(route(&lan, &["test", "example.org:81"]));
    assert!(
        other.starts_with("block: rule 1: the port is 81"),
        "{other}"
    );
    assert!(text(route(&lan, &["remove", "2"])).contains("port=81"));
    assert_ne!(page(&lan, Side::Lan, &url), "000");
    // The rule's link carries the connection, and the other one nothing.
    route(&lan, &["add", "to=203.0.113.0/24", "link", "lte"]);
    let captures = lan.capture_links();
    assert_ne!(page(&lan, Side::Lan, &url), "000");
    assert_ne!(page(&lan, Side::Client, &url), "000");
    let target = IpAddr::from(V4.parse::<Ipv4Addr>().unwrap());
    let carried: Vec<bool> = captures
        .into_iter()
        .map(|capture| {
            let packets = capture.finish().unwrap();
            packets.iter().any(|packet| packet.destination == target)
        })
        .collect();
    assert_eq!(carried, [false, true]);
    // A domain, by the addresses that the gateway's DNS has answered.
    let domain = route(&lan, &["add", "domain=h9.example.test", "block"]);
    assert!(domain.status.success());
    let address = dig(&lan, Side::Lan, "192.168.8.1", "h9.example.test");
    let url = format!("http://{}/", address.trim());
    assert_eq!(page(&lan, Side::Lan, &url), "000", "{url}");
    assert_eq!(lan.end_gateway(), Some(0));
}

#[test]
fn wrong_starts_are_one_line_and_change_nothing() {
    let Some(mut lan) = lan() else { return };
    let before = lan.traces();
    for (more, code, words) in [
        ("capture = \"ebpf\"\n", 3, "use auto, nftables or tun"),
        ("[[gateway.rule]]\nport = 80\n", 3, "action"),
        ("device = \"wifi\"\n", 3, "gateway's own device"),
        ("host = false\nlan = []\n", 3, ""),
        ("kept_rules = \"server.toml\"\n", 3, "the kept rules in"),
    ] {
        lan.write_gateway(more);
        let refused = sumlink(&lan, &["up", "--config", "gateway.toml"]);
        assert_eq!(refused.status.code(), Some(code), "{more}: {refused:?}");
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        let last = message.lines().last().unwrap_or_default();
        assert!(message.contains(words), "{more}: {last}");
        assert_eq!(lan.traces(), before, "{more}");
    }
    lan.up("");
    let second = sumlink(
        &lan,
        &[
            "up",
            "--config",
            "gateway.toml",
            "--control",
            "other.sock",
            "--socks",
            "1081",
        ],
    );
    assert_eq!(second.status.code(), Some(12), "{second:?}");
    let message = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        message.contains("a gateway is running already"),
        "{message}"
    );
    assert_ne!(lan.traces(), before);
    assert_eq!(lan.end_gateway(), Some(0));
    assert_eq!(lan.traces(), before);
    let dry = text(sumlink(
        &lan,
        &["up", "--config", "gateway.toml", "--dry-run"],
    ));
    assert!(dry.contains("ip rule add"), "{dry}");
    assert_eq!(lan.traces(), before);
}

#[test]
fn strict_reverse_path_filters_pass_carriers_and_answers() {
    let config = LanConfig {
        rp_filter: ReversePath::Strict,
    };
    let Some(mut lan) = Lan::with(program(), &LINKS, config) else {
        return;
    };
    lan.serve("");
    let _files = Helper(lan.serve_files());
    lan.up("");
    // A strict filter drops packets from a link that is not the preferred one, as without sumlink.
    for side in [Side::Lan, Side::Client] {
        assert_ne!(page(&lan, side, &format!("http://{V4}/")), "000");
        let pinged = lan.try_on(side, &["ping", "-c", "1", "-W", "5", V4]);
        assert!(pinged.status.success());
    }
    assert_eq!(lan.end_gateway(), Some(0));
}
