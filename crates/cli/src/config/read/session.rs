//! `[session]`, which client and server share: scheduling, windows by class, redundancy, window
//! scaling.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_settings::units;
use sumlink_transport::FbdtConfig;
use sumlink_transport::udp::MIN_IDLE;
use toml::Spanned;

use super::super::raw::{self, Field};
use super::super::schedulers::parse_scheduler;
use super::super::settings::SessionSettings;
use super::super::{parse_datagram_policy, parse_selector};
use super::Reader;
use super::ends::{parse_byte_rate, parse_idle};

impl Reader<'_> {
    pub(super) fn session(&mut self, raw: raw::Session, own: &OwnSchedulers) -> SessionSettings {
        let memory = raw.memory.as_ref().map(Spanned::span);
        let stream_memory = raw.stream_memory.as_ref().map(Spanned::span);
        let max_streams = raw.max_streams.as_ref().map(Spanned::span);
        let mut class_schedulers = BTreeMap::new();
        for (class, name) in raw.schedulers.into_all() {
            if let Some(name) = self.parse(name, |s| parse_scheduler(s, own)) {
                class_schedulers.insert(class, name);
            }
        }
        let mut session = SessionSettings {
            scheduler: self.parse(raw.scheduler, |s| parse_scheduler(s, own)),
            class_schedulers,
            own_schedulers: own.clone(),
            selector: self.parse(raw.selector, |s| {
                parse_selector(s).map_err(|error| error.trim_start_matches("selector: ").to_owned())
            }),
            memory: self.parse(raw.memory, |s| units::parse_size(s)),
            stream_memory: self.parse(raw.stream_memory, |s| units::parse_size(s)),
            max_streams: self.parse(raw.max_streams, |n| {
                u64::try_from(*n).map_err(|_| "write a positive number")
            }),
            timeout: self.parse(raw.timeout, |s| parse_timeout(s)),
            ..SessionSettings::default()
        };
        self.datagrams(&mut session, raw.datagrams);
        let budget = raw.redundancy;
        let mut fields: Vec<(String, Field<String>)> = [
            ("coupling", raw.coupling),
            ("alpha", raw.alpha.map(text_of)),
            ("beta", raw.beta.map(text_of)),
            ("redundancy.share", budget.share),
            ("redundancy.floor", budget.floor),
            ("redundancy.refill", budget.refill),
            ("redundancy.advance", budget.advance),
        ]
        .map(|(key, field)| (key.to_owned(), field))
        .into();
        let races = raw.race.into_all().into_iter();
        fields.extend(races.map(|(class, field)| (format!("race.{}", class.name()), field)));
        self.options(&mut session, fields);
        self.windows(&mut session, raw.windows);
        // The session checks the values, alone and together. It reports one problem at a time, so
        // the reported one is put aside for the next.
        let is_invalid = memory.is_some() && session.memory.is_none();
        while let Err(error) = session.check() {
            let place = match error {
                sumlink_engine::ConfigError::MaxStreams(_) if session.max_streams.is_some() => {
                    session.max_streams = None;
                    max_streams.clone()
                }
                // There is no memory to compare the others with.
                _ if is_invalid => break,
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

    fn datagrams(&mut self, session: &mut SessionSettings, raw: raw::Datagrams) {
        let config = &mut session.datagrams;
        session.datagram_policy = self.parse(raw.policy, |s| parse_datagram_policy(s));
        for (class, policy) in raw.policies.into_all() {
            if let Some(policy) = self.parse(policy, |s| parse_datagram_policy(s)) {
                session.datagram_policies.insert(class, policy);
            }
        }
        let max_flows = self.parse(raw.max_flows, |n| match usize::try_from(*n) {
            Ok(flows @ 1..=65_536) => Ok(flows),
            _ => Err("write a number from 1 to 65536"),
        });
        config.max_flows = max_flows.unwrap_or(config.max_flows);
        let idle = self.parse(raw.idle, |s| parse_idle(s, MIN_IDLE));
        config.idle_timeout = idle.unwrap_or(config.idle_timeout);
        let yields = raw.yield_to_calls.map(Spanned::into_inner);
        config.yield_to_calls = yields.unwrap_or(config.yield_to_calls);
        let copies = &mut config.duplicates;
        let links = self.parse(raw.copies.links, |n| match usize::try_from(*n) {
            Ok(links @ 2..=8) => Ok(links),
            _ => Err("write a number from 2 to 8"),
        });
        copies.links = links.unwrap_or(copies.links);
        let rate = self.parse(raw.copies.flow_rate, |s| parse_byte_rate(s));
        copies.flow_rate = rate.map_or(copies.flow_rate, NonZeroU64::get);
        let share = self.parse(raw.copies.link_share, |s| units::parse_percentage(s));
        copies.link_share = share.unwrap_or(copies.link_share);
        let metered = raw.copies.metered.map(Spanned::into_inner);
        copies.metered = metered.unwrap_or(copies.metered);
    }

    /// Sets budget, windows, races and window scaling, and notes their lines. Reports one problem
    /// of an impossible window.
    fn options(&mut self, session: &mut SessionSettings, fields: Vec<(String, Field<String>)>) {
        for (key, field) in fields {
            let Some(field) = field else { continue };
            let set = session.options.set(&key, field.get_ref());
            let line = self.line(&field.span());
            session.lines.insert(key, line);
            if let Err(reason) = set {
                self.wrong_value(field.span(), reason);
            }
        }
    }

    fn windows(&mut self, session: &mut SessionSettings, raw: raw::OfClasses<raw::Window>) {
        for (class, window) in raw.into_all() {
            let fields = [
                ("least", window.least),
                ("most", window.most),
                ("products", window.products.map(text_of)),
            ];
            let place = fields
                .iter()
                .find_map(|(_, field)| Some(field.as_ref()?.span()));
            let fields =
                fields.map(|(key, field)| (format!("windows.{}.{key}", class.name()), field));
            let before = self.problems.len();
            self.options(session, fields.into());
            let checked = session.options.check_window(class);
            if let Err(error) = checked {
                if self.problems.len() == before {
                    self.wrong_value(place.unwrap_or(0..0), error);
                }
                // This problem is reported; the rest is checked together.
                session.options.fbdt.windows = FbdtConfig::default().windows;
            }
        }
    }
}

/// A number as its text.
fn text_of(number: Spanned<f64>) -> Spanned<String> {
    Spanned::new(number.span(), number.get_ref().to_string())
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = units::parse_duration(text).map_err(|error| error.to_string())?;
    if (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&timeout) {
        Ok(timeout)
    } else {
        Err(format!("`{text}` is out of range: write 1s to 86400s"))
    }
}
