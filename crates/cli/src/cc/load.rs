//! `sumlink cc load` and `sumlink cc unload`.

use crate::kernel::{Error, Pins, TWINS, Twin, check_build, loaded, refusal};
use serde_json::json;
use sumlink_congestion::Settings;

use super::{LoadArgs, UnloadArgs};
use crate::error::CliError;
use crate::output::{print, print_json};

/// The word for all congestion controls.
const ALL: &str = "all";

/// Loads the named congestion controls, after checking all names and parameters.
pub(super) fn load(args: &LoadArgs) -> Result<(), CliError> {
    check_build()?;
    let mut settings = Settings::default();
    for assignment in &args.set {
        let assigned = settings.assign(assignment);
        assigned.map_err(|error| CliError::Usage(format!("--set {assignment}: {error}")))?;
    }
    let twins: Vec<&Twin> = match is_all(&args.names)? {
        true => {
            let there = loaded()?;
            let is_new =
                |twin: &&Twin| !there.iter().any(|one| one.system_name == twin.system_name);
            TWINS.iter().filter(is_new).collect()
        }
        false => named(&args.names)?,
    };
    for twin in &twins {
        twin.check(&settings)?;
    }
    let pins = args.folder.pins();
    if pins.prepare()? {
        tracing::info!("mounted the BPF file system at /sys/fs/bpf");
    }
    let mut done = Vec::new();
    for twin in twins {
        if let Err(error) = pins.load(twin.algorithm, &settings) {
            if let Some(log) = refusal(&error) {
                tracing::debug!("{log}");
            }
            // Congestion controls loaded before the failure stay loaded and are reported.
            if !done.is_empty() {
                print_names("loaded", &done, args.json)?;
            }
            return Err(error.into());
        }
        done.push(twin.system_name);
    }
    if done.is_empty() && !args.json {
        return print("all of them are loaded already\n");
    }
    print_names("loaded", &done, args.json)
}

/// Unloads the named congestion controls.
pub(super) fn unload(args: &UnloadArgs) -> Result<(), CliError> {
    check_build()?;
    let pins = args.folder.pins();
    let twins = match is_all(&args.names)? {
        true => pins.list(),
        false => named(&args.names)?,
    };
    let mut done = Vec::new();
    for twin in twins {
        match unload_one(&pins, twin) {
            Ok(()) => done.push(twin.system_name),
            Err(error) => {
                if !done.is_empty() {
                    print_names("unloaded", &done, args.json)?;
                }
                return Err(error);
            }
        }
    }
    if done.is_empty() && !args.json {
        return print("nothing is loaded\n");
    }
    print_names("unloaded", &done, args.json)
}

fn unload_one(pins: &Pins, twin: &Twin) -> Result<(), CliError> {
    if !pins.unload(twin.algorithm)? {
        let name = twin.system_name;
        tracing::warn!("{name} stays loaded until the process that uses it exits");
    }
    Ok(())
}

/// Whether `names` is `all`.
fn is_all(names: &[String]) -> Result<bool, CliError> {
    match names {
        [name] if name == ALL => Ok(true),
        names if names.iter().any(|name| name == ALL) => Err(CliError::Usage(
            "`all` cannot be combined with other names".to_owned(),
        )),
        _ => Ok(false),
    }
}

/// The named congestion controls without duplicates, in the order given.
fn named(names: &[String]) -> Result<Vec<&'static Twin>, Error> {
    let mut twins: Vec<&'static Twin> = Vec::new();
    for name in names {
        let twin = Twin::of(name)?;
        if !twins
            .iter()
            .any(|other| other.system_name == twin.system_name)
        {
            twins.push(twin);
        }
    }
    Ok(twins)
}

fn print_names(what: &str, names: &[&str], json: bool) -> Result<(), CliError> {
    if json {
        return print_json(&json!({ what: names }));
    }
    let lines = names.iter().map(|name| format!("{name} {what}\n"));
    print(&lines.collect::<String>())
}
