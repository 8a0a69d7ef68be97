//! The servers of the demo, as processes that end with it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::error::LabError;
use crate::process::Process;
use crate::programs;
use crate::systems::keygen;
use crate::topology::{SERVER_V4, Side, egress_flags};

use super::Stage;

/// Port on which nginx serves the file over TCP.
pub(crate) const HTTP_PORT: u16 = 80;
/// Port on which nginx serves the file over MPTCP.
pub(crate) const MPTCP_PORT: u16 = 8080;
/// Port of the sumlink server.
const SERVER_PORT: u16 = 7000;
/// SOCKS port of the sumlink client.
pub(crate) const SOCKS_PORT: u16 = 1080;

/// Serves the stage's directory, on MPTCP sockets if `mptcp`.
pub(crate) fn start_nginx(stage: &Stage, port: u16, mptcp: bool) -> Result<Process, LabError> {
    let directory = stage.directory.path();
    let name = format!("nginx-{port}");
    let config = directory.join(format!("{name}.conf"));
    fs::write(&config, nginx_config(directory, port)).map_err(LabError::file(&config))?;
    let nginx = programs::find("nginx")?;
    let mut command = if mptcp {
        let mut command = Command::new(programs::find("mptcpize")?);
        command.arg("run").arg(nginx);
        command
    } else {
        Command::new(nginx)
    };
    command
        .arg("-p")
        .arg(directory)
        .arg("-c")
        .arg(&config)
        .args(["-e", "stderr"]);
    let mut process = Process::start(
        &stage.lab,
        stage.directory.path(),
        Side::Server,
        &name,
        command,
    )?;
    process.wait_for_port(&stage.lab, Side::Server, port)?;
    Ok(process)
}

fn nginx_config(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path \"{directory}/nginx-temp\";\n"))
        .concat();
    // A single process, so that killing it stops the server; as root, because a user namespace may
    // have no other user.
    format!(
        "user root root;\ndaemon off;\nmaster_process off;\npid \"{directory}/nginx-{port}.pid\";\n\
         error_log stderr;\n\
         events {{ }}\n\
         http {{\n    access_log off;\n    sendfile on;\n{temporary}    \
         server {{\n        listen {SERVER_V4}:{port};\n        root \"{directory}\";\n    }}\n}}\n"
    )
}

/// A sumlink server and client with fresh keys, ready for use.
pub(crate) struct Sumlink {
    pub(crate) client: Process,
    pub(crate) server: Process,
}

impl Sumlink {
    pub(crate) fn start(stage: &Stage, congestion: &str) -> Result<Self, LabError> {
        let directory = stage.directory.path();
        let key = |side: &str| {
            let file = directory.join(format!("{side}.key"));
            let _ = fs::remove_file(&file);
            keygen(&stage.program, &file).map(|public| (file, public))
        };
        let (server_key, server_public) = key("server")?;
        let (client_key, client_public) = key("client")?;
        let address = format!("{SERVER_V4}:{SERVER_PORT}");

        let mut command = Command::new(&stage.program);
        command
            .args(["server", "--listen", &address, "--key"])
            .arg(&server_key);
        command.args(["--authorize", &client_public, "--congestion", congestion]);
        command.args(egress_flags());
        let mut server = Process::start(
            &stage.lab,
            stage.directory.path(),
            Side::Server,
            "sumlink-server",
            command,
        )?;
        server.wait_for_port(&stage.lab, Side::Server, SERVER_PORT)?;

        let mut command = Command::new(&stage.program);
        command.args([
            "client",
            "--server",
            &address,
            "--server-key",
            &server_public,
            "--key",
        ]);
        command
            .arg(&client_key)
            .args(["--socks", &format!("127.0.0.1:{SOCKS_PORT}")]);
        for link in stage.lab.links() {
            command.args(["--link", &link.name]);
        }
        command.args(["--congestion", congestion]);
        let mut client = Process::start(
            &stage.lab,
            stage.directory.path(),
            Side::Client,
            "sumlink-client",
            command,
        )?;
        client.wait_for_port(&stage.lab, Side::Client, SOCKS_PORT)?;
        Ok(Self { client, server })
    }
}
