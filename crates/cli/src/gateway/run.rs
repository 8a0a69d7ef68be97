//! A running gateway: its parts, and their order at start and end.
//!
//! Capture starts after all receivers of the traffic exist, and the changes to the kernel are
//! removed last. Without the bond, captured traffic waits or is refused; it never passes beside the
//! bond.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::json;
use sumlink_dns::Forwarder;
use sumlink_gateway::kernel::{
    self, Applied, CARRIER_MARK, Capture, Facts, KernelError, ListenerPorts, Prepared,
};
use sumlink_gateway::names::SharedNames;
use sumlink_proxy::{ClassRule, Listener, Service, TransparentUdp};
use sumlink_transport::{Client, links};
use sumlink_tun::{Device, DeviceConfig, LanEcho};
use sumlink_util::Reasons;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::control::Running;
use super::links::KnownLinks;
use super::lookup::KnownServers;
use super::own::LocalPolicy;
use super::resolver::Resolver;
use super::router::{GatewayRouter, forwarder, router};
use crate::client::{Entries, Limits, report_connected};
use crate::config::{ClientPlan, DnsSettings, GatewaySettings};
use crate::control::ControlSocket;
use crate::error::CliError;
use crate::exit::Exit;
use crate::find_socket;
use crate::monitor::Reporting;
use crate::opener::Late;
use crate::output::Events;
use crate::signals::Stop;

/// Pause between two attempts to connect at the start.
const RETRY: Duration = Duration::from_secs(2);

/// Port of DNS.
const DNS: u16 = 53;

/// The links named by flags or by the file, without patterns.
pub(super) fn named_links(plan: &ClientPlan) -> Vec<String> {
    let names = plan.config.links.iter().map(|link| link.name.clone());
    names.filter(|name| !links::is_pattern(name)).collect()
}

/// The interfaces of the gateway that are no links.
fn not_links(kernel: &kernel::Settings) -> Vec<String> {
    let own = std::iter::once(&kernel.device.name);
    own.chain(&kernel.lan).cloned().collect()
}

/// Runs the gateway until a signal or a request ends it.
pub(super) async fn carry(
    plan: ClientPlan,
    settings: GatewaySettings,
    events: &Events,
) -> Result<(), CliError> {
    let mut stop = Stop::new()?;
    let asked = Arc::new(Notify::new());
    let mut kernel = settings.kernel.clone();
    kernel.links = named_links(&plan);
    // The lock comes first: a second gateway learns that one runs, whatever else it lacks. Until
    // the plan is applied nothing changes, so that the kill switch of a killed gateway stays.
    let prepared = Prepared::new(Path::new(kernel::DEFAULT_STATE), &kernel).await?;
    let control = ControlSocket::bind(&socket(&plan)?)?;
    let _known_place = KnownPlace::new(control.path())?;
    let mut reporting = Reporting::with(Some(control), plan.monitor.clone(), events).await?;
    let limits = Limits::of(&plan);
    let entries = Entries::bind(&plan, &limits).await?;
    // A killed gateway's address in there would answer no lookup.
    super::resolver::clean()?;
    let server = plan.config.server.clone();
    let known = KnownServers::new(plan.config.servers().map(|(server, _)| server)).await;
    kernel.servers = known.addresses().iter().map(SocketAddr::ip).collect();
    let inputs = Inputs::open(&mut kernel, &settings.dns, &prepared, &limits).await?;
    let changes = prepared.plan(&kernel).map_err(KernelError::from)?;
    for warning in changes.warnings() {
        tracing::warn!("{warning}");
    }
    let capture = changes.capture();
    let (slot, session) = watch::channel(None);
    let (failing, failure) = watch::channel(None);
    let links = KnownLinks::new();
    let names = SharedNames::default();
    let mut policy = LocalPolicy::read().await;
    let router = router(
        &settings,
        &links,
        &names,
        policy.subscribe(),
        Late::new(session.clone(), plan.early),
    )?;
    let mut applied = prepared.apply(changes).await?;
    links.list(&known.addresses(), CARRIER_MARK).await;
    let forwarder = settings
        .dns
        .serve
        .then(|| forwarder(&settings, &names, &router));
    let running = Running {
        session,
        server: server.clone(),
        failure,
        router: router.clone(),
        forwarder: forwarder.clone(),
        device: inputs.device.stats(),
        kernel: kernel.clone(),
        capture,
        stop: Arc::clone(&asked),
        events: events.clone(),
    };
    let address = inputs.dns.as_ref().map(|dns| dns.address);
    let mut serving = inputs.serve(&router, &limits, forwarder);
    entries.serve(&router, events);
    let resolver = match address.filter(|_| settings.dns.set_resolver && kernel.host) {
        Some(address) => match Resolver::set(&kernel.device.name, address).await {
            Ok(resolver) => Some(resolver),
            Err(error) => {
                tracing::warn!("this machine's programs do not ask the gateway's DNS: {error}");
                None
            }
        },
        None => None,
    };
    let way = match capture {
        Capture::Nftables => "nftables",
        Capture::Tun => "tun",
    };
    tracing::info!(device = %kernel.device.name, capture = way, lan = ?kernel.lan, "gateway up");
    events.emit(&json!({
        "event": "gateway_up", "device": kernel.device.name, "capture": way, "lan": kernel.lan,
    }));
    let config = plan
        .config
        .mark(CARRIER_MARK)
        .ignored_links(not_links(&kernel))
        .lookup(Arc::new(known.clone()) as Arc<dyn links::Lookup>);
    // No answer of a network ends the gateway: strangers must not be able to end the capture.
    let connecting = async {
        loop {
            let client = connect(&config, &failing).await?;
            report_connected(&client.server(), &config, events);
            let _following = events.follow(client.events());
            slot.send_replace(Some(client.clone()));
            let addresses = || known.addresses();
            let reason = tokio::select! {
                () = links.follow(client.clone(), addresses, CARRIER_MARK) => continue,
                reason = client.closed() => reason,
            };
            tracing::warn!("the session has ended ({reason}); connecting again");
            slot.send_replace(None);
            links.session_ended();
            tokio::time::sleep(RETRY).await;
        }
    };
    let ended = tokio::select! {
        ended = connecting => ended,
        () = reporting.answer(running) => Ok(()),
        never = policy.follow() => match never {},
        followed = applied.follow() => match followed {
            Ok(never) => match never {},
            Err(error) => Err(error.into()),
        },
        Some(ended) = serving.join_next() => match ended {
            Ok(Err(error)) => Err(error),
            _ => Ok(()),
        },
        name = stop.next() => {
            tracing::info!("{name}: closing the session");
            Ok(())
        }
        () = asked.notified() => {
            tracing::info!("sumlink down: closing the session");
            Ok(())
        }
    };
    let client = slot.borrow().clone();
    if let Some(client) = client {
        stop.graceful(client.close())
            .await
            .unwrap_or_else(|error| tracing::warn!("{error}"));
    }
    let removed = end(resolver, applied).await;
    serving.shutdown().await;
    events.emit(&json!({ "event": "stopped" }));
    ended.and(removed)
}

/// Restores the resolver and removes the changes to the kernel.
async fn end(resolver: Option<Resolver>, applied: Applied) -> Result<(), CliError> {
    if let Some(resolver) = resolver {
        resolver.restore().await;
    }
    applied.remove().await?;
    tracing::info!("gateway down");
    Ok(())
}

/// Connects to the server, however long that takes. Only a wrong configuration is an error.
///
/// A network may not be up yet; and whatever answers in the server's place, with another key or an
/// alert of its own, must not end the capture of the traffic.
async fn connect(
    config: &sumlink_transport::config::ClientConfig,
    failing: &watch::Sender<Option<String>>,
) -> Result<Client, CliError> {
    let mut warned = Reasons::default();
    loop {
        let error = match Client::connect(config.clone()).await {
            Ok(client) => {
                failing.send_replace(None);
                return Ok(client);
            }
            Err(error) => CliError::from(error),
        };
        if matches!(error.exit(), Exit::Usage | Exit::Config | Exit::Key) {
            return Err(error);
        }
        let text = error.to_string();
        if warned.is_new(&text) {
            tracing::warn!("{text}; trying again every {} s", RETRY.as_secs());
        }
        failing.send_replace(Some(text));
        tokio::time::sleep(RETRY).await;
    }
}

/// The path of the control socket: as configured, or the one that other verbs search.
fn socket(plan: &ClientPlan) -> Result<PathBuf, CliError> {
    let path = match &plan.control {
        Some(named) => std::path::absolute(named)?,
        None => find_socket::of_gateway(),
    };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    Ok(path)
}

/// A link from the place where other verbs search for the control socket, while that is elsewhere.
#[derive(Debug)]
struct KnownPlace(Option<PathBuf>);

impl KnownPlace {
    /// The caller has the lock of the gateway, so a file there belongs to one that was killed.
    fn new(socket: &Path) -> Result<Self, CliError> {
        let place = find_socket::of_gateway();
        if place == socket {
            return Ok(Self(None));
        }
        std::fs::create_dir_all(super::RUN)?;
        let _ = std::fs::remove_file(&place);
        std::os::unix::fs::symlink(socket, &place)?;
        Ok(Self(Some(place)))
    }
}

impl Drop for KnownPlace {
    fn drop(&mut self) {
        if let Some(place) = &self.0 {
            let _ = std::fs::remove_file(place);
        }
    }
}

/// The receivers of the captured traffic.
struct Inputs {
    device: Device,
    listeners: Vec<Listener>,
    datagrams: Vec<TransparentUdp>,
    echoes: Vec<LanEcho>,
    dns: Option<DnsPorts>,
}

/// The ports of the forwarder.
struct DnsPorts {
    server: sumlink_dns::Server,
    /// Its address for programs of this machine.
    address: IpAddr,
}

impl Inputs {
    /// Opens everything, and notes the ports in `kernel`.
    async fn open(
        kernel: &mut kernel::Settings,
        dns: &DnsSettings,
        prepared: &Prepared,
        limits: &Limits,
    ) -> Result<Self, CliError> {
        let capture = prepared.plan(kernel).map_err(KernelError::from)?.capture();
        let device = Device::open(&DeviceConfig {
            name: kernel.device.name.clone(),
            mtu: u16::try_from(kernel.device.mtu).unwrap_or(u16::MAX),
            ipv4: kernel.device.ipv4,
            ipv6: kernel.device.ipv6,
            ..DeviceConfig::default()
        })
        .await?;
        let mut inputs = Self {
            device,
            listeners: Vec::new(),
            datagrams: Vec::new(),
            echoes: Vec::new(),
            dns: None,
        };
        if capture == Capture::Nftables {
            kernel.ipv4_ports = inputs
                .listen(Ipv4Addr::LOCALHOST.into(), kernel, limits)
                .await?;
            if kernel.ipv6 && prepared.facts().has_ipv6 {
                kernel.ipv6_ports = inputs
                    .listen(Ipv6Addr::LOCALHOST.into(), kernel, limits)
                    .await?;
            }
            for lan in &kernel.lan {
                inputs.echoes.push(LanEcho::open(lan, &kernel.device.name)?);
            }
        }
        if dns.serve {
            inputs.dns = Some(DnsPorts::open(kernel, prepared.facts()).await?);
        }
        Ok(inputs)
    }

    /// Opens the listeners of a family on its loopback address.
    async fn listen(
        &mut self,
        ip: IpAddr,
        kernel: &kernel::Settings,
        limits: &Limits,
    ) -> Result<ListenerPorts, CliError> {
        let mut ports = ListenerPorts::default();
        let any = SocketAddr::new(ip, 0);
        if kernel.host {
            let listener = limits.apply(Listener::bind(any, Service::Redirect).await?);
            ports.redirect = listener.local_addr().port();
            self.listeners.push(listener);
        }
        if !kernel.lan.is_empty() {
            let listener = limits.apply(Listener::bind(any, Service::Transparent).await?);
            ports.transparent_tcp = listener.local_addr().port();
            self.listeners.push(listener);
            let datagrams = TransparentUdp::bind(any)?
                .with_sources(limits.sources.clone())
                .with_classes(Arc::clone(&limits.classes));
            ports.transparent_udp = datagrams.local_addr().port();
            self.datagrams.push(datagrams);
        }
        Ok(ports)
    }

    /// Serves everything. A task that ends is a failure of the gateway.
    fn serve(
        self,
        router: &GatewayRouter,
        limits: &Limits,
        forwarder: Option<Forwarder>,
    ) -> JoinSet<Result<(), CliError>> {
        let mut serving = JoinSet::new();
        let forever = std::future::pending;
        for listener in self.listeners {
            let serve = listener.serve_with_datagrams(router.clone(), forever());
            serving.spawn(async move {
                serve.await;
                Ok(())
            });
        }
        for datagrams in self.datagrams {
            let serve = datagrams.serve(router.clone(), forever());
            serving.spawn(async move {
                serve.await;
                Ok(())
            });
        }
        for echo in self.echoes {
            let (sources, classes) = (limits.sources.clone(), Arc::clone(&limits.classes));
            let serve = echo.serve(router.clone(), sources, classes, forever());
            serving.spawn(async move {
                serve.await;
                Ok(())
            });
        }
        if let (Some(dns), Some(forwarder)) = (self.dns, forwarder) {
            let serve = dns.server.serve(forwarder, forever());
            serving.spawn(async move {
                serve.await;
                Ok(())
            });
        }
        let of_device = sumlink_tun::Limits {
            connections: limits.connections.clone(),
            sources: limits.sources.clone(),
        };
        let classes: Arc<[ClassRule]> = Arc::clone(&limits.classes);
        let serve = sumlink_tun::serve(self.device, router.clone(), of_device, classes, forever());
        serving.spawn(async move { Ok(serve.await?) });
        serving
    }
}

impl DnsPorts {
    /// Opens port 53 on the device, and on the LAN where it is free.
    async fn open(kernel: &kernel::Settings, facts: &Facts) -> Result<Self, CliError> {
        let address = IpAddr::from(kernel.device.ipv4);
        let own = SocketAddr::new(address, DNS);
        let mut clients = vec![
            IpNet::from(address),
            IpNet::from(IpAddr::from(kernel.device.ipv6)),
        ];
        let mut ports = vec![own];
        let devices = facts.devices.iter();
        for lan in devices.filter(|device| kernel.lan.contains(&device.name)) {
            for network in lan
                .addresses
                .iter()
                .filter(|net| !is_link_local(net.addr()))
            {
                clients.push(network.trunc());
                let port = SocketAddr::new(network.addr(), DNS);
                let limits = sumlink_dns::Limits::default();
                match sumlink_dns::Server::bind(&[port], Vec::new(), limits).await {
                    Ok(_) => ports.push(port),
                    Err(error) => tracing::warn!(
                        "{error}; hosts of the LAN use the resolver that has this port"
                    ),
                }
            }
        }
        let limits = sumlink_dns::Limits::default();
        let server = sumlink_dns::Server::bind(&ports, clients, limits).await?;
        Ok(Self { server, address })
    }
}

/// Whether an address needs a scope; hosts ask the gateway at its other ones.
fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}
