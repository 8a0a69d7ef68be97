//! The log on standard error.
//!
//! A log line never waits for the reader of standard error and never fails: see [`crate::spool`].

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::time::Duration;

use sumlink_engine::peer_text::is_plain;
use sumlink_monitor::LogCounts;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::error::CliError;
use crate::log_format::LogFormat;
use crate::log_limit::LogLimit;
use crate::spool::{self, Spool};

/// Environment variable with levels of targets or of everything, such as `debug` or
/// `sumlink_transport=trace,info`.
const VARIABLE: &str = "SUMLINK_LOG";

/// Environment variable that disables the limit on lines of one kind if `off`.
const LIMIT_VARIABLE: &str = "SUMLINK_LOG_LIMIT";

/// Time for which the program waits at its end for the last lines to be written.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// Lines on their way to standard error, once logging has started.
static LOG: OnceLock<Spool> = OnceLock::new();

/// The form of the lines, once logging has started.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// The limit on lines of one kind, unless it is off.
static LIMIT: OnceLock<LogLimit> = OnceLock::new();

/// Starts logging; the environment overrides the flags.
pub(crate) fn start(verbose: u8, quiet: bool) -> Result<(), CliError> {
    let filter: Targets = match std::env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => text
            .parse()
            .map_err(|error| CliError::Usage(format!("{VARIABLE}={text}: {error}")))?,
        // rustls logs a peer's mistakes without a limit; the connection's own line reports them
        // instead.
        _ => {
            let (level, has_rustls) = match (quiet, verbose) {
                (true, _) => (LevelFilter::ERROR, false),
                (false, 0) => (LevelFilter::INFO, false),
                (false, 1) => (LevelFilter::DEBUG, true),
                (false, _) => (LevelFilter::TRACE, true),
            };
            let rustls = if has_rustls { level } else { LevelFilter::OFF };
            Targets::new()
                .with_default(level)
                .with_target("rustls", rustls)
        }
    };
    let format = *FORMAT.get_or_init({
        let chosen = LogFormat::from_environment()?;
        move || chosen
    });
    let descriptor = spool::unlocked(io::stderr())?;
    let log = LOG.get_or_init(|| Spool::new("log", descriptor, dropped));
    let is_limited = std::env::var(LIMIT_VARIABLE).as_deref() != Ok("off");
    let limit = is_limited.then(|| LIMIT.get_or_init(LogLimit::default).clone());
    tracing_subscriber::registry()
        .with(filter)
        .with(limit)
        .with(lines(log, format, io::stderr().is_terminal(), verbose > 0))
        .init();
    std::panic::set_hook(Box::new(report_panic));
    Ok(())
}

/// Formats events as lines and queues them in `log`.
fn lines<S>(log: &Spool, format: LogFormat, ansi: bool, target: bool) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = Lines {
        log: log.clone(),
        format,
        ansi,
    };
    format.layer(lines, ansi, target)
}

/// The form of the lines.
fn format() -> LogFormat {
    FORMAT.get().copied().unwrap_or_default()
}

/// Writes a note for people to standard error after the log lines queued before. It never waits and
/// never fails: text that cannot be written is dropped.
pub(crate) fn note(text: &str) {
    match LOG.get() {
        Some(log) => {
            log.push(text.as_bytes());
        }
        // Before logging starts, no other thread can be blocked by this write.
        None => {
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }
}

/// Like [`note`], in the form of the log: why the program ends.
pub(crate) fn error(text: &str) {
    note(&format().line(Level::ERROR, text));
}

/// Waits up to 1 s until everything has been written.
pub(crate) fn finish() {
    if let Some(limit) = LIMIT.get() {
        limit.report();
    }
    if let Some(log) = LOG.get() {
        log.finish(FINISH_TIMEOUT);
    }
}

/// Lines that were not written so far.
pub(crate) fn counts() -> LogCounts {
    LogCounts {
        dropped: LOG.get().map_or(0, Spool::dropped),
        suppressed: LIMIT.get().map_or(0, LogLimit::suppressed),
    }
}

/// The line that reports dropped lines.
fn dropped(lines: u64) -> String {
    let s = if lines == 1 { "" } else { "s" };
    let text = "dropped: standard error could not be written or was not read";
    format().line(Level::WARN, &format!("{lines} log line{s} {text}\n"))
}

/// Reports a panic without waiting. The standard library's hook waits for the reader of standard
/// error.
fn report_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = std::backtrace::Backtrace::capture();
    let trace = match backtrace.status() {
        std::backtrace::BacktraceStatus::Captured => format!("{backtrace}\n"),
        _ => String::new(),
    };
    error(&format!("thread '{name}' {panic}\n{trace}"));
}

/// Queues each event as a line; the formatter writes an event in one call.
struct Lines {
    log: Spool,
    format: LogFormat,
    /// Text has colors.
    ansi: bool,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.log.push(&one_line(line, self.format, self.ansi));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes an event one line of printable characters, whatever its message and fields contain. The
/// formatter's own colors stay; it has escaped those of messages and fields.
fn one_line(event: &[u8], format: LogFormat, ansi: bool) -> Cow<'_, [u8]> {
    let (text, end) = match event.split_last() {
        Some((b'\n', text)) => (text, "\n"),
        _ => (event, ""),
    };
    if text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(event);
    }
    let text = String::from_utf8_lossy(text);
    let mut line = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\x1b' if ansi => line.push(c),
            _ if is_plain(c) => line.push(c),
            _ => format.escape(c, &mut line),
        }
    }
    line.push_str(end);
    Cow::Owned(line.into_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A log that a test can read.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const HOSTILE: &str = "bye\n2026-01-01T00:00:00Z  INFO forged\r\x1b[2J\u{202e}";

    /// The lines of two events in this form.
    fn logged(format: LogFormat) -> String {
        let kept = Kept::default();
        let log = Spool::new("log", kept.clone(), dropped);
        let lines = lines(&log, format, false, false);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let session = tracing::info_span!("session", client = "laptop", id = %HOSTILE);
            let _session = session.enter();
            tracing::info!(reason = %HOSTILE, debugged = ?HOSTILE, plain = HOSTILE, "{HOSTILE}");
            tracing::warn!("Käse");
        });
        assert!(log.finish(FINISH_TIMEOUT * 60));
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        let mut lines = text.lines();
        assert!(lines.all(|line| line.chars().all(is_plain)), "{text}");
        text
    }

    #[test]
    fn messages_and_fields_cannot_forge_a_line() {
        let text = logged(LogFormat::Text);
        assert!(
            text.contains("Käse") && text.contains(r"bye\n2026"),
            "{text}"
        );
    }

    #[test]
    fn lines_for_the_journal_begin_with_their_priority() {
        let text = logged(LogFormat::Journal);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("<6> INFO session{"), "{text}");
        assert!(lines[1].starts_with("<4> WARN session{"), "{text}");
        assert!(lines[1].ends_with("Käse"), "{text}");
    }

    #[test]
    fn lines_of_json_have_fields_and_sessions() {
        let text = logged(LogFormat::Json);
        let lines = text.lines().map(serde_json::from_str);
        let lines: Vec<serde_json::Value> = lines.map(Result::unwrap).collect();
        assert_eq!(lines[0]["reason"], HOSTILE);
        assert_eq!(lines[0]["message"], HOSTILE);
        assert_eq!(lines[0]["spans"][0]["client"], "laptop");
        assert_eq!(lines[0]["spans"][0]["name"], "session");
        assert_eq!(lines[1]["level"], "WARN");
        assert!(lines[1]["timestamp"].is_string(), "{text}");
    }

    #[test]
    fn the_report_of_dropped_lines_counts() {
        assert!(dropped(1).starts_with("1 log line dropped: "));
        assert!(dropped(2).starts_with("2 log lines dropped: ") && dropped(2).ends_with('\n'));
    }
}
