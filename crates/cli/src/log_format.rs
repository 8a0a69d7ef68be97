//! The form of log lines: text for people, JSON for collectors, or text with the priorities of
//! systemd's journal.

use std::fmt;
use std::os::unix::fs::MetadataExt;

use serde_json::json;
use sumlink_engine::peer_text::{escaped, is_plain};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::{self, Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::fmt::{self as lines, FmtContext, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use crate::error::CliError;

/// Environment variable with the form: `text`, `json` or `journal`.
const VARIABLE: &str = "SUMLINK_LOG_FORMAT";

/// Environment variable of systemd with device and inode of the journal's stream (systemd.exec(5)).
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Time, level, session and message, with colors on a terminal.
    #[default]
    Text,
    /// One JSON object on each line.
    Json,
    /// As text, without the time, and with the priority in front that sd-daemon(3) describes.
    Journal,
}

impl LogFormat {
    /// The form that the environment asks for; without a wish, [`LogFormat::Journal`] if standard
    /// error is the journal.
    ///
    /// # Errors
    ///
    /// The user's fault: there is no such form.
    pub(crate) fn from_environment() -> Result<Self, CliError> {
        let wanted = std::env::var(VARIABLE).unwrap_or_default();
        Ok(match wanted.as_str() {
            "" if is_journal() => Self::Journal,
            "" | "text" => Self::Text,
            "json" => Self::Json,
            "journal" => Self::Journal,
            other => {
                let reason = format!("{VARIABLE}={other}: choose text, json or journal");
                return Err(CliError::Usage(reason));
            }
        })
    }

    /// The layer that writes events to `writer`; `ansi` adds colors to text, and `target` the
    /// program's module.
    pub(crate) fn layer<S, W>(
        self,
        writer: W,
        ansi: bool,
        target: bool,
    ) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        // The layer reports failed writes with `eprintln!`, which panics where writing fails.
        let layer = lines::layer()
            .with_writer(writer)
            .log_internal_errors(false)
            .with_ansi(ansi && self == Self::Text);
        match self {
            Self::Text => layer.with_target(target).boxed(),
            Self::Json => layer
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(true)
                .with_target(target)
                .boxed(),
            Self::Journal => {
                let text = format::format().without_time().with_target(target);
                layer.event_format(Prioritized(text)).boxed()
            }
        }
    }

    /// A line that is not an event, in this form.
    pub(crate) fn line(self, level: Level, text: &str) -> String {
        match self {
            Self::Text => text.to_owned(),
            Self::Json => {
                let message = text.trim_end();
                let line = json!({ "level": level.as_str(), "message": message }).to_string();
                plain_json(&line) + "\n"
            }
            Self::Journal => format!("<{}>{text}", priority(level)),
        }
    }

    /// Appends a character of an event that is not printable.
    pub(crate) fn escape(self, c: char, line: &mut String) {
        match self {
            Self::Json => {
                let units = &mut [0; 2];
                let units = c.encode_utf16(units).iter();
                line.extend(units.map(|unit| format!("\\u{unit:04x}")));
            }
            _ => line.extend(escaped(c)),
        }
    }
}

/// JSON whose strings have only printable characters.
fn plain_json(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for c in json.chars() {
        match is_plain(c) {
            true => line.push(c),
            false => LogFormat::Json.escape(c, &mut line),
        }
    }
    line
}

/// Whether standard error is systemd's journal: a variable that a parent process has left does not
/// count.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var(JOURNAL_VARIABLE) else {
        return false;
    };
    let stderr = std::fs::metadata("/proc/self/fd/2");
    stderr.is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
}

/// The journal's priority of a level (syslog(3)).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Text with the priority in front.
struct Prioritized(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for Prioritized
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_valid_in_each_form() {
        let note = "thread 'main' panicked\n  at \u{202e}here\n";
        assert_eq!(LogFormat::Text.line(Level::ERROR, note), note);
        let line = LogFormat::Journal.line(Level::ERROR, note);
        assert!(line.starts_with("<3>thread"), "{line}");
        let line = LogFormat::Json.line(Level::ERROR, note);
        assert_eq!(line.lines().count(), 1);
        assert!(line.trim_end().chars().all(is_plain), "{line}");
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["level"], "ERROR");
        assert_eq!(object["message"], note.trim_end());
    }

    #[test]
    fn characters_beyond_the_first_plane_are_escaped_in_pairs() {
        let mut line = String::new();
        LogFormat::Json.escape('\u{e0001}', &mut line);
        assert_eq!(line, "\\udb40\\udc01");
    }
}
