//! Congestion controls in the kernel: the crate of that name, or in a build without it why nothing can be loaded.

#[cfg(not(feature = "kernel"))]
mod absent;

#[cfg(not(feature = "kernel"))]
pub(crate) use absent::*;
#[cfg(feature = "kernel")]
pub(crate) use present::*;

#[cfg(feature = "kernel")]
mod present {
    pub(crate) use sumlink_kernel::*;

    /// Why this build can load nothing; nothing if it can.
    pub(crate) const ABSENT: Option<&str> = None;

    /// Fails where this build can load nothing.
    pub(crate) fn check_build() -> Result<(), Error> {
        Ok(())
    }

    /// Whether what was asked for makes no sense, rather than being impossible here.
    pub(crate) fn is_usage(error: &Error) -> bool {
        matches!(
            error,
            Error::NoTwin { .. } | Error::Settings(_) | Error::NotForTheKernel { .. }
        )
    }

    /// What the kernel said of a program that it refused, for the log.
    pub(crate) fn refusal(error: &Error) -> Option<&str> {
        match error {
            Error::Refused { log, .. } => Some(log),
            _ => None,
        }
    }
}
