//! The programs that generate the traffic of a run.

use std::process::Command;
use std::time::Duration;

use sumlink_transport::Class;

use crate::config::Direction;
use crate::error::LabError;
use crate::process::Process;
use crate::programs;
use crate::scenario::{Scenario, VideoProtocol, Workload};
use crate::systems::{Running, Stage, System, keys};
use crate::topology::Side;
use crate::traffic::{
    Channel, Http3, Load, Route, Spec, curl_beside, datagrams_beside, http3_beside, many_beside,
};
use crate::video::{receive, send};

/// The port on which the workload's server listens, if the workload names one.
pub(super) fn port(workload: &Workload) -> Option<u16> {
    match workload {
        Workload::Command { port, .. } => Some(*port),
        _ => None,
    }
}

/// Whether the laboratory's own programs generate the workload.
pub(super) fn has_own_programs(workload: &Workload) -> bool {
    !matches!(workload, Workload::Command { .. } | Workload::Video(_))
}

/// Starts the server's side and waits until it listens.
pub(super) fn start_server(
    scenario: &Scenario,
    stage: &Stage<'_>,
    system: &dyn System,
) -> Result<Process, LabError> {
    let mptcp = system.is_mptcp();
    let command = match &scenario.workload {
        Workload::Command { server, .. } => {
            let line = fill_in(server, &stage.target().ip().to_string(), stage.port, None);
            user_command(&line, mptcp)?
        }
        Workload::Video(video) => receive::command(stage, video, mptcp)?,
        _ => {
            let mut command = Command::new(programs::own()?);
            command.args(["traffic", "serve", "--listen"]);
            // On every address: tunnels come from the server's own loopback.
            command.arg(format!("0.0.0.0:{}", stage.port));
            if mptcp {
                command.arg("--mptcp");
            }
            let channel = system.channel_of_server(stage)?;
            if channel != Channel::Socket {
                let text = serde_json::to_string(&channel)
                    .map_err(|error| LabError::system("writing JSON", error))?;
                command.args(["--channel", &text]);
            }
            serve_udp(&mut command, &scenario.workload, stage)?;
            if let Workload::Curl = scenario.workload {
                command.args(["--curl", &curl_beside(stage.target()).to_string()]);
            }
            if let Workload::Connections { .. } | Workload::Open { .. } = scenario.workload {
                command.args(["--many", &many_beside(stage.target()).to_string()]);
            }
            command
        }
    };
    let mut server = start(stage, stage.serving, "workload-server", command)?;
    let is_srt = matches!(
        &scenario.workload,
        Workload::Video(video) if video.protocol == VideoProtocol::Srt
    );
    // Callers of SRT repeat their requests until the server listens.
    if !is_srt {
        server.wait_for_port(stage.lab, stage.serving, stage.port)?;
    }
    Ok(server)
}

/// Adds the servers of UDP that the workload needs. Their addresses are given, because replies must
/// come from the address to which clients send.
fn serve_udp(
    command: &mut Command,
    workload: &Workload,
    stage: &Stage<'_>,
) -> Result<(), LabError> {
    if let Workload::Datagrams(_) | Workload::Http3 { .. } = workload {
        command.args(["--datagrams", &datagrams_beside(stage.target()).to_string()]);
    }
    if let Workload::Http3 { .. } = workload {
        let http3 = Http3 {
            listen: http3_beside(stage.target()),
            keys: keys::of(stage, Side::Server)?,
        };
        let text = serde_json::to_string(&http3)
            .map_err(|error| LabError::system("writing JSON", error))?;
        command.args(["--http3", &text]);
    }
    Ok(())
}

/// Starts the client's side: the traffic program, or a copy of the user's command for each route.
pub(super) fn start_clients(
    scenario: &Scenario,
    stage: &Stage<'_>,
    running: &Running,
    mptcp: bool,
    epoch_ns: u64,
    interval: Duration,
) -> Result<Vec<Process>, LabError> {
    if let Workload::Video(video) = &scenario.workload {
        let all = running.routes.iter();
        let started =
            all.map(|route| send::start(stage, video, running.entry, route, mptcp, epoch_ns));
        return started.collect();
    }
    let Workload::Command { client, .. } = &scenario.workload else {
        let spec = spec(scenario, stage, running, epoch_ns, interval)?;
        let text = serde_json::to_string(&spec)
            .map_err(|error| LabError::system("writing JSON", error))?;
        let mut command = Command::new(programs::own()?);
        command.args(["traffic", "run", "--spec", &text]);
        return Ok(vec![start(stage, stage.near, "workload-client", command)?]);
    };
    running
        .routes
        .iter()
        .enumerate()
        .map(|(number, route)| {
            let host = running.entry.ip().to_string();
            let link = route.device();
            let line = fill_in(client, &host, running.entry.port(), link);
            let mut command = user_command(&line, mptcp)?;
            if let Some(socks) = route.socks {
                command.env("ALL_PROXY", format!("socks5h://{socks}"));
            }
            start(
                stage,
                stage.near,
                &format!("workload-client-{number}"),
                command,
            )
        })
        .collect()
}

fn spec(
    scenario: &Scenario,
    stage: &Stage<'_>,
    running: &Running,
    epoch_ns: u64,
    interval: Duration,
) -> Result<Spec, LabError> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let directions = scenario.traffic.directions();
    let http3 = match &scenario.workload {
        Workload::Http3 { .. } => Some(keys::of(stage, Side::Client)?),
        _ => None,
    };
    Ok(Spec {
        epoch_ns,
        duration_ms: millis(scenario.duration),
        interval_ms: millis(interval),
        routes: running.routes.clone(),
        down: directions.contains(&Direction::Down),
        up: directions.contains(&Direction::Up),
        load: match &scenario.workload {
            Workload::Files {
                sizes,
                count,
                gap,
                pace,
                ..
            } => Load::Files {
                sizes: sizes.clone(),
                count: *count,
                gap_ms: millis(*gap),
                pace: *pace,
            },
            Workload::Cbr { rate, message } => Load::Cbr {
                rate: *rate,
                message: *message,
            },
            Workload::Requests {
                request,
                answer,
                gap,
                load,
            } => Load::Requests {
                request: *request,
                answer: *answer,
                gap_ms: millis(*gap),
                bulk: *load,
            },
            Workload::Curl => Load::Curl,
            Workload::Connections { parallel, answer } => Load::Connections {
                parallel: *parallel,
                answer: *answer,
            },
            Workload::Open { count } => Load::Open { count: *count },
            Workload::Dns { cached, gap } => Load::Names {
                cached: *cached,
                gap_ms: millis(*gap),
            },
            Workload::Datagrams(datagrams) => Load::Datagrams {
                sizes: datagrams.schedule.sizes().to_vec(),
                cycle_ns: datagrams.schedule.cycle_ns(),
                both_ways: datagrams.kind.is_both_ways(),
                bulk: datagrams.load,
            },
            Workload::Http3 { probe } => Load::Http3 { probe: *probe },
            Workload::Bulk | Workload::Video(_) | Workload::Command { .. } => Load::Bulk,
        },
        class: class_name(scenario.classes.measured),
        load_class: class_name(scenario.classes.load),
        rival: rival(scenario, stage),
        http3,
    })
}

fn class_name(class: Option<Class>) -> Option<String> {
    class.map(|class| class.name().to_owned())
}

/// The route of the scenario's rival; `None` while another link is measured alone.
fn rival(scenario: &Scenario, stage: &Stage<'_>) -> Option<Route> {
    let link = scenario.rival.as_ref()?;
    let concerns = stage.link.is_none_or(|measured| measured == link);
    concerns.then(|| Route {
        link: Some(link.clone()),
        ..Route::direct(stage.target())
    })
}

fn fill_in(line: &str, host: &str, port: u16, link: Option<&str>) -> String {
    line.replace("{server}", host)
        .replace("{port}", &port.to_string())
        .replace("{link}", link.unwrap_or(""))
}

/// A shell command; with `mptcp`, its TCP sockets become MPTCP sockets.
fn user_command(line: &str, mptcp: bool) -> Result<Command, LabError> {
    let mut command = if mptcp {
        let mut command = Command::new(programs::find("mptcpize")?);
        command.args(["run", "/bin/sh"]);
        command
    } else {
        Command::new("/bin/sh")
    };
    // exec replaces the shell, so that killing the process ends the program.
    command.args(["-c", &format!("exec {line}")]);
    Ok(command)
}

/// Starts a program of the workload.
fn start(stage: &Stage<'_>, side: Side, name: &str, command: Command) -> Result<Process, LabError> {
    Process::start(stage.lab, stage.directory, side, name, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_a_command_are_filled_in() {
        let line = fill_in(
            "iperf3 -c {server} -p {port} --bind-dev {link}",
            "10.99.0.1",
            5201,
            Some("wifi"),
        );
        assert_eq!(line, "iperf3 -c 10.99.0.1 -p 5201 --bind-dev wifi");
    }
}
