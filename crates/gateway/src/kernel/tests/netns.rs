//! Network namespaces for the tests of the kernel's part.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A network namespace that is deleted on drop, whatever the test does.
pub(super) struct Netns {
    name: String,
}

impl Netns {
    /// A new namespace with only loopback up.
    ///
    /// `None` only if `SUMLINK_SKIP_NETNS=1` says that this machine cannot create one; otherwise a
    /// failure panics.
    pub(super) fn new() -> Option<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        // `ip netns add` mounts /run/netns if it is missing; two concurrent calls would collide.
        static ADD: Mutex<()> = Mutex::new(());
        if std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1") {
            eprintln!("skipped: SUMLINK_SKIP_NETNS=1");
            return None;
        }
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sumlink-gateway-{}-{number}", std::process::id());
        {
            let _one_at_a_time = ADD.lock().unwrap_or_else(PoisonError::into_inner);
            ip(&["netns", "add", &name]);
        }
        let ns = Self { name };
        ns.ip("link set lo up");
        Some(ns)
    }

    /// Runs `ip` in this namespace with the words of `arguments`; panics with its output on
    /// failure.
    pub(super) fn ip(&self, arguments: &str) {
        let words = ["-n", &self.name]
            .into_iter()
            .chain(arguments.split_whitespace());
        ip(&words.collect::<Vec<_>>());
    }

    /// The name, for `ip link set DEV netns NAME`.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `job` in this namespace, on a separate thread.
    pub(super) fn enter<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name);
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let namespace = std::fs::File::open(path).unwrap();
                nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                job()
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `test` in this namespace, on a separate thread and tokio runtime.
    pub(super) fn run<T: Send>(&self, test: impl AsyncFnOnce() -> T + Send) -> T {
        self.enter(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(test())
        })
    }
}

/// Output of a command in the namespace of the calling thread.
pub(super) fn command(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Loads rules of nft(8) in the namespace of the calling thread.
pub(super) fn nft(rules: &str) {
    use std::io::Write;
    let mut nft = Command::new("nft");
    let mut child = nft
        .args(["-f", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(rules.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
}

impl Drop for Netns {
    fn drop(&mut self) {
        // Errors are ignored: a second panic would only hide the first.
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .output();
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .expect("iproute2 is installed");
    assert!(
        output.status.success(),
        "ip {}: {} (these tests need root; SUMLINK_SKIP_NETNS=1 leaves them out)",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}
