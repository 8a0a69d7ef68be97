//! Failures of the laboratory and their exit codes.

use sumlink::error::{CliError, Failure};
use sumlink::exit::Exit;
use sumlink_lab::LabError;
use sumlink_mmwave::MmwaveError;

/// Converts a failure of the laboratory; the exit code is a documented one, or that of a command
/// that it ran.
pub(crate) fn of_lab(error: LabError) -> CliError {
    let exit = match &error {
        LabError::Link(_) | LabError::Unit(_) | LabError::Usage(_) => Exit::Usage,
        LabError::Scenario(_) | LabError::ScenarioFile { .. } => Exit::Config,
        LabError::File { .. } | LabError::Output { .. } => Exit::Other,
        LabError::FellShort(_) | LabError::Refused(_) => Exit::Measurement,
        LabError::Interrupted => Exit::Interrupted,
        _ => Exit::Laboratory,
    };
    let code = match error {
        LabError::CommandFailed(code) => Some(code),
        _ => None,
    };
    Failure {
        code,
        has_places: matches!(error, LabError::Scenario(_)),
        ..Failure::new(exit, error)
    }
    .into()
}

/// Converts the error of an impossible cell, office or radio.
pub(crate) fn of_mmwave(error: MmwaveError) -> CliError {
    Failure::new(Exit::Usage, error).into()
}
