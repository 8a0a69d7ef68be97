//! sumlink with a scheduler, optionally others for some classes, and an optional congestion
//! control.

mod gateway;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use sumlink_scenario::system::{Capture, Variant};
use sumlink_transport::Class;

use crate::controls;
use crate::error::LabError;
use crate::process::{Process, TICK};
use crate::scenario::{Classes, Scenario};
use crate::signals;
use crate::topology::{SERVER_V4, Side, egress_flags};
use crate::traffic::{Route, datagrams_beside, http3_beside};

use super::{Evidence, Running, Stage, System, datagrams};

/// Port of the sumlink server.
const SERVER_PORT: u16 = 7000;
/// Address of the client's SOCKS5 proxy.
const SOCKS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);
/// Address that the client forwards to the workload's server, for programs without SOCKS support.
const FORWARD: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1081);
/// Address from which the client forwards datagrams to the workload's server.
const FORWARD_DATAGRAMS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1082);
/// The same for HTTP/3.
const FORWARD_HTTP3: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1083);
/// Longest wait for the paths; a link without traffic has none.
const PATHS_LIMIT: Duration = Duration::from_secs(5);

pub(super) struct Sumlink {
    pub(super) variant: Variant,
}

impl Sumlink {
    /// The flags that client and server have in common.
    fn flags(&self, congestion: &str) -> Vec<String> {
        let own = &self.variant.scheduler;
        let mut flags = ["--scheduler", own, "--congestion", congestion]
            .map(str::to_owned)
            .to_vec();
        for (class, scheduler) in &self.variant.class_schedulers {
            flags.push("--class-scheduler".to_owned());
            flags.push(format!("{}={scheduler}", class.name()));
        }
        if let Some(selector) = &self.variant.selector {
            flags.extend(["--selector".to_owned(), selector.to_string()]);
        }
        let datagrams = &self.variant.datagrams;
        if let Some(policy) = datagrams.policy {
            flags.extend(["--datagrams".to_owned(), policy.name().to_owned()]);
        }
        if datagrams.without_udp {
            flags.extend(["--udp".to_owned(), "off".to_owned()]);
        }
        flags
    }
}

impl System for Sumlink {
    fn missing(&self, scenario: &Scenario) -> Option<String> {
        let congestion = self.variant.congestion.as_deref();
        let congestion = congestion.unwrap_or(&scenario.congestion);
        let missing = self.variant.missing(scenario.links().count());
        let missing = missing.or_else(|| gateway::missing(self.variant.gateway, scenario));
        missing.or_else(|| controls::missing(congestion))
    }

    fn missing_as_gateway(&self) -> Option<String> {
        None
    }

    fn starts_on_gateway(&self) -> bool {
        self.variant.gateway.from_gateway
    }

    fn carries_datagrams(&self) -> bool {
        true
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Running, LabError> {
        if let Some(blocked) = &self.variant.datagrams.blocked {
            datagrams::block(stage, blocked)?;
        }
        let (server_key, server_public) = make_key(stage, "server")?;
        let (client_key, client_public) = make_key(stage, "client")?;
        let address = SocketAddr::from((SERVER_V4, SERVER_PORT)).to_string();
        let congestion = self
            .variant
            .congestion
            .as_deref()
            .unwrap_or(stage.congestion);
        let common = self.flags(congestion);
        let mut settings = self.variant.options.to_toml() + &gateway::settings_of_both(stage);
        if self.variant.datagrams.ignores_calls {
            settings.push_str("session.datagrams.yield_to_calls = false\n");
        }

        let mut command = Command::new(stage.program);
        command.args(["server", "--listen", &address, "--key"]);
        command.arg(&server_key).args(&common);
        if !settings.is_empty() {
            let text = format!("listen = \"{address}\"\n{settings}");
            command
                .arg("--config")
                .arg(write_config(stage, "server", &text)?);
        }
        command.args(egress_flags());
        command.args(["--authorize", &client_public, "--control"]);
        command.arg(control(stage, "server"));
        let mut server = start(stage, Side::Server, "sumlink-server", command)?;
        server.wait_for_port(stage.lab, Side::Server, SERVER_PORT)?;

        if stage.lab.has_lan() && self.variant.gateway.capture != Some(Capture::Socks) {
            let keys = (&*client_key, &*server_public);
            return self.start_gateway(stage, server, &address, keys, congestion);
        }
        // With a LAN, the ways of capture are compared with this entry.
        let socks = gateway::socks(stage);
        let mut command = Command::new(stage.program);
        command.args(["client", "--server", &address, "--server-key"]);
        command.arg(&server_public).args(&common).arg("--key");
        command.arg(&client_key).arg("--control");
        command.arg(control(stage, "client"));
        let classes = class_rules(stage);
        if !(settings.is_empty() && classes.is_empty()) {
            let text = format!("server = \"{address}\"\n{settings}{classes}");
            command
                .arg("--config")
                .arg(write_config(stage, "client", &text)?);
        }
        command.args(["--socks", &socks.to_string()]);
        command.args(["--forward", &format!("{FORWARD}={}", stage.target())]);
        if stage.needs_udp {
            let target = stage.target();
            for (entry, target) in [
                (FORWARD, target),
                (FORWARD_DATAGRAMS, datagrams_beside(target)),
                (FORWARD_HTTP3, http3_beside(target)),
            ] {
                command.args(["--forward", &format!("udp:{entry}={target}")]);
            }
        }
        if let Some(carriers) = &self.variant.carriers {
            command.args(["--carriers", carriers]);
        }
        if self.variant.early {
            command.args(["--early", "always"]);
        }
        for link in stage.links() {
            command.args(["--link", link]);
        }
        let mut client = start(stage, Side::Client, "sumlink-client", command)?;
        client.wait_for_port(stage.lab, Side::Client, socks.port())?;
        wait_for_paths(stage, &mut client)?;
        Ok(Running {
            routes: vec![Route {
                socks: Some(socks),
                datagrams: Some(FORWARD_DATAGRAMS),
                http3: Some(FORWARD_HTTP3),
                ..Route::direct(stage.target())
            }],
            entry: FORWARD,
            processes: vec![server, client],
            is_tcp: !stage.needs_udp,
            first_byte_s: None,
            _beside: Vec::new(),
        })
    }

    fn evidence(&self, stage: &Stage<'_>, running: &mut Running) -> Result<Evidence, LabError> {
        for process in &mut running.processes {
            process.check_alive()?;
        }
        let [client, server] = ["client", "server"].map(|side| ask(&control(stage, side)));
        let both = [&client, &server];
        let total = |key: &str| {
            let of_side = |status: &Option<serde_json::Value>| {
                let sessions = sessions(status.as_ref()?);
                sessions
                    .map(|session| session[key].as_u64())
                    .sum::<Option<u64>>()
            };
            both.into_iter().map(of_side).sum::<Option<u64>>()
        };
        let active = client.as_ref().map_or(0, active_paths);
        let links = stage.links().count();
        let mut note = if self.variant.carriers.is_some() {
            format!("{active} paths over {links} links at the end")
        } else {
            format!("{active} of {links} paths active at the end")
        };
        if let Some(own) = &self.variant.congestion {
            note.push_str(&format!(
                "; its paths use {own}, all other connections {}",
                stage.congestion
            ));
        }
        if stage.needs_udp {
            for (side, status) in [("client", &client), ("server", &server)] {
                let Some(status) = status else { continue };
                if side == "client" {
                    note.push_str(&format!("; {}", carriers_in_words(status)));
                }
                note.push_str(&format!("; {side}: {}", policies_in_words(status)));
            }
        }
        Ok(Evidence {
            duplicates_bytes: total("duplicates_sent_bytes"),
            reorder_peak_bytes: total("reorder_peak_bytes"),
            in_order_wait_p99_s: longest_wait([&client, &server]),
            note,
            ..Evidence::default()
        })
    }
}

fn start(stage: &Stage<'_>, side: Side, name: &str, command: Command) -> Result<Process, LabError> {
    Process::start(stage.lab, stage.directory, side, name, command)
}

/// The control socket of one side.
fn control(stage: &Stage<'_>, side: &str) -> PathBuf {
    stage.directory.join(format!("{side}.control"))
}

/// The client's rules for the workload's classes: by the names that the laboratory's programs send
/// to the proxy, or by the port of other programs.
fn class_rules(stage: &Stage<'_>) -> String {
    let Classes { measured, load } = stage.classes;
    // Captured connections have no user name either.
    if !stage.has_own_programs || (stage.lab.has_lan() && !stage.needs_udp) {
        let port = stage.port;
        let rule = |class: Class| {
            let class = class.name();
            format!("[[class]]\nport = \"{port}\"\nclass = \"{class}\"\n")
        };
        return measured.map(rule).unwrap_or_default();
    }
    // Datagrams have no user name; the rule is for the ports of their servers.
    let (port, http3) = (
        datagrams_beside(stage.target()).port(),
        http3_beside(stage.target()).port(),
    );
    let of_port = measured.filter(|_| stage.needs_udp).map(|class| {
        let class = class.name();
        format!("[[class]]\nport = \"{port},{http3}\"\nclass = \"{class}\"\n")
    });
    let named: BTreeSet<Class> = measured.into_iter().chain(load).collect();
    let rule = |class: &Class| {
        let class = class.name();
        format!("[[class]]\nuser = \"{class}\"\nclass = \"{class}\"\n")
    };
    of_port.into_iter().chain(named.iter().map(rule)).collect()
}

/// Writes a configuration file of one side.
fn write_config(stage: &Stage<'_>, side: &str, text: &str) -> Result<PathBuf, LabError> {
    let file = stage.directory.join(format!("{side}.toml"));
    let written = fs::write(&file, text);
    written.map_err(|error| LabError::system(format!("writing {}", file.display()), error))?;
    Ok(file)
}

/// Creates a key of one side.
fn make_key(stage: &Stage<'_>, side: &str) -> Result<(PathBuf, String), LabError> {
    let file = stage.directory.join(format!("{side}.key"));
    let public = keygen(stage.program, &file)?;
    Ok((file, public))
}

/// Creates a key with the program, and returns the public key: the last word that `sumlink keygen`
/// prints.
pub(crate) fn keygen(program: &Path, file: &Path) -> Result<String, LabError> {
    let mut command = Command::new(program);
    command.args(["keygen", "--out"]).arg(file);
    let output = command
        .output()
        .map_err(|error| LabError::system("starting sumlink", error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.split_whitespace().last() {
        Some(word) if output.status.success() => Ok(word.to_owned()),
        _ => Err(LabError::Failed {
            what: format!("sumlink keygen failed ({})", output.status),
            log: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}

/// Waits until every link has a path, or the time limit is reached.
fn wait_for_paths(stage: &Stage<'_>, client: &mut Process) -> Result<(), LabError> {
    let start = Instant::now();
    let links = stage.links().count();
    while start.elapsed() < PATHS_LIMIT {
        signals::check()?;
        client.check_alive()?;
        let status = ask(&control(stage, "client")).unwrap_or_default();
        let has_datagrams = !stage.needs_udp || datagram_paths(&status).count() >= links;
        if active_paths(&status) >= links && has_datagrams {
            return Ok(());
        }
        thread::sleep(TICK);
    }
    Ok(())
}

/// The status from a control socket; `None` if it does not answer.
pub(super) fn ask(socket: &Path) -> Option<serde_json::Value> {
    request(socket, &serde_json::json!({ "cmd": "status" }))
}

/// The answer of a control socket to a request; `None` if it does not answer.
pub(super) fn request(socket: &Path, request: &serde_json::Value) -> Option<serde_json::Value> {
    let mut stream = UnixStream::connect(socket).ok()?;
    let limit = Some(Duration::from_secs(2));
    stream.set_read_timeout(limit).ok()?;
    stream.set_write_timeout(limit).ok()?;
    stream.write_all(format!("{request}\n").as_bytes()).ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

fn sessions(status: &serde_json::Value) -> impl Iterator<Item = &serde_json::Value> {
    status["sessions"].as_array().into_iter().flatten()
}

/// The longest time that 99 % of a session's bytes did not exceed in waiting for earlier ones.
fn longest_wait(statuses: [&Option<serde_json::Value>; 2]) -> Option<f64> {
    let sessions = statuses.into_iter().flatten().flat_map(sessions);
    let waits = sessions.filter_map(|session| session["in_order_wait_p99_ms"].as_f64());
    waits.map(|ms| ms / 1e3).reduce(f64::max)
}

fn active_paths(status: &serde_json::Value) -> usize {
    sessions(status)
        .flat_map(|session| session["paths"].as_array().into_iter().flatten())
        .filter(|path| path["state"] == "active")
        .count()
}

/// The paths of datagrams.
fn datagram_paths(status: &serde_json::Value) -> impl Iterator<Item = &serde_json::Value> {
    sessions(status).flat_map(|session| session["datagram_paths"].as_array().into_iter().flatten())
}

/// How each link carries datagrams.
fn carriers_in_words(status: &serde_json::Value) -> String {
    let word = |value: &serde_json::Value| value.as_str().unwrap_or("?").to_owned();
    let paths = datagram_paths(status)
        .map(|path| format!("{} over {}", word(&path["link"]), word(&path["carrier"])));
    paths.collect::<Vec<_>>().join(", ")
}

/// How a side's datagrams use the links at the end, with the reasons.
fn policies_in_words(status: &serde_json::Value) -> String {
    let word = |value: &serde_json::Value| value.as_str().unwrap_or("?").to_owned();
    let flows = sessions(status)
        .flat_map(|session| session["flows"].as_array().into_iter().flatten())
        .map(|flow| format!("{} ({})", word(&flow["policy"]), word(&flow["reason"])));
    flows.collect::<Vec<_>>().join(", ")
}

/// The version that a program prints with `--version`: its last word.
pub(crate) fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().last().map(str::to_owned)
}

/// Whether a file exists and is executable.
pub(crate) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}
