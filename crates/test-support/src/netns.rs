//! Network namespaces for tests of single crates.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A network namespace that is deleted on drop, whatever the test does.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// A new namespace with only loopback up, which forwards nothing.
    ///
    /// `None` only if `SUMLINK_SKIP_NETNS=1` says that this machine cannot create one; otherwise a
    /// failure panics.
    pub fn new() -> Option<Self> {
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
            run(&["ip", "netns", "add", &name], "");
        }
        let ns = Self { name };
        // Inherited from a host that routes for containers.
        ns.enter(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "0"))
            .expect("forwarding is off in the new namespace");
        ns.ip("link set lo up");
        Some(ns)
    }

    /// The name, for `ip link set DEV netns NAME`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` in this namespace with the words of `arguments`; panics with its output on
    /// failure.
    pub fn ip(&self, arguments: &str) {
        self.commands()(arguments);
    }

    /// [`Netns::ip`] as a function that a test can move into [`Netns::run`].
    pub fn commands(&self) -> impl Fn(&str) + Send + 'static + use<> {
        let name = self.name.clone();
        move |arguments| {
            let mut words = vec!["ip", "-n", &name];
            words.extend(arguments.split_whitespace());
            run(&words, "");
        }
    }

    /// Loads rules of nft(8) in this namespace.
    pub fn nft(&self, rules: &str) {
        self.enter(|| nft(rules));
    }

    /// Runs `job` in this namespace, on a separate thread.
    pub fn enter<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
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
    pub fn run<T: Send>(&self, test: impl AsyncFnOnce() -> T + Send) -> T {
        self.enter(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(test())
        })
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

/// Output of a command in the namespace of the calling thread, whatever its end.
pub fn command(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Loads rules of nft(8) in the namespace of the calling thread.
pub fn nft(rules: &str) {
    run(&["nft", "-f", "-"], rules);
}

/// Runs a command, which must succeed, in the namespace of the calling thread.
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
    // A command that fails may not read its input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}: {} (these tests need root, iproute2 and nftables; SUMLINK_SKIP_NETNS=1 leaves them out)",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}
