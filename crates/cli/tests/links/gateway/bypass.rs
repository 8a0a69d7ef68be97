//! What takes another way than the bond, and what must not: the complaints of
//! docs/notes/gateway-complaints.md about bypass and leaks.

use std::net::IpAddr;

use sumlink_lab::Side;
use sumlink_test_support::emulated::lan::Lan;
use sumlink_test_support::emulated::{text, until};

use super::{CAPTURES, Helper, V4, V6, dig, lan, page, route};

/// The names that the internet host's name server knows.
const ZONE: &str = "example.test";
/// The server, as the internet host sees it.
const SERVER: &str = "198.51.100.1";
/// The end of the link `wifi`: a modem with a page for its user.
const MODEM: &str = "10.77.1.1";

/// The links over which packets for the internet host leave beside the bond, while `job` runs.
fn beside(lan: &Lan, job: impl FnOnce()) -> Vec<&'static str> {
    let captures = ["wifi", "lte"].map(|link| (link, lan.capture(Side::Client, link)));
    job();
    let targets: [IpAddr; 2] = [V4.parse().unwrap(), V6.parse().unwrap()];
    let used = captures.into_iter().filter_map(|(link, capture)| {
        let packets = capture.finish().unwrap();
        let is_used = packets
            .iter()
            .any(|packet| targets.contains(&packet.destination));
        is_used.then_some(link)
    });
    used.collect()
}

/// A page, echo requests and a question over UDP, to a name and an address that lead to the
/// internet host.
fn use_everything(lan: &Lan, side: Side, name: &str, address: &str) {
    assert_ne!(page(lan, side, &format!("http://{name}/")), "000", "{name}");
    let pinged = lan.try_on(side, &["ping", "-c", "1", "-W", "5", address]);
    assert!(pinged.status.success(), "{address}");
    assert!(dig(lan, side, address, "www.example.test").contains(V4));
}

#[test]
fn a_domain_or_a_device_takes_its_link_with_every_protocol() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    let shown = lan.host(&["ip", "-brief", "link", "show", "lan0"]);
    let mac = shown.split_whitespace().nth(2).unwrap().to_owned();
    let bank = format!("bank.{ZONE}");
    for capture in CAPTURES {
        lan.up(&format!("capture = \"{capture}\"\n"));
        let rules = [
            (
                format!("domain={bank}"),
                Side::Lan,
                format!("www.{bank}"),
                V4,
            ),
            (format!("to={V4}"), Side::Client, V4.to_owned(), V4),
            (format!("to={V6}"), Side::Lan, format!("[{V6}]"), V6),
            (
                "device=192.168.8.2".to_owned(),
                Side::Lan,
                V4.to_owned(),
                V4,
            ),
            (format!("device={mac}"), Side::Lan, V4.to_owned(), V4),
        ];
        let count = if capture == "tun" { 2 } else { rules.len() };
        for (rule, side, name, address) in rules.into_iter().take(count) {
            let unused = beside(&lan, || {
                assert_ne!(page(&lan, side, &format!("http://{V4}/")), "000");
            });
            assert_eq!(unused, [""; 0], "{capture}, before {rule}");
            let added = text(route(&lan, &["add", &rule, "link", "lte"]));
            let used = beside(&lan, || use_everything(&lan, side, &name, address));
            assert_eq!(used, ["lte"], "{capture}, {rule}: {added}");
            // The newest rule comes first, after the heading.
            let id = added
                .lines()
                .nth(1)
                .and_then(|line| line.split_whitespace().next());
            text(route(&lan, &["remove", id.unwrap()]));
        }
        assert_eq!(lan.end_gateway(), Some(0));
    }
}

#[test]
fn thousands_of_domains_are_rules_and_a_url_is_none() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    let mut domains: Vec<String> = (0..3000).map(|n| format!("\"d{n}.example\"")).collect();
    domains.push(format!("\"last.{ZONE}\""));
    let rule = format!(
        "[[gateway.rule]]\ndomain = [{}]\naction = \"link lte\"\n",
        domains.join(", ")
    );
    lan.up(&rule);
    let name = format!("a.last.{ZONE}");
    let used = beside(&lan, || use_everything(&lan, Side::Lan, &name, V4));
    assert_eq!(used, ["lte"]);
    let tested = text(route(&lan, &["test", &name]));
    assert!(tested.starts_with("link lte: rule 1:"), "{tested}");
    let refused = route(&lan, &["add", "domain=https://bank.example/", "direct"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(
        error.contains("is not a domain; write example.org"),
        "{error}"
    );
    assert_eq!(lan.end_gateway(), Some(0));
}

#[test]
fn questions_leave_only_at_the_server_and_are_answered_again_after_its_restart() {
    let Some(mut lan) = lan() else { return };
    lan.up("");
    let ask = |lan: &Lan, name: &str| {
        // By the gateway, and by a host that has chosen its own name server.
        let servers = ["192.168.8.1", V4];
        servers.map(|server| dig(lan, Side::Lan, server, name))
    };
    let answers = ask(&lan, "first.example.test");
    assert!(
        answers.iter().all(|answer| answer.contains(V4)),
        "{answers:?}"
    );
    let server = lan.server.as_mut().unwrap();
    server.signal("KILL");
    server.wait();
    let captures = lan.capture_links();
    // Two tries of three seconds each.
    for server in ["192.168.8.1", V4] {
        let server = format!("@{server}");
        let words = ["dig", "+short", "+tries=1", "+time=2", &server];
        lan.try_on(Side::Lan, &[&words[..], &["second.example.test"]].concat());
    }
    super::assert_no_leak(captures, "while the server is gone");
    lan.serve("");
    for server in ["192.168.8.1", V4] {
        until("names are answered again", || {
            let server = format!("@{server}");
            let words = ["dig", "+short", "+tries=1", "+time=2", &server];
            let words = [&words[..], &["third.example.test"]].concat();
            let output = lan.try_on(Side::Lan, &words);
            let answer = String::from_utf8_lossy(&output.stdout).into_owned();
            answer.contains(V4).then_some(())
        });
    }
    assert_eq!(lan.end_gateway(), Some(0));
    let questions = lan.bench.lab.questions();
    assert!(questions.len() >= 4, "{questions:?}");
    let elsewhere = questions
        .iter()
        .find(|asked| asked.from.ip().to_string() != SERVER);
    assert_eq!(elsewhere, None);
}

#[test]
fn the_page_of_a_modem_is_reached_from_the_gateway_and_from_the_lan() {
    let Some(mut lan) = lan() else { return };
    let _modem = Helper(lan.bench.serve_files_on(Side::Server, &[MODEM]));
    // A modem knows no way to the LAN: as without sumlink, the router's own rules translate the
    // addresses of packets that bypass the bond.
    lan.forward();
    let before = lan.traces();
    for capture in CAPTURES {
        lan.up(&format!("capture = \"{capture}\"\n"));
        for side in [Side::Client, Side::Lan] {
            let code = page(&lan, side, &format!("http://{MODEM}/"));
            assert_ne!(code, "000", "{capture}, {side:?}");
        }
        assert_eq!(lan.end_gateway(), Some(0));
        assert_eq!(lan.traces(), before);
    }
}
