//! `lab shell` and `lab exec`: arbitrary programs in the laboratory.

use std::env;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::Duration;

use crate::error::LabError;
use crate::laboratory::{Lab, LabConfig};
use crate::lan;
use crate::netns;
use crate::prose::note;
use crate::rundir;
use crate::signals;
use crate::topology::Side;

/// Polling interval for a running program.
const TICK: Duration = Duration::from_millis(10);

/// Starts a laboratory and runs a command in it, or an interactive shell; returns when that exits.
pub(crate) fn shell(config: LabConfig, side: Side, command: &[OsString]) -> Result<(), LabError> {
    if let Some(warning) = config.warning() {
        note!("laboratory: {warning}");
    }
    let lab = Lab::start(config)?;
    let interactive = command.is_empty();
    if interactive || std::io::stderr().is_terminal() {
        note!("laboratory {} ({} side)", lab.id(), side.name());
        for line in lab.description()? {
            note!("  {line}");
        }
        note!("  start a program on the other side: sumlink-lab exec --side server -- COMMAND");
        note!("  change a link:                     sumlink-lab set LINK loss=5%");
    }
    if lab.has_lan() {
        // Any program on the LAN host reaches the internet host, with or without a gateway's
        // program.
        lab.forward()?;
    }
    lab.begin()?;
    let child = lab.spawn(side, to_command(command))?;
    let status = wait(child, interactive)?;
    if let Some(objection) = lab.health()?.objection() {
        note!("laboratory: figures measured here do not reflect the links: {objection}");
    }
    drop(lab);
    exit_result(status)
}

/// Replaces this process by a command on one side of a running laboratory.
pub(crate) fn exec(lab: Option<&str>, side: Side, command: &[OsString]) -> Result<(), LabError> {
    let id = rundir::choose(lab)?;
    netns::enter(&netns::path(&rundir::namespace_name(&id, side.name())))?;
    let [run, resolv_conf] = rundir::files_of(&id, side.name());
    if run.exists() {
        lan::use_files(&run, &resolv_conf);
    }
    let mut command = to_command(command);
    let program = command.get_program().to_string_lossy().into_owned();
    let error = command
        .env(crate::ENV_LAB, &id)
        .env(crate::ENV_CONTROL, rundir::control_of(&id))
        .env(crate::ENV_SIDE, side.name())
        .exec();
    Err(netns::start_failed(&program, error))
}

fn to_command(words: &[OsString]) -> Command {
    match words.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        None => Command::new(env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())),
    }
}

fn wait(mut child: Child, interactive: bool) -> Result<ExitStatus, LabError> {
    loop {
        if let Some(status) = child
            .try_wait()
            .map_err(|error| LabError::system("waiting for the command", error))?
        {
            return Ok(status);
        }
        // An interactive shell handles Ctrl-C itself.
        if interactive {
            signals::check_except_interrupt()?
        } else {
            signals::check()?
        }
        thread::sleep(TICK);
    }
}

fn exit_result(status: ExitStatus) -> Result<(), LabError> {
    // As in shells, a program killed by a signal is reported as 128 + the signal's number.
    match status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    {
        0 => Ok(()),
        code => Err(LabError::CommandFailed(u8::try_from(code).unwrap_or(1))),
    }
}
