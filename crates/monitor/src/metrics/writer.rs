//! The text formats: families of samples with their labels.

use std::fmt::Write;

use super::Kind;
use sumlink_transport::status::Durations;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The value of `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format for an `Accept` header: OpenMetrics if it is named with at least the weight of
    /// plain text.
    pub(crate) fn accepted(accept: &str) -> Self {
        let (mut open, mut plain) = (0.0, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<&str> = parts.collect();
            let of = |name: &str| parameters.iter().find_map(|part| part.strip_prefix(name));
            let weight = of("q=").and_then(|q| q.parse::<f64>().ok()).unwrap_or(1.0);
            // Later minor versions are compatible; 0.0.1 is a draft.
            let is_known = of("version=").is_none_or(|version| version.starts_with("1."));
            match kind.as_str() {
                "application/openmetrics-text" if is_known => open = weight.max(open),
                "text/plain" | "text/*" => plain = weight.max(plain),
                _ => {}
            }
        }
        match open > 0.0 && open >= plain {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }
}

/// Labels of a sample: names and values.
pub(super) type Labels<'a> = [(&'a str, &'a str)];

/// Writes families of samples.
#[derive(Debug)]
pub(super) struct Writer {
    out: String,
    format: Format,
    name: &'static str,
    /// Head of the family, until its first sample.
    head: Option<(Kind, &'static str)>,
}

/// Units that are a part of a name, with the suffix that shows them.
const UNITS: [&str; 4] = ["bytes_per_second", "seconds", "bytes", "ratio"];

impl Writer {
    pub(super) fn new(format: Format) -> Self {
        Self {
            out: String::new(),
            format,
            name: "",
            head: None,
        }
    }

    /// Begins a family; without samples it leaves nothing.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        self.name = name;
        self.head = Some((kind, help));
    }

    /// Writes a sample.
    pub(super) fn sample(&mut self, labels: &Labels<'_>, value: f64) {
        self.line("", labels, None, |out| number(out, value));
    }

    /// Writes a sample of a counter.
    pub(super) fn count(&mut self, labels: &Labels<'_>, value: u64) {
        self.line("", labels, None, |out| {
            let _ = write!(out, "{value}");
        });
    }

    /// Writes a histogram.
    pub(super) fn histogram(&mut self, labels: &Labels<'_>, durations: &Durations) {
        let mut below = 0;
        let counts = durations.counts.iter().copied().chain(std::iter::repeat(0));
        for (bound, count) in Durations::BOUNDS_S.iter().zip(counts) {
            below += count;
            self.line("_bucket", labels, Some(*bound), |out| {
                let _ = write!(out, "{below}");
            });
        }
        let all = durations.count();
        let whole = |out: &mut String| {
            let _ = write!(out, "{all}");
        };
        self.line("_bucket", labels, Some(f64::INFINITY), whole);
        self.line("_sum", labels, None, |out| number(out, durations.sum_s));
        self.line("_count", labels, None, whole);
    }

    /// The text.
    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    // Writing to a string cannot fail.
    fn line(
        &mut self,
        suffix: &str,
        labels: &Labels<'_>,
        bound: Option<f64>,
        value: impl FnOnce(&mut String),
    ) {
        self.write_head();
        let out = &mut self.out;
        out.push_str(self.name);
        out.push_str(suffix);
        let mut separator = '{';
        for (name, text) in labels {
            let _ = write!(out, "{separator}{name}=\"");
            escape(out, text);
            out.push('"');
            separator = ',';
        }
        if let Some(bound) = bound {
            let _ = write!(out, "{separator}le=\"");
            number(out, bound);
            out.push('"');
            separator = ',';
        }
        out.push_str(if separator == ',' { "} " } else { " " });
        value(out);
        out.push('\n');
    }

    fn write_head(&mut self) {
        let Some((kind, help)) = self.head.take() else {
            return;
        };
        let (mut name, mut word) = (self.name, kind.name());
        if self.format == Format::OpenMetrics {
            name = name.strip_suffix("_total").unwrap_or(name);
            if let Some(of) = name.strip_suffix("_info") {
                (name, word) = (of, "info");
            }
        }
        let _ = writeln!(self.out, "# HELP {name} {help}.\n# TYPE {name} {word}");
        let unit = UNITS.iter().find(|unit| name.ends_with(*unit));
        if let (Some(unit), Format::OpenMetrics) = (unit, self.format) {
            let _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
    }
}

/// A value of a label; the escapes are the same in both formats.
fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

fn number(out: &mut String, value: f64) {
    let _ = match value {
        f64::INFINITY => write!(out, "+Inf"),
        f64::NEG_INFINITY => write!(out, "-Inf"),
        value if value.is_nan() => write!(out, "NaN"),
        // The sum of nothing is -0.
        value => write!(out, "{}", value + 0.0),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_follows_the_accept_header() {
        for (accept, format) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            (
                "text/html,application/xhtml+xml,*/*;q=0.8",
                Format::Prometheus,
            ),
            ("text/plain;version=0.0.4", Format::Prometheus),
            // Prometheus 2.42.
            (
                "application/openmetrics-text;version=1.0.0,\
                 application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,\
                 */*;q=0.1",
                Format::OpenMetrics,
            ),
            (
                "application/openmetrics-text; version=0.0.1",
                Format::Prometheus,
            ),
            (
                "application/openmetrics-text;q=0.2, text/plain",
                Format::Prometheus,
            ),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("Application/OpenMetrics-Text", Format::OpenMetrics),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }

    #[test]
    fn a_family_without_samples_leaves_nothing() {
        let mut writer = Writer::new(Format::Prometheus);
        writer.family("a", Kind::Gauge, "A");
        writer.family("b", Kind::Gauge, "B");
        writer.sample(&[], 0.5);
        assert_eq!(writer.finish(), "# HELP b B.\n# TYPE b gauge\nb 0.5\n");
    }
}
