//! `sumlink check`: is this configuration file right, and if not, where is it wrong?

use std::path::Path;

use serde_json::json;

use crate::args::CheckArgs;
use crate::config::{self, ConfigError, Plan, Planned, Problem};
use crate::exit::CliError;
use crate::output::{note, print, print_json};

/// Runs the verb. All problems and warnings are printed; the failure that it returns carries the exit code.
pub(crate) fn run(args: &CheckArgs) -> Result<(), CliError> {
    let Planned { plan, warnings } = config::check(&args.file)?;
    let warned = lines(&args.file, "warning: ", &warnings);
    match plan {
        Ok(plan) => {
            let role = plan.role();
            if args.json {
                return print_json(&json!({
                    "file": args.file, "ok": true, "role": role, "problems": [], "warnings": warnings
                }));
            }
            note(&warned);
            print(&format!(
                "{}: ok, {} {role}'s configuration: {}\n",
                args.file.display(),
                if role == "edge" { "an" } else { "a" },
                describe(&plan)
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
        Plan::Edge(edge) => {
            let links = edge.node.links.iter().map(|link| link.name.as_str());
            format!(
                "the {}'s end, {} over {}",
                edge.node.role.name(),
                edge.node.core.steering,
                joined(links.collect())
            )
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
