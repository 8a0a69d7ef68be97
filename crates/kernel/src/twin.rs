//! The algorithms available in the kernel, and the encoding of their settings.

use sumlink_congestion::{BuildError, Parameter, Settings, Value, build, entry};

use crate::error::Error;

/// One algorithm in the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Twin {
    /// Name of the reference in `sumlink-congestion`.
    pub algorithm: &'static str,
    /// Name on the system for `setsockopt(TCP_CONGESTION)`: `sl_` and the algorithm's name,
    /// shortened to the kernel's limit of 15 bytes.
    pub system_name: &'static str,
    /// The compiled program.
    pub(crate) object: &'static [u8],
    /// Its own settings, in the order in which the program declares them.
    own: &'static [Setting],
}

/// Key of a setting, and its encoding.
#[derive(Clone, Copy, Debug)]
enum Setting {
    /// An integer, a time in microseconds, or 0 or 1.
    Whole(&'static str),
    /// A number in the format of real.h.
    Real(&'static str),
}
use Setting::{Real, Whole};

/// Settings of all programs, in the order of the macro SETTINGS of window.h.
const COMMON: [Setting; 2] = [Whole("max_cwnd"), Whole("min_ssthresh")];

macro_rules! twin {
    ($algorithm:literal, $system_name:literal, $source:literal, $own:expr) => {
        Twin {
            algorithm: $algorithm,
            system_name: $system_name,
            object: include_bytes!(concat!(env!("OUT_DIR"), "/", $source, ".bpf.o")),
            own: $own,
        }
    };
}

/// All twins. To add one, add a file in `src/bpf` and a line here.
pub const TWINS: &[Twin] = &[
    twin!("uncoupled", "sl_uncoupled", "uncoupled", &[]),
    twin!("coupled", "sl_coupled", "coupled", &[]),
    twin!("ewtcp", "sl_ewtcp", "ewtcp", &[Whole("sqrt_power")]),
    twin!("rtt-compensator", "sl_rttcomp", "rtt_compensator", &[]),
    twin!("lia", "sl_lia", "lia", &[]),
    twin!("olia", "sl_olia", "olia", &[]),
    twin!("balia", "sl_balia", "balia", &[]),
    twin!(
        "cs218",
        "sl_cs218",
        "cs218",
        &[Whole("acks"), Whole("capped")]
    ),
    twin!(
        "illinois",
        "sl_illinois",
        "illinois",
        &[
            Real("alpha_min"),
            Real("alpha_max"),
            Real("beta_min"),
            Real("beta_max"),
            Whole("win_thresh"),
            Whole("theta"),
        ]
    ),
    twin!(
        "wvegas",
        "sl_wvegas",
        "wvegas",
        &[
            Whole("total_alpha"),
            Whole("initial_alpha"),
            Whole("gamma"),
            Whole("drain"),
        ]
    ),
    twin!(
        "whitehaul",
        "sl_whitehaul",
        "whitehaul",
        &[
            Whole("initial_ssthresh"),
            Whole("advertised"),
            Whole("advertised_2"),
            Whole("advertised_3"),
            Whole("budget"),
            Whole("theta"),
            Whole("win_thresh"),
            Whole("alpha_max"),
            Real("beta"),
        ]
    ),
    twin!(
        "edinburgh",
        "sl_edinburgh",
        "edinburgh",
        &[
            Whole("initial_ssthresh"),
            Whole("grows"),
            Whole("theta"),
            Whole("advertised"),
            Whole("budget"),
            Real("budget_share"),
            Whole("budget_min"),
            Whole("budget_max"),
            Real("fill"),
            Real("alpha_max"),
            Real("beta"),
            Whole("win_thresh"),
            Whole("hystart"),
            Whole("hystart_min_rtt_threshold"),
            Whole("hystart_max_rtt_threshold"),
            Whole("hystart_min_rtt_divisor"),
            Whole("hystart_samples"),
            Whole("hystart_css_growth_divisor"),
            Whole("hystart_css_rounds"),
            Whole("hystart_growth_limit"),
        ]
    ),
];

impl Setting {
    fn key(self) -> &'static str {
        match self {
            Whole(key) | Real(key) => key,
        }
    }

    /// The eight bytes that the program reads.
    fn encode(self, value: Value) -> u64 {
        match (self, value) {
            (Real(_), Value::Number(number)) => real(number),
            (_, value) => whole(value),
        }
    }
}

impl Twin {
    /// Uncoupled, with answers that do not reach the kernel.
    pub(crate) const fn forgetful() -> Self {
        twin!("uncoupled", "sl_forgetful", "forgetful", &[])
    }
}

#[cfg(test)]
impl Twin {
    /// A program that the verifier rejects.
    pub(crate) const fn refused() -> Self {
        twin!("uncoupled", "sl_refused", "refused", &[])
    }
}

impl Twin {
    /// The twin of that algorithm, by the name of the algorithm or on the system.
    ///
    /// # Errors
    ///
    /// [`Error::NoTwin`].
    pub fn of(name: &str) -> Result<&'static Self, Error> {
        let found = TWINS
            .iter()
            .find(|twin| twin.algorithm == name || twin.system_name == name);
        found.ok_or_else(|| Error::NoTwin {
            name: name.to_owned(),
            known: TWINS.iter().map(|twin| twin.algorithm.to_owned()).collect(),
        })
    }

    /// Whether it depends on the state of its siblings.
    pub fn is_coupled(&self) -> bool {
        entry(self.algorithm).is_some_and(|entry| entry.info.coupled)
    }

    /// Its parameters: those of the algorithm, except for those that the kernel fixes for all
    /// sockets.
    pub fn parameters(&self) -> Vec<Parameter> {
        let entry = entry(self.algorithm).expect("every twin has its reference");
        let mut all = entry.parameters();
        all.retain(|parameter| self.settings().any(|one| one.key() == parameter.key));
        all
    }

    /// Checks that it can be loaded with these settings.
    ///
    /// # Errors
    ///
    /// [`Error::Settings`], [`Error::NotForTheKernel`].
    pub fn check(&self, settings: &Settings) -> Result<(), Error> {
        self.encode(settings).map(drop)
    }

    fn settings(&self) -> impl Iterator<Item = Setting> {
        COMMON.into_iter().chain(self.own.iter().copied())
    }

    /// The reason for which that key cannot be set.
    fn refuse(&self, key: &str, parameters: &[Parameter]) -> Error {
        let entry = entry(self.algorithm).expect("every twin has its reference");
        let known = parameters.iter().map(|one| one.key);
        if entry.parameters().iter().any(|one| one.key == key) {
            return Error::NotForTheKernel {
                key: key.to_owned(),
                name: self.algorithm,
                known: known.collect(),
            };
        }
        Error::Settings(BuildError::UnknownParameter {
            algorithm: self.algorithm.to_owned(),
            key: key.to_owned(),
            known: known.map(str::to_owned).collect(),
        })
    }

    /// The settings in the program's format: eight bytes each.
    pub(crate) fn encode(&self, settings: &Settings) -> Result<Vec<u8>, Error> {
        let parameters = self.parameters();
        for key in settings.keys() {
            if !parameters.iter().any(|parameter| parameter.key == key) {
                return Err(self.refuse(key, &parameters));
            }
        }
        // The reference checks kinds and ranges.
        build(self.algorithm, settings)?;
        let value = |setting: Setting| {
            let key = setting.key();
            let parameter = parameters.iter().find(|parameter| parameter.key == key);
            let parameter = parameter.expect("the twin's settings are the reference's");
            setting.encode(settings.get(key).unwrap_or(parameter.default))
        };
        Ok(self
            .settings()
            .flat_map(|setting| value(setting).to_ne_bytes())
            .collect())
    }
}

/// Numbers unchanged, times in microseconds, flags as 0 and 1.
fn whole(value: Value) -> u64 {
    match value {
        Value::Number(number) => number as u64,
        Value::Time(time) => time.as_micros() as u64,
        Value::Flag(flag) => u64::from(flag),
    }
}

/// A number in the format of real.h, rounded to its 32 bits of mantissa; numbers not above zero
/// become zero.
fn real(number: f64) -> u64 {
    const BIAS: i64 = 8192;
    // The number is 1.f * 2^exponent; the highest of the 32 bits is the 1.
    let mut exponent = (number.to_bits() >> 52 & 0x7ff) as i64 - 1023 - 31;
    if number <= 0.0 || !number.is_normal() {
        return 0;
    }
    let mut mantissa = (number * 2f64.powi(-exponent as i32)).round() as u64;
    if mantissa == 1 << 32 {
        mantissa /= 2;
        exponent += 1;
    }
    ((exponent + BIAS) as u64) << 32 | mantissa
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_twin_has_a_reference_and_a_valid_kernel_name() {
        for twin in TWINS {
            assert_eq!(twin.parameters().len(), COMMON.len() + twin.own.len());
            assert!(twin.system_name.len() < 16, "TCP_CA_NAME_MAX");
            assert!(twin.system_name.starts_with("sl_"));
            let takes = |c: char| c.is_ascii_alphanumeric() || c == '_';
            assert!(twin.system_name.chars().all(takes));
        }
    }

    #[test]
    fn settings_are_checked_before_the_kernel_sees_them() {
        let refused = |name: &str, assignment: &str| {
            let mut settings = Settings::default();
            settings.assign(assignment).expect("an assignment");
            let twin = Twin::of(name).expect("a twin");
            twin.encode(&settings).expect_err("refused").to_string()
        };
        assert!(
            refused("lia", "beta=1")
                .ends_with("lia has no parameter \"beta\"; it has: max_cwnd, min_ssthresh")
        );
        assert_eq!(
            refused("lia", "min_ssthresh=0"),
            "min_ssthresh is 0, but must be from 1 to 100"
        );
        assert_eq!(
            refused("lia", "initial_cwnd=4"),
            "initial_cwnd of lia cannot be set in the kernel, only: max_cwnd, min_ssthresh"
        );
        assert!(
            Twin::of("vegas")
                .expect_err("none")
                .to_string()
                .starts_with(
                    "no congestion control \"vegas\" for the kernel; available: \
                    uncoupled, coupled, "
                )
        );
    }

    #[test]
    fn fractional_numbers_keep_32_bits() {
        assert_eq!(real(0.0), 0);
        assert_eq!(real(1.0), 8161 << 32 | 1 << 31);
        // 3/32, exactly
        assert_eq!(real(0.09375), 8157 << 32 | 3 << 30);
        // The next representable number
        assert_eq!(real(1.0 - 1e-12), real(1.0));
        for number in [0.01, 0.1, 0.3, 10.0, 999.9] {
            let bits = real(number);
            let found = f64::from(bits as u32) * 2f64.powi((bits >> 32) as i32 - 8192);
            assert!((found / number - 1.0).abs() <= 2f64.powi(-32), "{number}");
        }
    }

    #[test]
    fn settings_follow_the_order_of_the_program() {
        let settings = Settings::default()
            .with("min_ssthresh", "7")
            .expect("valid");
        let bytes = Twin::of("sl_lia")
            .and_then(|twin| twin.encode(&settings))
            .expect("valid");
        assert_eq!(
            bytes,
            [(1u64 << 24).to_ne_bytes(), 7u64.to_ne_bytes()].concat()
        );
    }
}
