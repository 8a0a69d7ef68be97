//! The programs' flows of datagrams, which the entries and the exit handle in the daemon.

use std::collections::BTreeMap;

use bytes::Bytes;
use sumlink_engine::{Class, DatagramPolicy, Event, FlowConfig, FlowError, FlowId, Session};

use crate::clock::duration;
use crate::log::Kind;
use crate::net::Net;
use crate::tcp::Side;
use crate::workload::{Channel, Progress};

/// Target of all flows: an address in the encoding of stream targets (IPv4, 10.99.0.1:5001).
const TARGET: [u8; 7] = [1, 10, 99, 0, 1, 0x13, 0x89];

/// Number of the first channel of a flow; lower ones are streams.
pub(super) const FIRST: Channel = 1 << 32;

/// A flow of a program, which continues when the session's flow ends.
#[derive(Clone, Copy, Debug)]
struct Flow {
    class: Option<Class>,
    policy: DatagramPolicy,
    /// The session's flow at each side.
    ids: [Option<FlowId>; 2],
}

/// All flows of a session.
#[derive(Debug, Default)]
pub(super) struct Flows {
    flows: Vec<Flow>,
    by_id: [BTreeMap<FlowId, usize>; 2],
    progress: Vec<Progress>,
    /// The first error of the engine.
    pub(super) fault: Option<String>,
}

impl Flows {
    /// A program opens a flow. Both sides send with the same policy, as when client and server are
    /// configured alike.
    pub(super) fn open(&mut self, class: Option<Class>, policy: DatagramPolicy) -> Channel {
        self.flows.push(Flow {
            class,
            policy,
            ids: [None; 2],
        });
        FIRST + self.flows.len() - 1
    }

    /// The program at a side sends a datagram. The server's can do so only after it has received
    /// one.
    pub(super) fn send(
        &mut self,
        channel: Channel,
        side: Side,
        payload: Bytes,
        session: &mut Session,
        net: &Net,
    ) -> Result<(), FlowError> {
        let (number, now) = (channel - FIRST, duration(net.now()));
        let flow = &mut self.flows[number];
        let id = match (flow.ids[side.index()], side) {
            (Some(id), _) => id,
            (None, Side::Server) => return Err(FlowError::Unknown),
            (None, Side::Client) => {
                let config = FlowConfig {
                    source: number as u64,
                    target: TARGET.to_vec(),
                    class: flow.class,
                    policy: flow.policy,
                };
                let id = session.open_flow(config, now)?;
                flow.ids[side.index()] = Some(id);
                self.by_id[side.index()].insert(id, number);
                id
            }
        };
        session.send_datagram(id, payload, now)
    }

    /// Handles an event of a session.
    pub(super) fn on_event(&mut self, event: &Event, side: Side, session: &mut Session, net: &Net) {
        match event {
            Event::FlowOpened { flow, source, .. } => {
                let Some(number) = usize::try_from(*source).ok() else {
                    return;
                };
                if let Some(of) = self.flows.get_mut(number) {
                    of.ids[side.index()] = Some(*flow);
                    self.by_id[side.index()].insert(*flow, number);
                    // The side that sends decides; the flow has just been opened.
                    let _ = session.set_flow_policy(*flow, of.policy, duration(net.now()));
                }
            }
            Event::FlowClosed { flow, .. } => {
                if let Some(number) = self.by_id[side.index()].remove(flow) {
                    let id = &mut self.flows[number].ids[side.index()];
                    *id = id.filter(|id| id != flow);
                }
            }
            _ => {}
        }
    }

    /// A datagram has arrived for the program at a side.
    pub(super) fn deliver(&mut self, side: Side, flow: FlowId, payload: Bytes, net: &mut Net) {
        let now = net.now();
        let len = payload.len() as u64;
        net.log().note(now, Kind::Datagram, flow, len);
        if let Some(number) = self.by_id[side.index()].get(&flow) {
            let channel = FIRST + number;
            self.progress
                .push(Progress::Datagram(channel, side, payload));
        }
    }

    pub(super) fn note_fault(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }

    pub(super) fn take_progress(&mut self) -> Vec<Progress> {
        std::mem::take(&mut self.progress)
    }
}
