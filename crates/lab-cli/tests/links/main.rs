//! The laboratory's own client and server with the research schedulers, over emulated links.
//!
//! Needs root or unprivileged user namespaces; fails without both, unless `SUMLINK_SKIP_NETNS=1` is
//! set.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test")]

mod lan;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use serde_json::Value;
use sumlink_lab::Side;
use sumlink_schedulers::RESEARCH;
use sumlink_test_support::emulated::traffic::Transfer;
use sumlink_test_support::emulated::{Bench, Daemon, until};

/// A connected client and server. Dropping it ends the processes first.
struct Bond {
    client: Daemon,
    server: Daemon,
    bench: Bench,
}

impl Bond {
    /// Starts both with this scheduler over these links; `None` if such tests are disabled.
    fn start(scheduler: &str, links: &[&str]) -> Option<Self> {
        let links: Vec<String> = links.iter().map(|&link| link.to_owned()).collect();
        let bench = Bench::of(env!("CARGO_BIN_EXE_sumlink-lab"), &links)?;
        let [server_key, client_key] = ["server.key", "client.key"].map(|name| bench.key(name));
        bench.write(
            "server.toml",
            format!(
                "listen = \"[::]:7000\"\nkey = \"server.key\"\ncontrol = \"server.sock\"\n\
                 client = [{{ key = \"{client_key}\" }}]\negress.rules = [\"allow 10.99.0.1\"]\n\
                 session.scheduler = \"{scheduler}\"\n"
            ),
        );
        bench.write(
            "client.toml",
            format!(
                "server = \"10.99.0.1:7000\"\nserver_key = \"{server_key}\"\nkey = \"client.key\"\n\
                 control = \"client.sock\"\nsocks = \"127.0.0.1:1080\"\n\
                 session.scheduler = \"{scheduler}\"\n"
            ),
        );
        let server = bench.sumlink("server", &["server", "--config", "server.toml"]);
        server.event("listening");
        let client = bench.sumlink("client", &["client", "--config", "client.toml"]);
        client.event("connected");
        Some(Self {
            client,
            server,
            bench,
        })
    }

    /// The session as one side reports it at its control socket.
    fn status(&self, side: Side) -> Value {
        let socket = self.bench.path(&format!("{}.sock", side.name()));
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(b"{\"cmd\":\"status\"}\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        let mut status: Value = serde_json::from_str(&line).unwrap();
        status["sessions"][0].take()
    }

    /// The paths as the client reports them.
    fn paths(&self) -> Vec<Value> {
        match self.status(Side::Client)["paths"].take() {
            Value::Array(paths) => paths,
            other => panic!("{other}\n{}", self.client.log()),
        }
    }

    /// Waits until this number of paths is active.
    fn until_active(&self, number: usize) {
        until(&format!("{number} paths are active"), || {
            let paths = self.paths();
            let active = paths.iter().filter(|path| path["state"] == "active");
            (active.count() == number).then_some(())
        });
    }

    /// The length of the queue of a link's interface, in bytes.
    fn queue_of(&self, link: &str) -> u64 {
        let mut paths = self.paths().into_iter();
        let path = paths.find(|path| path["link"] == link);
        path.map_or(0, |path| path["local_queue_bytes"].as_u64().unwrap())
    }

    /// Ends both programs as a user does; neither may have panicked.
    fn stop(mut self) {
        for daemon in [&mut self.client, &mut self.server] {
            daemon.signal("TERM");
            assert_eq!(daemon.wait(), Some(0));
            assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
        }
    }
}

fn target() -> SocketAddr {
    "10.99.0.1:8080".parse().unwrap()
}

#[test]
fn every_research_scheduler_completes_a_download() {
    for name in RESEARCH {
        let links = ["a:rate=20mbit,delay=5ms", "b:rate=10mbit,delay=15ms"];
        let Some(bond) = Bond::start(name, &links) else {
            return;
        };
        bond.until_active(2);
        for side in [Side::Client, Side::Server] {
            assert_eq!(bond.status(side)["scheduler"], name);
        }
        let download = Transfer::download(&bond.bench, target());
        // The faster path alone would need 0.5 s for this, and some schedulers wait for it first.
        until(&format!("{name} uses both links"), || {
            let mut paths = bond.paths().into_iter();
            let carries = |path: Value| path["bytes_received"].as_u64() > Some(100_000);
            paths.all(carries).then_some(())
        });
        download.goes_on(500_000);
        download.finish();
        bond.stop();
    }
}

/// A queue in the client's interface, which only two schedulers read.
#[test]
fn schedulers_that_use_the_interface_queue_read_it() {
    for name in ["qaware", "qdepl", "minrtt"] {
        let links = ["a:rate=20mbit,delay=5ms", "b:rate=20mbit,delay=5ms"];
        let Some(bond) = Bond::start(name, &links) else {
            return;
        };
        bond.until_active(2);
        let shaper = "tc qdisc replace dev a root tbf rate 4mbit burst 10kb latency 4s";
        let words: Vec<&str> = shaper.split(' ').collect();
        bond.bench.run(Side::Client, &words);
        let upload = Transfer::upload(&bond.bench, target());
        if name == "minrtt" {
            upload.goes_on(2_000_000);
            assert_eq!(bond.queue_of("a"), 0, "no scheduler reads it");
        } else {
            until(&format!("{name} sees the queue of a"), || {
                assert_eq!(bond.queue_of("b"), 0, "b has none");
                (bond.queue_of("a") > 1000).then_some(())
            });
        }
        upload.finish();
        bond.stop();
    }
}

#[test]
fn musher_refuses_a_third_link() {
    let links = [
        "a:rate=20mbit,delay=5ms",
        "b:rate=20mbit,delay=5ms",
        "c:rate=20mbit,delay=5ms",
    ];
    let Some(bond) = Bond::start("musher", &links) else {
        return;
    };
    bond.until_active(2);
    until("one link is refused with the reason", || {
        let paths = bond.paths();
        let mut refused = paths.iter().filter(|path| path["state"] == "down");
        let reason = refused.next()?["reason"].as_str()?;
        reason
            .contains("scheduler musher takes 2 paths")
            .then_some(())
    });
    let download = Transfer::download(&bond.bench, target());
    download.goes_on(1_000_000);
    download.finish();
    bond.stop();
}
