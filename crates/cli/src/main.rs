//! sumlink: one connection over every link a machine has. One binary, both roles.

#![deny(unsafe_code)]

mod args;
mod cc;
mod check;
mod client;
mod config;
mod congestion;
mod control;
mod edge;
mod exit;
mod find_socket;
mod generate;
mod grid;
#[expect(unsafe_code, reason = "mallopt(3) has no safe wrapper")]
mod heap;
mod keys;
mod link;
mod links;
mod log_limit;
mod logging;
mod metrics;
mod mmwave;
mod opener;
mod output;
mod places;
mod server;
mod signals;
mod sim;
mod spool;
mod status;
mod table;
mod usage;

use std::process::ExitCode;

use clap::FromArgMatches;
use sumlink_util::plain;

use args::{Cli, Verb};
use exit::{CliError, Exit};
use sumlink_lab::LabError;

fn main() -> ExitCode {
    let cli = match generate::command().try_get_matches() {
        Ok(matches) => Cli::from_arg_matches(&matches),
        Err(error) => Err(error),
    };
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let json = cli.verb.json();
    let code = match run(cli) {
        Ok(()) => Exit::Ok.code().into(),
        Err(error) => fail(&error, json),
    };
    logging::finish();
    code
}

fn run(cli: Cli) -> Result<(), CliError> {
    logging::start(cli.verbose, cli.quiet)?;
    heap::keep_freed();
    match cli.verb {
        Verb::Keygen(args) => keys::keygen(&args),
        Verb::Pubkey(args) => keys::pubkey(&args),
        Verb::Server(args) => block_on(server::run(args)),
        Verb::Client(args) => block_on(client::run(args)),
        Verb::Edge(args) => block_on(edge::run(args)),
        Verb::Check(args) => check::run(&args),
        Verb::Links(args) => block_on(links::run(&args)),
        Verb::Status(args) => status::run(&args),
        Verb::Link(args) => link::run(&args),
        // The laboratory enters namespaces, which must happen before any thread is started.
        Verb::Lab { command } => Ok(sumlink_lab::run(command)?),
        Verb::Sim { command } => sim::run(&command),
        Verb::Cc { command } => cc::run(command),
        Verb::Mmwave { command } => mmwave::run(&command),
        Verb::Completions { shell } => generate::completions(shell),
        Verb::Man(args) => generate::man(&args),
    }
}

/// Runs a verb to its end, and does not wait for a resolver that may still be busy with a name.
pub(crate) fn block_on(verb: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    // Every proxied connection takes one.
    sumlink_transport::descriptors::raise();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(verb);
    runtime.shutdown_background();
    result
}

/// One line on standard error, or one object on standard output, and the documented exit code.
fn fail(error: &CliError, json: bool) -> ExitCode {
    match error {
        CliError::Told(_) => {}
        // A reader that has seen enough, such as `head`, is no failure worth a word.
        CliError::System(io) if io.kind() == std::io::ErrorKind::BrokenPipe => {}
        _ if json => output::print_json(&error.json()).unwrap_or_default(),
        // Every line of it begins with file and line, for editors.
        CliError::Lab(lab) if matches!(**lab, LabError::Scenario(_)) => {
            output::note(&format!("{}\n", plain(error)));
        }
        _ => output::note(&format!("sumlink: {}\n", plain(error))),
    }
    error.code().into()
}

/// What clap has to say: help and version are no errors, everything else is wrong usage.
fn usage(error: &clap::Error) -> ExitCode {
    let args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let args: Vec<String> = args.collect();
    let json = args.iter().any(|arg| arg == "--json");
    if error.use_stderr() && json {
        let text = error.to_string();
        let message = text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("error: ");
        let message = match usage::advice(error, &args) {
            Some(advice) => format!("{message}; {advice}"),
            None => message.to_owned(),
        };
        output::print_json(&exit::error_json(Exit::Usage, &message)).unwrap_or_default();
    } else if error.print().is_err() {
        return Exit::Other.code().into();
    } else if let Some(advice) = usage::advice(error, &args) {
        output::note(&format!("\n{advice}\n"));
    }
    if error.use_stderr() {
        Exit::Usage.code().into()
    } else {
        Exit::Ok.code().into()
    }
}
