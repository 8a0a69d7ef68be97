//! The congestion control of the paths: one of the kernel's, or one of sumlink's, loaded while this
//! program runs.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use sumlink_transport::CarrierGroups;
use sumlink_transport::socket::{SocketError, check_congestion};

use crate::kernel::{self, Group, Kept, TWINS, Twin, keep};

/// The congestion controls that this program keeps loaded, and the groups of a session's carriers
/// in them.
#[derive(Debug, Default)]
pub(crate) struct Controls {
    kept: Vec<Kept>,
    /// Hashes sessions to group numbers; another program, such as the other end of the session,
    /// gets other numbers.
    numbers: RandomState,
    /// Nothing is loaded, because nothing will run.
    is_trial: bool,
}

impl Controls {
    /// Starts empty. Without `loads`, names are only looked up.
    pub(crate) fn new(loads: bool) -> Self {
        Self {
            is_trial: !loads,
            ..Self::default()
        }
    }

    /// The kernel's name for the congestion control `name`. `None` means the kernel's default:
    /// sumlink's cannot be loaded here, which is logged.
    ///
    /// # Errors
    ///
    /// Neither the kernel nor sumlink has this name; one line.
    pub(crate) fn choose(&mut self, name: &str) -> Result<Option<String>, String> {
        let twin = Twin::of(name).ok();
        // A plain name means the kernel's own, if it has one.
        let is_ours = twin.is_some_and(|twin| twin.system_name == name);
        let by_kernel = check_congestion(name);
        let twin = match (by_kernel, twin) {
            (Ok(()), twin) => match twin.filter(|_| is_ours) {
                None => return Ok(Some(name.to_owned())),
                Some(twin) => twin,
            },
            (Err(SocketError::UnknownCongestion { .. }), Some(twin)) => twin,
            (Err(SocketError::UnknownCongestion { name, available }), None) => {
                let ours: Vec<&str> = TWINS.iter().map(|twin| twin.algorithm).collect();
                let ours = match kernel::ABSENT {
                    Some(reason) => reason.to_owned(),
                    None => format!("sumlink can load {}", ours.join(", ")),
                };
                return Err(format!(
                    "unknown congestion control {name}: this kernel has {available}, and {ours}"
                ));
            }
            (Err(error), _) => return Err(error.to_string()),
        };
        Ok(self.keep(twin))
    }

    /// Loads one of sumlink's and keeps it loaded.
    fn keep(&mut self, twin: &'static Twin) -> Option<String> {
        let name = twin.system_name;
        if self.is_trial || self.kept.iter().any(|kept| kept.twin().system_name == name) {
            return Some(name.to_owned());
        }
        match keep(twin.algorithm, self.kept.first()) {
            Ok(kept) => {
                let how = match kept.is_own() {
                    true => "loaded until this process exits",
                    false => "loaded by another process and shared with it",
                };
                tracing::info!("congestion control {name}: {how}");
                self.kept.push(kept);
                Some(name.to_owned())
            }
            // Another program has loaded it for all; this one may use it but has no access to its
            // maps.
            Err(error) if check_congestion(name).is_ok() => {
                if twin.is_coupled() {
                    tracing::warn!("congestion control {name}: paths are not coupled: {error}");
                }
                Some(name.to_owned())
            }
            Err(error) => {
                if let Some(log) = kernel::refusal(&error) {
                    tracing::debug!("{log}");
                }
                tracing::warn!(
                    "congestion control {}: {error}; paths use the kernel's default",
                    twin.algorithm
                );
                None
            }
        }
    }

    /// The groups for the sessions; `None` if no loaded congestion control is coupled.
    pub(crate) fn into_groups(self) -> Option<Arc<dyn CarrierGroups>> {
        match self.kept.is_empty() {
            true => None,
            false => Some(Arc::new(self)),
        }
    }
}

impl CarrierGroups for Controls {
    fn join(&self, socket: BorrowedFd<'_>, session: &[u8; 16]) -> io::Result<()> {
        let number = self.numbers.hash_one(session) & ((1 << 62) - 1);
        let group = Group::new(number.max(1)).expect("within the numbers of groups");
        for kept in self.kept.iter().filter(|kept| kept.twin().is_coupled()) {
            kept.join(&socket, group).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// Parses the name of a coupled congestion control, for `coupled = "NAME"`.
pub(crate) fn parse_coupled(name: &str) -> Result<String, String> {
    if Twin::of(name).is_ok_and(Twin::is_coupled) {
        return Ok(name.to_owned());
    }
    if let Some(reason) = kernel::ABSENT {
        return Err(format!("no coupled congestion control `{name}`: {reason}"));
    }
    let coupled = TWINS.iter().filter(|twin| twin.is_coupled());
    let names: Vec<&str> = coupled.map(|twin| twin.algorithm).collect();
    let near = crate::config::closest(name, names.iter().copied());
    Err(match near {
        Some(near) => format!("no coupled congestion control `{name}`: did you mean `{near}`?"),
        None => format!(
            "no coupled congestion control `{name}`: choose one of {}",
            names.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "kernel")]
    #[test]
    fn uncoupled_congestion_controls_are_refused_as_coupled() {
        assert_eq!(parse_coupled("lia"), Ok("lia".to_owned()));
        assert_eq!(parse_coupled("sl_olia"), Ok("sl_olia".to_owned()));
        for alone in ["uncoupled", "cubic", "nosuch"] {
            let error = parse_coupled(alone).unwrap_err();
            assert!(error.starts_with(&format!("no coupled congestion control `{alone}`: ")));
        }
        assert!(
            parse_coupled("oliaa")
                .unwrap_err()
                .contains("did you mean `olia`?")
        );
    }

    #[test]
    fn the_kernels_own_are_accepted_and_unknown_ones_get_a_list() {
        let mut controls = Controls::default();
        assert_eq!(controls.choose("reno"), Ok(Some("reno".to_owned())));
        let error = controls.choose("nosuch").unwrap_err();
        let start = "unknown congestion control nosuch: this kernel has ";
        assert!(error.starts_with(start), "{error}");
        match kernel::ABSENT {
            Some(reason) => assert!(error.ends_with(reason), "{error}"),
            None => assert!(
                error.contains("sumlink can load ") && error.contains("lia"),
                "{error}"
            ),
        }
        assert!(controls.into_groups().is_none());
    }
}
