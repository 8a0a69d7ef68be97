//! Datagrams for programs that use this library.

use bytes::Bytes;
use sumlink_engine::Class;
use sumlink_exit::datagram::DatagramSocket;
use sumlink_exit::target::Target;

pub use crate::session::sources::SourceHandle as DatagramSource;
pub use sumlink_engine::{DatagramConfig, DatagramPolicy, DuplicateLimits, QueueLimits};
pub use sumlink_exit::datagram::{FlowFailure, Received, SendError};

use super::client::Client;
use super::status::FlowStatus;

/// Datagrams to and from one remote: [`Client::open_flow`].
#[derive(Debug)]
pub struct Flow {
    source: DatagramSource,
    remote: Target,
    received: std::collections::VecDeque<Received>,
    batch: Vec<(Target, Received)>,
    client: Client,
}

/// Events taken from the session at once.
const BATCH: usize = 64;

impl Client {
    /// A source of datagrams, like an unconnected UDP socket. `class` and `policy`
    /// apply to all its flows; without a class, each side learns it from the traffic, and without
    /// a policy the configured one applies.
    ///
    /// Nothing is sent before the first datagram. The source outlives the loss of a session: its
    /// flows continue in the next one, from another port of the server.
    pub fn bind_datagrams(
        &self,
        class: Option<Class>,
        policy: Option<DatagramPolicy>,
    ) -> DatagramSource {
        self.sources().bind(class, policy)
    }

    /// Opens a flow to `remote`, which exchanges datagrams with it and with no other.
    pub fn open_flow(
        &self,
        remote: Target,
        class: Option<Class>,
        policy: Option<DatagramPolicy>,
    ) -> Flow {
        Flow {
            source: self.bind_datagrams(class, policy),
            remote,
            received: std::collections::VecDeque::new(),
            batch: Vec::new(),
            client: self.clone(),
        }
    }
}

impl Flow {
    /// The remote.
    pub fn remote(&self) -> &Target {
        &self.remote
    }

    /// Sends a datagram. Never waits; the datagram may be lost like any datagram.
    ///
    /// # Errors
    ///
    /// The datagram was dropped at once.
    pub fn send(&self, payload: Bytes) -> Result<(), SendError> {
        self.source.send(&self.remote, payload, None)
    }

    /// Waits for the next datagram, or for a report that datagrams do not arrive; none after the
    /// bond has ended. Cancel safe.
    pub async fn receive(&mut self) -> Option<Received> {
        loop {
            if let Some(event) = self.received.pop_front() {
                return Some(event);
            }
            if self.source.receive(&mut self.batch, BATCH).await == 0 {
                return None;
            }
            // A server resolves names: its replies carry the name that was addressed.
            let own = self.batch.drain(..);
            let own = own.filter(|(remote, _)| *remote == self.remote);
            self.received.extend(own.map(|(_, event)| event));
        }
    }

    /// Counters, policy and links of the flow; none before its first datagram.
    pub async fn stats(&self) -> Option<FlowStatus> {
        let status = self.client.status().await;
        let source = self.source.id();
        status.flows.into_iter().find(|flow| flow.source == source)
    }
}
