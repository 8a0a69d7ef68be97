//! The subcommands of `sumlink-lab`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;

use crate::bench::{self, BenchOptions};
use crate::config::{LinkChange, LinkSpec};
use crate::demo::DemoOptions;
use crate::error::LabError;
use crate::faults::{self, FaultsOptions};
use crate::health::Health;
use crate::laboratory::{LabConfig, control};
use crate::prose::{print, say};
use crate::run::RunOptions;
use crate::scenario::Scenario;
use crate::self_test::{self, SelfTestOptions};
use crate::topology::Side;
use crate::traffic_command::{self, TrafficCommand};
use crate::video::{self, VideoOptions};
use crate::{demo, list, netns, report, rundir, shell, signals};
use sumlink_scenario::lan::LanConfig;
use sumlink_settings::units::format_rate;

/// What `sumlink-lab` can do.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Make emulated links between two network namespaces and run a command there, or a shell
    #[command(
        after_help = "Examples:\n  sumlink-lab shell scenarios/unequal-queue.toml\n\n  \
                      sumlink-lab shell --link wifi:rate=60mbit,delay=10ms \\\n    \
                      --link wigig:rate=180mbit,loss=5% -- ping -c 3 -I wigig 10.99.0.1"
    )]
    Shell {
        /// A scenario whose links are made, and to which its events happen; instead of --link
        #[arg(value_name = "FILE", conflicts_with_all = ["links", "congestion"])]
        scenario: Option<PathBuf>,
        /// A link: NAME:rate=60mbit,delay=10ms,loss=0%,queue=50ms; a key may hold for one direction
        /// (down.rate=60mbit,up.rate=5mbit)
        #[arg(
            long = "link",
            value_name = "LINK",
            required_unless_present = "scenario"
        )]
        links: Vec<LinkSpec>,
        /// Where the command runs
        #[arg(long, value_enum, default_value = "client")]
        side: Side,
        /// Put a LAN host behind the client and an internet host behind the server, also without
        /// --side lan or --side internet; a scenario says so itself
        #[arg(long, conflicts_with = "scenario")]
        lan: bool,
        /// TCP congestion control of every connection in the laboratory
        #[arg(long, value_name = "NAME", default_value = "cubic")]
        congestion: String,
        /// Seed of the random losses
        #[arg(long, value_name = "NUMBER", default_value_t = 1)]
        seed: u64,
        /// Let programs hand over up to 64 KiB at once and cut that into packets inside. This
        /// carries more than 2.5 Gbit/s, but programs then do less work than with a real interface
        #[arg(long)]
        gso: bool,
        /// The command and its arguments; without one, an interactive shell
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Run a command on one side of a laboratory that is running
    Exec {
        /// Where the command runs
        #[arg(long, value_enum)]
        side: Side,
        /// Which laboratory; not needed inside one, nor while there is only one
        #[arg(long, value_name = "ID")]
        lab: Option<String>,
        /// The command and its arguments
        #[arg(last = true, value_name = "COMMAND", required = true)]
        command: Vec<OsString>,
    },
    /// Change a link of a running laboratory
    #[command(
        after_help = "Settings: rate=20mbit delay=10ms loss=5% queue=50ms, each also as up.KEY or \
                      down.KEY;\n          trace=FILE (Mahimahi's format) in place of a rate; jitter=2ms \
                      or normal:2ms, with\n          :reorder packets may overtake; loss=burst:5%:8 (mean, \
                      packets of a burst),\n          loss=gilbert:P:R[:GOOD:BAD], \
                      loss=script:7+20-29+1s-1.5s;\n          state=up, state=down (no carrier), state=blackhole (carrier, but \
                      nothing\n          gets through), state=unaddressed (carrier, but no address of the client's),\n          \
                      state=removed (the interfaces are deleted); address=new (the client gets another\n          \
                      one); connections=forgotten, connections=reset (packets of the connections that\n          \
                      there are go nowhere, or are answered with a reset)"
    )]
    Set {
        /// The link's name
        link: String,
        /// What changes
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Which laboratory; not needed inside one, nor while there is only one
        #[arg(long, value_name = "ID")]
        lab: Option<String>,
    },
    /// Print every link's state and counters, and how the emulator keeps up
    Status {
        /// Which laboratory; not needed inside one, nor while there is only one
        #[arg(long, value_name = "ID")]
        lab: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure the systems of scenarios; goes on where an earlier run of the same files was
    /// interrupted
    Run(RunOptions),
    /// List the scenarios in a directory: name, duration of a run, workload, links, what it is
    /// about
    List {
        /// Where the scenario files are; `sumlink-lab bench --list` lists the lines of a matrix
        #[arg(value_name = "DIR", default_value = "scenarios")]
        directory: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check scenarios: FILE:LINE: reason for each problem
    Check {
        /// Scenario files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The programs that make the traffic of a run; `sumlink-lab run` calls them
    #[command(hide = true, subcommand)]
    Traffic(TrafficCommand),
    /// Remove what laboratories whose owner was killed have left behind
    Clean {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a page of results, DIR/report.html: tables and figures, each also as SVG and CSV in
    /// DIR/figures
    Report {
        /// Where `sumlink-lab run` wrote the results: its --out, or one scenario's directory in it
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Measure the promise of sumlink: a matrix of scenarios, each with the bars that it must reach
    Bench(BenchOptions),
    /// Measure what faults of links do to the delivery: how long it stops, and when a link that is
    /// back carries again
    Faults(FaultsOptions),
    /// Measure live video upstream: ffmpeg pushes a test video over emulated hotspots, each alone
    /// and together
    Video(VideoOptions),
    /// Measure the emulator against what is asked of it, and against the kernel's shaper
    SelfTest(SelfTestOptions),
    /// Fetch a file over two emulated links: each alone, kernel MPTCP, sumlink
    Demo(DemoOptions),
}

impl LabCommand {
    /// Whether the subcommand prints JSON.
    pub fn json(&self) -> bool {
        match self {
            Self::Status { json, .. }
            | Self::List { json, .. }
            | Self::Check { json, .. }
            | Self::Clean { json } => *json,
            Self::Run(options) => options.json,
            Self::Bench(options) => options.json,
            Self::Faults(options) => options.json,
            Self::Video(options) => options.json,
            Self::SelfTest(options) => options.json,
            _ => false,
        }
    }
}

/// Runs a subcommand. Call it before the process starts threads: without root it moves into a user
/// namespace, which the kernel allows only to a single-threaded process.
pub fn run(command: LabCommand) -> Result<(), LabError> {
    match command {
        LabCommand::Shell {
            scenario,
            links,
            side,
            lan,
            congestion,
            seed,
            gso,
            command,
        } => {
            let lan = (lan || side.needs_lan()).then(LanConfig::default);
            let config = match scenario {
                Some(file) => LabConfig {
                    gso,
                    ..Scenario::load(&file)?.lab_config(seed)
                },
                None => LabConfig {
                    congestion,
                    seed,
                    gso,
                    lan,
                    ..LabConfig::new(links)
                },
            };
            config.check()?;
            prepare()?;
            shell::shell(config, side, &command)
        }
        LabCommand::Run(options) => {
            let scenarios = crate::run::check(&options)?;
            prepare()?;
            crate::run::run(&options, &scenarios)
        }
        LabCommand::Bench(options) => {
            let groups = bench::check(&options)?;
            if !options.list && !options.judge_only {
                prepare()?;
            }
            bench::run(&options, &groups)
        }
        LabCommand::Faults(options) => {
            let lines = faults::check(&options)?;
            if !options.list && !options.judge_only {
                prepare()?;
            }
            faults::run(&options, &lines)
        }
        LabCommand::Video(options) => {
            let scenarios = video::check(&options)?;
            if !options.judge_only {
                prepare()?;
            }
            video::run(&options, &scenarios)
        }
        LabCommand::List { directory, json } => list::list(&directory, json),
        LabCommand::Check { files, json } => list::check(&files, json),
        LabCommand::Traffic(command) => traffic_command::run(command),
        LabCommand::Exec { side, lab, command } => shell::exec(lab.as_deref(), side, &command),
        LabCommand::Set {
            link,
            settings,
            lab,
        } => {
            // Errors are reported here, with more detail than the laboratory could give.
            for setting in &settings {
                LinkChange::parse_for(&link, setting)?;
            }
            let settings = settings
                .iter()
                .map(|setting| from_anywhere(setting))
                .collect::<Result<Vec<_>, _>>()?;
            let line = format!("set {link} {}", settings.join(" "));
            control::ask(&socket(lab.as_deref())?, &line).map(drop)
        }
        LabCommand::Status { lab, json } => status(lab.as_deref(), json),
        LabCommand::Clean { json } => {
            let removed = rundir::clean()?;
            if json {
                return print(&format!("{}\n", serde_json::json!({ "removed": removed })));
            }
            for line in &removed {
                say!("removed {line}");
            }
            if removed.is_empty() {
                say!("nothing to remove");
            }
            Ok(())
        }
        LabCommand::Report { directory } => {
            let files = report::write(&directory)?;
            let page = files[0].display();
            say!("{page} (and {} files that belong to it)", files.len() - 1);
            Ok(())
        }
        LabCommand::SelfTest(options) => {
            prepare()?;
            self_test::run(&options)
        }
        LabCommand::Demo(options) => {
            demo::check(&options)?;
            prepare()?;
            demo::run(&options)
        }
    }
}

/// A setting with absolute paths, since the laboratory's working directory is different.
fn from_anywhere(setting: &str) -> Result<String, LabError> {
    match setting.split_once('=') {
        Some((key, path)) if key.ends_with("trace") => {
            let path = std::fs::canonicalize(path).map_err(LabError::file(path))?;
            let path = path.to_string_lossy();
            if path.contains(char::is_whitespace) {
                return Err(LabError::Usage(format!(
                    "'{path}': a running laboratory accepts no path that contains a space; use a link to the file"
                )));
            }
            Ok(format!("{key}={path}"))
        }
        _ => Ok(setting.to_owned()),
    }
}

/// Blocks signals before the first thread starts, and makes namespaces available.
fn prepare() -> Result<(), LabError> {
    netns::become_able()?;
    signals::watch()
}

/// The control socket of the selected laboratory.
fn socket(lab: Option<&str>) -> Result<PathBuf, LabError> {
    match (lab, std::env::var_os(crate::ENV_CONTROL)) {
        (None, Some(path)) => Ok(PathBuf::from(path)),
        _ => rundir::choose(lab).map(|id| rundir::control_of(&id)),
    }
}

fn status(lab: Option<&str>, json: bool) -> Result<(), LabError> {
    let text = control::ask(&socket(lab)?, "status")?;
    if json {
        print(&format!("{text}\n"))?;
        return Ok(());
    }
    let unreadable = |error| LabError::system("reading the laboratory's answer", error);
    let mut answer: serde_json::Value = serde_json::from_str(&text).map_err(unreadable)?;
    let health: Health = serde_json::from_value(answer["emulator"].take()).map_err(unreadable)?;
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or_default();
    say!(
        "{:<15} {:<9} {:<4} {:>12} {:>10} {:>14} {:>8} {:>8} {:>9} {:>7}",
        "LINK",
        "STATE",
        "DIR",
        "RATE",
        "PACKETS",
        "BYTES",
        "DROPPED",
        "LOST",
        "DISCARDED",
        "BACKLOG"
    );
    for link in answer["links"].as_array().into_iter().flatten() {
        for direction in link["directions"].as_array().into_iter().flatten() {
            say!(
                "{:<15} {:<9} {:<4} {:>12} {:>10} {:>14} {:>8} {:>8} {:>9} {:>7}",
                link["name"].as_str().unwrap_or_default(),
                link["state"].as_str().unwrap_or_default(),
                direction["direction"].as_str().unwrap_or_default(),
                format_rate(number(&direction["rate_bps"])),
                number(&direction["delivered_packets"]),
                number(&direction["delivered_bytes"]),
                number(&direction["policed_packets"]) + number(&direction["dropped_queue_packets"]),
                number(&direction["lost_packets"]),
                number(&direction["discarded_packets"]),
                number(&direction["backlog_packets"]),
            );
        }
    }
    say!("emulator: {health}");
    if let Some(objection) = health.objection() {
        say!("figures measured in this time do not reflect the links: {objection}");
    }
    Ok(())
}
