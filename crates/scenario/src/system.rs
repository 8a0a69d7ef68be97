//! The systems under comparison, by name.

mod gateway;

use std::collections::BTreeMap;

use sumlink_engine::{Class, DatagramPolicy, Role, SelectorConfig};
use sumlink_schedulers::{NAMES, all};

use crate::edge::EdgeVariant;
use crate::scenario::{Scenario, parse_congestion};
use sumlink_settings::session::SessionOptions;

pub use gateway::{Capture, GatewayVariant, with_socks};

/// The systems of a scenario that names none.
pub const DEFAULT: [&str; 4] = ["alone", "simultaneous", "mptcp", "sumlink:fbdt"];

/// All forms of a name, for messages.
const FORMS: &str = "alone, simultaneous, mptcp[+tls][@SELECTOR], \
    sumlink:SCHEDULER[:CLASS=SCHEDULER]...[:SETTING=VALUE]...[@SELECTOR][+CONGESTION[+CARRIERS]][+early], \
    library:SCHEDULER[:CLASS=SCHEDULER]...[:SETTING=VALUE]..., aggligator, noq, wireguard, \
    lwip|lwa|lwip+visible[:STEERING][@PARAMETER=VALUE[:PARAMETER=VALUE]...]";

/// A way to carry traffic over several links.
#[derive(Clone, Debug, PartialEq)]
pub enum System {
    /// Each link alone, one after the other.
    Alone,
    /// An independent TCP connection on every link, all at once.
    Simultaneous,
    /// The kernel's MPTCP, optionally with TLS in the programs.
    Mptcp {
        /// With TLS.
        tls: bool,
        /// Makes subflows backups and active again: `base` or `global`.
        selector: Option<SelectorConfig>,
    },
    /// The program of that name.
    Aggligator,
    /// The library of that name.
    Noq,
    /// A WireGuard tunnel over the fastest link.
    WireGuard,
    /// sumlink's library in the traffic programs: a [`Variant`]'s name up to its settings.
    Library(String),
    /// sumlink's daemon.
    Sumlink(Box<Variant>),
    /// An edge node before the links, transparent to both ends.
    Edge(Box<EdgeVariant>),
}

/// Configuration of sumlink.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Name of the scheduler.
    pub scheduler: String,
    /// Schedulers of individual classes.
    pub class_schedulers: BTreeMap<Class, String>,
    /// Further settings of its sessions, at both ends.
    pub options: SessionOptions,
    /// The selector of paths; `None` means the scenario's or the default.
    pub selector: Option<SelectorConfig>,
    /// Congestion control of its carriers, instead of the scenario's.
    pub congestion: Option<String>,
    /// Connections over each link, in the format of `--carriers`: a number from 1 to 8, or `auto`.
    pub carriers: Option<String>,
    /// The proxy answers before the server has connected to the target, as with `--early always`.
    pub early: bool,
    /// What happens to datagrams.
    pub datagrams: DatagramVariant,
    /// How the traffic of a LAN reaches sumlink.
    pub gateway: GatewayVariant,
}

/// How sumlink carries datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatagramVariant {
    /// The policy at both ends; the default if `None`.
    pub policy: Option<DatagramPolicy>,
    /// Both ends use no UDP among themselves, as with `--udp off`.
    pub without_udp: bool,
    /// Streams do not yield to calls, as with `yield_to_calls = false`.
    pub ignores_calls: bool,
    /// A firewall at the client drops UDP.
    pub blocked: Option<Blocked>,
}

/// The links on which a firewall drops UDP in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Every link.
    All,
    /// The link of that name.
    Link(String),
}

impl DatagramVariant {
    /// Sets a value; `None` if the key is not about datagrams.
    fn set(&mut self, key: &str, value: &str) -> Option<Result<(), String>> {
        match key {
            "datagrams" => Some(parse_policy(value).map(|policy| self.policy = Some(policy))),
            "udp" => Some(match value {
                "on" | "off" => {
                    self.without_udp = value == "off";
                    Ok(())
                }
                _ => Err("expected on or off".to_owned()),
            }),
            "yield" => Some(match value {
                "on" | "off" => {
                    self.ignores_calls = value == "off";
                    Ok(())
                }
                _ => Err("expected on or off".to_owned()),
            }),
            "blocked" => {
                self.blocked = Some(match value {
                    "all" => Blocked::All,
                    link => Blocked::Link(link.to_owned()),
                });
                Some(match value {
                    "" => Err("expected all, or the name of a link".to_owned()),
                    _ => Ok(()),
                })
            }
            _ => None,
        }
    }
}

fn parse_policy(name: &str) -> Result<DatagramPolicy, String> {
    DatagramPolicy::by_name(name)
        .ok_or_else(|| format!("'{name}' is none of auto, pinned, spread, duplicate"))
}

impl System {
    /// The system of that name; the error lists the forms.
    pub fn parse(name: &str) -> Result<Self, String> {
        Self::parse_with(name, &[])
    }

    /// The same, with custom schedulers in addition to those of the engine and of
    /// `sumlink-schedulers`.
    pub fn parse_with(name: &str, own: &[&str]) -> Result<Self, String> {
        match name {
            "alone" => return Ok(Self::Alone),
            "simultaneous" => return Ok(Self::Simultaneous),
            "aggligator" => return Ok(Self::Aggligator),
            "noq" => return Ok(Self::Noq),
            "wireguard" => return Ok(Self::WireGuard),
            _ => {}
        }
        if let Some(mptcp) = parse_mptcp(name) {
            return mptcp;
        }
        if let Some(node) = EdgeVariant::parse(name) {
            return node.map(|variant| Self::Edge(Box::new(variant)));
        }
        if let Some(variant) = name.strip_prefix("library:") {
            // Everything after an option is for the daemon.
            if let Some(at) = variant.find(['@', '+']) {
                let rest = &variant[at..];
                return Err(format!(
                    "'{rest}' is for the daemon (sumlink:...), not for the library"
                ));
            }
            return Variant::parse(variant, &[]).map(|_| Self::Library(variant.to_owned()));
        }
        let Some(variant) = name.strip_prefix("sumlink:") else {
            return Err(format!("there is no system '{name}' (systems: {FORMS})"));
        };
        Variant::parse(variant, own).map(|variant| Self::Sumlink(Box::new(variant)))
    }

    /// The system under a scenario; the scenario's selector applies if the system names none.
    #[must_use]
    pub fn under(mut self, scenario: &Scenario) -> Self {
        if let Self::Sumlink(variant) = &mut self
            && variant.selector.is_none()
        {
            variant.selector.clone_from(&scenario.selector);
        }
        self
    }

    /// The name of the same system with a selector, for systems that accept one and name none.
    pub fn name_with_selector(name: &str, selector: &SelectorConfig) -> String {
        if !name.starts_with("sumlink:") || name.contains('@') {
            return name.to_owned();
        }
        let (head, tail) = name.split_at(name.find('+').unwrap_or(name.len()));
        format!("{head}@{selector}{tail}")
    }
}

impl Variant {
    /// `SCHEDULER[:CLASS=SCHEDULER]...[:SETTING=VALUE]...[@SELECTOR][+CONGESTION[+CARRIERS]][+early]`,
    /// with the schedulers in [`NAMES`] or in `own`, and the settings of [`SessionOptions`].
    ///
    /// # Errors
    ///
    /// The problem, and the possible choices.
    pub fn parse(variant: &str, own: &[&str]) -> Result<Self, String> {
        let late = variant.strip_suffix("+early");
        let mut parts = late.unwrap_or(variant).splitn(3, '+');
        let schedulers = parts.next().unwrap_or_default();
        let congestion = parts.next().map(parse_congestion).transpose()?;
        let carriers = parts.next().map(parse_carriers).transpose()?;
        let (schedulers, selector) = match schedulers.split_once('@') {
            Some((schedulers, selector)) => (schedulers, Some(parse_selector(selector)?)),
            None => (schedulers, None),
        };
        let mut parts = schedulers.split(':');
        let scheduler = known(parts.next().unwrap_or_default(), own)?;
        let mut class_schedulers = BTreeMap::new();
        let mut options = SessionOptions::default();
        let mut datagrams = DatagramVariant::default();
        let mut gateway = GatewayVariant::default();
        for part in parts {
            let (key, name) = part.split_once('=').unwrap_or((part, ""));
            if let Some(set) = datagrams.set(key, name) {
                set.map_err(|reason| format!("{key}: {reason}"))?;
                continue;
            }
            if let Some(set) = gateway.set(key, name) {
                set.map_err(|reason| format!("{key}: {reason}"))?;
                continue;
            }
            let Some(class) = Class::from_name(key) else {
                let set = options.set(key, name);
                set.map_err(|reason| format!("{key}: {reason}"))?;
                continue;
            };
            let name = known(name, own)?.to_owned();
            if class_schedulers.insert(class, name).is_some() {
                return Err(format!(
                    "the class '{}' has two schedulers: remove one",
                    class.name()
                ));
            }
        }
        for class in Class::ALL {
            let checked = options.check_window(class);
            checked.map_err(|error| format!("windows.{}: {error}", class.name()))?;
        }
        let of_class = |class| {
            class_schedulers
                .get(&class)
                .map_or(scheduler, String::as_str)
        };
        if let Some(key) = options.unused(of_class, &all()).next() {
            return Err(format!(
                "'{key}' has no effect: no scheduler of this system reads it"
            ));
        }
        Ok(Self {
            scheduler: scheduler.to_owned(),
            class_schedulers,
            options,
            selector,
            congestion,
            carriers,
            early: late.is_some(),
            datagrams,
            gateway,
        })
    }

    /// Why it does not support this number of links; `None` if it does.
    pub fn missing(&self, links: usize) -> Option<String> {
        let limits = [&self.scheduler]
            .into_iter()
            .chain(self.class_schedulers.values());
        let research = all();
        let (most, name) = limits
            .filter_map(|name| Some((research.max_paths(name, Role::Client)?, name)))
            .min()?;
        (links > most).then(|| format!("the scheduler {name} takes {most} paths, not {links}"))
    }
}

/// A scheduler by its name.
fn known<'a>(scheduler: &'a str, own: &[&str]) -> Result<&'a str, String> {
    if NAMES.contains(&scheduler) || own.contains(&scheduler) {
        return Ok(scheduler);
    }
    let names = [&NAMES, own].concat().join(", ");
    Err(format!(
        "sumlink has no scheduler '{scheduler}' (schedulers: {names})"
    ))
}

/// A selector with its parameters.
pub fn parse_selector(text: &str) -> Result<SelectorConfig, String> {
    let parsed = text.parse::<SelectorConfig>();
    parsed.map_err(|error| error.to_string())
}

/// `mptcp[+tls][@SELECTOR]`; `None` for other systems.
fn parse_mptcp(name: &str) -> Option<Result<System, String>> {
    let (system, selector) = match name.split_once('@') {
        Some((system, selector)) => (system, Some(selector)),
        None => (name, None),
    };
    let tls = match system {
        "mptcp" => false,
        "mptcp+tls" => true,
        _ => return None,
    };
    let selector = match selector.map(parse_selector).transpose() {
        Ok(selector) => selector,
        Err(error) => return Some(Err(error)),
    };
    Some(match &selector {
        Some(config) if !["base", "global"].contains(&config.name.as_str()) => {
            Err(format!("'{name}': the selector of mptcp is base or global"))
        }
        _ => Ok(System::Mptcp { tls, selector }),
    })
}

/// Parses a value of `--carriers`.
fn parse_carriers(text: &str) -> Result<String, String> {
    let number = text
        .parse()
        .is_ok_and(|number: u32| (1..=8).contains(&number));
    if number || text == "auto" {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "'{text}' is not a number of carriers: 1 to 8, or auto"
        ))
    }
}

#[cfg(test)]
mod tests {
    use sumlink_engine::scheduler::fbdt::Coupling;

    use super::*;
    use crate::edge::Hosts;

    #[test]
    fn a_selector_is_added_to_names_that_support_one() {
        let selector = "base:alpha=0.1".parse().unwrap();
        let named = |name: &str| System::name_with_selector(name, &selector);
        assert_eq!(named("sumlink:fbdt"), "sumlink:fbdt@base:alpha=0.1");
        assert_eq!(named("sumlink:fbdt+bbr"), "sumlink:fbdt@base:alpha=0.1+bbr");
        assert_eq!(named("sumlink:fbdt@none"), "sumlink:fbdt@none");
        assert_eq!(named("mptcp"), "mptcp");
    }

    #[test]
    fn the_selector_of_a_scenario_applies_to_systems_that_name_none() {
        let text = "name = \"a\"\nduration = \"5s\"\nselector = \"global\"\n\
                    [[link]]\nname = \"wifi\"\nrate = \"1mbit\"\n";
        let scenario = Scenario::parse(std::path::Path::new("s.toml"), text).unwrap();
        for (name, selector) in [("sumlink:fbdt", "global"), ("sumlink:fbdt@base", "base")] {
            let System::Sumlink(variant) = System::parse(name).unwrap().under(&scenario) else {
                panic!("{name}");
            };
            assert_eq!(
                variant.selector.map(|config| config.to_string()).as_deref(),
                Some(selector)
            );
        }
        let problems = Scenario::parse(
            std::path::Path::new("s.toml"),
            &text.replace("global", "all"),
        );
        assert!(
            problems.unwrap_err()[0]
                .to_string()
                .starts_with("s.toml:3: selector: ")
        );
    }

    #[test]
    fn the_hosts_of_a_scenario_apply_to_systems_that_name_none() {
        let text = "name = \"a\"\nduration = \"5s\"\nhosts = \"newreno\"\n\
                    [[link]]\nname = \"wifi\"\nrate = \"1mbit\"\n";
        let read = |text: &str| Scenario::parse(std::path::Path::new("s.toml"), text);
        assert_eq!(read(text).unwrap().hosts, Hosts::NewReno);
        let without = text.replace("hosts = \"newreno\"", "");
        assert_eq!(read(&without).unwrap().hosts, Hosts::Linux);
        let wrong = read(&text.replace("newreno", "2017")).unwrap_err();
        assert_eq!(
            wrong[0].to_string(),
            "s.toml:3: hosts: there are no hosts '2017' (hosts: linux, nosack, noundo, newreno)"
        );
    }

    #[test]
    fn names_are_parsed_and_errors_reported() {
        for name in DEFAULT {
            assert!(System::parse(name).is_ok(), "{name}");
        }
        for scheduler in NAMES {
            assert!(System::parse(&format!("sumlink:{scheduler}")).is_ok());
        }
        assert!(System::parse("sumlink:minrtt+bbr").is_ok());
        assert!(System::parse("sumlink:fbdt:conversational=redundant:streaming=ecf+bbr").is_ok());
        assert!(System::parse("sumlink:minrtt+bbr+4").is_ok());
        assert!(System::parse("sumlink:minrtt+auto+auto").is_ok());
        for name in ["sumlink:fbdt+early", "sumlink:fbdt+bbr+2+early"] {
            let system = System::parse(name).unwrap();
            assert!(
                matches!(system, System::Sumlink(variant) if variant.early),
                "{name}"
            );
        }
        assert!(System::parse("mptcp+tls").is_ok() && System::parse("library:fbdt").is_ok());
        assert!(System::parse_with("sumlink:mine:streaming=ecf", &["mine"]).is_ok());
        assert!(System::parse("sumlink:fbdt:streaming=ecf@base:alpha=0.3+bbr+4").is_ok());
        let error = |name: &str| System::parse(name).err().unwrap_or_default();
        let System::Mptcp { tls, selector } = System::parse("mptcp@base:alpha=0.3").unwrap() else {
            panic!("no mptcp");
        };
        assert_eq!(
            (tls, selector.map(|config| config.alpha)),
            (false, Some(0.3))
        );
        assert!(error("mptcp@trials").contains("the selector of mptcp is base or global"));
        assert!(error("mptcp@bass").contains("no selector \"bass\""));
        assert!(error("sumlink:fbdt@bass").contains("no selector \"bass\""));
        assert!(error("sumlink:fbdt@base:alpha=7").contains("from 0.01 to 1"));
        assert!(System::parse("lwip+visible:qdepl@boost=off").is_ok());
        assert!(error("lwip+visible:fbdt").contains("no steering 'fbdt'"));
        assert!(error("tcp").contains("there is no system 'tcp'"));
        assert!(error("sumlink:fbtd").contains("no scheduler 'fbtd'"));
        let twice = error("sumlink:fbdt:streaming=ecf:streaming=blest");
        assert!(twice.contains("two schedulers"), "{twice}");
        assert!(error("library:fbtd").contains("no scheduler 'fbtd'"));
        assert!(error("sumlink:fbdt:bulk=ecf").contains("no class 'bulk'"));
        let coupled = "sumlink:fbdt:coupling=fair:race.interactive=0@base+bbr";
        let System::Sumlink(variant) = System::parse(coupled).unwrap() else {
            panic!("{coupled}");
        };
        assert_eq!(variant.options.fbdt.coupling, Coupling::Fair);
        assert_eq!(variant.options.fbdt.race[2], 0);
        assert!(error("sumlink:fbdt:alpha=2").contains("alpha: "));
        assert!(error("sumlink:blest:alpha=1").contains("'alpha' has no effect"));
        assert!(error("sumlink:wrr:redundancy.share=2%").contains("has no effect"));
        assert!(System::parse("sumlink:ecf:redundancy.share=2%").is_ok());
        let small = error("sumlink:fbdt:windows.streaming.least=1B");
        assert!(
            small.starts_with("windows.streaming: a window is from 1 KiB"),
            "{small}"
        );
        let blocked = "sumlink:fbdt:datagrams=spread:udp=off:yield=off:blocked=wifi+bbr";
        let System::Sumlink(variant) = System::parse(blocked).unwrap() else {
            panic!("{blocked}");
        };
        let datagrams = variant.datagrams;
        assert_eq!(datagrams.policy, Some(DatagramPolicy::Spread));
        assert!(datagrams.without_udp && datagrams.ignores_calls);
        assert_eq!(datagrams.blocked, Some(Blocked::Link("wifi".to_owned())));
        assert!(error("sumlink:fbdt:datagrams=all").contains("none of auto"));
        assert!(error("sumlink:fbdt:udp=no").contains("on or off"));
        assert!(System::parse("library:fbdt:redundancy.share=0%").is_ok());
        assert!(error("library:fbdt+bbr").contains("'+bbr' is for the daemon"));
        assert!(error("sumlink:fbdt:streaming").contains("no scheduler ''"));
        assert!(error("sumlink:fbdt+no good").contains("congestion control"));
        assert!(error("sumlink:fbdt+bbr+9").contains("1 to 8, or auto"));
    }
}
