//! Congestion controls in the kernel: the kernel crate, or in a build without it the reason why
//! none can be loaded.

#[cfg(not(feature = "kernel"))]
mod absent;

#[cfg(not(feature = "kernel"))]
pub(crate) use absent::*;
#[cfg(feature = "kernel")]
pub(crate) use present::*;

#[cfg(feature = "kernel")]
mod present {
    pub(crate) use sumlink_kernel::*;

    /// Why this build cannot load congestion controls; `None` if it can.
    pub(crate) const ABSENT: Option<&str> = None;

    /// Fails if this build cannot load congestion controls.
    pub(crate) fn check_build() -> Result<(), Error> {
        Ok(())
    }

    /// Whether the request was invalid, rather than impossible on this system.
    pub(crate) fn is_usage(error: &Error) -> bool {
        matches!(
            error,
            Error::NoTwin { .. } | Error::Settings(_) | Error::NotForTheKernel { .. }
        )
    }

    /// The kernel's log about a program that it rejected.
    pub(crate) fn refusal(error: &Error) -> Option<&str> {
        match error {
            Error::Refused { log, .. } => Some(log),
            _ => None,
        }
    }
}
