//! Shows and changes the policy of a link over the control socket of the running client.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use sumlink_settings::units;
use sumlink_transport::policy::{
    Beyond, Direction, Source, parse_beyond, parse_direction, parse_priority,
};
use sumlink_transport::{LinkPolicy, LinkReport, Priority};

use crate::control::{self, LinkChange};
use crate::error::CliError;
use crate::find_socket;
use crate::output::{print, print_json};
use crate::table::{Table, bytes, printable, rate};

/// Without a change, shows the policy and the bytes that the link has moved.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Link to show or change.
    #[arg(value_name = "NAME")]
    name: String,
    /// Ask at this control socket. Default: the running service's.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Set the priority: primary, secondary (carries data while the primary links are busy), backup
    /// (while no other link delivers) or never.
    #[arg(long, value_name = "WORD", value_parser = parse_priority)]
    priority: Option<Priority>,
    /// Mark the link as metered: its bytes cost money. Nothing is duplicated over it, and it is
    /// secondary unless --priority is given.
    #[arg(long, value_name = "yes|no", value_parser = parse_yes_no, action = ArgAction::Set)]
    metered: Option<bool>,
    /// Limit the direction in which it carries streams: up, down or both.
    #[arg(long, value_name = "WORD", value_parser = parse_direction)]
    direction: Option<Direction>,
    /// Limit the rate that is sent over it, e.g. 5mbit, or none.
    #[arg(long, value_name = "RATE|none", value_parser = rate_or_none)]
    send_limit: Option<Bound<u64>>,
    /// Limit the rate that is received over it, e.g. 20mbit, or none.
    #[arg(long, value_name = "RATE|none", value_parser = rate_or_none)]
    receive_limit: Option<Bound<u64>>,
    /// Make it a backup while it is slower than the fastest other link by more than this, e.g.
    /// 50ms, or none.
    #[arg(long, value_name = "TIME|none", value_parser = time_or_none)]
    max_added_latency: Option<Bound<Duration>>,
    /// Set the data cap for a day, e.g. 2GB, or none.
    #[arg(long, value_name = "SIZE|none", value_parser = size_or_none)]
    cap_day: Option<Bound<u64>>,
    /// Set the data cap for a month, e.g. 100GB, or none.
    #[arg(long, value_name = "SIZE|none", value_parser = size_or_none)]
    cap_month: Option<Bound<u64>>,
    /// Set the day on which its month begins, 1 to 31.
    #[arg(long, value_name = "DAY")]
    reset_day: Option<u8>,
    /// Set its use beyond a cap: backup, never, or limited to a rate, e.g. 128kbit.
    #[arg(long, value_name = "WORD|RATE", value_parser = read_beyond)]
    beyond: Option<Beyond>,
    /// Set a label to show beside its name.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Discard changes made at run time and return to the configuration.
    #[arg(long, conflicts_with_all = [
        "priority", "metered", "direction", "send_limit", "receive_limit", "max_added_latency", "cap_day", "cap_month",
        "reset_day", "beyond", "label", "keep",
    ])]
    reset: bool,
    /// Keep the resulting policy across restarts of the client; the client needs --state.
    #[arg(long)]
    keep: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// A limit, or `none`.
#[derive(Clone, Copy, Debug)]
struct Bound<T>(Option<T>);

/// Runs the verb.
pub(super) fn run(args: &PolicyArgs) -> Result<(), CliError> {
    let socket = find_socket::socket(args.control.as_deref(), find_socket::SOCKETS)?.path;
    let shown = control::link(&socket, &args.name, None)?;
    let policy = args.changed(&shown.policy);
    let change = if args.reset {
        Some(LinkChange {
            policy: None,
            keep: false,
        })
    } else {
        (policy != shown.policy || args.keep).then_some(LinkChange {
            policy: Some(policy),
            keep: args.keep,
        })
    };
    let report = match change {
        Some(change) => control::link(&socket, &args.name, Some(change))?,
        None => shown,
    };
    match args.json {
        true => print_json(&report),
        false => print(&render(&report)),
    }
}

impl PolicyArgs {
    /// The policy after the requested changes.
    fn changed(&self, before: &LinkPolicy) -> LinkPolicy {
        fn bound<T>(change: Option<Bound<T>>, before: Option<T>) -> Option<T> {
            change.map_or(before, |Bound(bound)| bound)
        }
        LinkPolicy {
            label: self.label.clone().unwrap_or_else(|| before.label.clone()),
            priority: self.priority.or(before.priority),
            metered: self.metered.unwrap_or(before.metered),
            direction: self.direction.unwrap_or(before.direction),
            send_limit: bound(self.send_limit, before.send_limit),
            receive_limit: bound(self.receive_limit, before.receive_limit),
            max_added_latency: bound(self.max_added_latency, before.max_added_latency),
            cap_day: bound(self.cap_day, before.cap_day),
            cap_month: bound(self.cap_month, before.cap_month),
            reset_day: self.reset_day.unwrap_or(before.reset_day),
            beyond: self.beyond.unwrap_or(before.beyond),
        }
    }
}

fn render(report: &LinkReport) -> String {
    let policy = &report.policy;
    let name = match policy.label.is_empty() {
        true => printable(&report.name),
        false => format!("{} ({})", printable(&report.name), printable(&policy.label)),
    };
    let mut table = Table::new(&["link", &name]);
    let mut line = |name: &str, value: String| table.row([name.to_owned(), value]);
    let metered = if policy.metered { ", metered" } else { "" };
    line("priority", format!("{}{metered}", report.priority));
    line("direction", policy.direction.name().to_owned());
    let limit = |limit: Option<u64>| limit.map_or_else(|| "none".to_owned(), |l| rate(l as f64));
    let limits = (limit(policy.send_limit), limit(policy.receive_limit));
    line("limits", format!("send {}, receive {}", limits.0, limits.1));
    let latency = policy.max_added_latency.map(units::format_duration);
    line(
        "added latency",
        latency.map_or("any".to_owned(), |most| format!("at most {most}")),
    );
    let of = |cap: Option<u64>| cap.map(|cap| format!(" of {}", bytes(cap)));
    let moved = report
        .usage
        .map_or((0, 0), |usage| (usage.day_bytes, usage.month_bytes));
    line(
        "today",
        bytes(moved.0) + &of(policy.cap_day).unwrap_or_default(),
    );
    let since = report
        .usage
        .map(|usage| format!(" since {}", usage.month))
        .unwrap_or_default();
    line(
        "month",
        bytes(moved.1) + &of(policy.cap_month).unwrap_or_default() + &since,
    );
    if policy.has_cap() {
        let beyond = match policy.beyond {
            Beyond::Backup => "backup".to_owned(),
            Beyond::Never => "never used".to_owned(),
            Beyond::Limit(limit) => format!("at most {}", rate(limit as f64)),
        };
        line("beyond its cap", beyond);
    }
    if let Some(until) = report.used_up_until {
        line("used up", format!("until {until}"));
    }
    let source = match report.source {
        Source::Configuration => "the configuration",
        Source::Set => "set at run time, until the client ends",
        Source::Kept => "set at run time and kept",
    };
    line("from", source.to_owned());
    table.render()
}

fn parse_yes_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(format!("`{text}`: write yes or no")),
    }
}

fn or_none<T, E: ToString>(
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Bound<T>, String> {
    match text {
        "none" => Ok(Bound(None)),
        _ => parse(text)
            .map(|bound| Bound(Some(bound)))
            .map_err(|error| error.to_string()),
    }
}

fn rate_or_none(text: &str) -> Result<Bound<u64>, String> {
    or_none(text, units::parse_rate)
}

fn size_or_none(text: &str) -> Result<Bound<u64>, String> {
    or_none(text, units::parse_size)
}

fn time_or_none(text: &str) -> Result<Bound<Duration>, String> {
    or_none(text, units::parse_duration)
}

/// Parses a link's use beyond its data cap.
pub(crate) fn read_beyond(text: &str) -> Result<Beyond, String> {
    parse_beyond(text, |text| {
        units::parse_rate(text).map_err(|error| error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: PolicyArgs,
    }

    fn parse(words: &str) -> Result<PolicyArgs, clap::Error> {
        let line = format!("link wwan0 --control c {words}");
        Ok(Line::try_parse_from(line.split_whitespace())?.args)
    }

    #[test]
    fn only_given_options_change() {
        let before = LinkPolicy {
            label: "5G".to_owned(),
            send_limit: Some(1_000_000),
            cap_day: Some(5),
            ..LinkPolicy::default()
        };
        let same = parse("").unwrap().changed(&before);
        assert_eq!(same, before);
        let words =
            "--priority backup --metered yes --send-limit none --cap-month 2GB --beyond 128kbit";
        let after = parse(words).unwrap().changed(&before);
        assert_eq!(after.priority, Some(Priority::Backup));
        assert!(after.metered);
        assert_eq!((after.send_limit, after.cap_day), (None, Some(5)));
        assert_eq!(after.cap_month, Some(2_000_000_000));
        assert_eq!(after.beyond, Beyond::Limit(128_000));
        assert_eq!(after.label, "5G");
    }

    #[test]
    fn a_wrong_value_is_one_line_with_the_valid_ones() {
        for (words, hint) in [
            ("--priority first", "write one of primary"),
            ("--direction sideways", "both, up"),
            ("--beyond slow", "write backup, never, or a rate"),
            ("--metered perhaps", "write yes or no"),
            ("--reset --keep", "cannot be used with"),
            ("--send-limit fast", "rate"),
        ] {
            let error = parse(words).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }
}
