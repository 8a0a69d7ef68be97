//! The machine: kernel, clock, open files.

use std::time::{Duration, SystemTime};

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::utsname::uname;

use super::Findings;
use crate::error::CliError;
use crate::exit::Exit;

/// The first kernel on which a program without privileges may bind a socket to an interface.
const BINDS: (u32, u32) = (5, 7);

/// A clock before this time has not been set: seconds since 1970, 1 January 2026.
const PAST: Duration = Duration::from_secs(1_767_225_600);

/// Open files that each connection of a program needs at a client: its own and a spare one.
const FILES: u64 = 1024;

pub(super) fn check(found: &mut Findings) -> Result<(), CliError> {
    kernel(found)?;
    clock(found)?;
    files(found)
}

fn kernel(found: &mut Findings) -> Result<(), CliError> {
    let name = uname().map_err(std::io::Error::from)?;
    let release = name.release().to_string_lossy().into_owned();
    let is_root = nix::unistd::geteuid().is_root();
    match version(&release) {
        Some(version) if version < BINDS && !is_root => found.fail(
            "kernel",
            Exit::Network,
            format!(
                "Linux {release} binds sockets to interfaces only for root: run the client as \
                 root, or use Linux 5.7 or newer"
            ),
        ),
        _ => found.ok("kernel", format!("Linux {release}")),
    }
}

/// Major and minor version of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some((major, minor))
}

/// Keys do not expire, so that a wrong clock does not prevent a session; data caps and quotas are
/// counted by it.
fn clock(found: &mut Findings) -> Result<(), CliError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    match now.unwrap_or_default() < PAST {
        true => found.warn(
            "clock",
            "it has not been set: data caps and quotas count by its date. Set it, or start a time \
             service",
        ),
        false => {
            let now = chrono::Local::now();
            found.ok("clock", now.format("%Y-%m-%d %H:%M:%S %:z"))
        }
    }
}

fn files(found: &mut Findings) -> Result<(), CliError> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(std::io::Error::from)?;
    match hard < FILES {
        true => found.warn(
            "open files",
            format!(
                "at most {hard}, and each connection of a program needs one or two: raise the \
                 limit (ulimit -n, LimitNOFILE in a systemd unit)"
            ),
        ),
        false => found.ok("open files", format!("at most {hard}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_kernels_are_compared_by_number() {
        assert_eq!(version("6.18.5-arch1"), Some((6, 18)));
        assert_eq!(version("5.10.0-28-amd64"), Some((5, 10)));
        assert!(version("4.19.0") < Some(BINDS) && version("5.10.0") > Some(BINDS));
        assert_eq!(version("unknown"), None);
    }
}
