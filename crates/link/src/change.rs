//! What may change on a link while it runs.

use core::time::Duration;

use crate::{Jitter, LinkState, Loss, Policer, QueueLimit, Trace};

/// One property of one direction of a link with its new value; see [`Network::set`](crate::Network::set).
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Bits per second, also for the packet in transmission; 0 lets nothing pass.
    Rate(u64),
    /// Bytes that the rate server may send at once after it was idle, as the bucket of a token bucket filter
    /// (tbf); it is full from the change on. 0, the default, sends each packet at the rate. A trace has
    /// opportunities instead, and no bucket.
    Burst(u64),
    /// Delivery opportunities instead of a rate, from now on and repeated; also for the packet in
    /// transmission. A queue in time holds what the trace's mean rate sends in it.
    Trace(Trace),
    /// One-way delay of packets that have not left the queue.
    Delay(Duration),
    /// Variation of the delay of packets that have not left the queue.
    Jitter(Jitter),
    /// Which packets are lost behind the rate server.
    Loss(Loss),
    /// What the queue holds; packets that are in it already stay.
    Queue(QueueLimit),
    /// The policer in front of the queue, with a full bucket; none by default.
    Policer(Option<Policer>),
    /// Whether the link carries packets. What is queued or on its way when it stops being up is discarded,
    /// and so is what is due and has not been polled.
    State(LinkState),
}
