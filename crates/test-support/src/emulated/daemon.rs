//! A client or a server as a process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;

use serde_json::Value;

use super::PATIENCE;

/// A running client or server that prints events; it is killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    events: mpsc::Receiver<Value>,
    log: PathBuf,
}

impl Daemon {
    /// Takes a process with events on its standard output, and its log file.
    pub fn new(mut child: Child, log: PathBuf) -> Self {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, events) = mpsc::channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { child, events, log }
    }

    /// The next event with this name; skips others.
    #[track_caller]
    pub fn event(&self, name: &str) -> Value {
        let mut before = Vec::new();
        loop {
            match self.events.recv_timeout(PATIENCE) {
                Ok(event) if event["event"] == name => return event,
                Ok(event) => before.push(event),
                Err(error) => panic!("no event `{name}` ({error}): {before:?}\n{}", self.log()),
            }
        }
    }

    /// Waits for the message with which the program fails.
    #[track_caller]
    pub fn error(&self) -> String {
        loop {
            match self.events.recv_timeout(PATIENCE) {
                Ok(event) => {
                    if let Some(message) = event["error"]["message"].as_str() {
                        return message.to_owned();
                    }
                }
                Err(error) => panic!("no error ({error}): {}", self.log()),
            }
        }
    }

    /// Sends a signal, by its name in kill(1).
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for the end; returns the exit code. Prints the log if the program has failed, for the
    /// report of a test that did not expect it.
    pub fn wait(&mut self) -> Option<i32> {
        let code = self.child.wait().unwrap().code();
        if code.is_some_and(|code| code != 0) {
            eprintln!("exit code {code:?}\n{}", self.log());
        }
        code
    }

    /// The log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Number of lines of the log that contain `words`.
    pub fn lines_with(&self, words: &str) -> usize {
        self.log()
            .lines()
            .filter(|line| line.contains(words))
            .count()
    }

    /// Resident memory, in bytes.
    pub fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(Path::new(&path)).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib * 1024
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
