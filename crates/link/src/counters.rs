//! Counters of a link: packets passed, dropped and lost.

/// Counts since the link was created.
///
/// At every moment `offered = policed + dropped_queue + discarded + lost + delivered + queued +
/// in_flight`, in packets and in bytes alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets handed to [`Link::enqueue`](crate::Link::enqueue).
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Packets that the policer dropped.
    pub policed_packets: u64,
    /// Their bytes.
    pub policed_bytes: u64,
    /// Packets that found the queue full.
    pub dropped_queue_packets: u64,
    /// Their bytes.
    pub dropped_queue_bytes: u64,
    /// Packets discarded because the link was not up.
    pub discarded_packets: u64,
    /// Their bytes.
    pub discarded_bytes: u64,
    /// Packets lost after the rate server, either by the loss model or because layer 2 reached its
    /// retry limit.
    pub lost_packets: u64,
    /// Their bytes.
    pub lost_bytes: u64,
    /// Transmissions that layer 2 repeated because of an interferer.
    pub layer2_retransmissions: u64,
    /// Packets returned by [`Link::poll`](crate::Link::poll).
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets in the queue now, including the one in transmission.
    pub queued_packets: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Packets that have left the queue and are propagating, or are due and not yet polled.
    pub in_flight_packets: u64,
    /// Their bytes.
    pub in_flight_bytes: u64,
}

impl Counters {
    /// Sum of all packet counters; equals `offered_packets`.
    pub fn accounted_packets(&self) -> u64 {
        self.policed_packets
            + self.dropped_queue_packets
            + self.discarded_packets
            + self.lost_packets
            + self.delivered_packets
            + self.queued_packets
            + self.in_flight_packets
    }

    /// Sum of all byte counters; equals `offered_bytes`.
    pub fn accounted_bytes(&self) -> u64 {
        self.policed_bytes
            + self.dropped_queue_bytes
            + self.discarded_bytes
            + self.lost_bytes
            + self.delivered_bytes
            + self.queued_bytes
            + self.in_flight_bytes
    }
}
