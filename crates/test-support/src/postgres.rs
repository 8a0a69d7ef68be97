//! A PostgreSQL server of a test's own, of the system's package.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::PATIENCE;

/// A user that every system has. PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;

/// A running PostgreSQL server with the user `sumlink`, its password `secret` and its database
/// `sumlink`. On its socket it admits everyone, on 127.0.0.1 by password. It ends when dropped, or
/// with the test's process.
#[derive(Debug)]
pub struct Postgres {
    dir: tempfile::TempDir,
    programs: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Postgres {
    /// Starts a server; `None` if this process is root of a user namespace without other users.
    pub fn start() -> Option<Self> {
        if is_root() && !may_be_nobody() {
            eprintln!("skipped: PostgreSQL needs another user than root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        if is_root() {
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut server = Self {
            dir,
            programs: programs(),
            port: free_port(),
            child: None,
        };
        let data = server.data();
        let made = server
            .program("initdb")
            .args([
                "--username=postgres",
                "--auth=trust",
                "--no-sync",
                "--locale=C",
            ])
            .args(["--encoding=UTF8", "--pgdata"])
            .arg(&data)
            .output();
        succeeded("initdb", made.unwrap());
        server.configure("");
        let rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        server.write("data/pg_hba.conf", rules, 0o600);
        server.run();
        server.sql("postgres", "CREATE ROLE sumlink LOGIN PASSWORD 'secret'");
        server.sql("postgres", "CREATE DATABASE sumlink OWNER sumlink");
        Some(server)
    }

    /// Writes the configuration, with these lines after the usual ones.
    pub fn configure(&self, settings: &str) {
        let (port, dir) = (self.port, self.dir.path().display());
        let config = format!(
            "port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{dir}'\n\
             fsync = off\nshared_buffers = 16MB\nmax_connections = 30\n{settings}\n"
        );
        self.write("data/postgresql.conf", &config, 0o600);
    }

    /// The URL of a database, by the server's socket.
    pub fn url(&self, database: &str) -> String {
        let socket = self.dir.path().display().to_string().replace('/', "%2F");
        format!("postgres://sumlink@{socket}:{}/{database}", self.port)
    }

    /// The URL of a database by TCP, with any credentials: `USER:PASSWORD`.
    pub fn tcp_url(&self, credentials: &str, database: &str) -> String {
        format!(
            "postgres://{credentials}@127.0.0.1:{}/{database}",
            self.port
        )
    }

    /// A path in the server's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file that the server can read.
    pub fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&path, permissions).unwrap();
        if is_root() {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// Runs statements as the database's administrator; returns the values, one row a line.
    #[track_caller]
    pub fn sql(&self, database: &str, statements: &str) -> String {
        let output = self
            .client("psql", database)
            .args(["-c", statements])
            .output();
        succeeded(statements, output.unwrap()).trim_end().to_owned()
    }

    /// Starts it again after [`Postgres::stop`].
    pub fn run(&mut self) {
        let data = self.data();
        let log = fs::File::create(self.path("log")).unwrap();
        let mut command = self.program("postgres");
        command
            .arg("-D")
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.child = Some(command.spawn().unwrap());
        let start = Instant::now();
        while !self.answers() {
            let log = fs::read_to_string(self.path("log")).unwrap();
            let ended = self
                .child
                .as_mut()
                .and_then(|child| child.try_wait().unwrap());
            assert!(
                ended.is_none() && start.elapsed() < PATIENCE,
                "PostgreSQL does not start: {log}"
            );
            thread::sleep(Duration::from_millis(30));
        }
    }

    /// Stops it as an administrator does: connections end.
    pub fn stop(&mut self) {
        self.end("INT");
    }

    fn end(&mut self, signal: &str) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let pid = child.id().to_string();
        // The process may have ended.
        let _ = Command::new("kill").args(["-s", signal, &pid]).status();
        let _ = child.wait();
    }

    fn answers(&self) -> bool {
        let output = self
            .client("psql", "postgres")
            .args(["-c", "SELECT 1"])
            .output();
        output.unwrap().status.success()
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// A client program as the administrator.
    fn client(&self, name: &str, database: &str) -> Command {
        let mut command = self.program(name);
        command
            .args([
                "-X",
                "-A",
                "-t",
                "-q",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                "postgres",
                "-h",
            ])
            .arg(self.dir.path())
            .args(["-p", &self.port.to_string(), "-d", database])
            .stdin(Stdio::null());
        command
    }

    /// A program of PostgreSQL, as another user than root, which ends with this process.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "QUIT"]);
        if is_root() {
            let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
            command.args([user, group]).arg("--clear-groups");
        }
        command
            .arg(self.programs.join(name))
            .current_dir(self.dir.path())
            .env_remove("PGPASSWORD")
            .env("LC_ALL", "C");
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.end("QUIT");
    }
}

/// A port that is free at this moment. The socket's name contains it, too.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The folder of the newest installed version; Debian has one for each.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let folders = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    let mut folders: Vec<PathBuf> = folders.filter(|bin| bin.join("initdb").exists()).collect();
    folders.sort();
    let others = ["/usr/local/bin", "/usr/bin"].map(PathBuf::from);
    let others = others.into_iter().find(|bin| bin.join("initdb").exists());
    let found = folders.pop().or(others);
    found.expect("these tests need PostgreSQL: apt-get install postgresql")
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether the user [`NOBODY`] exists here: a user namespace of an ordinary user has only root.
fn may_be_nobody() -> bool {
    let map = fs::read_to_string(Path::new("/proc/self/uid_map")).unwrap();
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
    map.lines().any(|line| {
        let mut words = line.split_whitespace();
        let (first, count) = (number(words.next()), number(words.nth(1)));
        let (Some(first), Some(count)) = (first, count) else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(NOBODY))
    })
}

#[track_caller]
fn succeeded(what: &str, output: Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {error}");
    String::from_utf8(output.stdout).unwrap()
}
