//! All algorithms by name: purpose, parameters and construction.

use std::collections::BTreeMap;

use crate::algorithm::{Algorithm, Info};
use crate::control::CongestionControl;
use crate::hystart::HystartParameters;
use crate::parameter::{BuildError, Parameter, Parameters, Value};
use crate::window::Window;
use crate::{
    balia, coupled, cs218, cubic, edinburgh, ewtcp, illinois, lia, olia, reno, rtt_compensator,
    uncoupled, whitehaul, wvegas,
};

/// All algorithms, in the order of lists. To add one, write a file with a type that implements
/// [`CongestionControl`] and [`Algorithm`], and add a line here.
pub const ALGORITHMS: &[Entry] = &[
    Entry::of::<reno::Reno>(),
    Entry::of::<cubic::Cubic>(),
    Entry::of::<illinois::Illinois>(),
    Entry::of::<uncoupled::Uncoupled>(),
    Entry::of::<coupled::Coupled>(),
    Entry::of::<ewtcp::Ewtcp>(),
    Entry::of::<rtt_compensator::RttCompensator>(),
    Entry::of::<lia::Lia>(),
    Entry::of::<olia::Olia>(),
    Entry::of::<balia::Balia>(),
    Entry::of::<wvegas::Wvegas>(),
    Entry::of::<cs218::Cs218>(),
    Entry::of::<whitehaul::Whitehaul>(),
    Entry::of::<edinburgh::Edinburgh>(),
];

/// Their names.
pub const NAMES: [&str; ALGORITHMS.len()] = {
    let mut names = [""; ALGORITHMS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = ALGORITHMS[at].info.name;
        at += 1;
    }
    names
};

/// The algorithm of that name with these settings.
///
/// ```
/// use sumlink_congestion::{Settings, build};
///
/// let settings = Settings::default().with("beta", "0.8").unwrap();
/// assert_eq!(build("cubic", &settings).unwrap().cwnd(), 10.0);
/// assert_eq!(
///     build("reno", &settings).unwrap_err().to_string(),
///     "reno has no parameter \"beta\"; it has: initial_cwnd, max_cwnd, min_ssthresh, hystart, \
///      hystart_min_rtt_threshold, hystart_max_rtt_threshold, hystart_min_rtt_divisor, hystart_samples, \
///      hystart_css_growth_divisor, hystart_css_rounds, hystart_growth_limit",
/// );
/// ```
///
/// # Errors
///
/// An unknown name or parameter, a value of the wrong kind or out of range.
pub fn build(name: &str, settings: &Settings) -> Result<Box<dyn CongestionControl>, BuildError> {
    let entry = entry(name).ok_or_else(|| BuildError::UnknownAlgorithm {
        name: name.to_owned(),
        known: NAMES.map(str::to_owned).to_vec(),
    })?;
    (entry.build)(settings)
}

/// The algorithm of a name with settings after `@`: `whitehaul@budget=20ms:advertised=200`.
///
/// ```
/// use sumlink_congestion::build_named;
///
/// let whitehaul = build_named("whitehaul@initial_ssthresh=50:beta=0.2").unwrap();
/// assert_eq!(whitehaul.ssthresh(), 50.0);
/// ```
///
/// # Errors
///
/// Those of [`build`], and text that is not a setting.
pub fn build_named(text: &str) -> Result<Box<dyn CongestionControl>, BuildError> {
    let Some((name, assignments)) = text.split_once('@') else {
        return build(text, &Settings::default());
    };
    let mut settings = Settings::default();
    for assignment in assignments.split(':') {
        settings.assign(assignment)?;
    }
    build(name, &settings)
}

/// The entry of the algorithm with that name.
pub fn entry(name: &str) -> Option<&'static Entry> {
    ALGORITHMS.iter().find(|entry| entry.info.name == name)
}

/// An entry of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its description.
    pub info: Info,
    parameters: fn() -> Vec<Parameter>,
    build: fn(&Settings) -> Result<Box<dyn CongestionControl>, BuildError>,
}

impl Entry {
    const fn of<A: Algorithm>() -> Self {
        Self {
            info: A::INFO,
            parameters: parameters_of::<A>,
            build: build_one::<A>,
        }
    }

    /// Its own parameters first, then those of all algorithms.
    pub fn parameters(&self) -> Vec<Parameter> {
        (self.parameters)()
    }
}

/// Values by parameter name; unset parameters keep their defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    values: BTreeMap<String, Value>,
}

impl Settings {
    /// Adds a value as text: `with("beta", "0.7")`, `with("budget", "50ms")`.
    ///
    /// # Errors
    ///
    /// Text that is not a value.
    pub fn with(mut self, key: &str, value: &str) -> Result<Self, BuildError> {
        self.set(key, value.parse()?);
        Ok(self)
    }

    /// Sets a value.
    pub fn set(&mut self, key: &str, value: Value) {
        self.values.insert(key.to_owned(), value);
    }

    /// The value set for a parameter; none if it keeps its default.
    pub fn get(&self, key: &str) -> Option<Value> {
        self.values.get(key).copied()
    }

    /// The names of the parameters that are set.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Sets a parameter from text as on a command line: `beta=0.7`.
    ///
    /// # Errors
    ///
    /// Text without `=`, or without a value after it.
    pub fn assign(&mut self, text: &str) -> Result<(), BuildError> {
        let (key, value) = text
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| BuildError::NoAssignment {
                text: text.to_owned(),
            })?;
        self.set(key, value.parse()?);
        Ok(())
    }
}

fn parameters_of<A: Algorithm>() -> Vec<Parameter> {
    let mut all = A::Parameters::default().list();
    all.extend(A::window_parameters().list());
    all.extend(HystartParameters::default().list());
    all
}

fn build_one<A: Algorithm>(settings: &Settings) -> Result<Box<dyn CongestionControl>, BuildError> {
    let mut window = A::window_parameters();
    let mut hystart = HystartParameters::default();
    let mut own = A::Parameters::default();
    for (key, &value) in &settings.values {
        let set = own.set(key, value)? || window.set(key, value)? || hystart.set(key, value)?;
        if !set {
            let known = parameters_of::<A>();
            return Err(BuildError::UnknownParameter {
                algorithm: A::INFO.name.to_owned(),
                key: key.clone(),
                known: known.iter().map(|one| one.key.to_owned()).collect(),
            });
        }
    }
    Ok(Box::new(A::new(Window::new(window, hystart)?, own)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::settings;

    fn message(name: &str, assignments: &[&str]) -> String {
        let built = build(name, &settings(assignments));
        built.expect_err("cannot be built").to_string()
    }

    #[test]
    fn every_name_has_its_algorithm() {
        for name in NAMES {
            let built = build(name, &Settings::default()).expect("listed algorithms exist");
            assert_eq!(built.name(), name);
            assert_eq!(built.pacing_rate(), None);
            let info = entry(name).expect("an entry").info;
            assert_eq!(info.name, name);
            assert!(
                !info.about.contains('\n') && info.about.len() < 100,
                "{name}"
            );
            assert!(!info.source.is_empty(), "{name}");
        }
        let distinct: std::collections::BTreeSet<_> = NAMES.into_iter().collect();
        assert_eq!(distinct.len(), NAMES.len());
    }

    #[test]
    fn parameters_accept_exactly_their_range() {
        for entry in ALGORITHMS {
            let name = entry.info.name;
            for parameter in entry.parameters() {
                let key = parameter.key;
                let with = |value| {
                    let mut settings = Settings::default();
                    settings.set(key, value);
                    build(name, &settings)
                };
                for value in [parameter.default, parameter.least, parameter.most] {
                    assert!(with(value).is_ok(), "{name} {key}={value}");
                }
                assert!(!parameter.about.is_empty(), "{name} {key}");
                let beyond = match parameter.most {
                    Value::Number(most) => Value::Number(most + 1.0),
                    Value::Time(most) => Value::Time(2 * most),
                    Value::Flag(_) => Value::Number(1.0),
                };
                assert!(with(beyond).is_err(), "{name} {key}={beyond}");
            }
        }
    }

    #[test]
    fn defaults_specific_to_an_algorithm_are_listed() {
        let default = |name, key| {
            let all = entry(name).expect("an entry").parameters();
            let parameter = all.into_iter().find(|parameter| parameter.key == key);
            parameter.expect("a parameter").default
        };
        assert_eq!(default("reno", "hystart"), Value::Flag(false));
        assert_eq!(default("cubic", "hystart"), Value::Flag(true));
        assert_eq!(default("edinburgh", "hystart"), Value::Flag(true));
        assert_eq!(default("lia", "min_ssthresh"), Value::Number(2.0));
        assert_eq!(default("balia", "min_ssthresh"), Value::Number(1.0));
    }

    #[test]
    fn settings_take_effect() {
        let built = build("reno", &settings(&["initial_cwnd=3"])).unwrap();
        assert_eq!(built.cwnd(), 3.0);
        let built = build("whitehaul", &settings(&["initial_ssthresh=50"])).unwrap();
        assert_eq!(built.ssthresh(), 50.0);
        let built = build("reno", &settings(&["initial_cwnd=30", "max_cwnd=20"])).unwrap();
        assert_eq!(built.cwnd(), 20.0);
    }

    #[test]
    fn build_errors_are_one_clear_line() {
        assert_eq!(
            message("bbr", &[]),
            "unknown congestion control \"bbr\"; known: reno, cubic, illinois, uncoupled, coupled, ewtcp, \
             rtt-compensator, lia, olia, balia, wvegas, cs218, whitehaul, edinburgh"
        );
        assert_eq!(
            message("cubic", &["beta=2"]),
            "beta is 2, but must be from 0.1 to 0.95"
        );
        assert_eq!(
            message("edinburgh", &["budget_min=50"]),
            "budget_min is 50, but must be a time such as 50ms"
        );
        assert!(
            message("lia", &["alpha=1"])
                .starts_with("lia has no parameter \"alpha\"; it has: initial_cwnd, ")
        );
        for (text, expected) in [
            (
                "beta",
                "\"beta\" is not a setting: write KEY=VALUE, such as beta=0.7",
            ),
            (
                "=1",
                "\"=1\" is not a setting: write KEY=VALUE, such as beta=0.7",
            ),
            (
                "beta=",
                "\"\" is not a value: give a number, a time such as 50ms, true or false",
            ),
        ] {
            let error = Settings::default().assign(text).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
