//! The limit on open files of the programs of a run.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::error::LabError;

/// Programs keep a part of their limit for other purposes than connections (three quarters are left
/// in sumlink).
const FACTOR: u64 = 2;
/// Everything but connections.
const BESIDE: u64 = 1024;

/// Raises the limit of this process, and of those that it starts, so that each can have this number
/// of connections.
///
/// # Errors
///
/// [`LabError::Refused`] if the limit is lower and must not be raised.
pub(super) fn allow(connections: u64) -> Result<(), LabError> {
    let wanted = connections * FACTOR + BESIDE;
    let failed = |error| LabError::system("reading the limit on open files", error);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    if soft >= wanted {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).map_err(|error| {
        LabError::Refused(format!(
            "{connections} connections need a limit of {wanted} open files, and it is {hard} \
             ({error}): run as root"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_suffices_is_not_changed() {
        let limit = || getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let (soft, hard) = limit();
        if soft > BESIDE {
            allow(0).unwrap();
            assert_eq!(limit(), (soft, hard));
        }
    }
}
