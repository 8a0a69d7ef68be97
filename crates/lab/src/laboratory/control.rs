//! The control socket, through which scripts change links at run time.
//!
//! A client sends lines and gets one line back for each: `ok`, `ok JSON`, or `error REASON`.
//!
//! ```text
//! set LINK KEY=VALUE...      change a link
//! status                     links with their counters, and the emulator's health, as JSON
//! ```

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::inner::Inner;
use super::status::LinkStatus;
use crate::config::LinkChange;
use crate::error::LabError;
use crate::health::Health;

/// Maximum length of a line.
const MAX_LINE: u64 = 4096;
/// Time limit for a client to send a line or to read an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The answer to `status`.
#[derive(Serialize)]
struct Status {
    links: Vec<LinkStatus>,
    /// Since the laboratory started, or since its owner's last measurement began.
    emulator: Health,
}

/// Serves the control socket on a separate thread until dropped.
#[derive(Debug)]
pub(crate) struct ControlServer {
    path: PathBuf,
    stopping: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ControlServer {
    pub(crate) fn start(path: PathBuf, lab: Arc<Inner>) -> Result<Self, LabError> {
        let listener = UnixListener::bind(&path).map_err(LabError::file(&path))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let serve = move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                // One client at a time; a client that disconnects early needs no handling.
                if let Err(error) = serve(stream, &lab, &stop) {
                    tracing::debug!("control socket: {error}");
                }
            }
        };
        let thread = thread::Builder::new()
            .name("control".to_owned())
            .spawn(serve)
            .map_err(|error| LabError::system("starting a thread", error))?;
        Ok(Self {
            path,
            stopping,
            thread: Some(thread),
        })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes the thread up; if this fails, the thread has no socket left to wait on.
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn serve(stream: UnixStream, lab: &Inner, stop: &AtomicBool) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(&stream);
    while !stop.load(Ordering::Acquire) {
        let mut line = String::new();
        if (&mut reader).take(MAX_LINE).read_line(&mut line)? == 0 {
            return Ok(());
        }
        if !line.ends_with('\n') {
            return (&stream).write_all(b"error incomplete or overlong line\n");
        }
        let answer = match execute(line.trim(), lab) {
            Ok(json) if json.is_empty() => "ok\n".to_owned(),
            Ok(json) => format!("ok {json}\n"),
            Err(error) => format!("error {}\n", error.to_string().replace('\n', "; ")),
        };
        (&stream).write_all(answer.as_bytes())?;
    }
    Ok(())
}

fn execute(line: &str, lab: &Inner) -> Result<String, LabError> {
    let mut words = line.split_whitespace();
    match words.next() {
        Some("set") => {
            let link = words.next().unwrap_or_default();
            let changes = words
                .map(|word| LinkChange::parse_for(link, word))
                .collect::<Result<Vec<_>, _>>()?;
            lab.set(link, &changes).map(|()| String::new())
        }
        Some("status") => {
            let status = Status {
                links: lab.status()?,
                emulator: lab.health()?,
            };
            serde_json::to_string(&status).map_err(|error| LabError::system("writing JSON", error))
        }
        _ => Err(LabError::Usage(
            "say 'set LINK KEY=VALUE...' or 'status'".to_owned(),
        )),
    }
}

/// Sends one line to a control socket and returns the text after `ok`.
pub(crate) fn ask(socket: &Path, line: &str) -> Result<String, LabError> {
    let talk = || -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE * 2))?;
        stream.write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer)
    };
    let answer = talk().map_err(LabError::file(socket))?;
    match answer.trim().split_once(' ').unwrap_or((answer.trim(), "")) {
        ("ok", json) => Ok(json.to_owned()),
        ("error", reason) => Err(LabError::Usage(reason.to_owned())),
        _ => Err(LabError::system(
            "asking the laboratory",
            "it exited before it answered",
        )),
    }
}
