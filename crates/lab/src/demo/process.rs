//! The servers of the demonstration, as processes that end with it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::LabError;
use crate::programs;
use crate::signals;
use crate::topology::{SERVER_V4, Side};

use super::{Stage, is_listening};

/// Where nginx serves the file over TCP.
pub(crate) const HTTP_PORT: u16 = 80;
/// Where nginx serves the file over MPTCP.
pub(crate) const MPTCP_PORT: u16 = 8080;
/// Where the sumlink server listens.
const SERVER_PORT: u16 = 7000;
/// Where the sumlink client offers SOCKS.
pub(crate) const SOCKS_PORT: u16 = 1080;
/// How long a server may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long a process may take to end after SIGTERM.
const END_LIMIT: Duration = Duration::from_secs(2);
/// How often a process is looked at.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// A process of ours with the log it writes; ended when dropped.
pub(crate) struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts a program on one side with its output going to a log file.
    pub(crate) fn start(
        stage: &Stage,
        side: Side,
        name: &str,
        mut command: Command,
    ) -> Result<Self, LabError> {
        let log = stage.directory.path().join(format!("{name}.log"));
        let file = File::create(&log).map_err(LabError::file(&log))?;
        let errors = file.try_clone().map_err(LabError::file(&log))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = stage.lab.spawn(side, command)?;
        Ok(Self {
            child,
            name: name.to_owned(),
            log,
        })
    }

    /// Waits until the process listens on a port.
    pub(crate) fn wait_for_port(
        &mut self,
        stage: &Stage,
        side: Side,
        port: u16,
    ) -> Result<(), LabError> {
        let start = Instant::now();
        while !is_listening(stage, side, port)? {
            signals::check()?;
            self.check_alive()?;
            if start.elapsed() > START_LIMIT {
                return Err(self.failed(format!("does not listen on port {port}")));
            }
            thread::sleep(TICK);
        }
        self.check_alive()
    }

    /// An error if the process has ended by itself.
    pub(crate) fn check_alive(&mut self) -> Result<(), LabError> {
        match self.status()? {
            None => Ok(()),
            Some(status) => Err(self.failed(format!("ended too early ({status})"))),
        }
    }

    fn status(&mut self) -> Result<Option<ExitStatus>, LabError> {
        self.child
            .try_wait()
            .map_err(|error| LabError::system("waiting for a process", error))
    }

    /// An error with the end of the process' log.
    pub(crate) fn failed(&self, what: String) -> LabError {
        LabError::Failed {
            what: format!("{} {what}", self.name),
            log: tail(&self.log),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends a process by its id: politely, then not.
pub(crate) fn end(child: &mut Child) {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return;
    }
    // The process has not been waited for, so its id is still its own.
    let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
    let start = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if start.elapsed() > END_LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        thread::sleep(TICK);
    }
}

/// Serves the stage's directory; with `mptcp` on MPTCP sockets.
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
    let mut process = Process::start(stage, Side::Server, &name, command)?;
    process.wait_for_port(stage, Side::Server, port)?;
    Ok(process)
}

fn nginx_config(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path \"{directory}/nginx-temp\";\n"))
        .concat();
    // One process, so that ending it ends the server; and no other user, which a user namespace may not have.
    format!(
        "user root root;\ndaemon off;\nmaster_process off;\npid \"{directory}/nginx-{port}.pid\";\nerror_log stderr;\n\
         events {{ }}\n\
         http {{\n    access_log off;\n    sendfile on;\n{temporary}    \
         server {{\n        listen {SERVER_V4}:{port};\n        root \"{directory}\";\n    }}\n}}\n"
    )
}

/// A sumlink server and client with fresh keys, ready to be used.
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
            let mut command = Command::new(&stage.program);
            command.args(["keygen", "--out"]).arg(&file);
            let output = command
                .output()
                .map_err(|error| LabError::system("starting sumlink", error))?;
            last_word(&output).map(|public| (file, public))
        };
        let (server_key, server_public) = key("server")?;
        let (client_key, client_public) = key("client")?;
        let address = format!("{SERVER_V4}:{SERVER_PORT}");

        let mut command = Command::new(&stage.program);
        command
            .args(["server", "--listen", &address, "--key"])
            .arg(&server_key);
        command.args(["--authorize", &client_public, "--congestion", congestion]);
        let mut server = Process::start(stage, Side::Server, "sumlink-server", command)?;
        server.wait_for_port(stage, Side::Server, SERVER_PORT)?;

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
        let mut client = Process::start(stage, Side::Client, "sumlink-client", command)?;
        client.wait_for_port(stage, Side::Client, SOCKS_PORT)?;
        Ok(Self { client, server })
    }
}

/// `sumlink keygen` prints the public key as its last word.
fn last_word(output: &Output) -> Result<String, LabError> {
    let text = String::from_utf8_lossy(&output.stdout);
    match text.split_whitespace().last() {
        Some(word) if output.status.success() => Ok(word.to_owned()),
        _ => Err(LabError::Failed {
            what: format!("sumlink keygen failed ({})", output.status),
            log: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}

/// Whether a line of /proc/net/tcp is a listening socket (state 0A) on that port.
pub(crate) fn listens(line: &str, port: u16) -> bool {
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next().and_then(|local| local.rsplit_once(':'));
    let state = fields.nth(1);
    local.is_some_and(|(_, hex)| u16::from_str_radix(hex, 16) == Ok(port)) && state == Some("0A")
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_recognised() {
        let line =
            "   0: 0100630A:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1";
        assert!(listens(line, 80));
        assert!(!listens(line, 81));
        let connected = "   1: 0100630A:0050 0201A80A:C350 01 00000000:00000000 00:00000000";
        assert!(!listens(connected, 80));
        assert!(!listens("", 80));
    }
}
