//! What is compared, by name.

use std::collections::BTreeMap;

use sumlink_engine::{Class, scheduler};

use crate::scenario::parse_congestion;

/// The systems of a scenario that names none.
pub const DEFAULT: [&str; 4] = ["alone", "simultaneous", "mptcp", "sumlink:fbdt"];

/// Every form of a name, for messages.
const FORMS: &str = "alone, simultaneous, mptcp, mptcp+tls, \
    sumlink:SCHEDULER[:CLASS=SCHEDULER]...[+CONGESTION[+CARRIERS]], library:SCHEDULER, aggligator, noq";

/// A way to carry traffic over several links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// Each link by itself, one after the other.
    Alone,
    /// An independent TCP connection on every link, all at once.
    Simultaneous,
    /// The kernel's MPTCP, perhaps with TLS in the programs.
    Mptcp {
        /// With it.
        tls: bool,
    },
    /// The program of that name.
    Aggligator,
    /// The library of that name.
    Noq,
    /// sumlink's library in the traffic's programs, with that scheduler.
    Library(String),
    /// sumlink's daemon.
    Sumlink(Variant),
}

/// How sumlink is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Name of the scheduler.
    pub scheduler: String,
    /// Those of classes with another one.
    pub class_schedulers: BTreeMap<Class, String>,
    /// Congestion control of its carriers, instead of the scenario's.
    pub congestion: Option<String>,
    /// Connections over each link, as `--carriers` takes them: a number from 1 to 8, or `auto`.
    pub carriers: Option<String>,
}

impl System {
    /// The system of that name; the error says what there is.
    pub fn parse(name: &str) -> Result<Self, String> {
        Self::parse_with(name, &[])
    }

    /// The same, with schedulers of the caller's own beside those of the engine.
    pub fn parse_with(name: &str, own: &[&str]) -> Result<Self, String> {
        match name {
            "alone" => return Ok(Self::Alone),
            "simultaneous" => return Ok(Self::Simultaneous),
            "mptcp" => return Ok(Self::Mptcp { tls: false }),
            "mptcp+tls" => return Ok(Self::Mptcp { tls: true }),
            "aggligator" => return Ok(Self::Aggligator),
            "noq" => return Ok(Self::Noq),
            _ => {}
        }
        if let Some(scheduler) = name.strip_prefix("library:") {
            return known(scheduler, &[]).map(|name| Self::Library(name.to_owned()));
        }
        let Some(variant) = name.strip_prefix("sumlink:") else {
            return Err(format!("there is no system '{name}' (systems: {FORMS})"));
        };
        Variant::parse(variant, own).map(Self::Sumlink)
    }
}

impl Variant {
    /// `SCHEDULER[:CLASS=SCHEDULER]...[+CONGESTION[+CARRIERS]]`, with schedulers of the engine's or of `own`.
    pub fn parse(variant: &str, own: &[&str]) -> Result<Self, String> {
        let mut parts = variant.splitn(3, '+');
        let schedulers = parts.next().unwrap_or_default();
        let congestion = parts.next().map(parse_congestion).transpose()?;
        let carriers = parts.next().map(parse_carriers).transpose()?;
        let mut parts = schedulers.split(':');
        let scheduler = known(parts.next().unwrap_or_default(), own)?;
        let class_schedulers = parts.map(|part| {
            let (class, name) = part.split_once('=').unwrap_or((part, ""));
            let Some(class) = Class::from_name(class) else {
                let classes = Class::ALL.map(Class::name).join(", ");
                return Err(format!("there is no class '{class}' (classes: {classes})"));
            };
            known(name, own).map(|name| (class, name.to_owned()))
        });
        Ok(Self {
            scheduler: scheduler.to_owned(),
            class_schedulers: class_schedulers.collect::<Result<_, _>>()?,
            congestion,
            carriers,
        })
    }

    /// Why it cannot go over so many links; `None` when it can.
    pub fn missing(&self, links: usize) -> Option<String> {
        let limits = [&self.scheduler]
            .into_iter()
            .chain(self.class_schedulers.values());
        let (most, name) = limits
            .filter_map(|name| Some((scheduler::most_paths(name)?, name)))
            .min()?;
        (links > most).then(|| format!("the scheduler {name} takes {most} paths, not {links}"))
    }
}

/// A scheduler by its name.
fn known<'a>(scheduler: &'a str, own: &[&str]) -> Result<&'a str, String> {
    if scheduler::NAMES.contains(&scheduler) || own.contains(&scheduler) {
        return Ok(scheduler);
    }
    let names = [scheduler::NAMES, own].concat().join(", ");
    Err(format!(
        "sumlink has no scheduler '{scheduler}' (schedulers: {names})"
    ))
}

/// What `--carriers` takes.
fn parse_carriers(text: &str) -> Result<String, String> {
    let number = text
        .parse()
        .is_ok_and(|number: u32| (1..=8).contains(&number));
    if number || text == "auto" {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "'{text}' is no number of carriers: 1 to 8, or auto"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_mistakes() {
        for name in DEFAULT {
            assert!(System::parse(name).is_ok(), "{name}");
        }
        for scheduler in scheduler::NAMES {
            assert!(System::parse(&format!("sumlink:{scheduler}")).is_ok());
        }
        assert!(System::parse("sumlink:minrtt+bbr").is_ok());
        assert!(System::parse("sumlink:fbdt:conversational=redundant:streaming=ecf+bbr").is_ok());
        assert!(System::parse("sumlink:minrtt+bbr+4").is_ok());
        assert!(System::parse("sumlink:minrtt+auto+auto").is_ok());
        assert!(System::parse("mptcp+tls").is_ok() && System::parse("library:fbdt").is_ok());
        assert!(System::parse_with("sumlink:mine:streaming=ecf", &["mine"]).is_ok());
        let error = |name: &str| System::parse(name).err().unwrap_or_default();
        assert!(error("tcp").contains("there is no system 'tcp'"));
        assert!(error("sumlink:fbtd").contains("no scheduler 'fbtd'"));
        assert!(error("library:fbtd").contains("no scheduler 'fbtd'"));
        assert!(error("sumlink:fbdt:bulk=ecf").contains("no class 'bulk'"));
        assert!(error("sumlink:fbdt:streaming").contains("no scheduler ''"));
        assert!(error("sumlink:fbdt+no good").contains("congestion control"));
        assert!(error("sumlink:fbdt+bbr+9").contains("1 to 8, or auto"));
    }
}
