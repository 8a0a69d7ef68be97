//! `sumlink check`: is this configuration file right, and if not, where is it wrong?

use std::path::Path;

use serde_json::json;

use crate::args::CheckArgs;
use crate::config::{self, ConfigError, Plan, Planned, Problem};
use crate::exit::CliError;
use crate::output::{note, print, print_json};

/// Runs the verb. All problems and warnings are printed; the failure that it returns carries the exit code.
pub(crate) fn run(args: &CheckArgs) -> Result<(), CliError> {
    report(args, config::check(&args.file)?, |plan| {
        (plan.role(), describe(plan))
    })
}

/// Prints what a file's configuration comes to, by its role and a description, or what is wrong with it.
///
/// # Errors
///
/// The failure that carries the exit code; what is wrong has been printed then, unless it is about the file as a whole.
pub fn report<T>(
    args: &CheckArgs,
    planned: Planned<T>,
    describe: impl FnOnce(&T) -> (&'static str, String),
) -> Result<(), CliError> {
    let Planned { plan, warnings } = planned;
    let warned = lines(&args.file, "warning: ", &warnings);
    match plan {
        Ok(plan) => {
            let (role, description) = describe(&plan);
            if args.json {
                return print_json(&json!({
                    "file": args.file, "ok": true, "role": role, "problems": [], "warnings": warnings
                }));
            }
            note(&warned);
            print(&format!(
                "{}: ok, {} {role}'s configuration: {description}\n",
                args.file.display(),
                if role == "edge" { "an" } else { "a" },
            ))
        }
        Err(CliError::Config(ConfigError::Wrong { file, problems })) => {
            match args.json {
                true => print_json(&json!({
                    "file": file, "ok": false, "problems": problems, "warnings": warnings
                }))?,
                false => note(&format!("{}{warned}", lines(&file, "", &problems))),
            }
            Err(CliError::Told(ConfigError::Wrong { file, problems }.exit()))
        }
        Err(error) => Err(error),
    }
}

/// A line for each, which an editor finds its way by.
fn lines(file: &Path, kind: &str, problems: &[Problem]) -> String {
    let line = |p: &Problem| format!("{}:{}: {kind}{}\n", file.display(), p.line, p.text());
    problems.iter().map(line).collect()
}

fn describe(plan: &Plan) -> String {
    let joined = |names: Vec<&str>| names.join(", ");
    match plan {
        Plan::Client(client) => {
            let config = &client.config;
            let links = config.links.iter().map(|link| link.name.as_str());
            let links = match config.links.is_empty() {
                true => "every link that reaches it".to_owned(),
                false => joined(links.collect()),
            };
            format!("server {} over {links}", config.server)
        }
        Plan::Server(server) => {
            let clients = match server.config.authorized.len() {
                1 => "1 client".to_owned(),
                n => format!("{n} clients"),
            };
            format!(
                "listens on {}, {clients}, {} egress rules",
                server.config.listen, server.rules
            )
        }
    }
}
