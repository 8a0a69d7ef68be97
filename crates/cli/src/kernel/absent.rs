//! A build without the kernel part: nothing can be loaded, and each function returns the reason.

use std::convert::Infallible;
use std::fmt;
use std::os::fd::AsFd;
use std::path::Path;

use sumlink_congestion::{Parameter, Settings};

const REASON: &str = "this build of sumlink has no congestion controls for the kernel (cargo feature `kernel`): it \
                      uses those that the kernel has";

/// Why this build cannot load congestion controls.
pub(crate) const ABSENT: Option<&str> = Some(REASON);

/// Empty in this build.
pub(crate) static TWINS: [Twin; 0] = [];

/// An algorithm for the kernel; none exists in this build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twin {
    pub(crate) algorithm: &'static str,
    pub(crate) system_name: &'static str,
    never: Infallible,
}

/// The only failure of this build.
#[derive(Debug, thiserror::Error)]
#[error("{REASON}")]
pub struct Error;

/// The only missing requirement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing;

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REASON)
    }
}

/// A congestion control that is kept loaded; none exists in this build.
#[derive(Debug)]
pub(crate) struct Kept(Infallible);

/// Folder of the pins.
#[derive(Debug)]
pub(crate) struct Pins;

/// The carriers of one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group;

impl Twin {
    pub(crate) fn of(_name: &str) -> Result<&'static Self, Error> {
        Err(Error)
    }

    pub(crate) fn is_coupled(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        match self.never {}
    }

    pub(crate) fn check(&self, _settings: &Settings) -> Result<(), Error> {
        match self.never {}
    }
}

impl Kept {
    pub(crate) fn twin(&self) -> &'static Twin {
        match self.0 {}
    }

    pub(crate) fn is_own(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn join(&self, _socket: &impl AsFd, _group: Group) -> Result<(), Error> {
        match self.0 {}
    }
}

impl Pins {
    pub(crate) fn at(_folder: impl AsRef<Path>) -> Self {
        Self
    }

    pub(crate) fn prepare(&self) -> Result<bool, Error> {
        Err(Error)
    }

    pub(crate) fn load(&self, _name: &str, _settings: &Settings) -> Result<(), Error> {
        Err(Error)
    }

    pub(crate) fn unload(&self, _name: &str) -> Result<bool, Error> {
        Err(Error)
    }

    pub(crate) fn list(&self) -> Vec<&'static Twin> {
        Vec::new()
    }
}

impl Group {
    pub(crate) fn new(_number: u64) -> Option<Self> {
        Some(Self)
    }
}

pub(crate) fn keep(_name: &str, _like: Option<&Kept>) -> Result<Kept, Error> {
    Err(Error)
}

pub(crate) fn loaded() -> Result<Vec<&'static Twin>, Error> {
    Ok(Vec::new())
}

pub(crate) fn probe() -> Vec<Missing> {
    vec![Missing]
}

/// Fails if this build cannot load congestion controls.
pub(crate) fn check_build() -> Result<(), Error> {
    Err(Error)
}

/// Whether the request was invalid, rather than impossible on this system.
pub(crate) fn is_usage(_error: &Error) -> bool {
    false
}

/// The kernel's log about a program that it rejected.
pub(crate) fn refusal(_error: &Error) -> Option<&str> {
    None
}
