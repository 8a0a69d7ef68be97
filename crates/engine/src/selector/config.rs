//! A selector and its parameters, as text: `base`, `global:alpha=0.3:probe=10s`,
//! `trials:budget=0.02`.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use super::{DEFAULT, NAMES};
use crate::ConfigError;

/// A selector and its parameters. Parameters of other selectors are ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectorConfig {
    /// One of [`NAMES`].
    pub name: String,
    /// `base`, `global`: share of the average throughput below which a path is parked, from 0.01 to
    /// 1; for `global` its upper limit. The paper's value is 0.20.
    pub alpha: f64,
    /// `base`, `global`: time after which a parked path is tried again, from 0.1 s to an hour. The
    /// paper does not state the value of its probe timer; the default is 5 s.
    pub probe: Duration,
    /// `trials`: relative difference at which two goodputs count as different, from 0.01 to 0.5.
    pub margin: f64,
    /// `trials`: share of the goodput that trials may cost over time, from 0.001 to 0.1.
    pub budget: f64,
}

/// Valid range of each parameter.
const ALPHA: (f64, f64) = (0.01, 1.0);
const PROBE: (f64, f64) = (0.1, 3600.0);
const MARGIN: (f64, f64) = (0.01, 0.5);
const BUDGET: (f64, f64) = (0.001, 0.1);

impl Default for SelectorConfig {
    fn default() -> Self {
        Self {
            name: DEFAULT.to_owned(),
            alpha: 0.20,
            probe: Duration::from_secs(5),
            margin: 0.05,
            budget: 0.01,
        }
    }
}

impl SelectorConfig {
    /// Checks that the selector exists and its parameters are in range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let within = |(least, most): (f64, f64), value: f64| (least..=most).contains(&value);
        let problem = if !NAMES.contains(&self.name.as_str()) {
            let names = NAMES.join(", ");
            format!("no selector \"{}\", choose one of: {names}", self.name)
        } else if !within(ALPHA, self.alpha) {
            "alpha must be from 0.01 to 1".to_owned()
        } else if !within(PROBE, self.probe.as_secs_f64()) {
            "probe must be from 100ms to 3600s".to_owned()
        } else if !within(MARGIN, self.margin) {
            "margin must be from 0.01 to 0.5".to_owned()
        } else if !within(BUDGET, self.budget) {
            "budget must be from 0.001 to 0.1".to_owned()
        } else {
            return Ok(());
        };
        Err(ConfigError::Selector(problem))
    }

    /// The parameters of the selector.
    fn keys(&self) -> &'static [&'static str] {
        match self.name.as_str() {
            "base" | "global" => &["alpha", "probe"],
            "trials" => &["margin", "budget"],
            _ => &[],
        }
    }
}

/// `NAME[:KEY=VALUE]...`.
impl FromStr for SelectorConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut parts = text.split(':');
        let mut config = Self {
            name: parts.next().unwrap_or_default().to_owned(),
            ..Self::default()
        };
        config.check()?;
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let wrong = |hint: &str| ConfigError::Selector(format!("\"{part}\": {hint}"));
            if !config.keys().contains(&key) {
                return Err(wrong(&match config.keys() {
                    [] => format!("the selector {} has no parameters", config.name),
                    keys => format!("the selector {} has {}", config.name, keys.join(", ")),
                }));
            }
            let number = || {
                value
                    .parse()
                    .map_err(|_| wrong("write a number, as in 0.2"))
            };
            match key {
                "alpha" => config.alpha = number()?,
                "margin" => config.margin = number()?,
                "budget" => config.budget = number()?,
                _ => {
                    let time = seconds(value);
                    config.probe = time.ok_or_else(|| wrong("write a time, as in 500ms or 5s"))?;
                }
            }
        }
        config.check()?;
        Ok(config)
    }
}

/// The form that is parsed; default values are omitted.
impl Display for SelectorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Self::default();
        f.write_str(&self.name)?;
        for key in self.keys() {
            match *key {
                "alpha" if self.alpha != usual.alpha => write!(f, ":alpha={}", self.alpha)?,
                "probe" if self.probe != usual.probe => {
                    write!(f, ":probe={}s", self.probe.as_secs_f64())?;
                }
                "margin" if self.margin != usual.margin => write!(f, ":margin={}", self.margin)?,
                "budget" if self.budget != usual.budget => write!(f, ":budget={}", self.budget)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Parses a time such as `500ms` or `2.5s`, up to an hour.
fn seconds(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s')?, 1.0),
    };
    let value = number.parse::<f64>().ok()? * unit;
    (0.0..=3600.0)
        .contains(&value)
        .then(|| Duration::from_secs_f64(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_round_trip_as_text() {
        for text in [
            "none",
            "base",
            "base:alpha=0.3",
            "global:alpha=0.05:probe=0.5s",
            "trials:margin=0.1:budget=0.02",
        ] {
            let config: SelectorConfig = text.parse().unwrap();
            assert_eq!(config.to_string(), text);
        }
        let config: SelectorConfig = "base:probe=500ms:alpha=0.2".parse().unwrap();
        assert_eq!(config.probe, Duration::from_millis(500));
        assert_eq!(config.to_string(), "base:probe=0.5s");
    }

    #[test]
    fn errors_list_the_valid_choices() {
        let error = |text: &str| {
            let parsed: Result<SelectorConfig, _> = text.parse();
            parsed.unwrap_err().to_string()
        };
        for (text, expected) in [
            ("bass", "choose one of: none, base, global, trials"),
            ("none:alpha=0.1", "none has no parameters"),
            ("base:margin=0.1", "base has alpha, probe"),
            ("base:alpha", "write a number"),
            ("base:alpha=2", "from 0.01 to 1"),
            ("base:alpha=NaN", "from 0.01 to 1"),
            ("base:probe=5", "write a time"),
            ("base:probe=0s", "from 100ms"),
            ("base:probe=1e99s", "write a time"),
            ("trials:budget=1", "from 0.001 to 0.1"),
            ("trials:margin=0", "from 0.01 to 0.5"),
        ] {
            assert!(error(text).contains(expected), "{text}: {}", error(text));
        }
    }
}
