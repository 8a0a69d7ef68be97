//! One run: a scenario, a system, a seed.

use std::borrow::Cow;
use std::io::Write;

use sumlink_bond::congestion::{AUTO, LOSS_BASED};
use sumlink_bond::{Carriers, Early, socket};
use sumlink_engine::Config;
use sumlink_scenario::edge::Hosts;
use sumlink_scenario::plan::LabConfig;
use sumlink_scenario::results::{
    Environment, EventDigest, Measurement, Outcome, Run, SCHEMA, SIMULATED, assemble, in_series,
    join, push_note,
};
use sumlink_scenario::scenario::{Scenario, Traffic};
use sumlink_scenario::system::{Blocked, System, Variant};

use crate::bond::{Bond, Carrying, Dialing};
use crate::clock::nanos;
use crate::edge::Node;
use crate::log::EventLog;
use crate::mptcp::Mptcp;
use crate::net::Net;
use crate::own::Own;
use crate::tcp::{Side, TcpConfig, check_congestion};
use crate::trace::Trace;
use crate::workload::Programs;
use crate::world::{Bearers, Carried, World};

/// Limit of the TCP socket buffers in the laboratory, in bytes.
const SOCKET_BUFFER_MAX: u64 = 32 << 20;

/// Congestion controls of the kernel that the simulator lacks: it skips systems with them. Any
/// other unknown name is an error.
const LINUX: [&str; 13] = [
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

/// What a session holds, on a machine with at least 16 GiB: 1 GiB, of which an eighth and 2 KiB for
/// each direction of each stream are the pipes'. A stream holds half.
const MEMORY: u64 = (1 << 30) / 8 * 7 - 2 * 1024 * 2048;
const STREAM_MEMORY: u64 = 512 << 20;

/// Runs a scenario with a system and a seed, like `sumlink-lab run`, and returns the result.
///
/// The outcome is [`Outcome::Skipped`] for features that the simulator lacks and
/// [`Outcome::Failed`] for a system that fails. The same arguments give the same result to the last
/// bit.
///
/// # Errors
///
/// The system's name is unknown; the error lists the available ones.
pub fn run(scenario: &Scenario, system: &str, seed: u64) -> Result<Run, String> {
    run_logged(scenario, system, seed).map(|(run, _)| run)
}

/// Like [`run()`], and returns the log of all events. For a run of several parts it is the log of
/// the last part, with the others folded into it.
pub fn run_logged(scenario: &Scenario, system: &str, seed: u64) -> Result<(Run, EventLog), String> {
    run_with(scenario, system, seed, &Own::default(), &mut None)
}

/// Like [`run_logged`], and writes the decisions of sumlink's sessions, and the state of MPTCP's
/// subflows, as JSON lines, which `trace.rs` describes. Other systems write none.
///
/// # Errors
///
/// Also if the lines cannot be written.
pub fn run_traced(
    scenario: &Scenario,
    system: &str,
    seed: u64,
    out: Box<dyn Write + Send>,
) -> Result<Run, String> {
    run_own(scenario, system, seed, &Own::default(), Some(out))
}

/// Like [`run_traced`], with the caller's schedulers and congestion controls ([`Own`]); the JSON
/// lines are optional.
///
/// # Errors
///
/// See [`run_traced`].
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
    finished.map_err(|error| format!("cannot write the trace: {error}"))?;
    Ok(run)
}

fn parse(name: &str, own: &Own) -> Result<System, String> {
    let schedulers: Vec<&str> = own.scheduler_names().collect();
    let system = System::parse_with(name, &schedulers)?;
    if let System::Sumlink(variant) = &system
        && let Some(congestion) = &variant.congestion
        && congestion != AUTO
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
        // The actual time would make equal runs differ.
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

/// The reason why the simulator cannot run it; `None` if it can.
fn missing(system: &System, scenario: &Scenario, own: &Own) -> Option<String> {
    let loss_based = LOSS_BASED.to_owned();
    let mut congestion = &scenario.congestion;
    match system {
        System::Alone | System::Simultaneous | System::Mptcp { tls: false, .. } => {}
        System::Sumlink(variant) => {
            if let Some(carriers) = &variant.congestion {
                congestion = carriers;
            }
            if congestion == AUTO {
                // Carriers start with this one.
                congestion = &loss_based;
            }
            let missing = variant.missing(scenario.links().count());
            let missing = missing.or_else(|| variant.gateway.missing(scenario.lan.is_some()));
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
                    "the simulated user sends all uplink traffic over the first link".to_owned(),
                );
            }
        }
        System::Mptcp { tls: true, .. }
        | System::Aggligator
        | System::Noq
        | System::WireGuard
        | System::Library(_) => {
            return Some("the simulator does not have this system".to_owned());
        }
    }
    let carries_datagrams = !matches!(system, System::Mptcp { .. } | System::Edge(_));
    if scenario.workload.needs_udp() && !carries_datagrams {
        return Some("this system does not carry datagrams".to_owned());
    }
    if scenario.lan.is_some() {
        return Some("a LAN behind a gateway is not simulated".to_owned());
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

/// Runs every phase of the system, each on a network of its own.
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
        // Linux reserves the other half for its own structures.
        receive_buffer: scenario.receive_buffer.unwrap_or(SOCKET_BUFFER_MAX) / 2,
        ..TcpConfig::default()
    };
    let (ways, carried): (Vec<Option<usize>>, _) = match (system, phase) {
        (System::Alone, Some(link)) => (vec![Some(link)], Carried::Plain),
        (System::Sumlink(variant), _) => {
            block_udp(variant, &config, &mut net)?;
            let bond = bond(variant, &plain, (links, scenario.workload.needs_udp()))?;
            (vec![None], Carried::Bond(Box::new(bond)))
        }
        (System::Edge(variant), _) => (vec![None; variant.flows], Carried::Plain),
        (System::Mptcp { selector, .. }, _) => {
            let sender = match scenario.traffic {
                Traffic::Down => Side::Server,
                Traffic::Up | Traffic::Both => Side::Client,
            };
            let selector = selector.clone().map(|selector| (selector, sender));
            let mptcp = Mptcp::new(plain.clone(), links, selector);
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
    let rested = outcome.subflows_rested.into_iter().zip(&config.links);
    let rested = rested.filter(|(part, _)| *part > 0.0);
    measurement.rested = rested
        .map(|(part, link)| (link.name.clone(), part))
        .collect();
    if let Some(subflows) = outcome.subflows {
        measurement.duplicates_bytes = None;
        push_note(&mut measurement.note, &format!("{subflows} subflows"));
    }
    if let Some(node) = outcome.node {
        measurement.duplicates_bytes = Some(node.repeated);
        push_note(&mut measurement.note, &node.note());
        if scenario.traffic != Traffic::Down {
            // In the laboratory, the user's end steers uplink data.
            push_note(&mut measurement.note, "uplink traffic takes the first link");
        }
    }
    if let (Some(account), System::Sumlink(variant)) = (outcome.account, system) {
        measurement.duplicates_bytes = Some(account.duplicates);
        measurement.reorder_peak_bytes = Some(account.reorder_peak);
        measurement.in_order_wait_p99_s = Some(account.in_order_wait_p99.as_secs_f64());
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

/// TCP configuration of carriers.
pub(crate) fn carrier_tcp() -> TcpConfig {
    TcpConfig {
        user_timeout: nanos(socket::USER_TIMEOUT),
        rto_min: nanos(socket::RTO_MIN),
        keepalive: Some((
            nanos(socket::KEEPALIVE_TIME),
            nanos(socket::KEEPALIVE_INTERVAL),
        )),
        ..TcpConfig::default()
    }
}

/// Lets a firewall drop UDP on the links that the system names.
fn block_udp(variant: &Variant, config: &LabConfig, net: &mut Net) -> Result<(), String> {
    let links = 0..config.links.len();
    match &variant.datagrams.blocked {
        None => {}
        Some(Blocked::All) => links.for_each(|link| net.block_udp(link)),
        Some(Blocked::Link(name)) => {
            let mut links = config.links.iter();
            let link = links.position(|link| link.name == *name);
            net.block_udp(link.ok_or_else(|| format!("blocked: no link is called '{name}'"))?);
        }
    }
    Ok(())
}

fn bond(
    variant: &Variant,
    plain: &TcpConfig,
    (links, has_datagrams): (usize, bool),
) -> Result<Bond, String> {
    let congestion = variant.congestion.as_ref().unwrap_or(&plain.congestion);
    let chooses = congestion == AUTO;
    let first = if chooses { LOSS_BASED } else { congestion };
    let tcp = TcpConfig {
        congestion: first.to_owned(),
        own: plain.own.clone(),
        ..carrier_tcp()
    };
    let carriers = match variant.carriers.as_deref() {
        Some("auto") => Carriers::Auto,
        Some(number) => number.parse().map_or(Carriers::ONE, Carriers::Fixed),
        None => Carriers::ONE,
    };
    let early = if variant.early {
        Early::Always
    } else {
        Early::default()
    };
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
        config.datagrams.yield_to_calls = !variant.datagrams.ignores_calls;
    };
    let dialing = Dialing {
        tcp,
        chooses,
        carriers,
        datagrams: has_datagrams.then(|| Carrying {
            policy: variant.datagrams.policy.unwrap_or_default(),
            udp: !variant.datagrams.without_udp,
        }),
    };
    Bond::new(configure, dialing, links, early).map_err(|error| error.to_string())
}

/// Checks that a system exists, here or in the laboratory, and that its congestion control does,
/// here or in a kernel. The error lists the available ones.
pub fn check_system(name: &str) -> Result<(), String> {
    parse(name, &Own::default()).map(drop)
}
