//! sumlink as the gateway of a LAN: `sumlink up`, and the SOCKS5 entry that its ways of capture are
//! compared with.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use sumlink_scenario::system::{Capture, GatewayVariant};

use crate::error::LabError;
use crate::lan::{GATEWAY_V4, LAN_INTERFACE};
use crate::process::Process;
use crate::scenario::Scenario;
use crate::signals;
use crate::topology::Side;
use crate::traffic::{Route, first_byte};

use super::super::{NAMES_PORT, Running, Stage};
use super::{SOCKS, Sumlink, class_rules, control, start, wait_for_paths, write_config};

/// Longest time from the start to the first byte.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Interval between checks of the gateway's program while nothing accepts connections.
const CONNECT_LIMIT: Duration = Duration::from_millis(250);
/// Streams beyond those of the workload.
const SPARE: u64 = 64;

/// Why this way of capture cannot be measured; `None` if it can.
pub(super) fn missing(variant: GatewayVariant, scenario: &Scenario) -> Option<String> {
    let is_reference = variant.capture == Some(Capture::Socks);
    let reason = "the entry for SOCKS5 is a reference for connections only";
    let missing = variant.missing(scenario.lan.is_some());
    missing.or_else(|| (is_reference && scenario.workload.needs_udp()).then(|| reason.to_owned()))
}

/// The client's SOCKS5 entry: for the programs that begin where the traffic does.
pub(super) fn socks(stage: &Stage<'_>) -> SocketAddr {
    match stage.near {
        Side::Lan => SocketAddr::from((GATEWAY_V4, SOCKS.port())),
        _ => SOCKS,
    }
}

/// Settings of both ends for a workload of open connections.
pub(super) fn settings_of_both(stage: &Stage<'_>) -> String {
    match stage.connections {
        0 => String::new(),
        count => format!("session.max_streams = {}\n", count + SPARE),
    }
}

impl Sumlink {
    /// Starts the client as `sumlink up`, and waits for the first byte through it.
    pub(super) fn start_gateway(
        &self,
        stage: &Stage<'_>,
        server: Process,
        address: &str,
        keys: (&Path, &str),
        congestion: &str,
    ) -> Result<Running, LabError> {
        let text = self.config(stage, address, keys, congestion);
        let mut command = Command::new(stage.program);
        command.arg("up").arg("--config");
        command.arg(write_config(stage, "gateway", &text)?);
        let started = Instant::now();
        let mut gateway = start(stage, Side::Client, "sumlink-up", command)?;
        let first_byte_s = match stage.has_own_programs {
            true => Some(wait_for_first_byte(stage, &mut gateway, started)?),
            false => None,
        };
        wait_for_paths(stage, &mut gateway)?;
        let route = Route {
            resolver: Some(SocketAddr::from((GATEWAY_V4, NAMES_PORT))),
            ..Route::direct(stage.target())
        };
        Ok(Running {
            entry: route.target,
            routes: vec![route],
            processes: vec![server, gateway],
            is_tcp: !stage.needs_udp,
            first_byte_s,
            _beside: Vec::new(),
        })
    }

    /// The gateway's file.
    fn config(
        &self,
        stage: &Stage<'_>,
        address: &str,
        (key, server_key): (&Path, &str),
        congestion: &str,
    ) -> String {
        let variant = &self.variant;
        let (key, control) = (key.display().to_string(), control(stage, "client"));
        let control = control.display().to_string();
        // Paths are quoted as TOML does: as in Rust, for what paths here contain.
        let mut text = format!(
            "server = \"{address}\"\nserver_key = \"{server_key}\"\nkey = {key:?}\ncontrol = \
             {control:?}\ncongestion = \"{congestion}\"\nsession.scheduler = \"{}\"\n",
            variant.scheduler
        );
        let mut line = |words: std::fmt::Arguments<'_>| {
            let _ = writeln!(text, "{words}");
        };
        for (class, scheduler) in &variant.class_schedulers {
            line(format_args!(
                "session.schedulers.{} = \"{scheduler}\"",
                class.name()
            ));
        }
        if let Some(selector) = &variant.selector {
            line(format_args!("session.selector = \"{selector}\""));
        }
        if let Some(policy) = variant.datagrams.policy {
            line(format_args!(
                "session.datagrams.policy = \"{}\"",
                policy.name()
            ));
        }
        if variant.datagrams.without_udp {
            line(format_args!("udp = false"));
        }
        match &variant.carriers {
            Some(number) if number.parse::<u32>().is_ok() => {
                line(format_args!("carriers = {number}"));
            }
            Some(word) => line(format_args!("carriers = \"{word}\"")),
            None => {}
        }
        if variant.early {
            line(format_args!("early = \"always\""));
        }
        text.push_str(&variant.options.to_toml());
        text.push_str(&settings_of_both(stage));
        for link in stage.links() {
            let _ = write!(text, "[[link]]\nname = \"{link}\"\n");
        }
        text.push_str(&class_rules(stage));
        let _ = write!(text, "[gateway]\nlan = [\"{LAN_INTERFACE}\"]\n");
        if let Some(capture) = variant.gateway.capture {
            let _ = writeln!(text, "capture = \"{}\"", capture.name());
        }
        text
    }
}

/// Opens connections where the traffic begins until one is answered; the seconds since the start.
fn wait_for_first_byte(
    stage: &Stage<'_>,
    gateway: &mut Process,
    started: Instant,
) -> Result<f64, LabError> {
    while started.elapsed() < START_LIMIT {
        signals::check()?;
        gateway.check_alive()?;
        let route = Route::direct(stage.target());
        let attempt = move || first_byte(&route, CONNECT_LIMIT, START_LIMIT);
        if let Some(arrived) = stage.lab.run(stage.near, attempt)? {
            return Ok(arrived.saturating_duration_since(started).as_secs_f64());
        }
    }
    Err(gateway.failed("let no connection through".to_owned()))
}
