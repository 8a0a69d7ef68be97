//! `sumlink-edge`: ordinary programs with the kernel's TCP at both ends, and an edge node with two
//! links between them.

use std::fs;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use serde_json::Value;
use sumlink_lab::Side;

use sumlink_test_support::emulated::Daemon;
use sumlink_test_support::emulated::traffic::Pattern;
use sumlink_test_support::emulated::{Bench, until};

pub(crate) const MODES: [&str; 3] = ["lwip", "lwa", "lwip+visible"];

/// Addresses of the ends' devices.
pub(crate) const NODE: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
pub(crate) const USER: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);

/// Unequal enough for packets to overtake each other.
pub(crate) const LINKS: [&str; 2] = ["a:rate=16mbit,delay=5ms", "b:rate=8mbit,delay=15ms"];
const RATES: [&str; 2] = ["15.7mbit", "7.8mbit"];

/// Both ends of an edge node, and a file server behind one.
pub(crate) struct Edge {
    pub(crate) bench: Bench,
    pub(crate) node: Daemon,
    user: Daemon,
    nginx: Child,
}

/// The file of one end, with the lines `top` at its top.
pub(crate) fn file(side: Side, top: &str) -> String {
    let routes: &[&str] = match side {
        Side::Server => &[],
        Side::Client => &["10.99.0.1"],
        side => panic!("no end of an edge node is on {side:?}"),
    };
    file_with(side, top, routes)
}

/// The same with the networks behind the other end.
pub(crate) fn file_with(side: Side, top: &str, routes: &[&str]) -> String {
    let (role, host) = match side {
        Side::Server => ("node", 1),
        Side::Client => ("user", 2),
        side => panic!("no end of an edge node is on {side:?}"),
    };
    let mut text = format!(
        "role = \"{role}\"\ncontrol = \"{role}.sock\"\n{top}\ntun.addresses = [\"10.88.0.{host}/24\"]\n\
         tun.routes = {routes:?}\n"
    );
    for (number, rate) in RATES.iter().enumerate() {
        let name = ["a", "b"][number];
        let ends = [2, 1].map(|host| format!("10.77.{}.{host}:7400", number + 1));
        let (local, remote) = (&ends[side as usize], &ends[1 - side as usize]);
        text.push_str(&format!(
            "[[link]]\nname = \"{name}\"\ninterface = \"{name}\"\nlocal = \"{local}\"\nremote = \"{remote}\"\nrate = \"{rate}\"\n"
        ));
    }
    text
}

pub(crate) fn start_node(bench: &Bench) -> Daemon {
    let node = bench.sumlink_on(Side::Server, "node", &["run", "--config", "node.toml"]);
    node.event("ready");
    node
}

impl Edge {
    fn start_user(bench: &Bench) -> Daemon {
        let user = bench.sumlink_on(Side::Client, "user", &["run", "--config", "user.toml"]);
        user.event("ready");
        user
    }

    /// Starts both ends with these lines at the top of their files; returns when both links are up.
    pub(crate) fn start(node: &str, user: &str) -> Option<Self> {
        let bench = crate::bench(&LINKS.map(str::to_owned))?;
        bench.write("node.toml", file(Side::Server, node));
        bench.write("user.toml", file(Side::Client, user));
        let nginx = bench.serve_files();
        let node = start_node(&bench);
        let user = Self::start_user(&bench);
        let edge = Self {
            bench,
            node,
            user,
            nginx,
        };
        edge.until_states("node", ["up", "up"]);
        edge.until_states("user", ["up", "up"]);
        Some(edge)
    }

    pub(crate) fn kill_user(&mut self) {
        self.user.signal("KILL");
        self.user.wait();
    }

    pub(crate) fn restart_user(&mut self) {
        self.user = Self::start_user(&self.bench);
    }

    /// The status of an end.
    pub(crate) fn status(&self, end: &str) -> Value {
        let side = match end {
            "node" => Side::Server,
            _ => Side::Client,
        };
        let socket = format!("{end}.sock");
        let output = self
            .bench
            .run_sumlink(side, &["status", "--json", "--control", &socket]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["edge"].clone()
    }

    #[track_caller]
    pub(crate) fn until_states(&self, end: &str, wanted: [&str; 2]) {
        until(&format!("{end}: {wanted:?}"), || {
            let status = self.status(end);
            let state = |link: usize| status["links"][link]["state"] == wanted[link];
            (state(0) && state(1)).then_some(())
        });
    }

    /// Creates a file of this size at the server; returns its digest.
    pub(crate) fn offer(&self, bytes: usize) -> Vec<u8> {
        let contents = Pattern::bytes(bytes as u64, bytes);
        fs::write(self.bench.path("www/file"), &contents).unwrap();
        digest(&SHA256, &contents).as_ref().to_vec()
    }

    /// The digest of the downloaded file.
    pub(crate) fn copy(&self) -> Vec<u8> {
        let copy = fs::read(self.bench.path("copy")).unwrap();
        digest(&SHA256, &copy).as_ref().to_vec()
    }

    pub(crate) fn curl(&self) -> Child {
        let words = ["curl", "-sSf", "--max-time", "80", "-o", "copy"];
        let words = [&words[..], &["http://10.99.0.1/file"]].concat();
        self.bench.spawn(Side::Client, &words)
    }

    /// Waits until this number of bytes of the file has arrived.
    pub(crate) fn until_copied(&self, bytes: u64) {
        let copy = self.bench.path("copy");
        until("a part of the file is there", || {
            let metadata = fs::metadata(&copy).ok()?;
            (metadata.len() >= bytes).then_some(())
        });
    }

    /// Checks that the download continues: this number of bytes arrives without a stall of this
    /// length.
    #[track_caller]
    pub(crate) fn goes_on(&self, bytes: u64, within: Duration) {
        let copied = || fs::metadata(self.bench.path("copy")).map_or(0, |found| found.len());
        let (start, before) = (Instant::now(), copied());
        until("the download goes on", || {
            (copied() >= before + bytes).then_some(())
        });
        let stall = start.elapsed();
        eprintln!("the download went on after {stall:?}");
        assert!(stall <= within, "{stall:?} for {bytes} bytes");
    }

    /// Ends both as a user does; nothing may remain.
    pub(crate) fn stop(mut self) {
        for (side, daemon) in [
            (Side::Client, &mut self.user),
            (Side::Server, &mut self.node),
        ] {
            daemon.signal("TERM");
            let stopped = daemon.event("stopped");
            assert!(stopped["status"]["uptime_s"].as_f64().unwrap() > 0.0);
            assert_eq!(daemon.wait(), Some(0));
            assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
            let links = self.bench.run(side, &["ip", "-br", "link"]);
            assert!(!links.contains("edge0"), "{links}");
            let routes = self.bench.run(side, &["ip", "route"]);
            assert!(!routes.contains("10.88."), "{routes}");
        }
        for socket in ["node.sock", "user.sock"] {
            assert!(!self.bench.path(socket).exists(), "{socket}");
        }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        let _ = self.nginx.kill();
        let _ = self.nginx.wait();
    }
}

/// A download and an upload, compared byte for byte; `judge` checks the counters of both ends.
fn transfers(node: &str, user: &str, judge: impl FnOnce(&Value, &Value)) {
    let Some(edge) = Edge::start(node, user) else {
        return;
    };
    let expected = edge.offer(3_000_000);
    assert!(edge.curl().wait().unwrap().success());
    assert_eq!(edge.copy(), expected);
    let words = ["curl", "-sSf", "-T", "copy", "http://10.99.0.1/in/copy"];
    edge.bench.run(Side::Client, &words);
    let uploaded = fs::read(edge.bench.path("www/in/copy")).unwrap();
    assert_eq!(digest(&SHA256, &uploaded).as_ref(), expected);
    let (at_node, at_user) = (edge.status("node"), edge.status("user"));
    for link in 0..2 {
        let bytes = at_node["links"][link]["sent_bytes"].as_u64().unwrap();
        assert!(bytes > 100_000, "link {link} carried {bytes}: {at_node}");
    }
    judge(&at_node, &at_user);
    edge.stop();
}

/// A counter of a status.
pub(crate) fn count(status: &Value, path: &str) -> u64 {
    let value = status.pointer(path).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("{path}: {status}"))
}

#[test]
fn lwip_with_packets_in_turn_over_the_links() {
    transfers(
        "mode = \"lwip\"\nsteering = \"roundrobin\"",
        "uplink = \"a\"",
        |node, user| {
            assert_eq!(count(node, "/core/held") + count(node, "/core/boosted"), 0);
            assert_eq!(count(user, "/reorder/delivered"), 0);
        },
    );
}

#[test]
fn lwa_restores_the_order_of_packets_in_both_directions() {
    let lines = "mode = \"lwa\"\nsteering = \"roundrobin\"";
    transfers(lines, lines, |node, user| {
        for end in [node, user] {
            assert!(count(end, "/reorder/delivered") > 1000, "{end}");
            assert!(count(end, "/reorder/reordered") > 0, "{end}");
            assert_eq!(count(end, "/reorder/malformed"), 0);
        }
    });
}

#[test]
fn acknowledgments_use_one_link_while_data_uses_all() {
    for mode in ["lwip", "lwa"] {
        let lines = format!("mode = \"{mode}\"\nsteering = \"roundrobin\"\nacks = \"a\"");
        let Some(edge) = Edge::start(&lines, &lines) else {
            return;
        };
        let contents = Pattern::bytes(5, 4_000_000);
        edge.bench.write("sent", &contents);
        let words = ["curl", "-sSf", "-T", "sent", "http://10.99.0.1/in/sent"];
        edge.bench.run(Side::Client, &words);
        assert!(fs::read(edge.bench.path("www/in/sent")).unwrap() == contents);
        let (at_node, at_user) = (edge.status("node"), edge.status("user"));
        let sent = |status: &Value, link: usize| {
            // A probe that the kernel refuses counts as a probe and not as sent.
            count(status, &format!("/links/{link}/sent_packets"))
                .saturating_sub(count(status, &format!("/links/{link}/probes")))
                .saturating_sub(count(status, &format!("/links/{link}/answers")))
        };
        // Acknowledgments of the upload, except at the beginning and end of connection and request.
        let acks = [0, 1].map(|link| sent(&at_node, link));
        assert!(acks[0] > 100 && acks[1] < 10, "{mode}: {acks:?} {at_node}");
        let data = [0, 1].map(|link| sent(&at_user, link));
        assert!(data.iter().all(|&sent| sent > 1000), "{mode}: {data:?}");
        edge.stop();
    }
}

#[test]
fn packet_by_packet_without_offloads() {
    let lines = "mode = \"lwip\"\ntun.offload = \"off\"";
    transfers(lines, lines, |node, _| {
        assert_eq!(count(node, "/device_refused"), 0);
    });
}

#[test]
fn visible_without_boost() {
    visible("off");
}

#[test]
fn visible_with_boost() {
    visible("on");
}

fn visible(boost: &str) {
    let lines = format!(
        "mode = \"lwip+visible\"\nsteering = \"roundrobin\"\nsack = \"strip\"\nboost = \"{boost}\""
    );
    transfers(&lines, "uplink = \"a\"", |node, _| {
        assert!(count(node, "/core/held") > 0, "{node}");
        assert_eq!(boost == "off", count(node, "/core/boosted") == 0, "{node}");
    });
}

#[test]
fn a_rate_is_changed_while_the_node_works() {
    let Some(edge) = Edge::start("mode = \"lwip\"", "uplink = \"a\"") else {
        return;
    };
    let set = |socket: &str, link: &str, rate: &str| {
        let words = ["link", link, "--control", socket, "--json", "--rate", rate];
        edge.bench.run_sumlink(Side::Server, &words)
    };
    let is = |rates: [Value; 2]| {
        until(&format!("{rates:?}"), || {
            let status = edge.status("node");
            let rate = |link: usize| status["links"][link]["rate_bps"] == rates[link];
            (rate(0) && rate(1)).then_some(())
        });
    };
    let expected = edge.offer(2_000_000);
    is([15_700_000.into(), 7_800_000.into()]);
    for link in ["a", "b"] {
        let answer = set("node.sock", link, "0").stdout;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["rate_bps"], 0, "{answer}");
    }
    is([0.into(), 0.into()]);
    // The answer to the first packet of the connection waits, and so do later packets; probes do
    // not.
    let mut curl = edge.curl();
    until("something waits", || {
        let status = edge.status("node");
        let waits = |link: usize| count(&status, &format!("/links/{link}/queue_packets"));
        (waits(0) + waits(1) > 0).then_some(())
    });
    edge.until_states("node", ["up", "up"]);
    assert!(!edge.bench.path("copy").exists());
    set("node.sock", "a", "4mbit");
    set("node.sock", "b", "none");
    is([4_000_000.into(), Value::Null]);
    assert!(curl.wait().unwrap().success());
    assert_eq!(edge.copy(), expected);

    let refused = set("node.sock", "c", "4mbit");
    assert!(!refused.status.success());
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned()
        + &String::from_utf8_lossy(&refused.stdout);
    assert!(errors.contains("there is no link `c`"), "{errors}");
    edge.stop();
}

#[test]
fn a_trace_has_flows_and_queues_over_time() {
    let Some(mut edge) = Edge::start("mode = \"lwip+visible\"", "") else {
        return;
    };
    edge.node.signal("TERM");
    assert_eq!(edge.node.wait(), Some(0));
    let words = ["run", "--config", "node.toml", "--trace", "node.jsonl"];
    edge.node = edge.bench.sumlink_on(Side::Server, "node", &words);
    edge.node.event("ready");
    edge.until_states("node", ["up", "up"]);
    let expected = edge.offer(3_000_000);
    assert!(edge.curl().wait().unwrap().success());
    assert_eq!(edge.copy(), expected);
    let lines = || -> Vec<Value> {
        let trace = fs::read_to_string(edge.bench.path("node.jsonl")).unwrap();
        // The last line may be incomplete.
        let whole = trace
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        whole
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let of_flow = until("some lines have the flow", || {
        let with_flow = |line: &Value| line["flows"][0]["far"] == "10.99.0.1:80";
        let found: Vec<Value> = lines().into_iter().filter(with_flow).collect();
        (found.len() > 3).then_some(found)
    });
    assert!(of_flow.is_sorted_by_key(|line| line["uptime_s"].as_f64()));
    for line in &of_flow {
        let flow = &line["flows"][0];
        for key in ["held_average", "held_ms"] {
            assert!(flow[key].is_f64(), "{key}: {flow}");
        }
        assert!(flow["outstanding_bytes"].is_u64(), "{flow}");
    }
    let queued = |line: &Value| line["links"][0]["queue_packets"].as_u64() > Some(0);
    assert!(of_flow.iter().any(queued), "packets have waited");
    edge.stop();
}

#[test]
fn ends_of_different_tunnels_ignore_each_other() {
    let Some(mut edge) = Edge::start("tunnel = 3", "tunnel = 3") else {
        return;
    };
    edge.node.signal("TERM");
    assert_eq!(edge.node.wait(), Some(0));
    edge.bench
        .write("node.toml", file(Side::Server, "tunnel = 4"));
    edge.node = start_node(&edge.bench);
    edge.until_states("node", ["down", "down"]);
    edge.until_states("user", ["down", "down"]);
    for end in ["node", "user"] {
        assert!(count(&edge.status(end), "/links/0/foreign") > 0);
    }
    edge.stop();
}

#[test]
fn the_missing_privilege_is_named() {
    let Some(bench) = crate::bench(&LINKS.map(str::to_owned)) else {
        return;
    };
    bench.write("node.toml", file(Side::Server, ""));
    // A user namespace that does not own the network namespace: root without the right to change
    // the network.
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--"])
        .arg(env!("CARGO_BIN_EXE_sumlink-edge"))
        .args(["run", "--config", "node.toml"])
        .current_dir(bench.path("."))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = bench.lab.spawn(Side::Server, command).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{error}");
    assert!(error.contains("CAP_NET_ADMIN"), "{error}");
    assert!(!bench.path("node.sock").exists());
}

#[test]
fn prometheus_reads_the_metrics_and_a_taken_port_is_fatal() {
    let lines = "metrics = \"127.0.0.1:9108\"";
    let Some(edge) = Edge::start(lines, "") else {
        return;
    };
    let sum = edge.offer(1_000_000);
    let child = edge.curl();
    sumlink_test_support::emulated::finish(&["curl"], child);
    assert_eq!(edge.copy(), sum);
    let url = "http://127.0.0.1:9108/metrics";
    let get = |url: &str| edge.bench.run(Side::Server, &["curl", "-s", url]);
    let metric = |text: &str, name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        value.trim().parse().unwrap()
    };
    // The status is updated ten times per second.
    let text = until("the metrics count the sent packets", || {
        let text = get(url);
        let sent = ["a", "b"].map(|link| {
            let name = format!("sumlink_edge_link_sent_bytes_total{{link=\"{link}\"}}");
            metric(&text, &name)
        });
        (sent[0] + sent[1] > 1e6).then_some(text)
    });
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(metric(&text, "sumlink_edge_down_packets_total") > 500.0);
    assert_eq!(metric(&text, "sumlink_edge_link_up{link=\"a\"}"), 1.0);
    assert_eq!(metric(&text, "sumlink_edge_malformed_packets_total"), 0.0);
    assert!(get("http://127.0.0.1:9108/").contains("/metrics"));
    let other = file(Side::Server, lines).replace("node.sock", "other.sock");
    edge.bench.write("other.toml", other);
    let other = edge
        .bench
        .run_sumlink(Side::Server, &["run", "--config", "other.toml"]);
    let error = String::from_utf8_lossy(&other.stderr);
    assert_eq!(other.status.code(), Some(5), "{error}");
    assert!(error.contains("127.0.0.1:9108"), "{error}");
    assert!(!edge.bench.path("other.sock").exists());
    edge.stop();
}
