//! Two connected ends of a source in memory: between an entry and an exit of one process.

use bytes::Bytes;
use sumlink_engine::Class;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};

use super::{DatagramSocket, FlowFailure, MAX_PAYLOAD, Received, SendError};
use crate::target::Target;

/// One end of a [`pair`]. Dropping it ends the other.
#[derive(Debug)]
pub struct PairSocket {
    sender: Sender<(Target, Received)>,
    receiver: Receiver<(Target, Received)>,
}

/// Two ends, each with room for `capacity` events that the other has not received. Further ones are
/// dropped.
pub fn pair(capacity: usize) -> (PairSocket, PairSocket) {
    let (one_sender, one_receiver) = channel(capacity);
    let (other_sender, other_receiver) = channel(capacity);
    let end = |sender, receiver| PairSocket { sender, receiver };
    (
        end(one_sender, other_receiver),
        end(other_sender, one_receiver),
    )
}

impl PairSocket {
    fn push(&self, remote: &Target, event: Received) -> Result<(), SendError> {
        match self.sender.try_send((remote.clone(), event)) {
            Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(SendError::Closed),
        }
    }
}

impl DatagramSocket for PairSocket {
    fn send(
        &self,
        remote: &Target,
        payload: Bytes,
        _class: Option<Class>,
    ) -> Result<(), SendError> {
        if payload.len() > MAX_PAYLOAD {
            return Err(SendError::TooBig { most: MAX_PAYLOAD });
        }
        self.push(remote, Received::Datagram(payload))
    }

    async fn receive(&mut self, out: &mut Vec<(Target, Received)>, limit: usize) -> usize {
        self.receiver.recv_many(out, limit).await
    }

    fn report(&self, remote: &Target, failure: FlowFailure) {
        // The other end may have gone.
        let _ = self.push(remote, Received::Failed(failure));
    }
}
