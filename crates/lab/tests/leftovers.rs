//! Laboratories clean up completely, however they end.
//!
//! A single test, because it counts the remains of laboratories on the whole machine: those that it
//! started are identified by their ids.

#![allow(clippy::print_stderr, reason = "a test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The example program next to this test: cargo builds it with the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/lab")
}

struct Running {
    owner: Child,
    id: String,
    /// A program in the laboratory that only the laboratory kills.
    grandchild: i32,
}

/// A laboratory in which a shell has started a `sleep` in the background and waits.
fn start() -> Running {
    let mut command = Command::new(program());
    command.args([
        "shell",
        "--link",
        "wifi:rate=10mbit",
        "--lan",
        "--side",
        "server",
        "--",
        "sh",
        "-c",
    ]);
    command.arg("setsid sleep 1000 & echo $SUMLINK_LAB $!; wait");
    let mut owner = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let mut words = line.split_whitespace();
    let (id, pid) = (
        words.next().expect("the laboratory started"),
        words.next().unwrap(),
    );
    Running {
        owner,
        id: id.to_owned(),
        grandchild: pid.parse().unwrap(),
    }
}

fn namespaces_of(id: &str) -> Vec<PathBuf> {
    ["client", "server", "lan", "internet"]
        .map(|side| Path::new("/run/netns").join(format!("sumlink-{id}-{side}")))
        .to_vec()
}

fn exists(running: &Running) -> [bool; 2] {
    [
        namespaces_of(&running.id).iter().any(|path| path.exists()),
        Path::new("/proc")
            .join(running.grandchild.to_string())
            .join("ns/net")
            .exists(),
    ]
}

fn signal(running: &Running, name: &str) {
    let pid = running.owner.id().to_string();
    assert!(
        Command::new("kill")
            .args([name, &pid])
            .status()
            .unwrap()
            .success()
    );
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

#[test]
fn signals_kill_and_clean() {
    if std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_NETNS=1");
        return;
    }
    for name in ["-INT", "-TERM", "-HUP"] {
        let mut running = start();
        assert_eq!(exists(&running), [true, true], "{name}");
        signal(&running, name);
        assert_eq!(running.owner.wait().unwrap().code(), Some(130), "{name}");
        wait_until("processes end", || exists(&running) == [false, false]);
    }

    let mut other = start();
    let mut running = start();
    signal(&running, "-KILL");
    running.owner.wait().unwrap();
    assert_eq!(exists(&running), [true, true], "no other process cleans up");
    let output = Command::new(program()).arg("clean").output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Another process that started at the same moment may have been faster.
    wait_until("everything of a dead owner is removed", || {
        exists(&running) == [false, false]
    });
    assert_eq!(
        exists(&other),
        [true, true],
        "the property of a live owner stays"
    );
    signal(&other, "-TERM");
    other.owner.wait().unwrap();
    wait_until("processes end", || exists(&other) == [false, false]);
    assert!(!Path::new("/run/sumlink-lab").join(&running.id).exists());
    assert!(fs::metadata("/proc/sys/net/ipv4/tcp_allowed_congestion_control").is_ok());
}

#[test]
fn a_self_test_that_is_killed_is_cleaned_up() {
    if std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_NETNS=1");
        return;
    }
    let mut owner = Command::new(program())
        .args(["self-test", "--only", "tbf", "--repeats", "99"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let own_id = || {
        let mark = format!("\"pid\":{},", owner.id());
        let entries = fs::read_dir("/run/sumlink-lab").into_iter().flatten();
        entries.flatten().find_map(|entry| {
            // Hidden files are about to be renamed.
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                return None;
            }
            let text = fs::read_to_string(entry.path().join("owner.json")).ok()?;
            text.contains(&mark)
                .then(|| entry.file_name().into_string().ok())?
        })
    };
    wait_until("it starts", || own_id().is_some());
    let id = own_id().unwrap();
    let places = ["client", "server", "router"]
        .map(|place| Path::new("/run/netns").join(format!("sumlink-{id}-{place}")));
    wait_until("the shaper exists", || places.iter().all(|p| p.exists()));
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(places.iter().all(|place| place.exists()));
    let output = Command::new(program()).arg("clean").output().unwrap();
    assert!(output.status.success());
    wait_until("everything of a dead owner is removed", || {
        places.iter().all(|place| !place.exists())
    });
}

#[test]
fn errors_have_one_line_and_an_exit_code() {
    let run = |arguments: &[&str]| {
        let output = Command::new(program())
            .args(arguments)
            .env_remove("SUMLINK_LAB")
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, text) = run(&[
        "shell",
        "--link",
        "a:rate=1mbit",
        "--link",
        "a:rate=1mbit",
        "--",
        "true",
    ]);
    assert_eq!(
        (code, text.trim()),
        (
            Some(2),
            "lab: two links are called 'a': give each a different name"
        )
    );
    let (code, text) = run(&["shell", "--link", "a:rate=8gbit", "--", "true"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("more than the emulator carries"), "{text}");
    let (code, text) = run(&["exec", "--lab", "nosuch", "--side", "server", "--", "true"]);
    assert_eq!(
        (code, text.trim()),
        (Some(5), "lab: no laboratory 'nosuch' is running")
    );
}
