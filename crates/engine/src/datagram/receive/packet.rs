//! Packets that arrive on a path.

use bytes::Bytes;

use super::order::Arrival;
use super::window::Seen;
use crate::datagram::control::Control;
use crate::datagram::flow::table::FlowRef;
use crate::datagram::flow::{Flow, FlowConfig};
use crate::datagram::state::Datagrams;
use crate::datagram::wire::{Data, Header, Record, Records};
use crate::datagram::{CloseReason, DatagramPolicy, FlowErrorCode, FlowId};
use crate::{Class, Event, Instant, PathId, ProtocolError, Role};

/// Payloads that are smaller than this part of their packet are copied, so that they do not keep
/// the whole packet in memory.
const COPY_BELOW: usize = 4;

impl Datagrams {
    /// Handles a packet. An error is the peer's fault and ends the session.
    pub(crate) fn handle(
        &mut self,
        id: PathId,
        packet: &Bytes,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        self.handled = self.handled.max(now);
        let mut rest = &packet[..];
        let Some(header) = Header::decode(&mut rest) else {
            self.counters.malformed += 1;
            return Ok(());
        };
        let Some(path) = self.paths.get_mut(id) else {
            self.counters.ignored += 1;
            return Ok(());
        };
        path.counters.packets_received += 1;
        path.counters.bytes_received += packet.len() as u64;
        if !path.arrivals.note(header.number, now) {
            self.counters.ignored += 1;
            return Ok(());
        }
        let sent_at = self.clock.extend(header.sent_at, now);
        let newest = path.incoming.note(sent_at, now);
        self.peer_speaks = true;
        let (mut elicits, mut is_urgent) = (false, false);
        for record in Records::new(rest) {
            let Ok(record) = record else {
                self.counters.malformed += 1;
                break;
            };
            match record {
                Record::Ping => is_urgent = true,
                Record::Data(data) => self.on_data((id, sent_at), &data, packet, now),
                Record::Report(report) => {
                    self.on_report(&report, now)?;
                    continue;
                }
                Record::Close { flow, reason } => self.on_close(flow, reason, now),
                Record::Failed {
                    flow,
                    version,
                    code,
                } => self.on_failed(flow, version, code),
            }
            elicits = true;
        }
        if elicits && let Some(path) = self.paths.get_mut(id) {
            path.reporting.note(is_urgent, now);
        }
        self.end_waits_on(id, newest, now);
        Ok(())
    }

    fn on_data(
        &mut self,
        (path, sent_at): (PathId, i64),
        data: &Data<'_>,
        packet: &Bytes,
        now: Instant,
    ) {
        let Some(at) = self.flow_of(data, now) else {
            return;
        };
        self.note_activity(at, now);
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let seen = flow.inbound.window.check(data.sequence);
        if seen != Seen::New {
            match seen {
                Seen::TooOld => self.counters.too_old += 1,
                _ => self.counters.duplicates += 1,
            }
            return;
        }
        // No path has a larger number. Only one half of a datagram mentions a path.
        let after = data.after.and_then(|after| u32::try_from(after).ok());
        if let Some(after) = after {
            self.on_mention(at, PathId(after), now);
        }
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let payload = match data.half {
            None => payload_of(data, packet),
            Some(half) => {
                let limits = &self.config;
                let (id, sequence) = (flow.id, data.sequence);
                let fragments = &mut self.fragments;
                match fragments.add(id, sequence, half, data.payload, limits, now) {
                    Some(whole) => whole,
                    None => return,
                }
            }
        };
        let arrival = Arrival {
            sequence: data.sequence,
            payload,
            path,
            sent_at,
            at: now,
        };
        self.on_arrival(at, arrival);
    }

    /// The flow of a datagram; a new one if the datagram opens it.
    fn flow_of(&mut self, data: &Data<'_>, now: Instant) -> Option<FlowRef> {
        if let Some(at) = self.flows.find(data.flow) {
            // The peer knows a flow that it sends in.
            if let Some(flow) = self.flows.get_mut(at) {
                flow.confirmed = true;
            }
            return Some(at);
        }
        if self.has_ended(data.flow) {
            self.counters.ended += 1;
            if !self.has_just_ended(data.flow, now) {
                self.refuse(data.flow, CloseReason::Forgotten, now);
            }
            return None;
        }
        let is_peers = (data.flow % 2 == 1) == (self.role == Role::Client);
        let Some(open) = data.open.filter(|_| is_peers) else {
            self.counters.unknown += 1;
            self.refuse(data.flow, CloseReason::Forgotten, now);
            return None;
        };
        if !self.make_room(now) {
            self.counters.flows_refused += 1;
            self.refuse(data.flow, CloseReason::Evicted, now);
            return None;
        }
        let class = Class::of_open(open.class).flatten();
        let config = FlowConfig {
            source: open.source,
            target: open.target.to_vec(),
            class,
            policy: DatagramPolicy::default(),
        };
        let (source, target) = (open.source, open.target.to_vec());
        let mut flow = Flow::new(data.flow, config, &self.config, now);
        flow.confirmed = true;
        self.counters.flows_opened += 1;
        self.events.push_back(Event::FlowOpened {
            flow: data.flow,
            source,
            target,
            class,
        });
        Some(self.flows.insert(flow, now))
    }

    /// Informs the peer that a flow does not exist here.
    fn refuse(&mut self, flow: FlowId, reason: CloseReason, now: Instant) {
        self.note_ended(flow, now);
        self.controls.push(Control::Close { flow, reason }, now);
    }

    fn on_close(&mut self, flow: FlowId, reason: u64, now: Instant) {
        let reason = CloseReason::by_code(reason);
        if let Some(at) = self.flows.find(flow) {
            self.forget_flow(at, now);
            self.events.push_back(Event::FlowClosed { flow, reason });
        }
    }

    fn on_failed(&mut self, id: FlowId, version: u64, code: u64) {
        let at = self.flows.find(id);
        if let Some(flow) = at.and_then(|at| self.flows.get_mut(at))
            && version > flow.failure_received
        {
            flow.failure_received = version;
            let code = FlowErrorCode::by_code(code);
            self.events.push_back(Event::FlowFailed { flow: id, code });
        }
    }
}

/// The payload of a datagram, which shares the memory of its packet unless it is a small part.
fn payload_of(data: &Data<'_>, packet: &Bytes) -> Bytes {
    match data.payload.len() < packet.len() / COPY_BELOW {
        true => Bytes::copy_from_slice(data.payload),
        false => packet.slice_ref(data.payload),
    }
}
