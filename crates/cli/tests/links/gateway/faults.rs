//! Wrong starts, hostile surroundings, and loops.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt, chown};
use std::thread;
use std::time::{Duration, Instant};

use sumlink_lab::Side;
use sumlink_test_support::emulated::lan::Lan;
use sumlink_test_support::emulated::{has_users, text, until};

use super::{Helper, LINKS, V4, V6, active, dig, lan, page, program, route, status, until_active};

/// The server's host, and its address in the links.
const SERVER: &str = "10.99.0.1";
/// An unprivileged user.
const USER: u32 = 65_534;
/// Time for which the laptop sleeps.
const SLEEP: Duration = Duration::from_secs(20);
/// Longest accepted time until a request fails that cannot succeed.
const REFUSAL: Duration = Duration::from_secs(8);

/// Time in which a request of one side fails.
fn refused(lan: &Lan, side: Side, url: &str) {
    let begun = Instant::now();
    assert_eq!(page(lan, side, url), "000", "{side:?}, {url}");
    let took = begun.elapsed();
    assert!(took < REFUSAL, "{side:?}, {url}: {took:?}");
}

/// Whether programs of both sides reach the internet host.
#[track_caller]
fn all_work(lan: &Lan) {
    for side in [Side::Lan, Side::Client] {
        let url = format!("http://{V4}/");
        assert_ne!(page(lan, side, &url), "000", "{side:?}");
        let pinged = lan.try_on(side, &["ping", "-c", "1", "-W", "5", V4]);
        assert!(pinged.status.success(), "{side:?}");
    }
    assert!(dig(lan, Side::Lan, "192.168.8.1", "www.example.test").contains(V4));
}

#[test]
fn without_permission_a_start_is_one_line_and_changes_nothing() {
    let Some(lan) = lan() else { return };
    let before = lan.traces();
    lan.write_gateway("");
    let file = lan.bench.path("gateway.toml");
    // Its default socket is where only root may write.
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("control = \"client.sock\"\n", "")).unwrap();
    let (user, program) = (format!("--reuid={USER}"), program());
    let mut ways = vec![vec!["--bounding-set=-all", "--inh-caps=-all"]];
    if has_users() {
        let open = |mode| fs::Permissions::from_mode(mode);
        fs::set_permissions(lan.bench.dir(), open(0o755)).unwrap();
        chown(lan.bench.path("client.key"), Some(USER), None).unwrap();
        ways.push(vec![&user, "--clear-groups"]);
    } else {
        eprintln!("skipped: the start by another user, of which this user namespace has none");
    }
    for way in ways {
        let command = [program.to_str().unwrap(), "up", "--config", "gateway.toml"];
        let words = [&["setpriv"], &way[..], &command].concat();
        let output = lan.try_on(Side::Client, &words);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(12), "{way:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{way:?}: {error}");
        assert!(error.contains("run as root"), "{way:?}: {error}");
    }
    assert_eq!(lan.traces(), before);
}

/// Fills the connection table of the gateway with datagrams to a host that does not answer. The
/// limit is one for all namespaces, and only the first one may change it.
fn fill(lan: &Lan, entries: u64) {
    let send = move || {
        let mut sent = 0;
        while sent < entries {
            let socket = UdpSocket::bind("192.168.8.1:0").unwrap();
            for port in 10_000..60_000 {
                let _ = socket.send_to(b"x", ("192.168.8.2", port));
                sent += 1;
            }
        }
    };
    lan.bench.lab.run(Side::Client, send).unwrap();
}

#[test]
fn a_full_connection_table_is_reported_and_traffic_passes() {
    const MOST: u64 = 300_000;
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    lan.up("");
    all_work(&lan);
    let most = ["cat", "/proc/sys/net/netfilter/nf_conntrack_max"];
    let most: u64 = lan.bench.run(Side::Client, &most).trim().parse().unwrap();
    if !(1..=MOST).contains(&most) {
        eprintln!("skipped: this machine's connection table has {most} entries");
        return;
    }
    // The receiver refuses nothing, so that no entry is confirmed or removed.
    let block = "table inet t {\n  chain c {\n    type filter hook prerouting priority raw;\n    \
                 udp sport != 53 udp dport 10000-60000 drop\n  }\n}\n";
    let block = lan.bench.write("block.nft", block);
    lan.host(&["nft", "-f", block.to_str().unwrap()]);
    fill(&lan, most + most / 8);
    assert_eq!(status(&lan)["gateway"]["connection_table_full"], true);
    let shown = super::sumlink(&lan, &["status", "--control", "client.sock"]);
    assert!(text(shown).contains("nf_conntrack_max"));
    // The kernel gives up entries without an answer for new ones.
    all_work(&lan);
    assert_eq!(lan.end_gateway(), Some(0));
}

#[test]
fn a_lan_host_may_use_the_socks_server_of_its_gateway_and_cannot_make_loops() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    // Traffic to the LAN and to the gateway itself shall leave over the best link: a trap.
    let rules = ["192.168.8.0/24", "198.18.0.0/15", "127.0.0.0/8"];
    let rules = rules.map(|to| format!("[[gateway.rule]]\nto = \"{to}\"\naction = \"direct\"\n"));
    lan.write_gateway(&rules.concat());
    let gateway = lan.bench.sumlink(
        "gateway",
        &[
            "up",
            "--config",
            "gateway.toml",
            "--socks",
            "192.168.8.1:1080",
            "--forward",
            "192.168.8.1:9000=192.168.8.1:9000",
        ],
    );
    gateway.event("connected");
    lan.gateway = Some(gateway);
    let socks = |url: &str| {
        let proxy = ["--socks5-hostname", "192.168.8.1:1080"];
        let words = ["curl", "-s", "-m", "8", "-o", "/dev/null", url];
        lan.try_on(Side::Lan, &[&words[..], &proxy].concat())
    };
    for url in [
        format!("http://{V4}/"),
        "http://www.example.test/".to_owned(),
    ] {
        assert!(socks(&url).status.success(), "{url}");
    }
    for own in ["192.168.8.1", "127.0.0.1", "198.18.74.1"] {
        let begun = Instant::now();
        assert!(!socks(&format!("http://{own}:1080/")).status.success());
        assert!(begun.elapsed() < REFUSAL, "{own}");
    }
    // A port that forwards to itself.
    let looping = lan.try_on(
        Side::Lan,
        &["curl", "-s", "-m", "3", "http://192.168.8.1:9000/"],
    );
    assert!(!looping.status.success());
    let connections = ["ss", "-Htan", "sport = :9000"];
    let connections = lan.bench.run(Side::Client, &connections);
    assert!(connections.lines().count() < 10, "{connections}");
    all_work(&lan);
    assert_eq!(lan.end_gateway(), Some(0));
}

#[test]
fn the_address_of_the_server_is_reached_over_the_bond_where_its_rules_allow_it() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    let _server = Helper(lan.bench.serve_files_on(Side::Server, &[SERVER]));
    lan.up("");
    let url = format!("http://{SERVER}/");
    for side in [Side::Lan, Side::Client] {
        refused(&lan, side, &url);
        // The port of the server itself.
        refused(&lan, side, &format!("http://{SERVER}:7000/"));
    }
    let file = lan.bench.path("server.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        format!("{text}[egress]\nrules = [\"allow {SERVER}\"]\n"),
    )
    .unwrap();
    lan.server.as_ref().unwrap().signal("HUP");
    for side in [Side::Lan, Side::Client] {
        until("the server's host is reached", || {
            (page(&lan, side, &url) != "000").then_some(())
        });
        // A stranger's connection to the server over the bond of another client.
        refused(&lan, side, &format!("http://{SERVER}:7000/"));
    }
    all_work(&lan);
    until_active(&lan, &["lte", "wifi"]);
    assert_eq!(lan.end_gateway(), Some(0));
}

#[test]
fn a_suspended_gateway_works_again_when_it_wakes() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    lan.up("");
    until_active(&lan, &["lte", "wifi"]);
    all_work(&lan);
    let gateway = lan.gateway.as_ref().unwrap();
    gateway.signal("STOP");
    thread::sleep(SLEEP);
    gateway.signal("CONT");
    let woken = Instant::now();
    for side in [Side::Lan, Side::Client] {
        until("a page is reached after the sleep", || {
            (page(&lan, side, &format!("http://{V4}/")) != "000").then_some(())
        });
    }
    eprintln!("pages {:?} after the sleep", woken.elapsed());
    until_active(&lan, &["lte", "wifi"]);
    all_work(&lan);
    assert_eq!(lan.end_gateway(), Some(0));
}

#[test]
fn a_lan_host_that_changes_its_address_goes_on_and_keeps_its_rules() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    lan.up("");
    all_work(&lan);
    let shown = lan.host(&["ip", "-brief", "link", "show", "lan0"]);
    let mac = shown.split_whitespace().nth(2).unwrap();
    let device = format!("device={mac}");
    assert!(
        route(&lan, &["add", &device, "port=81", "block"])
            .status
            .success()
    );
    let batch = "addr flush dev lan0 scope global\naddr add 192.168.8.77/24 dev lan0\n\
                 addr add fd55:8::77/64 dev lan0 nodad\nroute replace default via 192.168.8.1\n\
                 route replace default via fd55:8::1\n";
    let batch = lan.bench.write("batch", batch);
    lan.host(&["ip", "-batch", batch.to_str().unwrap()]);
    all_work(&lan);
    assert_ne!(page(&lan, Side::Lan, &format!("http://[{V6}]/")), "000");
    refused(&lan, Side::Lan, &format!("http://{V4}:81/"));
    assert_eq!(status(&lan)["gateway"]["routes"]["streams"]["blocked"], 1);
    assert_eq!(lan.end_gateway(), Some(0));
}

#[test]
fn a_gateway_without_ipv6_says_so_and_serves_ipv4() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    let disable = ["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"];
    lan.bench.run(Side::Client, &disable);
    let before = lan.traces();
    let captures = lan.capture_links();
    let gateway = lan.up("");
    assert_eq!(gateway.lines_with("IPv6 is disabled"), 1);
    all_work(&lan);
    assert_eq!(page(&lan, Side::Lan, &format!("http://[{V6}]/")), "000");
    assert_eq!(lan.end_gateway(), Some(0));
    super::assert_no_leak(captures, "without IPv6");
    assert_eq!(lan.traces(), before);
}

#[test]
fn two_modems_and_the_lan_on_the_same_subnet_are_all_used() {
    let Some(mut lan) = Lan::of(program(), &LINKS) else {
        return;
    };
    let batch = |side, lines: &str| {
        let file = lan.bench.write("batch", lines);
        lan.bench
            .run(side, &["ip", "-batch", file.to_str().unwrap()]);
    };
    // Two modems of one make, and a LAN with the numbers that their maker chose, too.
    batch(
        Side::Client,
        "addr flush dev wifi\naddr flush dev lte\n\
         addr add 192.168.8.100/24 dev wifi\naddr add 192.168.8.101/24 dev lte\n\
         route add default via 192.168.8.254 dev wifi metric 101\n\
         route add default via 192.168.8.254 dev lte metric 102\n",
    );
    batch(
        Side::Server,
        "addr flush dev wifi\naddr flush dev lte\n\
         addr add 192.168.8.254/32 dev wifi\naddr add 192.168.8.254/32 dev lte\n\
         route add 192.168.8.100/32 dev wifi\nroute add 192.168.8.101/32 dev lte\n",
    );
    lan.serve("");
    let _files = Helper(lan.serve_files());
    let before = lan.traces();
    let gateway = lan.up("");
    assert!(gateway.lines_with("overlaps with") >= 2);
    until_active(&lan, &["lte", "wifi"]);
    all_work(&lan);
    // The host of the LAN is still there, for the gateway, too.
    let ping = ["ping", "-c", "1", "-W", "5", "192.168.8.2"];
    assert!(lan.try_on(Side::Client, &ping).status.success());
    assert_eq!(active(&lan).len(), 2);
    assert_eq!(lan.end_gateway(), Some(0));
    assert_eq!(lan.traces(), before);
}
