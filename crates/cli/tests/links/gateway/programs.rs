//! Programs of a LAN host without any proxy setting: ssh, rsync, git, apt, and a WireGuard tunnel.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use ring::digest::{SHA256, digest};
use sumlink_lab::Side;
use sumlink_test_support::emulated::lan::Lan;
use sumlink_test_support::emulated::traffic::Pattern;
use sumlink_test_support::emulated::{finish, is_root};

use super::{CAPTURES, Helper, V4, V6, assert_no_leak, lan};
use crate::programs::{SSH, can_log_in, git_daemon, git_on, is_copy, repository, sshd};
use crate::wireguard::{self, public_key, transfer};

/// Bytes that pass through `ssh HOST cat`.
const TYPED: usize = 1_000_000;

/// Runs `job` once for each way of capture; nothing may pass beside the bond meanwhile.
fn with_each_capture(lan: &mut Lan, job: impl Fn(&Lan, &str)) {
    for capture in CAPTURES {
        let captures = lan.capture_links();
        lan.up(&format!("capture = \"{capture}\"\n"));
        job(lan, capture);
        assert_eq!(lan.end_gateway(), Some(0), "{capture}");
        assert_no_leak(captures, capture);
    }
}

#[test]
fn ssh_and_rsync_over_it_from_a_lan_host() {
    if !can_log_in() {
        return;
    }
    let Some(mut lan) = lan() else { return };
    let _sshd = Helper(sshd(&lan.bench, Side::Internet, &[V4, V6]));
    let tree = lan.bench.path("tree/folder");
    fs::create_dir_all(&tree).unwrap();
    for seed in 0..30 {
        fs::write(tree.join(format!("{seed}")), Pattern::bytes(seed, 40_000)).unwrap();
    }
    let user = lan.host(&["id", "-un"]);
    let user = user.trim();
    with_each_capture(&mut lan, |lan, capture| {
        // The tests of the TUN device alone have both families.
        let count = if capture == "tun" { 1 } else { 2 };
        for host in [V4, V6].into_iter().take(count) {
            let mut command = lan.bench.command(&SSH);
            command
                .args(["-l", user, host, "cat"])
                .stdin(Stdio::piped());
            let mut ssh = lan.bench.lab.spawn(Side::Lan, command).unwrap();
            let mut input = ssh.stdin.take().unwrap();
            let typing = thread::spawn(move || input.write_all(&Pattern::bytes(1, TYPED)));
            let output = ssh.wait_with_output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{capture}, {host}: {errors}");
            typing.join().unwrap().unwrap();
            assert!(output.stdout == Pattern::bytes(1, TYPED), "{capture}");
        }
        let shell = SSH.join(" ");
        let copy = lan.bench.path(&format!("copy-{capture}"));
        let target = format!("{user}@{V4}:{}", copy.display());
        lan.host(&["rsync", "--archive", "-e", &shell, "tree/", &target]);
        let copied = fs::read(copy.join("folder/7")).unwrap();
        assert!(copied == Pattern::bytes(7, 40_000), "{capture}");
    });
}

#[test]
fn rsync_and_git_by_their_own_protocols_and_over_http_from_a_lan_host() {
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    let head = repository(&lan.bench);
    let _git = Helper(git_daemon(&lan.bench, Side::Internet, V4));
    let www = lan.bench.path("www");
    let config = format!(
        "address = {V4}\nuse chroot = no\nuid = root\ngid = root\n[files]\npath = {}\n",
        www.display()
    );
    lan.bench.write("rsyncd.conf", config);
    let daemon = ["rsync", "--daemon", "--no-detach", "--config=rsyncd.conf"];
    let _rsync = Helper(lan.bench.spawn(Side::Internet, &daemon));
    lan.bench.until_listening(Side::Internet, 873);
    with_each_capture(&mut lan, |lan, capture| {
        // The first by a name that the gateway's DNS answers.
        let ways = [
            ("http", "http://git.example.test/repo.git".to_owned()),
            ("http6", format!("http://[{V6}]/repo.git")),
            ("git", format!("git://{V4}/repo.git")),
        ];
        let count = if capture == "tun" { 1 } else { ways.len() };
        for (way, url) in ways.into_iter().take(count) {
            let copy = format!("{way}-{capture}");
            git_on(&lan.bench, Side::Lan, &["clone", "-q", &url, &copy]);
            is_copy(&lan.bench, &copy, &head);
        }
        let copy = format!("rsync-{capture}");
        let source = format!("rsync://{V4}/files/repo.git/");
        lan.host(&["rsync", "--archive", &source, &copy]);
        lan.host(&["diff", "--recursive", "www/repo.git", &copy]);
    });
}

/// A repository with one package, and the files of a private apt.
fn apt_repository(lan: &Lan) {
    let root = lan.bench.path("package/DEBIAN");
    fs::create_dir_all(&root).unwrap();
    let control = "Package: sumlink-test\nVersion: 1\nArchitecture: all\n\
                   Maintainer: Test <test@example.org>\nDescription: a test\n";
    fs::write(root.join("control"), control).unwrap();
    fs::write(
        lan.bench.path("package/contents"),
        Pattern::bytes(5, 2_000_000),
    )
    .unwrap();
    let build = ["dpkg-deb", "--root-owner-group", "--build", "package"];
    let file = "www/sumlink-test_1_all.deb";
    lan.bench.run(Side::Client, &[&build[..], &[file]].concat());
    let package = fs::read(lan.bench.path(file)).unwrap();
    let hash = digest(&SHA256, &package);
    let hash: String = hash
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let index = format!(
        "{control}Filename: ./sumlink-test_1_all.deb\nSize: {}\nSHA256: {hash}\n",
        package.len()
    );
    fs::write(lan.bench.path("www/Packages"), index).unwrap();
    for directory in ["etc/preferences.d", "etc/apt.conf.d", "state/lists/partial"] {
        fs::create_dir_all(lan.bench.path("apt").join(directory)).unwrap();
    }
    fs::create_dir_all(lan.bench.path("apt/cache/archives/partial")).unwrap();
    lan.bench.write("apt/status", "");
    let source = "deb [trusted=yes] http://deb.example.test/ ./\n";
    lan.bench.write("apt/etc/sources.list", source);
    let dir = lan.bench.path("apt");
    let dir = dir.display();
    let config = format!(
        "Dir \"{dir}\";\nDir::Etc \"etc\";\nDir::Etc::Parts \"{dir}/etc/apt.conf.d\";\n\
         Dir::Etc::SourceParts \"/dev/null\";\nDir::State \"state\";\n\
         Dir::State::status \"{dir}/status\";\nDir::Cache \"cache\";\n\
         APT::Sandbox::User \"root\";\nAPT::Architecture \"amd64\";\n\
         Acquire::Languages \"none\";\nAcquire::Retries \"0\";\n"
    );
    lan.bench.write("apt.conf", config);
}

#[test]
fn apt_updates_and_downloads_on_a_lan_host() {
    if Command::new("apt-get").arg("--version").output().is_err() {
        eprintln!("skipped: this system has no apt-get");
        return;
    }
    let Some(mut lan) = lan() else { return };
    let _files = Helper(lan.serve_files());
    apt_repository(&lan);
    with_each_capture(&mut lan, |lan, capture| {
        let apt = |words: &[&str]| {
            let own = ["env", "APT_CONFIG=apt.conf", "apt-get", "--quiet"];
            lan.host(&[&own, words].concat())
        };
        let updated = apt(&["--error-on=any", "update"]);
        assert!(updated.contains("Packages"), "{capture}: {updated}");
        apt(&["download", "sumlink-test"]);
        let file = lan.bench.path("sumlink-test_1_all.deb");
        let original = fs::read(lan.bench.path("www/sumlink-test_1_all.deb")).unwrap();
        assert!(fs::read(&file).unwrap() == original, "{capture}");
        fs::remove_file(file).unwrap();
        apt(&["clean"]);
        let lists = lan.bench.path("apt/state/lists");
        fs::remove_dir_all(&lists).unwrap();
        fs::create_dir_all(lists.join("partial")).unwrap();
    });
}

#[test]
fn a_wireguard_tunnel_of_a_lan_host_ends_at_an_internet_host() {
    const SERVER: &str = "10.98.0.1";
    const CLIENT: &str = "10.98.0.2";
    if !is_root() {
        eprintln!("skipped: wireguard-go needs root");
        return;
    }
    let Some(mut lan) = lan() else { return };
    let [server_key, client_key] =
        [Side::Internet, Side::Lan].map(|side| public_key(&lan.bench, side));
    let (allowed, port) = (format!("{CLIENT}/32"), ["listen-port", "51820"]);
    let peer = ["peer", &client_key, "allowed-ips", &allowed];
    let peer = [&port[..], &peer].concat();
    let _server = Helper(wireguard::start(&lan.bench, Side::Internet, SERVER, &peer));
    let (endpoint, allowed) = (format!("{V4}:51820"), format!("{SERVER}/32"));
    let peer = ["peer", &server_key, "endpoint", &endpoint];
    let peer = [&peer[..], &["allowed-ips", &allowed]].concat();
    let _client = Helper(wireguard::start(&lan.bench, Side::Lan, CLIENT, &peer));
    with_each_capture(&mut lan, |lan, _| {
        // The first packet starts a handshake, which is repeated after 5 s if it is lost.
        let ping = ["ping", "-c", "5", "-i", "0.2", "-w", "20", SERVER];
        finish(&ping, lan.bench.spawn(Side::Lan, &ping));
        let address = format!("{SERVER}:8000").parse().unwrap();
        transfer(&lan.bench, Side::Internet, address, Side::Lan);
    });
}
