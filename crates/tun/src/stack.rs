//! Packets from the device, each passed on to the part that serves it.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sumlink_proxy::class::class_of_datagrams;
use sumlink_proxy::{ClassRule, DatagramOpener, Flow as ClassFlow, OpenError, Opener};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::debug;

use crate::config::Range;
use crate::device::{Device, Limits};
use crate::locals::Locals;
use crate::mailbox::Item;
use crate::nat::{Flow, Verdict};
use crate::packet::checksum::{Sum, pseudo_header};
use crate::packet::icmp::{self, MAX_QUOTE, Problem, is_unicast};
use crate::packet::reassembly::Reassembly;
use crate::packet::{self, Body, Datagram, Echo, Packet, Segment, build, protocol, rewrite};
use crate::port::{Input, Port};
use crate::reporter::Reporter;
use crate::sink::Sink;
use crate::sources::{Key, Shared, Sources};
use crate::stats::Counters;
use crate::tcp::{Connections, Listener, Reaction, refusal};

/// Most packets taken at once, before events of connections have their turn.
const TURN: usize = 32;

/// Time after the last connection's end in which its last segments are passed on, when the device
/// closes.
const REST: Duration = Duration::from_millis(300);

/// How often expired entries are removed.
const EXPIRY: Duration = Duration::from_secs(1);

/// A device at work.
pub(crate) struct Stack<O> {
    port: Arc<Port>,
    listener4: Option<Listener>,
    listener6: Option<Listener>,
    connections: Connections<O>,
    sources: Sources<O, Port>,
    shared: Arc<Shared<Port>>,
    reassembly: Reassembly,
    rules: Arc<[ClassRule]>,
    locals: Locals,
    counters: Arc<Counters>,
    is_closing: bool,
}

impl<O: Opener + DatagramOpener> Stack<O> {
    pub(crate) fn new(device: Device, opener: O, limits: Limits, rules: Arc<[ClassRule]>) -> Self {
        let Device {
            port,
            listener4,
            listener6,
            stats,
            ..
        } = device;
        let (port, counters) = (Arc::new(port), stats.counters());
        let range = |listener: &Option<Listener>| listener.as_ref().map(|own| own.range);
        let connections = Connections::new(
            opener.clone(),
            limits.connections,
            Arc::clone(&rules),
            [range(&listener4), range(&listener6)],
            Arc::clone(&counters),
        );
        let shared = Arc::new(Shared {
            sink: Arc::clone(&port),
            reporter: Reporter::new(Arc::clone(&port), Arc::clone(&counters)),
            counters: Arc::clone(&counters),
        });
        Self {
            sources: Sources::new(opener, limits.sources, Arc::clone(&shared)),
            port,
            listener4,
            listener6,
            connections,
            shared,
            reassembly: Reassembly::default(),
            rules,
            locals: Locals::default(),
            counters,
            is_closing: false,
        }
    }

    pub(crate) async fn run(mut self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let mut input = Input::new();
        let mut expiry = interval(EXPIRY);
        expiry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut end = None;
        tokio::pin!(shutdown);
        loop {
            if self.is_closing && self.connections.is_empty() {
                if self.connections.nat.is_empty() {
                    return Ok(());
                }
                end.get_or_insert_with(|| Instant::now() + REST);
            }
            tokio::select! {
                () = at(end) => return Ok(()),
                () = &mut shutdown, if !self.is_closing => self.is_closing = true,
                read = self.port.read(&mut input) => {
                    read?;
                    self.turn(&mut input).await?;
                }
                event = self.connections.event() => {
                    let reaction = self.connections.react(event, Instant::now());
                    self.react(reaction);
                }
                (local, peer) = Listener::next(&mut self.listener4) => {
                    self.connections.accepted(local, peer);
                }
                (local, peer) = Listener::next(&mut self.listener6) => {
                    self.connections.accepted(local, peer);
                }
                () = self.sources.ended() => {}
                _ = expiry.tick() => {
                    let now = Instant::now();
                    self.connections.nat.expire(now);
                    self.reassembly.expire(now);
                }
            }
            let given_up = self.reassembly.take_given_up();
            self.counters.dropped.fragments.add(given_up);
        }
    }

    /// Handles the packet in `input` and further ones.
    async fn turn(&mut self, input: &mut Input) -> io::Result<()> {
        self.handle(input).await;
        for _ in 1..TURN {
            match self.port.try_read(input) {
                Ok(()) => self.handle(input).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn handle(&mut self, input: &mut Input) {
        let now = Instant::now();
        let packet = match packet::parse(input.packet()) {
            Ok(packet) => packet,
            Err(error) => {
                debug!(%error, "a packet is dropped");
                return self.counters.dropped.malformed.increment();
            }
        };
        if let Body::Tcp(segment) = &packet.body
            && self.is_answer(&packet, segment)
        {
            return self.answer(&packet, segment, input, now);
        }
        if !self.is_for_others(&packet) {
            return;
        }
        let Body::Fragment(fragment) = &packet.body else {
            return self.serve(&packet, input, false, now).await;
        };
        let whole = self.reassembly.push(&packet, fragment, input.packet(), now);
        let Some(whole) = whole else {
            return;
        };
        self.counters.traffic.reassembled.increment();
        match packet::parse(&whole) {
            Ok(packet) => {
                let mut input = self.port.input(&whole);
                self.serve(&packet, &mut input, true, now).await;
            }
            Err(_) => self.counters.dropped.malformed.increment(),
        }
    }

    /// Whether the listener has sent this segment.
    fn is_answer(&self, packet: &Packet, segment: &Segment) -> bool {
        self.listener(packet).is_some_and(|listener| {
            listener.address == packet.from(segment.source_port)
                && listener.range.contains(packet.destination)
        })
    }

    /// Passes a segment of the listener on to the program.
    fn answer(&mut self, packet: &Packet, segment: &Segment, input: &mut Input, now: Instant) {
        let peer = packet.to(segment.destination_port);
        let flow = self.connections.nat.inbound(peer, segment.flags, now);
        let Some(Flow {
            source,
            destination,
        }) = flow
        else {
            return self.counters.dropped.no_connection.increment();
        };
        self.forward(segment.header, input, destination, source);
    }

    fn forward(
        &self,
        header: usize,
        input: &mut Input,
        source: std::net::SocketAddr,
        destination: std::net::SocketAddr,
    ) {
        let is_partial = input.is_partial();
        if rewrite(input.packet_mut(), header, is_partial, source, destination) {
            self.port.write_back(input.whole());
        }
    }

    /// Whether a packet from a program is for one other host, and may travel there.
    fn is_for_others(&self, packet: &Packet) -> bool {
        let dropped = &self.counters.dropped;
        let is_link_local = |ip: IpAddr| match ip {
            IpAddr::V4(_) => false,
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        let is_one_host = |ip| is_unicast(ip) && !is_link_local(ip);
        if !is_one_host(packet.source) || !is_one_host(packet.destination) {
            dropped.not_unicast.increment();
            return false;
        }
        // A packet from another address of the range is forged.
        let is_own = self.range(packet).is_none_or(|range| {
            let is_forged = range.contains(packet.source) && packet.source != range.own;
            range.contains(packet.destination) || is_forged
        });
        if is_own {
            dropped.own_address.increment();
            return false;
        }
        true
    }

    /// Serves a whole packet to another host.
    async fn serve(&mut self, packet: &Packet, input: &mut Input, is_joined: bool, now: Instant) {
        if packet.hop_limit <= 1 {
            self.counters.dropped.hop_limit.increment();
            return self.report(Problem::HopLimit, packet, input);
        }
        match &packet.body {
            Body::Tcp(segment) => self.segment(packet, segment, input, now).await,
            Body::Udp(datagram) => self.datagram(packet, datagram, input, is_joined, now),
            Body::Echo(echo) => self.echo(packet, echo, input, is_joined, now),
            Body::Icmp(_) => self.counters.dropped.icmp.increment(),
            // A whole packet is none.
            Body::Fragment(_) => self.counters.dropped.fragments.increment(),
            Body::Other(_) => {
                self.counters.dropped.protocol.increment();
                let at = packet.protocol_at as u32;
                self.report(Problem::Protocol { at }, packet, input);
            }
        }
    }

    async fn segment(
        &mut self,
        packet: &Packet,
        segment: &Segment,
        input: &mut Input,
        now: Instant,
    ) {
        let flow = Flow {
            source: packet.from(segment.source_port),
            destination: packet.to(segment.destination_port),
        };
        match self.connections.nat.outbound(&flow, segment.flags, now) {
            Verdict::Pass(peer) => {
                if let Some(listener) = self.listener(packet) {
                    let address = listener.address;
                    self.forward(segment.header, input, peer, address);
                }
            }
            Verdict::New => {
                let has_ports = flow.source.port() != 0 && flow.destination.port() != 0;
                let origin = self.locals.origin(flow.source, now);
                let is_opening = !self.is_closing
                    && has_ports
                    && self
                        .connections
                        .open(flow, origin, packet.dscp, input.whole(), now)
                        .await;
                if !is_opening {
                    self.counters.dropped.limit.increment();
                    self.reset(packet, segment);
                }
            }
            Verdict::Repeated => self.connections.repeated(&flow, input.whole()),
            Verdict::Canceled => {}
            Verdict::Unknown => {
                self.counters.dropped.no_connection.increment();
                self.reset(packet, segment);
            }
        }
    }

    fn reset(&self, packet: &Packet, segment: &Segment) {
        if let Some(reset) = build::reset(packet, segment) {
            self.port.packet(&reset);
        }
    }

    fn react(&self, reaction: Reaction) {
        match reaction {
            Reaction::None => {}
            Reaction::Pass(first, peer) => {
                let mut input = self.port.input_with_header(&first);
                let Ok(packet) = packet::parse(input.packet()) else {
                    return;
                };
                if let Body::Tcp(segment) = &packet.body
                    && let Some(listener) = self.listener(&packet)
                {
                    self.forward(segment.header, &mut input, peer, listener.address);
                }
            }
            Reaction::Refuse(first, error) => {
                let input = self.port.input_with_header(&first);
                let Ok(packet) = packet::parse(input.packet()) else {
                    return;
                };
                // The errors that a router would send. Other errors are not reported: programs take
                // a reset for a refusal by the target.
                let problem = match error {
                    OpenError::Unreachable => Some(Problem::Network),
                    OpenError::TimedOut => Some(Problem::Host),
                    _ => None,
                };
                match problem {
                    Some(problem) => {
                        let quote = &input.packet()[..packet.len];
                        self.shared
                            .reporter
                            .report(problem, packet.destination, quote);
                    }
                    None => {
                        if let Some(reset) = refusal(input.packet()) {
                            self.port.packet(&reset);
                        }
                    }
                }
            }
        }
    }

    fn datagram(
        &mut self,
        packet: &Packet,
        datagram: &Datagram,
        input: &Input,
        is_joined: bool,
        now: Instant,
    ) {
        let bytes = &input.packet()[..packet.len];
        if !input.is_trusted() && !is_right_udp(packet, datagram, bytes) {
            return self.counters.dropped.checksum.increment();
        }
        if datagram.source_port == 0 || datagram.destination_port == 0 {
            return self.counters.dropped.malformed.increment();
        }
        let remote = packet.to(datagram.destination_port);
        let key = Key::Udp(packet.from(datagram.source_port));
        let flow = ClassFlow {
            port: remote.port(),
            dscp: Some(packet.dscp),
            user: None,
        };
        let class = class_of_datagrams(&self.rules, &flow);
        let whole = Bytes::copy_from_slice(bytes);
        let payload = whole.slice(datagram.payload.clone());
        let size = input.segment().unwrap_or(payload.len()).max(1);
        // An empty datagram is one, too.
        let count = payload.len().div_ceil(size).max(1);
        for number in 0..count {
            let start = number * size;
            let part = payload.slice(start..payload.len().min(start + size));
            let item = Item {
                remote,
                packet_len: datagram.payload.start + part.len(),
                payload: part,
                quote: whole.slice(..whole.len().min(MAX_QUOTE)),
                is_joined,
                class,
            };
            self.send(key, item, now);
        }
    }

    fn echo(&mut self, packet: &Packet, echo: &Echo, input: &Input, is_joined: bool, now: Instant) {
        let bytes = &input.packet()[..packet.len];
        if !input.is_trusted() && !is_right_echo(packet, echo, bytes) {
            return self.counters.dropped.checksum.increment();
        }
        let flow = ClassFlow {
            port: 0,
            dscp: Some(packet.dscp),
            user: None,
        };
        let class = class_of_datagrams(&self.rules, &flow);
        let whole = Bytes::copy_from_slice(bytes);
        let item = Item {
            remote: packet.to(0),
            payload: whole.slice(echo.payload.clone()),
            quote: whole.slice(..whole.len().min(MAX_QUOTE)),
            packet_len: whole.len(),
            is_joined,
            class,
        };
        self.send(Key::Echo(packet.source, echo.id), item, now);
    }

    fn send(&mut self, key: Key, item: Item, now: Instant) {
        if self.is_closing {
            return;
        }
        let locals = &mut self.locals;
        self.sources
            .send(key, item, |source| locals.origin(source, now));
    }

    /// Reports a problem with a packet, in the name of the gateway: of a peer, because a host drops
    /// packets that seem to come from itself.
    fn report(&self, problem: Problem, packet: &Packet, input: &Input) {
        if !icmp::may_report(packet) {
            return;
        }
        let gateway = self
            .range(packet)
            .and_then(|range| range.peers().first().copied());
        if let Some(gateway) = gateway {
            let quote = &input.packet()[..packet.len];
            self.shared.reporter.report(problem, gateway, quote);
        }
    }

    fn listener(&self, packet: &Packet) -> Option<&Listener> {
        match packet.source {
            IpAddr::V4(_) => self.listener4.as_ref(),
            IpAddr::V6(_) => self.listener6.as_ref(),
        }
    }

    /// The device's range of the packet's family.
    fn range(&self, packet: &Packet) -> Option<Range> {
        self.listener(packet).map(|listener| listener.range)
    }
}

/// Waits until this time; forever without one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Whether the checksum of a UDP datagram is correct. It is optional over IPv4.
fn is_right_udp(packet: &Packet, datagram: &Datagram, bytes: &[u8]) -> bool {
    let udp = &bytes[datagram.header..datagram.payload.end];
    if udp[6..8] == [0, 0] {
        return packet.source.is_ipv4();
    }
    let sum = pseudo_header(packet.source, packet.destination, protocol::UDP, udp.len());
    sum.plus(udp).checksum() == 0
}

/// Whether the checksum of an echo request is correct.
pub(crate) fn is_right_echo(packet: &Packet, echo: &Echo, bytes: &[u8]) -> bool {
    let message = &bytes[echo.header..packet.len];
    let sum = match packet.source {
        IpAddr::V4(_) => Sum::default(),
        IpAddr::V6(_) => pseudo_header(
            packet.source,
            packet.destination,
            protocol::ICMP6,
            message.len(),
        ),
    };
    sum.plus(message).checksum() == 0
}
