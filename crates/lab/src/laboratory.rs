//! A running laboratory: two namespaces, the links between them, the emulator and its control.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::config::{
    CouplingGroup, Direction, InterfaceState, InterfererSpec, LinkChange, LinkSpec, PlannedChange,
    RadioSpec, Setting, check_links, check_rate, check_rates, find_link, load_warning,
};
use crate::control::ControlServer;
use crate::emulator::{self, Emulator};
use crate::error::{LabError, LinkError};
use crate::health::Health;
use crate::netns::Namespace;
use crate::rundir::{self, RunDir};
use crate::topology::{self, Kernel, Side};
use crate::tun::Tun;
use crate::units::format_duration;

/// What a laboratory is made of.
#[derive(Clone, Debug)]
pub struct LabConfig {
    /// The links, 1..=[`MAX_LINKS`](crate::MAX_LINKS), each with a name of its own.
    pub links: Vec<LinkSpec>,
    /// TCP congestion control of every connection in the namespaces.
    pub congestion: String,
    /// Seed of all randomness.
    pub seed: u64,
    /// Segmentation offload: programs hand over up to 64 KiB at once, which the emulator cuts into packets.
    /// Carries up to [`MAX_RATE_GSO`](crate::MAX_RATE_GSO), but spares programs work that real interfaces
    /// may not spare them.
    pub gso: bool,
    /// What changes by itself, from [`Lab::begin`] on; in any order.
    pub timeline: Vec<PlannedChange>,
    /// Links that share the air.
    pub groups: Vec<CouplingGroup>,
    /// Others on the channels of links.
    pub interferers: Vec<InterfererSpec>,
    /// Links behind one radio.
    pub radios: Vec<RadioSpec>,
    /// Length of each interval of [`Lab::series`], at least 1 ms.
    pub sample_interval: Duration,
}

impl LabConfig {
    /// CUBIC, seed 1, packet by packet, nothing that changes by itself, samples of 100 ms.
    pub fn new(links: Vec<LinkSpec>) -> Self {
        Self {
            links,
            congestion: "cubic".to_owned(),
            seed: 1,
            gso: false,
            timeline: Vec::new(),
            groups: Vec::new(),
            interferers: Vec::new(),
            radios: Vec::new(),
            sample_interval: Duration::from_millis(100),
        }
    }

    /// Checks everything that can be checked before a laboratory is started.
    pub fn check(&self) -> Result<(), LabError> {
        check_links(&self.links)?;
        check_rates(&self.links, self.gso)?;
        if self.sample_interval < Duration::from_millis(1) {
            return Err(LabError::Usage(format!(
                "samples of {}: take at least 1ms",
                format_duration(self.sample_interval)
            )));
        }
        for PlannedChange { link, change, .. } in &self.timeline {
            if change.setting == Setting::State(InterfaceState::Removed) {
                return Err(LinkError::CannotPlan { link: link.clone() }.into());
            }
            check_rate(link, &change.setting, self.gso)?;
        }
        Ok(emulator::check(self)?)
    }

    /// What the user should know before the start: that the links together ask for more than the emulator
    /// carries, in which case [`Lab::health`] objects to figures measured at full load.
    pub fn warning(&self) -> Option<String> {
        load_warning(&self.links, self.gso)
    }
}

/// What one direction of a link delivered over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireSeries {
    /// The link's name.
    pub link: String,
    /// Which way.
    pub direction: Direction,
    /// Length of each interval; the first one starts at [`Lab::begin`], or at the start of the laboratory.
    pub interval: Duration,
    /// Bytes of IP packets, headers included, that were due in each interval; complete intervals only.
    pub wire_bytes: Vec<u64>,
}

/// What passed in one direction of a link since the start; packets are whole IP packets.
#[derive(Clone, Debug, Serialize)]
pub struct DirectionReport {
    /// Which one.
    pub direction: Direction,
    /// Packets that came in.
    pub offered_packets: u64,
    /// Packets that came out.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets that found the queue full.
    pub dropped_queue_packets: u64,
    /// Packets lost at random.
    pub lost_packets: u64,
    /// Packets discarded because the link was not up.
    pub discarded_packets: u64,
    /// Packets queued or on their way now.
    pub backlog_packets: u64,
}

/// One link's state and counters.
#[derive(Clone, Debug, Serialize)]
pub struct LinkStatus {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: InterfaceState,
    /// Client to server, then server to client.
    pub directions: [DirectionReport; 2],
}

/// A running laboratory.
///
/// Dropping it, also while unwinding from a panic, ends every process in its namespaces and removes
/// everything it made. After a `kill -9` the interfaces and the programs it started are gone at once; the
/// rest is removed by the next start or by [`clean`](crate::clean).
#[derive(Debug)]
pub struct Lab {
    /// Accepts commands; ends first.
    control: Option<ControlServer>,
    inner: Arc<Inner>,
    /// What was changed outside the namespaces for a moment.
    notes: Vec<String>,
}

/// What the control server shares with the laboratory's owner. The fields are dropped in this order.
#[derive(Debug)]
pub(crate) struct Inner {
    config: LabConfig,
    kernel: Kernel,
    emulator: Emulator,
    /// The emulated interfaces, for their carriers; by link. Also serialises changes of state.
    ends: Mutex<Vec<Option<[Tun; 2]>>>,
    /// Client, server.
    namespaces: [Namespace; 2],
    run_dir: RunDir,
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
        let namespaces = [namespace(Side::Client)?, namespace(Side::Server)?];
        let kernel = Kernel::probe();
        for side in [Side::Client, Side::Server] {
            let namespace = &namespaces[side.index()];
            topology::set_sysctls(namespace, kernel)?;
            namespace.ip_batch(topology::base_batch(side, config.links.len(), kernel))?;
        }
        let lock = run_dir.lock();
        let notes = topology::set_congestion(&namespaces, &config.congestion, &lock)?;
        let mut ends = Vec::new();
        let mut links = Vec::new();
        for (index, spec) in config.links.iter().enumerate() {
            let pair = plug_in(&namespaces, index, &spec.name, kernel, config.gso)?;
            ends.push(Some(clone_pair(&pair)?));
            links.push(pair);
        }
        let emulator = Emulator::start(&config, links)?;
        let inner = Arc::new(Inner {
            config,
            kernel,
            emulator,
            ends: Mutex::new(ends),
            namespaces,
            run_dir,
        });
        let control = ControlServer::start(inner.run_dir.control(), Arc::clone(&inner))?;
        Ok(Self {
            control: Some(control),
            inner,
            notes: notes.into_iter().collect(),
        })
    }

    /// Starts a program on one side. It is killed when this process dies.
    ///
    /// The kernel ties that to the thread that started it, which here is the namespace's own.
    pub fn spawn(&self, side: Side, mut command: Command) -> Result<Child, LabError> {
        command.envs(self.environment(side));
        self.inner.namespaces[side.index()].spawn(command)
    }

    /// Runs a closure on one side, for instance to open a socket there. Closures of one side run one
    /// after the other.
    pub fn run<T: Send + 'static>(
        &self,
        side: Side,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, LabError> {
        self.inner.namespaces[side.index()].run(job)
    }

    /// Changes a link while it runs.
    pub fn set(&self, link: &str, changes: &[LinkChange]) -> Result<(), LabError> {
        self.inner.set(link, changes)
    }

    /// Makes this moment time zero: of the timeline, which does not run before, of the series, of traces,
    /// which start over, and of scripted losses. Links that were changed meanwhile keep their changes.
    pub fn begin(&self) -> Result<(), LabError> {
        self.inner.emulator.begin();
        // The answer to this comes after the beginning.
        self.inner.emulator.report().map(drop)
    }

    /// What every direction of every link delivered over time, since [`Lab::begin`].
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

    /// How the emulator did since the last [`Lab::reset_health`].
    pub fn health(&self) -> Result<Health, LabError> {
        self.inner.health()
    }

    /// Starts a new account of the emulator's health.
    pub fn reset_health(&self) -> Result<(), LabError> {
        self.inner.emulator.reset_health();
        // Reading once waits until the reset has been carried out.
        self.inner.health().map(drop)
    }

    /// The links as they were at the start.
    pub fn links(&self) -> &[LinkSpec] {
        &self.inner.config.links
    }

    /// The laboratory's id, which `sumlink lab exec --lab` takes.
    pub fn id(&self) -> &str {
        self.inner.run_dir.id()
    }

    /// The socket that `sumlink lab set` talks to.
    pub fn control(&self) -> PathBuf {
        self.inner.run_dir.control()
    }

    /// The name of a side's namespace, for `ip netns exec`.
    pub fn namespace(&self, side: Side) -> &str {
        self.inner.namespaces[side.index()].name()
    }

    /// What the laboratory is and which settings of the kernel every program in it has, line by line.
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
        let settings = self.run(Side::Client, socket_limits)?;
        lines.extend(
            settings
                .iter()
                .map(|(key, value)| format!("{key} = {value}")),
        );
        lines.extend(self.notes.iter().cloned());
        Ok(lines)
    }

    /// Socket-buffer limits and the like, by the kernel's name of each.
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

impl Drop for Lab {
    fn drop(&mut self) {
        let namespaces = &self.inner.namespaces;
        rundir::end_processes(|| namespaces.iter().flat_map(Namespace::processes).collect());
        // The control server's thread holds the other reference; without it the rest goes with `inner`.
        self.control = None;
    }
}

impl Inner {
    pub(crate) fn set(&self, link: &str, changes: &[LinkChange]) -> Result<(), LabError> {
        let index = find_link(&self.config.links, link)?;
        for change in changes {
            check_rate(link, &change.setting, self.config.gso)?;
        }
        for change in changes {
            match change.setting {
                Setting::State(state) => self.set_state(index, state)?,
                _ => self.emulator.change(index, change.clone()),
            }
        }
        // The answer to this comes after the changes have been made.
        self.emulator.report().map(drop)
    }

    fn set_state(&self, index: usize, state: InterfaceState) -> Result<(), LabError> {
        let mut all = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let exists = self.emulator.report()?.0[index].state != InterfaceState::Removed;
        if !exists {
            // Somebody may have deleted only one of the two.
            all[index] = None;
        }
        if state == InterfaceState::Removed {
            self.emulator.replace(index, None);
            self.emulator.report()?;
            all[index] = None;
            return Ok(());
        }
        if all[index].is_none() {
            let name = &self.config.links[index].name;
            // Fails for links that had no endpoint.
            let _ = self.namespaces[Side::Client.index()].ip_batch(topology::unlink_batch(index));
            let pair = plug_in(&self.namespaces, index, name, self.kernel, self.config.gso)?;
            all[index] = Some(clone_pair(&pair)?);
            self.emulator.replace(index, Some(pair));
        }
        for end in all[index].iter().flatten() {
            end.set_carrier(state != InterfaceState::Down)?;
        }
        self.emulator.change(index, LinkChange::state(state));
        Ok(())
    }

    pub(crate) fn status(&self) -> Result<Vec<LinkStatus>, LabError> {
        let (links, _) = self.emulator.report()?;
        let status = links
            .iter()
            .zip(&self.config.links)
            .map(|(report, spec)| LinkStatus {
                name: spec.name.clone(),
                state: report.state,
                directions: Direction::BOTH.map(|direction| {
                    let counters = &report.counters[direction.index()];
                    DirectionReport {
                        direction,
                        offered_packets: counters.offered_packets,
                        delivered_packets: counters.delivered_packets,
                        delivered_bytes: counters.delivered_bytes,
                        dropped_queue_packets: counters.dropped_queue_packets,
                        lost_packets: counters.lost_packets,
                        discarded_packets: counters.discarded_packets,
                        backlog_packets: counters.queued_packets + counters.in_flight_packets,
                    }
                }),
            });
        Ok(status.collect())
    }

    pub(crate) fn health(&self) -> Result<Health, LabError> {
        let (_, mut health) = self.emulator.report()?;
        for namespace in &self.namespaces {
            let names: Vec<_> = self.config.links.iter().map(|l| l.name.clone()).collect();
            health.overruns += namespace.run(move || transmit_drops(&names))?;
        }
        Ok(health)
    }
}

/// Makes both ends of a link and gives them their addresses.
fn plug_in(
    namespaces: &[Namespace; 2],
    index: usize,
    name: &str,
    kernel: Kernel,
    gso: bool,
) -> Result<[Tun; 2], LabError> {
    let open = |side: Side| {
        let name = name.to_owned();
        namespaces[side.index()].run(move || Tun::open(&name, gso))?
    };
    let pair = [open(Side::Client)?, open(Side::Server)?];
    for side in [Side::Client, Side::Server] {
        let batch = topology::link_batch(side, index, name, kernel);
        namespaces[side.index()].ip_batch(batch)?;
    }
    Ok(pair)
}

fn clone_pair([client, server]: &[Tun; 2]) -> Result<[Tun; 2], LabError> {
    client
        .try_clone()
        .and_then(|client| Ok([client, server.try_clone()?]))
        .map_err(|error| LabError::system("duplicating a file descriptor", error))
}

/// Packets that the interfaces of the calling thread's namespace could not hand to the emulator.
fn transmit_drops(names: &[String]) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| names.iter().any(|n| n == name.trim()))
        // Eight columns of the receive side, then bytes, packets, errors, drops of the transmit side.
        .filter_map(|(_, fields)| fields.split_whitespace().nth(11)?.parse::<u64>().ok())
        .sum()
}

/// Read on a thread in a namespace.
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
