//! curl through every entry, both ways, over IPv4 and IPv6.

use std::fs;

use ring::digest::{SHA256, digest};
use sumlink_lab::Side;
use sumlink_transport::SessionStatus;

use crate::bond::{Bond, HTTP, Plan, SOCKS};
use sumlink_test_support::emulated::traffic::Pattern;

const LINKS: [&str; 2] = ["a:rate=20mbit,delay=5ms", "b:rate=30mbit,delay=10ms"];
const SIZE: usize = 3_000_000;

/// A link with less than this share of a transfer counts as unused.
const MIN_SHARE: f64 = 0.1;

/// The entries: a name, curl's flags, and the address of `host` for curl.
fn entries(host: &str) -> Vec<(String, Vec<String>, String)> {
    let forwarded = if host.starts_with('[') {
        "[::1]:8000"
    } else {
        "127.0.0.1:8000"
    };
    [
        (
            "SOCKS, name sent on",
            format!("--socks5-hostname {SOCKS}"),
            host,
        ),
        ("SOCKS, address sent", format!("--socks5 {SOCKS}"), host),
        ("HTTP CONNECT", format!("-p -x http://{HTTP}"), host),
        ("HTTP proxy", format!("-x http://{HTTP}"), host),
        ("forward", String::new(), forwarded),
    ]
    .into_iter()
    .map(|(name, flags, host)| {
        let flags = flags.split_whitespace().map(str::to_owned).collect();
        (name.to_owned(), flags, host.to_owned())
    })
    .collect()
}

fn bond(server: &str) -> Option<Bond> {
    let forwards = "forward = [\"127.0.0.1:8000=10.99.0.1:80\", \"[::1]:8000=[fd99::1]:80\"]\n";
    let mut bond = Plan::new(&LINKS).server(server).client(forwards).start()?;
    bond.until_active(&["a", "b"]);
    bond.serve_files();
    Some(bond)
}

/// Bytes that each path has carried in one direction.
fn carried(session: &SessionStatus, sent: bool) -> Vec<(String, u64)> {
    let bytes = |sends, receives| if sent { sends } else { receives };
    let paths = session.paths.iter();
    paths
        .map(|path| {
            (
                path.link.clone(),
                bytes(path.bytes_sent, path.bytes_received),
            )
        })
        .collect()
}

/// Both links must have carried a share of the bytes since `before`.
#[track_caller]
fn assert_shared(bond: &Bond, before: &SessionStatus, sent: bool, what: &str) {
    let (before, after) = (
        carried(before, sent),
        carried(&bond.status(Side::Client), sent),
    );
    let total = |all: &[(String, u64)]| all.iter().map(|(_, bytes)| bytes).sum::<u64>() as f64;
    let whole = total(&after) - total(&before);
    for ((link, new), (_, old)) in after.iter().zip(&before) {
        let share = (new - old) as f64 / whole;
        assert!(
            share > MIN_SHARE,
            "{what}: {link} carried {share:.2} of it; {after:?} {before:?}"
        );
    }
}

fn every_entry(server: &str) {
    let Some(bond) = bond(server) else { return };
    let www = bond.bench.path("www");
    let mut seed = 0;
    for host in ["10.99.0.1", "[fd99::1]"] {
        for (entry, flags, host) in entries(host) {
            let what = format!("{entry} to {host}");
            seed += 1;
            let contents = Pattern::bytes(seed, SIZE);
            let expected = digest(&SHA256, &contents);
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();

            fs::write(www.join("file"), &contents).unwrap();
            let before = bond.status(Side::Client);
            let url = format!("http://{host}/file");
            let words = [&["curl", "-gsSf", "-o", "copy", &url], &flags[..]].concat();
            bond.bench.run(Side::Client, &words);
            let copy = fs::read(bond.bench.path("copy")).unwrap();
            assert_eq!(
                digest(&SHA256, &copy).as_ref(),
                expected.as_ref(),
                "{what}, download"
            );
            assert_shared(&bond, &before, false, &format!("{what}, download"));

            fs::write(bond.bench.path("original"), &contents).unwrap();
            let before = bond.status(Side::Client);
            let url = format!("http://{host}/in/file-{seed}");
            let words = [&["curl", "-gsSf", "-T", "original", &url], &flags[..]].concat();
            bond.bench.run(Side::Client, &words);
            let copy = fs::read(www.join(format!("in/file-{seed}"))).unwrap();
            assert_eq!(
                digest(&SHA256, &copy).as_ref(),
                expected.as_ref(),
                "{what}, upload"
            );
            assert_shared(&bond, &before, true, &format!("{what}, upload"));
        }
    }
    bond.stop();
}

#[test]
fn every_entry_uses_both_links_to_a_server_on_ipv4() {
    every_entry("10.99.0.1:7000");
}

#[test]
fn every_entry_uses_both_links_to_a_server_on_ipv6() {
    every_entry("[fd99::1]:7000");
}

/// The content of `http://localhost/file` through an entry; `None` if it cannot be fetched.
fn localhost(bond: &Bond, flags: &[&str]) -> Option<String> {
    let words = [&["curl", "-sSf", "http://localhost/file"], flags].concat();
    let output = bond
        .bench
        .spawn(Side::Client, &words)
        .wait_with_output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    output.status.success().then_some(text)
}

#[test]
fn names_are_resolved_and_checked_at_the_server() {
    let entries = [
        &["--socks5-hostname", SOCKS][..],
        &["-x", HTTP],
        &["-p", "-x", HTTP],
    ];
    for (egress, expected) in [
        ("", None),
        ("[egress]\nrules = [\"allow 127.0.0.0/8\"]\n", Some("there")),
    ] {
        let Some(mut bond) = Plan::new(&LINKS).server_tables(egress).start() else {
            return;
        };
        bond.serve_files();
        fs::write(bond.bench.path("www/file"), "there").unwrap();
        // The client's loopback interface has no server; the server's needs a rule.
        for flags in entries {
            assert_eq!(
                localhost(&bond, flags).as_deref(),
                expected,
                "{flags:?} {egress}"
            );
        }
        bond.stop();
    }
}
