//! The file with the values to restore, and the lock against a second gateway.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::error::KernelError;
use super::sysctl::Sysctl;

/// Default path of the state file.
pub const DEFAULT_STATE: &str = "/run/sumlink/gateway.json";

/// The content of the state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// Process that made the changes.
    pub(super) pid: u32,
    /// `/proc/sys/kernel/random/boot_id`: after a restart of the machine, nothing needs to be
    /// restored.
    boot: String,
    /// Inode of the network namespace.
    namespace: u64,
    /// The TUN device.
    pub(super) device: String,
    /// Parameters that were changed, in the order of the changes.
    pub(super) changed: Vec<Changed>,
}

/// A parameter that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Changed {
    /// The parameter and its value before.
    pub(super) before: Sysctl,
    /// The value that the gateway set; `None` if the kernel set it along with another.
    pub(super) set: Option<String>,
}

impl State {
    pub(super) fn new(device: &str) -> Self {
        Self {
            pid: std::process::id(),
            boot: boot(),
            namespace: namespace(),
            device: device.to_owned(),
            changed: Vec::new(),
        }
    }

    /// The state of a gateway that was killed. `None` if there is no file, or a damaged one, or one
    /// from before the machine started or from another namespace.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let mut state: Self = match serde_json::from_str(&text) {
            Ok(state) => state,
            Err(error) => {
                tracing::warn!(
                    path = %path.display(),
                    %error,
                    "ignoring a damaged state file; changed kernel parameters are not restored"
                );
                return None;
            }
        };
        if state.boot != boot() || state.namespace != namespace() {
            return None;
        }
        state
            .changed
            .retain(|changed| changed.before.is_of_network());
        Some(state)
    }

    /// Replaces the file. The directory is created.
    pub(super) fn write(&self, path: &Path) -> Result<(), KernelError> {
        let failed = |source| KernelError::File {
            path: path.to_owned(),
            source,
        };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        let new = path.with_extension("new");
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        written
            .and_then(|()| fs::rename(&new, path))
            .map_err(failed)
    }

    /// Remembers values before the parameter is set. The oldest value of each one is kept.
    pub(super) fn remember(&mut self, before: Sysctl, set: Option<&str>) {
        let set = set.map(str::to_owned);
        match self
            .changed
            .iter_mut()
            .find(|old| old.before.path == before.path)
        {
            Some(old) => old.set = set.or(old.set.take()),
            None => self.changed.push(Changed { before, set }),
        }
    }

    /// Restores the parameters that are `wanted`, the last change first. Leaves a parameter that
    /// others have changed since, and skips those of vanished interfaces. Returns their number and
    /// failures.
    pub(super) fn restore(&self, wanted: impl Fn(&Sysctl) -> bool) -> (usize, Vec<String>) {
        let mut restored = 0;
        let mut failures = Vec::new();
        let changed = self.changed.iter().rev();
        for changed in changed.filter(|changed| wanted(&changed.before)) {
            let before = &changed.before;
            let now = match Sysctl::read(&before.path) {
                Ok(Some(now)) => now,
                Ok(None) => continue,
                Err(error) => {
                    failures.push(format!("{}: {error}", before.path));
                    continue;
                }
            };
            let is_foreign = changed.set.as_ref().is_some_and(|set| *set != now);
            if now == before.value || is_foreign {
                continue;
            }
            match before.write() {
                Ok(()) => restored += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failures.push(format!("{}: {error}", before.path)),
            }
        }
        (restored, failures)
    }
}

/// The lock of a gateway, and the path of its state file. Only one process can have it.
#[derive(Debug)]
pub(super) struct Lock {
    state: PathBuf,
    path: PathBuf,
    file: Flock<File>,
}

impl Lock {
    /// Takes the lock beside the state file.
    pub(super) fn acquire(state: &Path) -> Result<Self, KernelError> {
        let path = state.with_extension("lock");
        let failed = |source| KernelError::File {
            path: path.clone(),
            source,
        };
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(failed)?;
            let mut owner = String::new();
            let _ = (&mut file).take(OWNER_LIMIT).read_to_string(&mut owner);
            let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                    return Err(KernelError::AlreadyRunning {
                        pid: owner.trim().parse().ok(),
                    });
                }
                Err((_, error)) => return Err(failed(error.into())),
            };
            // The process that held the lock before may have deleted this file.
            let is_same = fs::metadata(&path)
                .and_then(|there| Ok(there.ino() == file.metadata()?.ino()))
                .unwrap_or(false);
            if !is_same {
                continue;
            }
            let written = file
                .set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| writeln!(file, "{}", std::process::id()));
            written.map_err(failed)?;
            return Ok(Self {
                state: state.to_owned(),
                path,
                file,
            });
        }
    }

    /// Path of the state file.
    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// Deletes the state file: nothing is left to restore.
    pub(super) fn forget(&self) -> io::Result<()> {
        match fs::remove_file(&self.state) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Deleted while locked, or another process could lock a file that is about to be deleted.
        let _ = self.file.set_len(0);
        let _ = fs::remove_file(&self.path);
    }
}

/// Longest process number in a lock file, in bytes.
const OWNER_LIMIT: u64 = 32;

fn boot() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

fn namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |metadata| metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_gateway_is_refused_until_the_first_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("run/gateway.json");
        let first = Lock::acquire(&state).unwrap();
        let refused = Lock::acquire(&state).unwrap_err().to_string();
        let pid = std::process::id();
        assert_eq!(
            refused,
            format!("a gateway is running already (process {pid}): end it with `sumlink down`")
        );
        drop(first);
        Lock::acquire(&state).unwrap();
        assert!(!state.with_extension("lock").exists());
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gateway.json");
        let mut state = State::new("sumlink0");
        state.remember(Sysctl::new("net/ipv4/ip_forward", "0"), Some("1"));
        state.remember(Sysctl::new("kernel/core_pattern", "core"), Some("|/bin/sh"));
        // A second start remembers the value before the first one.
        state.remember(Sysctl::new("net/ipv4/ip_forward", "1"), Some("1"));
        state.write(&path).unwrap();
        state.changed.pop();
        assert_eq!(State::read(&path), Some(state));
    }

    #[test]
    fn states_that_do_not_belong_here_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gateway.json");
        assert_eq!(State::read(&path), None);
        fs::write(&path, "{ \"pid\": ").unwrap();
        assert_eq!(State::read(&path), None);
        let mut state = State::new("sumlink0");
        state.boot = "another".to_owned();
        state.write(&path).unwrap();
        assert_eq!(State::read(&path), None);
    }
}
