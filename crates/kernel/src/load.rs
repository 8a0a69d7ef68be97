//! Loading congestion controls into the kernel.

use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::{ErrorKind, Link, MapCore, MapType, ObjectBuilder};
use sumlink_congestion::Settings;

use crate::bonds::Bonds;
use crate::error::Error;
use crate::log::capture_log;
use crate::probe::probe;
use crate::twin::{TWINS, Twin};

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// A congestion control that is loaded as long as this value lives, or as long as it is pinned.
#[derive(Debug)]
pub struct Loaded {
    twin: &'static Twin,
    link: Link,
}

impl Loaded {
    /// The loaded twin.
    pub fn twin(&self) -> &'static Twin {
        self.twin
    }

    pub(crate) fn pin(mut self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(self.twin.system_name);
        self.link
            .pin(path)
            .map_err(Error::map("cannot pin a congestion control"))
    }
}

/// Loads the twin of that algorithm (`lia` or `sl_lia`) with these settings.
///
/// # Errors
///
/// An unknown name or setting, a missing requirement (see [`probe`]), a name already in use, or a
/// rejection by the kernel.
pub fn load(name: &str, settings: &Settings, bonds: &Bonds) -> Result<Loaded, Error> {
    load_twin(Twin::of(name)?, settings, bonds)
}

/// Loads uncoupled as `sl_forgetful`, whose answers do not reach the kernel, for a test of the
/// twins' behavior in that case.
///
/// # Errors
///
/// The same as for [`load`].
#[doc(hidden)]
pub fn load_forgetful(settings: &Settings, bonds: &Bonds) -> Result<Loaded, Error> {
    static FORGETFUL: Twin = Twin::forgetful();
    load_twin(&FORGETFUL, settings, bonds)
}

fn load_twin(twin: &'static Twin, settings: &Settings, bonds: &Bonds) -> Result<Loaded, Error> {
    let settings = twin.encode(settings)?;
    if let Some(missing) = probe().into_iter().next() {
        return Err(Error::Missing(missing));
    }
    let name = twin.system_name;
    if loaded()?.iter().any(|other| other.system_name == name) {
        return Err(Error::LoadedAlready { name });
    }
    let (attached, log) = capture_log(|| attach(twin, &settings, bonds));
    match attached {
        Ok(link) => Ok(Loaded { twin, link }),
        // Another process was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(Error::LoadedAlready { name })
        }
        Err(source) => Err(Error::Refused { name, source, log }),
    }
}

/// The twins loaded on this system, by any process.
///
/// # Errors
///
/// [`Error::File`] without /proc.
pub fn loaded() -> Result<Vec<&'static Twin>, Error> {
    let names = std::fs::read_to_string(AVAILABLE).map_err(Error::file(AVAILABLE))?;
    let is_loaded = |twin: &&Twin| {
        names
            .split_whitespace()
            .any(|name| name == twin.system_name)
    };
    Ok(TWINS.iter().filter(is_loaded).collect())
}

fn attach(twin: &Twin, settings: &[u8], bonds: &Bonds) -> libbpf_rs::Result<Link> {
    let mut object = ObjectBuilder::default().open_memory(twin.object)?;
    for mut map in object.maps_mut() {
        let shared = bonds
            .maps()
            .into_iter()
            .find(|(name, _)| map.name() == *name);
        if let Some((_, shared)) = shared {
            map.reuse_fd(shared.as_fd())?;
        } else if map.name() == ".rodata.settings" {
            let value = map.initial_value_mut().expect("settings have a value");
            assert_eq!(
                value.len(),
                settings.len(),
                "settings of {}",
                twin.algorithm
            );
            value.copy_from_slice(settings);
        }
    }
    let mut object = object.load()?;
    let mut operations = object
        .maps_mut()
        .filter(|map| map.map_type() == MapType::StructOps);
    let mut operations = operations.next().expect("a twin has its operations");
    operations.attach_struct_ops()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_by_the_verifier_is_reported_and_leaves_nothing_loaded() {
        if std::env::var_os("SUMLINK_SKIP_BPF").is_some_and(|value| value == "1") {
            eprintln!("skipped because SUMLINK_SKIP_BPF=1");
            return;
        }
        static REFUSED: Twin = Twin::refused();
        let programs = || {
            libbpf_rs::query::ProgInfoIter::default()
                .filter(|program| program.name == "sl_refused")
                .count()
        };
        let bonds = Bonds::new().expect("maps: set SUMLINK_SKIP_BPF=1 to leave this test out");
        let error = load_twin(&REFUSED, &Settings::default(), &bonds).expect_err("refused");
        assert!(
            error
                .to_string()
                .starts_with("the kernel rejected sl_refused: "),
            "{error}"
        );
        assert!(!error.to_string().contains('\n'), "one line: {error}");
        let Error::Refused { log, .. } = error else {
            panic!("{error}")
        };
        assert!(log.contains("invalid access to map value"), "{log}");
        assert_eq!(programs(), 0);
        let names = std::fs::read_to_string(AVAILABLE).expect("a list");
        assert!(!names.contains("sl_refused"), "{names}");
    }
}
