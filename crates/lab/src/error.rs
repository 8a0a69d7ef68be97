//! Errors of the laboratory and their exit codes.

use std::io;
use std::path::PathBuf;

use sumlink_scenario::error::{LinkError, LoadError, lines};
use sumlink_scenario::scenario::Problem;
use sumlink_settings::units::UnitError;
use sumlink_util::plain;

/// Why a laboratory command failed. Each message is one line that suggests a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The description of a link, or a change to one, is invalid.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// A quantity cannot be parsed.
    #[error("{0}")]
    Unit(#[from] UnitError),
    /// Other invalid input.
    #[error("{0}")]
    Usage(String),
    /// A required program is not installed.
    #[error("{program} is not installed; install it with: apt-get install {package}")]
    MissingProgram {
        /// The program.
        program: String,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// The kernel has no TUN devices, or their device file is missing.
    #[error(
        "/dev/net/tun does not exist: load the tun module (modprobe tun), or give the container \
         that device"
    )]
    NoTun,
    /// The device file of TUN devices cannot be opened without more privileges.
    #[error(
        "no permission to open /dev/net/tun: run as root, or allow it with: sudo chmod 666 \
         /dev/net/tun"
    )]
    TunDenied,
    /// Network namespaces can be created neither as root nor in a user namespace.
    #[error(
        "cannot create network namespaces ({reason}): run as root, or allow unprivileged user \
         namespaces with: sudo sysctl kernel.unprivileged_userns_clone=1 \
         kernel.apparmor_restrict_unprivileged_userns=0"
    )]
    NoNamespaces {
        /// The kernel's error.
        reason: String,
    },
    /// The congestion control is unknown to the kernel, or not allowed as the default of a
    /// namespace.
    #[error("congestion control '{name}' cannot be used here: {reason}")]
    Congestion {
        /// Name of the congestion control.
        name: String,
        /// The reason and a remedy.
        reason: String,
    },
    /// A system call, or a program that configures the system, failed.
    #[error("{action}: {reason}")]
    System {
        /// The failed action.
        action: String,
        /// The system's error.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("cannot use {}: {}", path.display(), plain(.source))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A scenario file, or a directory of them, cannot be read.
    #[error("{}: cannot read it: {}; check the path and its owner", path.display(), plain(.source))]
    ScenarioFile {
        /// The file or the directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Scenarios are invalid; one line for each problem.
    #[error("{}", lines(.0))]
    Scenario(Vec<Problem>),
    /// Results cannot be written.
    #[error(
        "cannot write {}: {}; free space, or choose a writable place with --out",
        path.display(),
        plain(.source)
    )]
    Output {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No laboratory is running, or the choice is ambiguous.
    #[error("{0}")]
    NoLab(String),
    /// A program started in the laboratory exited with a code other than 0.
    #[error("the command exited with code {0}")]
    CommandFailed(u8),
    /// A program that the demo needs failed.
    #[error("{what}{}", log_tail(.log))]
    Failed {
        /// What failed.
        what: String,
        /// The end of its log, may be empty.
        log: String,
    },
    /// The demo ran, but sumlink was slower than required.
    #[error("{0}")]
    FellShort(String),
    /// The figures would not reflect the links: the emulator itself was the bottleneck, or a link
    /// did not carry the traffic that a figure attributes to it.
    #[error("the figures are refused: {0}")]
    Refused(String),
    /// The user or the system asked to stop.
    #[error("interrupted; cleanup is complete")]
    Interrupted,
}

impl LabError {
    /// The exit code of a program that has only these subcommands, such as `examples/lab.rs`;
    /// `sumlink-lab` uses the codes of docs/cli.md.
    ///
    /// | code | meaning |
    /// | --- | --- |
    /// | 1 | the system refused an operation that should be allowed, or a file cannot be read or written |
    /// | 2 | the input is invalid, or a scenario cannot be read |
    /// | 3 | a required program or device is missing |
    /// | 4 | a permission is missing |
    /// | 5 | no such laboratory |
    /// | 6 | a program of the demo failed |
    /// | 7 | sumlink was slower in the demo than required |
    /// | 8 | the figures are refused: a busy emulator, or a link that did not carry the traffic |
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

    /// An unreadable scenario file or directory, for `map_err`.
    pub(crate) fn scenario_file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::ScenarioFile { path, source }
    }

    /// A failure to write results, for `map_err`.
    pub(crate) fn output(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Output { path, source }
    }

    /// A failure to read or write a file, for `map_err`.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

fn log_tail(log: &str) -> String {
    if log.is_empty() {
        String::new()
    } else {
        format!("; end of its log:\n{log}")
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
