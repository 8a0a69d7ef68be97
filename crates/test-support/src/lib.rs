//! Helpers for tests: a program run as a user runs it, network namespaces ([`netns`]), and, with
//! the feature `emulated`, programs over emulated links.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "for tests")]

pub mod browser;
#[cfg(feature = "emulated")]
pub mod emulated;
pub mod netns;
pub mod postgres;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

/// A temporary directory and the program that runs in it.
#[derive(Debug)]
pub struct Bench {
    dir: tempfile::TempDir,
    program: PathBuf,
}

/// Result of a run.
#[derive(Debug)]
pub struct Ran {
    /// Exit code; -1 if a signal ended the program.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Bench {
    /// Makes a directory for this program.
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

    /// Writes a file in the directory; returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The program with these arguments in this directory, without input and without the
    /// environment of the test.
    pub fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .current_dir(self.dir())
            .env_remove("SUMLINK_LOG")
            .env_remove("SUMLINK_LOG_FORMAT")
            .env_remove("COLUMNS")
            .stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().unwrap())
    }

    /// Makes a key file; returns its public key.
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

/// Time for which a test waits for an event.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running client or server with `--json`; it is killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    events: mpsc::Receiver<Value>,
    log: Arc<Mutex<String>>,
    log_reader: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts a process and collects its standard error.
    pub fn start(command: Command) -> Self {
        Self::start_logging_to(command, Stdio::piped())
    }

    /// Starts a process whose standard error is `log`.
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
        let log = Arc::default();
        let log_reader = child.stderr.take().map(|stderr| {
            let log = Arc::clone(&log);
            std::thread::spawn(move || collect(stderr, &log))
        });
        Self {
            child,
            events,
            log,
            log_reader,
        }
    }

    /// The next event with this name; skips others.
    #[track_caller]
    pub fn event(&mut self, name: &str) -> Value {
        loop {
            match self.events.recv_timeout(PATIENCE) {
                Ok(event) if event["event"] == name => return event,
                Ok(_) => {}
                Err(error) => panic!("no event `{name}` ({error}): {}", self.log_at_end()),
            }
        }
    }

    /// Sends a signal, by its name in kill(1).
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

    /// Waits for the end; returns the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// The log so far. Log lines and events have a writer each: a line may follow its event.
    pub fn log(&self) -> String {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until the log contains `words`; returns the log so far.
    #[cfg(feature = "emulated")]
    #[track_caller]
    pub fn log_with(&self, words: &str) -> String {
        emulated::until(words, || {
            let log = self.log();
            log.contains(words).then_some(log)
        })
    }

    /// Ends the process, if it still runs, and returns its whole log.
    pub fn log_at_end(&mut self) -> String {
        let _ = self.child.kill();
        if let Some(reader) = self.log_reader.take() {
            reader.join().unwrap();
        }
        self.log()
    }
}

/// Appends the lines of `stderr` to `log` until the end.
fn collect(stderr: impl Read, log: &Mutex<String>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while stderr.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push_str(&String::from_utf8_lossy(&line));
        line.clear();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
