//! A LAN behind a gateway: a LAN host, a client with links, a server, and an internet host with a
//! name server.
//!
//! ```no_run
//! # use sumlink_lab::Side;
//! # use sumlink_test_support::emulated::lan::{Lan, leaks};
//! # fn test() -> Option<()> {
//! let mut lan = Lan::of("sumlink", &["wifi:rate=20mbit,delay=10ms"])?;
//! lan.serve("");
//! lan.up("capture = \"nftables\"\n");
//! let capture = lan.capture(Side::Client, "wifi");
//! let page = lan.host(&["curl", "--silent", "http://203.0.113.1/"]);
//! assert!(leaks(&capture.finish().unwrap()).is_empty());
//! # Some(())
//! # }
//! ```

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Output};

use sumlink_lab::{
    Capture, INTERNET_V4, INTERNET_V6, LAN_INTERFACE, LabConfig, LanConfig, Packet, SERVER_V4,
    SERVER_V6, Side,
};

use super::{Bench, Daemon};

/// The server's port.
const PORT: u16 = 7000;
/// The address of the server, as clients have it.
const SERVER: &str = "10.99.0.1:7000";

/// The laboratory of a test, and the programs in it. Dropping it ends the programs first.
#[derive(Debug)]
pub struct Lan {
    /// `sumlink up`, while it runs.
    pub gateway: Option<Daemon>,
    /// `sumlink server`, once it was started.
    pub server: Option<Daemon>,
    /// The laboratory.
    pub bench: Bench,
}

impl Lan {
    /// Makes a laboratory with these links of the gateway; `None` if such tests are disabled, as
    /// for [`Bench::of`].
    pub fn of(program: impl Into<PathBuf>, links: &[&str]) -> Option<Self> {
        Self::with(program, links, LanConfig::default())
    }

    /// The same with other settings of the gateway.
    pub fn with(program: impl Into<PathBuf>, links: &[&str], lan: LanConfig) -> Option<Self> {
        let links = links.iter().map(|link| link.parse().unwrap()).collect();
        let config = LabConfig {
            lan: Some(lan),
            ..LabConfig::new(links)
        };
        let mut bench = Bench::with(program, config)?;
        [bench.server_key, bench.client_key] =
            ["server.key", "client.key"].map(|name| bench.key(name));
        Some(Self {
            gateway: None,
            server: None,
            bench,
        })
    }

    /// Makes the client a plain router, without sumlink.
    pub fn forward(&self) {
        self.bench.lab.forward().unwrap();
    }

    /// Starts the server, with `more` lines at the end of its file, and waits until it listens.
    pub fn serve(&mut self, more: &str) -> &Daemon {
        self.serve_client("", more)
    }

    /// The same with further keys of the client's block, such as `publish = ["tcp:8443"]`.
    pub fn serve_client(&mut self, client: &str, more: &str) -> &Daemon {
        let key = &self.bench.client_key;
        let text = format!(
            "listen = \"[::]:{PORT}\"\nkey = \"server.key\"\ncontrol = \"server.sock\"\n{more}\n\
             [[client]]\nkey = \"{key}\"\n{client}\n"
        );
        self.bench.write("server.toml", text);
        let server = self
            .bench
            .sumlink("server", &["server", "--config", "server.toml"]);
        server.event("listening");
        self.server.insert(server)
    }

    /// Writes the gateway's file, `gateway.toml`: `more` are lines of `[gateway]` and of blocks
    /// after it.
    pub fn write_gateway(&self, more: &str) {
        let key = &self.bench.server_key;
        let links = self.bench.lab.links().iter();
        let links: String = links
            .map(|link| format!("[[link]]\nname = \"{}\"\n", link.name))
            .collect();
        let text = format!(
            "server = \"{SERVER}\"\nserver_key = \"{key}\"\nkey = \"client.key\"\n\
             control = \"client.sock\"\n{links}[gateway]\nlan = [\"{LAN_INTERFACE}\"]\n{more}"
        );
        self.bench.write("gateway.toml", text);
    }

    /// Starts `sumlink up` with [`Self::write_gateway`], and waits until it is connected.
    pub fn up(&mut self, more: &str) -> &Daemon {
        self.write_gateway(more);
        let gateway = self
            .bench
            .sumlink("gateway", &["up", "--config", "gateway.toml"]);
        gateway.event("connected");
        self.gateway.insert(gateway)
    }

    /// Ends `sumlink up` as a user does; its exit code.
    pub fn end_gateway(&mut self) -> Option<i32> {
        let mut gateway = self.gateway.take()?;
        gateway.signal("TERM");
        gateway.wait()
    }

    /// Runs a command on the LAN host, which must succeed; returns its output.
    #[track_caller]
    pub fn host(&self, words: &[&str]) -> String {
        self.bench.run(Side::Lan, words)
    }

    /// Runs a command on any side to its end, whatever that is.
    pub fn try_on(&self, side: Side, words: &[&str]) -> Output {
        self.bench.spawn(side, words).wait_with_output().unwrap()
    }

    /// Starts nginx on the first addresses of the internet host, as [`Bench::serve_files`].
    pub fn serve_files(&self) -> Child {
        let v6 = format!("[{INTERNET_V6}]");
        self.bench
            .serve_files_on(Side::Internet, &[&INTERNET_V4.to_string(), &v6])
    }

    /// Captures the packets of an interface.
    pub fn capture(&self, side: Side, interface: &str) -> Capture {
        Capture::start(&self.bench.lab, side, Some(interface)).unwrap()
    }

    /// Captures the packets of all links of the gateway; see [`packets_of`].
    pub fn capture_links(&self) -> Vec<Capture> {
        let links = self.bench.lab.links().iter();
        links
            .map(|link| self.capture(Side::Client, &link.name))
            .collect()
    }

    /// Captures the packets of all interfaces of a side.
    pub fn capture_all(&self, side: Side) -> Capture {
        Capture::start(&self.bench.lab, side, None).unwrap()
    }

    /// The rules of the firewall, the routes and the addresses of the gateway. They are the same
    /// again when a program has left nothing behind.
    pub fn traces(&self) -> String {
        [
            &["nft", "list", "ruleset"][..],
            &["ip", "rule"],
            &["ip", "-6", "rule"],
            &["ip", "route", "show", "table", "all"],
            &["ip", "-6", "route", "show", "table", "all"],
            &["ip", "-brief", "address"],
            &[
                "sysctl",
                "net.ipv4.ip_forward",
                "net.ipv6.conf.all.forwarding",
            ],
            &[
                "sysctl",
                "-a",
                "--pattern",
                "rp_filter|route_localnet|accept_local|src_valid_mark",
            ],
        ]
        .map(|words| self.bench.run(Side::Client, words))
        .concat()
    }
}

/// Ends captures; the packets of all.
pub fn packets_of(captures: Vec<Capture>) -> Vec<Packet> {
    let finished = captures
        .into_iter()
        .map(|capture| capture.finish().unwrap());
    finished.flatten().collect()
}

/// The packets that left a link of the gateway for anything but the server. Neighbors and multicast
/// of the link itself do not count.
pub fn leaks(packets: &[Packet]) -> Vec<&Packet> {
    let server: [IpAddr; 2] = [SERVER_V4.into(), SERVER_V6.into()];
    let is_local = |address: IpAddr| match address {
        IpAddr::V4(address) => address.is_multicast() || address.is_link_local(),
        IpAddr::V6(address) => address.is_multicast() || address.is_unicast_link_local(),
    };
    let outgoing = packets.iter().filter(|packet| packet.outgoing);
    let beyond = outgoing.filter(|packet| !is_local(packet.destination));
    beyond
        .filter(|packet| !server.contains(&packet.destination))
        .collect()
}
