//! One fetch with curl.

use std::fs::{self, File};
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ring::digest::{Context, SHA256};

use crate::error::LabError;
use crate::health::Health;
use crate::process::{self, Process, TICK};
use crate::programs;
use crate::prose::{say, say_raw};
use crate::signals;
use crate::topology::{SERVER_V4, Side};

use super::Stage;
use super::outcome::{Fetched, Outcome};

/// curl's exit code when `--max-time` expires.
const CURL_TIMED_OUT: i32 = 28;
/// Interval between progress updates.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// Parameters of a fetch.
pub(crate) struct Plan<'a> {
    /// The server's port.
    pub(crate) port: u16,
    /// Further arguments for curl.
    pub(crate) arguments: Vec<String>,
    /// Use MPTCP sockets.
    pub(crate) mptcp: bool,
    /// Stop after this time and count the bytes received so far.
    pub(crate) cut_after: Option<Duration>,
    /// Give up after this time.
    pub(crate) limit: Duration,
    /// Processes that must stay alive during the fetch.
    pub(crate) helpers: Vec<&'a mut Process>,
}

/// Fetches the stage's file. A complete copy is checked byte for byte.
pub(crate) fn fetch(
    stage: &Stage,
    mut plan: Plan<'_>,
    progress: &mut Progress,
) -> Result<Fetched, LabError> {
    let copy = stage.directory.path().join("copy.bin");
    let log = stage.directory.path().join("curl.log");
    let errors = File::create(&log).map_err(LabError::file(&log))?;
    let curl = programs::find("curl")?;
    let mut command = if plan.mptcp {
        let mut command = Command::new(programs::find("mptcpize")?);
        command.arg("run").arg(curl);
        command
    } else {
        Command::new(curl)
    };
    // -q and no proxy from the environment: the user's settings must not affect the figures.
    command
        .args(["-q", "--silent", "--show-error", "--fail", "--output"])
        .arg(&copy);
    command.args(["--write-out", "%{size_download} %{time_total}"]);
    if let Some(cut) = plan.cut_after {
        command.args(["--max-time", &cut.as_secs().to_string()]);
    }
    command
        .args(&plan.arguments)
        .arg(format!("http://{SERVER_V4}:{}/file.bin", plan.port));
    for variable in [
        "http_proxy",
        "all_proxy",
        "ALL_PROXY",
        "no_proxy",
        "NO_PROXY",
    ] {
        command.env_remove(variable);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors);
    let mut child = stage.lab.spawn(Side::Client, command)?;
    let watched = watch(&mut child, &copy, &mut plan, progress);
    process::end(&mut child);
    watched?;
    let failed = |what: String| LabError::Failed {
        what,
        log: process::tail(&log),
    };
    let status = child
        .wait()
        .map_err(|error| LabError::system("waiting for curl", error))?;
    let cut = status.code() == Some(CURL_TIMED_OUT) && plan.cut_after.is_some();
    if !status.success() && !cut {
        return Err(failed(format!(
            "{}: curl failed ({status})",
            progress.label
        )));
    }
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout
            .read_to_string(&mut text)
            .map_err(|e| LabError::system("reading from curl", e))?;
    }
    let mut numbers = text
        .split_whitespace()
        .map(|word| word.parse::<f64>().unwrap_or(0.0));
    let (bytes, seconds) = (
        numbers.next().unwrap_or(0.0) as u64,
        numbers.next().unwrap_or(0.0),
    );
    let correct = cut || (bytes == stage.size && digest(&copy)? == stage.digest);
    fs::remove_file(&copy).map_err(LabError::file(&copy))?;
    if !correct {
        return Err(failed(format!(
            "{}: the copy ({bytes} bytes) differs from the file ({} bytes)",
            progress.label, stage.size
        )));
    }
    Ok(Fetched {
        bytes,
        seconds,
        cut,
        note: String::new(),
        emulator: Health::default(),
        others_share: 0.0,
    })
}

/// Waits for curl and shows its progress.
fn watch(
    child: &mut std::process::Child,
    copy: &Path,
    plan: &mut Plan<'_>,
    progress: &mut Progress,
) -> Result<(), LabError> {
    let start = Instant::now();
    while child
        .try_wait()
        .map_err(|e| LabError::system("waiting for curl", e))?
        .is_none()
    {
        signals::check()?;
        for helper in &mut plan.helpers {
            helper.check_alive()?;
        }
        if start.elapsed() > plan.limit {
            let what = format!("did not finish within {} s", plan.limit.as_secs());
            return Err(match plan.helpers.first() {
                Some(helper) => helper.failed(what),
                None => LabError::Failed {
                    what: format!("curl {what}"),
                    log: String::new(),
                },
            });
        }
        progress.show(
            start.elapsed(),
            fs::metadata(copy).map_or(0, |metadata| metadata.len()),
        );
        thread::sleep(TICK);
    }
    Ok(())
}

fn digest(path: &Path) -> Result<Vec<u8>, LabError> {
    let mut file = File::open(path).map_err(LabError::file(path))?;
    let mut digest = Context::new(&SHA256);
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk).map_err(LabError::file(path))? {
            0 => return Ok(digest.finish().as_ref().to_vec()),
            len => digest.update(&chunk[..len]),
        }
    }
}

/// A progress line that is updated during a fetch; without a terminal only its final state is
/// printed.
pub(crate) struct Progress {
    condition: String,
    label: String,
    live: bool,
    shown: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(condition: &str, label: &str) -> Self {
        Self {
            condition: condition.to_owned(),
            label: label.to_owned(),
            live: std::io::stdout().is_terminal(),
            shown: None,
        }
    }

    fn show(&mut self, elapsed: Duration, bytes: u64) {
        if self.live && self.shown.is_none_or(|shown| shown.elapsed() >= SHOW_EVERY) {
            self.shown = Some(Instant::now());
            let line = self.line(elapsed.as_secs_f64(), bytes);
            say_raw(&format!("\r\x1b[K{line}"));
        }
    }

    /// Prints the final state of the line.
    pub(crate) fn finish(&self, outcome: &Outcome) {
        if self.live {
            say_raw("\r\x1b[K");
        }
        match outcome {
            Outcome::Fetched(fetched) => {
                let cut = if fetched.cut { "  (cut)" } else { "" };
                say!("{}{cut}", self.line(fetched.seconds, fetched.bytes));
            }
            Outcome::Unavailable(reason) => {
                say!("  {:<18} {:<12} {reason}", self.condition, self.label);
            }
        }
    }

    fn line(&self, seconds: f64, bytes: u64) -> String {
        let megabits = if seconds > 0.0 {
            bytes as f64 * 8e-6 / seconds
        } else {
            0.0
        };
        format!(
            "  {:<18} {:<12} {seconds:>5.1} s {:>6.1} MB {megabits:>7.1} Mbit/s",
            self.condition,
            self.label,
            bytes as f64 / 1e6
        )
    }
}
