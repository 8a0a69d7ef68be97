//! The log: what the program reports on standard error while it runs.
//!
//! A log line never waits for the reader of standard error and never fails: see [`crate::spool`].

use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::exit::CliError;
use crate::spool::{self, Spool};

/// Environment variable with a filter such as `debug` or `sumlink_transport=trace,info`.
const VARIABLE: &str = "SUMLINK_LOG";

/// How long the end of the program waits for the last lines to be written.
const LAST: Duration = Duration::from_secs(1);

/// The lines on their way to standard error, once logging has started.
static LOG: OnceLock<Spool> = OnceLock::new();

/// Starts logging; the environment wins over the flags.
pub(crate) fn start(verbose: u8, quiet: bool) -> Result<(), CliError> {
    let filter = match std::env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text)
            .map_err(|error| CliError::Usage(format!("{VARIABLE}={text}: {error}")))?,
        // What rustls has to say of a peer's mistakes is said by the connection's own line, which nobody can cause
        // without bound.
        _ => EnvFilter::new(match (quiet, verbose) {
            (true, _) => "error,rustls=off",
            (false, 0) => "info,rustls=off",
            (false, 1) => "debug",
            (false, _) => "trace",
        }),
    };
    let descriptor = spool::unlocked(io::stderr())?;
    let log = LOG.get_or_init(|| Spool::new("log", descriptor, dropped));
    let lines = fmt::layer()
        .with_writer(Lines(log.clone()))
        // Its own reports of a failed write are `eprintln!`, which panics where writing fails.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .with_target(verbose > 0);
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
    std::panic::set_hook(Box::new(report_panic));
    Ok(())
}

/// Writes text for people to standard error, behind the log lines before it. As log lines, it never waits and never
/// fails: text that cannot be written is dropped.
pub(crate) fn say(text: &str) {
    match LOG.get() {
        Some(log) => {
            log.push(text.as_bytes());
        }
        // Logging has not started, so nothing that could be held up has either.
        None => {
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }
}

/// Waits for a moment until everything has been written.
pub(crate) fn finish() {
    if let Some(log) = LOG.get() {
        log.finish(LAST);
    }
}

/// The line that reports dropped ones.
fn dropped(lines: u64) -> String {
    let s = if lines == 1 { "" } else { "s" };
    format!("{lines} log line{s} dropped: standard error could not be written or was not read\n")
}

/// A panic in a task is reported by the standard library with a write that waits for the reader. This one does not.
fn report_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = std::backtrace::Backtrace::capture();
    let trace = match backtrace.status() {
        std::backtrace::BacktraceStatus::Captured => format!("{backtrace}\n"),
        _ => String::new(),
    };
    say(&format!("thread '{name}' {panic}\n{trace}"));
}

/// Gives each line to the queue.
struct Lines(Spool);

/// One line: the formatter writes it in one piece.
struct Line<'a>(&'a Spool);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_dropped_lines_counts() {
        assert!(dropped(1).starts_with("1 log line dropped: "));
        assert!(dropped(2).starts_with("2 log lines dropped: ") && dropped(2).ends_with('\n'));
    }
}
