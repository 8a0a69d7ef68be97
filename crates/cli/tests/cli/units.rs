//! The systemd units and the users that they run as.

use std::collections::BTreeSet;
use std::os::unix::fs::chown;
use std::process::Command;

const CLIENT: &str = include_str!("../../../../packaging/systemd/sumlink-client.service");
const GATEWAY: &str = include_str!("../../../../packaging/systemd/sumlink-gateway.service");
const SERVER: &str = include_str!("../../../../packaging/systemd/sumlink-server.service");
const SOCKET: &str = include_str!("../../../../packaging/systemd/sumlink-server.socket");
const EDGE: &str = include_str!("../../../../packaging/systemd/sumlink-edge.service");
const USERS: &str = include_str!("../../../../packaging/systemd/sysusers.conf");

fn value<'a>(unit: &'a str, key: &str) -> &'a str {
    let mut lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.find(|(name, _)| *name == key).expect(key).1
}

#[test]
fn each_service_has_its_own_user_and_bounds() {
    let mut users = BTreeSet::new();
    for unit in [CLIENT, SERVER, EDGE] {
        let user = value(unit, "User");
        assert!(users.insert(user), "{user} runs two services");
        assert!(
            USERS
                .lines()
                .any(|line| line.starts_with(&format!("u {user} ")))
        );
        for bound in ["MemoryMax", "TasksMax", "LimitNOFILE"] {
            assert!(!value(unit, bound).is_empty());
        }
    }
}

/// Port 443 is the default of setup.
#[test]
fn the_server_may_listen_on_a_low_port_and_its_socket_has_both_kinds() {
    assert_eq!(value(SERVER, "AmbientCapabilities"), "CAP_NET_BIND_SERVICE");
    // In a namespace of users, the capability would not count for ports.
    assert!(!SERVER.lines().any(|line| line == "PrivateUsers=yes"));
    for key in ["ListenStream", "ListenDatagram"] {
        assert_eq!(value(SOCKET, key), "443");
    }
}

/// A gateway changes routes and the firewall, and cleans up after any end.
#[test]
fn the_gateway_has_the_capabilities_that_it_needs_and_cleans_up() {
    let capabilities = value(GATEWAY, "CapabilityBoundingSet");
    for needed in ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_NET_BIND_SERVICE"] {
        assert!(capabilities.contains(needed), "{needed}");
    }
    assert!(value(GATEWAY, "ExecStopPost").ends_with("sumlink down --clean"));
    assert_eq!(value(GATEWAY, "DeviceAllow"), "/dev/net/tun rw");
}

/// Root without CAP_DAC_READ_SEARCH cannot read a file that only another user may read.
#[test]
fn the_gateway_reads_the_key_of_the_clients_service() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let bench = crate::common::new();
    bench.key("client.key");
    let key = bench.path("client.key");
    chown(&key, Some(65_534), None).unwrap();
    let capabilities = value(GATEWAY, "CapabilityBoundingSet").to_lowercase();
    let mut set = "-all".to_owned();
    for name in capabilities.split(' ') {
        set += &format!(",+{}", name.trim_start_matches("cap_"));
    }
    for (set, is_readable) in [(set.as_str(), true), ("-all", false)] {
        let mut run = Command::new("setpriv");
        run.args([
            "--bounding-set",
            set,
            env!("CARGO_BIN_EXE_sumlink"),
            "pubkey",
        ]);
        let output = run.arg(&key).output().unwrap();
        assert_eq!(output.status.success(), is_readable, "{set}: {output:?}");
    }
}

/// Exit codes that need the administrator of this machine (docs/cli.md): command line,
/// configuration, key file. Failures with a remedy elsewhere, such as a key missing at the server,
/// are retried.
#[test]
fn a_service_restarts_after_failures_of_other_machines() {
    for (unit, codes) in [
        (CLIENT, "2 3 4"),
        (GATEWAY, "2 3 4"),
        (SERVER, "2 3 4"),
        (EDGE, "2 3"),
    ] {
        assert_eq!(value(unit, "RestartPreventExitStatus"), codes);
        assert_eq!(value(unit, "Restart"), "on-failure");
        assert_eq!(value(unit, "StartLimitIntervalSec"), "0");
    }
}
