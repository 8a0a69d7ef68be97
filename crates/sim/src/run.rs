//! One run: a scenario, a system, a seed.

use std::borrow::Cow;
use std::io::Write;

use sumlink_engine::Config;
use sumlink_scenario::edge::Hosts;
use sumlink_scenario::results::{
    Environment, EventDigest, Measurement, Outcome, Run, SCHEMA, SIMULATED, assemble, in_series,
    join, push_note,
};
use sumlink_scenario::scenario::{Scenario, Traffic};
use sumlink_scenario::system::{System, Variant};

use crate::bond::Bond;
use crate::clock::{MILLISECOND, SECOND};
use crate::edge::Node;
use crate::log::EventLog;
use crate::mptcp::Mptcp;
use crate::net::Net;
use crate::own::Own;
use crate::tcp::{TcpConfig, check_congestion};
use crate::trace::Trace;
use crate::workload::Programs;
use crate::world::{Bearers, Carried, World};

/// How long nothing may be acknowledged on a carrier before its socket gives up.
const CARRIER_TIMEOUT: u64 = 30 * SECOND;
/// When a carrier's silent peer is asked whether it is still there, and when again.
const CARRIER_KEEPALIVE: (u64, u64) = (15 * SECOND, 5 * SECOND);
/// The least retransmission timeout beyond the round-trip time that carriers ask for.
const CARRIER_RTO_MIN: u64 = 50 * MILLISECOND;
/// Limit of TCP's socket buffers in the laboratory, in bytes.
const SOCKET_BUFFER_MAX: u64 = 32 << 20;

/// What systems may name and only a kernel has, or who measures: the simulator skips them. Any other name is a mistake.
const LINUX: [&str; 15] = [
    "auto",
    "bbr",
    "bic",
    "cdg",
    "dctcp",
    "highspeed",
    "htcp",
    "hybla",
    "lp",
    "nv",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
];

/// What a session holds, on a machine with at least 16 GiB: 1 GiB, of which an eighth and 2 KiB for each direction of each
/// stream are the pipes'. A stream holds half.
const MEMORY: u64 = (1 << 30) / 8 * 7 - 2 * 1024 * 2048;
const STREAM_MEMORY: u64 = 512 << 20;

/// Runs a scenario with a system and a seed, as `sumlink-lab run` would, and says how it went.
///
/// What the simulator does not have is [`Outcome::Skipped`]; a system that fails is [`Outcome::Failed`]. The same
/// arguments give the same result to the last bit.
///
/// # Errors
///
/// A name of no system, with what there is.
pub fn run(scenario: &Scenario, system: &str, seed: u64) -> Result<Run, String> {
    run_logged(scenario, system, seed).map(|(run, _)| run)
}

/// The same, with the log of all events; of several parts that of the last one, which the others are folded into.
pub fn run_logged(scenario: &Scenario, system: &str, seed: u64) -> Result<(Run, EventLog), String> {
    run_with(scenario, system, seed, &Own::default(), &mut None)
}

/// The same, and what sumlink's sessions decide as JSON lines: `trace.rs` says which. Other systems have none.
///
/// # Errors
///
/// Also that they could not be written.
pub fn run_traced(
    scenario: &Scenario,
    system: &str,
    seed: u64,
    out: Box<dyn Write + Send>,
) -> Result<Run, String> {
    run_own(scenario, system, seed, &Own::default(), Some(out))
}

/// The same with schedulers and congestion controls of the caller's own ([`Own`]), and JSON lines if there is a place for
/// them.
///
/// # Errors
///
/// As [`run_traced`].
pub fn run_own(
    scenario: &Scenario,
    system: &str,
    seed: u64,
    own: &Own,
    out: Option<Box<dyn Write + Send>>,
) -> Result<Run, String> {
    let mut trace = out.map(Trace::new);
    let (run, _) = run_with(scenario, system, seed, own, &mut trace)?;
    let finished = trace.map_or(Ok(()), Trace::finish);
    finished.map_err(|error| format!("writing the trace: {error}"))?;
    Ok(run)
}

fn parse(name: &str, own: &Own) -> Result<System, String> {
    let schedulers: Vec<&str> = own.schedulers.names().collect();
    let system = System::parse_with(name, &schedulers)?;
    if let System::Sumlink(variant) = &system
        && let Some(congestion) = &variant.congestion
        && !LINUX.contains(&congestion.as_str())
        && !own.has_congestion(congestion)
    {
        check_congestion(congestion).map_err(|error| error.to_string())?;
    }
    Ok(system)
}

fn run_with(
    scenario: &Scenario,
    system: &str,
    seed: u64,
    own: &Own,
    trace: &mut Option<Trace>,
) -> Result<(Run, EventLog), String> {
    let parsed = parse(system, own)?.under(scenario);
    let mut log = EventLog::new();
    let outcome = match missing(&parsed, scenario, own) {
        Some(reason) => Outcome::Skipped { reason },
        None => match measure(scenario, &parsed, (seed, own), &mut log, trace) {
            Ok(mut measurement) => {
                measurement.event_log = Some(EventDigest {
                    entries: log.entries(),
                    hash: format!("{:016x}", log.hash()),
                });
                Outcome::Measured(Box::new(measurement))
            }
            Err(reason) => Outcome::Failed { reason },
        },
    };
    let run = Run {
        schema: SCHEMA,
        scenario: scenario.name.clone(),
        scenario_sha256: scenario.sha256.clone(),
        seed,
        system: system.to_owned(),
        // A moment would make each run another one.
        started_unix_s: 0,
        environment: Environment {
            kernel: SIMULATED.to_owned(),
            processors: 1,
            simulated: true,
            sumlink: env!("CARGO_PKG_VERSION").to_owned(),
            congestion: scenario.congestion.clone(),
            socket_buffer_max_bytes: SOCKET_BUFFER_MAX,
            ..Environment::default()
        },
        outcome,
    };
    Ok((run, log))
}

/// Why the simulator cannot run it; `None` when it can.
fn missing(system: &System, scenario: &Scenario, own: &Own) -> Option<String> {
    let mut congestion = &scenario.congestion;
    match system {
        System::Alone | System::Simultaneous | System::Mptcp { tls: false } => {}
        System::Sumlink(variant) => {
            if let Some(carriers) = &variant.congestion {
                congestion = carriers;
            }
            if congestion == "auto" || variant.carriers.as_deref() == Some("auto") {
                return Some("the simulator does not choose by measuring (auto)".to_owned());
            }
            if variant.early {
                return Some("the simulator's programs wait for their targets (early)".to_owned());
            }
            let missing = variant.missing(scenario.links().count());
            if missing.is_some() {
                return missing;
            }
        }
        System::Edge(variant) => {
            if let Err(reason) = variant.far_before(&scenario.lab_config(0)) {
                return Some(reason);
            }
            if variant.steers_acks {
                return Some(
                    "the simulated user's end sends all that goes up over the first link"
                        .to_owned(),
                );
            }
        }
        System::Mptcp { tls: true } | System::Aggligator | System::Noq | System::Library(_) => {
            return Some("the simulator does not have this system".to_owned());
        }
    }
    if scenario.unshaped {
        return Some("links without a rate are not simulated".to_owned());
    }
    for name in [congestion, &scenario.congestion] {
        if !own.has_congestion(name)
            && let Err(error) = check_congestion(name)
        {
            return Some(format!("the simulator: {error}"));
        }
    }
    None
}

/// Every phase of the system, each with a network of its own.
fn measure(
    scenario: &Scenario,
    system: &System,
    (seed, own): (u64, &Own),
    log: &mut EventLog,
    trace: &mut Option<Trace>,
) -> Result<Measurement, String> {
    let links = scenario.links().count();
    let phases: Vec<Option<usize>> = match system {
        System::Alone => (0..links).map(Some).collect(),
        _ => vec![None],
    };
    let parts: Vec<Cow<'_, Scenario>> = match scenario.single_objects() {
        Some(singles) => singles.into_iter().map(Cow::Owned).collect(),
        None => vec![Cow::Borrowed(scenario)],
    };
    let mut whole: Option<Measurement> = None;
    for phase in phases {
        let mut of_phase: Option<Measurement> = None;
        for part in &parts {
            let measured = measure_part(part, system, (seed, phase, own), log, trace)?;
            of_phase = Some(match of_phase {
                Some(before) => in_series(before, measured),
                None => measured,
            });
        }
        whole = match (whole, of_phase) {
            (Some(before), Some(phase)) => Some(join(before, phase)),
            (before, phase) => phase.or(before),
        };
    }
    Ok(whole.unwrap_or_default())
}

fn measure_part(
    scenario: &Scenario,
    system: &System,
    (seed, phase, own): (u64, Option<usize>, &Own),
    log: &mut EventLog,
    trace: &mut Option<Trace>,
) -> Result<Measurement, String> {
    let mut config = scenario.lab_config(seed);
    let links = config.links.len();
    let node = match system {
        System::Edge(variant) => {
            let far = variant.far_before(&config)?;
            config.shorten(far);
            Some(Node::new(variant, links, far).map_err(|error| error.to_string())?)
        }
        _ => None,
    };
    let mut net = Net::new(&config).map_err(|error| error.to_string())?;
    net.set_trace(trace.take());
    if let Some(node) = node {
        net.set_node(node);
    }
    let hosts = match system {
        System::Edge(variant) => variant.hosts.unwrap_or(scenario.hosts),
        _ => scenario.hosts,
    };
    let plain = TcpConfig {
        congestion: scenario.congestion.clone(),
        sack: matches!(hosts, Hosts::Linux | Hosts::NoUndo),
        undo: matches!(hosts, Hosts::Linux | Hosts::NoSack),
        own: own.clone(),
        ..TcpConfig::default()
    };
    let (ways, carried): (Vec<Option<usize>>, _) = match (system, phase) {
        (System::Alone, Some(link)) => (vec![Some(link)], Carried::Plain),
        (System::Sumlink(variant), _) => {
            let bond = bond(variant, &plain, links)?;
            (vec![None], Carried::Bond(Box::new(bond)))
        }
        (System::Edge(variant), _) => (vec![None; variant.flows], Carried::Plain),
        (System::Mptcp { .. }, _) => {
            let mptcp = Mptcp::new(plain.clone(), links);
            (vec![None], Carried::Mptcp(Box::new(mptcp)))
        }
        _ => ((0..links).map(Some).collect(), Carried::Plain),
    };
    let rival = scenario
        .rival
        .as_ref()
        .and_then(|name| config.links.iter().position(|link| link.name == *name))
        .filter(|rival| phase.is_none_or(|link| link == *rival));
    let programs = Programs::new(scenario, &ways, rival)?;
    let world = World::new(net, Bearers::new(carried, plain), programs, seed);
    let outcome = world.run(scenario, &config, &own.stop)?;
    *trace = outcome.trace;
    log.fold(&outcome.log);
    let mut measurement = assemble(scenario, &outcome.records, config.sample_interval)?;
    measurement.links = outcome.links;
    measurement.retransmissions = Some(outcome.retransmissions);
    measurement.duplicates_bytes = Some(0);
    if let Some(subflows) = outcome.subflows {
        measurement.duplicates_bytes = None;
        push_note(&mut measurement.note, &format!("{subflows} subflows"));
    }
    if let Some(node) = outcome.node {
        measurement.duplicates_bytes = Some(node.repeated);
        push_note(&mut measurement.note, &node.note());
        if scenario.traffic != Traffic::Down {
            // In the laboratory the user's end steers data.
            push_note(
                &mut measurement.note,
                "all that goes up takes the first link",
            );
        }
    }
    if let (Some(account), System::Sumlink(variant)) = (outcome.account, system) {
        measurement.duplicates_bytes = Some(account.duplicates);
        measurement.reorder_peak_bytes = Some(account.reorder_peak);
        measurement.memory_peak_bytes = Some(account.memory_peak);
        let note = match &variant.carriers {
            Some(_) => format!("{} paths over {links} links at the end", account.active),
            None => format!("{} of {links} paths active at the end", account.active),
        };
        push_note(&mut measurement.note, &note);
        let rested = account.rested.into_iter().zip(&config.links);
        let rested = rested.filter(|(part, _)| *part > 0.0);
        measurement.rested = rested
            .map(|(part, link)| (link.name.clone(), part))
            .collect();
    }
    Ok(measurement)
}

/// What carriers ask of their sockets.
pub(crate) fn carrier_tcp() -> TcpConfig {
    TcpConfig {
        user_timeout: CARRIER_TIMEOUT,
        rto_min: CARRIER_RTO_MIN,
        keepalive: Some(CARRIER_KEEPALIVE),
        ..TcpConfig::default()
    }
}

fn bond(variant: &Variant, plain: &TcpConfig, links: usize) -> Result<Bond, String> {
    let congestion = variant.congestion.as_ref().unwrap_or(&plain.congestion);
    let tcp = TcpConfig {
        congestion: congestion.clone(),
        own: plain.own.clone(),
        ..carrier_tcp()
    };
    let carriers = variant
        .carriers
        .as_ref()
        .and_then(|number| number.parse().ok())
        .unwrap_or(1);
    let configure = |config: &mut Config| {
        config.memory = MEMORY;
        config.stream_memory = STREAM_MEMORY;
        config.own_schedulers = plain.own.schedulers.clone();
        config.scheduler.clone_from(&variant.scheduler);
        config
            .class_schedulers
            .clone_from(&variant.class_schedulers);
        variant.options.apply(config);
        if let Some(selector) = &variant.selector {
            config.selector.clone_from(selector);
        }
    };
    Bond::new(configure, tcp, links, carriers).map_err(|error| error.to_string())
}

/// Whether there is a system of that name, here or in the laboratory, and its congestion control, here or in a kernel; the error
/// says what there is.
pub fn check_system(name: &str) -> Result<(), String> {
    parse(name, &Own::default()).map(drop)
}
