//! Logging never harms data: standard error and standard output that are full, closed or not read.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{self, Bench, Daemon, PATIENCE};
use crate::daemons::{Host, SERVER, config, status, suppressed, through};

/// This number of failed reloads, each with a line of [`LONG`] bytes, fills a queue of 1 MiB and
/// stays below the limit on lines of one kind.
const RELOADS: usize = 25;
const LONG: usize = 60_000;

/// Writes a configuration file that is refused with a long line.
fn long_mistake(bench: &Bench) {
    let key = "x".repeat(LONG);
    bench.write(
        "server.toml",
        &format!("listen = \"127.0.0.1:0\"\n{key} = 1\n"),
    );
}

/// Sends `megabytes` through a client of this server.
fn transfer(client: &mut Daemon, megabytes: usize) {
    let socks = client.event("listening")["address"].clone();
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = through(socks.as_str().unwrap(), target.local_addr().unwrap());
    let (mut far, _) = target.accept().unwrap();
    let sent = vec![7; megabytes << 20];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            near.write_all(&sent).unwrap();
            drop(near);
        });
        let mut received = Vec::new();
        far.read_to_end(&mut received).unwrap();
        assert!(received == sent, "{} bytes arrived", received.len());
    });
}

/// Standard errors that cannot be written: a full disk, and a pipe without a reader.
fn broken() -> [(&'static str, Stdio); 2] {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    [
        ("a full disk", full.into()),
        ("a closed pipe", closed.into()),
    ]
}

#[test]
fn an_unwritable_log_does_not_affect_start_transfer_or_end() {
    for ((what, server_log), (_, client_log)) in broken().into_iter().zip(broken()) {
        let mut host = Host::logging_to(server_log);
        let mut command = host.client(&[]);
        command.env("SUMLINK_LOG", "debug");
        let mut client = Daemon::start_logging_to(command, client_log);
        client.event("connected");
        transfer(&mut client, 2);
        for daemon in [&mut client, &mut host.server] {
            daemon.signal("TERM");
            daemon.event("stopped");
            assert_eq!(daemon.wait(), Some(0), "{what}");
        }
    }
}

#[test]
fn a_one_shot_verb_keeps_its_exit_code_without_standard_error() {
    let bench = crate::common::new();
    for (what, log) in broken() {
        let ran = bench.command(["check", "none.toml"]).stderr(log).status();
        assert_eq!(ran.unwrap().code(), Some(3), "{what}");
    }
    // It is also silent when its reader has gone.
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let ran = bench.command(["links"]).stdout(closed).output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    assert_eq!(String::from_utf8(ran.stderr).unwrap(), "");
}

/// A pipe of one page whose reader does not read yet.
fn unread() -> (PipeReader, Stdio) {
    let (unread, log) = std::io::pipe().unwrap();
    fcntl(&log, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    (unread, log.into())
}

#[test]
fn a_blocked_reader_of_the_log_blocks_nothing() {
    let (mut reader, log) = unread();
    let mut host = Host::logging_to(log);
    long_mistake(&host.bench);
    for _ in 0..RELOADS {
        host.server.signal("HUP");
        host.server.event("reload_failed");
    }
    // Pipe and queue are full, so the lines of the session are dropped too.
    let mut client = Daemon::start(host.client(&[]));
    client.event("connected");
    transfer(&mut client, 2);
    client.signal("TERM");
    assert_eq!(client.wait(), Some(0));
    let read = std::thread::spawn(move || {
        let mut log = String::new();
        reader.read_to_string(&mut log).unwrap();
        log
    });
    host.server.signal("TERM");
    assert_eq!(host.server.wait(), Some(0));
    let log = read.join().unwrap();
    assert!(log.contains("server listens"));
    let line = log.lines().find(|line| line.contains("dropped: ")).unwrap();
    let dropped: usize = line.split(' ').next().unwrap().parse().unwrap();
    let kept = log.matches("nothing changed").count();
    assert!(
        kept < RELOADS && dropped >= RELOADS - kept,
        "{dropped} dropped, {kept} kept"
    );
}

/// A process that is killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn unread_events_block_nothing() {
    let bench = crate::common::new();
    let keys = [bench.key("server.key"), bench.key("client.key")];
    bench.write("server.toml", &config(&[&keys[1]]));
    let (mut reader, events) = unread();
    let mut command = bench.command(SERVER);
    let server = command
        .stdout(events)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Ended(server);
    // The command holds an end of the pipe, so reading would never end.
    drop(command);
    let lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let (sender, log) = mpsc::channel();
    std::thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    let until = |word: &str| while !log.recv_timeout(PATIENCE).expect(word).contains(word) {};
    until("server listens");
    let pid = Pid::from_raw(server.0.id() as i32);
    long_mistake(&bench);
    for _ in 0..RELOADS {
        kill(pid, Signal::SIGHUP).unwrap();
        until("nothing changed");
    }
    assert_eq!(status(&bench, "server.sock")["role"], "server");
    let read = std::thread::spawn(move || {
        let mut events = String::new();
        reader.read_to_string(&mut events).unwrap();
        events
    });
    kill(pid, Signal::SIGTERM).unwrap();
    until("events dropped");
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    let events: Vec<serde_json::Value> = read
        .join()
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events[0]["event"], "listening");
    // Missing events are counted where they are missing.
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    let missed = events.iter().find(|event| event["event"] == "missed");
    let missed = missed.unwrap()["events"].as_u64().unwrap();
    assert_eq!(count("reload_failed") + missed as usize, RELOADS);
}

#[test]
fn events_and_log_lines_name_client_and_session() {
    let mut host = Host::new();
    let second = host.bench.key("second.key");
    let named = format!(
        "listen = \"127.0.0.1:0\"\nkey = \"server.key\"\n\
         [[client]]\nkey = \"{}\"\nname = \"laptop\"\n[[client]]\nkey = \"{second}\"\n",
        host.client_key
    );
    host.bench.write("server.toml", &named);
    host.server.signal("HUP");
    host.server.event("reloaded");
    let begin = |host: &mut Host, key: &str| {
        let mut client = Daemon::start(host.client(&[("--key", key)]));
        let start = client.event("session_start");
        assert!(start["client"].is_null(), "{start}");
        let started = host.server.event("session_start");
        assert_eq!(started["session"], start["session"]);
        let up = host.server.event("up");
        for member in ["session", "client", "peer"] {
            assert_eq!(up[member], started[member], "{up}");
        }
        (client, started)
    };
    let (mut laptop, first) = begin(&mut host, "client.key");
    let (_other, other) = begin(&mut host, "second.key");
    assert_eq!(
        (&first["client"], &other["client"]),
        (&"laptop".into(), &serde_json::Value::Null)
    );
    assert_eq!(first["peer"], host.client_key.as_str());
    assert_eq!(other["peer"], second.as_str());
    assert_ne!(first["session"], other["session"]);
    // RFC 3339: 2026-01-02T03:04:05.678901Z.
    let time = first["time"].as_str().unwrap();
    assert!(time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");

    laptop.signal("TERM");
    assert!(laptop.event("session_end")["reason"].is_string());
    laptop.event("stopped");
    let ended = host.server.event("session_end");
    assert_eq!(
        (&ended["session"], &ended["client"]),
        (&first["session"], &first["client"])
    );
    assert!(
        ended["seconds"]
            .as_f64()
            .is_some_and(|seconds| seconds > 0.0),
        "{ended}"
    );
    host.server.signal("TERM");
    assert_eq!(
        host.server.event("session_end")["session"],
        other["session"]
    );
    assert_eq!(host.server.wait(), Some(0));

    let log = host.server.log_at_end();
    let short =
        |event: &serde_json::Value, member: &str| event[member].as_str().unwrap()[..8].to_owned();
    for (event, name) in [(&first, "client=\"laptop\" "), (&other, "")] {
        let (key, id) = (short(event, "peer"), short(event, "session"));
        let span = format!("session{{{name}key={key} id={id}}}: ");
        for line in ["session begins", "path up", "session closed"] {
            assert!(
                log.contains(&format!("{span}{line}")),
                "{span}{line} is not in {log}"
            );
        }
    }
}

#[test]
fn a_client_with_refused_targets_cannot_fill_the_log() {
    const ASKED: u64 = 300;
    let mut host = Host::new();
    let refuses =
        config(&[&host.client_key]).replace("rules = [", "rules = [\"deny 192.0.2.0/24\", ");
    host.bench.write("server.toml", &refuses);
    host.server.signal("HUP");
    host.server.event("reloaded");
    let mut command = host.client(&[]);
    command.env("SUMLINK_LOG", "debug");
    let mut client = Daemon::start(command);
    let socks = client.event("listening")["address"].clone();
    let began = Instant::now();
    for _ in 0..ASKED {
        let mut stream = TcpStream::connect(socks.as_str().unwrap()).unwrap();
        // 192.0.2.1, port 80.
        let asked = [5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 0, 80];
        stream.write_all(&asked).unwrap();
        // A reply with the refusal, or a reset.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let seconds = began.elapsed().as_secs();
    for daemon in [&mut client, &mut host.server] {
        daemon.signal("TERM");
        assert_eq!(daemon.wait(), Some(0));
    }
    let log = host.server.log_at_end();
    let logged = log.matches("refused by the egress policy target=").count() as u64;
    assert!(logged <= 30 + seconds, "{logged} in {seconds} s");
    assert_eq!(logged + suppressed(&log), ASKED, "{log}");
    // The lines that a local program causes at the client are limited, too.
    let log = client.log_at_end();
    let logged = log.matches("cannot open the SOCKS5 target target=").count() as u64;
    assert!(
        logged <= 3000 + 100 * seconds && logged > 0,
        "{logged} in {seconds} s"
    );
}

/// The log of a server that is started and stopped, in this form.
fn log_in(form: &str) -> String {
    let host = Host::new();
    let mut command = host.client(&[]);
    command.env("SUMLINK_LOG_FORMAT", form);
    let mut client = Daemon::start(command);
    client.event("session_start");
    client.signal("TERM");
    assert_eq!(client.wait(), Some(0));
    client.log_at_end()
}

#[test]
fn the_log_has_the_form_that_the_environment_asks_for() {
    let json = log_in("json");
    let lines = json.lines().map(serde_json::from_str);
    let lines: Vec<serde_json::Value> = lines.map(Result::unwrap).collect();
    let up = lines.iter().find(|line| line["message"] == "path up");
    let up = up.unwrap_or_else(|| panic!("no path up in {json}"));
    assert_eq!(up["level"], "INFO");
    assert_eq!(up["spans"][0]["name"], "session");
    assert!(up["spans"][0]["id"].is_string(), "{up}");
    let journal = log_in("journal");
    assert!(
        journal.lines().all(|line| line.starts_with("<6> INFO ")),
        "{journal}"
    );
    assert!(journal.contains("path up"), "{journal}");
    let text = log_in("text");
    assert!(text.contains("Z  INFO session{id="), "{text}");
}

#[test]
fn an_error_that_ends_a_program_has_the_form_of_the_log() {
    let bench = common::new();
    let ends = |form: &str| {
        let mut command = bench.command(["server", "--config", "missing.toml"]);
        let output = command.env("SUMLINK_LOG_FORMAT", form).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        (output.status.code(), text)
    };
    let (code, json) = ends("json");
    let error: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &error["level"]), (Some(3), &"ERROR".into()));
    assert!(
        error["message"].as_str().unwrap().contains("missing.toml"),
        "{json}"
    );
    assert!(ends("journal").1.starts_with("<3>"));
    let (code, wrong) = ends("xml");
    assert_eq!(code, Some(2), "{wrong}");
    assert!(wrong.contains("choose text, json or journal"), "{wrong}");
}
