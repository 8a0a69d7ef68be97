//! Properties of a link that can change while it runs.

use core::time::Duration;

use crate::{Jitter, LinkState, Loss, Policer, QueueLimit, Trace};

/// New value of one property of one direction of a link; see [`Network::set`](crate::Network::set).
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Bits per second; applies to the packet in transmission too. 0 stops the link.
    Rate(u64),
    /// Bytes that the rate server may send at once after an idle time, like the bucket of a token
    /// bucket filter (tbf). The bucket is full right after the change. 0, the default, paces every
    /// packet at the rate. A trace has opportunities and no bucket.
    Burst(u64),
    /// Delivery opportunities instead of a rate, starting now and repeated; applies to the packet
    /// in transmission too. A queue limited by time then uses the mean rate of the trace.
    Trace(Trace),
    /// One-way delay of packets that are still in the queue.
    Delay(Duration),
    /// Variation of the delay of packets that are still in the queue.
    Jitter(Jitter),
    /// Loss model applied after the rate server.
    Loss(Loss),
    /// Queue limit; packets already in the queue stay.
    Queue(QueueLimit),
    /// The policer in front of the queue, with a full bucket; none by default.
    Policer(Option<Policer>),
    /// Whether the link carries packets. Leaving the up state discards all packets that are queued,
    /// in flight, or due and not yet polled.
    State(LinkState),
}
