//! The directory of a running laboratory, which records its owner and contains its control socket.
//!
//! It remains if its owner is killed, so that the next start finds the leftovers and removes them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::netns;

/// Prefix of the laboratory's namespace names.
pub(crate) const PREFIX: &str = "sumlink-";

/// The namespaces of a laboratory: its sides, and the router of the self-test's shaper.
const PLACES: [&str; 5] = ["client", "server", "lan", "internet", "router"];

/// Time for processes to exit before they are killed.
const GRACE: Duration = Duration::from_secs(1);

/// The owner of a run directory.
#[derive(Debug, Serialize, Deserialize)]
struct Owner {
    /// Process id.
    pid: u32,
    /// Start time of that process in clock ticks since boot; distinguishes it from a later one with
    /// the same id.
    started: u64,
    /// Names of its namespaces.
    namespaces: Vec<String>,
}

/// A run directory of this process; removed when dropped.
#[derive(Debug)]
pub(crate) struct RunDir {
    id: String,
    path: PathBuf,
}

impl RunDir {
    /// Creates a directory with a new random id, and names for its namespaces.
    pub(crate) fn create() -> Result<Self, LabError> {
        let id = random_id()?;
        let base = base();
        let make = |path: &Path, recursive: bool| {
            let mut builder = fs::DirBuilder::new();
            builder
                .mode(0o700)
                .recursive(recursive)
                .create(path)
                .map_err(LabError::file(path))
        };
        make(&base, true)?;
        // The directory is renamed into place together with its owner's record: without one it
        // would look abandoned to another process that starts at the same moment.
        let hidden = base.join(format!(".{id}"));
        make(&hidden, false)?;
        let pid = std::process::id();
        let owner = Owner {
            pid,
            started: start_of(pid).unwrap_or(0),
            namespaces: PLACES.map(|side| namespace_name(&id, side)).to_vec(),
        };
        let file = hidden.join("owner.json");
        let text =
            serde_json::to_string(&owner).map_err(|e| LabError::system("writing JSON", e))?;
        fs::write(&file, text).map_err(LabError::file(file))?;
        let path = base.join(&id);
        fs::rename(&hidden, &path).map_err(LabError::file(&path))?;
        Ok(Self { id, path })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.path.join("control")
    }

    /// The file that is /etc/resolv.conf on a side.
    pub(crate) fn resolv_conf(&self, side: &str) -> PathBuf {
        self.path.join(resolv_conf_name(side))
    }

    /// The directory that is /run on a side.
    pub(crate) fn run_of(&self, side: &str) -> PathBuf {
        self.path.join(run_name(side))
    }

    /// A lock file for changes of state that all laboratories share.
    pub(crate) fn lock(&self) -> PathBuf {
        base().join(".lock")
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The name of one side's namespace.
pub(crate) fn namespace_name(id: &str, side: &str) -> String {
    format!("{PREFIX}{id}-{side}")
}

/// The ids of running laboratories, and of those with a dead owner.
fn survey() -> (Vec<String>, Vec<(String, Vec<String>)>) {
    let (mut running, mut dead) = (Vec::new(), Vec::new());
    let Ok(entries) = fs::read_dir(base()) else {
        return (running, dead);
    };
    for entry in entries.flatten() {
        let Ok(id) = entry.file_name().into_string() else {
            continue;
        };
        if id.starts_with('.') {
            continue;
        }
        let owner = fs::read(entry.path().join("owner.json")).ok();
        match owner.and_then(|text| serde_json::from_slice::<Owner>(&text).ok()) {
            Some(owner) if start_of(owner.pid) == Some(owner.started) => running.push(id),
            Some(owner) => dead.push((id, owner.namespaces)),
            None => {}
        }
    }
    running.sort();
    (running, dead)
}

/// Selects a laboratory: the requested one, that of the environment, or the only one.
pub(crate) fn choose(asked: Option<&str>) -> Result<String, LabError> {
    let (running, _) = survey();
    let from_environment = std::env::var(crate::ENV_LAB).ok();
    if let Some(id) = asked.map(str::to_owned).or(from_environment) {
        if running.contains(&id) {
            return Ok(id);
        }
        return Err(LabError::NoLab(format!("no laboratory '{id}' is running")));
    }
    match running.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(LabError::NoLab(
            "no laboratory is running; start one with: sumlink-lab shell --link NAME:rate=60mbit"
                .into(),
        )),
        several => Err(LabError::NoLab(format!(
            "several laboratories are running; choose one with --lab ({})",
            several.join(", ")
        ))),
    }
}

/// The control socket of a running laboratory.
pub(crate) fn control_of(id: &str) -> PathBuf {
    base().join(id).join("control")
}

/// The paths mounted as /run and /etc/resolv.conf on a side of a running laboratory; they exist
/// only with a LAN.
pub(crate) fn files_of(id: &str, side: &str) -> [PathBuf; 2] {
    let directory = base().join(id);
    [run_name(side), resolv_conf_name(side)].map(|name| directory.join(name))
}

fn run_name(side: &str) -> String {
    format!("run-{side}")
}

fn resolv_conf_name(side: &str) -> String {
    format!("resolv-{side}.conf")
}

/// Removes leftovers of laboratories with a dead owner: processes, namespaces, directories.
/// Returns one line for each removal.
pub fn clean() -> Result<Vec<String>, LabError> {
    let mut removed = Vec::new();
    let (running, dead) = survey();
    for (id, namespaces) in dead {
        // Only names in our own format, whatever the file contains.
        for name in namespaces.iter().filter(|name| owner_of(name).is_some()) {
            remove_namespace(name, &mut removed)?;
        }
        let directory = base().join(&id);
        match fs::remove_dir_all(&directory) {
            Ok(()) => removed.push(format!("laboratory {id}, whose owner is dead")),
            // Another process is cleaning up at the same time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(LabError::file(&directory)(error)),
        }
    }
    // Namespaces without a directory: the run directory was emptied in the meantime.
    let entries = fs::read_dir(netns::NETNS_DIR)
        .into_iter()
        .flatten()
        .flatten();
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        let Some(id) = owner_of(&name) else {
            continue;
        };
        let just_started = base().join(format!(".{id}")).exists() || base().join(id).exists();
        if !just_started && !running.iter().any(|running| running == id) {
            remove_namespace(&name, &mut removed)?;
        }
    }
    Ok(removed)
}

/// The id of the laboratory that owns the namespace of this name; `None` for other namespaces.
fn owner_of(name: &str) -> Option<&str> {
    let (id, side) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let ours = id.len() == 8
        && id
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (ours && PLACES.contains(&side)).then_some(id)
}

fn remove_namespace(name: &str, removed: &mut Vec<String>) -> Result<(), LabError> {
    // Held until the end: once it is closed, another laboratory's namespace may get its inode
    // number.
    let path = netns::path(name);
    let held = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(LabError::file(&path))?,
    };
    let inode = held.metadata().map_err(LabError::file(&path))?.ino();
    let ended = end_processes(|| netns::processes_in(inode));
    if ended > 0 {
        removed.push(format!("{ended} processes in the namespace {name}"));
    }
    match netns::delete(name) {
        Ok(()) => removed.push(format!("namespace {name}")),
        // Another process is cleaning up at the same time.
        Err(_) if netns::inode(name).is_none() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Ends every process in `list`, with SIGTERM and then SIGKILL. Returns their number.
pub(crate) fn end_processes(list: impl Fn() -> Vec<i32>) -> usize {
    let first = list();
    let signal_all = |pids: &[i32], signal| {
        for pid in pids {
            match kill(Pid::from_raw(*pid), signal) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => tracing::warn!("cannot end process {pid}: {error}"),
            }
        }
    };
    signal_all(&first, Signal::SIGTERM);
    let start = Instant::now();
    loop {
        let left = list();
        // Zombies no longer have a namespace, so they are not listed.
        if left.is_empty() || start.elapsed() > 2 * GRACE {
            return first.len();
        }
        if start.elapsed() > GRACE {
            signal_all(&left, Signal::SIGKILL);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Base of the run directories: of root, or of one user.
fn base() -> PathBuf {
    // For root of a user namespace, /run is not writable, or is private and invisible to other
    // processes.
    let real_root = fs::read_to_string("/proc/self/uid_map")
        .map(|map| map.split_whitespace().collect::<Vec<_>>() == ["0", "0", "4294967295"])
        .unwrap_or(true);
    if getuid().is_root() && real_root {
        return PathBuf::from("/run/sumlink-lab");
    }
    let outer = fs::read_to_string("/proc/self/uid_map")
        .ok()
        .and_then(|map| map.split_whitespace().nth(1).map(str::to_owned))
        .filter(|outer| !real_root && !outer.is_empty())
        .unwrap_or_else(|| getuid().to_string());
    std::env::temp_dir().join(format!("sumlink-lab-{outer}"))
}

/// Start time of a process (proc(5), field 22 of stat); `None` if it does not exist or is a zombie.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The second field is the program's name in parentheses, and may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn random_id() -> Result<String, LabError> {
    let path = "/dev/urandom";
    let mut bytes = [0; 4];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(LabError::file(path))?;
    Ok(format!("{:08x}", u32::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_laboratories_are_ours() {
        assert_eq!(
            owner_of(&namespace_name("0123abcd", "client")),
            Some("0123abcd")
        );
        assert_eq!(owner_of("sumlink-0123abcd-lan"), Some("0123abcd"));
        assert_eq!(owner_of("sumlink-0123abcd-server"), Some("0123abcd"));
        for other in [
            "sumlink-test-1-0",
            "sumlink-production",
            "sumlink-0123abcd",
            "sumlink-0123abcd-gateway",
            "sumlink-0123ABCD-client",
            "other-0123abcd-client",
        ] {
            assert_eq!(owner_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_is_identified_by_its_start_time() {
        let own = start_of(std::process::id());
        assert!(own.is_some());
        assert_eq!(start_of(std::process::id()), own);
        assert_eq!(start_of(0), None);
    }

    #[test]
    fn ids_differ() {
        assert_ne!(random_id().unwrap(), random_id().unwrap());
    }
}
