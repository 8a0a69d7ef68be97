//! What can go wrong in the laboratory, and the exit code of each.

use std::io;
use std::path::PathBuf;

use sumlink_scenario::error::{LinkError, LoadError, lines};
use sumlink_scenario::scenario::Problem;
use sumlink_settings::units::UnitError;
use sumlink_util::plain;

/// Why a laboratory command failed. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The description of a link, or a change to one, makes no sense.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// A quantity cannot be read.
    #[error("{0}")]
    Unit(#[from] UnitError),
    /// Something else the user asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A program that is needed is not installed.
    #[error("{program} is not installed; install it with: apt-get install {package}")]
    MissingProgram {
        /// The program.
        program: String,
        /// The Debian package that brings it.
        package: &'static str,
    },
    /// The kernel has no TUN devices, or their device file is missing.
    #[error(
        "/dev/net/tun does not exist: load the tun module (modprobe tun), or give the container that device"
    )]
    NoTun,
    /// The device file of TUN devices may not be opened.
    #[error(
        "/dev/net/tun may not be opened: run as root, or allow it with: sudo chmod 666 /dev/net/tun"
    )]
    TunDenied,
    /// Network namespaces can be made neither as root nor in a user namespace.
    #[error(
        "network namespaces may not be made here ({reason}): run as root, or allow unprivileged user \
         namespaces with: sudo sysctl kernel.unprivileged_userns_clone=1 \
         kernel.apparmor_restrict_unprivileged_userns=0"
    )]
    NoNamespaces {
        /// What the kernel said.
        reason: String,
    },
    /// The congestion control is unknown to the kernel, or may not be the default of a namespace.
    #[error("congestion control '{name}' cannot be used here: {reason}")]
    Congestion {
        /// Its name.
        name: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A system call, or a program that configures the system, failed.
    #[error("{action}: {reason}")]
    System {
        /// What was being done.
        action: String,
        /// What the system said.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("cannot use {}: {}", path.display(), plain(.source))]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A scenario's file, or a directory of them, cannot be read.
    #[error("{}: cannot read it: {}; check the path and its owner", path.display(), plain(.source))]
    ScenarioFile {
        /// The file or the directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// At least one thing is wrong with scenarios; one line each.
    #[error("{}", lines(.0))]
    Scenario(Vec<Problem>),
    /// Results cannot be written.
    #[error(
        "cannot write {}: {}; make room or choose another place, which you may write to, with --out",
        path.display(),
        plain(.source)
    )]
    Output {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No laboratory is running, or it is unclear which is meant.
    #[error("{0}")]
    NoLab(String),
    /// A program started in the laboratory ended with an exit code other than 0.
    #[error("the command ended with exit code {0}")]
    CommandFailed(u8),
    /// A program that the demonstration needs did not do its part.
    #[error("{what}{}", log_tail(.log))]
    Failed {
        /// What failed.
        what: String,
        /// The end of its log, may be empty.
        log: String,
    },
    /// The demonstration ran, and sumlink was not as fast as it must be.
    #[error("{0}")]
    FellShort(String),
    /// The figures would say nothing about the links: the emulator itself was the bottleneck, or a
    /// link did not carry what a figure says of it.
    #[error("the figures are refused: {0}")]
    Refused(String),
    /// The user or the system asked to stop.
    #[error("interrupted; everything is cleaned up")]
    Interrupted,
}

impl LabError {
    /// The exit code of a program that has only these verbs, such as `examples/lab.rs`; `sumlink-lab` has the codes of
    /// docs/cli.md.
    ///
    /// | code | meaning |
    /// | --- | --- |
    /// | 1 | the system refused something it should allow, or a file cannot be read or written |
    /// | 2 | what was asked for makes no sense, or a scenario cannot be read |
    /// | 3 | a program or a device that is needed is missing |
    /// | 4 | a permission is missing |
    /// | 5 | no such laboratory |
    /// | 6 | a program of the demonstration failed |
    /// | 7 | the demonstration fell short of what it must reach |
    /// | 8 | the figures are refused: a busy emulator, or a link that did not carry them |
    /// | 130 | interrupted |
    /// | other | `sumlink-lab shell` and `sumlink-lab exec`: that of the command |
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::System { .. } | Self::File { .. } | Self::Output { .. } => 1,
            Self::Link(_)
            | Self::Unit(_)
            | Self::Usage(_)
            | Self::ScenarioFile { .. }
            | Self::Scenario(_) => 2,
            Self::MissingProgram { .. } | Self::NoTun => 3,
            Self::TunDenied | Self::NoNamespaces { .. } | Self::Congestion { .. } => 4,
            Self::NoLab(_) => 5,
            Self::Failed { .. } => 6,
            Self::FellShort(_) => 7,
            Self::Refused(_) => 8,
            Self::Interrupted => 130,
            Self::CommandFailed(code) => *code,
        }
    }

    /// A failed system call.
    pub(crate) fn system(action: impl Into<String>, reason: impl ToString) -> Self {
        Self::System {
            action: action.into(),
            reason: plain(reason.to_string()).to_string(),
        }
    }

    /// A scenario's file, or a directory of them, that cannot be read, for `map_err`.
    pub(crate) fn scenario_file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::ScenarioFile { path, source }
    }

    /// Results that cannot be written, for `map_err`.
    pub(crate) fn output(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Output { path, source }
    }

    /// A file that cannot be read or written, for `map_err`.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

fn log_tail(log: &str) -> String {
    if log.is_empty() {
        String::new()
    } else {
        format!("; its last words:\n{log}")
    }
}

impl From<LoadError> for LabError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::File { path, source } => Self::ScenarioFile { path, source },
            LoadError::Problems(problems) => Self::Scenario(problems),
            error => Self::Usage(error.to_string()),
        }
    }
}
