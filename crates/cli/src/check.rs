//! `sumlink check`: is this configuration file right, and if not, where is it wrong?

use std::path::Path;

use serde_json::json;

use crate::args::CheckArgs;
use crate::config::{self, ConfigError, Depth, File, Problem};
use crate::exit::CliError;
use crate::output::{note, print, print_json};

/// Runs the verb. All problems are printed; the failure that it returns carries the exit code.
pub(crate) fn run(args: &CheckArgs) -> Result<(), CliError> {
    match config::read(&args.file, Depth::Complete) {
        Ok(file) => told(&file, args),
        Err(ConfigError::Wrong { file, problems }) if args.json => {
            print_json(
                &json!({ "file": file, "ok": false, "problems": problems, "warnings": [] }),
            )?;
            Err(CliError::Told(ConfigError::Wrong { file, problems }.exit()))
        }
        Err(ConfigError::Wrong { file, problems }) => {
            note(&lines(&file, "", &problems));
            Err(CliError::Told(ConfigError::Wrong { file, problems }.exit()))
        }
        Err(error) => Err(error.into()),
    }
}

fn told(file: &File, args: &CheckArgs) -> Result<(), CliError> {
    let role = file.role();
    let warnings = file.warnings();
    if args.json {
        return print_json(&json!({
            "file": args.file, "ok": true, "role": role, "problems": [], "warnings": warnings
        }));
    }
    note(&lines(&args.file, "warning: ", &warnings));
    print(&format!(
        "{}: ok, {} {role}'s configuration: {}\n",
        shown(&args.file),
        if role == "edge" { "an" } else { "a" },
        describe(file)
    ))
}

/// A line for each, which an editor finds its way by.
fn lines(file: &Path, kind: &str, problems: &[Problem]) -> String {
    let line = |p: &Problem| format!("{}:{}: {kind}{}\n", file.display(), p.line, p.reason);
    problems.iter().map(line).collect()
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

fn describe(file: &File) -> String {
    match file {
        File::Client(client) => {
            let links = match client.links.as_deref() {
                None | Some([]) => "every link that reaches it".to_owned(),
                Some(links) => links
                    .iter()
                    .map(|link| link.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            format!(
                "server {} over {links}",
                client.server.as_deref().unwrap_or_default()
            )
        }
        File::Edge(edge) => {
            let links = edge.node.links.iter().map(|link| link.name.as_str());
            format!(
                "the {}'s end, {} over {}",
                edge.node.role.name(),
                edge.node.core.steering,
                links.collect::<Vec<_>>().join(", ")
            )
        }
        File::Server(server) => {
            let listen = server.listen.map(|a| a.to_string()).unwrap_or_default();
            let clients = match server.authorized.len() {
                1 => "1 client".to_owned(),
                n => format!("{n} clients"),
            };
            format!(
                "listens on {listen}, {clients}, {} egress rules",
                server.egress.len()
            )
        }
    }
}
