//! Invitations and the store of clients: two commands make a client, and a server manages its
//! clients while it runs.

mod store;
mod strangers;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use sumlink_lab::Side;
use sumlink_test_support::emulated::traffic::Transfer;
use sumlink_test_support::emulated::{Bench, Daemon, text, until};

use crate::bond::SERVER;

const LINKS: [&str; 2] = ["a:rate=16mbit,delay=2ms", "b:rate=16mbit,delay=4ms"];

/// The address of the tests' downloads.
const SOURCE: &str = "10.99.0.1:8080";

/// A server with a store and no client.
struct Scene {
    server: Option<Daemon>,
    bench: Bench,
}

impl Scene {
    /// `clients` are lines of `[clients]`.
    fn new(clients: &str) -> Option<Self> {
        let bench = crate::bench(&LINKS.map(str::to_owned))?;
        bench.write(
            "server.toml",
            format!(
                "listen = \"[::]:7000\"\nkey = \"server.key\"\ncontrol = \"server.sock\"\n\
                 [clients]\nstore = \"clients.db\"\naddress = [\"{SERVER}\"]\n{clients}\n\
                 [egress]\nrules = [\"allow 10.99.0.1\"]\n"
            ),
        );
        let mut scene = Self {
            server: None,
            bench,
        };
        scene.start("server");
        Some(scene)
    }

    /// Starts the server.
    fn start(&mut self, name: &str) {
        let server = self
            .bench
            .sumlink(name, &["server", "--config", "server.toml"]);
        server.event("listening");
        self.server = Some(server);
    }

    fn server(&self) -> &Daemon {
        self.server.as_ref().unwrap()
    }

    /// Kills the server without a chance to write anything.
    fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.signal("KILL");
        server.wait();
    }

    fn stop(mut self) {
        let mut server = self.server.take().unwrap();
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
        assert!(!server.log().contains("panicked"), "{}", server.log());
    }

    /// A verb about clients at the server's control socket.
    fn ask(&self, args: &[&str]) -> Output {
        let args = [args, &["--control", "server.sock", "--json"]].concat();
        self.bench.program(&args).output().unwrap()
    }

    #[track_caller]
    fn asked(&self, args: &[&str]) -> Value {
        serde_json::from_str(&text(self.ask(args))).unwrap()
    }

    /// An invitation with these options.
    #[track_caller]
    fn invite(&self, options: &[&str]) -> String {
        let answer = self.asked(&[&["invite"], options].concat());
        answer["invitation"].as_str().unwrap().to_owned()
    }

    fn join(&self, invitation: &str, options: &[&str]) -> Output {
        let args = [&["join", invitation], options].concat();
        self.bench.run_sumlink(Side::Client, &args)
    }

    /// Joins as `NAME.toml` and starts the client.
    #[track_caller]
    fn client(&self, name: &str) -> Daemon {
        let file = format!("{name}.toml");
        text(self.join(&self.invite(&["--name", name]), &["--out", &file]));
        if name != "laptop" {
            // Two clients of one machine need two ports.
            let path = self.bench.path(&file);
            let config = fs::read_to_string(&path).unwrap();
            fs::write(path, config.replace("127.0.0.1:1080", "127.0.0.1:1081")).unwrap();
        }
        self.run(name)
    }

    #[track_caller]
    fn run(&self, name: &str) -> Daemon {
        let file = format!("{name}.toml");
        let client = self.bench.sumlink(name, &["client", "--config", &file]);
        client.event("connected");
        client
    }

    fn sessions(&self) -> usize {
        let report = self.asked(&["status"]);
        report["sessions"].as_array().unwrap().len()
    }

    fn used(&self, name: &str) -> u64 {
        let shown = self.asked(&["clients", "show", name]);
        let count = |key: &str| shown[key].as_u64().unwrap();
        count("month_sent_bytes") + count("month_received_bytes")
    }

    /// Checks that a verb failed with this code, and one line with these words.
    #[track_caller]
    fn fails(output: &Output, code: i32, words: &str) {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(code), "{out}{error}");
        assert!(error.contains(words) || out.contains(words), "{out}{error}");
    }
}

/// The files of the client `laptop`, by name.
fn files(bench: &Bench) -> Vec<String> {
    let entries = fs::read_dir(bench.dir()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("laptop"))
        .collect();
    names.sort();
    names
}

#[test]
fn two_commands_make_a_client_that_transfers_data() {
    let Some(scene) = Scene::new("") else { return };
    let invited = text(
        scene
            .bench
            .program(&[
                "invite",
                "--name",
                "laptop",
                "--qr",
                "--control",
                "server.sock",
            ])
            .output()
            .unwrap(),
    );
    let invitation = invited.lines().last().unwrap();
    assert!(
        invitation.starts_with("sumlink://join?a=10.99.0.1:7000&k="),
        "{invited}"
    );
    assert!(
        invited.lines().count() > 15 && invited.contains('▀'),
        "{invited}"
    );
    // Only a digest of the secret is in the store.
    let secret = invitation.rsplit('=').next().unwrap();
    for file in ["clients.db", "clients.db-wal"] {
        let bytes = fs::read(scene.bench.path(file)).unwrap();
        let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        assert!(!has(secret.as_bytes()), "{file}");
    }

    let joined = text(scene.join(invitation, &["--out", "laptop.toml"]));
    assert!(
        joined.contains("joined 10.99.0.1:7000 as laptop"),
        "{joined}"
    );
    assert_eq!(files(&scene.bench), ["laptop.key", "laptop.toml"]);
    assert_eq!(scene.server().event("client_joined")["client"], "laptop");
    let mode = |name| {
        fs::metadata(scene.bench.path(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode("laptop.key"), 0o600);
    assert_eq!(mode("laptop.toml") & 0o022, 0, "others can write");
    let checked = scene
        .bench
        .program(&["check", "laptop.toml"])
        .output()
        .unwrap();
    assert!(text(checked).contains("ok, a client's configuration"));
    let log = scene.server().log();
    assert!(
        log.contains("a new client has joined") && log.contains("laptop"),
        "{log}"
    );

    let client = scene.run("laptop");
    let transfer = Transfer::download(&scene.bench, SOURCE.parse().unwrap());
    transfer.goes_on(2_000_000);
    let received = transfer.received();
    // The store counts once a second.
    let listed = until("the usage is counted", || {
        let listed = scene.asked(&["clients", "list"]);
        (listed[0]["sent_bytes"].as_u64().unwrap() >= received).then_some(listed)
    });
    assert_eq!(listed[0]["name"], "laptop");
    assert_eq!(listed[0]["state"], "good");

    // The invitation has been used; the answer is that to a wrong one.
    let again = scene.join(invitation, &["--out", "laptop2.toml"]);
    Scene::fails(&again, 6, "used, expired or wrong");
    assert_eq!(
        files(&scene.bench),
        ["laptop.key", "laptop.log", "laptop.sock", "laptop.toml"]
    );
    drop((transfer, client));
    scene.stop();
}

#[test]
fn a_client_is_disabled_and_removed_within_a_second() {
    let Some(scene) = Scene::new("") else { return };
    let mut client = scene.client("laptop");
    let other = scene.client("other");
    until("both have sessions", || {
        (scene.sessions() == 2).then_some(())
    });
    let ends = |words: &str, client: &Daemon| {
        let begun = Instant::now();
        until("the session ends", || (scene.sessions() == 1).then_some(()));
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
        until("the client knows why", || {
            (client.lines_with(words) > 0).then_some(())
        });
    };
    let shown = scene.asked(&["clients", "disable", "laptop"]);
    assert_eq!(shown["state"], "disabled");
    ends("no longer authorized", &client);
    let shown = scene.asked(&["clients", "enable", "laptop"]);
    assert_eq!(shown["state"], "good");
    let shown = scene.asked(&["clients", "expire", "other", "720h"]);
    assert!(shown["expires"].as_u64().unwrap() > shown["created"].as_u64().unwrap() + 2_500_000);
    let shown = scene.asked(&["clients", "expire", "other", "never"]);
    assert_eq!(shown["expires"], Value::Null);
    until("it is back", || (scene.sessions() == 2).then_some(()));
    scene.asked(&["clients", "remove", "laptop"]);
    ends("no longer authorized", &client);
    Scene::fails(
        &scene.ask(&["clients", "show", "laptop"]),
        2,
        "there is no client `laptop`",
    );
    client.signal("TERM");
    client.wait();
    let many = ["--address", "192.0.2.1:7443"].repeat(9);
    let refused = scene.ask(&[&["invite"], &many[..]].concat());
    Scene::fails(&refused, 2, "at most 8 addresses");
    // The name is free again, and the other client has noticed nothing.
    scene.invite(&["--name", "laptop"]);
    Scene::fails(&scene.ask(&["invite", "--name", "laptop"]), 2, "is taken");
    assert_eq!(other.lines_with("session closed"), 0);
    drop(other);
    scene.stop();
}

#[test]
fn an_invitation_ends_and_a_client_expires() {
    let Some(scene) = Scene::new("") else { return };
    let short = scene.invite(&["--name", "short", "--expires", "1s"]);
    thread::sleep(Duration::from_millis(1100));
    let out = ["--out", "short.toml"];
    Scene::fails(&scene.join(&short, &out), 6, "used, expired or wrong");
    let days = scene.invite(&["--name", "guest", "--client-expires", "4s"]);
    text(scene.join(&days, &["--out", "guest.toml"]));
    let client = scene.run("guest");
    until("the client expires", || {
        (scene.sessions() == 0 && client.lines_with("no longer authorized") > 0).then_some(())
    });
    let shown = scene.asked(&["clients", "show", "guest"]);
    assert_eq!(shown["state"], "expired");
    drop(client);
    scene.stop();
}

#[test]
fn a_signal_during_join_leaves_nothing_behind() {
    let Some(scene) = Scene::new("") else { return };
    let invitation = scene.invite(&["--name", "laptop"]);
    // No host has this address.
    let silent = invitation.replace(SERVER, "10.99.0.77:7000");
    assert_ne!(silent, invitation);
    let before = files(&scene.bench);
    for signal in ["HUP", "INT", "TERM"] {
        let log = format!("{signal}.log");
        let args = ["join", &silent, "--out", "laptop.toml"];
        let mut joining = scene.bench.sumlink_on(Side::Client, signal, &args);
        until("the files are prepared", || {
            let files = files(&scene.bench);
            let has = |part: &str| files.iter().any(|file| file.contains(part));
            (has("laptop.toml.new") && has("laptop.key.new")).then_some(())
        });
        joining.signal(signal);
        assert_eq!(joining.wait(), Some(130), "SIG{signal}: {}", joining.log());
        fs::remove_file(scene.bench.path(&log)).unwrap();
        assert_eq!(files(&scene.bench), before, "SIG{signal}");
    }
    scene.stop();
}

#[test]
fn an_open_invitation_is_listed_and_can_be_withdrawn() {
    let Some(scene) = Scene::new("") else { return };
    let invitation = scene.invite(&["--name", "guest"]);
    let listed = scene.asked(&["clients", "list"]);
    assert_eq!(listed[0]["name"], "guest");
    assert_eq!(listed[0]["state"], "invited");
    assert_eq!(scene.asked(&["clients", "show", "guest"]), listed[0]);
    let ended = scene.asked(&["clients", "remove", "guest"]);
    assert_eq!(ended["state"], "invited");
    assert_eq!(scene.asked(&["clients", "list"]), serde_json::json!([]));
    let out = ["--out", "guest.toml"];
    Scene::fails(&scene.join(&invitation, &out), 6, "used, expired or wrong");
    // The name is free again.
    scene.invite(&["--name", "guest"]);
    scene.stop();
}

#[test]
fn a_client_beyond_its_quota_is_blocked_or_limited() {
    let Some(scene) = Scene::new("beyond = \"64kbit\"") else {
        return;
    };
    let mut client = scene.client("laptop");
    scene.asked(&["clients", "quota", "laptop", "3MB", "--beyond", "block"]);
    let transfer = Transfer::download(&scene.bench, SOURCE.parse().unwrap());
    until("the session ends", || {
        (client.lines_with("is used up; the next month begins on") > 0).then_some(())
    });
    drop(transfer);
    assert_eq!(
        scene.asked(&["clients", "show", "laptop"])["state"],
        "blocked"
    );
    // A second of a fast link may pass before the quota is checked, and no more.
    let used = scene.used("laptop");
    assert!((3_000_000..16_000_000).contains(&used), "{used}");
    client.signal("TERM");
    client.wait();
    let again = scene
        .bench
        .run_sumlink(Side::Client, &["client", "--config", "laptop.toml"]);
    Scene::fails(&again, 5, "the quota of 3.00 MB a month is used up");

    // Without --beyond, the configuration decides.
    let shown = scene.asked(&["clients", "quota", "laptop", "3MB"]);
    assert_eq!(
        (&shown["state"], &shown["beyond"]),
        (&"limited".into(), &"64kbit".into())
    );
    let client = scene.run("laptop");
    let transfer = Transfer::download(&scene.bench, SOURCE.parse().unwrap());
    transfer.goes_on(1);
    let before = transfer.received();
    thread::sleep(Duration::from_secs(4));
    let rate = (transfer.received() - before) * 8 / 4;
    assert!((8_000..=160_000).contains(&rate), "{rate} bit/s");
    // The limit ends in the running stream.
    scene.asked(&["clients", "quota", "laptop", "none"]);
    transfer.goes_on(2_000_000);
    drop((transfer, client));
    scene.stop();
}

#[test]
fn files_are_not_overwritten_and_nothing_is_left_behind() {
    let Some(scene) = Scene::new("") else { return };
    let invitation = scene.invite(&["--name", "laptop"]);
    scene.bench.write("laptop.toml", "mine");
    let out = ["--out", "laptop.toml"];
    Scene::fails(&scene.join(&invitation, &out), 3, "already exists");
    fs::remove_file(scene.bench.path("laptop.toml")).unwrap();
    scene.bench.write("laptop.key", "mine");
    Scene::fails(&scene.join(&invitation, &out), 4, "already exists");
    assert_eq!(
        fs::read_to_string(scene.bench.path("laptop.key")).unwrap(),
        "mine"
    );
    let absent = ["--out", "none/laptop.toml"];
    Scene::fails(&scene.join(&invitation, &absent), 4, "cannot write");
    Scene::fails(
        &scene.join(&invitation[..40], &out),
        2,
        "not a whole invitation",
    );
    // Another key than the server's: the secret is not sent.
    let other = scene.bench.key("other.key");
    let wrong = wrong_key(&invitation, &other);
    Scene::fails(
        &scene.join(&wrong, &["--force", "--out", "laptop.toml"]),
        6,
        "not the pinned",
    );
    assert_eq!(
        fs::read_to_string(scene.bench.path("laptop.key")).unwrap(),
        "mine"
    );
    assert_eq!(files(&scene.bench), ["laptop.key"]);
    let forced = scene.join(&invitation, &["--force", "--out", "laptop.toml"]);
    assert!(text(forced).contains("as laptop"));
    drop(scene.run("laptop"));
    scene.stop();
}

/// The invitation with another server's key.
fn wrong_key(invitation: &str, key: &str) -> String {
    let (before, rest) = invitation.split_once("&k=").unwrap();
    let (_, after) = rest.split_once('&').unwrap();
    let key = key.replace('+', "-").replace('/', "_").replace('=', "");
    format!("{before}&k={key}&{after}")
}

#[test]
fn a_server_without_a_store_is_one_without_invitations() {
    let Some(scene) = Scene::new("") else { return };
    let invitation = scene.invite(&[]);
    let client = scene.bench.key("some.key");
    scene.bench.write(
        "server2.toml",
        format!(
            "listen = \"[::]:7001\"\nkey = \"server.key\"\ncontrol = \"server2.sock\"\n\
             [[client]]\nkey = \"{client}\"\nname = \"file\"\n"
        ),
    );
    let other = scene
        .bench
        .sumlink("server2", &["server", "--config", "server2.toml"]);
    other.event("listening");
    let there = invitation.replace(":7000", ":7001");
    Scene::fails(
        &scene.join(&there, &["--out", "laptop.toml"]),
        7,
        "the server accepts no invitations",
    );
    let asked = |args: &[&str]| {
        let args = [args, &["--control", "server2.sock"]].concat();
        scene.bench.program(&args).output().unwrap()
    };
    Scene::fails(&asked(&["clients", "list"]), 2, "no store of clients");
    Scene::fails(&asked(&["invite"]), 2, "no store of clients");
    let unused = invitation.replace(":7000", ":7002");
    Scene::fails(
        &scene.join(&unused, &["--out", "laptop.toml"]),
        5,
        "cannot reach the server at 10.99.0.1:7002",
    );
    drop(other);
    scene.stop();
}
