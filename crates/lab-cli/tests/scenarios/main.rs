//! `sumlink-lab run`, `bench`, `check` and `shell` with scenarios: measurements, stored results,
//! and leftovers.
//!
//! The runs last 2 or 3 s in their own laboratories; `SUMLINK_SKIP_NETNS=1` skips them.

#![allow(clippy::print_stderr, reason = "a test")]

mod bench;
mod files;
mod interruptions;
mod lan;
mod measurements;
mod mptcp;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A small scenario with two links.
const TWO_LINKS: &str = r#"
name = "two"
about = "two links"
duration = "3s"
warmup = "1s"
seeds = 1
systems = ["alone", "mptcp", "sumlink:fbdt"]

[[link]]
name = "wifi"
rate = "20mbit"
delay = "5ms"

[[link]]
name = "lte"
rate = "10mbit"
delay = "10ms"
"#;

/// Exit code of a run that was refused because the emulator or the machine was the bottleneck.
const REFUSED: i32 = 10;

/// A directory with a scenario in it.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new(scenario: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("s.toml"), scenario).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `sumlink-lab VERB s.toml ...`, in the directory.
    fn lab(&self, verb: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args([verb, "s.toml"]).args(arguments);
        command.current_dir(self.directory.path());
        command
    }

    /// The results of a run, by system. Runs refused because the machine was busy are repeated, as
    /// the laboratory advises, at most twice.
    fn run(&self, arguments: &[&str]) -> (Output, Vec<Value>) {
        let mut results: Vec<Value> = Vec::new();
        for attempts_left in (0..3).rev() {
            let output = self
                .lab("run", &["--out", "out", "--json"])
                .args(arguments)
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout.clone()).unwrap();
            for line in text.lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                let of = |line: &Value| ["scenario", "seed", "system"].map(|key| line[key].clone());
                match results.iter_mut().find(|before| of(before) == of(&line)) {
                    Some(before) => *before = line,
                    None => results.push(line),
                }
            }
            if output.status.code() != Some(REFUSED) || attempts_left == 0 {
                return (output, results);
            }
            eprintln!("{results:?}");
            results.retain(|line| line.get("error").is_none());
        }
        unreachable!("the last attempt returns");
    }

    /// The whole record of a run.
    fn record(&self, line: &Value) -> Value {
        let file = self.path(line["file"].as_str().unwrap());
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    }
}

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_sumlink-lab")
}

fn is_skipped() -> bool {
    let skipped = std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1");
    if skipped {
        eprintln!("skipped because SUMLINK_SKIP_NETNS=1");
    }
    skipped
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Every file below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}
