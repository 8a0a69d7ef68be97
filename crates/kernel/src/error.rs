//! Errors between this process and the kernel.

use std::io;
use std::path::PathBuf;

use sumlink_congestion::BuildError;
use sumlink_util::plain;

use crate::probe::Missing;

/// Reasons why an operation on a congestion control failed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller requested an unknown algorithm, or one without a kernel program.
    #[error("no congestion control {name:?} for the kernel; available: {}", known.join(", "))]
    NoTwin {
        /// The requested name.
        name: String,
        /// The valid names.
        known: Vec<String>,
    },
    /// The caller set an unknown parameter, or a value out of range.
    #[error(transparent)]
    Settings(#[from] BuildError),
    /// The caller set a parameter that the kernel fixes for all sockets, or that the twin lacks.
    #[error("{key} of {name} cannot be set in the kernel, only: {}", known.join(", "))]
    NotForTheKernel {
        /// The requested key.
        key: String,
        /// The algorithm.
        name: &'static str,
        /// The valid keys.
        known: Vec<&'static str>,
    },
    /// This process or this kernel lacks a requirement.
    #[error("{0}")]
    Missing(Missing),
    /// The name is already registered on this system.
    #[error("{name} is already loaded")]
    LoadedAlready {
        /// Name on the system.
        name: &'static str,
    },
    /// No congestion control of that name is pinned there.
    #[error("{name} is not loaded, or not pinned by the process that loaded it")]
    NotLoaded {
        /// Name on the system.
        name: &'static str,
    },
    /// It is loaded by a process with which this one cannot share it.
    #[error(
        "{name} was loaded by another process, and only root can share it; load it with `sumlink \
         cc load`, or run as root"
    )]
    NotShared {
        /// Name on the system.
        name: &'static str,
    },
    /// The kernel rejected the program.
    #[error("the kernel rejected {name}: {}", plain(.source))]
    Refused {
        /// Name on the system.
        name: &'static str,
        /// Its answer.
        source: libbpf_rs::Error,
        /// Output of libbpf and the verifier, of many lines.
        log: String,
    },
    /// An operation on a map, a group or a pin failed.
    #[error("{what}: {}", plain(.source))]
    Map {
        /// The operation.
        what: &'static str,
        /// The kernel's answer.
        source: libbpf_rs::Error,
    },
    /// An operation on a file of the BPF file system or of /proc failed.
    #[error("cannot use {}: {}", path.display(), plain(.source))]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The system's answer.
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
