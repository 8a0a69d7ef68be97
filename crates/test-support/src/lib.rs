//! Helpers that the end-to-end tests of several programs share: a program run the way a user runs it, and
//! ([`emulated`]) the same over emulated links.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "for tests")]

pub mod emulated;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

/// A directory of its own, and the program run in it.
#[derive(Debug)]
pub struct Bench {
    dir: tempfile::TempDir,
    program: PathBuf,
}

/// What a run left behind.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; -1 when a signal ended the program.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Bench {
    /// A new directory for this program.
    pub fn of(program: impl Into<PathBuf>) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            program: program.into(),
        }
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file into the directory; its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The program with these arguments, in this directory, without input and environment of ours.
    pub fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .current_dir(self.dir())
            .env_remove("SUMLINK_LOG")
            .env_remove("COLUMNS")
            .stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().unwrap())
    }

    /// Makes a key file; its public key.
    pub fn key(&self, name: &str) -> String {
        let ran = self.run(&["keygen", "--out", name]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out.split_whitespace().next_back().unwrap().to_owned()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// Asserts the exit code, one line on standard error that contains `part`, and no output.
    #[track_caller]
    pub fn fails(&self, code: i32, part: &str) {
        assert_eq!(self.code, code, "stderr: {}", self.err);
        assert_eq!(self.err.lines().count(), 1, "one line, not: {}", self.err);
        assert!(self.err.contains(part), "`{part}` is not in: {}", self.err);
        assert_eq!(self.out, "");
    }
}

/// How long a test waits for an event before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running client or server that told its events with `--json`; it is killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    events: mpsc::Receiver<Value>,
}

impl Daemon {
    /// One whose standard error is kept.
    pub fn start(command: Command) -> Self {
        Self::start_logging_to(command, Stdio::piped())
    }

    /// One whose standard error is `log`.
    pub fn start_logging_to(mut command: Command, log: impl Into<Stdio>) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, events) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines {
                let event = serde_json::from_str(&line.unwrap()).unwrap();
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self { child, events }
    }

    /// The next event with this name; what comes before it is skipped.
    #[track_caller]
    pub fn event(&mut self, name: &str) -> Value {
        loop {
            match self.events.recv_timeout(PATIENCE) {
                Ok(event) if event["event"] == name => return event,
                Ok(_) => {}
                Err(error) => panic!("no event `{name}` ({error}): {}", self.log()),
            }
        }
    }

    /// Sends a signal, by the name that kill(1) knows.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for its end; the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// What it logged; call it when it has ended or is about to.
    pub fn log(&mut self) -> String {
        let _ = self.child.kill();
        let mut log = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut log).unwrap();
        }
        log
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
