//! One end at work: the core, its tunnels and its device. The caller supplies the time.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use sumlink_edge::flow::FlowKey;
use sumlink_edge::lwa::{self, SequenceBits};
use sumlink_edge::{Counters, Edge, Event, FlowReport, Instant, LinkId, Mode};

use crate::config::{NodeConfig, Role};
use crate::device::Device;
use crate::error::NodeError;
use crate::receive::Receive;
use crate::status::{FlowStatus, LinkStatus, NodeStatus};
use crate::tunnel::{State, Tunnel};
use crate::wire::{Header, Kind};

/// Most flows in a status report.
const MAX_FLOWS: usize = 32;

/// An event for immediate notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Notice {
    /// A link came up or went down.
    Link {
        /// Name of the link.
        link: String,
        /// `up` or `down`.
        state: &'static str,
    },
    /// Both ends of a flow were sent a reset.
    FlowReset {
        /// The server's address and port.
        far: String,
        /// The user's address and port.
        user: String,
        /// The reason.
        reason: &'static str,
        /// Bytes acknowledged to the server that the user did not receive.
        undelivered: u64,
    },
}

pub(crate) struct End {
    role: Role,
    core: Edge,
    mode: Mode,
    steering: String,
    /// Kind of the numbered packets that this end sends.
    kind: Kind,
    tunnel: u16,
    epoch: u32,
    only: Option<usize>,
    pub(crate) tunnels: Vec<Tunnel>,
    /// Whether the core may use the link.
    used: Vec<bool>,
    receive: Receive,
    pub(crate) device: Device,
    device_name: String,
    pub(crate) notices: Vec<Notice>,
}

impl End {
    pub(crate) fn new(
        config: NodeConfig,
        device: Device,
        tunnels: Vec<Tunnel>,
    ) -> Result<Self, NodeError> {
        let kind = match (config.core.mode, config.core.sequence_bits) {
            (Mode::Lwa, SequenceBits::Twelve) => Kind::Pdu12,
            (Mode::Lwa, SequenceBits::Eighteen) => Kind::Pdu18,
            _ => Kind::Packet,
        };
        let mut end = Self {
            role: config.role,
            mode: config.core.mode,
            steering: config.core.steering.clone(),
            kind,
            tunnel: config.tunnel,
            epoch: epoch_now(),
            only: config.only,
            used: vec![true; tunnels.len()],
            receive: Receive::new(config.reorder),
            device,
            device_name: config.tun.name,
            notices: Vec::new(),
            core: Edge::new(config.core)?,
            tunnels,
        };
        end.choose(Instant::ZERO);
        Ok(end)
    }

    /// Handles a packet from the device.
    pub(crate) fn handle_device(&mut self, packet: &[u8], now: Instant) {
        self.core.handle_far(packet.to_vec(), now);
        self.settle(now);
    }

    /// Handles a datagram received over a link.
    pub(crate) fn handle_datagram(&mut self, link: usize, datagram: &[u8], now: Instant) {
        let read = Header::read(datagram).filter(|(header, _)| header.tunnel == self.tunnel);
        let Some((header, payload)) = read else {
            self.tunnels[link].counts.foreign += 1;
            return;
        };
        let bits = match header.kind {
            Kind::Packet => {
                self.core.handle_user(payload.to_vec(), now);
                return self.settle(now);
            }
            Kind::Pdu12 => SequenceBits::Twelve,
            Kind::Pdu18 => SequenceBits::Eighteen,
            Kind::Probe => return self.control(link, Kind::Answer, payload, now),
            Kind::Answer => return self.answered(link, payload, now),
        };
        let core = &mut self.core;
        let give = |packet| core.handle_user(packet, now);
        self.receive
            .handle_pdu(bits, header.epoch, payload, now, give);
        self.settle(now);
    }

    /// The earliest deadline.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Instant {
        let tunnels = self.tunnels.iter().flat_map(|tunnel| {
            // The kernel reports when a blocked socket has room.
            let paced = !tunnel.is_blocked() && !tunnel.pace.is_ready(now);
            let ready = paced.then(|| tunnel.pace.ready());
            [Some(tunnel.liveness.poll_timeout()), ready]
        });
        let others = [self.core.poll_timeout(), self.receive.poll_timeout()];
        let all = tunnels.chain(others).flatten();
        all.min().unwrap_or(Instant::MAX)
    }

    /// Handles all deadlines that have passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.core.poll_timeout().is_some_and(|at| at <= now) {
            self.core.handle_timeout(now);
        }
        let core = &mut self.core;
        let give = |packet| core.handle_user(packet, now);
        self.receive.handle_timeout(now, give);
        for link in 0..self.tunnels.len() {
            if self.tunnels[link].liveness.is_due(now) {
                self.tunnels[link].counts.probes += 1;
                let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
                self.control(link, Kind::Probe, &nanos.to_be_bytes(), now);
            }
            if self.tunnels[link].liveness.expire(now) {
                self.changed(link, now);
            }
        }
        self.settle(now);
    }

    /// Sends a probe or an answer. It skips the queue: it must arrive while data has to wait.
    fn control(&mut self, link: usize, kind: Kind, payload: &[u8], now: Instant) {
        let mut datagram = Vec::new();
        self.header(kind).write(payload, &mut datagram);
        self.tunnels[link].send_control(kind, datagram, now);
    }

    fn answered(&mut self, link: usize, payload: &[u8], now: Instant) {
        let Ok(bytes) = payload.try_into() else {
            return;
        };
        let tunnel = &mut self.tunnels[link];
        tunnel.counts.answers += 1;
        let sent = Instant::from_nanos(u64::from_be_bytes(bytes));
        if tunnel.liveness.answered(sent, now) {
            self.changed(link, now);
        }
        self.settle(now);
    }

    /// Handles a link that has come up or gone down.
    fn changed(&mut self, link: usize, now: Instant) {
        let tunnel = &mut self.tunnels[link];
        let (name, state) = (&tunnel.name, tunnel.liveness.state);
        match state {
            State::Down => {
                tracing::warn!(link = %name, "link down; its probes are unanswered")
            }
            _ => tracing::info!(link = %name, "link up"),
        }
        self.notices.push(Notice::Link {
            link: name.clone(),
            state: state.name(),
        });
        if state == State::Down {
            tunnel.clear();
        }
        self.choose(now);
    }

    /// Reports to the core which links it may use.
    fn choose(&mut self, now: Instant) {
        let alive = |link: usize| self.tunnels[link].liveness.state != State::Down;
        let only = self.only.filter(|&link| alive(link));
        let wanted: Vec<bool> = (0..self.tunnels.len())
            .map(|link| alive(link) && only.is_none_or(|only| only == link))
            .collect();
        // A link that comes up takes over the packets of those that go down.
        for up in [true, false] {
            for (link, &is_wanted) in wanted.iter().enumerate() {
                if is_wanted != up || self.used[link] == up {
                    continue;
                }
                let id = LinkId(link as u8);
                match up {
                    true => self.core.link_up(id, now),
                    false => self.core.link_down(id, now),
                }
                self.used[link] = up;
            }
        }
    }

    /// Drains the core: the second half of its calling rules. Packets leave with [`End::flush`].
    pub(crate) fn settle(&mut self, now: Instant) {
        while let Some(event) = self.core.poll_event() {
            self.report_event(event);
        }
        while let Some(packet) = self.core.poll_far() {
            self.device.write(&packet);
        }
        for link in 0..self.tunnels.len() {
            self.pump(link, now);
        }
    }

    /// Takes packets from the core while the link has room.
    fn pump(&mut self, link: usize, now: Instant) {
        let (packets, numbered) = (self.header(Kind::Packet), self.header(self.kind));
        let tunnel = &mut self.tunnels[link];
        if tunnel.is_blocked() && !tunnel.resume(now) || !tunnel.pace.is_ready(now) {
            return;
        }
        while tunnel.takes_more(now) {
            let Some(packet) = self.core.poll_link(LinkId(link as u8), now) else {
                return;
            };
            // In `lwa`, users beyond the bound have no numbers.
            let header = match lwa::is_numbered(&packet) {
                true => numbered,
                false => packets,
            };
            tunnel.push(header, &packet, now);
        }
    }

    /// Passes the pending packets to the device and to the links.
    pub(crate) fn flush(&mut self) {
        self.device.flush();
        for tunnel in &mut self.tunnels {
            tunnel.flush();
        }
    }

    fn header(&self, kind: Kind) -> Header {
        Header {
            kind,
            tunnel: self.tunnel,
            epoch: self.epoch,
        }
    }

    fn report_event(&mut self, event: Event) {
        match event {
            Event::FlowReset {
                flow,
                reason,
                undelivered,
            } => {
                let reason = match reason {
                    sumlink_edge::Reset::Undeliverable => "undeliverable",
                    sumlink_edge::Reset::Orphaned => "orphaned",
                };
                tracing::warn!(
                    far = %flow.far,
                    user = %flow.user,
                    reason,
                    undelivered,
                    "a flow was reset at both ends"
                );
                self.notices.push(Notice::FlowReset {
                    far: flow.far.to_string(),
                    user: flow.user.to_string(),
                    reason,
                    undelivered,
                });
            }
            Event::LinkDown { link, moved, lost } => {
                tracing::debug!(
                    link = link.0,
                    moved,
                    lost,
                    "moved the packets of a link that went down"
                );
            }
            _ => {}
        }
    }

    /// Sets the rate of a link.
    pub(crate) fn set_rate(&mut self, link: usize, rate: Option<u64>, now: Instant) {
        self.tunnels[link].pace.set_rate(rate, now);
        self.settle(now);
    }

    /// The status of this end.
    pub(crate) fn status(&self, now: Instant) -> NodeStatus {
        let ms = |time: Instant| time.as_secs_f64() * 1e3;
        let links = self.tunnels.iter().enumerate().map(|(number, tunnel)| {
            let queue = self.core.link(LinkId(number as u8));
            let counts = tunnel.counts;
            LinkStatus {
                name: tunnel.name.clone(),
                state: tunnel.liveness.state.name().to_owned(),
                rtt_ms: tunnel.liveness.rtt.map(ms),
                trip_ms: queue.and_then(|queue| queue.trip()).map(ms),
                queue_packets: queue.map_or(0, |queue| queue.len()),
                queue_bytes: queue.map_or(0, |queue| queue.bytes()),
                queue_limit: queue.map_or(0, |queue| queue.limit()),
                interface_queue_bytes: tunnel.interface_bytes(),
                rate_bps: tunnel.pace.rate(),
                service_bps: queue.and_then(|queue| queue.rate()).map(|rate| rate * 8.0),
                sent_packets: counts.sent_packets,
                sent_bytes: counts.sent_bytes,
                received_packets: counts.received_packets,
                received_bytes: counts.received_bytes,
                probes: counts.probes,
                answers: counts.answers,
                refused: counts.refused,
                foreign: counts.foreign,
            }
        });
        let mode = Mode::NAMES.iter().find(|(_, mode)| *mode == self.mode);
        NodeStatus {
            role: self.role.name().to_owned(),
            mode: mode.map_or("", |(name, _)| *name).to_owned(),
            steering: self.steering.clone(),
            device: self.device_name.clone(),
            uptime_s: now.as_secs_f64(),
            links: links.collect(),
            core: Counters {
                busy_flows: self.core.busy_flows(now),
                ..self.core.counters()
            },
            reorder: self.receive.stats(),
            device_refused: self.device.refused,
            flows: self.flows(),
        }
    }

    fn flows(&self) -> Vec<FlowStatus> {
        let flow = |(key, report): (FlowKey, FlowReport)| FlowStatus {
            far: key.far.to_string(),
            user: key.user.to_string(),
            outstanding_bytes: report.outstanding,
            owed_bytes: report.owed,
            kept_bytes: report.kept,
            duplicates: report.duplicates,
            held_average: report.held_average,
            held_ms: report.held_for.as_secs_f64() * 1e3,
            retransmissions: report.retransmissions,
        };
        self.core.flows().take(MAX_FLOWS).map(flow).collect()
    }
}

/// The epoch of an end that starts now. Its unit of 64 ms is shorter than a start, and half the
/// number space lasts four years.
fn epoch_now() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| (now.as_millis() / 64) as u32)
}
