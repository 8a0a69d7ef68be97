//! A sumlink client and a server with emulated links between them.

use std::fs;
use std::process::Child;
use std::thread;

use serde::Deserialize;
use sumlink_lab::Side;
use sumlink_transport::SessionStatus;
use sumlink_transport::status::PathStatus;

use sumlink_test_support::emulated::Daemon;
use sumlink_test_support::emulated::{Bench, text, until};

/// The client's SOCKS5 entry.
pub(crate) const SOCKS: &str = "127.0.0.1:1080";
/// The client's HTTP CONNECT entry.
pub(crate) const HTTP: &str = "127.0.0.1:3128";
/// The server's address for clients.
pub(crate) const SERVER: &str = "10.99.0.1:7000";

/// The configuration of client and server.
pub(crate) struct Plan {
    links: Vec<String>,
    server: String,
    /// Top-level lines of the client's file.
    client: String,
    /// Top-level lines of the server's file.
    server_lines: String,
    /// Lines at the end of the server's file.
    server_tables: String,
    /// Lines at the end of both files.
    tables: String,
    /// The client's /etc/hosts, instead of the machine's.
    hosts: Option<String>,
}

/// A connected client and server. Dropping it ends the processes first.
pub(crate) struct Bond {
    pub(crate) client: Daemon,
    pub(crate) server: Daemon,
    /// Other servers of the test.
    helpers: Vec<Child>,
    pub(crate) bench: Bench,
}

/// The part of `sumlink status --json` that the tests need.
#[derive(Deserialize)]
struct Report {
    sessions: Vec<SessionStatus>,
}

impl Plan {
    /// Links in the form of `sumlink-lab`; the client uses all that lead to the server.
    pub(crate) fn new(links: &[&str]) -> Self {
        Self {
            links: links.iter().map(|&link| link.to_owned()).collect(),
            server: SERVER.to_owned(),
            client: "links = \"auto\"\n".to_owned(),
            server_lines: String::new(),
            server_tables: String::new(),
            tables: String::new(),
            hosts: None,
        }
    }

    /// Sets the address at which the client finds the server.
    pub(crate) fn server(mut self, address: &str) -> Self {
        self.server = address.to_owned();
        self
    }

    /// Sets the names that the client's resolver knows, in the form of /etc/hosts.
    pub(crate) fn hosts(mut self, lines: &str) -> Self {
        self.hosts = Some(lines.to_owned());
        self
    }

    /// Adds top-level lines to the client's configuration file.
    pub(crate) fn client(mut self, lines: &str) -> Self {
        self.client = lines.to_owned();
        self
    }

    /// Adds top-level lines to the server's configuration file.
    pub(crate) fn server_lines(mut self, lines: &str) -> Self {
        self.server_lines = lines.to_owned();
        self
    }

    /// Adds tables to the server's configuration file.
    pub(crate) fn server_tables(mut self, lines: &str) -> Self {
        self.server_tables = lines.to_owned();
        self
    }

    /// Sets the scheduler of both sides.
    pub(crate) fn scheduler(mut self, name: &str) -> Self {
        self.tables = format!("[session]\nscheduler = \"{name}\"\n");
        self
    }

    /// Sets the scheduler and the selector of both sides.
    pub(crate) fn selector(mut self, scheduler: &str, selector: &str) -> Self {
        self.tables =
            format!("[session]\nscheduler = \"{scheduler}\"\nselector = \"{selector}\"\n");
        self
    }

    /// Sets the scheduler of a class of streams, on both sides.
    pub(crate) fn class_scheduler(mut self, class: &str, scheduler: &str) -> Self {
        self.tables = format!("[session.schedulers]\n{class} = \"{scheduler}\"\n");
        self
    }

    /// Adds tables to the files of both sides.
    pub(crate) fn tables(mut self, lines: &str) -> Self {
        self.tables = lines.to_owned();
        self
    }

    /// Limits the memory of a session and of a stream, on both sides; allows few streams, so that
    /// little is reserved for their ends.
    pub(crate) fn memory(self, session: &str, stream: &str) -> Self {
        self.memory_for(16, session, stream)
    }

    /// The same for this number of streams.
    pub(crate) fn memory_for(mut self, streams: usize, session: &str, stream: &str) -> Self {
        self.tables = format!(
            "[session]\nmemory = \"{session}\"\nstream_memory = \"{stream}\"\nmax_streams = {streams}\n"
        );
        self
    }

    /// The laboratory alone; `None` if these tests are disabled.
    pub(crate) fn bench(&self) -> Option<Bench> {
        crate::bench(&self.links)
    }

    /// Starts laboratory, server and client; returns when every link that is up has joined.
    pub(crate) fn start(self) -> Option<Bond> {
        let bench = self.bench()?;
        Some(self.start_on(bench))
    }

    /// Starts server and client in a laboratory; returns when the client is connected.
    pub(crate) fn start_on(self, bench: Bench) -> Bond {
        // The targets of the tests are on the server's machine.
        let egress = match self.server_tables.contains("[egress]") {
            true => "",
            false => "[egress]\nrules = [\"allow 10.99.0.1\", \"allow [fd99::1]\"]\n",
        };
        bench.write(
            "server.toml",
            format!(
                "listen = \"[::]:7000\"\nkey = \"server.key\"\ncontrol = \"server.sock\"\n{}\n\
                 [[client]]\nkey = \"{}\"\nname = \"good\"\n{}\n{egress}{}",
                self.server_lines, bench.client_key, self.server_tables, self.tables
            ),
        );
        bench.write(
            "client.toml",
            format!(
                "server = \"{}\"\nserver_key = \"{}\"\nkey = \"client.key\"\ncontrol = \"client.sock\"\n\
                 socks = \"{SOCKS}\"\nhttp = \"{HTTP}\"\n{}\n{}",
                self.server, bench.server_key, self.client, self.tables
            ),
        );
        let server = bench.sumlink("server", &["server", "--config", "server.toml"]);
        server.event("listening");
        if let Some(hosts) = &self.hosts {
            bench.write("hosts", hosts);
        }
        let client = bench.sumlink("client", &["client", "--config", "client.toml"]);
        client.event("connected");
        Bond {
            client,
            server,
            helpers: Vec::new(),
            bench,
        }
    }
}

impl Bond {
    /// The first session as the client or the server reports it.
    pub(crate) fn status(&self, side: Side) -> SessionStatus {
        let mut sessions = self.sessions(side);
        assert!(!sessions.is_empty(), "no session: {}", self.logs());
        sessions.remove(0)
    }

    /// All sessions.
    pub(crate) fn sessions(&self, side: Side) -> Vec<SessionStatus> {
        let socket = format!("{}.sock", side.name());
        let mut command = self
            .bench
            .program(&["status", "--json", "--control", &socket]);
        let report: Report = serde_json::from_str(&text(command.output().unwrap())).unwrap();
        report.sessions
    }

    /// Waits until the client's view of its session fulfills the condition.
    #[track_caller]
    pub(crate) fn until<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&SessionStatus) -> Option<T>,
    ) -> T {
        until(what, || look(&self.status(Side::Client)))
    }

    /// Waits until these links, and no others, are active.
    #[track_caller]
    pub(crate) fn until_active(&self, links: &[&str]) {
        self.until(&format!("{links:?} are active"), |session| {
            let mut active: Vec<_> = active(session).map(|path| path.link.clone()).collect();
            active.sort();
            active.dedup();
            (active == links).then_some(())
        });
    }

    /// Keeps a server of the test running until the end.
    pub(crate) fn keep(&mut self, child: Child) {
        self.helpers.push(child);
    }

    /// Serves the directory `www` on port 80 of the server's machine; accepts uploads below `in`.
    pub(crate) fn serve_files(&mut self) {
        let nginx = self.bench.serve_files();
        self.keep(nginx);
    }

    /// Ends both programs as a user does; neither may have panicked.
    pub(crate) fn stop(mut self) {
        for daemon in [&mut self.client, &mut self.server] {
            daemon.signal("TERM");
            assert_eq!(daemon.wait(), Some(0));
            assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
        }
    }

    pub(crate) fn logs(&self) -> String {
        let nginx = fs::read_to_string(self.bench.path("nginx.log")).unwrap_or_default();
        format!(
            "client:\n{}\nserver:\n{}\nnginx:\n{nginx}",
            self.client.log(),
            self.server.log()
        )
    }
}

impl Drop for Bond {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.logs());
            for side in [Side::Client, Side::Server] {
                for words in [&["ss", "-nita"][..], &["ip", "addr"], &["ip", "route"]] {
                    if let Ok(child) = self.bench.lab.spawn(side, self.bench.command(words))
                        && let Ok(output) = child.wait_with_output()
                    {
                        let out = String::from_utf8_lossy(&output.stdout);
                        eprintln!("{} {words:?}:\n{out}", side.name());
                    }
                }
                let socket = format!("{}.sock", side.name());
                let args = ["status", "--json", "--control", &socket];
                if let Ok(output) = self.bench.program(&args).output() {
                    eprintln!("{}", String::from_utf8_lossy(&output.stdout));
                }
            }
        }
        for child in &mut self.helpers {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The active paths.
pub(crate) fn active(session: &SessionStatus) -> impl Iterator<Item = &PathStatus> {
    session.paths.iter().filter(|path| path.state == "active")
}
