//! Parameters: typed structs with the papers' defaults, which can also be listed and set by name.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// An invalid description of an algorithm. Its author is at fault.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BuildError {
    /// No algorithm has that name.
    #[error("unknown congestion control {name:?}; known: {}", known.join(", "))]
    UnknownAlgorithm {
        /// The requested name.
        name: String,
        /// The valid names.
        known: Vec<String>,
    },
    /// The algorithm has no such parameter.
    #[error("{algorithm} has no parameter {key:?}; it has: {}", known.join(", "))]
    UnknownParameter {
        /// Name of the algorithm.
        algorithm: String,
        /// The requested key.
        key: String,
        /// The valid keys.
        known: Vec<String>,
    },
    /// A value of the wrong kind, for example a number instead of a time.
    #[error("{key} is {value}, but must be {expected}")]
    WrongKind {
        /// Name of the parameter.
        key: String,
        /// The given value.
        value: Value,
        /// The required kind of value.
        expected: &'static str,
    },
    /// A value out of range.
    #[error("{key} is {value}, but must be from {least} to {most}")]
    OutOfRange {
        /// Name of the parameter.
        key: String,
        /// The given value.
        value: Value,
        /// The smallest allowed value.
        least: Value,
        /// The largest allowed value.
        most: Value,
    },
    /// Text that is not a value.
    #[error("{text:?} is not a value: give a number, a time such as 50ms, true or false")]
    NoValue {
        /// The text.
        text: String,
    },
    /// Text that is not an assignment.
    #[error("{text:?} is not a setting: write KEY=VALUE, such as beta=0.7")]
    NoAssignment {
        /// The text.
        text: String,
    },
}

/// The value of a parameter. As text: `0.7`, `50ms`, `true`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Value {
    /// A number, of packets unless documented otherwise.
    Number(f64),
    /// A duration; in text with the unit `s`, `ms`, `us` or `ns`.
    Time(Duration),
    /// Yes or no.
    Flag(bool),
}

impl FromStr for Value {
    type Err = BuildError;

    fn from_str(text: &str) -> Result<Self, BuildError> {
        let no_value = || BuildError::NoValue {
            text: text.to_owned(),
        };
        match text {
            "true" => return Ok(Self::Flag(true)),
            "false" => return Ok(Self::Flag(false)),
            _ => {}
        }
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        let number: f64 = text[..text.len() - unit.len()]
            .parse()
            .map_err(|_| no_value())?;
        let second_parts = match unit {
            "" => return Ok(Self::Number(number)),
            "s" => 1.0,
            "ms" => 1e3,
            "us" => 1e6,
            "ns" => 1e9,
            _ => return Err(no_value()),
        };
        let time = Duration::try_from_secs_f64(number / second_parts);
        time.map(Self::Time).map_err(|_| no_value())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Time(time) if time.is_zero() => write!(f, "0ms"),
            // Debug writes µs, which is hard to type on many keyboards.
            Self::Time(time) => write!(f, "{}", format!("{time:?}").replace('µ', "u")),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// Description of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name in settings.
    pub key: &'static str,
    /// Its meaning, unit and source.
    pub about: String,
    /// Its default.
    pub default: Value,
    /// The smallest allowed value.
    pub least: Value,
    /// The largest allowed value.
    pub most: Value,
}

/// Parameters of an algorithm or of a part of it. A macro of this crate implements it.
pub trait Parameters: Clone + Default {
    /// All parameters, in the order of the struct, with these values as the defaults.
    fn list(&self) -> Vec<Parameter>;

    /// Sets one; returns false if no parameter has that name.
    ///
    /// # Errors
    ///
    /// A value of the wrong kind, or out of range.
    fn set(&mut self, key: &str, value: Value) -> Result<bool, BuildError>;

    /// Checks that all values are within their ranges.
    ///
    /// # Errors
    ///
    /// The first value out of range.
    fn check(&self) -> Result<(), BuildError>;
}

/// The type of a parameter's field.
pub(crate) trait Setting: Copy + PartialOrd {
    const KIND: &'static str;
    fn value(self) -> Value;
    fn from_value(value: Value) -> Option<Self>;
}

impl Setting for f64 {
    const KIND: &'static str = "a number";
    fn value(self) -> Value {
        Value::Number(self)
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }
}

impl Setting for u32 {
    const KIND: &'static str = "a whole number";
    fn value(self) -> Value {
        Value::Number(self.into())
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Number(number) if number.fract() == 0.0 && (0.0..4e9).contains(&number) => {
                Some(number as u32)
            }
            _ => None,
        }
    }
}

impl Setting for Duration {
    const KIND: &'static str = "a time such as 50ms";
    fn value(self) -> Value {
        Value::Time(self)
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Time(time) => Some(time),
            _ => None,
        }
    }
}

impl Setting for bool {
    const KIND: &'static str = "true or false";
    fn value(self) -> Value {
        Value::Flag(self)
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Flag(flag) => Some(flag),
            _ => None,
        }
    }
}

pub(crate) fn take<T: Setting>(key: &str, value: Value) -> Result<T, BuildError> {
    T::from_value(value).ok_or_else(|| BuildError::WrongKind {
        key: key.to_owned(),
        value,
        expected: T::KIND,
    })
}

pub(crate) fn within<T: Setting>(key: &str, value: T, least: T, most: T) -> Result<(), BuildError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(BuildError::OutOfRange {
        key: key.to_owned(),
        value: value.value(),
        least: least.value(),
        most: most.value(),
    })
}

/// Declares a struct of parameters: `field: Type = default, least..=most;` with a line of
/// documentation above. The keys are the names of the fields, after an optional prefix.
macro_rules! parameters {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($fields:tt)* }) => {
        $crate::parameter::parameters! { $(#[$meta])* $vis struct $name, "" { $($fields)* } }
    };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident, $prefix:literal {
            $($(#[doc = $about:literal])+
            pub $field:ident: $type:ty = $default:expr, $range:expr;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        $vis struct $name {
            $($(#[doc = $about])+
            pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::parameter::Parameters for $name {
            fn list(&self) -> Vec<$crate::parameter::Parameter> {
                #[allow(unused_imports)]
                use $crate::parameter::Setting;
                vec![$({
                    let range: std::ops::RangeInclusive<$type> = $range;
                    $crate::parameter::Parameter {
                        key: concat!($prefix, stringify!($field)),
                        about: concat!($($about),+).trim().to_owned(),
                        default: self.$field.value(),
                        least: range.start().value(),
                        most: range.end().value(),
                    }
                },)*]
            }

            #[allow(unused_variables)]
            fn set(
                &mut self,
                key: &str,
                value: $crate::parameter::Value,
            ) -> Result<bool, $crate::parameter::BuildError> {
                $(if key == concat!($prefix, stringify!($field)) {
                    let value = $crate::parameter::take(key, value)?;
                    let range: std::ops::RangeInclusive<$type> = $range;
                    $crate::parameter::within(key, value, *range.start(), *range.end())?;
                    self.$field = value;
                    return Ok(true);
                })*
                Ok(false)
            }

            fn check(&self) -> Result<(), $crate::parameter::BuildError> {
                $({
                    let key = concat!($prefix, stringify!($field));
                    let range: std::ops::RangeInclusive<$type> = $range;
                    $crate::parameter::within(key, self.$field, *range.start(), *range.end())?;
                })*
                Ok(())
            }
        }
    };
}
pub(crate) use parameters;

parameters! {
    /// For algorithms that have no parameters of their own.
    pub struct NoParameters {}
}

#[cfg(test)]
mod tests {
    use super::*;

    parameters! {
        /// An example.
        pub(super) struct Example, "x_" {
            /// First line,
            /// second line.
            pub share: f64 = 0.5, 0.0..=1.0;
            /// How often.
            pub count: u32 = 3, 1..=9;
            /// How long.
            pub pause: Duration =
                Duration::from_millis(50), Duration::ZERO..=Duration::from_secs(1);
            /// Whether.
            pub on: bool = false, false..=true;
        }
    }

    #[test]
    fn parameters_are_listed_as_they_are_documented() {
        let list = Example::default().list();
        assert_eq!(
            list.iter().map(|one| one.key).collect::<Vec<_>>(),
            ["x_share", "x_count", "x_pause", "x_on"]
        );
        assert_eq!(list[0].about, "First line, second line.");
        assert_eq!(list[2].default.to_string(), "50ms");
        assert_eq!(NoParameters {}.list(), []);
    }

    #[test]
    fn values_are_read_and_written_alike() {
        for text in [
            "0.7", "50ms", "2s", "100us", "0ms", "true", "false", "-1", "1.5ms",
        ] {
            let value: Value = text.parse().unwrap();
            assert_eq!(value.to_string(), text);
        }
        for text in ["", "fast", "50 ms", "5m", "-5ms", "1e3", "NaN", "inf", "."] {
            let error = text.parse::<Value>().unwrap_err();
            assert_eq!(
                error,
                BuildError::NoValue {
                    text: text.to_owned()
                }
            );
        }
    }

    #[test]
    fn invalid_values_are_rejected_with_a_reason() {
        let mut example = Example::default();
        let mut set = |key: &str, value: &str| example.set(key, value.parse().unwrap());
        assert_eq!(set("x_share", "1"), Ok(true));
        assert_eq!(set("share", "1"), Ok(false));
        let message = |result: Result<bool, BuildError>| result.unwrap_err().to_string();
        assert_eq!(
            message(set("x_share", "1.5")),
            "x_share is 1.5, but must be from 0 to 1"
        );
        assert_eq!(
            message(set("x_count", "1.5")),
            "x_count is 1.5, but must be a whole number"
        );
        assert_eq!(
            message(set("x_pause", "50")),
            "x_pause is 50, but must be a time such as 50ms"
        );
        assert_eq!(example.share, 1.0);
        example.share = f64::NAN;
        assert!(example.check().is_err());
    }
}
