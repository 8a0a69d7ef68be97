//! The flows of a session's datagrams: their sources, policies and failures.

use std::collections::BTreeMap;
use std::task::Context;

use bytes::Bytes;
use sumlink_bond::datagram::turns::BATCH;
use sumlink_engine::{
    Class, CloseReason, DatagramPolicy, FlowConfig, FlowError, FlowErrorCode, FlowId, Role,
};
use sumlink_exit::datagram::{FlowFailure, Received};
use sumlink_exit::target::Target;

use super::Flow;
use crate::api::config::SessionConfig;
use crate::session::driver::Driver;
use crate::session::sources::Outgoing;

/// How this side's datagrams use the paths.
#[derive(Debug)]
pub(in crate::session::driver) struct Policies {
    usual: DatagramPolicy,
    of_classes: BTreeMap<Class, DatagramPolicy>,
}

impl Policies {
    pub(in crate::session::driver) fn new(config: &SessionConfig) -> Self {
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

impl Driver {
    /// Takes the datagrams of programs; returns whether any were waiting.
    pub(in crate::session::driver) fn take_datagrams(&mut self, cx: &mut Context<'_>) -> bool {
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
    pub(in crate::session::driver) fn flow_opened(
        &mut self,
        id: FlowId,
        source: u64,
        target: &[u8],
        class: Option<Class>,
    ) {
        let now = self.now();
        let Ok(remote) = Target::decode_datagram(target) else {
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
    pub(in crate::session::driver) fn flow_closed(&mut self, id: FlowId, reason: CloseReason) {
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
    pub(in crate::session::driver) fn flow_failed(&self, id: FlowId, code: FlowErrorCode) {
        if let Some(flow) = self.datagrams.flows.get(&id)
            && let Some(inbox) = &flow.inbox
        {
            inbox.push(flow.remote.clone(), Received::Failed(failure_of(code)));
        }
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
