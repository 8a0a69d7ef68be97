//! Records Ctrl-C, SIGTERM and SIGHUP, so that the process can clean up before it exits.

use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use nix::sys::signal::{SigSet, Signal};

use crate::error::LabError;

/// The last signal received, 0 for none.
static ARRIVED: AtomicI32 = AtomicI32::new(0);

/// Blocks the three signals and records them instead.
///
/// Call it before any other thread starts: threads inherit the mask. Child processes inherit it as
/// well, unless it is cleared for them, as in [`crate::netns`].
pub(crate) fn watch() -> Result<(), LabError> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals
        .thread_block()
        .map_err(|error| LabError::system("blocking signals", error))?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            while let Ok(signal) = signals.wait() {
                ARRIVED.store(signal as i32, Ordering::Release);
            }
        })
        .map_err(|error| LabError::system("starting a thread", error))?;
    Ok(())
}

/// Fails once one of the signals has been received.
pub(crate) fn check() -> Result<(), LabError> {
    if ARRIVED.load(Ordering::Acquire) == 0 {
        Ok(())
    } else {
        Err(LabError::Interrupted)
    }
}

/// Like [`check`], but ignores Ctrl-C, which is meant for the program in the foreground.
pub(crate) fn check_except_interrupt() -> Result<(), LabError> {
    if ARRIVED.load(Ordering::Acquire) == Signal::SIGINT as i32 {
        Ok(())
    } else {
        check()
    }
}
