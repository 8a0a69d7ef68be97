//! What can go wrong between this process and the kernel.

use std::io;
use std::path::PathBuf;

use sumlink_congestion::BuildError;
use sumlink_util::plain;

use crate::probe::Missing;

/// Why something could not be loaded, unloaded or told to the kernel.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller asked for an algorithm that there is not, or not for the kernel.
    #[error("no congestion control {name:?} for the kernel; available: {}", known.join(", "))]
    NoTwin {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The caller set something that the algorithm does not know or that is out of range.
    #[error(transparent)]
    Settings(#[from] BuildError),
    /// The caller set something that the kernel decides for every socket alike, or that the twin does not have.
    #[error("{key} of {name} cannot be set in the kernel, only: {}", known.join(", "))]
    NotForTheKernel {
        /// What was to be set.
        key: String,
        /// The algorithm.
        name: &'static str,
        /// What can be set.
        known: Vec<&'static str>,
    },
    /// This process or this kernel lacks something.
    #[error("{0}")]
    Missing(Missing),
    /// The name is taken on this system.
    #[error("{name} is loaded already")]
    LoadedAlready {
        /// Name on the system.
        name: &'static str,
    },
    /// Nothing of that name is pinned there.
    #[error("{name} is not loaded, or by a process that keeps it for itself")]
    NotLoaded {
        /// Name on the system.
        name: &'static str,
    },
    /// It is loaded by a process that this one cannot share it with.
    #[error(
        "{name} was loaded by another process, and only root can share it: load it with `sumlink cc load`, or run it as root"
    )]
    NotShared {
        /// Name on the system.
        name: &'static str,
    },
    /// The kernel did not take the program.
    #[error("the kernel refused {name}: {}", plain(.source))]
    Refused {
        /// Name on the system.
        name: &'static str,
        /// What it answered.
        source: libbpf_rs::Error,
        /// What libbpf and the verifier had to say, in many lines.
        log: String,
    },
    /// The kernel did not take or give a map, a group or a pin.
    #[error("{what}: {}", plain(.source))]
    Map {
        /// What was tried.
        what: &'static str,
        /// What the kernel answered.
        source: libbpf_rs::Error,
    },
    /// A file of the BPF file system or of /proc.
    #[error("cannot use {}: {}", path.display(), plain(.source))]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    pub(crate) fn map(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |source| Self::Map { what, source }
    }
}
