//! Client and server as processes: start, status, reload, end, and a stream through both.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Instant;

use crate::common::{Bench, Daemon};

/// Arguments of a server.
pub(crate) const SERVER: [&str; 6] = [
    "server",
    "--json",
    "--config",
    "server.toml",
    "--control",
    "server.sock",
];

/// A server and the data that a client needs.
pub(crate) struct Host {
    pub(crate) bench: Bench,
    pub(crate) server: Daemon,
    pub(crate) address: String,
    pub(crate) server_key: String,
    pub(crate) client_key: String,
}

impl Host {
    /// A server on loopback whose client may reach loopback.
    pub(crate) fn new() -> Self {
        Self::logging_to(Stdio::piped())
    }

    /// The same with this standard error.
    pub(crate) fn logging_to(log: impl Into<Stdio>) -> Self {
        let bench = crate::common::new();
        let (server_key, client_key) = (bench.key("server.key"), bench.key("client.key"));
        bench.write("server.toml", &config(&[&client_key]));
        let mut server = Daemon::start_logging_to(bench.command(SERVER), log);
        let address = server.event("listening")["address"]
            .as_str()
            .unwrap()
            .to_owned();
        Self {
            bench,
            server,
            address,
            server_key,
            client_key,
        }
    }

    /// A client of this server; each change is a flag and its new value.
    pub(crate) fn client(&self, changes: &[(&str, &str)]) -> std::process::Command {
        let mut flags = vec![
            ("--server", self.address.as_str()),
            ("--server-key", &self.server_key),
            ("--key", "client.key"),
            ("--link", "lo"),
            ("--socks", "127.0.0.1:0"),
        ];
        flags.retain(|(flag, _)| changes.iter().all(|(changed, _)| changed != flag));
        let flags = flags
            .iter()
            .chain(changes)
            .flat_map(|(flag, value)| [*flag, *value]);
        self.bench
            .command(["client", "--json"].into_iter().chain(flags))
    }

    /// Runs a client that must fail; returns its exit code and its line.
    fn refused(&self, flag: &str, value: &str) -> (i32, String) {
        let output = self.client(&[(flag, value)]).output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let error: serde_json::Value = serde_json::from_str(&out).unwrap();
        let message = error["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(message.lines().count(), 1, "{message}");
        (output.status.code().unwrap(), message)
    }
}

pub(crate) fn config(clients: &[&str]) -> String {
    let blocks: String = clients
        .iter()
        .map(|key| format!("[[client]]\nkey = \"{key}\"\n"))
        .collect();
    format!(
        "listen = \"127.0.0.1:0\"\nkey = \"server.key\"\n{blocks}\
         [egress]\nrules = [\"allow 127.0.0.0/8\"]\n"
    )
}

pub(crate) fn status(bench: &Bench, socket: &str) -> serde_json::Value {
    let ran = bench.run(&["status", "--json", "--control", socket]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

/// A connection to `target` through the SOCKS5 port `socks` (RFC 1928).
pub(crate) fn through(socks: &str, target: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(socks).unwrap();
    let SocketAddr::V4(target) = target else {
        panic!("{target} is not IPv4")
    };
    let mut request = vec![5, 1, 0, 5, 1, 0, 1];
    request.extend(target.ip().octets());
    request.extend(target.port().to_be_bytes());
    stream.write_all(&request).unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], [5, 0, 5, 0]);
    stream
}

#[test]
fn a_stopped_server_exits_with_success_and_cleans_up() {
    for signal in ["TERM", "INT"] {
        let mut host = Host::new();
        let report = status(&host.bench, "server.sock");
        assert_eq!(
            (&report["role"], &report["sessions"]),
            (&"server".into(), &serde_json::json!([]))
        );
        assert!(host.bench.path("server.sock").exists());
        host.server.signal(signal);
        host.server.event("stopped");
        assert_eq!(host.server.wait(), Some(0));
        assert!(!host.bench.path("server.sock").exists());
    }
}

/// A terminal that closes signals SIGHUP; timeout(1) signals a process twice.
#[test]
fn a_stopped_client_exits_with_success_and_cleans_up() {
    for signals in [["HUP", "HUP"], ["TERM", "TERM"], ["INT", "TERM"]] {
        let host = Host::new();
        let mut client = Daemon::start(host.client(&[("--control", "client.sock")]));
        client.event("connected");
        assert!(host.bench.path("client.sock").exists());
        for signal in signals {
            client.signal(signal);
        }
        client.event("stopped");
        assert_eq!(client.wait(), Some(0), "{signals:?}");
        assert!(!host.bench.path("client.sock").exists());
    }
}

#[test]
fn a_client_under_nohup_outlives_its_terminal() {
    let host = Host::new();
    let client = host.client(&[("--control", "client.sock")]);
    let mut nohup = std::process::Command::new("nohup");
    nohup.arg(client.get_program()).args(client.get_args());
    nohup.current_dir(host.bench.dir());
    let mut client = Daemon::start(nohup);
    client.event("connected");
    client.signal("HUP");
    assert_eq!(status(&host.bench, "client.sock")["role"], "client");
    client.signal("TERM");
    client.event("stopped");
    assert_eq!(client.wait(), Some(0));
}

#[test]
fn a_control_socket_in_use_is_refused_and_kept() {
    let host = Host::new();
    host.bench
        .run(&[
            "server",
            "--config",
            "server.toml",
            "--control",
            "server.sock",
        ])
        .fails(8, "another sumlink already uses this control socket");
    assert_eq!(status(&host.bench, "server.sock")["role"], "server");
}

#[test]
fn a_reload_with_a_mistake_changes_nothing() {
    let mut host = Host::new();
    let extra = host.bench.key("extra.key");
    host.bench
        .write("server.toml", &config(&[&host.client_key, &extra]));
    host.server.signal("HUP");
    assert_eq!(host.server.event("reloaded")["clients"], 2);
    // The second file is cut in the middle of a key.
    let cut = "listen = \"[::]:1\"\n[[client]]\nkey = \"x";
    for (text, mistake) in [
        ("listen = 5\n", "server.toml:1:"),
        (cut, "server.toml:3:"),
        ("", "server.toml"),
    ] {
        host.bench.write("server.toml", text);
        host.server.signal("HUP");
        let event = host.server.event("reload_failed");
        let reason = event["reason"].as_str().unwrap();
        assert!(reason.contains(mistake), "{reason}");
    }
    assert_eq!(status(&host.bench, "server.sock")["role"], "server");
}

#[test]
fn a_stream_goes_through_client_and_server() {
    let mut host = Host::new();
    let mut client = Daemon::start(host.client(&[("--control", "client.sock")]));
    let socks = client.event("listening")["address"]
        .as_str()
        .unwrap()
        .to_owned();

    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = through(&socks, echo.local_addr().unwrap());
    let (mut far, _) = echo.accept().unwrap();
    near.write_all(b"there").unwrap();
    let mut word = [0; 5];
    far.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"there");
    far.write_all(b"again").unwrap();
    near.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"again");

    for (socket, role) in [("client.sock", "client"), ("server.sock", "server")] {
        let report = status(&host.bench, socket);
        assert_eq!(report["role"], role);
        let session = &report["sessions"][0];
        assert_eq!(session["streams_open"], 1, "{report}");
        assert_eq!(session["paths"][0]["link"], "lo", "{report}");
    }
    let table = host.bench.run(&["status", "--control", "client.sock"]).out;
    let paths = table.lines().skip_while(|line| !line.starts_with("LINK"));
    assert!(paths.clone().any(|line| line.starts_with("lo ")), "{table}");
    assert!(
        paths.clone().any(|line| line == "since the session began"),
        "{table}"
    );
    // A server shows one line per client, and all of a client on request.
    let list = host.bench.run(&["status", "--control", "server.sock"]).out;
    assert!(list.contains("CLIENT") && !list.contains("SRTT"), "{list}");
    let details = ["status", "--control", "server.sock", "--details"];
    let details = host.bench.run(&details).out;
    assert!(details.contains("SRTT"), "{details}");
    let stranger = ["status", "--control", "server.sock", "--client", "nobody"];
    host.bench
        .run(&stranger)
        .fails(5, "no client `nobody` has a session; connected are");
    let json = host.bench.run(&[&stranger[..], &["--json"]].concat());
    assert_eq!((json.code, json.err.as_str()), (5, ""));
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["sessions"].as_array().map(Vec::len), Some(0), "{json}");

    client.signal("TERM");
    client.event("stopped");
    assert_eq!(client.wait(), Some(0));
    host.server.signal("TERM");
    host.server.event("stopped");
    assert_eq!(host.server.wait(), Some(0));
}

#[test]
fn a_removed_key_ends_its_session_until_the_key_is_back() {
    let mut host = Host::new();
    let mut client = Daemon::start(host.client(&[]));
    client.event("connected");
    let other = host.bench.key("other.key");
    host.bench.write("server.toml", &config(&[&other]));
    host.server.signal("HUP");
    host.server.event("reloaded");
    client.event("closed");
    host.bench
        .write("server.toml", &config(&[&other, &host.client_key]));
    host.server.signal("HUP");
    host.server.event("reloaded");
    client.event("up");
}

#[test]
fn the_last_key_can_be_revoked_and_comes_back() {
    let mut host = Host::new();
    let mut client = Daemon::start(host.client(&[]));
    client.event("connected");
    host.bench.write("server.toml", &config(&[]));
    host.server.signal("HUP");
    assert_eq!(host.server.event("reloaded")["clients"], 0);
    client.event("closed");
    let (code, message) = host.refused("--key", "client.key");
    assert_eq!(code, 6, "{message}");
    host.bench
        .write("server.toml", &config(&[&host.client_key]));
    host.server.signal("HUP");
    assert_eq!(host.server.event("reloaded")["clients"], 1);
    client.event("up");
    let log = host.server.log_at_end();
    assert_eq!(log.matches("no client may connect").count(), 1, "{log}");
}

#[test]
fn a_client_reconnects_after_the_server_restarts() {
    let mut host = Host::new();
    let mut client = Daemon::start(host.client(&[]));
    client.event("connected");
    host.server.signal("TERM");
    assert_eq!(host.server.wait(), Some(0));
    client.event("closed");
    let again = [
        "server",
        "--json",
        "--config",
        "server.toml",
        "--listen",
        &host.address,
    ];
    let mut server = Daemon::start(host.bench.command(again));
    server.event("listening");
    client.event("up");
    client.signal("INT");
    client.event("stopped");
    assert_eq!(client.wait(), Some(0));
}

#[test]
fn a_refused_client_reports_the_reason() {
    let host = Host::new();
    let stranger = host.bench.key("stranger.key");
    assert_eq!(host.refused("--server-key", &stranger).0, 6);
    assert_eq!(host.refused("--key", "stranger.key").0, 6);
    let (code, message) = host.refused("--link", "nosuch0");
    assert_eq!(code, 5, "{message}");
    assert!(message.contains("nosuch0"), "{message}");
    // A port without a listener.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    assert_eq!(host.refused("--server", &closed).0, 5);
    assert_eq!(host.refused("--server", "no.such.host.invalid:1").0, 5);
}

/// Number of lines that a log reports as suppressed.
pub(crate) fn suppressed(log: &str) -> u64 {
    let counts = log.split("suppressed=").skip(1).map(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
        rest[..digits].parse::<u64>().unwrap()
    });
    counts.sum()
}

#[test]
fn strangers_cannot_fill_the_log() {
    const STRANGERS: u64 = 300;
    let mut host = Host::new();
    let began = Instant::now();
    for _ in 0..STRANGERS {
        let mut stranger = TcpStream::connect(&host.address).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        // A TLS alert and the end, or a reset because of unread data.
        let _ = stranger.read_to_end(&mut Vec::new());
    }
    let seconds = began.elapsed().as_secs();
    host.server.signal("TERM");
    assert_eq!(host.server.wait(), Some(0));
    let log = host.server.log_at_end();
    let logged = log.matches("connection refused from=").count() as u64;
    let suppressed = suppressed(&log);
    assert_eq!(logged + suppressed, STRANGERS, "{log}");
    assert!(logged <= 30 + seconds, "{logged} in {seconds} s: {log}");
}
