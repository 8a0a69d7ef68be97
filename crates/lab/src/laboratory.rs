//! A running laboratory: the namespaces, the links between them, the emulator and its control
//! socket.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use sumlink_kernel::Kept;

use crate::addresses::Addresses;
use crate::config::{Direction, LinkChange, LinkSpec};
use crate::controls;
use crate::emulator::Emulator;
use crate::error::LabError;
use crate::health::Health;
use crate::lan::{self, Question, Resolver};
use crate::netns::Namespace;
use crate::rundir::{self, RunDir};
use crate::topology::{self, Kernel, Side};
use crate::tun::Tun;
use control::ControlServer;
use inner::{Inner, clone_pair, lay_cable, plug_in};

pub(crate) mod control;
mod inner;
mod status;

pub use status::{DirectionReport, LinkStatus, WireSeries};
pub(crate) use sumlink_scenario::plan::LabConfig;

/// A running laboratory.
///
/// Dropping it, also during a panic, ends every process in its namespaces and removes everything it
/// created. After a `kill -9` its interfaces and programs disappear at once; the next start or
/// [`clean`](crate::clean) removes the rest.
#[derive(Debug)]
pub struct Lab {
    /// Accepts commands; ends first.
    control: Option<ControlServer>,
    /// The name server on the internet host, if there is one.
    resolver: Option<Resolver>,
    inner: Arc<Inner>,
    /// Temporary changes outside the namespaces.
    notes: Vec<String>,
    /// Keeps one of sumlink's congestion controls loaded; dropped last.
    _kept: Option<Kept>,
}

impl Lab {
    /// Cleans up after dead laboratories and starts a new one.
    ///
    /// The process must be root, or root of its own user namespace (see
    /// [`become_able`](crate::become_able)).
    pub fn start(config: LabConfig) -> Result<Self, LabError> {
        config.check()?;
        if let Some(warning) = config.warning() {
            tracing::warn!("{warning}");
        }
        crate::programs::find("ip")?;
        for line in rundir::clean()? {
            tracing::info!("removed {line}");
        }
        let run_dir = RunDir::create()?;
        let namespace =
            |side: Side| Namespace::create(&rundir::namespace_name(run_dir.id(), side.name()));
        let sides = lan::sides(config.lan);
        let namespaces = sides.iter().map(|side| namespace(*side));
        let namespaces: Vec<Namespace> = namespaces.collect::<Result<_, _>>()?;
        let kernel = Kernel::probe();
        for (side, namespace) in sides.iter().zip(&namespaces) {
            topology::set_sysctls(namespace, kernel)?;
            namespace.ip_batch(topology::base_batch(*side, config.links.len(), kernel))?;
        }
        let mut resolver = None;
        if let Some(around) = config.lan {
            lan::prepare(&namespaces, around, kernel)?;
            lan::connect(&namespaces, kernel, &run_dir)?;
            resolver = Some(Resolver::start(
                &namespaces[Side::Internet.index()],
                kernel,
            )?);
        }
        let lock = run_dir.lock();
        let (congestion, kept) = controls::prepare(&config.congestion)?;
        let notes = topology::set_congestion(&namespaces, &congestion, &lock)?;
        let mut ends = Vec::new();
        let mut links = Vec::new();
        for (index, spec) in config.links.iter().enumerate() {
            if config.unshaped {
                lay_cable(&namespaces, index, &spec.name, kernel)?;
                ends.push(None);
                continue;
            }
            let pair = plug_in(&namespaces, index, &spec.name, kernel, config.gso)?;
            ends.push(Some(clone_pair(&pair)?));
            links.push(pair);
        }
        let names = config.links.iter().map(|link| link.name.clone()).collect();
        let client = namespaces[Side::Client.index()].handle()?;
        let addresses = Arc::new(Addresses::new(client, names, kernel));
        let emulator = Emulator::start(&config.emulated(), links, Arc::clone(&addresses))?;
        let inner = Arc::new(Inner {
            config,
            kernel,
            emulator,
            addresses,
            ends: Mutex::new(ends),
            namespaces,
            run_dir,
        });
        let control = ControlServer::start(inner.run_dir.control(), Arc::clone(&inner))?;
        Ok(Self {
            control: Some(control),
            resolver,
            inner,
            notes: notes.into_iter().collect(),
            _kept: kept,
        })
    }

    /// Starts a program on one side. It is killed when this process dies.
    ///
    /// The kernel ties this to the thread that started the program, here the namespace's own.
    pub fn spawn(&self, side: Side, mut command: Command) -> Result<Child, LabError> {
        command.envs(self.environment(side));
        self.inner.namespace(side)?.spawn(command)
    }

    /// Runs a closure on one side, for example to open a socket there. Closures of one side run in
    /// sequence.
    pub fn run<T: Send + 'static>(
        &self,
        side: Side,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, LabError> {
        self.inner.namespace(side)?.run(job)
    }

    /// Runs a batch of `ip` commands on one side.
    pub(crate) fn ip_batch(&self, side: Side, batch: String) -> Result<(), LabError> {
        self.inner.namespace(side)?.ip_batch(batch)
    }

    /// Its sides.
    pub fn sides(&self) -> &'static [Side] {
        lan::sides(self.inner.config.lan)
    }

    /// Whether there are a LAN host and an internet host.
    pub fn has_lan(&self) -> bool {
        self.inner.config.lan.is_some()
    }

    /// The sides of a measurement's programs: those that begin, and those that serve.
    pub(crate) fn ends(&self) -> [Side; 2] {
        match self.has_lan() {
            true => [Side::Lan, Side::Internet],
            false => [Side::Client, Side::Server],
        }
    }

    /// Makes the client a plain router for the LAN, without sumlink: packets leave over the default
    /// route of the lowest metric, with the address of its link. Needs nft.
    pub fn forward(&self) -> Result<(), LabError> {
        let client = self.inner.namespace(Side::Client)?;
        self.inner.namespace(Side::Lan)?;
        let links = self.links().iter().map(|link| link.name.clone());
        lan::forward(client, links, self.inner.kernel)
    }

    /// The questions that the name server of the internet host has received.
    pub fn questions(&self) -> Vec<Question> {
        let resolver = self.resolver.as_ref();
        resolver.map(Resolver::questions).unwrap_or_default()
    }

    /// Emulates an additional link between two interfaces that do not belong to the laboratory.
    /// Must be dropped before it.
    pub(crate) fn emulate(&self, link: LinkSpec, ends: [Tun; 2]) -> Result<Emulator, LabError> {
        let config = LabConfig::new(vec![link]);
        Emulator::start(&config, vec![ends], Arc::clone(&self.inner.addresses))
    }

    /// Changes a link at run time.
    pub fn set(&self, link: &str, changes: &[LinkChange]) -> Result<(), LabError> {
        self.inner.set(link, changes)
    }

    /// Brings down the client's ends of all other links, so that no program can use them, whatever
    /// it binds to.
    pub(crate) fn leave_only(&self, link: &str) -> Result<(), LabError> {
        let others = self.links().iter().filter(|other| other.name != link);
        let batch: String = others
            .map(|other| format!("link set dev {} down\n", other.name))
            .collect();
        match batch.is_empty() {
            true => Ok(()),
            false => self.ip_batch(Side::Client, batch),
        }
    }

    /// Sets time zero to now: the timeline starts, and series, traces and scripted losses restart.
    /// Links that were changed in the meantime keep their changes.
    pub fn begin(&self) -> Result<(), LabError> {
        self.inner.emulator.begin();
        // The emulator answers this request after the beginning.
        self.inner.emulator.report().map(drop)
    }

    /// Bytes delivered by every direction of every link over time, since [`Lab::begin`].
    pub fn series(&self) -> Result<Vec<WireSeries>, LabError> {
        let config = &self.inner.config;
        let directions = config
            .links
            .iter()
            .flat_map(|link| Direction::BOTH.map(|direction| (&link.name, direction)));
        let series = directions.zip(self.inner.emulator.series()?);
        let series = series.map(|((link, direction), wire_bytes)| WireSeries {
            link: link.clone(),
            direction,
            interval: config.sample_interval,
            wire_bytes,
        });
        Ok(series.collect())
    }

    /// State and counters of every link.
    pub fn status(&self) -> Result<Vec<LinkStatus>, LabError> {
        self.inner.status()
    }

    /// A handle for another thread. Must be dropped before the laboratory.
    pub(crate) fn handle(&self) -> LabHandle {
        LabHandle(Arc::clone(&self.inner))
    }

    /// The emulator's health since the last [`Lab::reset_health`].
    pub fn health(&self) -> Result<Health, LabError> {
        self.inner.health()
    }

    /// Restarts the measurement of the emulator's health.
    pub fn reset_health(&self) -> Result<(), LabError> {
        self.inner.emulator.reset_health();
        // The answer arrives after the reset.
        self.inner.health().map(drop)
    }

    /// The links as they were at the start.
    pub fn links(&self) -> &[LinkSpec] {
        &self.inner.config.links
    }

    /// The laboratory's id, for `sumlink-lab exec --lab`.
    pub fn id(&self) -> &str {
        self.inner.run_dir.id()
    }

    /// The socket that `sumlink-lab set` connects to.
    pub fn control(&self) -> PathBuf {
        self.inner.run_dir.control()
    }

    /// The name of a side's namespace, for `ip netns exec`; `None` if there is no such side.
    pub fn namespace(&self, side: Side) -> Option<&str> {
        let namespace = self.inner.namespaces.get(side.index());
        namespace.map(Namespace::name)
    }

    /// A description of the laboratory and the kernel settings of its namespaces, as lines.
    pub fn description(&self) -> Result<Vec<String>, LabError> {
        let mut lines: Vec<_> = self
            .links()
            .iter()
            .map(|link| format!("link {link}"))
            .collect();
        lines.push(format!(
            "server {} and {}; client 10.77.N.2 and fd77:N::2 on link N",
            topology::SERVER_V4,
            topology::SERVER_V6
        ));
        if self.has_lan() {
            lines.push(format!(
                "LAN host {} and {} behind {} and {}; internet host {} and {}, with a name server",
                lan::LAN_V4,
                lan::LAN_V6,
                lan::GATEWAY_V4,
                lan::GATEWAY_V6,
                lan::INTERNET_V4,
                lan::INTERNET_V6
            ));
        }
        let settings = self.run(Side::Client, socket_limits)?;
        lines.extend(
            settings
                .iter()
                .map(|(key, value)| format!("{key} = {value}")),
        );
        lines.extend(self.notes.iter().cloned());
        Ok(lines)
    }

    /// Socket-buffer limits and similar settings, by their sysctl names.
    pub fn socket_limits(&self) -> Result<BTreeMap<String, String>, LabError> {
        self.run(Side::Client, socket_limits)
    }

    fn environment(&self, side: Side) -> [(&'static str, String); 3] {
        [
            (crate::ENV_LAB, self.id().to_owned()),
            (
                crate::ENV_CONTROL,
                self.control().to_string_lossy().into_owned(),
            ),
            (crate::ENV_SIDE, side.name().to_owned()),
        ]
    }
}

/// Access to a laboratory that another thread owns.
pub(crate) struct LabHandle(Arc<Inner>);

impl LabHandle {
    /// As [`Lab::run`].
    pub(crate) fn run<T: Send + 'static>(
        &self,
        side: Side,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, LabError> {
        self.0.namespace(side)?.run(job)
    }

    /// Runs a batch of `ip` in a side's namespace.
    pub(crate) fn ip_batch(&self, side: Side, batch: String) -> Result<(), LabError> {
        self.0.namespace(side)?.ip_batch(batch)
    }

    /// The links' current rates in bits per second, up and down.
    pub(crate) fn rates(&self) -> Result<Vec<[u64; 2]>, LabError> {
        let (links, _) = self.0.emulator.report()?;
        Ok(links.into_iter().map(|link| link.rates).collect())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let namespaces = &self.inner.namespaces;
        rundir::end_processes(|| namespaces.iter().flat_map(Namespace::processes).collect());
        // The control server's thread holds the other reference; once it ends, the rest is dropped
        // with `inner`.
        self.control = None;
    }
}

/// Must be called on a thread in a namespace.
fn socket_limits() -> BTreeMap<String, String> {
    const KEYS: [&str; 6] = [
        "net/ipv4/tcp_congestion_control",
        "net/ipv4/tcp_rmem",
        "net/ipv4/tcp_wmem",
        "net/ipv4/tcp_no_metrics_save",
        "net/core/rmem_max",
        "net/core/wmem_max",
    ];
    KEYS.iter()
        .filter_map(|key| {
            let text = fs::read_to_string(format!("/proc/sys/{key}")).ok()?;
            let value = text.split_whitespace().collect::<Vec<_>>().join(" ");
            Some((key.replace('/', "."), value))
        })
        .collect()
}
