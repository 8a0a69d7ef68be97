//! The exit codes of the programs, a documented one for each kind of failure.

use serde_json::json;

/// The exit codes; `--help`, the man pages and docs/cli.md show this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success, or a daemon stopped by a signal.
    Ok = 0,
    /// None of the others: output could not be written, or the system refused an operation.
    Other = 1,
    /// The command line is wrong; nothing was started.
    Usage = 2,
    /// The configuration file is missing or wrong.
    Config = 3,
    /// A key file is missing, malformed, readable by others, or would be overwritten.
    Key = 4,
    /// An address or a link: taken port, unknown host or link, no route, no answer.
    Network = 5,
    /// The server has another key, or does not know this client's key.
    Authentication = 6,
    /// The peer speaks another version of the protocol.
    Version = 7,
    /// The control socket does not answer, is in use, or may not be opened.
    Control = 8,
    /// The laboratory could not run.
    Laboratory = 9,
    /// The laboratory ran, and a figure missed its target or is invalid.
    Measurement = 10,
    /// Congestion controls and traces in the kernel.
    Kernel = 11,
    /// Routes, firewall, device or DNS port of a gateway.
    Gateway = 12,
    /// A signal interrupted doctor, speedtest, setup, join or the laboratory, or a second signal
    /// arrived while a daemon was closing.
    Interrupted = 130,
}

impl Exit {
    /// Every code, in ascending order.
    pub const ALL: [Self; 14] = [
        Self::Ok,
        Self::Other,
        Self::Usage,
        Self::Config,
        Self::Key,
        Self::Network,
        Self::Authentication,
        Self::Version,
        Self::Control,
        Self::Laboratory,
        Self::Measurement,
        Self::Kernel,
        Self::Gateway,
        Self::Interrupted,
    ];

    /// The number that the shell sees.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The `kind` of `--json` errors.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Other => "other",
            Self::Usage => "usage",
            Self::Config => "configuration",
            Self::Key => "key",
            Self::Network => "network",
            Self::Authentication => "authentication",
            Self::Version => "version",
            Self::Control => "control",
            Self::Laboratory => "laboratory",
            Self::Measurement => "measurement",
            Self::Kernel => "kernel",
            Self::Gateway => "gateway",
            Self::Interrupted => "interrupted",
        }
    }

    /// The meaning of the code, for help texts.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "success, including a client or server that a signal stopped",
            Self::Other => "any other failure, such as output that cannot be written",
            Self::Usage => "wrong command line",
            Self::Config => "missing or wrong configuration file",
            Self::Key => "key file missing, malformed, readable by others, or already present",
            Self::Network => {
                "address or link: taken port, unknown host or link, no route, no answer"
            }
            Self::Authentication => "wrong server key, or this client is not authorized",
            Self::Version => "the peer speaks another version of the protocol",
            Self::Control => "control socket: no process listens, already in use, or not permitted",
            Self::Laboratory => {
                "laboratory: a program, device or permission is missing, or a part failed"
            }
            Self::Measurement => "laboratory: a figure missed its target, or was refused",
            Self::Kernel => {
                "congestion controls in the kernel: privilege or feature missing, or refused"
            }
            Self::Gateway => {
                "gateway: privilege, device or firewall missing, refused, or already running"
            }
            Self::Interrupted => {
                "interrupted: doctor, speedtest, setup, join or the laboratory; a daemon by a second \
                 signal"
            }
        }
    }
}

/// A failure as a JSON object.
pub fn error_json(exit: Exit, message: &str) -> serde_json::Value {
    json!({ "error": { "kind": exit.kind(), "exit_code": exit.code(), "message": message } })
}

/// A table of exit codes, indented, one per line.
pub(crate) fn table(exits: &[Exit]) -> String {
    let line = |exit: &Exit| format!("  {:>3}  {}\n", exit.code(), exit.meaning());
    exits.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_ascending() {
        assert!(
            Exit::ALL
                .windows(2)
                .all(|pair| pair[0].code() < pair[1].code())
        );
    }

    #[test]
    fn the_manual_lists_every_code_with_the_same_words() {
        let manual = include_str!("../../../docs/cli.md");
        for exit in Exit::ALL {
            let row = format!("| {} | {} |", exit.code(), exit.meaning());
            assert!(manual.contains(&row), "docs/cli.md lacks this row: {row}");
        }
    }
}
