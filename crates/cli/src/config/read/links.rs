//! `links` and the `[[link]]` blocks: the interfaces to use and their policies.

use sumlink_settings::units;
use sumlink_transport::LinkPolicy;
use sumlink_transport::config::{Carriers, LinkConfig};
use sumlink_transport::policy::{parse_direction, parse_priority};

use super::super::raw::{self, Field};
use super::super::{parse_carriers, parse_congestion, parse_link};
use super::Reader;
use crate::link::read_beyond;

impl Reader<'_> {
    /// Every interface, or those of the blocks with their lines; `None` if the file names none.
    pub(super) fn links(
        &mut self,
        links: Field<String>,
        blocks: Vec<raw::Link>,
    ) -> (Option<Vec<LinkConfig>>, Vec<usize>) {
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
            let congestion = self.parse(block.congestion, |s| parse_congestion(s));
            let carriers = self.carriers(block.carriers);
            let Some(name) = self.parse(Some(block.name), |s| parse_link(s)) else {
                continue;
            };
            if configs.iter().any(|config| config.name == name) {
                self.problem(span, format!("link `{name}` occurs twice: remove one"));
                continue;
            }
            lines.push(self.line(&span));
            configs.push(LinkConfig {
                name,
                congestion,
                carriers,
                policy,
            });
        }
        (is_said.then_some(configs), lines)
    }

    /// The policy of a `[[link]]` block.
    fn policy(&mut self, block: &raw::Link) -> LinkPolicy {
        let before = self.problems.len();
        let rate = |s: &String| units::parse_rate(s);
        let size = |s: &String| units::parse_size(s);
        let default = LinkPolicy::default();
        let policy = LinkPolicy {
            label: block
                .label
                .as_ref()
                .map(|label| label.get_ref().clone())
                .unwrap_or_default(),
            priority: self.parse(block.priority.clone(), |s| parse_priority(s)),
            metered: block
                .metered
                .as_ref()
                .is_some_and(|metered| *metered.get_ref()),
            direction: self
                .parse(block.direction.clone(), |s| parse_direction(s))
                .unwrap_or_default(),
            send_limit: self.parse(block.send_limit.clone(), rate),
            receive_limit: self.parse(block.receive_limit.clone(), rate),
            max_added_latency: self.parse(block.max_added_latency.clone(), |s| {
                units::parse_duration(s)
            }),
            cap_day: self.parse(block.cap_day.clone(), size),
            cap_month: self.parse(block.cap_month.clone(), size),
            reset_day: self
                .parse(block.reset_day.clone(), |day| parse_day(*day))
                .unwrap_or(default.reset_day),
            beyond: self
                .parse(block.beyond.clone(), |s| read_beyond(s))
                .unwrap_or_default(),
        };
        if self.problems.len() == before
            && let Err(error) = policy.check()
        {
            self.problem(block.name.span(), error);
        }
        policy
    }

    /// A number, or the word `auto`.
    pub(super) fn carriers(&mut self, field: Field<toml::Value>) -> Option<Carriers> {
        self.parse(field, |value| match value {
            toml::Value::String(text) => parse_carriers(text),
            other => parse_carriers(&other.to_string()),
        })
    }
}

/// The day of the month on which a new month begins.
fn parse_day(day: i64) -> Result<u8, &'static str> {
    let day = u8::try_from(day).ok().filter(|day| (1..=31).contains(day));
    day.ok_or("write a day of the month, 1 to 31")
}
