//! Ctrl-C, SIGTERM and SIGHUP: noticed, so that everything is cleaned up before the process ends.

use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use nix::sys::signal::{SigSet, Signal};

use crate::error::LabError;

/// The last signal that arrived, 0 for none.
static ARRIVED: AtomicI32 = AtomicI32::new(0);

/// Keeps the three signals from ending the process, and notes them instead.
///
/// Call it before any other thread starts: threads inherit the mask. So do programs that are started, unless
/// it is cleared for them, as [`crate::netns`] does.
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

/// An error once one of the signals has arrived.
pub(crate) fn check() -> Result<(), LabError> {
    if ARRIVED.load(Ordering::Acquire) == 0 {
        Ok(())
    } else {
        Err(LabError::Interrupted)
    }
}

/// Like [`check`], but Ctrl-C does not count: it is meant for the program in the foreground.
pub(crate) fn check_except_interrupt() -> Result<(), LabError> {
    if ARRIVED.load(Ordering::Acquire) == Signal::SIGINT as i32 {
        Ok(())
    } else {
        check()
    }
}
