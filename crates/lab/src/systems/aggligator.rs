//! aggligator: link aggregation in user space, run as its program `agg-tunnel`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use crate::error::LabError;
use crate::process::Process;
use crate::scenario::Scenario;
use crate::topology::{SERVER_V4, Side};
use crate::traffic::Route;

use super::sumlink::version_of;
use super::{Running, Stage, System, peers};

const PROGRAM: &str = "agg-tunnel";
/// Port of its server.
const SERVER_PORT: u16 = 5800;

pub(super) struct Aggligator;

impl System for Aggligator {
    fn missing(&self, _: &Scenario) -> Option<String> {
        peers::missing(PROGRAM)
    }

    fn versions(&self) -> BTreeMap<String, String> {
        let version = peers::find(PROGRAM).and_then(|program| version_of(&program));
        version
            .map(|version| (PROGRAM.to_owned(), version))
            .into_iter()
            .collect()
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Running, LabError> {
        let program = peers::find(PROGRAM)
            .ok_or_else(|| LabError::Usage(format!("program '{PROGRAM}' not found")))?;
        let target = stage.target();
        let mut command = Command::new(&program);
        command.args(["server", "--no-monitor", "--tcp", &SERVER_PORT.to_string()]);
        // The form target:port does not work in this version ("invalid socket address"): the target
        // is localhost.
        command.args(["--port", &target.port().to_string()]);
        let mut server = Process::start(
            stage.lab,
            stage.directory,
            Side::Server,
            "agg-server",
            command,
        )?;
        server.wait_for_port(stage.lab, Side::Server, SERVER_PORT)?;

        let entry = SocketAddr::from((Ipv4Addr::LOCALHOST, target.port()));
        let mut command = Command::new(&program);
        command.args(["client", "--ipv4", "--no-monitor", "--tcp"]);
        command.arg(format!("{SERVER_V4}:{SERVER_PORT}"));
        command.args(["--port", &format!("{0}:{0}", target.port())]);
        let mut client = Process::start(
            stage.lab,
            stage.directory,
            Side::Client,
            "agg-client",
            command,
        )?;
        client.wait_for_port(stage.lab, Side::Client, entry.port())?;
        Ok(Running {
            routes: vec![Route::direct(entry)],
            entry,
            processes: vec![server, client],
            is_tcp: true,
            first_byte_s: None,
            _beside: Vec::new(),
        })
    }
}
