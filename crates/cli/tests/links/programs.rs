//! Programs that are unaware of sumlink: git, ssh, iperf3.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::thread;

use serde_json::Value;
use sumlink_lab::Side;

use crate::bond::{Bond, HTTP, Plan, SOCKS};
use sumlink_test_support::emulated::traffic::Pattern;
use sumlink_test_support::emulated::{finish, has_users, is_root};

const LINKS: [&str; 2] = ["a:rate=20mbit,delay=5ms", "b:rate=20mbit,delay=10ms"];

fn git(bond: &Bond, words: &[&str]) -> String {
    let name = [
        "git",
        "-c",
        "user.name=Test",
        "-c",
        "user.email=test@example.org",
    ];
    bond.bench.run(Side::Client, &[&name, words].concat())
}

#[test]
fn git_clones_over_http_and_its_own_protocol() {
    let forwards = "forward = [\"127.0.0.1:9418=10.99.0.1:9418\"]\n";
    let Some(mut bond) = Plan::new(&LINKS).client(forwards).start() else {
        return;
    };
    bond.serve_files();
    git(&bond, &["init", "-q", "original"]);
    let original = bond.bench.path("original");
    for seed in 0..20 {
        fs::write(
            original.join(format!("file-{seed}")),
            Pattern::bytes(seed, 100_000),
        )
        .unwrap();
    }
    git(&bond, &["-C", "original", "add", "."]);
    git(&bond, &["-C", "original", "commit", "-q", "-m", "Files"]);
    git(
        &bond,
        &["clone", "-q", "--bare", "original", "www/repo.git"],
    );
    git(&bond, &["-C", "www/repo.git", "update-server-info"]);
    let head = git(&bond, &["-C", "original", "rev-parse", "HEAD"]);
    let www = bond.bench.path("www").display().to_string();
    let base = format!("--base-path={www}");
    // The program itself, because `git daemon` starts a process that outlives its parent.
    let exec_path = git(&bond, &["--exec-path"]);
    let daemon = format!("{}/git-daemon", exec_path.trim());
    let daemon = [
        &daemon,
        "--export-all",
        &base,
        "--listen=10.99.0.1",
        "--port=9418",
        &www,
    ];
    let daemon = bond.bench.spawn(Side::Server, &daemon);
    bond.keep(daemon);
    bond.bench.until_listening(Side::Server, 9418);

    let proxies = [
        format!("http.proxy=http://{HTTP}"),
        format!("http.proxy=socks5h://{SOCKS}"),
    ];
    for (copy, proxy) in ["by-http", "by-socks"].iter().zip(&proxies) {
        git(
            &bond,
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
        &bond,
        &["clone", "-q", "git://127.0.0.1/repo.git", "by-forward"],
    );
    for copy in ["by-http", "by-socks", "by-environment", "by-forward"] {
        assert_eq!(
            git(&bond, &["-C", copy, "rev-parse", "HEAD"]),
            head,
            "{copy}"
        );
        git(&bond, &["-C", copy, "fsck", "--strict"]);
        let file = fs::read(bond.bench.path(copy).join("file-7")).unwrap();
        assert!(file == Pattern::bytes(7, 100_000), "{copy}");
    }
    bond.stop();
}

/// Starts sshd with new keys on port 2222 of the server for the current user.
fn start_sshd(bond: &mut Bond) {
    for key in ["host-key", "user-key"] {
        let words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key];
        bond.bench.run(Side::Client, &words);
    }
    let dir = bond.bench.path("");
    let dir = dir.display();
    let config = format!(
        "Port 2222\nListenAddress 10.99.0.1\nListenAddress [fd99::1]:2222\nHostKey {dir}host-key\n\
         AuthorizedKeysFile {dir}user-key.pub\nPidFile none\nStrictModes no\nUsePAM no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
    );
    bond.bench.write("sshd.conf", config);
    let known = fs::read_to_string(bond.bench.path("host-key.pub")).unwrap();
    bond.bench.write(
        "known-hosts",
        format!("[10.99.0.1]:2222 {known}[fd99::1]:2222 {known}"),
    );
    fs::set_permissions(
        bond.bench.path("user-key"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    // Debian creates this directory when it starts the service, which this test does not do.
    let start =
        "mkdir -p /run/sshd; exec \"$(command -v sshd || echo /usr/sbin/sshd)\" -D -e -f sshd.conf";
    let mut command = bond.bench.command(&["sh", "-c", start]);
    command.stderr(fs::File::create(bond.bench.path("sshd.log")).unwrap());
    let child = bond.bench.lab.spawn(Side::Server, command).unwrap();
    bond.keep(child);
    bond.bench.until_listening(Side::Server, 2222);
}

#[test]
fn ssh_logs_in_through_its_proxy_command() {
    if is_root() && !has_users() {
        eprintln!("skipped: sshd changes to other users, and this user namespace has none");
        return;
    }
    let Some(mut bond) = Plan::new(&LINKS).start() else {
        return;
    };
    start_sshd(&mut bond);
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
        let mut command = bond
            .bench
            .command(&["ssh", "-F", "none", "-i", "user-key", "-p", "2222"]);
        command
            .args([
                "-o",
                "UserKnownHostsFile=known-hosts",
                "-o",
                "StrictHostKeyChecking=yes",
            ])
            .args([
                "-o",
                "BatchMode=yes",
                "-o",
                &proxy,
                "-l",
                user.trim(),
                host,
                "cat",
            ])
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
