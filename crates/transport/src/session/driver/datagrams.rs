//! Moves datagrams between the engine, its datagram carriers and the programs' sources.
//!
//! A link has up to two datagram paths: its QUIC carrier, and its first TCP carrier, which takes
//! datagrams in frames ahead of stream data while the QUIC carrier is missing or does not deliver.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sumlink_bond::datagram::stand_ins;
use sumlink_bond::datagram::turns::{BATCH, PACKETS, SAMPLE_EVERY};
use sumlink_engine::{
    Class, CloseReason, DatagramCarrier as Kind, DatagramPathStats, DatagramPolicy, DatagramSample,
    FlowConfig, FlowError, FlowErrorCode, FlowId, PathId, Role,
};
use sumlink_exit::datagram::{FlowFailure, Received};
use sumlink_exit::target::Target;
use tokio::sync::mpsc::UnboundedSender;

use super::Driver;
use super::bucket::Bucket;
use super::carriers::link_number;
use crate::api::config::SessionConfig;
use crate::api::status::{DatagramPathStatus, FlowStatus};
use crate::carrier::quic::{DatagramCarrier, Ended, SendError};
use crate::session::sources::{Inbox, Outgoing, SourceHandle, Sources};

/// Bytes of QUIC, UDP and IPv6 around a packet.
const OVERHEAD: usize = 80;

/// Datagrams leave streams at least this part of a link's limit.
const MIN_REST: u64 = 20;

/// Most flows in a status.
const MAX_FLOWS: usize = 1000;

/// How this side's datagrams use the paths.
#[derive(Debug)]
pub(super) struct Policies {
    usual: DatagramPolicy,
    of_classes: BTreeMap<Class, DatagramPolicy>,
}

impl Policies {
    pub(super) fn new(config: &SessionConfig) -> Self {
        Self {
            usual: config.datagram_policy,
            of_classes: config.class_datagram_policies.clone(),
        }
    }

    /// The policy of a flow for which the program has none.
    fn of(&self, class: Option<Class>) -> DatagramPolicy {
        let own = class.and_then(|class| self.of_classes.get(&class));
        own.copied().unwrap_or(self.usual)
    }
}

/// The datagrams of a session's task.
#[derive(Debug)]
pub(super) struct Datagrams {
    carriers: Vec<Quic>,
    /// TCP carriers that stand in for a QUIC carrier of their link.
    streams: Vec<PathId>,
    sources: Arc<Sources>,
    /// Receives the sources that the peer opens; none if this side has no exit.
    exit: Option<UnboundedSender<SourceHandle>>,
    flows: HashMap<FlowId, Flow>,
    /// The flow to a remote of a source.
    by_remote: HashMap<(u64, Target), FlowId>,
    /// Sending limits of TCP carriers, in bytes per second; those of a link add up to its limit.
    limits: HashMap<PathId, u64>,
    /// Why a link has no QUIC carrier, by the link's name.
    reasons: HashMap<String, String>,
    requests: Vec<Outgoing>,
    /// When a limited carrier may send again.
    wake: Option<Instant>,
}

#[derive(Debug)]
struct Quic {
    carrier: DatagramCarrier,
    sampled: Instant,
    /// UDP bytes already counted as the link's usage.
    counted: u64,
    /// The limit of its link.
    bucket: Bucket,
    /// A packet for which the carrier had no room after all; it goes first.
    refused: Option<Bytes>,
}

#[derive(Debug)]
struct Flow {
    source: u64,
    remote: Target,
    inbox: Option<Arc<Inbox>>,
}

impl Datagrams {
    pub(super) fn new(sources: Arc<Sources>, exit: Option<UnboundedSender<SourceHandle>>) -> Self {
        sources.set_unsupported(false);
        Self {
            carriers: Vec::new(),
            streams: Vec::new(),
            sources,
            exit,
            flows: HashMap::new(),
            by_remote: HashMap::new(),
            limits: HashMap::new(),
            reasons: HashMap::new(),
            requests: Vec::new(),
            wake: None,
        }
    }

    /// When packets that wait for a limit may leave.
    pub(super) fn due(&self) -> Option<Instant> {
        self.wake
    }
}

impl Driver {
    /// Adds a QUIC carrier as the datagram path of its link.
    pub(super) fn add_datagrams(&mut self, carrier: DatagramCarrier) {
        let id = carrier.path();
        let quic = &self.datagrams.carriers;
        let is_known = quic.iter().any(|other| other.carrier.path() == id)
            || self.carriers.iter().any(|other| other.id == id);
        if self.engine.is_closed() || is_known || quic.len() >= self.max_paths {
            tracing::warn!(path = id.0, link = carrier.link(), "datagram path dropped");
            return;
        }
        tracing::info!(
            path = id.0,
            link = carrier.link(),
            remote = %carrier.remote(),
            "datagram path up"
        );
        let now = self.now();
        let link = link_number(carrier.link()).unwrap_or(id.0.into());
        self.datagrams.reasons.remove(carrier.link());
        let link_name = carrier.link().to_owned();
        // A former carrier of the link is obsolete: the client makes one at a time.
        while let Some(index) = self.quic_of(&link_name) {
            self.end_datagrams(index, "replaced by a new connection on the same link");
        }
        self.engine
            .datagram_path_up(id, Kind::Quic, link, false, now);
        let mut carrier = Quic {
            carrier,
            sampled: Instant::now(),
            counted: 0,
            bucket: Bucket::default(),
            refused: None,
        };
        let sample = carrier.sample();
        self.engine.datagram_path_stats(id, sample, now);
        self.datagrams.carriers.push(carrier);
        self.choose_stand_ins();
        self.follow_links(Duration::ZERO);
    }

    /// Ends the QUIC carrier of a link.
    pub(super) fn remove_datagrams(&mut self, link: &str, reason: &str) {
        while let Some(index) = self.quic_of(link) {
            self.end_datagrams(index, reason);
        }
    }

    /// Notes why a link has no QUIC carrier.
    pub(super) fn note_no_datagrams(&mut self, link: String, reason: String) {
        self.datagrams.reasons.insert(link, reason);
    }

    fn quic_of(&self, link: &str) -> Option<usize> {
        let mut carriers = self.datagrams.carriers.iter();
        carriers.position(|quic| quic.carrier.link() == link)
    }

    fn end_datagrams(&mut self, index: usize, reason: &str) {
        let quic = self.datagrams.carriers.swap_remove(index);
        quic.carrier.close(reason);
        if let Some(policies) = &self.listeners.policies {
            policies.count(quic.carrier.link(), quic.uncounted());
        }
        let (id, link) = (quic.carrier.path(), quic.carrier.link());
        if !self.engine.is_closed() {
            tracing::info!(path = id.0, link, reason, "datagram path down");
        }
        self.engine.datagram_path_down(id, self.now());
        self.choose_stand_ins();
    }

    /// Lets one TCP carrier of each link take datagrams, and no other. While the link's QUIC
    /// carrier delivers, the engine uses that one.
    pub(super) fn choose_stand_ins(&mut self) {
        let carriers = self.carriers.iter();
        let wanted = stand_ins(carriers.map(|carrier| (carrier.id, link_number(&carrier.link))));
        let now = self.now();
        let former = std::mem::take(&mut self.datagrams.streams);
        for id in &former {
            if !wanted.iter().any(|(wanted, _)| wanted == id) {
                self.engine.datagram_path_down(*id, now);
            }
        }
        for (id, link) in wanted {
            if !former.contains(&id) {
                let link = link.unwrap_or(id.0.into());
                self.engine
                    .datagram_path_up(id, Kind::Stream, link, false, now);
                let policy = self.engine.paths().find(|path| path.id() == id);
                if let Some(policy) = policy.map(|path| *path.policy()) {
                    self.engine.datagram_path_policy(id, policy, now);
                }
            }
            self.datagrams.streams.push(id);
        }
    }

    /// Takes the datagrams of programs; returns whether any were waiting.
    pub(super) fn take_datagrams(&mut self, cx: &mut Context<'_>) -> bool {
        let mut requests = std::mem::take(&mut self.datagrams.requests);
        self.datagrams.sources.take(cx, BATCH, &mut requests);
        let any = !requests.is_empty();
        let now = self.now();
        for request in requests.drain(..) {
            match request {
                Outgoing::Datagram {
                    source,
                    remote,
                    payload,
                    class,
                    policy,
                } => self.send_datagram(source, remote, payload, class, policy, now),
                Outgoing::Failed {
                    source,
                    remote,
                    failure,
                } => {
                    let flow = self.datagrams.by_remote.get(&(source, remote));
                    if let Some(flow) = flow {
                        self.engine.flow_failed(*flow, code_of(failure), now);
                    }
                }
                Outgoing::Closed { source } => self.close_source(source),
            }
        }
        self.datagrams.requests = requests;
        any
    }

    fn send_datagram(
        &mut self,
        source: u64,
        remote: Target,
        payload: Bytes,
        class: Option<Class>,
        policy: Option<DatagramPolicy>,
        now: sumlink_engine::Instant,
    ) {
        let key = (source, remote);
        let known = self.datagrams.by_remote.get(&key).copied();
        let flow = match known {
            Some(flow) => Ok(flow),
            None => self.open_flow(&key, class, policy, now),
        };
        let sent = flow.and_then(|flow| self.engine.send_datagram(flow, payload, now));
        let failure = match sent {
            Ok(()) => return self.datagrams.sources.set_unsupported(false),
            Err(FlowError::PeerWithoutDatagrams) => {
                return self.datagrams.sources.set_unsupported(true);
            }
            Err(FlowError::TooBig { most }) => FlowFailure::TooBig {
                mtu: u32::try_from(most).unwrap_or(u32::MAX),
            },
            Err(FlowError::NoMoreFlows) => FlowFailure::LimitReached,
            Err(_) => FlowFailure::Other,
        };
        if let Some(inbox) = self.datagrams.sources.inbox(source) {
            inbox.push(key.1, Received::Failed(failure));
        }
    }

    fn open_flow(
        &mut self,
        key: &(u64, Target),
        class: Option<Class>,
        policy: Option<DatagramPolicy>,
        now: sumlink_engine::Instant,
    ) -> Result<FlowId, FlowError> {
        let (source, remote) = key.clone();
        let policies = &self.datagram_policies;
        let policy = policy.unwrap_or_else(|| policies.of(class));
        let config = FlowConfig {
            source,
            target: remote.encode(),
            class,
            policy,
        };
        let flow = self.engine.open_flow(config, now)?;
        self.add_flow(flow, source, remote);
        Ok(flow)
    }

    fn add_flow(&mut self, id: FlowId, source: u64, remote: Target) {
        let inbox = self.datagrams.sources.inbox(source);
        let key = (source, remote.clone());
        self.datagrams.by_remote.insert(key, id);
        let flow = Flow {
            source,
            remote,
            inbox,
        };
        self.datagrams.flows.insert(id, flow);
    }

    fn close_source(&mut self, source: u64) {
        let flows = self.datagrams.flows.iter();
        let own = flows.filter(|(_, flow)| flow.source == source);
        let own: Vec<FlowId> = own.map(|(id, _)| *id).collect();
        let now = self.now();
        for id in own {
            self.engine.close_flow(id, now);
            self.forget_flow(id);
        }
    }

    fn forget_flow(&mut self, id: FlowId) -> Option<Flow> {
        let flow = self.datagrams.flows.remove(&id)?;
        let key = (flow.source, flow.remote.clone());
        if self.datagrams.by_remote.get(&key) == Some(&id) {
            self.datagrams.by_remote.remove(&key);
        }
        Some(flow)
    }

    /// The peer has opened a flow.
    pub(super) fn flow_opened(
        &mut self,
        id: FlowId,
        source: u64,
        target: &[u8],
        class: Option<Class>,
    ) {
        let now = self.now();
        let Ok(remote) = Target::decode(target) else {
            self.engine.flow_failed(id, FlowErrorCode::BadTarget, now);
            return self.engine.close_flow(id, now);
        };
        // The side that sends decides; the flow has just been opened.
        let _ = self
            .engine
            .set_flow_policy(id, self.datagram_policies.of(class), now);
        if self.datagrams.sources.inbox(source).is_none() {
            // A client's sources are its own: the server cannot open one.
            let exit = self.datagrams.exit.as_ref();
            let Some(exit) = exit.filter(|_| self.role == Role::Server) else {
                self.engine.flow_failed(id, FlowErrorCode::Forbidden, now);
                return self.engine.close_flow(id, now);
            };
            let handle = self.datagrams.sources.attach(source, class, None);
            let _ = exit.send(handle);
        }
        self.add_flow(id, source, remote);
    }

    /// The peer or the engine has ended a flow.
    pub(super) fn flow_closed(&mut self, id: FlowId, reason: CloseReason) {
        let Some(flow) = self.forget_flow(id) else {
            return;
        };
        tracing::trace!(flow = id, remote = %flow.remote, ?reason, "flow closed");
        let mut others = self.datagrams.flows.values();
        if self.role == Role::Server && !others.any(|other| other.source == flow.source) {
            self.datagrams.sources.end(flow.source);
        }
    }

    /// The peer reports that datagrams of a flow do not arrive.
    pub(super) fn flow_failed(&self, id: FlowId, code: FlowErrorCode) {
        if let Some(flow) = self.datagrams.flows.get(&id)
            && let Some(inbox) = &flow.inbox
        {
            inbox.push(flow.remote.clone(), Received::Failed(failure_of(code)));
        }
    }

    /// Gives the engine the packets of all QUIC carriers; returns whether any had arrived.
    pub(super) fn receive_datagrams(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut index = 0;
        while index < self.datagrams.carriers.len() {
            let now = self.epoch.elapsed();
            let (quic, engine) = (&mut self.datagrams.carriers[index], &mut self.engine);
            let id = quic.carrier.path();
            let mut fault = None;
            let received = quic.carrier.poll_receive(cx, BATCH, |packet| {
                if let Err(error) = engine.handle_datagram(id, packet, now) {
                    fault.get_or_insert(error);
                }
            });
            if let Some(error) = fault {
                tracing::warn!(%error, "the peer broke the protocol; its session is closed");
            }
            match received {
                Poll::Ready(Ok(_)) => {
                    moved = true;
                    index += 1;
                }
                Poll::Ready(Err(ended)) => self.end_datagrams(index, &ended.to_string()),
                Poll::Pending => index += 1,
            }
        }
        moved
    }

    /// Gives the engine the measurements of the QUIC carriers. Those of TCP carriers follow from
    /// their own samples.
    pub(super) fn sample_datagrams(&mut self) {
        let (clock, now) = (Instant::now(), self.now());
        for quic in &mut self.datagrams.carriers {
            if clock.duration_since(quic.sampled) >= SAMPLE_EVERY {
                quic.sampled = clock;
                let sample = quic.sample();
                self.engine
                    .datagram_path_stats(quic.carrier.path(), sample, now);
            }
        }
    }

    /// Gives every QUIC carrier the engine's packets for it; returns whether there were any.
    pub(super) fn transmit_datagrams(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut ended = Vec::new();
        self.datagrams.wake = None;
        for index in 0..self.datagrams.carriers.len() {
            match self.transmit_datagrams_on(index, cx) {
                Ok(any) => moved |= any,
                Err(reason) => {
                    let id = self.datagrams.carriers[index].carrier.path();
                    ended.push((id, reason.to_string()));
                }
            }
        }
        for (id, reason) in ended {
            let mut carriers = self.datagrams.carriers.iter();
            if let Some(index) = carriers.position(|quic| quic.carrier.path() == id) {
                self.end_datagrams(index, &reason);
            }
        }
        moved
    }

    fn transmit_datagrams_on(&mut self, index: usize, cx: &mut Context<'_>) -> Result<bool, Ended> {
        let (quic, engine) = (&mut self.datagrams.carriers[index], &mut self.engine);
        let id = quic.carrier.path();
        let mut packets = 0;
        while packets < PACKETS && quic.carrier.poll_writable(cx).is_ready() {
            // The engine gives no more than the carrier has room for.
            let now = self.epoch.elapsed();
            engine.datagram_path_stats(id, quic.sample(), now);
            let largest = quic.carrier.max_datagram();
            let before = packets;
            while packets < PACKETS {
                let clock = Instant::now();
                if !quic.bucket.has_tokens(clock) {
                    let due = quic.bucket.due(clock);
                    self.datagrams.wake = self.datagrams.wake.into_iter().chain([due]).min();
                    return Ok(packets > 0);
                }
                let packet = match quic.refused.take() {
                    Some(packet) => packet,
                    None => {
                        let now = self.epoch.elapsed();
                        let mut packet = Vec::with_capacity(largest);
                        if !engine.poll_datagram(id, largest, now, &mut packet) {
                            break;
                        }
                        Bytes::from(packet)
                    }
                };
                let len = packet.len();
                match quic.carrier.send(packet) {
                    Ok(()) => {
                        packets += 1;
                        quic.bucket.take(len + OVERHEAD);
                    }
                    Err(SendError::Full(packet)) => {
                        quic.refused = Some(packet);
                        break;
                    }
                    Err(SendError::Ended(reason)) => return Err(reason),
                    // The path's limit has just fallen: the packet is lost like any other, and the
                    // engine learns of it from the peer's reports.
                    Err(error) => tracing::trace!(path = id.0, %error, "datagram lost here"),
                }
            }
            if packets == before {
                break;
            }
        }
        Ok(packets > 0)
    }

    /// Gives the programs their datagrams; returns whether any had arrived.
    pub(super) fn deliver_datagrams(&mut self) -> bool {
        let mut any = false;
        while let Some((id, payload)) = self.engine.poll_received() {
            any = true;
            if let Some(flow) = self.datagrams.flows.get(&id)
                && let Some(inbox) = &flow.inbox
            {
                inbox.push(flow.remote.clone(), Received::Datagram(payload));
            }
        }
        self.must_yield |= any;
        any
    }

    /// Adds the packets of the QUIC carriers to the links' usage, and lets the carriers follow the
    /// policies and limits of their links.
    pub(super) fn follow_links(&mut self, elapsed: Duration) {
        let now = self.now();
        for index in 0..self.datagrams.carriers.len() {
            let quic = &self.datagrams.carriers[index];
            let (id, link) = (quic.carrier.path(), quic.carrier.link().to_owned());
            let number = link_number(&link);
            let own = self.carriers.iter().filter(|carrier| carrier.link == link);
            let own: Vec<PathId> = own.map(|carrier| carrier.id).collect();
            let stream_path = self.engine.paths().find(|path| own.contains(&path.id()));
            if let Some(policy) = stream_path.map(|path| *path.policy())
                && number.is_some()
            {
                self.engine.datagram_path_policy(id, policy, now);
            }
            let limits = own.iter().map(|id| self.datagrams.limits.get(id).copied());
            let limit: Option<u64> = limits
                .collect::<Option<Vec<u64>>>()
                .map(|all| all.iter().sum());
            let quic = &mut self.datagrams.carriers[index];
            quic.bucket
                .limit(limit.filter(|_| !own.is_empty()), Instant::now());
            let bytes = quic.uncounted();
            quic.counted += bytes;
            if let Some(policies) = &self.listeners.policies {
                policies.count(&link, bytes);
            }
            // Streams get the rest of the link's limit.
            let used = quic.bucket.take_used() as f64 / elapsed.as_secs_f64().max(0.01);
            for id in own {
                let Some(limit) = self.datagrams.limits.get(&id).copied() else {
                    continue;
                };
                let shared = limit.saturating_sub(used as u64).max(limit / MIN_REST);
                if let Some(carrier) = self.carriers.iter_mut().find(|carrier| carrier.id == id) {
                    carrier.limit(Some(shared));
                }
            }
        }
    }

    /// Notes the limit of a TCP carrier's link, in bytes per second.
    pub(super) fn note_limit(&mut self, id: PathId, rate: Option<u64>) {
        match rate {
            Some(rate) => self.datagrams.limits.insert(id, rate),
            None => self.datagrams.limits.remove(&id),
        };
    }

    /// The end of the session for its sources: a server's end, a client's wait for the next one.
    pub(super) fn end_all_datagrams(&mut self) {
        for quic in self.datagrams.carriers.drain(..) {
            quic.carrier.close("the session has ended");
        }
        self.datagrams.flows.clear();
        self.datagrams.by_remote.clear();
        if self.role == Role::Server {
            self.datagrams.sources.close();
        }
    }

    /// The datagram paths, for the status.
    pub(super) fn datagram_paths(&self) -> Vec<DatagramPathStatus> {
        let stats = self.engine.datagram_path_stats_all(self.now());
        // A TCP carrier that stands by is not worth a line.
        let is_shown = |path: &DatagramPathStats| {
            let is_quic = path.carrier == Kind::Quic;
            is_quic || path.in_use || self.quic_of(&self.link_of(path.id)).is_none()
        };
        let status = stats.into_iter().filter(is_shown).map(|path| {
            let quic = self.datagrams.carriers.iter();
            let quic = quic.map(|quic| &quic.carrier);
            let quic = quic.into_iter().find(|carrier| carrier.path() == path.id);
            let link = quic.map_or_else(|| self.link_of(path.id), |quic| quic.link().to_owned());
            let reason = match quic {
                Some(_) => String::new(),
                None if !self.listeners.udp => "UDP is switched off at this side".to_owned(),
                None => self
                    .datagrams
                    .reasons
                    .get(&link)
                    .cloned()
                    .unwrap_or_default(),
            };
            let sample = quic.map(DatagramCarrier::sample);
            DatagramPathStatus {
                id: path.id.0,
                carrier: if quic.is_some() { "udp" } else { "tcp" }.to_owned(),
                reason,
                link,
                state: path.health.name().to_owned(),
                srtt_ms: path.srtt.as_secs_f64() * 1e3,
                cwnd_bytes: sample.map_or(0, |sample| sample.cwnd),
                delay_ms: path.delay.as_secs_f64() * 1e3,
                rate_bps: path.rate * 8.0,
                max_datagram_bytes: path.max_packet as u64,
                packets_sent: path.packets_sent,
                packets_received: path.packets_received,
                bytes_sent: path.bytes_sent,
                bytes_received: path.bytes_received,
                packets_lost: path.packets_lost,
                queued_bytes: sample.map_or(0, |sample| sample.buffered as u64),
            }
        });
        status.collect()
    }

    /// Datagrams that waited too long for the session or for their program.
    pub(super) fn datagrams_dropped(&self) -> u64 {
        self.datagrams.sources.dropped()
    }

    /// The flows, for the status.
    pub(super) fn flow_statuses(&self) -> Vec<FlowStatus> {
        let flows = self.engine.flow_stats().take(MAX_FLOWS);
        let link_of = |id: PathId| {
            let mut quic = self.datagrams.carriers.iter();
            let quic = quic.find(|quic| quic.carrier.path() == id);
            quic.map_or_else(|| self.link_of(id), |quic| quic.carrier.link().to_owned())
        };
        flows
            .map(|flow| FlowStatus {
                id: flow.id,
                source: flow.source,
                target: Target::decode(&flow.target)
                    .map_or_else(|error| error.to_string(), |target| target.to_string()),
                class: flow.class.name().to_owned(),
                policy: flow.policy.name().to_owned(),
                reason: flow.reason.clone(),
                links: distinct(flow.paths.iter().map(|path| link_of(*path))),
                datagrams_sent: flow.sent,
                datagrams_received: flow.received,
                bytes_sent: flow.bytes_sent,
                bytes_received: flow.bytes_received,
                copies_sent: flow.copies_sent + flow.rescued,
                dropped: flow.drops.total(),
                dropped_full: flow.drops.full,
                dropped_late: flow.drops.late,
                dropped_codel: flow.drops.codel,
                dropped_too_big: flow.drops.too_big,
            })
            .collect()
    }
}

/// The names without repetitions, in the same order: a link has up to two paths for datagrams.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

impl Quic {
    fn sample(&mut self) -> DatagramSample {
        let sample = self.carrier.sample();
        DatagramSample {
            srtt: sample.srtt,
            min_rtt: sample.min_rtt,
            rttvar: sample.rttvar,
            cwnd: sample.cwnd,
            in_flight: sample.in_flight,
            max_datagram: sample.max_datagram,
            space: self.carrier.send_space() as u64,
        }
    }

    /// Bytes of IP packets in both directions that are not yet counted as the link's usage.
    fn uncounted(&self) -> u64 {
        let sample = self.carrier.sample();
        let packets = sample.sent_udp + sample.received_udp;
        let headers = if self.carrier.remote().is_ipv6() {
            48
        } else {
            28
        };
        let bytes = sample.sent_bytes + sample.received_bytes + headers * packets;
        bytes.saturating_sub(self.counted)
    }
}

fn code_of(failure: FlowFailure) -> FlowErrorCode {
    match failure {
        FlowFailure::Refused => FlowErrorCode::Refused,
        FlowFailure::HostUnreachable | FlowFailure::Filtered => FlowErrorCode::HostUnreachable,
        FlowFailure::NetworkUnreachable => FlowErrorCode::NetworkUnreachable,
        FlowFailure::TooBig { .. } => FlowErrorCode::TooBig,
        FlowFailure::NotAllowed => FlowErrorCode::Forbidden,
        FlowFailure::NameNotResolved => FlowErrorCode::NameNotFound,
        FlowFailure::LimitReached => FlowErrorCode::Limit,
        _ => FlowErrorCode::Other,
    }
}

fn failure_of(code: FlowErrorCode) -> FlowFailure {
    match code {
        FlowErrorCode::Refused => FlowFailure::Refused,
        FlowErrorCode::HostUnreachable | FlowErrorCode::TimedOut => FlowFailure::HostUnreachable,
        FlowErrorCode::NetworkUnreachable => FlowFailure::NetworkUnreachable,
        FlowErrorCode::TooBig => FlowFailure::TooBig { mtu: 0 },
        FlowErrorCode::Forbidden => FlowFailure::NotAllowed,
        FlowErrorCode::NameNotFound => FlowFailure::NameNotResolved,
        FlowErrorCode::Limit => FlowFailure::LimitReached,
        _ => FlowFailure::Other,
    }
}
