//! Network namespaces: the client's and the server's.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{getegid, geteuid};

use crate::error::LabError;

/// Directory of iproute2's named namespaces.
pub(crate) const NETNS_DIR: &str = "/run/netns";

type Job = Box<dyn FnOnce() + Send>;

/// A named network namespace with a thread inside it.
///
/// Closures passed to [`Namespace::run`] run on that thread. They see the namespace's interfaces,
/// and their child processes belong to it. Dropping it deletes the namespace's name; the namespace
/// itself disappears with its last process.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
    inode: u64,
    /// `None` only during drop.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Configures a namespace from another thread. The namespace must outlive it.
#[derive(Debug)]
pub(crate) struct NamespaceHandle {
    name: String,
    jobs: Mutex<mpsc::Sender<Job>>,
}

impl NamespaceHandle {
    /// As [`Namespace::ip_batch`].
    pub(crate) fn ip_batch(&self, batch: String) -> Result<(), LabError> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let name = self.name.clone();
        run_on(&jobs, &self.name, move || ip_batch(&name, &batch))?
    }
}

impl Namespace {
    /// Creates the namespace with a separate `/sys`.
    pub(crate) fn create(name: &str) -> Result<Self, LabError> {
        run_ip(&["netns", "add", name]).map_err(explain_denied)?;
        let (jobs, queue) = mpsc::channel::<Job>();
        let (ready, is_ready) = mpsc::channel();
        let path = path(name);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let entered = enter(&path);
                let failed = entered.is_err();
                let _ = ready.send(entered);
                if failed {
                    return;
                }
                for job in queue {
                    job();
                }
            })
            .map_err(|error| LabError::system("starting a thread", error))?;
        // From here on a failure drops the namespace, which deletes its name.
        let mut namespace = Self {
            name: name.to_owned(),
            inode: 0,
            jobs: Some(jobs),
            thread: Some(thread),
        };
        is_ready.recv().map_err(|_| gone(name))??;
        namespace.inode = inode(name).ok_or_else(|| gone(name))?;
        Ok(namespace)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs the closure in the namespace and returns its result.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, LabError> {
        let jobs = self.jobs.as_ref().ok_or_else(|| gone(&self.name))?;
        run_on(jobs, &self.name, job)
    }

    /// A handle for another thread; must be dropped before the namespace.
    pub(crate) fn handle(&self) -> Result<NamespaceHandle, LabError> {
        let jobs = self.jobs.clone().ok_or_else(|| gone(&self.name))?;
        Ok(NamespaceHandle {
            name: self.name.clone(),
            jobs: Mutex::new(jobs),
        })
    }

    /// Starts a program in the namespace. It is killed when this process dies for any reason.
    /// Signals that this process watches are not blocked in the program.
    pub(crate) fn spawn(&self, mut command: Command) -> Result<Child, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let none = SigSet::empty();
        // SAFETY: between fork and exec the closure makes two system calls (sigprocmask, prctl) and
        // touches no memory that another thread could hold a lock on.
        unsafe {
            command.pre_exec(move || {
                none.thread_set_mask()?;
                prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)
            });
        }
        self.run(move || command.spawn())?
            .map_err(|error| start_failed(&program, error))
    }

    /// Runs a batch of `ip` commands in the namespace.
    pub(crate) fn ip_batch(&self, batch: String) -> Result<(), LabError> {
        let name = self.name.clone();
        self.run(move || ip_batch(&name, &batch))?
    }

    /// Creates a pair of veth interfaces with that name, one in each namespace.
    pub(crate) fn join(&self, there: &Self, interface: &str) -> Result<(), LabError> {
        let ends = [
            "link", "add", "name", interface, "type", "veth", "peer", "name", interface, "netns",
        ];
        let mut arguments = vec!["-n", &self.name];
        arguments.extend(ends);
        arguments.push(&there.name);
        run_ip(&arguments)
    }

    /// Ids of the processes in the namespace.
    pub(crate) fn processes(&self) -> Vec<i32> {
        processes_in(self.inode)
    }
}

/// Runs a closure on the thread that receives these jobs.
fn run_on<T: Send + 'static>(
    jobs: &mpsc::Sender<Job>,
    name: &str,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, LabError> {
    let (result, answer) = mpsc::channel();
    let job: Job = Box::new(move || {
        let _ = result.send(job());
    });
    jobs.send(job).map_err(|_| gone(name))?;
    answer.recv().map_err(|_| gone(name))
}

/// Runs a batch of `ip` commands in the namespace of the calling thread.
fn ip_batch(name: &str, batch: &str) -> Result<(), LabError> {
    let mut ip = Command::new("ip");
    ip.args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = ip.spawn().map_err(|error| start_failed("ip", error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If ip exits early, its exit code below shows it.
        let _ = stdin.write_all(batch.as_bytes());
    }
    let output = child
        .wait_with_output()
        .map_err(|e| LabError::system("running ip", e))?;
    check_output(
        &format!("configuring the namespace {name} with ip"),
        &output,
    )
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Err(error) = delete(&self.name) {
            tracing::warn!("{error}");
        }
    }
}

/// Deletes a namespace's name.
pub(crate) fn delete(name: &str) -> Result<(), LabError> {
    run_ip(&["netns", "del", name])
}

/// Path of the namespace of that name.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(NETNS_DIR).join(name)
}

/// The inode number of a named namespace, which identifies it as long as the name exists.
pub(crate) fn inode(name: &str) -> Option<u64> {
    fs::metadata(path(name)).ok().map(|metadata| metadata.ino())
}

/// Moves the calling thread into a namespace, with a `/sys` that shows the interfaces there.
pub(crate) fn enter(path: &Path) -> Result<(), LabError> {
    let file = fs::File::open(path).map_err(LabError::file(path))?;
    setns(&file, CloneFlags::CLONE_NEWNET)
        .map_err(|error| LabError::system(format!("entering {}", path.display()), error))?;
    unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|error| LabError::system("creating a mount namespace", error))?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none)
        .map_err(|error| LabError::system("detaching the mount namespace", error))?;
    // Some containers forbid this mount; only programs that list interfaces through /sys are
    // affected.
    if let Err(error) = mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none) {
        tracing::debug!("mounting /sys: {error}");
    }
    Ok(())
}

/// Processes in the network namespace with that inode number, except this one.
pub(crate) fn processes_in(inode: u64) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id() as i32;
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != own)
        .filter(|pid| fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|m| m.ino() == inode))
        .collect()
}

/// Enables this process to create namespaces: if it is not root, it moves into a new user
/// namespace, in which it is root. Must be called while the process has a single thread.
pub fn become_able() -> Result<(), LabError> {
    if geteuid().is_root() {
        return Ok(());
    }
    let (uid, gid) = (geteuid(), getegid());
    // Includes a network namespace: ip returns to the one it was called in, which is allowed only
    // if this user namespace owns it.
    let own = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
    unshare(own).map_err(|error| LabError::NoNamespaces {
        reason: error.to_string(),
    })?;
    let denied = |error: io::Error| LabError::NoNamespaces {
        reason: error.to_string(),
    };
    fs::write("/proc/self/setgroups", "deny").map_err(denied)?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1")).map_err(denied)?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1")).map_err(denied)?;
    // A writable directory for the names of namespaces, visible to this user namespace only.
    let place = if Path::new(NETNS_DIR).is_dir() {
        NETNS_DIR
    } else {
        "/run"
    };
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none)
        .and_then(|()| mount(Some("tmpfs"), place, Some("tmpfs"), MsFlags::empty(), none))
        .map_err(|error| LabError::NoNamespaces {
            reason: format!("mounting {place}: {error}"),
        })
}

fn run_ip(arguments: &[&str]) -> Result<(), LabError> {
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| start_failed("ip", error))?;
    check_output(&format!("ip {}", arguments.join(" ")), &output)
}

pub(crate) fn check_output(action: &str, output: &Output) -> Result<(), LabError> {
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(LabError::system(action, text.trim().replace('\n', "; ")))
}

/// Replaces the error of `ip netns add`, which names the denied system call, by a remedy.
fn explain_denied(error: LabError) -> LabError {
    match error {
        LabError::System { reason, .. }
            if reason.contains("Operation not permitted")
                || reason.contains("Permission denied") =>
        {
            LabError::NoNamespaces { reason }
        }
        other => other,
    }
}

pub(crate) fn start_failed(program: &str, error: io::Error) -> LabError {
    if error.kind() != io::ErrorKind::NotFound {
        return LabError::system(format!("starting {program}"), error);
    }
    match crate::programs::package_of(program) {
        Some(package) => LabError::MissingProgram {
            program: program.to_owned(),
            package,
        },
        None => LabError::Usage(format!("program '{program}' not found")),
    }
}

fn gone(name: &str) -> LabError {
    LabError::system(
        format!("working in the namespace {name}"),
        "its thread has ended",
    )
}
