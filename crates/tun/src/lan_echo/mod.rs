//! Echo requests of a LAN, captured from its interface.
//!
//! A gateway that captures TCP and UDP with a packet filter has no device that a LAN's echo
//! requests pass. They are copied from the LAN's interface instead (packet(7)); the packet filter
//! must drop the originals. Answers are sent with the remote's address as their source (raw(7)).
//!
//! Only requests that the host would route into the TUN device are answered: the kernel is asked
//! for the route of each destination.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use sumlink_proxy::class::class_of_datagrams;
use sumlink_proxy::{ClassRule, DatagramOpener, Flow, Origin, SourceLimit};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use crate::error::TunError;
use crate::mailbox::Item;
use crate::packet::icmp::{self, MAX_QUOTE, Problem, is_unicast};
use crate::packet::reassembly::Reassembly;
use crate::packet::{self, Body, Echo, Packet};
use crate::reporter::Reporter;
use crate::sources::{Key, Shared, Sources};
use crate::stack::is_right_echo;
use crate::stats::{Counters, StatsHandle};

mod answers;
mod capture;
mod routes;

use answers::Answers;
use capture::Capture;
use routes::Routes;

/// Interval between searches for a lost interface, and between removals of expired entries.
const LOOK: Duration = Duration::from_secs(1);

/// Most packets taken at once.
const TURN: usize = 32;

/// Captures the echo requests that arrive on a LAN interface. The interface may vanish and return.
pub struct LanEcho {
    interface: String,
    device: String,
    open: Open,
    routes: Routes,
    stats: StatsHandle,
}

/// The sockets of one incarnation of the interface.
struct Open {
    index: u32,
    capture: Capture,
    answers: Answers,
}

impl Open {
    fn new(interface: &str, index: u32) -> io::Result<Self> {
        Ok(Self {
            index,
            capture: Capture::open(index)?,
            answers: Answers::open(interface)?,
        })
    }
}

impl LanEcho {
    /// Opens the capture in the network namespace of the calling thread. Requests to destinations
    /// that are routed to the TUN device `device` will be answered. Must be called inside a tokio
    /// runtime with I/O.
    ///
    /// # Errors
    ///
    /// The interface does not exist, or the process may not capture.
    pub fn open(interface: &str, device: &str) -> Result<Self, TunError> {
        let index = if_nametoindex(interface)
            .map_err(|error| TunError::system(interface, "look up its index")(error.into()))?;
        let open = Open::new(interface, index).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => TunError::CaptureNotPermitted(interface.to_owned()),
            _ => TunError::system(interface, "capture echo requests")(error),
        })?;
        let routes =
            Routes::open().map_err(TunError::system(interface, "open a netlink socket"))?;
        Ok(Self {
            interface: interface.to_owned(),
            device: device.to_owned(),
            open,
            routes,
            stats: StatsHandle::default(),
        })
    }

    /// Reads the counters, also while the capture is served.
    pub fn stats(&self) -> StatsHandle {
        self.stats.clone()
    }

    /// Answers echo requests over `opener` until `shutdown` completes.
    pub async fn serve<D: DatagramOpener>(
        self,
        opener: D,
        limit: SourceLimit,
        classes: Arc<[ClassRule]>,
        shutdown: impl Future<Output = ()>,
    ) {
        let Self {
            interface,
            device,
            open,
            routes,
            stats,
        } = self;
        info!(%interface, "answering echo requests of the LAN");
        let counters = stats.counters();
        let Open {
            index,
            capture,
            answers,
        } = open;
        let answers = Arc::new(answers.counted(Arc::clone(&counters)));
        let shared = Arc::new(Shared {
            sink: Arc::clone(&answers),
            reporter: Reporter::new(Arc::clone(&answers), Arc::clone(&counters)),
            counters: Arc::clone(&counters),
        });
        let mut serving = Serving {
            sources: Sources::new(opener, limit, Arc::clone(&shared)),
            interface,
            device,
            index: Some(index),
            capture: Some(capture),
            answers,
            shared,
            routes,
            reassembly: Reassembly::default(),
            rules: classes,
            gateways: HashMap::new(),
            counters,
        };
        serving.run(shutdown).await;
        info!(interface = %serving.interface, "no longer answering echo requests of the LAN");
    }
}

struct Serving<D> {
    interface: String,
    device: String,
    /// The index of the interface; `None` while it does not exist.
    index: Option<u32>,
    capture: Option<Capture>,
    answers: Arc<Answers>,
    sources: Sources<D, Answers>,
    shared: Arc<Shared<Answers>>,
    routes: Routes,
    reassembly: Reassembly,
    rules: Arc<[ClassRule]>,
    /// The interface's addresses, from which errors are sent; by family.
    gateways: HashMap<bool, IpAddr>,
    counters: Arc<Counters>,
}

impl<D: DatagramOpener> Serving<D> {
    async fn run(&mut self, shutdown: impl Future<Output = ()>) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return,
                packets = Capture::read(self.capture.as_ref(), TURN) => {
                    for packet in packets {
                        self.handle(&packet).await;
                    }
                }
                () = self.sources.ended() => {}
                _ = look.tick() => self.look(),
            }
            let given_up = self.reassembly.take_given_up();
            self.counters.dropped.fragments.add(given_up);
        }
    }

    /// Opens the sockets again if the interface has returned, or another one has its name.
    fn look(&mut self) {
        self.reassembly.expire(Instant::now());
        self.gateways = gateways(&self.interface);
        let index = if_nametoindex(self.interface.as_str()).ok();
        if index == self.index {
            return;
        }
        self.index = index;
        self.capture = None;
        let Some(index) = index else {
            warn!(interface = %self.interface, "the LAN interface has vanished");
            return;
        };
        match Open::new(&self.interface, index) {
            Ok(open) => {
                info!(interface = %self.interface, "the LAN interface has returned");
                self.answers.replace(open.answers);
                self.capture = Some(open.capture);
            }
            Err(error) => {
                debug!(interface = %self.interface, %error, "cannot capture; trying again");
                self.index = None;
            }
        }
    }

    async fn handle(&mut self, bytes: &[u8]) {
        let now = Instant::now();
        self.counters.received(bytes.len());
        let Ok(packet) = packet::parse(bytes) else {
            return self.counters.dropped.malformed.increment();
        };
        if !is_unicast(packet.source) || !is_unicast(packet.destination) {
            return self.counters.dropped.not_unicast.increment();
        }
        if !self
            .routes
            .lead_to(packet.destination, &self.device, now)
            .await
        {
            return self.counters.dropped.own_address.increment();
        }
        if packet.hop_limit <= 1 {
            self.counters.dropped.hop_limit.increment();
            if icmp::may_report(&packet)
                && let Some(gateway) = self.gateways.get(&packet.source.is_ipv4())
            {
                let quote = &bytes[..packet.len];
                self.shared
                    .reporter
                    .report(Problem::HopLimit, *gateway, quote);
            }
            return;
        }
        match &packet.body {
            Body::Echo(echo) => self.echo(&packet, echo, bytes, false),
            Body::Fragment(fragment) => {
                let whole = self.reassembly.push(&packet, fragment, bytes, now);
                let Some(whole) = whole else {
                    return;
                };
                if let Ok(packet) = packet::parse(&whole)
                    && let Body::Echo(echo) = &packet.body
                {
                    self.counters.traffic.reassembled.increment();
                    self.echo(&packet, echo, &whole, true);
                }
            }
            _ => self.counters.dropped.icmp.increment(),
        }
    }

    fn echo(&mut self, packet: &Packet, echo: &Echo, bytes: &[u8], is_joined: bool) {
        if !is_right_echo(packet, echo, bytes) {
            return self.counters.dropped.checksum.increment();
        }
        let flow = Flow {
            port: 0,
            dscp: Some(packet.dscp),
            user: None,
        };
        let class = class_of_datagrams(&self.rules, &flow);
        let whole = Bytes::copy_from_slice(&bytes[..packet.len]);
        let item = Item {
            remote: SocketAddr::new(packet.destination, 0),
            payload: whole.slice(echo.payload.clone()),
            quote: whole.slice(..whole.len().min(MAX_QUOTE)),
            packet_len: whole.len(),
            is_joined,
            class,
        };
        let key = Key::Echo(packet.source, echo.id);
        self.sources.send(key, item, Origin::lan);
    }
}

/// An address of the interface for each family, by whether it is IPv4.
fn gateways(interface: &str) -> HashMap<bool, IpAddr> {
    let Ok(all) = getifaddrs() else {
        return HashMap::new();
    };
    let own = all.filter(|known| known.interface_name == interface);
    let addresses = own.filter_map(|known| {
        let address = known.address?;
        let v4 = address
            .as_sockaddr_in()
            .map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
    });
    // A link-local address would do as well, but the first one is as good as any.
    addresses
        .map(|address| (address.is_ipv4(), address))
        .collect()
}
