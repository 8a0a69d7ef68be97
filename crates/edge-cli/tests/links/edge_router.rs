//! `sumlink-edge` on routers: a host behind one end, a server behind the other, and a stateful
//! firewall around each end. The node's firewall masquerades.

use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sumlink_lab::Side;

use crate::edge::{LINKS, count, file_with};
use crate::edge_networks::{start, until_up};
use sumlink_test_support::emulated::traffic::Pattern;
use sumlink_test_support::emulated::{Bench, finish, until};

const USERS: &str = "10.20.0.0/24";
const SERVERS: &str = "198.18.1.0/24";

/// Drops packets outside of connections, and counts packets that conntrack calls invalid. Only
/// users open connections.
const FIREWALL: &str = "
table inet filter {
    counter invalid { }
    chain input {
        type filter hook input priority filter; policy drop;
        ct state invalid counter name invalid drop
        ct state established,related accept
        iif lo accept
        meta l4proto { icmp, ipv6-icmp } accept
        iifname { a, b } udp dport 7400 accept
    }
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state invalid counter name invalid drop
        ct state established,related accept
        iifname lan oifname edge0 accept
        iifname edge0 oifname wan accept
    }
}
";

/// The servers have no route to the users.
const MASQUERADE: &str = "
table ip nat {
    chain postrouting {
        type nat hook postrouting priority srcnat;
        oifname wan masquerade
    }
}
";

/// A host with its own network namespace, connected to one side of the laboratory.
struct Host {
    side: Side,
    /// Process that keeps the namespace.
    holder: Child,
}

impl Host {
    fn start(bench: &Bench, side: Side, wire: &str, near: &str, far: &str) -> Self {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "--", "sleep", "300"]);
        let holder = bench.lab.spawn(side, holder).unwrap();
        let id = holder.id().to_string();
        let host = Self { side, holder };
        let own = bench.run(side, &["readlink", "/proc/self/ns/net"]);
        until("the host has a network of its own", || {
            let network = fs::read_link(format!("/proc/{id}/ns/net")).ok()?;
            (network.to_str() != Some(own.trim())).then_some(())
        });
        let veth = ["ip", "link", "add", wire, "type", "veth"];
        bench.run(
            side,
            &[&veth[..], &["peer", "name", wire, "netns", &id]].concat(),
        );
        let configure = |run: &dyn Fn(&[&str]), net: &str| {
            run(&["ip", "addr", "add", net, "dev", wire]);
            run(&["ip", "link", "set", "dev", wire, "up"]);
        };
        configure(&|words| drop(bench.run(side, words)), near);
        configure(&|words| drop(host.run(bench, words)), far);
        host
    }

    /// Command prefix that enters its namespace.
    fn enter(&self) -> Vec<String> {
        let id = self.holder.id().to_string();
        ["nsenter", "--target", &id, "--net", "--"]
            .map(str::to_owned)
            .into()
    }

    fn spawn(&self, bench: &Bench, words: &[&str]) -> Child {
        let enter = self.enter();
        let enter = enter.iter().map(String::as_str);
        let words: Vec<&str> = enter.chain(words.iter().copied()).collect();
        bench.spawn(self.side, &words)
    }

    #[track_caller]
    fn run(&self, bench: &Bench, words: &[&str]) -> String {
        finish(words, self.spawn(bench, words))
    }

    /// Starts nginx in its namespace.
    fn serve_files(&self, bench: &Bench, address: &str) -> Child {
        let nginx = bench.nginx(&[address]);
        let enter = self.enter();
        let mut command = Command::new(&enter[0]);
        command
            .args(&enter[1..])
            .arg(nginx.get_program())
            .args(nginx.get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = bench.lab.spawn(self.side, command).unwrap();
        until("nginx listens", || {
            let listening = self.run(bench, &["ss", "-Htln", "sport = :80"]);
            (!listening.is_empty()).then_some(())
        });
        child
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Enables forwarding between its interfaces, behind a firewall.
fn make_router(bench: &Bench, side: Side, rules: &str) {
    let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
    bench.run(side, &["sh", "-c", forward]);
    let name = format!("{side:?}.nft");
    bench.write(&name, rules);
    bench.run(side, &["nft", "-f", &name]);
}

#[test]
fn every_mode_passes_firewalls_and_masquerading() {
    for mode in ["lwip", "lwa", "lwip+visible"] {
        let Some(bench) = crate::bench(&LINKS.map(str::to_owned)) else {
            return;
        };
        let user = Host::start(&bench, Side::Client, "lan", "10.20.0.1/24", "10.20.0.2/24");
        user.run(
            &bench,
            &["ip", "route", "add", "default", "via", "10.20.0.1"],
        );
        let server = Host::start(
            &bench,
            Side::Server,
            "wan",
            "198.18.1.1/24",
            "198.18.1.2/24",
        );
        make_router(&bench, Side::Client, FIREWALL);
        make_router(&bench, Side::Server, &[FIREWALL, MASQUERADE].concat());
        let mut nginx = server.serve_files(&bench, "198.18.1.2");
        let lines = format!("mode = \"{mode}\"\nsteering = \"roundrobin\"");
        bench.write("node.toml", file_with(Side::Server, &lines, &[USERS]));
        bench.write("user.toml", file_with(Side::Client, "", &[SERVERS]));
        let ends = [Side::Server, Side::Client].map(|side| start(&bench, side));
        for side in [Side::Server, Side::Client] {
            until_up(&bench, side);
        }

        let contents = Pattern::bytes(8, 3_000_000);
        bench.write("www/file", &contents);
        let curl = ["curl", "-sSf", "--max-time", "80"];
        let url = "http://198.18.1.2";
        user.run(
            &bench,
            &[&curl[..], &["-o", "copy", &format!("{url}/file")]].concat(),
        );
        user.run(
            &bench,
            &[&curl[..], &["-T", "copy", &format!("{url}/in/copy")]].concat(),
        );
        for copy in ["copy", "www/in/copy"] {
            let copied = fs::read(bench.path(copy)).unwrap();
            assert!(copied == contents, "{copy} in {mode}");
        }

        let status = ["status", "--json", "--control", "node.sock"];
        let status = bench.run_sumlink(Side::Server, &status).stdout;
        let status: Value = serde_json::from_slice(&status).unwrap();
        for link in 0..2 {
            let carried = count(&status["edge"], &format!("/links/{link}/sent_bytes"));
            assert!(carried > 100_000, "link {link} carried {carried} in {mode}");
        }

        // The user's end reports too large a packet to the host.
        let ping = |host: &Host, bytes: &str, to: &str| {
            let words = ["ping", "-c", "1", "-W", "3", "-M", "do", "-s", bytes, to];
            host.spawn(&bench, &words).wait_with_output().unwrap()
        };
        assert!(ping(&user, "1372", "198.18.1.2").status.success(), "{mode}");
        let output = ping(&user, "1373", "198.18.1.2").stdout;
        let output = String::from_utf8_lossy(&output);
        assert!(output.contains("mtu = 1400"), "{mode}: {output}");
        // The firewalls work: no outside host can connect, even with a route to the users.
        let back = ["ip", "route", "add", USERS, "via", "198.18.1.1"];
        server.run(&bench, &back);
        assert!(!ping(&server, "56", "10.20.0.2").status.success(), "{mode}");

        for side in [Side::Client, Side::Server] {
            let words = ["nft", "list", "counter", "inet", "filter", "invalid"];
            let dropped = bench.run(side, &words);
            assert!(
                dropped.contains("packets 0 "),
                "{mode}, {side:?}: {dropped}"
            );
        }
        for mut end in ends {
            end.signal("TERM");
            assert_eq!(end.wait(), Some(0));
        }
        nginx.kill().unwrap();
        nginx.wait().unwrap();
    }
}
