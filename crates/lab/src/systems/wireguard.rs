//! A WireGuard tunnel over the fastest link: the yardstick for the overhead of a tunnel.
//!
//! wireguard-go runs at both ends. The tunnel leads to the server's address on that link, so that
//! the tunnel's own packets do not take the tunnel.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::config::Direction;
use crate::error::LabError;
use crate::process::{Process, TICK};
use crate::programs;
use crate::scenario::{Scenario, Workload};
use crate::topology::{SERVER_V4, Side};
use crate::traffic::Route;

use super::sumlink::version_of;
use super::{Evidence, Running, Stage, System};

/// UDP port of the server's end.
const PORT: u16 = 51_820;
/// Addresses inside the tunnel.
const SERVER: &str = "10.98.0.1";
const CLIENT: &str = "10.98.0.2";
/// Longest wait for wireguard-go to open its control socket.
const START_LIMIT: Duration = Duration::from_secs(10);

pub(super) struct WireGuard;

impl System for WireGuard {
    fn missing(&self, scenario: &Scenario) -> Option<String> {
        if let Workload::Video(_) = &scenario.workload {
            return Some("a video needs no yardstick of overhead".to_owned());
        }
        let programs = ["wg", "wireguard-go"].map(programs::find);
        programs
            .into_iter()
            .find_map(Result::err)
            .map(|error| error.to_string())
    }

    fn versions(&self) -> BTreeMap<String, String> {
        let version = programs::find("wireguard-go").ok();
        let version = version.and_then(|program| version_of(&program));
        version
            .map(|version| ("wireguard-go".to_owned(), version))
            .into_iter()
            .collect()
    }

    fn carries_datagrams(&self) -> bool {
        true
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Running, LabError> {
        let link = fastest(stage);
        let [server_key, client_key] = [Side::Server, Side::Client].map(|s| public_key(stage, s));
        let (server_key, client_key) = (server_key?, client_key?);
        let port = PORT.to_string();
        let allowed = format!("{CLIENT}/32");
        let peer = [
            "listen-port",
            &port,
            "peer",
            &client_key,
            "allowed-ips",
            &allowed,
        ];
        let server = start(stage, Side::Server, SERVER, &peer)?;
        let allowed = format!("{SERVER}/32,{SERVER_V4}/32");
        let endpoint = format!("10.77.{}.1:{PORT}", link + 1);
        let peer = [
            "peer",
            &server_key,
            "endpoint",
            &endpoint,
            "allowed-ips",
            &allowed,
        ];
        let client = start(stage, Side::Client, CLIENT, &peer)?;
        let (target, interface) = (format!("{SERVER_V4}/32"), interface(Side::Client));
        let route = [
            "route", "replace", &target, "dev", &interface, "src", CLIENT,
        ];
        command(stage, Side::Client, "ip", &route)?;
        Ok(Running {
            routes: vec![Route::direct(stage.target())],
            entry: stage.target(),
            processes: vec![server, client],
            is_tcp: false,
            first_byte_s: None,
            _beside: Vec::new(),
        })
    }

    fn evidence(&self, stage: &Stage<'_>, running: &mut Running) -> Result<Evidence, LabError> {
        for process in &mut running.processes {
            process.check_alive()?;
        }
        let link = stage
            .links()
            .nth(fastest(stage))
            .unwrap_or_default()
            .to_owned();
        Ok(Evidence {
            duplicates_bytes: Some(0),
            note: format!("one tunnel over {link}"),
            ..Evidence::default()
        })
    }
}

/// The place of the link with the highest rate in the direction of the data.
fn fastest(stage: &Stage<'_>) -> usize {
    let way = if stage.sends_up() {
        Direction::Up
    } else {
        Direction::Down
    };
    let links = stage.lab.links().iter().enumerate();
    // Of equal links the first.
    let best = links
        .rev()
        .max_by_key(|(_, link)| link.shapes[way.index()].rate);
    best.map_or(0, |(place, _)| place)
}

/// The name of the tunnel's interface. wireguard-go has a control socket for each name, which all
/// namespaces of the machine share; the process id keeps concurrent laboratories apart.
fn interface(side: Side) -> String {
    format!("wg{}{}", &side.name()[..1], std::process::id())
}

/// Creates a key; returns the public part.
fn public_key(stage: &Stage<'_>, side: Side) -> Result<String, LabError> {
    let wg = programs::find("wg")?;
    let output = |command: &mut Command| {
        let output = command
            .output()
            .map_err(|error| LabError::system("running wg", error))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match output.status.success() {
            true => Ok(text),
            false => Err(LabError::system("making a key with wg", output.status)),
        }
    };
    let secret = output(Command::new(&wg).arg("genkey"))?;
    let file = key_file(stage, side);
    fs::write(&file, secret).map_err(LabError::file(&file))?;
    let input = fs::File::open(&file).map_err(LabError::file(&file))?;
    output(Command::new(&wg).arg("pubkey").stdin(input))
}

fn key_file(stage: &Stage<'_>, side: Side) -> std::path::PathBuf {
    stage.directory.join(format!("{}.wg", side.name()))
}

/// Starts one end of the tunnel.
fn start(stage: &Stage<'_>, side: Side, address: &str, peer: &[&str]) -> Result<Process, LabError> {
    let interface = interface(side);
    let mut daemon = Command::new(programs::find("wireguard-go")?);
    daemon.args(["--foreground", &interface]);
    let name = format!("wireguard-{}", side.name());
    let mut process = Process::start(stage.lab, stage.directory, side, &name, daemon)?;
    let key = key_file(stage, side).display().to_string();
    let set = [&["set", &interface, "private-key", &key], peer].concat();
    let begin = Instant::now();
    while let Err(error) = command(stage, side, "wg", &set) {
        process.check_alive()?;
        if begin.elapsed() > START_LIMIT {
            return Err(error);
        }
        thread::sleep(TICK);
    }
    let address = format!("{address}/24");
    command(
        stage,
        side,
        "ip",
        &["address", "add", &address, "dev", &interface],
    )?;
    command(stage, side, "ip", &["link", "set", &interface, "up"])?;
    Ok(process)
}

/// Runs a command to its end on one side.
fn command(stage: &Stage<'_>, side: Side, program: &str, words: &[&str]) -> Result<(), LabError> {
    let mut command = Command::new(programs::find(program)?);
    command.args(words);
    let output = stage.lab.run(side, move || command.output())?;
    let output = output.map_err(|error| LabError::system(format!("running {program}"), error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(LabError::system(
            format!("{program} {}", words.join(" ")),
            String::from_utf8_lossy(&output.stderr).trim(),
        )),
    }
}
