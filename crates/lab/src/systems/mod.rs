//! What is compared: one file for each system, behind one trait.
//!
//! A system says over which [`Route`]s the traffic goes; what the traffic is and how it is counted is the same for
//! all ([`crate::traffic`]). Adding one is a file here, its word in [`Named`], and a line in
//! docs/laboratory.md.

mod aggligator;
mod alone;
mod edge;
mod hosts;
mod keys;
mod library;
mod mptcp;
mod noq;
pub(crate) mod peers;
mod simultaneous;
mod sumlink;
mod watcher;

pub(crate) use hosts::set as set_hosts;
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
use crate::process::Process;
use crate::scenario::{Classes, Scenario};
use crate::topology::SERVER_V4;
use crate::traffic::{Channel, Route};

/// A way to carry traffic over several links.
pub(crate) trait System {
    /// Why it cannot be measured here under this scenario; `None` when it can.
    fn missing(&self, _scenario: &Scenario) -> Option<String> {
        None
    }

    /// Versions of the programs that take part, by name.
    fn versions(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// What is measured one after the other, each in a laboratory of its own: everything at once (`None`),
    /// or a link by itself.
    fn phases(&self, _links: &[String]) -> Vec<Option<String>> {
        vec![None]
    }

    /// What the hosts run, where it is not for the scenario to say.
    fn hosts(&self) -> Option<Hosts> {
        None
    }

    /// How much of the one-way delay of each link lies before all of them, in the server's namespace.
    fn far(&self, _config: &LabConfig) -> Duration {
        Duration::ZERO
    }

    /// Whether the traffic's own sockets are MPTCP.
    fn is_mptcp(&self) -> bool {
        false
    }

    /// What the workload's server moves its bytes over.
    fn channel_of_server(&self, _stage: &Stage<'_>) -> Result<Channel, LabError> {
        Ok(Channel::Socket)
    }

    /// Starts what it needs and returns when that is ready for traffic.
    fn start(&self, stage: &Stage<'_>) -> Result<Running, LabError>;

    /// What it has to say about itself at the end, while it still runs; an error when it did not do what
    /// its name says.
    fn evidence(&self, _stage: &Stage<'_>, _running: &mut Running) -> Result<Evidence, LabError> {
        Ok(Evidence::default())
    }
}

/// Where a system runs.
pub(crate) struct Stage<'a> {
    pub(crate) lab: &'a Lab,
    /// For keys and logs; removed at the end.
    pub(crate) directory: &'a Path,
    /// The sumlink program.
    pub(crate) program: &'a Path,
    /// TCP congestion control of everyone.
    pub(crate) congestion: &'a str,
    /// The port on the server's side to which the traffic goes.
    pub(crate) port: u16,
    /// Where a system that can tell what it does over time writes that, if it is to.
    pub(crate) trace: Option<PathBuf>,
    /// Which ways the data of the workload goes.
    pub(crate) directions: &'a [Direction],
    /// The link of this phase, if it has one.
    pub(crate) link: Option<&'a str>,
    /// What the workload's connections are told to be.
    pub(crate) classes: Classes,
    /// Whether the laboratory's own programs carry the workload; they can tell a proxy the class of each connection.
    pub(crate) has_own_programs: bool,
    /// What [`System::far`] said; the links' delays are shorter by it.
    pub(crate) far: Duration,
}

impl Stage<'_> {
    /// Where the server of the workload listens.
    pub(crate) fn target(&self) -> SocketAddr {
        SocketAddr::from((SERVER_V4, self.port))
    }

    /// Whether data goes from the client to the server, and not acknowledgements alone.
    pub(crate) fn sends_up(&self) -> bool {
        self.directions.contains(&Direction::Up)
    }

    /// The names of all links.
    pub(crate) fn links(&self) -> impl Iterator<Item = &str> {
        self.lab.links().iter().map(|link| link.name.as_str())
    }
}

/// A system that is ready for traffic. Dropping it ends its processes.
pub(crate) struct Running {
    /// The ways to the server, each with a flow of its own.
    pub(crate) routes: Vec<Route>,
    /// Where programs connect that know nothing of routes.
    pub(crate) entry: SocketAddr,
    /// Its programs.
    pub(crate) processes: Vec<Process>,
    /// Whether all that it sends over the links is TCP, so that the kernel counts what is sent again.
    pub(crate) is_tcp: bool,
    /// What is there or done beside them; dropping it ends that.
    pub(crate) _beside: Vec<Box<dyn Any>>,
}

impl Running {
    /// Over one way, with no program but those of the traffic.
    fn over(route: Route) -> Self {
        Self {
            entry: route.target,
            routes: vec![route],
            processes: Vec::new(),
            is_tcp: true,
            _beside: Vec::new(),
        }
    }
}

/// What a system says about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// Bytes sent on purpose more than once.
    pub(crate) duplicates_bytes: Option<u64>,
    /// The most bytes that its receivers held at once because earlier ones were missing.
    pub(crate) reorder_peak_bytes: Option<u64>,
    /// What a reader should know.
    pub(crate) note: String,
}

/// The system of that name.
pub(crate) fn parse(name: &str) -> Result<Box<dyn System>, String> {
    Named::parse(name).map(made)
}

/// The same as a scenario has it.
pub(crate) fn of(scenario: &Scenario, name: &str) -> Result<Box<dyn System>, String> {
    Named::parse(name).map(|named| made(named.under(scenario)))
}

fn made(named: Named) -> Box<dyn System> {
    match named {
        Named::Alone => Box::new(alone::Alone),
        Named::Simultaneous => Box::new(simultaneous::Simultaneous),
        Named::Mptcp { tls } => Box::new(mptcp::Mptcp { tls }),
        Named::Aggligator => Box::new(aggligator::Aggligator),
        Named::Noq => Box::new(noq::Noq),
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
