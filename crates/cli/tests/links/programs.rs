//! Programs that are unaware of sumlink: git, ssh, iperf3.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::thread;

use serde_json::Value;
use sumlink_lab::Side;

use crate::bond::{HTTP, Plan, SOCKS};
use sumlink_test_support::emulated::traffic::Pattern;
use sumlink_test_support::emulated::{Bench, finish, has_users, is_root};

const LINKS: [&str; 2] = ["a:rate=20mbit,delay=5ms", "b:rate=20mbit,delay=10ms"];

/// git on the client's side.
fn git(bench: &Bench, words: &[&str]) -> String {
    git_on(bench, Side::Client, words)
}

pub(crate) fn git_on(bench: &Bench, side: Side, words: &[&str]) -> String {
    let name = [
        "git",
        "-c",
        "user.name=Test",
        "-c",
        "user.email=test@example.org",
    ];
    bench.run(side, &[&name, words].concat())
}

/// Makes a repository with some files below `www`; its newest commit.
pub(crate) fn repository(bench: &Bench) -> String {
    git(bench, &["init", "-q", "original"]);
    let original = bench.path("original");
    for seed in 0..20 {
        fs::write(
            original.join(format!("file-{seed}")),
            Pattern::bytes(seed, 100_000),
        )
        .unwrap();
    }
    git(bench, &["-C", "original", "add", "."]);
    git(bench, &["-C", "original", "commit", "-q", "-m", "Files"]);
    git(
        bench,
        &["clone", "-q", "--bare", "original", "www/repo.git"],
    );
    git(bench, &["-C", "www/repo.git", "update-server-info"]);
    git(bench, &["-C", "original", "rev-parse", "HEAD"])
}

/// Serves it by git's own protocol.
pub(crate) fn git_daemon(bench: &Bench, side: Side, address: &str) -> Child {
    let www = bench.path("www").display().to_string();
    let (base, listen) = (format!("--base-path={www}"), format!("--listen={address}"));
    // The program itself, because `git daemon` starts a process that outlives its parent.
    let exec_path = git(bench, &["--exec-path"]);
    let daemon = format!("{}/git-daemon", exec_path.trim());
    let daemon = [&daemon, "--export-all", &base, &listen, "--port=9418", &www];
    let daemon = bench.spawn(side, &daemon);
    bench.until_listening(side, 9418);
    daemon
}

/// Whether a copy of the repository is complete.
#[track_caller]
pub(crate) fn is_copy(bench: &Bench, copy: &str, head: &str) {
    assert_eq!(
        git(bench, &["-C", copy, "rev-parse", "HEAD"]),
        head,
        "{copy}"
    );
    git(bench, &["-C", copy, "fsck", "--strict"]);
    let file = fs::read(bench.path(copy).join("file-7")).unwrap();
    assert!(file == Pattern::bytes(7, 100_000), "{copy}");
}

#[test]
fn git_clones_over_http_and_its_own_protocol() {
    let forwards = "forward = [\"127.0.0.1:9418=10.99.0.1:9418\"]\n";
    let Some(mut bond) = Plan::new(&LINKS).client(forwards).start() else {
        return;
    };
    bond.serve_files();
    let head = repository(&bond.bench);
    let daemon = git_daemon(&bond.bench, Side::Server, "10.99.0.1");
    bond.keep(daemon);

    let proxies = [
        format!("http.proxy=http://{HTTP}"),
        format!("http.proxy=socks5h://{SOCKS}"),
    ];
    for (copy, proxy) in ["by-http", "by-socks"].iter().zip(&proxies) {
        git(
            &bond.bench,
            &[
                "-c",
                proxy,
                "clone",
                "-q",
                "http://10.99.0.1/repo.git",
                copy,
            ],
        );
    }
    let everything = format!("ALL_PROXY=socks5h://{SOCKS}");
    let clone = [
        "git",
        "clone",
        "-q",
        "http://[fd99::1]/repo.git",
        "by-environment",
    ];
    bond.bench
        .run(Side::Client, &[&["env", &everything], &clone[..]].concat());
    git(
        &bond.bench,
        &["clone", "-q", "git://127.0.0.1/repo.git", "by-forward"],
    );
    for copy in ["by-http", "by-socks", "by-environment", "by-forward"] {
        is_copy(&bond.bench, copy, &head);
    }
    bond.stop();
}

/// Starts sshd with new keys on port 2222 of these addresses, for the current user.
pub(crate) fn sshd(bench: &Bench, side: Side, addresses: &[&str]) -> Child {
    for key in ["host-key", "user-key"] {
        let words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key];
        bench.run(Side::Client, &words);
    }
    let dir = bench.path("");
    let dir = dir.display();
    let listen: String = addresses
        .iter()
        .map(|address| format!("ListenAddress [{address}]:2222\n"))
        .collect();
    let config = format!(
        "Port 2222\n{listen}HostKey {dir}host-key\nAuthorizedKeysFile {dir}user-key.pub\n\
         PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nPermitRootLogin yes\n"
    );
    bench.write("sshd.conf", config);
    let key = fs::read_to_string(bench.path("host-key.pub")).unwrap();
    let known = addresses
        .iter()
        .map(|address| format!("[{address}]:2222 {key}"));
    bench.write("known-hosts", known.collect::<String>());
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(bench.path("user-key"), private).unwrap();
    // Debian creates this directory when it starts the service, which this test does not do.
    let start =
        "mkdir -p /run/sshd; exec \"$(command -v sshd || echo /usr/sbin/sshd)\" -D -e -f sshd.conf";
    let mut command = bench.command(&["sh", "-c", start]);
    command.stderr(fs::File::create(bench.path("sshd.log")).unwrap());
    let child = bench.lab.spawn(side, command).unwrap();
    bench.until_listening(side, 2222);
    child
}

/// ssh with the key for that server, without its host and what follows.
pub(crate) const SSH: [&str; 13] = [
    "ssh",
    "-F",
    "none",
    "-i",
    "user-key",
    "-p",
    "2222",
    "-o",
    "UserKnownHostsFile=known-hosts",
    "-o",
    "StrictHostKeyChecking=yes",
    "-o",
    "BatchMode=yes",
];

/// Whether sshd can work here; says so if it cannot.
pub(crate) fn can_log_in() -> bool {
    let can = !is_root() || has_users();
    if !can {
        eprintln!("skipped: sshd changes to other users, and this user namespace has none");
    }
    can
}

#[test]
fn ssh_logs_in_through_its_proxy_command() {
    if !can_log_in() {
        return;
    }
    let Some(mut bond) = Plan::new(&LINKS).start() else {
        return;
    };
    let daemon = sshd(&bond.bench, Side::Server, &["10.99.0.1", "fd99::1"]);
    bond.keep(daemon);
    let user = bond.bench.run(Side::Client, &["id", "-un"]);
    let contents = Pattern::bytes(1, 2_000_000);
    let ways = [
        (
            format!("ProxyCommand=nc -X 5 -x {SOCKS} %h %p"),
            "10.99.0.1",
        ),
        (format!("ProxyCommand=nc -X 5 -x {SOCKS} %h %p"), "fd99::1"),
        (
            format!("ProxyCommand=nc -X connect -x {HTTP} %h %p"),
            "10.99.0.1",
        ),
    ];
    for (proxy, host) in ways {
        // Typed characters are echoed.
        let mut command = bond.bench.command(&SSH);
        command
            .args(["-o", &proxy, "-l", user.trim(), host, "cat"])
            .stdin(Stdio::piped());
        let mut ssh = bond.bench.lab.spawn(Side::Client, command).unwrap();
        let mut input = ssh.stdin.take().unwrap();
        let typed = contents.clone();
        let typist = thread::spawn(move || input.write_all(&typed));
        let output = ssh.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let log = fs::read_to_string(bond.bench.path("sshd.log")).unwrap();
        assert!(output.status.success(), "{proxy}: {errors}\n{log}");
        typist.join().unwrap().unwrap();
        assert!(
            output.stdout == contents,
            "{proxy} {host}: {} bytes",
            output.stdout.len()
        );
    }
    bond.stop();
}

#[test]
fn iperf3_gets_more_than_one_link_has_both_ways() {
    let forwards = "forward = [\"127.0.0.1:5201=10.99.0.1:5201\"]\n";
    let Some(bond) = Plan::new(&LINKS)
        .client(forwards)
        .memory("8MiB", "4MiB")
        .start()
    else {
        return;
    };
    bond.until_active(&["a", "b"]);
    for direction in [&[][..], &["-R"], &["--bidir"]] {
        // One server per test: it refuses a client while it closes the previous one.
        let serve = ["iperf3", "-s", "-1", "-B", "10.99.0.1"];
        let server = bond.bench.spawn(Side::Server, &serve);
        bond.bench.until_listening(Side::Server, 5201);
        let words = [&["iperf3", "-c", "127.0.0.1", "-t", "4", "-J"], direction].concat();
        bond.bench.lab.reset_health().unwrap();
        let report: Value = serde_json::from_str(&bond.bench.run(Side::Client, &words)).unwrap();
        finish(&serve, server);
        let rate = |sum: &str| report["end"][sum]["bits_per_second"].as_f64();
        let rates = [rate("sum_received"), rate("sum_received_bidir_reverse")];
        let rates: Vec<f64> = rates.into_iter().flatten().collect();
        assert_eq!(rates.len(), 1 + usize::from(direction == ["--bidir"]));
        let health = bond.bench.lab.health().unwrap();
        let least = rates.iter().copied().fold(f64::MAX, f64::min);
        let most = rates.iter().copied().fold(0.0, f64::max);
        // Neither direction starves, however busy the machine is.
        let balanced = least > 0.0 && least >= most / 4.0;
        // One link has 20 Mbit/s including all headers, if the emulator keeps up.
        let fast = least > 20e6 || health.objection().is_some();
        assert!(
            balanced && fast,
            "iperf3 {direction:?}: {rates:?} bit/s; emulator: {health}"
        );
    }
    bond.stop();
}
