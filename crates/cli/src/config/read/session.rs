//! `[session]`, which client and server share: scheduling, windows by class, redundancy, coupling.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use sumlink_lab::session::{check_factor, parse_advance, parse_budget, parse_coupling};
use sumlink_lab::units;
use sumlink_transport::config::SessionConfig;
use sumlink_transport::{Coupling, FbdtConfig, Redundancy, WindowRule};
use toml::Spanned;

use super::super::raw::{self, Field};
use super::super::settings::SessionSettings;
use super::super::{parse_scheduler, parse_selector};
use super::Reader;

impl Reader<'_> {
    pub(super) fn session(&mut self, raw: raw::Session) -> SessionSettings {
        let said = self.said(&raw);
        let memory = raw.memory.as_ref().map(Spanned::span);
        let stream_memory = raw.stream_memory.as_ref().map(Spanned::span);
        let max_streams = raw.max_streams.as_ref().map(Spanned::span);
        let mut class_schedulers = BTreeMap::new();
        for (class, name) in raw.schedulers.into_all() {
            if let Some(name) = self.parse(name, |s| parse_scheduler(s)) {
                class_schedulers.insert(class, name);
            }
        }
        let mut session = SessionSettings {
            scheduler: self.parse(raw.scheduler, |s| parse_scheduler(s)),
            class_schedulers,
            selector: self.parse(raw.selector, |s| parse_selector(s)),
            memory: self.parse(raw.memory, |s| units::parse_size(s)),
            stream_memory: self.parse(raw.stream_memory, |s| units::parse_size(s)),
            max_streams: self.parse(raw.max_streams, |n| {
                u64::try_from(*n).map_err(|_| "write a positive number")
            }),
            timeout: self.parse(raw.timeout, |s| parse_timeout(s)),
            redundancy: self.redundancy(raw.redundancy),
            fbdt: FbdtConfig {
                windows: self.windows(raw.windows),
                race: self.race(raw.race),
                coupling: self.coupling(raw.coupling, raw.alpha, raw.beta),
            },
            said,
        };
        // What the values must be, alone and together, the session knows. It tells one thing at a time: what it has told
        // of is put aside for the next.
        let is_unread = memory.is_some() && session.memory.is_none();
        while let Err(error) = session.check() {
            let place = match error {
                sumlink_engine::ConfigError::MaxStreams(_) if session.max_streams.is_some() => {
                    session.max_streams = None;
                    max_streams.clone()
                }
                // There is nothing to compare the others with.
                _ if is_unread => break,
                sumlink_engine::ConfigError::StreamMemory if session.stream_memory.is_some() => {
                    session.stream_memory = None;
                    stream_memory.clone()
                }
                _ => {
                    self.problem(memory.or(max_streams).unwrap_or(0..0), error);
                    break;
                }
            };
            self.problem(place.unwrap_or(0..0), error);
        }
        session
    }

    /// The settings that are not read with every scheduler, and their lines.
    fn said(&self, raw: &raw::Session) -> Vec<(usize, String)> {
        let mut said = Vec::new();
        let mut note = |key: &str, span: Option<Range<usize>>| {
            said.extend(span.map(|span| (self.line(&span), key.to_owned())));
        };
        note("coupling", raw.coupling.as_ref().map(Spanned::span));
        note("alpha", raw.alpha.as_ref().map(Spanned::span));
        note("beta", raw.beta.as_ref().map(Spanned::span));
        let budget = &raw.redundancy;
        for (key, field) in [
            ("share", &budget.share),
            ("floor", &budget.floor),
            ("refill", &budget.refill),
            ("advance", &budget.advance),
        ] {
            let key = format!("redundancy.{key}");
            note(&key, field.as_ref().map(Spanned::span));
        }
        for (class, field) in raw.race.all() {
            let key = format!("race.{}", class.name());
            note(&key, field.as_ref().map(Spanned::span));
        }
        for (class, rule) in raw.windows.all() {
            let of = |key: &str| format!("windows.{}.{key}", class.name());
            note(&of("products"), rule.products.as_ref().map(Spanned::span));
            note(&of("least"), rule.least.as_ref().map(Spanned::span));
            note(&of("most"), rule.most.as_ref().map(Spanned::span));
        }
        said
    }

    fn redundancy(&mut self, raw: raw::Redundancy) -> Redundancy {
        let default = Redundancy::default();
        let share = self.parse(raw.share, |s| units::parse_percentage(s));
        let advance = self.parse(raw.advance, |s| parse_advance(s));
        let mut size = |field: Field<String>, default| {
            let said = self.parse(field, |s| parse_budget(s));
            said.unwrap_or(default)
        };
        Redundancy {
            share: share.unwrap_or(default.share),
            floor: size(raw.floor, default.floor),
            refill: size(raw.refill, default.refill),
            advance: advance.unwrap_or(default.advance),
        }
    }

    /// Window rules in the order of the classes; of a rule that cannot work one thing is told.
    fn windows(&mut self, raw: raw::OfClasses<raw::Window>) -> [WindowRule; 4] {
        let mut windows = FbdtConfig::default().windows;
        for (rule, (_, raw)) in windows.iter_mut().zip(raw.into_all()) {
            let spans = [
                raw.least.as_ref().map(Spanned::span),
                raw.most.as_ref().map(Spanned::span),
                raw.products.as_ref().map(Spanned::span),
            ];
            let told = self.problems.len();
            let said = WindowRule {
                products: raw
                    .products
                    .map_or(rule.products, |field| field.into_inner()),
                least: self
                    .parse(raw.least, |s| units::parse_size(s))
                    .unwrap_or(rule.least),
                most: self
                    .parse(raw.most, |s| units::parse_size(s))
                    .unwrap_or(rule.most),
            };
            if self.problems.len() > told {
                continue;
            }
            match check_window(said) {
                Ok(()) => *rule = said,
                Err(error) => {
                    let place = spans.into_iter().flatten().next();
                    self.problem(place.unwrap_or(0..0), error);
                }
            }
        }
        windows
    }

    fn race(&mut self, raw: raw::OfClasses<Field<String>>) -> [u64; 4] {
        let mut race = FbdtConfig::default().race;
        for (bytes, (_, field)) in race.iter_mut().zip(raw.into_all()) {
            if let Some(said) = self.parse(field, |s| units::parse_size(s)) {
                *bytes = said;
            }
        }
        race
    }

    fn coupling(&mut self, word: Field<String>, alpha: Field<f64>, beta: Field<f64>) -> Coupling {
        let factors = alpha.as_ref().or(beta.as_ref()).map(Spanned::span);
        let alpha = self.parse(alpha, |factor| check_factor(*factor));
        let beta = self.parse(beta, |factor| check_factor(*factor));
        let Some(word) = word else {
            // One of them alone leaves the other windows as they are.
            return match factors {
                Some(_) => Coupling::Scaled {
                    alpha: alpha.unwrap_or(1.0),
                    beta: beta.unwrap_or(1.0),
                },
                None => Coupling::default(),
            };
        };
        if let Some(span) = factors {
            let reason =
                "`coupling` and the factors `alpha`, `beta` contradict each other: remove one";
            self.problem(span, reason);
        }
        self.parse(Some(word), |word| parse_coupling(word))
            .unwrap_or_default()
    }
}

/// Whether the engine would take it.
fn check_window(rule: WindowRule) -> Result<(), sumlink_engine::ConfigError> {
    let mut session = SessionConfig::default();
    session.fbdt.windows = [rule; 4];
    session.check()
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = units::parse_duration(text).map_err(|error| error.to_string())?;
    if (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&timeout) {
        Ok(timeout)
    } else {
        Err(format!("`{text}` is out of range: write 1s to 86400s"))
    }
}
