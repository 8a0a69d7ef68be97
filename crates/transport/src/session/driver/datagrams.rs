//! Moves datagrams between the engine, its datagram carriers and the programs' sources.
//!
//! A link has up to two datagram paths: its QUIC carrier, and its first TCP carrier, which takes
//! datagrams in frames ahead of stream data while the QUIC carrier is missing or does not deliver.

mod flows;
mod status;

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sumlink_bond::datagram::stand_ins;
use sumlink_bond::datagram::turns::{BATCH, PACKETS, SAMPLE_EVERY};
use sumlink_engine::{DatagramCarrier as Kind, DatagramSample, FlowId, PathId, Role};
use sumlink_exit::datagram::Received;
use sumlink_exit::target::Target;
use tokio::sync::mpsc::UnboundedSender;

pub(super) use flows::Policies;

use super::Driver;
use super::bucket::Bucket;
use super::carriers::{CarrierNews, link_number};
use crate::carrier::Moved;
use crate::carrier::quic::{DatagramCarrier, Ended, SendError};
use crate::session::sources::{Inbox, Outgoing, SourceHandle, Sources};

/// Bytes of QUIC, UDP and IPv6 around a packet.
const OVERHEAD: usize = 80;

/// After this time without flows the client ends its QUIC connections: each costs a server memory
/// and a packet every ten seconds. Until new ones are made, datagrams take the TCP carriers.
const KEPT: Duration = Duration::from_secs(60);

/// Datagrams leave streams at least this part of a link's limit.
const MIN_REST: u64 = 20;

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
    /// How long QUIC is kept without flows.
    kept: Duration,
    /// Since when there has been no flow; none while there is one.
    quiet_since: Option<Instant>,
    /// The manager has learned that the session can do without QUIC.
    is_resting: bool,
}

#[derive(Debug)]
struct Quic {
    carrier: DatagramCarrier,
    sampled: Instant,
    /// UDP bytes already counted as the link's usage.
    counted: Moved,
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
            kept: KEPT,
            quiet_since: None,
            is_resting: false,
        }
    }

    pub(super) fn has_flows(&self) -> bool {
        !self.flows.is_empty()
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
        let reason = if self.engine.is_closed() {
            Some("the session is closed")
        } else if is_known {
            Some("the session has a path with this number")
        } else if quic.len() >= self.max_paths {
            Some("the session has the most datagram paths")
        } else {
            None
        };
        if let Some(reason) = reason {
            tracing::warn!(
                path = id.0,
                link = carrier.link(),
                reason,
                "datagram path dropped; datagrams use the other paths"
            );
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
        self.totals.note_link(&link_name);
        // A former carrier of the link is obsolete: the client makes one at a time.
        while let Some(index) = self.quic_of(&link_name) {
            self.end_datagrams(index, "replaced by a new connection on the same link");
        }
        self.engine
            .datagram_path_up(id, Kind::Quic, link, false, now);
        let mut carrier = Quic {
            carrier,
            sampled: Instant::now(),
            counted: Moved::default(),
            bucket: Bucket::default(),
            refused: None,
        };
        let sample = carrier.sample();
        self.engine.datagram_path_stats(id, sample, now);
        self.datagrams.carriers.reserve_exact(1);
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

    /// At a client, notifies the manager when QUIC is wanted, and when it is not.
    pub(super) fn notify_datagrams(&mut self) {
        let Some(listener) = &self.listeners.carriers else {
            return;
        };
        let now = Instant::now();
        let datagrams = &mut self.datagrams;
        let rests = match datagrams.has_flows() {
            true => {
                datagrams.quiet_since = None;
                false
            }
            false => now >= *datagrams.quiet_since.get_or_insert(now) + datagrams.kept,
        };
        if std::mem::replace(&mut datagrams.is_resting, rests) != rests {
            let _ = listener.send(CarrierNews::Datagrams(!rests));
        }
    }

    /// When QUIC is no longer wanted, unless a flow begins.
    pub(super) fn rest_due(&self) -> Option<Instant> {
        let datagrams = &self.datagrams;
        let waits = self.listeners.carriers.is_some() && !datagrams.is_resting;
        let since = datagrams.quiet_since.filter(|_| waits);
        since.map(|at| at + datagrams.kept)
    }

    /// Replaces the time for which QUIC is kept without flows.
    #[cfg(test)]
    pub(crate) fn keep_datagrams_for(&mut self, time: Duration) {
        self.datagrams.kept = time;
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
        self.listeners.count(quic.carrier.link(), quic.uncounted());
        let (id, link) = (quic.carrier.path(), quic.carrier.link());
        if !self.engine.is_closed() {
            tracing::info!(path = id.0, link, reason, "datagram path down");
        }
        self.note_datagrams_of(id);
        self.engine.datagram_path_down(id, self.now());
        self.choose_stand_ins();
    }

    /// Adds the counters of a path of datagrams, which is about to end, to the totals of its link.
    pub(super) fn note_datagrams_of(&mut self, id: PathId) {
        let all = self.engine.datagram_path_stats_all(self.now());
        if let Some(stats) = all.iter().find(|path| path.id == id) {
            self.totals.ended_datagrams(stats);
        }
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
                self.note_datagrams_of(*id);
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
            let moved = quic.uncounted();
            quic.counted.sent += moved.sent;
            quic.counted.received += moved.received;
            self.listeners.count(&link, moved);
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
            self.listeners.count(quic.carrier.link(), quic.uncounted());
            quic.carrier.close("the session has ended");
        }
        self.datagrams.flows.clear();
        self.datagrams.by_remote.clear();
        if self.role == Role::Server {
            self.datagrams.sources.close();
        }
    }
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

    /// Bytes of IP packets that are not yet counted as the link's usage.
    fn uncounted(&self) -> Moved {
        let sample = self.carrier.sample();
        let headers = if self.carrier.remote().is_ipv6() {
            48
        } else {
            28
        };
        let total = Moved {
            sent: sample.sent_bytes + headers * sample.sent_udp,
            received: sample.received_bytes + headers * sample.received_udp,
        };
        total.since(self.counted)
    }
}
