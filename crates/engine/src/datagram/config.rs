//! Settings of a session's datagrams.

use std::time::Duration;

use crate::{Class, ConfigError};

/// Limits and settings of the datagram flows of a session. Each side has its own; nothing of them
/// is on the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct DatagramConfig {
    /// Most flows of both sides together, from 1 to 65,536. The flow that has been idle for longest
    /// makes room for a new one.
    pub max_flows: usize,
    /// A flow without datagrams in either direction ends after this time (RFC 4787, section 4.3).
    pub idle_timeout: Duration,
    /// The same for flows to `short_ports`.
    pub short_idle_timeout: Duration,
    /// Ports of request-response protocols that need no flow after the answer. The last two bytes
    /// of a target are its port, in network order.
    pub short_ports: Vec<u16>,
    /// Queue of a flow by its class, in the order of [`Class::ALL`]. The side that sends decides
    /// the class.
    pub queues: [QueueLimits; 4],
    /// Most bytes in the queues of all flows.
    pub queue_memory: usize,
    /// Most bytes that wait for earlier datagrams to restore the order, of all flows.
    pub reorder_memory: usize,
    /// Longest wait for an earlier datagram.
    pub reorder_wait: Duration,
    /// Most bytes of half datagrams that wait for their other half.
    pub fragment_memory: usize,
    /// Longest wait for the other half.
    pub fragment_wait: Duration,
    /// Most bytes that wait for [`Session::poll_received`](crate::Session::poll_received). Older
    /// datagrams are dropped beyond that.
    pub receive_memory: usize,
    /// What may be sent twice.
    pub duplicates: DuplicateLimits,
    /// While a call uses a link, the link's stream paths leave its queue short.
    pub yield_to_calls: bool,
    /// A peer that has sent neither datagrams nor reports for this long after the first datagram to
    /// it is taken for one without datagrams.
    pub peer_timeout: Duration,
}

/// Limits on the queue of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Most bytes; the oldest datagrams are dropped beyond that.
    pub bytes: usize,
    /// Longest time in the queue.
    pub sojourn: Duration,
}

/// How much the policies `auto` and `duplicate` may send over several links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DuplicateLimits {
    /// Number of links that carry each datagram, from 2 to 8.
    pub links: usize,
    /// For `auto`: bytes per second of a flow that are sent again.
    pub flow_rate: u64,
    /// For `auto`: share of a link's rate that is used for copies, from 0 to 1.
    pub link_share: f64,
    /// Copies may go over metered links, too.
    pub metered: bool,
}

impl Default for DuplicateLimits {
    /// Two links, 256 kbit/s for each flow and 5 % of a link, never over metered links.
    fn default() -> Self {
        Self {
            links: 2,
            flow_rate: 32_000,
            link_share: 0.05,
            metered: false,
        }
    }
}

impl Default for DatagramConfig {
    fn default() -> Self {
        let queue = |kib: usize, ms| QueueLimits {
            bytes: kib << 10,
            sojourn: Duration::from_millis(ms),
        };
        Self {
            max_flows: 4096,
            idle_timeout: Duration::from_secs(300),
            short_idle_timeout: Duration::from_secs(30),
            // ICMP echoes, and DNS.
            short_ports: vec![0, 53],
            queues: [
                // ITU-T G.114 allows 150 ms from mouth to ear.
                queue(64, 100),
                queue(4096, 1000),
                queue(4096, 500),
                queue(4096, 1000),
            ],
            queue_memory: 16 << 20,
            reorder_memory: 16 << 20,
            reorder_wait: Duration::from_millis(400),
            fragment_memory: 1 << 20,
            // Two halves may be a round trip apart.
            fragment_wait: Duration::from_secs(2),
            receive_memory: 16 << 20,
            duplicates: DuplicateLimits::default(),
            yield_to_calls: true,
            peer_timeout: Duration::from_secs(5),
        }
    }
}

impl DatagramConfig {
    /// Limits of the queue of a flow of `class`.
    pub fn queue(&self, class: Class) -> QueueLimits {
        self.queues[class as usize]
    }

    /// The idle timeout of a flow to `target`.
    pub(super) fn idle_timeout_of(&self, target: &[u8]) -> Duration {
        let port = target
            .last_chunk::<2>()
            .map(|port| u16::from_be_bytes(*port));
        match port.is_some_and(|port| self.short_ports.contains(&port)) {
            true => self.short_idle_timeout,
            false => self.idle_timeout,
        }
    }

    /// Checks that the values are in range.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let share = self.duplicates.link_share;
        let memories = [
            self.queue_memory,
            self.reorder_memory,
            self.fragment_memory,
            self.receive_memory,
        ];
        let waits = [
            self.idle_timeout,
            self.short_idle_timeout,
            self.fragment_wait,
            self.peer_timeout,
        ];
        let is_valid = (1..=1 << 16).contains(&self.max_flows)
            && (2..=8).contains(&self.duplicates.links)
            && (0.0..=1.0).contains(&share)
            && memories
                .iter()
                .all(|bytes| (1 << 16..=1 << 32).contains(bytes))
            && self.queues.iter().all(|queue| queue.bytes >= 1 << 11)
            && waits.iter().all(|wait| !wait.is_zero());
        match is_valid {
            true => Ok(()),
            false => Err(ConfigError::Datagrams),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_echoes_and_to_dns_expire_early() {
        let config = DatagramConfig::default();
        assert!(config.check().is_ok());
        let dns = [1, 192, 0, 2, 7, 0, 53];
        assert_eq!(config.idle_timeout_of(&dns), Duration::from_secs(30));
        let echo = [1, 192, 0, 2, 7, 0, 0];
        assert_eq!(config.idle_timeout_of(&echo), Duration::from_secs(30));
        let other = [1, 192, 0, 2, 7, 0, 54];
        assert_eq!(config.idle_timeout_of(&other), Duration::from_secs(300));
        assert_eq!(config.idle_timeout_of(b""), Duration::from_secs(300));
    }
}
