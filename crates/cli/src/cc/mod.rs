//! `sumlink cc`: the congestion controls of the kernel and of sumlink.

mod info;
mod list;
mod load;

use std::fs;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use sumlink_congestion::{ALGORITHMS, Info, entry};

use crate::config::closest;
use crate::error::CliError;
use crate::kernel::{Pins, TWINS, Twin, loaded};

/// The verbs of `sumlink cc`.
#[derive(Debug, Subcommand)]
pub(crate) enum CcCommand {
    /// List the congestion controls of the kernel and of sumlink, their state and purpose
    List(ListArgs),
    /// Load congestion controls of sumlink into the kernel until they are unloaded
    Load(LoadArgs),
    /// Unload congestion controls; connections that use one keep it until they close
    Unload(UnloadArgs),
    /// Show the origin and the parameters of a congestion control
    Info(InfoArgs),
}

impl CcCommand {
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::List(args) => args.json,
            Self::Load(args) => args.json,
            Self::Unload(args) => args.json,
            Self::Info(args) => args.json,
        }
    }
}

/// `sumlink cc list`
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `sumlink cc load`
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Names to load; `all` loads every one that is not loaded yet.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Set a parameter of every named congestion control; repeatable. `sumlink cc info NAME` lists
    /// them.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folder of the pins.
    #[command(flatten)]
    folder: PinFolder,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `sumlink cc unload`
#[derive(Debug, Args)]
pub(crate) struct UnloadArgs {
    /// Names to unload; `all` unloads every loaded one.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Folder of the pins.
    #[command(flatten)]
    folder: PinFolder,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `sumlink cc info`
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// Name from `sumlink cc list`.
    #[arg(value_name = "NAME")]
    name: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Folder that keeps the loaded programs.
#[derive(Debug, Args)]
struct PinFolder {
    /// Keep loaded programs in this folder of a BPF file system.
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/sumlink")]
    pins: PathBuf,
}

impl PinFolder {
    fn pins(&self) -> Pins {
        Pins::at(&self.pins)
    }
}

/// Runs the verb.
pub(crate) fn run(command: CcCommand) -> Result<(), CliError> {
    match command {
        CcCommand::List(args) => list::run(&args),
        CcCommand::Load(args) => load::load(&args),
        CcCommand::Unload(args) => load::unload(&args),
        CcCommand::Info(args) => info::run(&args),
    }
}

/// State of a congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// Part of the kernel.
    BuiltIn,
    /// One of sumlink's, loaded.
    Loaded,
    /// One of sumlink's, which can be loaded.
    Available,
    /// One of sumlink's that has no program for the kernel.
    Simulator,
}

impl State {
    fn words(self) -> &'static str {
        match self {
            Self::BuiltIn => "built in",
            Self::Loaded => "loaded",
            Self::Available => "available",
            Self::Simulator => "simulator only",
        }
    }
}

/// One congestion control.
#[derive(Clone, Debug)]
struct Found {
    /// Name that users give.
    name: String,
    /// Name in the kernel.
    system_name: Option<String>,
    state: State,
    /// Description, if sumlink has one.
    info: Option<Info>,
    twin: Option<&'static Twin>,
}

impl Found {
    fn about(&self) -> &'static str {
        match (self.info, self.name.as_str()) {
            (Some(info), _) => info.about,
            (None, "bbr") => "sends at the path's delivery rate, regardless of loss",
            (None, _) => "part of the kernel",
        }
    }
}

/// All congestion controls of this system: sumlink's in the order of the registry, then the
/// kernel's others.
fn all() -> Result<Vec<Found>, CliError> {
    const KNOWN: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let names = fs::read_to_string(KNOWN).map_err(|reason| CliError::Read {
        path: KNOWN.into(),
        reason,
    })?;
    let names: Vec<&str> = names.split_whitespace().collect();
    Ok(found(&names, &loaded()?))
}

fn found(kernel: &[&str], loaded: &[&'static Twin]) -> Vec<Found> {
    let mut all = Vec::new();
    for entry in ALGORITHMS {
        let name = entry.info.name;
        let is_built_in = kernel.contains(&name);
        let twin = TWINS.iter().find(|twin| twin.algorithm == name);
        let one = |name: &str, system_name: Option<&str>, state| Found {
            name: name.to_owned(),
            system_name: system_name.map(str::to_owned),
            state,
            info: Some(entry.info),
            twin,
        };
        if is_built_in {
            all.push(Found {
                twin: None,
                ..one(name, Some(name), State::BuiltIn)
            });
        }
        if let Some(twin) = twin {
            let is_loaded = loaded
                .iter()
                .any(|other| other.system_name == twin.system_name);
            let state = match is_loaded {
                true => State::Loaded,
                false => State::Available,
            };
            // The plain name means the kernel's own, if it has one.
            let name = match is_built_in {
                true => twin.system_name,
                false => name,
            };
            all.push(one(name, Some(twin.system_name), state));
        } else if !is_built_in {
            all.push(one(name, None, State::Simulator));
        }
    }
    let is_ours =
        |name: &&&str| entry(name).is_some() || TWINS.iter().any(|twin| twin.system_name == **name);
    for name in kernel.iter().filter(|name| !is_ours(name)) {
        all.push(Found {
            name: (*name).to_owned(),
            system_name: Some((*name).to_owned()),
            state: State::BuiltIn,
            info: None,
            twin: None,
        });
    }
    all
}

/// Finds a congestion control by either of its names.
fn find(name: &str) -> Result<Found, CliError> {
    let all = all()?;
    let is_it = |found: &&Found| found.name == name || found.system_name.as_deref() == Some(name);
    if let Some(found) = all.iter().find(is_it) {
        return Ok(found.clone());
    }
    let names = all.iter().map(|found| found.name.as_str());
    Err(CliError::Usage(match closest(name, names.clone()) {
        Some(near) => format!("no congestion control `{name}`: did you mean `{near}`?"),
        None => {
            let known: Vec<&str> = names.collect();
            format!(
                "no congestion control `{name}`: choose one of {}",
                known.join(", ")
            )
        }
    }))
}

#[cfg(all(test, feature = "kernel"))]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_kernel_take_precedence() {
        let lia = Twin::of("lia").unwrap();
        let all = found(&["reno", "cubic", "lia", "bbr", "sl_lia"], &[lia]);
        let state = |name: &str| {
            let found = all.iter().find(|found| found.name == name);
            found.map(|found| (found.state, found.twin.is_some()))
        };
        assert_eq!(state("lia"), Some((State::BuiltIn, false)));
        assert_eq!(state("sl_lia"), Some((State::Loaded, true)));
        assert_eq!(state("olia"), Some((State::Available, true)));
        assert_eq!(state("bbr"), Some((State::BuiltIn, false)));
        let count = |name: &str| all.iter().filter(|found| found.name == name).count();
        assert!(all.iter().all(|found| count(&found.name) == 1));
        // Reno and CUBIC belong to the kernel; a kernel without them leaves them to the simulator.
        let bare = found(&[], &[]);
        let reno = bare.iter().find(|found| found.name == "reno").unwrap();
        assert_eq!(
            (reno.state, reno.system_name.as_deref()),
            (State::Simulator, None)
        );
    }
}
