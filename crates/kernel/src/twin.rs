//! The algorithms that there are for the kernel, and how their settings get there.

use sumlink_congestion::{Parameter, Settings, Value, build, entry};

use crate::error::Error;

/// One algorithm for the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Twin {
    /// Name of the reference in `sumlink-congestion`.
    pub algorithm: &'static str,
    /// Name on the system, which `setsockopt(TCP_CONGESTION)` takes: `sl_` and the algorithm's, shortened to
    /// the 15 bytes that the kernel has for it.
    pub system_name: &'static str,
    /// The compiled program.
    pub(crate) object: &'static [u8],
    /// Its own settings, in the order in which the program declares them.
    own: &'static [&'static str],
}

/// Settings that all have, in the order of the macro SETTINGS of window.h.
const COMMON: [&str; 2] = ["max_cwnd", "min_ssthresh"];

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

/// All of them. To add one: a file in `src/bpf`, and a line here.
pub const TWINS: &[Twin] = &[
    twin!("uncoupled", "sl_uncoupled", "uncoupled", &[]),
    twin!("coupled", "sl_coupled", "coupled", &[]),
    twin!("ewtcp", "sl_ewtcp", "ewtcp", &["sqrt_power"]),
    twin!("rtt-compensator", "sl_rttcomp", "rtt_compensator", &[]),
    twin!("lia", "sl_lia", "lia", &[]),
    twin!("olia", "sl_olia", "olia", &[]),
    twin!("balia", "sl_balia", "balia", &[]),
    twin!("cs218", "sl_cs218", "cs218", &["acks", "capped"]),
];

impl Twin {
    /// The twin of that algorithm, by the algorithm's name or by the one on the system.
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

    /// What can be set on it: what can be on the algorithm, without what the kernel decides for every socket.
    pub fn parameters(&self) -> Vec<Parameter> {
        let entry = entry(self.algorithm).expect("every twin has its reference");
        let mut all = entry.parameters();
        all.retain(|parameter| self.keys().any(|key| key == parameter.key));
        all
    }

    fn keys(&self) -> impl Iterator<Item = &'static str> {
        COMMON.into_iter().chain(self.own.iter().copied())
    }

    /// The settings as the program reads them: eight bytes each.
    pub(crate) fn encode(&self, settings: &Settings) -> Result<Vec<u8>, Error> {
        // The reference knows names, kinds and ranges.
        build(self.algorithm, settings)?;
        let parameters = self.parameters();
        for key in settings.keys() {
            if !parameters.iter().any(|parameter| parameter.key == key) {
                return Err(Error::NotForTheKernel {
                    key: key.to_owned(),
                    name: self.algorithm,
                    known: parameters.iter().map(|one| one.key).collect(),
                });
            }
        }
        let value = |key: &str| {
            let parameter = parameters.iter().find(|parameter| parameter.key == key);
            let parameter = parameter.expect("the twin's settings are the reference's");
            whole(settings.get(key).unwrap_or(parameter.default))
        };
        Ok(self
            .keys()
            .flat_map(|key| value(key).to_ne_bytes())
            .collect())
    }
}

/// Numbers as they are, times in microseconds, flags as 0 and 1.
fn whole(value: Value) -> u64 {
    match value {
        Value::Number(number) => number as u64,
        Value::Time(time) => time.as_micros() as u64,
        Value::Flag(flag) => u64::from(flag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_twin_has_a_reference_and_a_name_that_the_kernel_takes() {
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
        assert!(refused("lia", "beta=1").starts_with("lia has no parameter \"beta\"; it has: "));
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
                .starts_with("there is no congestion control \"vegas\" for the kernel; there are: uncoupled, coupled, ")
        );
    }

    #[test]
    fn settings_stand_in_the_order_of_the_program() {
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
