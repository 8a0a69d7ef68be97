//! Remains of a run that is interrupted, killed, or cannot write.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Place, TWO_LINKS, files_below, is_skipped, program, text};

/// The namespaces of a process's laboratories.
fn namespaces_of(pid: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/run/sumlink-lab")
        .into_iter()
        .flatten()
        .flatten()
    {
        let owner = fs::read(entry.path().join("owner.json")).unwrap_or_default();
        let owner: serde_json::Value = serde_json::from_slice(&owner).unwrap_or_default();
        if owner["pid"] == pid {
            let names = owner["namespaces"].as_array().unwrap();
            let names = names.iter().map(|name| name.as_str().unwrap());
            // Some laboratories have more namespaces.
            let sides = names.filter(|name| name.ends_with("-client") || name.ends_with("-server"));
            found.extend(sides.map(|name| Path::new("/run/netns").join(name)));
        }
    }
    found
}

/// A long run.
fn start(place: &Place) -> Child {
    start_with(place, &[])
}

fn start_with(place: &Place, arguments: &[&str]) -> Child {
    let mut command = place.lab("run", &["--out", "out"]);
    command.args(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits for the namespaces of a run's laboratory.
fn wait_for_laboratory(child: &Child) -> Vec<PathBuf> {
    wait_for_laboratories(child, 1)
}

/// Waits for the namespaces of this number of laboratories.
fn wait_for_laboratories(child: &Child, count: usize) -> Vec<PathBuf> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let namespaces = namespaces_of(child.id());
        if namespaces.len() >= 2 * count && namespaces.iter().all(|path| path.exists()) {
            return namespaces;
        }
        assert!(Instant::now() < deadline, "only {namespaces:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a short and a long run, and waits until the short one has left its record. On a busy
/// machine it is refused, and would be repeated after the long one: then both start again.
fn start_until(place: &Place, arguments: &[&str], record: &Path) -> (Child, Vec<PathBuf>) {
    let mut messages = Vec::new();
    for _ in 0..6 {
        let child = start_with(place, arguments);
        let count = if record.exists() { 1 } else { 2 };
        let namespaces = wait_for_laboratories(&child, count);
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if record.exists() {
                return (child, namespaces);
            }
            thread::sleep(Duration::from_millis(20));
        }
        signal(&child, "-INT");
        messages.push(text(&child.wait_with_output().unwrap().stderr));
    }
    panic!("the short run leaves no record: {messages:#?}");
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

fn place() -> Place {
    Place::new(&TWO_LINKS.replace("duration = \"3s\"", "duration = \"60s\""))
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    if is_skipped() || !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = place();
    let child = start(&place);
    let namespaces = wait_for_laboratory(&child);
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let message = text(&output.stderr);
    assert!(message.contains("interrupted"), "{message}");
    assert!(namespaces.iter().all(|path| !path.exists()));
    // Only the copy of the scenario, and no partial record.
    let files = files_below(&place.path("out"));
    assert_eq!(files, [place.path("out/two/scenario.toml")]);
}

#[test]
fn leftovers_of_a_killed_run_are_removed_by_the_next() {
    if is_skipped() || !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = place();
    let mut child = start(&place);
    let namespaces = wait_for_laboratory(&child);
    signal(&child, "-KILL");
    child.wait().unwrap();
    let other = Place::new(TWO_LINKS);
    let (output, _) = other.run(&["--systems", "mptcp"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        namespaces.iter().all(|path| !path.exists()),
        "{namespaces:?}"
    );
}

#[test]
fn concurrent_runs_leave_nothing_behind_and_continue() {
    if is_skipped() || !nix::unistd::geteuid().is_root() {
        return;
    }
    // Slow enough for any machine; the second run is so long that only a signal ends it within this
    // test.
    let short = TWO_LINKS.replace("0mbit", "mbit");
    let place = Place::new(&short);
    let long = short.replace("\"two\"", "\"long\"");
    let long = long.replace("duration = \"3s\"", "duration = \"90s\"");
    fs::write(place.path("long.toml"), &long).unwrap();
    let arguments = ["long.toml", "--systems", "mptcp", "--jobs", "2"];
    let first = place.path("out/two/seed-1/mptcp.json");
    let mut left = Vec::new();
    for name in ["-INT", "-KILL"] {
        let (child, namespaces) = start_until(&place, &arguments, &first);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let message = text(&output.stderr);
        if name == "-INT" {
            assert_eq!(output.status.code(), Some(130), "{message}");
            assert!(message.contains("1 of 2 runs are kept in out"), "{message}");
            assert!(namespaces.iter().all(|path| !path.exists()));
        } else {
            assert!(
                message.contains("1 of 2 runs are already in out"),
                "{message}"
            );
            left = namespaces;
        }
        assert!(files_below(&place.path("out/long/seed-1")).is_empty());
    }

    // Each run was beside the other; the processor shares in the record include both.
    let record = fs::read(&first).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let machine = &record["outcome"]["machine"];
    assert_eq!(machine["runs_at_once"], 2, "{machine}");
    let share = machine["runs_share"].as_f64().unwrap();
    assert!(share > 0.0 && share <= 1.0, "{machine}");

    // The unfinished run is repeated with a shorter time.
    fs::write(place.path("long.toml"), long.replace("90s", "3s")).unwrap();
    let (output, lines) = place.run(&arguments);
    assert!(output.status.success(), "{lines:?}");
    let done: Vec<_> = lines.iter().map(|line| &line["scenario"]).collect();
    assert_eq!(done, ["long"]);
    assert_eq!(lines[0]["outcome"], "measured", "{}", lines[0]);
    assert!(left.iter().all(|path| !path.exists()), "{left:?}");
}

/// Runs in a new mount namespace with room for one page of results, filled up to `taken`.
fn run_with_room(place: &Place, taken: &str) -> std::process::Output {
    let script = "mkdir out && mount -t tmpfs -o size=4k none out && \
                  { [ $1 = 0 ] || head -c $1 /dev/zero > out/ballast; }; \
                  \"$0\" run s.toml --out out/results --systems mptcp; code=$?; find out; exit $code";
    Command::new("unshare")
        .args(["--mount", "sh", "-c", script, program(), taken])
        .current_dir(place.directory.path())
        .output()
        .unwrap()
}

#[test]
fn a_full_disk_is_one_clear_line() {
    if is_skipped() || !nix::unistd::geteuid().is_root() {
        return;
    }
    // Full from the start, and full when the first record is written.
    for (size, left) in [("4096", "out/ballast\n"), ("0", "scenario.toml\n")] {
        let place = Place::new(TWO_LINKS);
        let output = run_with_room(&place, size);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{size}: {message}");
        let last = message.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("sumlink-lab: cannot write out/results"),
            "{message}"
        );
        assert!(last.contains("No space left on device"), "{message}");
        let found = text(&output.stdout);
        assert!(
            found.ends_with(left) || found.contains(left),
            "{size}: {found}"
        );
        assert!(
            !found.contains(".tmp") && !found.contains("mptcp"),
            "{size}: {found}"
        );
    }
}

#[test]
fn an_unwritable_folder_is_reported_before_the_first_run() {
    let place = Place::new(TWO_LINKS);
    fs::write(place.path("out"), "a file").unwrap();
    let (output, lines) = place.run(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["error"]["kind"], "other");
}
