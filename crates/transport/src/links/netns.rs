//! Network namespaces for the tests of this crate.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A network namespace that is deleted on drop, whatever the test does.
pub(crate) struct Netns {
    name: String,
}

impl Netns {
    /// A new namespace with only loopback up.
    ///
    /// `None` only if `SUMLINK_SKIP_NETNS=1` says that this machine cannot create one; otherwise a
    /// failure panics.
    pub(crate) fn new() -> Option<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        // `ip netns add` mounts /run/netns if it is missing; two concurrent calls would collide.
        static ADD: Mutex<()> = Mutex::new(());
        if std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1") {
            eprintln!("skipped: SUMLINK_SKIP_NETNS=1");
            return None;
        }
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sumlink-test-{}-{number}", std::process::id());
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
    pub(crate) fn ip(&self, arguments: &str) {
        self.commands()(arguments);
    }

    /// [`Netns::ip`] as a function that a test can move into [`Netns::run`].
    pub(crate) fn commands(&self) -> impl Fn(&str) + Send + 'static {
        let name = self.name.clone();
        move |arguments| {
            let arguments: Vec<&str> = ["-n", &name]
                .into_iter()
                .chain(arguments.split_whitespace())
                .collect();
            ip(&arguments);
        }
    }

    /// The name, for `ip link set DEV netns NAME`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `test` in this namespace, on a separate thread and tokio runtime.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        test: impl AsyncFnOnce() -> T + Send + 'static,
    ) -> T {
        let path = format!("/run/netns/{}", self.name);
        let thread = std::thread::spawn(move || {
            let namespace = std::fs::File::open(path).unwrap();
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(test())
        });
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
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
