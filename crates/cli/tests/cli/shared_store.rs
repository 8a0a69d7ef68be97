//! Servers with one store of clients, in PostgreSQL.

mod three_servers;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use sumlink_test_support::emulated::until;
use sumlink_test_support::postgres::Postgres;

use crate::common::{Bench, Daemon};
use crate::daemons::{status, through};

/// The clients that were started.
static CLIENTS: AtomicUsize = AtomicUsize::new(0);

/// Two servers on loopback with one database.
struct Scene {
    bench: Bench,
    servers: Vec<(Daemon, String)>,
    database: Postgres,
}

impl Scene {
    fn new() -> Option<Self> {
        let database = Postgres::start()?;
        let bench = crate::common::new();
        let mut scene = Self {
            bench,
            servers: Vec::new(),
            database,
        };
        for name in ["a", "b"] {
            scene.start(name);
        }
        until("both servers are listed", || {
            let listed = scene
                .database
                .sql("sumlink", "SELECT count(*) FROM sumlink_servers");
            (listed == "2").then_some(())
        });
        Some(scene)
    }

    /// Starts the server `name`, with its key and control socket.
    fn start(&mut self, name: &str) {
        let key = format!("{name}.key");
        if !self.bench.path(&key).exists() {
            self.bench.key(&key);
        }
        let (url, file) = (self.database.url("sumlink"), format!("{name}.toml"));
        let config = format!(
            "listen = \"127.0.0.1:0\"\nkey = \"{name}.key\"\ncontrol = \"{name}.sock\"\n\
             [clients]\nstore = \"{url}\"\n[egress]\nrules = [\"allow 127.0.0.0/8\"]\n\
             # All clients have one address.\n[limits]\nhalf_open = 1024\n"
        );
        self.bench.write(&file, &config);
        let args = ["server", "--json", "--config", &file];
        let mut server = Daemon::start(self.bench.command(args));
        let address = server.event("listening")["address"]
            .as_str()
            .unwrap()
            .to_owned();
        self.servers.push((server, address));
    }

    /// A verb about clients at a server.
    #[track_caller]
    fn asked(&self, server: &str, args: &[&str]) -> Value {
        let socket = format!("{server}.sock");
        let ran = self
            .bench
            .run(&[args, &["--json", "--control", &socket]].concat());
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        serde_json::from_str(&ran.out).unwrap()
    }

    /// An invitation of a server.
    fn invitation(&self, server: &str, name: &str) -> String {
        let invited = self.asked(server, &["invite", "--name", name]);
        invited["invitation"].as_str().unwrap().to_owned()
    }

    fn join(&self, invitation: &str, name: &str) -> Command {
        let file = format!("{name}.toml");
        self.bench
            .command(["join", invitation, "--out", &file, "--force"])
    }

    /// A client that connects to one of its servers.
    fn client(&self, name: &str, server: &str) -> (Daemon, String) {
        let file = format!("{name}.toml");
        let args = ["client", "--json", "--config", &file, "--server", server];
        // Two clients with one file need two sockets.
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
        let control = format!("{name}-{number}.sock");
        let more = [
            "--link",
            "lo",
            "--socks",
            "127.0.0.1:0",
            "--control",
            &control,
        ];
        let mut client = Daemon::start(self.bench.command([&args[..], &more].concat()));
        client.event("connected");
        let socks = client.event("listening")["address"]
            .as_str()
            .unwrap()
            .to_owned();
        (client, socks)
    }

    fn sessions(&self, server: &str) -> usize {
        let report = status(&self.bench, &format!("{server}.sock"));
        report["sessions"].as_array().unwrap().len()
    }

    /// Bytes that a client has moved, by a server's account.
    fn used(&self, server: &str, name: &str) -> u64 {
        let shown = self.asked(server, &["clients", "show", name]);
        shown["sent_bytes"].as_u64().unwrap() + shown["received_bytes"].as_u64().unwrap()
    }
}

/// A target that returns all data.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut copy = stream.try_clone().unwrap();
            thread::spawn(move || std::io::copy(&mut stream, &mut copy));
        }
    });
    address
}

/// Moves bytes both ways.
fn exchange(stream: &mut TcpStream, len: usize) {
    let sent = vec![7; len];
    stream.write_all(&sent).unwrap();
    let mut received = vec![0; len];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(received, sent);
}

#[test]
fn a_client_joins_at_one_server_and_uses_another_until_it_is_removed() {
    let Some(scene) = Scene::new() else { return };
    let (a, b) = (&scene.servers[0].1, &scene.servers[1].1);
    let invitation = scene.invitation("a", "laptop");
    let joined = scene.join(&invitation, "laptop").output().unwrap();
    let text = String::from_utf8(joined.stdout).unwrap();
    assert!(text.contains(&format!("joined {a} as laptop")), "{text}");
    let file = std::fs::read_to_string(scene.bench.path("laptop.toml")).unwrap();
    assert!(
        file.contains(&format!("\nserver = [\"{a}\", \"{b}\"]\n")),
        "{file}"
    );
    assert!(scene.bench.run(&["check", "laptop.toml"]).code == 0);

    let args = ["clients", "backup", "copy.db", "--control", "a.sock"];
    scene.bench.run(&args).fails(2, "use pg_dump");

    // The invitation is used at all servers.
    let again = scene
        .join(&invitation.replace(&**a, b), "other")
        .output()
        .unwrap();
    assert_ne!(again.status.code(), Some(0));
    // Asking brings a server's view of the store up to date.
    assert_eq!(
        scene.asked("b", &["clients", "show", "laptop"])["state"],
        "good"
    );
    let (client, socks) = scene.client("laptop", b);
    let mut stream = through(&socks, echo());
    exchange(&mut stream, 200_000);
    until("the first server has the usage of the second", || {
        (scene.used("a", "laptop") > 400_000).then_some(())
    });
    assert_eq!((scene.sessions("a"), scene.sessions("b")), (0, 1));

    let start = Instant::now();
    scene.asked("a", &["clients", "remove", "laptop"]);
    until("the session ends at the other server", || {
        (scene.sessions("b") == 0).then_some(())
    });
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(4), "{elapsed:?}");
    drop((client, stream));
    for (mut server, _) in scene.servers {
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
        assert!(!server.log().contains("panicked"), "{}", server.log());
    }
}

#[test]
fn sessions_go_on_without_the_database_and_new_clients_wait() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let a = scene.servers[0].1.clone();
    let joined = scene
        .join(&scene.invitation("a", "laptop"), "laptop")
        .output();
    assert!(joined.unwrap().status.success());
    let (_client, socks) = scene.client("laptop", &a);
    let mut stream = through(&socks, echo());
    exchange(&mut stream, 100_000);
    let waiting = scene.invitation("a", "waiting");

    scene.database.stop();
    let server = &scene.servers[0].0;
    server.log_with("cannot reach the database of the clients");
    exchange(&mut stream, 300_000);
    assert_eq!(scene.sessions("a"), 1);
    let refused = scene
        .bench
        .run(&["clients", "disable", "laptop", "--control", "a.sock"]);
    refused.fails(1, "nothing changed");
    // A known client returns, from the server's memory.
    drop(stream);
    let (_second, socks) = scene.client("laptop", &a);
    let mut stream = through(&socks, echo());
    exchange(&mut stream, 100_000);
    let mut join = scene.join(&waiting, "waiting");
    let joining = thread::spawn(move || join.output().unwrap());
    scene.database.run();
    let mut joined = joining.join().unwrap();
    // On a busy machine, the database may take longer than the server lets a client wait.
    if joined.status.code() == Some(1) {
        let text = String::from_utf8_lossy(&joined.stderr);
        assert!(text.contains("try this invitation again later"), "{text}");
        joined = until("the invitation still serves", || {
            let output = scene.join(&waiting, "waiting").output().unwrap();
            output.status.success().then_some(output)
        });
    }
    assert!(
        joined.status.success(),
        "{}",
        String::from_utf8_lossy(&joined.stderr)
    );
    server.log_with("the store of clients is written again");
    let sum = "SELECT sent + received FROM sumlink_clients WHERE name = 'laptop'";
    until("all usage is written", || {
        let used: u64 = scene.database.sql("sumlink", sum).parse().unwrap();
        (used > 1_000_000).then_some(())
    });
    // The other server reads the store again after its outage.
    until("the other server knows the new client", || {
        let shown = [
            "clients",
            "show",
            "waiting",
            "--json",
            "--control",
            "b.sock",
        ];
        let ran = scene.bench.run(&shown);
        (ran.code == 0).then_some(())
    });
    assert_eq!(
        scene.asked("b", &["clients", "show", "waiting"])["state"],
        "good"
    );
    drop(stream);
}

#[test]
fn a_database_that_cannot_be_used_is_one_line_with_its_exit_code() {
    let bench = crate::common::new();
    bench.key("server.key");
    // A port without a listener.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let write = |lines: &str| {
        let text = format!("listen = \"127.0.0.1:0\"\nkey = \"server.key\"\n[clients]\n{lines}\n");
        let path = bench.write("server.toml", &text);
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(path, permissions).unwrap();
    };
    let url = format!("postgres://sumlink:hunter2@127.0.0.1:{port}/sumlink");
    write(&format!("store = \"{url}\""));
    let at_start = bench.run(&["server", "--config", "server.toml"]);
    assert_eq!(at_start.code, 5, "{}", at_start.err);
    assert!(
        at_start.err.contains("cannot reach the database"),
        "{}",
        at_start.err
    );
    assert!(
        at_start.err.contains("can read the password"),
        "{}",
        at_start.err
    );
    assert!(!at_start.err.contains("hunter2"), "{}", at_start.err);
    let listed = bench.run(&["clients", "list", "--config", "server.toml"]);
    listed.fails(5, "cannot reach the database");
    let checked = bench.run(&["check", "server.toml"]);
    assert!(
        checked.err.contains("can read the password") && checked.code == 0,
        "{}",
        checked.err
    );
    let report = bench.run(&["diag", "--config", "server.toml", "--out", "report.txt"]);
    assert_eq!(report.code, 0, "{}", report.err);
    let report = std::fs::read_to_string(bench.path("report.txt")).unwrap();
    assert!(
        report.contains("postgres://") && !report.contains("hunter2"),
        "{report}"
    );
    let doctor = bench.run(&["doctor", "server.toml"]);
    assert!(
        doctor.out.contains("cannot reach the database"),
        "{}",
        doctor.out
    );
    assert!(!doctor.out.contains("hunter2"), "{}", doctor.out);

    write(&format!("store = \"postgres://sumlink@127.0.0.1:{port}\""));
    bench
        .run(&["check", "server.toml"])
        .fails(3, "names no database");
    write("store = \"clients.db\"\npassword_file = \"x\"");
    bench
        .run(&["check", "server.toml"])
        .fails(3, "`password_file`");
    write(&format!(
        "store = \"postgres://sumlink@127.0.0.1:{port}/sumlink\"\npassword_file = \"absent\""
    ));
    let refused = bench.run(&["server", "--config", "server.toml"]);
    refused.fails(3, "absent: No such file");
}
