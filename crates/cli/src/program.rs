//! The frame of every program of sumlink: reads the command line, logs, and ends with a documented
//! exit code.

use std::process::ExitCode;

use clap::{Command, Parser};
use sumlink_util::plain;

use crate::args::Verbosity;
use crate::error::CliError;
use crate::exit::{self, Exit};
use crate::{heap, logging, output, usage};

/// A program's command line.
pub trait Program: Parser {
    /// Name.
    const NAME: &'static str;
    /// Exit codes of the program, in ascending order.
    const EXITS: &'static [Exit];

    /// The log level.
    fn verbosity(&self) -> Verbosity;

    /// Whether `--json` was given.
    fn json(&self) -> bool;

    /// One line with the new command for an old one that this program does not know.
    fn moved(_args: &[String]) -> Option<String> {
        None
    }

    /// Runs the verb.
    ///
    /// # Errors
    ///
    /// Why it failed; the exit code follows from it.
    fn run(self) -> Result<(), CliError>;
}

/// The command line, with the table of exit codes below its help.
pub(crate) fn command<P: Program>() -> Command {
    let table = format!("Exit codes:\n{}", crate::exit::table(P::EXITS));
    with_codes(P::command().after_help(table.clone()), &table)
}

/// Adds the table to the long help of every verb below the command.
fn with_codes(mut command: Command, table: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|c| c.get_name().to_owned())
        .collect();
    for name in names {
        command = command.mut_subcommand(name, |verb| {
            with_codes(verb.after_long_help(table.to_owned()), table)
        });
    }
    command
}

/// Runs a program from its command line to its exit code.
pub fn main<P: Program>() -> ExitCode {
    let args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let args: Vec<String> = args.collect();
    if let Some(advice) = P::moved(&args) {
        let json = args.iter().any(|arg| arg == "--json");
        return fail(P::NAME, &CliError::Usage(advice), json);
    }
    let program = match command::<P>().try_get_matches() {
        Ok(matches) => P::from_arg_matches(&matches),
        Err(error) => Err(error),
    };
    let program = match program {
        Ok(program) => program,
        Err(error) => return usage(&error, &args),
    };
    let json = program.json();
    let code = match run(program) {
        Ok(()) => Exit::Ok.code().into(),
        Err(error) => fail(P::NAME, &error, json),
    };
    logging::finish();
    code
}

fn run<P: Program>(program: P) -> Result<(), CliError> {
    let Verbosity { verbose, quiet } = program.verbosity();
    logging::start(verbose, quiet)?;
    heap::keep_freed();
    program.run()
}

/// Runs a verb to its end without waiting for name resolution in the background.
///
/// # Errors
///
/// The verb's errors, or the system has no thread for it.
pub fn block_on(verb: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    // Every proxied connection takes a descriptor.
    sumlink_transport::descriptors::raise();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(verb);
    runtime.shutdown_background();
    result
}

/// Prints one line on standard error, or one object on standard output, and returns the documented
/// exit code.
fn fail(program: &str, error: &CliError, json: bool) -> ExitCode {
    match error {
        CliError::AlreadyReported(_) => {}
        // A reader that ends early, such as `head`, causes no message.
        CliError::System(io) if io.kind() == std::io::ErrorKind::BrokenPipe => {}
        _ if json => output::print_json(&error.json()).unwrap_or_default(),
        CliError::Other(failure) if failure.has_places => {
            logging::error(&format!("{}\n", plain(error)));
        }
        _ => logging::error(&format!("{program}: {}\n", plain(error))),
    }
    error.code().into()
}

/// The problem in clap's message, with the arguments that it lists, on one line.
fn one_line(text: &str) -> String {
    let problem = text.lines().take_while(|line| !line.trim().is_empty());
    let words: Vec<&str> = problem.map(str::trim).collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

/// Prints clap's message: help and version are successes, everything else is wrong usage.
fn usage(error: &clap::Error, args: &[String]) -> ExitCode {
    let json = args.iter().any(|arg| arg == "--json");
    if error.use_stderr() && json {
        let text = error.to_string();
        let message = one_line(&text);
        let message = match usage::advice(error, args) {
            Some(advice) => format!("{message}; {advice}"),
            None => message,
        };
        output::print_json(&exit::error_json(Exit::Usage, &message)).unwrap_or_default();
    } else if error.print().is_err() {
        return Exit::Other.code().into();
    } else if let Some(advice) = usage::advice(error, args) {
        output::note(&format!("\n{advice}\n"));
    }
    if error.use_stderr() {
        Exit::Usage.code().into()
    } else {
        Exit::Ok.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn a_message_on_one_line_names_the_missing_arguments() {
        let error = crate::program::command::<crate::verbs::Cli>()
            .try_get_matches_from(["sumlink", "check"])
            .unwrap_err();
        assert_eq!(
            one_line(&error.to_string()),
            "the following required arguments were not provided: <FILE>"
        );
    }
}
