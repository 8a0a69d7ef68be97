//! The monitoring port of client and server: metrics, health, events, and access.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Bench, Daemon, PATIENCE};
use crate::daemons::{self, Host, through};

const MONITOR: &str = "[monitor]\nlisten = \"127.0.0.1:0\"\n";

/// The answer to a request.
pub(crate) struct Answer {
    status: u16,
    head: String,
    pub(crate) body: String,
}

/// Sends a whole request and reads to the end of the connection.
pub(crate) fn send(address: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

/// Asks with further header lines, each with its end.
fn get_with(address: SocketAddr, path: &str, headers: &str) -> Answer {
    let host = match headers.contains("Host:") {
        true => String::new(),
        false => format!("Host: {address}\r\n"),
    };
    let request = format!("GET {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n");
    send(address, &request)
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    get_with(address, path, "")
}

/// The samples at the port, by series.
fn samples(address: SocketAddr) -> BTreeMap<String, f64> {
    let answer = get(address, "/metrics");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let lines = answer.body.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (series.to_owned(), value.parse().unwrap())
    });
    samples.collect()
}

/// The samples once a series has this value: a report is used again for at least 0.1 s.
#[track_caller]
fn samples_with(address: SocketAddr, series: &str, value: f64) -> BTreeMap<String, f64> {
    until(series, || {
        let samples = samples(address);
        (samples.get(series) == Some(&value)).then_some(samples)
    })
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

fn address(event: &serde_json::Value) -> SocketAddr {
    event["address"].as_str().unwrap().parse().unwrap()
}

/// A server on this port with a monitoring port.
fn server(bench: &Bench, client_key: &str, port: u16) -> (Daemon, SocketAddr, SocketAddr) {
    let config = daemons::config(&[client_key]);
    let config = config.replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    bench.write("server.toml", &format!("{config}{MONITOR}"));
    let mut server = Daemon::start(bench.command(daemons::SERVER));
    let monitor = address(&server.event("monitoring"));
    let listen = address(&server.event("listening"));
    (server, listen, monitor)
}

/// A client of `server` with a monitoring port, and its SOCKS port.
pub(crate) fn client(host: &Host) -> (Daemon, SocketAddr, String) {
    client_with(host, MONITOR)
}

/// The same with this `[monitor]`.
pub(crate) fn client_with(host: &Host, monitor: &str) -> (Daemon, SocketAddr, String) {
    let file = format!("server = \"{}\"\n{monitor}", host.address);
    host.bench.write("client.toml", &file);
    let control = [("--config", "client.toml"), ("--control", "client.sock")];
    let mut client = Daemon::start(host.client(&control));
    let monitor = address(&client.event("monitoring"));
    let socks = client.event("listening")["address"]
        .as_str()
        .unwrap()
        .to_owned();
    (client, monitor, socks)
}

/// A server with a monitoring port, in the form of the other tests.
pub(crate) fn host() -> (Host, SocketAddr) {
    let bench = crate::common::new();
    let (server_key, client_key) = (bench.key("server.key"), bench.key("client.key"));
    let (server, listen, monitor) = server(&bench, &client_key, 0);
    let address = listen.to_string();
    let host = Host {
        bench,
        server,
        address,
        server_key,
        client_key,
    };
    (host, monitor)
}

/// Moves bytes to a target on this machine and back.
pub(crate) fn move_bytes(socks: &str, count: usize) {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = through(socks, target.local_addr().unwrap());
    let (mut far, _) = target.accept().unwrap();
    stream.write_all(&vec![7; count]).unwrap();
    far.read_exact(&mut vec![0; count]).unwrap();
    far.write_all(&[1]).unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

const SENT: &str = "sumlink_stream_bytes_total{direction=\"sent\"}";

#[test]
fn counters_go_on_when_the_server_restarts_and_health_follows() {
    let (mut host, at_server) = host();
    assert_eq!(get(at_server, "/healthz").body, "ok\n");
    assert_eq!(samples(at_server)["sumlink_clients"], 0.0);
    let (_client, at_client, socks) = client(&host);
    move_bytes(&socks, 300_000);
    let own = samples_with(at_client, SENT, 300_000.0);
    assert_eq!(get(at_client, "/healthz").status, 200);
    assert_eq!(own["sumlink_link_up{link=\"lo\"}"], 1.0);
    assert!(own["sumlink_link_bytes_total{link=\"lo\",direction=\"sent\"}"] > 300_000.0);
    assert!(own["sumlink_link_tcp_sent_bytes_total{link=\"lo\"}"] > 300_000.0);
    assert!(own["process_cpu_seconds_total"] > 0.0);
    let key = &host.client_key;
    let received = format!("sumlink_stream_bytes_total{{client=\"{key}\",direction=\"received\"}}");
    let theirs = samples_with(at_server, &received, 300_000.0);
    assert_eq!(theirs["sumlink_clients"], 1.0);

    let port = host.address.parse::<SocketAddr>().unwrap().port();
    host.server.signal("KILL");
    host.server.wait();
    // A connection that arrives now is made in the next session.
    let early = std::thread::spawn({
        let socks = socks.clone();
        move || move_bytes(&socks, 1000)
    });
    let unhealthy = until("the client sees that its server is gone", || {
        let answer = get(at_client, "/healthz");
        (answer.status == 503).then_some(answer.body)
    });
    assert_eq!(unhealthy.lines().count(), 1, "{unhealthy}");
    assert_eq!(samples(at_client)["sumlink_healthy"], 0.0);
    let (_server, _, _) = server(&host.bench, &host.client_key, port);
    until("a new session", || {
        (get(at_client, "/healthz").status == 200).then_some(())
    });
    early.join().unwrap();
    let after = samples_with(at_client, SENT, 301_000.0);
    assert_eq!(after["sumlink_sessions_started_total"], 2.0);
    for (series, before) in &own {
        let name = series.split('{').next().unwrap();
        if ["_total", "_bucket", "_count", "_sum"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            assert!(after[series] >= *before, "{series} fell");
        }
    }
    assert!(after["sumlink_link_paths_opened_total{link=\"lo\"}"] >= 2.0);
}

/// Some clients close their side after the request.
#[test]
fn a_half_closed_connection_is_answered() {
    let (host, address) = host();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("ok\n"), "{answer}");
    }
    drop(host);
}

#[test]
fn the_status_is_the_same_as_at_the_control_socket() {
    let (host, at_server) = host();
    let (_client, at_client, socks) = client(&host);
    move_bytes(&socks, 5000);
    for (monitor, socket) in [(at_server, "server.sock"), (at_client, "client.sock")] {
        let page = until("a report of after the transfer", || {
            let answer = get(monitor, "/status.json");
            let kind = "content-type: application/json";
            assert!(answer.head.contains(kind), "{}", answer.head);
            let page: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            let moved = ["bytes_sent", "bytes_received"].map(|way| &page["totals"][0][way]);
            moved.contains(&&5000.into()).then_some(page)
        });
        let status = daemons::status(&host.bench, socket);
        for pointer in [
            "/role",
            "/pid",
            "/sessions/0/session",
            "/totals/0/bytes_sent",
            "/totals/0/bytes_received",
            "/totals/0/links/0/link",
        ] {
            let (page, status) = (page.pointer(pointer), status.pointer(pointer));
            assert!(
                page.is_some() && page == status,
                "{pointer}: {page:?} {status:?}"
            );
        }
        assert_eq!(status["totals"][0]["links"][0]["link"], "lo");
        // Other users of the machine can read it, so it has no targets.
        assert_eq!(page["sessions"][0]["streams"], serde_json::json!([]));
    }
}

#[test]
fn strangers_are_counted_by_the_reason_of_their_refusal() {
    let (host, at_server) = host();
    let mut stream = TcpStream::connect(&host.address).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    host.bench.key("stranger.key");
    let stranger = host.client(&[("--key", "stranger.key")]).output().unwrap();
    assert_eq!(stranger.status.code(), Some(6));
    let refused = |reason: &str| format!("sumlink_handshakes_refused_total{{reason=\"{reason}\"}}");
    let counts = until("both are counted", || {
        let counts = samples(at_server);
        (counts[&refused("unknown_key")] > 0.0).then_some(counts)
    });
    assert_eq!(counts[&refused("not_sumlink")], 1.0);
    assert_eq!(counts[&refused("limit")], 0.0);
}

#[test]
fn only_this_machine_and_holders_of_the_token_may_read() {
    let (_host, open) = host();
    for path in ["/metrics", "/healthz", "/", "/status.json", "/events"] {
        let answer = get_with(open, path, "Host: evil.example:9571\r\n");
        assert_eq!(answer.status, 403, "{path}");
        assert_eq!(answer.body.lines().count(), 1, "{}", answer.body);
    }
    assert_eq!(
        get_with(open, "/healthz", "Host: localhost:1\r\n").status,
        200
    );
    assert_eq!(send(open, "GET /healthz HTTP/1.0\r\n\r\n").status, 200);
    assert_eq!(get(open, "/nothing").status, 404);
    let post = format!(
        "POST / HTTP/1.1\r\nHost: {open}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(send(open, &post).status, 405);
    assert!(send(open, "nonsense\r\n\r\n").status == 400);
    let long = format!("X: {}\r\n", "a".repeat(64 << 10));
    assert_eq!(get_with(open, "/healthz", &long).status, 431);
    let page = get(open, "/");
    assert!(
        page.head.contains("default-src 'none'; script-src 'self'"),
        "{}",
        page.head
    );

    let bench = crate::common::new();
    let (_, client_key) = (bench.key("server.key"), bench.key("client.key"));
    let config = daemons::config(&[&client_key]);
    bench.write(
        "server.toml",
        &format!("{config}[monitor]\nlisten = \"0.0.0.0:0\"\n"),
    );
    for verb in [
        &["check", "server.toml"][..],
        &["server", "--config", "server.toml"],
    ] {
        let ran = bench.run(verb);
        ran.fails(
            3,
            "other machines can reach 0.0.0.0:0: add `token = \"FILE\"`",
        );
    }
    bench.write("token", "0123456789abcdef0123\n");
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(bench.path("token"), std::fs::Permissions::from_mode(mode))
            .unwrap();
    };
    let monitor = "[monitor]\nlisten = \"0.0.0.0:0\"\ntoken = \"token\"\n";
    bench.write("server.toml", &format!("{config}{monitor}"));
    mode(0o644);
    bench.run(&["check", "server.toml"]).fails(3, "chmod 600");
    mode(0o600);
    let mut server = Daemon::start(bench.command(daemons::SERVER));
    let port = address(&server.event("monitoring")).port();
    let closed = SocketAddr::from(([127, 0, 0, 1], port));
    let refused = get(closed, "/metrics");
    assert_eq!(refused.status, 401);
    assert!(
        refused.head.contains("www-authenticate: basic"),
        "{}",
        refused.head
    );
    let wrong = "Authorization: Bearer 0123456789abcdef0124\r\n";
    assert_eq!(get_with(closed, "/metrics", wrong).status, 401);
    let right = "Host: any.example\r\nAuthorization: Bearer 0123456789abcdef0123\r\n";
    assert_eq!(get_with(closed, "/metrics", right).status, 200);
}

#[test]
fn only_the_page_of_a_port_with_a_token_can_change_a_link() {
    let (host, at_server) = host();
    let token = host.bench.write("token", "0123456789abcdef0123\n");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(token, private).unwrap();
    let (_client, closed, _) = client_with(&host, &format!("{MONITOR}token = \"token\"\n"));
    let post = |address: SocketAddr, headers: &str, body: &str| {
        let length = body.len();
        let request = format!(
            "POST /link HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        );
        let answer = send(address, &request);
        (answer.status, answer.body)
    };
    let right = "Authorization: Bearer 0123456789abcdef0123\r\nContent-Type: application/json\r\n";
    let own = format!("{right}Origin: http://{closed}\r\n");
    let backup = r#"{"name":"lo","policy":{"priority":"backup"}}"#;
    // Another page, no token, and a port without one.
    let foreign = format!("{right}Origin: http://evil.example\r\n");
    assert_eq!(post(closed, &foreign, backup).0, 403);
    let stranger = format!("Content-Type: application/json\r\nOrigin: http://{closed}\r\n");
    assert_eq!(post(closed, &stranger, backup).0, 401);
    let open = format!("{right}Origin: http://{at_server}\r\n");
    assert_eq!(post(at_server, &open, backup).0, 403);
    let policy = || {
        let ran = host
            .bench
            .run(&["link", "lo", "--json", "--control", "client.sock"]);
        serde_json::from_str::<serde_json::Value>(&ran.out).unwrap()
    };
    assert_eq!(policy()["source"], "configuration");
    for (body, status) in [
        ("{}", 400),
        ("nonsense", 400),
        (r#"{"name":"none","policy":null}"#, 422),
        (r#"{"name":"lo","policy":{"reset_day":77}}"#, 422),
        (r#"{"name":"lo","policy":{"surprise":1}}"#, 400),
    ] {
        let (found, reason) = post(closed, &own, body);
        assert_eq!(
            (found, reason.lines().count()),
            (status, 1),
            "{body}: {reason}"
        );
    }
    assert_eq!(post(closed, &own, &" ".repeat(5000)).0, 400);
    assert_eq!(policy()["source"], "configuration");
    let (status, changed) = post(closed, &own, backup);
    assert_eq!(status, 200, "{changed}");
    assert_eq!(policy()["priority"], "backup");
    assert_eq!(policy()["source"], "set");
}

#[test]
fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let bench = crate::common::new();
    let (_, client_key) = (bench.key("server.key"), bench.key("client.key"));
    let config = daemons::config(&[&client_key]);
    bench.write(
        "server.toml",
        &format!("{config}[monitor]\nlisten = \"{port}\"\n"),
    );
    let ran = bench.run(&[
        "server",
        "--config",
        "server.toml",
        "--control",
        "server.sock",
    ]);
    ran.fails(
        5,
        &format!("cannot listen on 127.0.0.1:{port} for [monitor]: the port is taken"),
    );
    assert!(!bench.path("server.sock").exists());
}

/// Connections that never ask or never read cost others nothing, and neither do frequent requests.
#[test]
fn floods_of_connections_and_requests_are_served() {
    let (_host, at_server) = host();
    let silent: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(at_server).unwrap())
        .collect();
    let unread: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(at_server).unwrap();
            let request = format!("GET /metrics HTTP/1.1\r\nHost: {at_server}\r\n\r\n");
            let _ = stream.write_all(request.repeat(50).as_bytes());
            stream
        })
        .collect();
    // A connection that makes room for another one closes a moment later.
    until("the surplus connections are closed", || {
        let open = samples(at_server)["process_open_fds"];
        (open < 100.0).then_some(())
    });
    for _ in 0..300 {
        assert_eq!(get(at_server, "/metrics").status, 200);
    }
    drop((silent, unread));
}

#[test]
fn events_come_by_http_and_at_the_control_socket() {
    let (mut host, at_server) = host();
    let mut stream = TcpStream::connect(at_server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET /events HTTP/1.1\r\nHost: {at_server}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut by_http = BufReader::new(stream).lines().map(Result::unwrap);
    // The answer begins at once, so that no event is missed.
    by_http.find(|line| line.contains("retry:")).unwrap();
    let follow = |more: &[&str]| {
        let mut command = host.bench.command(["events", "--control", "server.sock"]);
        let mut child = command.args(more).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines.map(Result::unwrap))
    };
    let (mut json, mut json_lines) = follow(&["--json"]);
    let (mut text, mut text_lines) = follow(&[]);
    // Each reload is an event, until both have connected.
    let reloaded = "\"event\":\"reloaded\"";
    std::thread::scope(|scope| {
        let both = scope.spawn(|| {
            let json = json_lines.find(|line| line.contains(reloaded)).unwrap();
            let text = text_lines.find(|line| line.contains("reloaded")).unwrap();
            (json, text)
        });
        while !both.is_finished() {
            host.server.signal("HUP");
            host.server.event("reloaded");
        }
        let (json, text) = both.join().unwrap();
        assert!(text.contains("  reloaded  clients=1"), "{text}");
        let event: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(event["time"].is_string(), "{json}");
    });
    let (client, ..) = client(&host);
    let printed = host.server.event("up");
    let of_http = by_http
        .find(|line| line.contains("\"event\":\"up\""))
        .unwrap();
    let of_http = of_http.strip_prefix("data: ").unwrap();
    let of_json = json_lines
        .find(|line| line.contains("\"event\":\"up\""))
        .unwrap();
    for line in [of_http, &of_json] {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event, printed);
    }
    drop(client);
    // The readers end with the program.
    host.server.signal("TERM");
    host.server.wait();
    for child in [&mut json, &mut text] {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    let none = host.bench.run(&["events", "--control", "server.sock"]);
    none.fails(8, "no sumlink answers");
}
