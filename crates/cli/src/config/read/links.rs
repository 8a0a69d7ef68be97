//! `links` and the `[[link]]` blocks: the interfaces to use and their policies.

use sumlink_settings::units;
use sumlink_transport::LinkPolicy;
use sumlink_transport::config::{Carriers, LinkConfig};
use sumlink_transport::policy::{parse_direction, parse_priority};

use super::super::raw::{self, Field};
use super::super::settings::LinkLines;
use super::super::{parse_carriers, parse_congestion, parse_link};
use super::Reader;
use crate::link::read_beyond;

impl Reader<'_> {
    /// Every interface, or those of the blocks with their lines; `None` if the file names none.
    pub(super) fn links(
        &mut self,
        links: Field<String>,
        blocks: Vec<raw::Link>,
    ) -> (Option<Vec<LinkConfig>>, Vec<LinkLines>) {
        if let Some(links) = &links {
            if links.get_ref() != "auto" {
                self.problem(
                    links.span(),
                    "the only value here is \"auto\": name each link in its own [[link]] block",
                );
            } else if !blocks.is_empty() {
                self.problem(
                    links.span(),
                    "`links = \"auto\"` and [[link]] blocks contradict each other: remove one",
                );
            }
        }
        let is_said = links.is_some() || !blocks.is_empty();
        let mut configs: Vec<LinkConfig> = Vec::new();
        let mut lines = Vec::new();
        // Blocks are read even after another mistake, to report theirs as well.
        for block in blocks {
            let span = block.name.span();
            let policy = self.policy(&block);
            let congestion_line = self.line_of(&block.congestion);
            let cap = self
                .line_of(&block.cap_day)
                .or_else(|| self.line_of(&block.cap_month));
            let congestion = self.parse(block.congestion, |s| parse_congestion(s));
            let carriers = self.carriers(block.carriers);
            let Some(name) = self.parse(Some(block.name), |s| parse_link(s)) else {
                continue;
            };
            if configs.iter().any(|config| config.name == name) {
                self.problem(span, format!("link `{name}` occurs twice: remove one"));
                continue;
            }
            lines.push(LinkLines {
                name: self.line(&span),
                congestion: congestion_line,
                cap,
            });
            configs.push(LinkConfig {
                name,
                congestion,
                carriers,
                policy,
            });
        }
        (is_said.then_some(configs), lines)
    }

    /// The policy of a `[[link]]` block. Each value is checked alone, so that its error has its
    /// line.
    fn policy(&mut self, block: &raw::Link) -> LinkPolicy {
        let size = |s: &String| units::parse_size(s);
        let limit = |s: &String| {
            let limit = units::parse_rate(s).map_err(|error| error.to_string())?;
            let policy = LinkPolicy {
                send_limit: Some(limit),
                ..LinkPolicy::default()
            };
            checked(policy).map(|policy| policy.send_limit)
        };
        let default = LinkPolicy::default();
        LinkPolicy {
            label: self
                .parse(block.label.clone(), |label| {
                    let label = label.clone();
                    let policy = LinkPolicy {
                        label,
                        ..LinkPolicy::default()
                    };
                    checked(policy).map(|policy| policy.label)
                })
                .unwrap_or_default(),
            priority: self.parse(block.priority.clone(), |s| parse_priority(s)),
            metered: block
                .metered
                .as_ref()
                .is_some_and(|metered| *metered.get_ref()),
            direction: self
                .parse(block.direction.clone(), |s| parse_direction(s))
                .unwrap_or_default(),
            send_limit: self.parse(block.send_limit.clone(), limit).flatten(),
            receive_limit: self.parse(block.receive_limit.clone(), limit).flatten(),
            max_added_latency: self
                .parse(block.max_added_latency.clone(), |s| {
                    let latency = units::parse_duration(s).map_err(|error| error.to_string())?;
                    let policy = LinkPolicy {
                        max_added_latency: Some(latency),
                        ..LinkPolicy::default()
                    };
                    checked(policy).map(|policy| policy.max_added_latency)
                })
                .flatten(),
            cap_day: self.parse(block.cap_day.clone(), size),
            cap_month: self.parse(block.cap_month.clone(), size),
            reset_day: self
                .parse(block.reset_day.clone(), |day| parse_day(*day))
                .unwrap_or(default.reset_day),
            beyond: self
                .parse(block.beyond.clone(), |s| {
                    let policy = LinkPolicy {
                        beyond: read_beyond(s)?,
                        ..LinkPolicy::default()
                    };
                    checked(policy).map(|policy| policy.beyond)
                })
                .unwrap_or_default(),
        }
    }

    /// A number, or the word `auto`.
    pub(super) fn carriers(&mut self, field: Field<toml::Value>) -> Option<Carriers> {
        self.parse(field, |value| match value {
            toml::Value::String(text) => parse_carriers(text),
            other => parse_carriers(&other.to_string()),
        })
    }
}

/// The policy, if all its values are in range.
fn checked(policy: LinkPolicy) -> Result<LinkPolicy, String> {
    match policy.check() {
        Ok(()) => Ok(policy),
        Err(error) => Err(error.to_string()),
    }
}

/// The day of the month on which a new month begins.
fn parse_day(day: i64) -> Result<u8, &'static str> {
    let day = u8::try_from(day).ok().filter(|day| (1..=31).contains(day));
    day.ok_or("write a day of the month, 1 to 31")
}
