//! Settings of a session other than its scheduler, with their names in `[session]` of a
//! configuration file. The program reads them there; the name of a system under measurement
//! contains them.

use std::time::Duration;

use sumlink_engine::scheduler::fbdt::{Coupling, FbdtConfig, WindowRule};
use sumlink_engine::scheduler::{OwnSchedulers, RepeatLimit};
use sumlink_engine::{Class, Config, ConfigError, Redundancy, Role};

use crate::units::{self, UnitError};

/// All settings, for messages.
const KEYS: &str = "coupling, alpha, beta, redundancy.share|floor|refill|advance, race.CLASS, \
    windows.CLASS.products|least|most";

/// Maximum bytes of a part of the duplication budget other than its share.
const MAX_BUDGET: u64 = 1 << 30;
/// Maximum advance of the budget's share.
const MAX_ADVANCE: Duration = Duration::from_secs(1);

/// Settings, and the resulting configuration of the engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionOptions {
    /// Keys and values as given, in order.
    given: Vec<(String, String)>,
    /// The budget for duplicates.
    pub redundancy: Redundancy,
    /// Settings of the scheduler `fbdt`.
    pub fbdt: FbdtConfig,
}

impl SessionOptions {
    /// Sets a value by its name in the file: `coupling` to `fair`, `race.interactive` to `8KiB`.
    ///
    /// # Errors
    ///
    /// The key is unknown or already set, or its value is invalid; the message lists the choices.
    /// Nothing is set in this case.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if self.given.iter().any(|(given, _)| given == key) {
            return Err("it appears twice".to_owned());
        }
        let is_factor = |key: &str| matches!(key, "alpha" | "beta");
        let contradicts = |given: &str| {
            (key == "coupling" && is_factor(given)) || (is_factor(key) && given == "coupling")
        };
        if self.given.iter().any(|(given, _)| contradicts(given)) {
            let reason =
                "`coupling` and the factors `alpha`, `beta` contradict each other: remove one";
            return Err(reason.to_owned());
        }
        let parts: Vec<&str> = key.split('.').collect();
        match parts[..] {
            ["coupling"] => self.fbdt.coupling = parse_coupling(value)?,
            [factor @ ("alpha" | "beta")] => self.set_factor(factor, value)?,
            ["redundancy", part] => self.set_redundancy(part, value)?,
            ["race", class] => self.fbdt.race[parse_class(class)? as usize] = parse_size(value)?,
            ["windows", class, part] => self.set_window(parse_class(class)?, part, value)?,
            _ => return Err(no_such(key)),
        }
        self.given.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Whether nothing was set.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// The keys that have no effect with these schedulers of the classes, each of the engine or of
    /// `own`. Any other scheduler is assumed to read every setting.
    pub fn unused<'a>(
        &self,
        scheduler_of: impl Fn(Class) -> &'a str,
        own: &OwnSchedulers,
    ) -> impl Iterator<Item = &str> {
        let keys = self.given.iter().map(|(key, _)| key.as_str());
        keys.filter(move |key| !is_read(key, &scheduler_of, own))
    }

    /// Why the engine would reject the size of a class' windows; independent of the order of the
    /// settings.
    pub fn check_window(&self, class: Class) -> Result<(), ConfigError> {
        let mut config = Config::new(Role::Client);
        config.fbdt.windows = [self.fbdt.windows[class as usize]; 4];
        config.check()
    }

    /// Applies all settings, including the defaults of unset ones.
    pub fn apply(&self, config: &mut Config) {
        config.redundancy = self.redundancy;
        config.fbdt.clone_from(&self.fbdt);
    }

    /// The settings as `[session]` of a configuration file; empty if nothing was set.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.given {
            let is_number = matches!(key.as_str(), "alpha" | "beta") || key.ends_with(".products");
            let value = match is_number.then(|| value.parse::<f64>()) {
                Some(Ok(number)) => format!("{number:?}"),
                _ => format!("\"{value}\""),
            };
            text.push_str(&format!("session.{key} = {value}\n"));
        }
        text
    }

    fn set_factor(&mut self, name: &str, value: &str) -> Result<(), String> {
        let factor = parse_number(value)?;
        let factor = check_factor(factor).map_err(|error| error.to_string())?;
        // Setting one factor leaves the other unchanged.
        let (mut alpha, mut beta) = match self.fbdt.coupling {
            Coupling::Scaled { alpha, beta } => (alpha, beta),
            Coupling::Decoupled | Coupling::Fair => (1.0, 1.0),
        };
        match name {
            "alpha" => alpha = factor,
            _ => beta = factor,
        }
        self.fbdt.coupling = Coupling::Scaled { alpha, beta };
        Ok(())
    }

    fn set_redundancy(&mut self, part: &str, value: &str) -> Result<(), String> {
        match part {
            "share" => {
                let share = units::parse_percentage(value).map_err(|error| error.to_string())?;
                self.redundancy.share = share;
            }
            "floor" => self.redundancy.floor = parse_budget(value)?,
            "refill" => self.redundancy.refill = parse_budget(value)?,
            "advance" => self.redundancy.advance = parse_advance(value)?,
            _ => return Err("expected share, floor, refill or advance".to_owned()),
        }
        Ok(())
    }

    fn set_window(&mut self, class: Class, part: &str, value: &str) -> Result<(), String> {
        let rule: &mut WindowRule = &mut self.fbdt.windows[class as usize];
        match part {
            "products" => rule.products = parse_number(value)?,
            "least" => rule.least = parse_size(value)?,
            "most" => rule.most = parse_size(value)?,
            _ => return Err("expected products, least or most".to_owned()),
        }
        Ok(())
    }
}

/// Whether the setting of that name has an effect with these schedulers of the classes.
fn is_read<'a>(key: &str, scheduler_of: impl Fn(Class) -> &'a str, own: &OwnSchedulers) -> bool {
    let of_class = match key.split_once('.') {
        Some(("race" | "windows", rest)) => rest.split('.').next().and_then(Class::from_name),
        _ => None,
    };
    match of_class {
        Some(class) => reads(scheduler_of(class), key, own),
        None => Class::ALL
            .into_iter()
            .any(|class| reads(scheduler_of(class), key, own)),
    }
}

/// Whether a scheduler uses the setting. Schedulers that duplicate data which holds up a window
/// respect the budget; others duplicate nothing, or everything.
fn reads(scheduler: &str, key: &str, own: &OwnSchedulers) -> bool {
    let is_budget = matches!(
        key,
        "redundancy.share" | "redundancy.floor" | "redundancy.refill"
    );
    match own.repeat_limit(scheduler, Role::Client) {
        _ if scheduler == "fbdt" => true,
        Some(RepeatLimit::Share) => is_budget,
        Some(RepeatLimit::Nothing | RepeatLimit::OncePerPath) => false,
        None => true,
    }
}

/// Parses `none` or `fair`.
fn parse_coupling(word: &str) -> Result<Coupling, String> {
    match word {
        "none" => Ok(Coupling::Decoupled),
        "fair" => Ok(Coupling::Fair),
        _ => Err(format!(
            "`{word}` is not a coupling: write \"none\", \"fair\", or the factors `alpha` and \
             `beta`"
        )),
    }
}

/// Checks alpha or beta: above 0 and at most 1.
fn check_factor(factor: f64) -> Result<f64, ConfigError> {
    match factor > 0.0 && factor <= 1.0 {
        true => Ok(factor),
        false => Err(ConfigError::Coupling),
    }
}

/// Parses a part of the redundancy budget, in bytes.
fn parse_budget(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    match bytes <= MAX_BUDGET {
        true => Ok(bytes),
        false => Err(format!("`{text}` is out of range: write at most 1GiB")),
    }
}

/// Parses the advance of the budget's share.
fn parse_advance(text: &str) -> Result<Duration, String> {
    let advance = units::parse_duration(text).map_err(|error| error.to_string())?;
    match advance <= MAX_ADVANCE {
        true => Ok(advance),
        false => Err(format!("`{text}` is out of range: write at most 1s")),
    }
}

/// The class of that name; the error lists all classes.
pub fn parse_class(name: &str) -> Result<Class, String> {
    Class::from_name(name).ok_or_else(|| {
        let classes = Class::ALL.map(Class::name).join(", ");
        format!("there is no class '{name}' (classes: {classes})")
    })
}

fn no_such(key: &str) -> String {
    let classes = Class::ALL.map(Class::name).join(", ");
    format!(
        "there is no class '{key}' (classes: {classes}), and no such setting (settings: {KEYS})"
    )
}

fn parse_size(text: &str) -> Result<u64, String> {
    units::parse_size(text).map_err(|error: UnitError| error.to_string())
}

fn parse_number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| format!("'{text}' is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(all: &[(&str, &str)]) -> Result<SessionOptions, String> {
        let mut options = SessionOptions::default();
        for (key, value) in all {
            options.set(key, value)?;
        }
        for class in Class::ALL {
            options
                .check_window(class)
                .map_err(|error| error.to_string())?;
        }
        Ok(options)
    }

    #[test]
    fn each_setting_arrives() {
        let options = options(&[
            ("alpha", "0.5"),
            ("redundancy.share", "2%"),
            ("redundancy.floor", "1MiB"),
            ("redundancy.refill", "0"),
            ("redundancy.advance", "50ms"),
            ("race.background", "4KiB"),
            ("windows.streaming.products", "3"),
            ("windows.streaming.least", "32KiB"),
            ("windows.streaming.most", "64MiB"),
        ]);
        let options = options.unwrap();
        let mut config = Config::new(Role::Server);
        options.apply(&mut config);
        let (alpha, beta) = (0.5, 1.0);
        assert_eq!(config.fbdt.coupling, Coupling::Scaled { alpha, beta });
        let expected = Redundancy {
            share: 0.02,
            floor: 1 << 20,
            refill: 0,
            advance: Duration::from_millis(50),
        };
        assert_eq!(config.redundancy, expected);
        let defaults = FbdtConfig::default();
        let mut race = defaults.race;
        race[Class::Background as usize] = 4096;
        assert_eq!(config.fbdt.race, race);
        let mut windows = defaults.windows;
        windows[Class::Streaming as usize] = WindowRule {
            products: 3.0,
            least: 32 << 10,
            most: 64 << 20,
        };
        assert_eq!(config.fbdt.windows, windows);
    }

    #[test]
    fn settings_are_written_as_toml() {
        let given = [
            ("beta", "1"),
            ("redundancy.share", "2%"),
            ("windows.streaming.products", "3"),
        ];
        let text = options(&given).unwrap().to_toml();
        let expected = "session.beta = 1.0\nsession.redundancy.share = \"2%\"\n\
            session.windows.streaming.products = 3.0\n";
        assert_eq!(text, expected);
        assert!(SessionOptions::default().to_toml().is_empty());
    }

    #[test]
    fn invalid_values_are_reported() {
        let error = |all: &[(&str, &str)]| options(all).unwrap_err();
        assert!(error(&[("speed", "1")]).contains("and no such setting (settings: coupling, "));
        assert!(error(&[("race.bulk", "1kB")]).starts_with("there is no class 'bulk'"));
        assert!(error(&[("redundancy.part", "1%")]).contains("share, floor, refill or advance"));
        assert!(error(&[("windows.streaming", "3")]).contains("and no such setting"));
        assert!(error(&[("windows.streaming.size", "3")]).contains("products, least or most"));
        assert!(error(&[("windows.streaming.least", "3B")]).contains("a window is from 1 KiB"));
        assert!(error(&[("alpha", "0")]).contains("above 0 and no larger than 1"));
        assert!(error(&[("alpha", "NaN")]).contains("not a number"));
        assert!(error(&[("redundancy.share", "101%")]).contains("out of range"));
        assert!(error(&[("redundancy.floor", "2GiB")]).contains("at most 1GiB"));
        assert!(error(&[("redundancy.advance", "2s")]).contains("at most 1s"));
        assert!(error(&[("coupling", "fare")]).contains("not a coupling"));
        assert!(error(&[("coupling", "fair"), ("beta", "1")]).contains("contradict"));
        assert!(error(&[("alpha", "1"), ("coupling", "fair")]).contains("contradict"));
        assert!(error(&[("alpha", "1"), ("alpha", "1")]).contains("twice"));
    }

    #[test]
    fn unused_settings_are_reported() {
        let is_read = |key: &str, value: &str, of: &dyn Fn(Class) -> &'static str| {
            let mut options = SessionOptions::default();
            options.set(key, value).unwrap();
            let own = OwnSchedulers::default();
            let unused: Vec<_> = options.unused(of, &own).collect();
            assert!(unused.is_empty() || unused == [key]);
            unused.is_empty()
        };
        for (scheduler, reads) in [
            ("fbdt", true),
            ("minrtt", true),
            ("linux", false),
            ("redundant", false),
            ("own", true),
        ] {
            let read = is_read("redundancy.share", "2%", &|_| scheduler);
            assert_eq!(read, reads, "{scheduler}");
        }
        assert!(!is_read("redundancy.advance", "5ms", &|_| "minrtt"));
        let race = |of: &dyn Fn(Class) -> &'static str| is_read("race.interactive", "8KiB", of);
        let only = |of: Class| move |class: Class| if class == of { "fbdt" } else { "minrtt" };
        assert!(race(&only(Class::Interactive)));
        assert!(!race(&only(Class::Streaming)));
        assert!(race(&|_| "own"));
    }
}
