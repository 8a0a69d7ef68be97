//! noq: multipath QUIC in user space, in a small tunnel of our own (`peers/noq`), one path for each
//! link.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use crate::error::LabError;
use crate::process::Process;
use crate::scenario::Scenario;
use crate::topology::{SERVER_V4, Side, client_v4};
use crate::traffic::Route;

use super::sumlink::version_of;
use super::{Evidence, Running, Stage, System, peers};

const PROGRAM: &str = "noq-tunnel";
/// UDP port of its server.
const SERVER_PORT: u16 = 5900;
/// TCP address of its client.
const ENTRY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1082);
/// Congestion controls of the tunnel.
const CONGESTION: [&str; 3] = ["cubic", "reno", "bbr"];

pub(super) struct Noq;

impl System for Noq {
    fn missing(&self, scenario: &Scenario) -> Option<String> {
        let name = &scenario.congestion;
        peers::missing(PROGRAM).or_else(|| {
            (!CONGESTION.contains(&name.as_str())).then(|| {
                format!(
                    "it does not support congestion control '{name}' ({})",
                    CONGESTION.join(", ")
                )
            })
        })
    }

    fn versions(&self) -> BTreeMap<String, String> {
        let version = peers::find(PROGRAM).and_then(|program| version_of(&program));
        version
            .map(|version| ("noq".to_owned(), version))
            .into_iter()
            .collect()
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Running, LabError> {
        let program = peers::find(PROGRAM)
            .ok_or_else(|| LabError::Usage(format!("program '{PROGRAM}' not found")))?;
        let start = |side: Side, name: &str, command: Command| {
            Process::start(stage.lab, stage.directory, side, name, command)
        };
        let listen = SocketAddr::from((SERVER_V4, SERVER_PORT)).to_string();
        route_by_source(stage)?;
        let certificate = stage.directory.join("noq.cert");
        let mut command = Command::new(&program);
        command.args(["server", "--listen", &listen]);
        command.args(["--target", &stage.target().to_string()]);
        command.args(["--congestion", stage.congestion, "--certificate"]);
        command.arg(&certificate);
        let mut server = start(Side::Server, "noq-server", command)?;
        server.wait_for_line("ready")?;

        let mut command = Command::new(&program);
        command.args(["client", "--server", &listen]);
        command.args(["--listen", &ENTRY.to_string()]);
        command.args(["--congestion", stage.congestion, "--certificate"]);
        command.arg(&certificate);
        for (index, link) in stage.links().enumerate() {
            command.args(["--path", &format!("{link}={}", client_v4(index))]);
        }
        let mut client = start(Side::Client, "noq-client", command)?;
        client.wait_for_port(stage.lab, Side::Client, ENTRY.port())?;
        Ok(Running {
            routes: vec![Route::direct(ENTRY)],
            entry: ENTRY,
            processes: vec![server, client],
            is_tcp: false,
            first_byte_s: None,
            _beside: Vec::new(),
        })
    }

    fn evidence(&self, stage: &Stage<'_>, running: &mut Running) -> Result<Evidence, LabError> {
        let mut opened = 0;
        for process in &mut running.processes {
            process.check_alive()?;
            let text = process.output()?;
            opened += text
                .lines()
                .filter(|line| line.starts_with("path "))
                .count();
        }
        Ok(Evidence {
            note: format!("{opened} of {} paths opened", stage.links().count()),
            ..Evidence::default()
        })
    }
}

/// Its sockets select a link by their source address, but the laboratory routes by destination
/// only: this adds a rule and a table for each link.
fn route_by_source(stage: &Stage<'_>) -> Result<(), LabError> {
    let mut batch = String::new();
    for (index, link) in stage.links().enumerate() {
        let table = index + 1;
        let gateway = format!("10.77.{table}.1");
        batch.push_str(&format!(
            "rule add from {} lookup {table}\n\
             route add default via {gateway} dev {link} table {table}\n",
            client_v4(index)
        ));
    }
    let file = stage.directory.join("noq.routes");
    std::fs::write(&file, batch).map_err(LabError::file(&file))?;
    let mut command = Command::new("ip");
    command.arg("-batch").arg(&file);
    let status = stage
        .lab
        .spawn(Side::Client, command)?
        .wait()
        .map_err(|error| LabError::system("running ip", error))?;
    if status.success() {
        Ok(())
    } else {
        Err(LabError::system("routing by source address", status))
    }
}
