//! The processes of a measurement: starting, monitoring, accounting and ending them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::error::LabError;
use crate::laboratory::Lab;
use crate::signals;
use crate::topology::Side;

/// Time limit for a server to listen.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for a process to exit after SIGTERM.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Polling interval for processes.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// A child process with its log; ended when dropped.
pub(crate) struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts a program on one side with its output redirected to a log file.
    pub(crate) fn start(
        lab: &Lab,
        directory: &Path,
        side: Side,
        name: &str,
        mut command: Command,
    ) -> Result<Self, LabError> {
        let log = directory.join(format!("{name}.log"));
        let file = File::create(&log).map_err(LabError::file(&log))?;
        let errors = file.try_clone().map_err(LabError::file(&log))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = lab.spawn(side, command)?;
        Ok(Self {
            child,
            name: name.to_owned(),
            log,
        })
    }

    /// Waits until the process listens on a port.
    pub(crate) fn wait_for_port(
        &mut self,
        lab: &Lab,
        side: Side,
        port: u16,
    ) -> Result<(), LabError> {
        let start = Instant::now();
        while !is_listening(lab, side, port)? {
            signals::check()?;
            self.check_alive()?;
            if start.elapsed() > START_LIMIT {
                return Err(self.failed(format!("does not listen on port {port}")));
            }
            thread::sleep(TICK);
        }
        self.check_alive()
    }

    /// Waits until the process has printed a line.
    pub(crate) fn wait_for_line(&mut self, wanted: &str) -> Result<(), LabError> {
        let start = Instant::now();
        while !self.output()?.lines().any(|line| line == wanted) {
            signals::check()?;
            self.check_alive()?;
            if start.elapsed() > START_LIMIT {
                return Err(self.failed(format!("did not print '{wanted}'")));
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// Fails if the process has exited.
    pub(crate) fn check_alive(&mut self) -> Result<(), LabError> {
        match self.status()? {
            None => Ok(()),
            Some(status) => Err(self.failed(format!("exited prematurely ({status})"))),
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its output so far.
    pub(crate) fn output(&self) -> Result<String, LabError> {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .map_err(LabError::file(&self.log))
    }

    /// Its resource usage so far, including exited threads and children.
    pub(crate) fn usage(&self) -> Usage {
        let proc = Path::new("/proc").join(self.child.id().to_string());
        let stat = fs::read_to_string(proc.join("stat")).unwrap_or_default();
        let status = fs::read_to_string(proc.join("status")).unwrap_or_default();
        Usage::parse(&stat, &status)
    }

    /// Its exit status; `None` while it runs.
    pub(crate) fn status(&mut self) -> Result<Option<ExitStatus>, LabError> {
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

/// Ends a process by its id, with SIGTERM and then SIGKILL.
pub(crate) fn end(child: &mut Child) {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return;
    }
    // The process has not been waited for, so its id is still valid.
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

/// Resource usage of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Seconds, user and system.
    pub(crate) cpu_s: f64,
    /// Peak resident memory in bytes.
    pub(crate) peak_memory_bytes: u64,
}

impl Usage {
    /// From proc(5): fields 14 to 17 of `stat`, the line VmHWM of `status`.
    fn parse(stat: &str, status: &str) -> Self {
        let ticks_per_second = sysconf(SysconfVar::CLK_TCK)
            .ok()
            .flatten()
            .unwrap_or(100)
            .max(1);
        // The second field is the program's name in parentheses, and may contain anything.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(4)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        let kilobytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or(0);
        Self {
            cpu_s: ticks as f64 / ticks_per_second as f64,
            peak_memory_bytes: kilobytes * 1024,
        }
    }
}

/// Whether a process on that side listens on the port, according to the kernel.
pub(crate) fn is_listening(lab: &Lab, side: Side, port: u16) -> Result<bool, LabError> {
    lab.run(side, move || {
        ["tcp", "tcp6"].iter().any(|table| {
            let text = fs::read_to_string(format!("/proc/thread-self/net/{table}"));
            text.unwrap_or_default()
                .lines()
                .skip(1)
                .any(|line| listens(line, port))
        })
    })
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
    fn usage_is_read_for_any_program_name() {
        let stat = "17 (a) b (c) S 1 17 17 0 -1 4194560 1 2 3 4 150 50 7 3 20 0 1 0 100 0";
        let usage = Usage::parse(stat, "Name:\ta\nVmHWM:\t  2048 kB\n");
        assert!(usage.cpu_s > 0.0);
        assert_eq!(usage.peak_memory_bytes, 2 << 20);
        assert_eq!(Usage::parse("", ""), Usage::default());
    }

    #[test]
    fn listening_sockets_are_recognized() {
        let line =
            "   0: 0100630A:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1";
        assert!(listens(line, 80));
        assert!(!listens(line, 81));
        let connected = "   1: 0100630A:0050 0201A80A:C350 01 00000000:00000000 00:00000000";
        assert!(!listens(connected, 80));
        assert!(!listens("", 80));
    }
}
