//! The limit on open files of the programs of a run.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::error::LabError;

/// Everything but connections, in the laboratory's programs. sumlink leaves three quarters of its
/// limit to connections.
const BESIDE: u64 = 512;

/// Raises the limit of this process, and of those that it starts, so that each can have this number
/// of connections.
///
/// # Errors
///
/// [`LabError::Refused`] if the limit is lower and must not be raised.
pub(super) fn allow(connections: u64) -> Result<(), LabError> {
    let wanted = connections + connections / 3 + BESIDE;
    let failed = |error| LabError::system("reading the limit on open files", error);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    if soft >= wanted {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).map_err(|error| {
        LabError::Refused(format!(
            "{connections} connections need a limit of {wanted} open files, and it is {hard} \
             ({error}): raise it with ulimit -n, which needs CAP_SYS_RESOURCE"
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
