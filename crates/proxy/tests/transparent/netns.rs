//! Network namespaces: a gateway, and a machine on the network behind it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A network namespace that is deleted on drop.
pub(crate) struct Netns {
    name: String,
}

impl Netns {
    /// A new namespace with only loopback up. `None` only if `SUMLINK_SKIP_NETNS=1` says that this
    /// machine cannot create one.
    pub(crate) fn new() -> Option<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        // `ip netns add` mounts /run/netns if it is missing; two concurrent calls would collide.
        static ADD: Mutex<()> = Mutex::new(());
        if std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1") {
            eprintln!("skipped: SUMLINK_SKIP_NETNS=1");
            return None;
        }
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sumlink-proxy-{}-{number}", std::process::id());
        {
            let _one_at_a_time = ADD.lock().unwrap_or_else(PoisonError::into_inner);
            run(&["ip", "netns", "add", &name], "");
        }
        let ns = Self { name };
        ns.ip("link set lo up");
        Some(ns)
    }

    /// The name, for `ip link set DEV netns NAME`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` in this namespace with the words of `arguments`.
    pub(crate) fn ip(&self, arguments: &str) {
        let mut words = vec!["ip", "-n", &self.name];
        words.extend(arguments.split_whitespace());
        run(&words, "");
    }

    /// Loads rules into the packet filter of this namespace.
    pub(crate) fn nft(&self, rules: &str) {
        run(
            &["ip", "netns", "exec", &self.name, "nft", "-f", "-"],
            rules,
        );
    }

    /// Runs `job` in this namespace, on its own thread.
    pub(crate) fn run<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name);
        let joined = std::thread::scope(|scope| {
            let job = scope.spawn(move || {
                let namespace = std::fs::File::open(path).unwrap();
                nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                job()
            });
            job.join()
        });
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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

fn run(words: &[&str], input: &str) {
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", words[0]));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}: {} (these tests need root and nftables; SUMLINK_SKIP_NETNS=1 leaves them out)",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}
