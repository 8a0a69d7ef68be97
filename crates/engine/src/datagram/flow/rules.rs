//! The rules of a queue.

use std::time::Duration;

use crate::datagram::QueueLimits;

/// How long datagrams may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) limits: QueueLimits,
    /// CoDel's interval: a typical round trip of the flow; none without CoDel.
    pub(crate) interval: Option<Duration>,
    /// Least of CoDel's targets.
    pub(crate) target: Duration,
    /// A queue of these bytes is not too long, however long it stands.
    pub(crate) standing: usize,
}
