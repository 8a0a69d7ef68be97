//! What the program tells on standard error while it runs.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::exit::CliError;

/// Environment variable with a filter such as `debug` or `sumlink_transport=trace,info`.
const VARIABLE: &str = "SUMLINK_LOG";

/// Starts logging; the environment wins over the flags.
pub(crate) fn start(verbose: u8, quiet: bool) -> Result<(), CliError> {
    let filter = match std::env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text)
            .map_err(|error| CliError::Usage(format!("{VARIABLE}={text}: {error}")))?,
        // What rustls has to say of a peer's mistakes is said by the connection's own line, which nobody can cause
        // without bound.
        _ => EnvFilter::new(match (quiet, verbose) {
            (true, _) => "error,rustls=off",
            (false, 0) => "info,rustls=off",
            (false, 1) => "debug",
            (false, _) => "trace",
        }),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(verbose > 0)
        .init();
    Ok(())
}
