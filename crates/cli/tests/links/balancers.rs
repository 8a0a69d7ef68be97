//! Servers behind a load balancer: the configurations of packaging/ with HAProxy and nginx.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sumlink_lab::Side;
use sumlink_test_support::emulated::traffic::Transfer;
use sumlink_test_support::emulated::{Bench, Daemon, text, until};

use crate::datagrams::udp;

/// The address of the balancer, and those of the servers behind it.
const BALANCER: &str = "10.99.0.1";
const SERVERS: [(&str, &str); 2] = [("a", "10.99.0.2"), ("b", "10.99.0.3")];

/// The source of the tests' downloads, and the one of answers to datagrams.
const SOURCE: &str = "10.99.0.1:8080";
const ECHO: &str = "10.99.0.1:4433";

/// A client's time to be back at another server.
const BACK: Duration = Duration::from_secs(8);

/// A load balancer.
#[derive(Clone, Copy, Debug)]
enum Balancer {
    Haproxy,
    Nginx,
}

/// A program that is killed when dropped.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two servers behind a balancer, and a client with two links.
struct Scene {
    client: Daemon,
    servers: Vec<Daemon>,
    _balancer: Helper,
    bench: Bench,
}

impl Scene {
    /// The files of `packaging/` with the addresses of this laboratory.
    fn new(balancer: Balancer, client: &str) -> Option<Self> {
        let links = ["a:rate=16mbit,delay=5ms", "b:rate=16mbit,delay=8ms"];
        let bench = crate::bench(&links.map(str::to_owned))?;
        for (_, address) in SERVERS {
            let address = format!("{address}/32");
            bench.run(Side::Server, &["ip", "addr", "add", &address, "dev", "lo"]);
        }
        let servers = SERVERS.map(|(name, address)| start(&bench, name, address));
        let running = balancer.start(&bench);
        bench.write("hosts", format!("{BALANCER} bond.example.org\n"));
        // Without a port.
        bench.write(
            "client.toml",
            format!(
                "server = \"bond.example.org\"\nserver_key = \"{}\"\nkey = \"client.key\"\n\
                 control = \"client.sock\"\n{client}\n",
                bench.server_key
            ),
        );
        let client = connect(&bench, "client");
        Some(Self {
            client,
            servers: servers.into(),
            _balancer: running,
            bench,
        })
    }

    /// The first session at this control socket.
    fn session(&self, socket: &str) -> Value {
        let args = ["status", "--json", "--control", socket];
        let output = self.bench.program(&args).output().unwrap();
        let report: Value = serde_json::from_str(&text(output)).unwrap();
        report["sessions"][0].clone()
    }

    /// The place of the server that has the session, once all links have a path there.
    #[track_caller]
    fn server(&self) -> usize {
        let place = until("both links have a path", || {
            let session = self.session("client.sock");
            let paths = session["paths"].as_array()?;
            let active = paths.iter().filter(|path| path["state"] == "active");
            let name = session["server_name"].as_str()?;
            let is_named = |(own, _): &(&str, &str)| name == format!("{own}.bond.example.org");
            let place = SERVERS.iter().position(is_named);
            place.filter(|_| active.count() == 2)
        });
        // The server sees the addresses of the client's links.
        let (name, _) = SERVERS[place];
        let session = until("the server has both paths", || {
            let session = self.session(&format!("{name}.sock"));
            let paths = session["paths"].as_array()?;
            (paths.len() == 2).then_some(session)
        });
        let paths = session["paths"].as_array().unwrap().iter();
        let remotes = paths.map(|path| path["remote"].as_str().unwrap().to_owned());
        let mut remotes: Vec<String> = remotes
            .map(|remote| remote.rsplit_once(':').unwrap().0.to_owned())
            .collect();
        remotes.sort();
        assert_eq!(remotes, ["10.77.1.2", "10.77.2.2"]);
        place
    }

    /// The connections that a server has refused, by reason.
    fn refused(&self, place: usize) -> BTreeMap<String, u64> {
        let (name, _) = SERVERS[place];
        let args = ["status", "--json", "--control", &format!("{name}.sock")];
        let report = text(self.bench.program(&args).output().unwrap());
        let report: Value = serde_json::from_str(&report).unwrap();
        serde_json::from_value(report["refused"].clone()).unwrap()
    }

    /// A download of some bytes.
    #[track_caller]
    fn downloads(&self) {
        let transfer = Transfer::download(&self.bench, SOURCE.parse().unwrap());
        transfer.goes_on(500_000);
        transfer.finish();
    }

    /// Waits for a session with the other server than this one.
    #[track_caller]
    fn until_away_from(&self, place: usize, since: Instant) {
        let (name, _) = SERVERS[1 - place];
        until("the client is at the other server", || {
            let session = self.session("client.sock");
            let is_there = session["server_name"] == format!("{name}.bond.example.org");
            let paths = session["paths"].as_array()?;
            let is_active = paths.iter().any(|path| path["state"] == "active");
            (is_there && is_active).then_some(())
        });
        let took = since.elapsed();
        assert!(took < BACK, "{took:?}\n{}", self.client.log());
        println!("back at another server after {took:?}");
    }

    fn stop(mut self) {
        self.client.signal("TERM");
        assert_eq!(self.client.wait(), Some(0));
        for log in [&self.client, &self.servers[0], &self.servers[1]].map(Daemon::log) {
            assert!(!log.contains("panicked"), "{log}");
        }
    }
}

fn connect(bench: &Bench, name: &str) -> Daemon {
    let client = bench.sumlink(name, &["client", "--config", "client.toml"]);
    client.event("connected");
    client
}

/// Starts a server; its files have its name.
fn start(bench: &Bench, name: &str, address: &str) -> Daemon {
    let file = format!("{name}.toml");
    bench.write(
        &file,
        format!(
            "listen = \"{address}:7443\"\nserver_name = \"{name}.bond.example.org\"\n\
             proxy_protocol_from = [\"{}\", \"{}\"]\n\
             key = \"server.key\"\ncontrol = \"{name}.sock\"\n\
             [[client]]\nkey = \"{}\"\n[egress]\nrules = [\"allow 10.99.0.1\"]\n",
            // A balancer on the servers' machine has their addresses.
            SERVERS[0].1,
            SERVERS[1].1,
            bench.client_key
        ),
    );
    let server = bench.sumlink(name, &["server", "--config", &file]);
    server.event("listening");
    server
}

impl Balancer {
    /// Starts it on the servers' machine.
    fn start(self, bench: &Bench) -> Helper {
        let (program, file) = match self {
            Self::Haproxy => ("haproxy", "haproxy/haproxy.cfg"),
            Self::Nginx => ("nginx", "nginx/nginx.conf"),
        };
        let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/");
        let mut config = fs::read_to_string(format!("{packaging}{file}")).unwrap();
        for (documented, here) in [
            ("192.0.2.11:", format!("{}:", SERVERS[0].1)),
            ("192.0.2.12:", format!("{}:", SERVERS[1].1)),
            // The process must run as the test's user, and beside others.
            (
                "events { }",
                "error_log stderr; pid balancer.pid; events { }".to_owned(),
            ),
        ] {
            config = config.replace(documented, &here);
        }
        if matches!(self, Self::Nginx) {
            config = format!("user root root;\ndaemon off;\nmaster_process off;\n{config}");
            config = config.replace("modules/ngx", "/usr/lib/nginx/modules/ngx");
        }
        let config = bench.write("balancer.conf", config);
        let mut command = Command::new(program);
        match self {
            Self::Haproxy => command.args(["-db", "-f"]).arg(config),
            Self::Nginx => command
                .arg("-p")
                .arg(bench.dir())
                .args(["-e", "stderr", "-c"])
                .arg(config),
        };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(bench.path("balancer.log")).unwrap());
        let child = Helper(bench.lab.spawn(Side::Server, command).unwrap());
        bench.until_listening(Side::Server, 443);
        child
    }
}

/// The balancer alternates between the servers, so that paths would be spread without the names.
fn all_paths_reach_one_server(balancer: Balancer) {
    let Some(mut scene) = Scene::new(balancer, "") else {
        return;
    };
    for round in 0..3 {
        let place = scene.server();
        let (other, _) = SERVERS[1 - place];
        assert!(scene.session(&format!("{other}.sock")).is_null());
        scene.downloads();
        scene.client.signal("TERM");
        assert_eq!(scene.client.wait(), Some(0));
        until("the session has ended", || {
            let (name, _) = SERVERS[place];
            scene
                .session(&format!("{name}.sock"))
                .is_null()
                .then_some(())
        });
        scene.client = connect(&scene.bench, &format!("client-{round}"));
    }
    // A link that was away returns to the same server.
    let place = scene.server();
    scene.bench.set("a", "state=down");
    until("one path is left", || {
        let session = scene.session("client.sock");
        let paths = session["paths"].as_array()?;
        let active = paths.iter().filter(|path| path["state"] == "active");
        (active.count() == 1).then_some(())
    });
    scene.bench.set("a", "state=up");
    assert_eq!(scene.server(), place);
    scene.downloads();
    scene.stop();
}

/// The servers that die are those with the session.
fn a_client_leaves_a_dead_server(balancer: Balancer) {
    let Some(mut scene) = Scene::new(balancer, "") else {
        return;
    };
    let first = scene.server();
    scene.downloads();
    scene.servers[first].signal("KILL");
    let since = Instant::now();
    scene.servers[first].wait();
    scene.until_away_from(first, since);
    assert_eq!(scene.server(), 1 - first);
    scene.downloads();
    // It comes back, and the other one no longer answers, as without power.
    let (name, address) = SERVERS[first];
    scene.servers[first] = start(&scene.bench, name, address);
    until("the balancer leads to the first server again", || {
        let hello = [
            "openssl",
            "s_client",
            "-connect",
            "10.99.0.1:443",
            "-servername",
        ];
        let name = format!("{name}.bond.example.org");
        let words: Vec<&str> = hello.into_iter().chain([name.as_str()]).collect();
        // The server refuses it, because it has no key.
        scene
            .bench
            .spawn(Side::Server, &words)
            .wait_with_output()
            .unwrap();
        (scene.refused(first).values().any(|count| *count > 0)).then_some(())
    });
    let transfer = Transfer::download(&scene.bench, SOURCE.parse().unwrap());
    transfer.goes_on(500_000);
    let (_, silent) = SERVERS[1 - first];
    let rules = format!(
        "table ip silent {{\nchain input {{\ntype filter hook input priority 0\n\
         ip daddr {silent} tcp dport 7443 drop\nip saddr {silent} tcp sport 7443 drop\n}}\n}}\n"
    );
    let rules = scene.bench.write("silent.nft", rules);
    let since = Instant::now();
    scene
        .bench
        .run(Side::Server, &["nft", "-f", rules.to_str().unwrap()]);
    scene.until_away_from(1 - first, since);
    drop(transfer);
    assert_eq!(scene.server(), first);
    scene.stop();
}

#[test]
fn haproxy_leads_all_paths_to_one_server() {
    all_paths_reach_one_server(Balancer::Haproxy);
}

#[test]
fn nginx_leads_all_paths_to_one_server() {
    all_paths_reach_one_server(Balancer::Nginx);
}

#[test]
fn a_client_behind_haproxy_leaves_a_dead_server() {
    a_client_leaves_a_dead_server(Balancer::Haproxy);
}

#[test]
fn a_client_behind_nginx_leaves_a_dead_server() {
    a_client_leaves_a_dead_server(Balancer::Nginx);
}

/// No UDP passes, so datagrams take the TCP connections. The checks of the balancer are no refused
/// clients.
#[test]
fn datagrams_pass_a_balancer_without_udp() {
    let forward = format!("forward = [\"udp:127.0.0.1:4433={ECHO}\"]");
    let Some(scene) = Scene::new(Balancer::Haproxy, &forward) else {
        return;
    };
    let place = scene.server();
    let server = udp(&scene.bench, Side::Server, ECHO);
    let client = udp(&scene.bench, Side::Client, "127.0.0.1:0");
    for socket in [&server, &client] {
        socket
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
    }
    until("a datagram returns", || {
        let mut buffer = [0; 64];
        client.send_to(b"question", "127.0.0.1:4433").ok()?;
        let (length, from) = server.recv_from(&mut buffer).ok()?;
        server.send_to(&buffer[..length], from).ok()?;
        let length = client.recv(&mut buffer).ok()?;
        (&buffer[..length] == b"question").then_some(())
    });
    let reason = "no datagram carrier on this link; its datagrams use TCP";
    until("both links have tried UDP", || {
        (scene.client.lines_with(reason) >= 2).then_some(())
    });
    let mut refused = scene.refused(place);
    refused.retain(|_, count| *count > 0);
    assert!(
        refused.keys().all(|reason| reason == "broken"),
        "{refused:?}"
    );
    scene.stop();
}
