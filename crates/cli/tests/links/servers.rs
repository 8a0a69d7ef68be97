//! A client with several servers.

use std::fmt::Display;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use sumlink_lab::Side;
use sumlink_test_support::emulated::traffic::Transfer;
use sumlink_test_support::emulated::{Bench, Daemon, text, until};

/// The second server's address, beside that of the laboratory.
const SECOND: &str = "10.99.0.2";

/// Both ends of the tests' downloads are on the servers' machine.
const SOURCE: &str = "10.99.0.1:8080";

/// Two servers on one machine, and their client.
struct Scene {
    client: Daemon,
    servers: Vec<Daemon>,
    bench: Bench,
}

impl Scene {
    /// `client` are further lines of the client's file.
    fn new(client: &str) -> Option<Self> {
        let links = ["a:rate=16mbit,delay=5ms", "b:rate=16mbit,delay=8ms"];
        let bench = crate::bench(&links.map(str::to_owned))?;
        bench.run(
            Side::Server,
            &["ip", "addr", "add", &format!("{SECOND}/32"), "dev", "lo"],
        );
        let keys = [bench.server_key.clone(), bench.key("second.key")];
        let servers = [("server", "10.99.0.1"), ("second", SECOND)];
        let servers = servers.map(|(name, address)| start(&bench, name, address));
        bench.write(
            "client.toml",
            format!(
                "server = [\"10.99.0.1:7000\", \"{SECOND}:7000\"]\n\
                 server_key = [\"{}\", \"{}\"]\nkey = \"client.key\"\ncontrol = \"client.sock\"\n\
                 {client}\n",
                keys[0], keys[1]
            ),
        );
        let client = bench.sumlink("client", &["client", "--config", "client.toml"]);
        client.event("connected");
        Some(Self {
            client,
            servers: servers.into(),
            bench,
        })
    }

    /// A client that prefers the first server, and is there.
    fn at_the_first() -> Option<Self> {
        let scene = Self::new("server_choice = \"listed\"")?;
        scene.until_at("10.99.0.1");
        Some(scene)
    }

    /// The client's first session.
    fn session(&self) -> Value {
        let args = ["status", "--json", "--control", "client.sock"];
        let output = self.bench.program(&args).output().unwrap();
        let report: Value = serde_json::from_str(&text(output)).unwrap();
        report["sessions"][0].clone()
    }

    /// Waits until the client has an active path to this server.
    #[track_caller]
    fn until_at(&self, server: impl Display) {
        let server = format!("{server}:7000");
        until(&format!("the client is at {server}"), || {
            let session = self.session();
            let paths = session["paths"].as_array()?;
            let is_active = paths.iter().any(|path| path["state"] == "active");
            (session["server"] == server && is_active).then_some(())
        });
    }

    /// Drops everything that arrives for a server.
    fn silence(&self, address: &str) {
        let rules = format!(
            "table ip silent {{\nchain input {{\ntype filter hook input priority 0\n\
             ip daddr {address} tcp dport 7000 drop\n\
             ip daddr {address} udp dport 7000 drop\n}}\n}}\n"
        );
        let file = self.bench.write("silent.nft", rules);
        self.bench
            .run(Side::Server, &["nft", "-f", file.to_str().unwrap()]);
    }

    /// A download of some bytes.
    #[track_caller]
    fn downloads(&self) {
        let transfer = Transfer::download(&self.bench, SOURCE.parse().unwrap());
        transfer.goes_on(500_000);
        transfer.finish();
    }

    fn stop(mut self) {
        self.client.signal("TERM");
        assert_eq!(self.client.wait(), Some(0));
        assert!(
            !self.client.log().contains("panicked"),
            "{}",
            self.client.log()
        );
    }
}

/// Starts a server; its files have its name.
fn start(bench: &Bench, name: &str, address: &str) -> Daemon {
    let file = format!("{name}.toml");
    bench.write(
        &file,
        format!(
            "listen = \"{address}:7000\"\nkey = \"{name}.key\"\ncontrol = \"{name}.sock\"\n\
             [[client]]\nkey = \"{}\"\n\
             [egress]\nrules = [\"allow 10.99.0.1\"]\n",
            bench.client_key
        ),
    );
    let server = bench.sumlink(name, &["server", "--config", &file]);
    server.event("listening");
    server
}

/// The connections of a killed process end at once.
#[test]
fn a_client_moves_from_a_killed_server_and_returns_to_it() {
    let Some(mut scene) = Scene::at_the_first() else {
        return;
    };
    scene.downloads();
    scene.servers[0].signal("KILL");
    scene.servers[0].wait();
    scene.until_at(SECOND);
    scene.downloads();
    // It returns only while nothing uses the session.
    scene.servers[0] = start(&scene.bench, "server", "10.99.0.1");
    until("the client returns", || {
        thread::sleep(Duration::from_millis(200));
        (scene.session()["server"] == "10.99.0.1:7000").then_some(())
    });
    scene.until_at("10.99.0.1");
    scene.downloads();
    let log = scene.client.log();
    assert!(log.contains("a preferred server answers again"), "{log}");
    scene.stop();
}

/// Nothing answers at the address of a machine without power.
#[test]
fn a_client_moves_from_a_silent_server() {
    let Some(scene) = Scene::new("") else { return };
    let at = until("the client has chosen a server", || {
        scene.session()["server"].as_str().map(str::to_owned)
    });
    let (address, other) = match at.starts_with("10.99.0.1") {
        true => ("10.99.0.1", SECOND),
        false => (SECOND, "10.99.0.1"),
    };
    scene.until_at(address);
    let transfer = Transfer::download(&scene.bench, SOURCE.parse().unwrap());
    transfer.goes_on(500_000);
    scene.silence(address);
    scene.until_at(other);
    drop(transfer);
    let log = scene.client.log();
    assert!(
        log.contains("the server no longer answers, and another one does"),
        "{log}"
    );
    scene.stop();
}

/// An outage of the client's own links is no reason to leave its server.
#[test]
fn a_session_outlasts_an_outage_of_all_links() {
    let Some(scene) = Scene::at_the_first() else {
        return;
    };
    let before = scene.session()["session"].clone();
    let transfer = Transfer::download(&scene.bench, SOURCE.parse().unwrap());
    transfer.goes_on(500_000);
    let set = |state: &str| {
        for link in ["a", "b"] {
            scene.bench.set(link, &format!("state={state}"));
        }
    };
    set("blackhole");
    until("no path delivers", || {
        let session = scene.session();
        let paths = session["paths"].as_array()?;
        let delivers = paths.iter().any(|path| path["state"] == "active");
        (!delivers).then_some(())
    });
    // Long enough for the client to try the other server.
    thread::sleep(Duration::from_secs(2));
    set("up");
    transfer.goes_on(2_000_000);
    transfer.finish();
    assert_eq!(scene.session()["session"], before);
    assert_eq!(scene.session()["server"], "10.99.0.1:7000");
    scene.stop();
}

/// A server that answers, but admits no session of this client, is no replacement.
#[test]
fn a_client_does_not_move_to_a_server_that_refuses_it() {
    let Some(scene) = Scene::at_the_first() else {
        return;
    };
    let before = scene.session()["session"].clone();
    let drain = ["drain", "--control", "second.sock"];
    text(scene.bench.program(&drain).output().unwrap());
    let transfer = Transfer::download(&scene.bench, SOURCE.parse().unwrap());
    transfer.goes_on(500_000);
    scene.silence("10.99.0.1");
    let refused = || {
        let status = ["status", "--json", "--control", "second.sock"];
        let status = text(scene.bench.program(&status).output().unwrap());
        let status: Value = serde_json::from_str(&status).unwrap();
        status["refused"]["stopping"].as_u64().unwrap()
    };
    until("the second server is asked", || {
        (refused() > 0).then_some(())
    });
    scene
        .bench
        .run(Side::Server, &["nft", "delete table ip silent"]);
    transfer.goes_on(2_000_000);
    transfer.finish();
    assert_eq!(scene.session()["session"], before);
    scene.stop();
}

#[test]
fn a_draining_server_keeps_its_sessions_and_gets_no_new_ones() {
    let Some(mut scene) = Scene::at_the_first() else {
        return;
    };
    let drain = |scene: &Scene, option: &str| {
        let args = ["drain", "--control", "server.sock", "--json"];
        let args: Vec<&str> = args.into_iter().chain(option.split_whitespace()).collect();
        let output = text(scene.bench.program(&args).output().unwrap());
        serde_json::from_str::<Value>(&output).unwrap()
    };
    assert_eq!(drain(&scene, "")["sessions"], 1);
    scene.downloads();
    let note = ["status", "--json", "--control", "server.sock"];
    let note = text(scene.bench.program(&note).output().unwrap());
    let note: Value = serde_json::from_str(&note).unwrap();
    assert_eq!(note["note"], "draining: no new sessions; 1 left");
    // A new session begins at the other server, although this one answers.
    scene.client.signal("TERM");
    scene.client.wait();
    assert_eq!(drain(&scene, "--wait")["sessions"], 0);
    scene.client = scene
        .bench
        .sumlink("again", &["client", "--config", "client.toml"]);
    let event = scene.client.event("connected");
    assert_eq!(event["server"], format!("{SECOND}:7000"));
    scene.until_at(SECOND);
    assert_eq!(drain(&scene, "--off")["draining"], false);
    scene.stop();
}

#[test]
fn a_client_starts_with_any_server_that_answers() {
    let Some(mut scene) = Scene::new("") else {
        return;
    };
    scene.client.signal("TERM");
    scene.client.wait();
    scene.servers[0].signal("KILL");
    scene.servers[0].wait();
    scene.client = scene
        .bench
        .sumlink("again", &["client", "--config", "client.toml"]);
    let event = scene.client.event("connected");
    assert_eq!(event["server"], format!("{SECOND}:7000"));
    scene.until_at(SECOND);
    scene.stop();
}

#[test]
fn each_server_has_a_key_or_all_have_one() {
    let Some(bench) = crate::bench(&["a:rate=16mbit".to_owned()]) else {
        return;
    };
    let second = bench.key("second.key");
    for (servers, keys, problem) in [
        ("[\"a:1\", \"b:1\"]", format!("\"{second}\""), ""),
        (
            "[\"a:1\", \"b:1\", \"c:1\"]",
            format!("[\"{second}\", \"{}\"]", bench.server_key),
            "write one key for all servers, or as many keys as servers",
        ),
        (
            "[\"a:1\", \"a:1\"]",
            format!("\"{second}\""),
            "occurs twice",
        ),
        ("[]", format!("\"{second}\""), "the list is empty"),
        (
            "[1]",
            format!("\"{second}\""),
            "write a text in quotes, or a list",
        ),
    ] {
        bench.write(
            "client.toml",
            format!("server = {servers}\nserver_key = {keys}\nkey = \"client.key\"\n"),
        );
        let output = bench.program(&["check", "client.toml"]).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        match problem {
            "" => assert!(said.contains("servers a:1, b:1 over"), "{said}"),
            problem => assert!(said.contains(problem), "{said}"),
        }
    }
    // On the command line, one of the servers has its own key.
    bench.write(
        "client.toml",
        format!(
            "server = [\"a:1\", \"b:1\"]\nserver_key = [\"{second}\", \"{}\"]\n\
             key = \"client.key\"\n",
            bench.server_key
        ),
    );
    let args = ["client", "--config", "client.toml", "--server", "c:1"];
    let output = bench.program(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("is none of the servers in the file"),
        "{said}"
    );
}
