//! `sumlink cc`: listing, loading and unloading; and daemons that load congestion controls.
//!
//! Loading needs root and Linux 6.4 or later; these tests fail without, unless `SUMLINK_SKIP_BPF=1`
//! is set. Names of congestion controls are global to the system, so these tests take turns.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use sumlink_congestion::{ALGORITHMS, entry};
use sumlink_kernel::{TWINS, loaded, probe};

use crate::common::{Bench, Daemon, Ran};

static TURN: Mutex<()> = Mutex::new(());

/// Runs one test at a time; `None` if these tests are disabled.
fn turn() -> Option<MutexGuard<'static, ()>> {
    if std::env::var_os("SUMLINK_SKIP_BPF").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_BPF=1");
        return None;
    }
    let missing = probe();
    assert!(
        missing.is_empty(),
        "{missing:?}; set SUMLINK_SKIP_BPF=1 to skip these tests"
    );
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A BPF file system that is unmounted after the test.
struct BpfFs(PathBuf);

impl BpfFs {
    fn mount(bench: &Bench) -> Self {
        let folder = bench.path("bpf");
        std::fs::create_dir(&folder).unwrap();
        let status = Command::new("mount")
            .args(["-t", "bpf", "none"])
            .arg(&folder)
            .status();
        assert!(status.unwrap().success());
        Self(folder)
    }

    /// The folder of the pins.
    fn pins(&self) -> String {
        self.0.join("sumlink").display().to_string()
    }
}

impl Drop for BpfFs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

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

/// State of a congestion control in the list.
fn state(bench: &Bench, system_name: &str) -> String {
    let list = json(&bench.run(&["cc", "list", "--json"]));
    let all = list["congestion_controls"].as_array().unwrap();
    let one = all.iter().find(|one| one["system_name"] == system_name);
    one.unwrap()["state"].as_str().unwrap().to_owned()
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn nothing_is_loaded() -> bool {
    loaded().unwrap().is_empty()
}

#[test]
fn every_algorithm_is_listed_with_its_purpose() {
    let bench = crate::common::new();
    let list = json(&bench.run(&["cc", "list", "--json"]));
    let all = list["congestion_controls"].as_array().unwrap();
    let text = bench.run(&["cc", "list"]).out;
    for entry in ALGORITHMS {
        let name = entry.info.name;
        assert!(
            all.iter().any(|one| one["about"] == entry.info.about),
            "{name}"
        );
        assert!(text.contains(name), "{name}: {text}");
    }
    let reno = all.iter().find(|one| one["name"] == "reno").unwrap();
    assert_eq!(reno["state"], "built-in");
    for twin in TWINS {
        let one = all
            .iter()
            .find(|one| one["system_name"] == twin.system_name);
        assert!(one.is_some(), "{}", twin.system_name);
    }
}

#[test]
fn info_has_source_and_parameters_of_each() {
    let bench = crate::common::new();
    for twin in TWINS {
        let info = json(&bench.run(&["cc", "info", twin.system_name, "--json"]));
        let reference = entry(twin.algorithm).unwrap();
        assert_eq!(info["source"], reference.info.source);
        let parameters = info["parameters"].as_array().unwrap();
        assert_eq!(parameters.len(), reference.parameters().len());
        let settable = parameters.iter().filter(|one| one["kernel"] == true);
        assert_eq!(settable.count(), twin.parameters().len());
        let text = bench.run(&["cc", "info", twin.algorithm]).out;
        for parameter in reference.parameters() {
            assert!(text.contains(parameter.key), "{}: {text}", parameter.key);
        }
    }
    bench
        .run(&["cc", "info", "liaa"])
        .fails(2, "did you mean `lia`?");
}

#[test]
fn invalid_arguments_are_wrong_usage() {
    let bench = crate::common::new();
    let fails = |args: &[&str], part: &str| bench.run(args).fails(2, part);
    fails(
        &["cc", "load", "nosuch"],
        "no congestion control \"nosuch\" for the kernel",
    );
    fails(&["cc", "load", "lia", "--set", "beta"], "--set beta: ");
    fails(
        &["cc", "load", "lia", "--set", "min_ssthresh=0"],
        "min_ssthresh is 0",
    );
    fails(
        &["cc", "load", "lia", "all"],
        "`all` cannot be combined with other names",
    );
}

#[test]
fn a_missing_privilege_is_named_on_one_line() {
    let bench = crate::common::new();
    let mut ran = unprivileged(&bench, &["cc", "load", "lia"]);
    Ran::from(ran.output().unwrap()).fails(11, "CAP_BPF");
    let ran = unprivileged(&bench, &["cc", "list"]).output().unwrap();
    let ran = Ran::from(ran);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(
        ran.out
            .contains("Congestion controls cannot be loaded here: "),
        "{}",
        ran.out
    );
}

#[test]
fn loaded_programs_stay_until_they_are_unloaded() {
    let Some(_turn) = turn() else { return };
    let bench = crate::common::new();
    bench
        .run(&[
            "cc",
            "load",
            "lia",
            "--pins",
            &bench.path("none").display().to_string(),
        ])
        .fails(11, "BPF file system");
    let bpf = BpfFs::mount(&bench);
    let pins = bpf.pins();
    let cc = |args: &[&str]| bench.run(&[&["cc"], args, &["--pins", &pins]].concat());
    let ran = cc(&["load", "lia", "olia", "--set", "min_ssthresh=3"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "sl_lia loaded\nsl_olia loaded\n"),
        "{}",
        ran.err
    );
    assert_eq!(state(&bench, "sl_lia"), "loaded");
    assert_eq!(state(&bench, "sl_balia"), "available");
    cc(&["load", "lia"]).fails(11, "sl_lia is already loaded");
    let ran = json(&cc(&["load", "all", "--json"]));
    assert_eq!(ran["loaded"].as_array().unwrap().len(), TWINS.len() - 2);
    assert_eq!(cc(&["load", "all"]).out, "all of them are loaded already\n");
    assert_eq!(cc(&["unload", "sl_olia"]).out, "sl_olia unloaded\n");
    cc(&["unload", "olia"]).fails(11, "sl_olia is not loaded");
    let ran = json(&cc(&["unload", "all", "--json"]));
    assert_eq!(ran["unloaded"].as_array().unwrap().len(), TWINS.len() - 1);
    assert_eq!(cc(&["unload", "all"]).out, "nothing is loaded\n");
    assert!(nothing_is_loaded());
    assert!(!Path::new(&pins).exists());
}

/// Loading mounts the BPF file system on a machine without it.
#[test]
fn loading_mounts_a_missing_bpf_file_system() {
    let Some(_turn) = turn() else { return };
    let bench = crate::common::new();
    let script = "mount --make-rprivate / && { umount /sys/fs/bpf 2>/dev/null; $S cc load lia && \
        test -e /sys/fs/bpf/sumlink/sl_lia && $S cc unload all; }";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script])
        .env("S", env!("CARGO_BIN_EXE_sumlink"))
        .current_dir(bench.dir());
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.out, "sl_lia loaded\nsl_lia unloaded\n");
    assert!(
        ran.err
            .contains("mounted the BPF file system at /sys/fs/bpf"),
        "{}",
        ran.err
    );
    assert!(nothing_is_loaded());
}

/// Arguments of a server with the key `a.key` and more flags, with `--json`.
fn server<'a>(key: &'a str, more: [&'a str; 2]) -> Vec<&'a str> {
    let line = "server --json --listen 127.0.0.1:0 --key a.key --authorize";
    line.split(' ').chain([key]).chain(more).collect()
}

#[test]
fn a_daemon_loads_a_congestion_control_and_unloads_it_at_its_end() {
    let Some(_turn) = turn() else { return };
    let bench = crate::common::new();
    let key = bench.key("a.key");
    for how in ["--congestion", "--coupled"] {
        let mut server = Daemon::start(bench.command(server(&key, [how, "balia"])));
        server.event("listening");
        assert_eq!(state(&bench, "sl_balia"), "loaded");
        // For every kind of end.
        match how {
            "--coupled" => server.signal("KILL"),
            _ => server.signal("TERM"),
        }
        server.wait();
        until("it is unloaded", nothing_is_loaded);
    }
}

#[test]
fn a_daemon_without_the_privilege_warns_and_continues() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let bench = crate::common::new();
    let key = bench.key("a.key");
    for how in ["--congestion", "--coupled"] {
        let mut server = Daemon::start(unprivileged(&bench, &server(&key, [how, "lia"])));
        server.event("listening");
        server.log_with("CAP_BPF");
        let log = server.log_at_end();
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("CAP_BPF"))
            .collect();
        assert_eq!(lines.len(), 1, "{log}");
        assert!(lines[0].contains("congestion control lia"), "{log}");
    }
}
