//! The systems under comparison: one file for each system, behind one trait.
//!
//! A system provides the [`Route`]s of the traffic; the traffic and its accounting are the same for
//! all systems ([`crate::traffic`]). A new system needs a file here, its word in [`Named`], and a
//! line in docs/laboratory.md.

mod aggligator;
mod alone;
mod datagrams;
mod edge;
mod hosts;
pub(crate) mod keys;
mod library;
mod mptcp;
mod noq;
pub(crate) mod peers;
mod simultaneous;
mod sumlink;
mod watcher;
mod wireguard;

pub(crate) use datagrams::missing as missing_system;
pub(crate) use hosts::{limit_receive_buffers, set as set_hosts};
pub(crate) use mptcp::parse_counters as kernel_counters;
pub(crate) use sumlink::keygen;

use std::any::Any;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sumlink_scenario::edge::Hosts;
use sumlink_scenario::system::System as Named;

use crate::config::Direction;
use crate::error::LabError;
use crate::laboratory::{Lab, LabConfig};
use crate::lan::INTERNET_V4;
use crate::process::Process;
use crate::scenario::{Classes, Scenario};
use crate::topology::{SERVER_V4, Side};
use crate::traffic::{Channel, Route};

/// A way to carry traffic over several links.
pub(crate) trait System {
    /// Why it cannot be measured under this scenario; `None` if it can.
    fn missing(&self, _scenario: &Scenario) -> Option<String> {
        None
    }

    /// Versions of the programs involved, by name.
    fn versions(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// The phases of the measurement, each in a separate laboratory: everything at once (`None`),
    /// or a single link.
    fn phases(&self, _links: &[String]) -> Vec<Option<String>> {
        vec![None]
    }

    /// TCP settings of the hosts, if the system rather than the scenario determines them.
    fn hosts(&self) -> Option<Hosts> {
        None
    }

    /// The part of each link's one-way delay that is located before all links, in the server's
    /// namespace.
    fn far(&self, _config: &LabConfig) -> Duration {
        Duration::ZERO
    }

    /// Why it cannot be the gateway of a LAN; `None` if it can.
    fn missing_as_gateway(&self) -> Option<String> {
        Some("it is no gateway for a LAN".to_owned())
    }

    /// Whether the traffic starts on the gateway itself, where there is a LAN.
    fn starts_on_gateway(&self) -> bool {
        false
    }

    /// Whether it carries UDP.
    fn carries_datagrams(&self) -> bool {
        false
    }

    /// Whether the traffic's own sockets are MPTCP.
    fn is_mptcp(&self) -> bool {
        false
    }

    /// The channel that the workload's server uses.
    fn channel_of_server(&self, _stage: &Stage<'_>) -> Result<Channel, LabError> {
        Ok(Channel::Socket)
    }

    /// Starts the system and returns when it is ready for traffic.
    fn start(&self, stage: &Stage<'_>) -> Result<Running, LabError>;

    /// The system's own figures at the end, while it still runs; an error if it did not do what its
    /// name says.
    fn evidence(&self, _stage: &Stage<'_>, _running: &mut Running) -> Result<Evidence, LabError> {
        Ok(Evidence::default())
    }
}

/// The environment in which a system runs.
pub(crate) struct Stage<'a> {
    pub(crate) lab: &'a Lab,
    /// Where the traffic's programs begin: on the client, or on the LAN host.
    pub(crate) near: Side,
    /// Where they serve: on the server, or on the internet host.
    pub(crate) serving: Side,
    /// For keys and logs; removed at the end.
    pub(crate) directory: &'a Path,
    /// The sumlink program.
    pub(crate) program: &'a Path,
    /// TCP congestion control of all systems.
    pub(crate) congestion: &'a str,
    /// The traffic's destination port on the server's side.
    pub(crate) port: u16,
    /// File for the trace, if one is requested.
    pub(crate) trace: Option<PathBuf>,
    /// Directions of the workload's data.
    pub(crate) directions: &'a [Direction],
    /// The link of this phase, if it has one.
    pub(crate) link: Option<&'a str>,
    /// Traffic classes of the workload's connections.
    pub(crate) classes: Classes,
    /// Whether the measured traffic consists of datagrams.
    pub(crate) needs_udp: bool,
    /// Connections that are open at the same time; 0 if they are few.
    pub(crate) connections: u64,
    /// Whether the laboratory's own programs carry the workload; they can send the class of each
    /// connection to a proxy.
    pub(crate) has_own_programs: bool,
    /// The delay from [`System::far`]; the links' delays are shorter by it.
    pub(crate) far: Duration,
}

impl Stage<'_> {
    /// Address of the workload's server.
    pub(crate) fn target(&self) -> SocketAddr {
        match self.serving {
            Side::Internet => SocketAddr::from((INTERNET_V4, self.port)),
            _ => SocketAddr::from((SERVER_V4, self.port)),
        }
    }

    /// Whether data, and not only acknowledgments, goes from the client to the server.
    pub(crate) fn sends_up(&self) -> bool {
        self.directions.contains(&Direction::Up)
    }

    /// The names of all links.
    pub(crate) fn links(&self) -> impl Iterator<Item = &str> {
        self.lab.links().iter().map(|link| link.name.as_str())
    }
}

/// The name server on the internet host.
fn name_server() -> SocketAddr {
    SocketAddr::from((INTERNET_V4, NAMES_PORT))
}

/// The port of name servers.
const NAMES_PORT: u16 = 53;

/// A system that is ready for traffic. Dropping it ends its processes.
pub(crate) struct Running {
    /// Routes to the server, each with a separate flow.
    pub(crate) routes: Vec<Route>,
    /// Address for programs that do not support routes.
    pub(crate) entry: SocketAddr,
    /// Its programs.
    pub(crate) processes: Vec<Process>,
    /// Whether it sends only TCP over the links, so that the kernel counts all retransmissions.
    pub(crate) is_tcp: bool,
    /// For a gateway: time from its start to the first byte that went through it, in seconds.
    pub(crate) first_byte_s: Option<f64>,
    /// Helpers that stop when dropped.
    pub(crate) _beside: Vec<Box<dyn Any>>,
}

impl Running {
    /// A single route without programs other than those of the traffic.
    fn over(route: Route) -> Self {
        Self {
            entry: route.target,
            routes: vec![route],
            processes: Vec::new(),
            is_tcp: true,
            first_byte_s: None,
            _beside: Vec::new(),
        }
    }
}

/// A system's report on itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// Bytes of intentional duplicates.
    pub(crate) duplicates_bytes: Option<u64>,
    /// Peak memory of its receivers for out-of-order bytes.
    pub(crate) reorder_peak_bytes: Option<u64>,
    /// Time that 99 % of the bytes did not exceed in waiting for earlier ones, in seconds, at the
    /// end where it is longer.
    pub(crate) in_order_wait_p99_s: Option<f64>,
    /// Share of the time for which its selector kept a link idle, by the link's name.
    pub(crate) rested: BTreeMap<String, f64>,
    /// Remarks.
    pub(crate) note: String,
}

/// The system of that name.
pub(crate) fn parse(name: &str) -> Result<Box<dyn System>, String> {
    Named::parse(name).map(made)
}

/// The system of that name, adapted to the scenario.
pub(crate) fn of(scenario: &Scenario, name: &str) -> Result<Box<dyn System>, String> {
    Named::parse(name).map(|named| made(named.under(scenario)))
}

fn made(named: Named) -> Box<dyn System> {
    match named {
        Named::Alone => Box::new(alone::Alone),
        Named::Simultaneous => Box::new(simultaneous::Simultaneous),
        Named::Mptcp { tls, selector } => Box::new(mptcp::Mptcp::new(tls, selector)),
        Named::Aggligator => Box::new(aggligator::Aggligator),
        Named::Noq => Box::new(noq::Noq),
        Named::WireGuard => Box::new(wireguard::WireGuard),
        Named::Edge(variant) => Box::new(edge::Edge { variant }),
        Named::Library(variant) => Box::new(library::Library { variant }),
        Named::Sumlink(variant) => Box::new(sumlink::Sumlink { variant: *variant }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_for_two_paths_is_not_measured_over_four() {
        let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let scenario = |name: &str| Scenario::load(&scenarios.join(name)).unwrap();
        let (two, four) = (
            scenario("thesis-4-1-normal.toml"),
            scenario("thesis-4-9-no-loss.toml"),
        );
        for (system, missing) in [("sumlink:musher", true), ("sumlink:fbdt", false)] {
            let system = parse(system).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(system.missing(&two), None);
            assert_eq!(system.missing(&four).is_some(), missing);
        }
    }
}
