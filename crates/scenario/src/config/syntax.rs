//! The syntax of losses, jitter, queues and traces.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use sumlink_link::{
    Distribution, GilbertElliott, Jitter, Loss, LossScript, Policer, QueueLimit, Trace,
};
use sumlink_util::plain;

use crate::MTU;
use sumlink_settings::units::{
    UnitError, format_duration, format_percentage, format_rate, parse_duration, parse_percentage,
    parse_rate, parse_size,
};

/// Maximum size of a trace, in bytes.
pub(crate) const MAX_TRACE: u64 = 256 << 20;
/// The syntax of a loss, for messages.
const LOSSES: &str = "5%, burst:5%:8 (mean, packets of a burst), gilbert:1%:25% (good to bad, bad \
                      to good; may be followed by the loss in each), script:7+20-29+1s-1.5s";

/// Reads a file in Mahimahi's format.
pub(super) fn read_trace(path: &str) -> Result<Trace, String> {
    let system = |error: std::io::Error| format!("cannot read {path}: {}", plain(error));
    let mut text = String::new();
    let read = File::open(path)
        .and_then(|file| file.take(MAX_TRACE + 1).read_to_string(&mut text))
        .map_err(system)?;
    if read as u64 > MAX_TRACE {
        return Err(format!("{path} is larger than {} MiB", MAX_TRACE >> 20));
    }
    text.parse().map_err(|error| format!("{path}, {error}"))
}

/// Parses a queue limit in time (`50ms`), in bytes (`64KiB`), or in packets of the MTU
/// (`50packets`).
pub(crate) fn parse_queue(text: &str) -> Result<QueueLimit, UnitError> {
    if let Some(packets) = text.trim().strip_suffix("packets") {
        // Adds the unit that the parser expects.
        let packets = parse_size(&format!("{}B", packets.trim()))?;
        return Ok(QueueLimit::Bytes(packets.saturating_mul(u64::from(MTU))));
    }
    if text.trim().to_ascii_lowercase().ends_with('b') {
        return parse_size(text).map(QueueLimit::Bytes);
    }
    parse_duration(text).map(QueueLimit::Time)
}

/// Parses the bucket of a constant rate, in bytes.
pub(crate) fn parse_burst(text: &str) -> Result<u64, UnitError> {
    parse_size(text)
}

/// Parses a policer: a rate and a bucket (`10mbit:32kB`), or `none`.
pub(crate) fn parse_policer(text: &str) -> Result<Option<Policer>, String> {
    if text.trim() == "none" {
        return Ok(None);
    }
    let (rate, burst) = text
        .split_once(':')
        .ok_or_else(|| format!("'{text}' is neither RATE:BURST, such as 10mbit:32kB, nor none"))?;
    let policer = Policer {
        rate: parse_rate(rate).map_err(|error| error.to_string())?,
        burst: parse_size(burst).map_err(|error| error.to_string())?,
    };
    if policer.burst < u64::from(MTU) {
        return Err(format!(
            "no full packet fits into a bucket of {} bytes; use at least {MTU}B",
            policer.burst
        ));
    }
    Ok(Some(policer))
}

pub(super) fn format_policer(policer: Option<Policer>) -> String {
    match policer {
        None => "none".to_owned(),
        Some(Policer { rate, burst }) => format!("{}:{burst}B", format_rate(rate)),
    }
}

pub(crate) fn parse_jitter(text: &str) -> Result<Jitter, UnitError> {
    let (text, reorder) = match text.strip_suffix(":reorder") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let jitter = match text.strip_prefix("normal:") {
        Some(deviation) => Jitter::normal(parse_duration(deviation)?),
        None => Jitter::uniform(parse_duration(text)?),
    };
    Ok(if reorder { jitter.reordering() } else { jitter })
}

pub(super) fn format_jitter(jitter: Jitter) -> String {
    let distribution = match jitter.distribution {
        Distribution::Uniform(spread) => format_duration(spread),
        Distribution::Normal(deviation) => format!("normal:{}", format_duration(deviation)),
        _ => "0".to_owned(),
    };
    let reorder = if jitter.reorder { ":reorder" } else { "" };
    format!("{distribution}{reorder}")
}

pub(crate) fn parse_loss(text: &str) -> Result<Loss, String> {
    let share = |text: &str| parse_percentage(text).map_err(|error| error.to_string());
    let mut parts = text.split(':');
    let kind = parts.next().unwrap_or_default();
    let values: Vec<_> = parts.collect();
    match (kind, values.as_slice()) {
        ("burst", [loss, burst]) => {
            let packets = burst
                .parse()
                .map_err(|_| format!("'{burst}' is not a number of packets"))?;
            GilbertElliott::bursts(share(loss)?, packets).map(Loss::GilbertElliott)
        }
        ("gilbert", [p, r]) => {
            GilbertElliott::new(share(p)?, share(r)?, 0.0, 1.0).map(Loss::GilbertElliott)
        }
        ("gilbert", [p, r, good, bad]) => {
            GilbertElliott::new(share(p)?, share(r)?, share(good)?, share(bad)?)
                .map(Loss::GilbertElliott)
        }
        ("script", [list]) => return parse_script(list).map(Loss::Script),
        (percentage, []) => return share(percentage).map(Loss::Independent),
        _ => return Err(format!("'{text}' is not a loss: write {LOSSES}")),
    }
    .map_err(|error| error.to_string())
}

/// Parses packets and ranges of packets, both ends included, and windows of time.
fn parse_script(list: &str) -> Result<LossScript, String> {
    let mut script = LossScript::default();
    for part in list.split('+') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let empty = || format!("'{part}' is empty: its end is before its start");
        if part.chars().all(|c| c.is_ascii_digit() || c == '-') {
            let number = |text: &str| {
                text.parse::<u64>()
                    .map_err(|_| format!("'{text}' in '{part}' is not a packet's number"))
            };
            let range = number(first)?..number(last)?.saturating_add(1);
            if range.is_empty() {
                return Err(empty());
            }
            script.packets.push(range);
        } else {
            let time = |text: &str| parse_duration(text).map_err(|error| error.to_string());
            let window: std::ops::Range<Duration> = time(first)?..time(last)?;
            if window.is_empty() {
                return Err(empty());
            }
            script.times.push(window);
        }
    }
    Ok(script)
}

pub(super) fn format_loss(loss: &Loss) -> String {
    match loss {
        Loss::Independent(share) => format_percentage(*share),
        Loss::GilbertElliott(model) => {
            format!("{} in bursts", format_percentage(model.mean_loss()))
        }
        Loss::Script(script) => {
            let packets = script.packets.iter().map(|range| {
                let last = range.end.saturating_sub(1);
                if range.start == last {
                    last.to_string()
                } else {
                    format!("{}-{last}", range.start)
                }
            });
            let times = script.times.iter().map(|window| {
                format!(
                    "{}-{}",
                    format_duration(window.start),
                    format_duration(window.end)
                )
            });
            let parts: Vec<_> = packets.chain(times).collect();
            format!("script:{}", parts.join("+"))
        }
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse_loss(text).unwrap_err()
    }

    #[test]
    fn losses_are_read() {
        assert_eq!(parse_loss("5%"), Ok(Loss::Independent(0.05)));
        for (text, mean) in [
            ("burst:5%:8", 0.05),
            ("gilbert:1%:25%", 0.01 / 0.26),
            ("gilbert:10%:10%:0%:50%", 0.25),
        ] {
            let Ok(Loss::GilbertElliott(model)) = parse_loss(text) else {
                panic!("{text}");
            };
            assert!((model.mean_loss() - mean).abs() < 1e-9, "{text}");
        }
        let script = parse_loss("script:7+20-29+1s-1.5s").unwrap();
        assert_eq!(format_loss(&script), "script:7+20-29+1s-1.5s");
    }

    #[test]
    fn wrong_losses_are_explained() {
        assert!(error("5").contains("has no unit"));
        assert!(error("burst:5%").contains("is not a loss: write 5%, burst:5%:8"));
        assert!(error("burst:5%:some").contains("'some' is not a number of packets"));
        assert!(error("burst:90%:1").contains("make them at least"));
        assert!(error("gilbert:5%:x").contains("'x' is not a percentage"));
        assert!(error("script:9-7").contains("its end is before its start"));
        assert!(error("script:2s-1s").contains("its end is before its start"));
        assert!(error("script:").contains("is not a packet's number"));
        assert!(error("script:1s").contains("is empty"));
    }

    #[test]
    fn queues_are_read_in_time_bytes_and_packets() {
        let queue = |text: &str| parse_queue(text).unwrap();
        assert_eq!(queue("50ms"), QueueLimit::Time(Duration::from_millis(50)));
        assert_eq!(queue("64KiB"), QueueLimit::Bytes(65_536));
        assert_eq!(queue("50packets"), QueueLimit::Bytes(75_000));
        assert!(parse_queue("fiftypackets").is_err());
    }

    #[test]
    fn jitter_is_read_and_written() {
        for text in ["2ms", "normal:2ms", "2ms:reorder", "normal:500us:reorder"] {
            assert_eq!(format_jitter(parse_jitter(text).unwrap()), text);
        }
        assert!(parse_jitter("gamma:2ms").is_err());
    }
}
