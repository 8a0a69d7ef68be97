//! A laboratory and the programs in it.

mod daemon;
pub mod lan;
pub mod segments;
pub mod traffic;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sumlink_lab::{Lab, LabConfig, LinkChange, Side};

pub use daemon::Daemon;

/// Time for which a test waits for anything; far more than needed.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Longest lifetime of a program: the longest test takes two minutes plus waits.
const LIFETIME: Duration = Duration::from_secs(300);

/// Interval at which a condition is checked.
const TICK: Duration = Duration::from_millis(30);

/// A laboratory with a temporary directory, and the program under test.
#[derive(Debug)]
pub struct Bench {
    /// The laboratory.
    pub lab: Lab,
    program: PathBuf,
    dir: tempfile::TempDir,
    /// The server's public key; empty without a server.
    pub server_key: String,
    /// The client's public key; empty without a client.
    pub client_key: String,
}

impl Bench {
    /// Makes a laboratory with these links, for this program; `None` if such tests are disabled.
    /// Without root the calling test is run in a user namespace, and `None` is returned afterwards.
    pub fn of(program: impl Into<PathBuf>, links: &[String]) -> Option<Self> {
        let links = links.iter().map(|link| link.parse().unwrap()).collect();
        Self::with(program, LabConfig::new(links))
    }

    /// The same for any laboratory.
    pub fn with(program: impl Into<PathBuf>, config: LabConfig) -> Option<Self> {
        if std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1") {
            eprintln!("skipped because SUMLINK_SKIP_NETNS=1");
            return None;
        }
        if !is_root() {
            again_as_root();
            return None;
        }
        let lab = Lab::start(config).unwrap_or_else(|error| {
            panic!("{error}; set SUMLINK_SKIP_NETNS=1 to skip these tests")
        });
        Some(Self {
            lab,
            program: program.into(),
            dir: tempfile::tempdir().unwrap(),
            server_key: String::new(),
            client_key: String::new(),
        })
    }

    /// The test's directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path in the test's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file in the test's directory; returns its path.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, contents).unwrap();
        path
    }

    /// Makes a key file; returns its public key.
    pub fn key(&self, name: &str) -> String {
        let output = self.program(&["keygen", "--out", name]).output().unwrap();
        text(output)
            .split_whitespace()
            .next_back()
            .unwrap()
            .to_owned()
    }

    /// The program, outside of any namespace.
    pub fn program(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_remove("SUMLINK_LOG")
            .env_remove("SUMLINK_LOG_FORMAT")
            .stdin(Stdio::null());
        command
    }

    /// The program with the test's files of these names in /etc.
    fn program_with_files(&self, names: &[&str], args: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        let mounts = names
            .iter()
            .map(|name| format!("mount --bind {name} /etc/{name} && "));
        let script = mounts.collect::<String>() + "exec \"$0\" \"$@\"";
        command
            .args(["--mount", "--", "sh", "-c", &script])
            .arg(&self.program)
            .args(args)
            .current_dir(self.dir.path())
            .env_remove("SUMLINK_LOG")
            .env_remove("SUMLINK_LOG_FORMAT")
            .stdin(Stdio::null());
        command
    }

    /// Starts a client or a server; its log is `NAME.log`.
    pub fn sumlink(&self, name: &str, args: &[&str]) -> Daemon {
        let side = match args[0] {
            "client" | "up" => Side::Client,
            _ => Side::Server,
        };
        self.sumlink_on(side, name, args)
    }

    /// Starts a client or a server on either side.
    pub fn sumlink_on(&self, side: Side, name: &str, args: &[&str]) -> Daemon {
        let log = self.path(&format!("{name}.log"));
        let mut files = vec!["hosts", "resolv.conf"];
        files.retain(|name| self.path(name).exists());
        let mut command = match side == Side::Client && !files.is_empty() {
            true => self.program_with_files(&files, args),
            false => self.program(args),
        };
        command
            .arg("--json")
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap());
        Daemon::new(self.lab.spawn(side, command).unwrap(), log)
    }

    /// Runs the program on one side to its end.
    pub fn run_sumlink(&self, side: Side, args: &[&str]) -> Output {
        let mut command = self.program(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.lab.spawn(side, command).unwrap();
        child.wait_with_output().unwrap()
    }

    /// A command in the test's directory, killed when it hangs.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", &LIFETIME.as_secs().to_string()])
            .args(words)
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        command
    }

    /// Starts a program on one side.
    pub fn spawn(&self, side: Side, words: &[&str]) -> Child {
        self.lab.spawn(side, self.command(words)).unwrap()
    }

    /// Runs a command on one side, which must succeed; returns its output.
    #[track_caller]
    pub fn run(&self, side: Side, words: &[&str]) -> String {
        finish(words, self.spawn(side, words))
    }

    /// Changes a link.
    pub fn set(&self, link: &str, change: &str) {
        let change = LinkChange::parse_for(link, change).unwrap();
        self.lab.set(link, &[change]).unwrap();
    }

    /// Starts nginx on the server's side, on its addresses and on loopback: it serves the files of
    /// `www` and accepts uploads to `www/in`.
    pub fn serve_files(&self) -> Child {
        self.serve_files_on(Side::Server, &["10.99.0.1", "127.0.0.1", "[fd99::1]"])
    }

    /// The same on any side, on these addresses.
    pub fn serve_files_on(&self, side: Side, addresses: &[&str]) -> Child {
        let child = self.lab.spawn(side, self.nginx(addresses)).unwrap();
        self.until_listening(side, 80);
        child
    }

    /// The same nginx for other addresses, not yet started.
    pub fn nginx(&self, addresses: &[&str]) -> Command {
        let www = self.path("www");
        fs::create_dir_all(www.join("in")).unwrap();
        let listen: String = addresses
            .iter()
            .map(|address| format!("        listen {address}:80;\n"))
            .collect();
        let (www, temporary) = (www.display(), self.path("nginx-temp"));
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("    {kind}_temp_path \"{}\";\n", temporary.display()))
            .concat();
        // One process, so that ending it ends the server. No other user, since a user namespace may
        // have none.
        let config = format!(
            "user root root;\ndaemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {{ }}\n\
             http {{\n    access_log off;\n    client_max_body_size 0;\n{temporary}    server {{\n{listen}        \
             root \"{www}\";\n        \
             location /in/ {{ dav_methods PUT; }}\n    }}\n}}\n"
        );
        let config = self.write("nginx.conf", config);
        let dir = self.dir();
        let mut command = Command::new("nginx");
        command
            .arg("-p")
            .arg(dir)
            .arg("-c")
            .arg(&config)
            .args(["-e", "stderr"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.path("nginx.log")).unwrap());
        command
    }

    /// Waits until a process on one side listens on a TCP port.
    #[track_caller]
    pub fn until_listening(&self, side: Side, port: u16) {
        let filter = format!("sport = :{port}");
        until(&format!("port {port} listens"), || {
            let listening = self.run(side, &["ss", "-Htln", &filter]);
            (!listening.is_empty()).then_some(())
        });
    }
}

/// Whether this process is root, possibly only in its user namespace.
pub fn is_root() -> bool {
    // The owner of a process' own directory is its effective user.
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Whether this process can use other users than root, which a user namespace of an ordinary user
/// lacks.
pub fn has_users() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    let users = map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    users.sum::<u64>() > 1
}

/// Runs the calling test as root of a new user namespace.
fn again_as_root() {
    let test = thread::current().name().unwrap().to_owned();
    // iproute2 keeps the names of namespaces below /run.
    let script = "mount -t tmpfs tmpfs /run && exec \"$0\" \"$@\"";
    let status = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "--net",
            "--",
            "sh",
            "-c",
            script,
        ])
        .arg(std::env::current_exe().unwrap())
        .args([&test, "--exact", "--nocapture"])
        .status();
    let advice = "run as root, allow unprivileged user namespaces, or set SUMLINK_SKIP_NETNS=1 to \
                  skip these tests";
    assert!(
        status.is_ok_and(|status| status.success()),
        "{test} failed in a user namespace; {advice}"
    );
}

/// Looks again and again until there is something.
#[track_caller]
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, look)
}

/// The same for what takes a busy machine longer.
#[track_caller]
pub fn until_within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < patience, "timed out waiting until {what}");
        thread::sleep(TICK);
    }
}

/// Waits for a program that must succeed; what it printed.
#[track_caller]
pub fn finish(words: &[&str], child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{words:?}: {}: {error}",
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a program printed that has succeeded.
#[track_caller]
pub fn text(output: Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}
