//! `sumlink-lab cc trace`.
//!
//! A trace needs root and Linux 6.4 or later, and fails without, unless `SUMLINK_SKIP_BPF=1` is
//! set.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use sumlink_kernel::probe;

use crate::common::{Bench, Ran};

/// The program without any privilege, also if the tests run as root.
fn unprivileged(bench: &Bench, args: &[&str]) -> Command {
    let plain = bench.command(args);
    if !nix::unistd::geteuid().is_root() {
        return plain;
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set=-all", "--inh-caps=-all"])
        .arg("--")
        .arg(plain.get_program())
        .args(args)
        .current_dir(bench.dir())
        .env_remove("SUMLINK_LOG");
    command
}

fn json(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn invalid_arguments_are_wrong_usage() {
    let bench = crate::common::new();
    let fails = |args: &[&str], part: &str| bench.run(args).fails(2, part);
    fails(&["cc", "trace", "--out", "x.txt"], ".csv");
    fails(&["cc", "trace", "--pid", "4294967294"], "no such process");
}

#[test]
fn a_missing_privilege_is_named_on_one_line() {
    let bench = crate::common::new();
    for args in [&["cc", "trace"][..], &["cc", "trace", "--out", "x.csv"]] {
        let ran = Ran::from(unprivileged(&bench, args).output().unwrap());
        ran.fails(11, "CAP_BPF");
    }
    assert!(!bench.path("x.csv").exists());
}

#[test]
fn a_trace_has_records_and_a_picture() {
    if std::env::var_os("SUMLINK_SKIP_BPF").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_BPF=1");
        return;
    }
    let missing = probe();
    assert!(
        missing.is_empty(),
        "{missing:?}; set SUMLINK_SKIP_BPF=1 to leave this test out"
    );
    let bench = crate::common::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let args = [
        "cc", "trace", "--port", &port, "--out", "x.csv", "--plot", "--json",
    ];
    let mut command = bench.command(args);
    let pipe = std::process::Stdio::piped;
    let child = command.stdout(pipe()).stderr(pipe()).spawn().unwrap();
    until("the trace runs", || bench.path("x.csv").exists());
    let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut to = listener.accept().unwrap().0;
    // Each answer acknowledges its request. For bulk data the kernel may acknowledge megabytes at
    // once.
    for _ in 0..20 {
        from.write_all(b"?").unwrap();
        to.read_exact(&mut [0]).unwrap();
        to.write_all(b"!").unwrap();
        from.read_exact(&mut [0]).unwrap();
    }
    let reader = std::thread::spawn(move || to.read_to_end(&mut Vec::new()).unwrap());
    from.write_all(&vec![7; 5_000_000]).unwrap();
    from.shutdown(Shutdown::Write).unwrap();
    assert_eq!(reader.join().unwrap(), 5_000_000);
    let pid = child.id().to_string();
    let status = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(status.unwrap().success());
    let summary = json(&Ran::from(child.wait_with_output().unwrap()));
    assert_eq!(summary["lost"], 0);
    let csv = std::fs::read_to_string(bench.path("x.csv")).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][..3], ["time_s", "socket", "local"]);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    assert_eq!(summary["records"].as_u64(), Some(rows.len() as u64 - 1));
    assert!(rows.len() > 10, "{csv}");
    let mine = from.local_addr().unwrap().to_string();
    assert!(rows[1..].iter().any(|row| row[2] == mine));
    let picture = std::fs::read_to_string(bench.path("x.svg")).unwrap();
    assert!(
        picture.starts_with("<svg ") && picture.contains(&mine),
        "{picture}"
    );
}
