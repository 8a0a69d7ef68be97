//! `sumlink check`: checks a configuration file and lists its problems.

use std::path::Path;

use serde_json::json;

use crate::args::CheckArgs;
use crate::config::{self, ConfigError, Plan, Planned, Problem};
use crate::error::CliError;
use crate::output::{note, print, print_json};

/// Runs the verb. Prints all problems and warnings; the returned failure carries the exit code.
pub(crate) fn run(args: &CheckArgs) -> Result<(), CliError> {
    report(args, config::check(&args.file)?, |plan| {
        (plan.role(), describe(plan))
    })
}

/// Prints the role and a description of a file's configuration, or its problems.
///
/// # Errors
///
/// The failure that carries the exit code. Its problems have been printed, unless it concerns the
/// file as a whole.
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
            Err(CliError::AlreadyReported(
                ConfigError::Wrong { file, problems }.exit(),
            ))
        }
        Err(error) => Err(error),
    }
}

/// One line per problem, in a form that editors can jump to.
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
            let servers: Vec<&str> = config.servers().map(|(server, _)| server).collect();
            let word = if servers.len() > 1 {
                "servers"
            } else {
                "server"
            };
            format!("{word} {} over {links}", servers.join(", "))
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
