//! The counters at one moment.

use super::Datagrams;
use crate::Instant;
use crate::datagram::flow::Flow;
use crate::datagram::path::Usage;
use crate::datagram::stats::{DatagramPathStats, DatagramStats, FlowDrops, FlowStats};

impl Datagrams {
    pub(crate) fn stats(&self) -> DatagramStats {
        DatagramStats {
            flows: self.flows.len() as u64,
            halves_given_up: self.fragments.given_up,
            queued_bytes: self.queued_bytes as u64,
            fragment_bytes: self.fragments.bytes() as u64,
            reorder_bytes: self.deliveries.held_bytes as u64,
            unread: self.deliveries.outbox.dropped,
            peer_speaks: self.peer_speaks,
            ..self.counters.clone()
        }
    }

    pub(crate) fn flow_stats(&self) -> impl Iterator<Item = FlowStats> + '_ {
        self.flows.iter().map(|flow| self.stats_of(flow))
    }

    fn stats_of(&self, flow: &Flow) -> FlowStats {
        let counters = &flow.counters;
        let (given_up, late) = flow.inbound.given_up_and_late();
        FlowStats {
            id: flow.id,
            source: flow.source,
            target: flow.target.to_vec(),
            class: flow.treated_as(),
            learned: flow.class.is_none(),
            policy: flow.policy.in_use(),
            reason: flow.policy.reason(&self.paths),
            paths: flow.recent_paths(),
            sent: counters.sent,
            bytes_sent: counters.bytes_sent,
            copies_sent: counters.copies_sent,
            rescued: counters.rescued,
            bytes_repeated: counters.bytes_repeated,
            received: counters.received,
            bytes_received: counters.bytes_received,
            drops: FlowDrops {
                full: counters.drops.full,
                late: counters.drops.late,
                codel: counters.drops.codel,
                too_big: counters.too_big,
            },
            queued_bytes: flow.queued_bytes() as u64,
            reorder_bytes: flow.inbound.held_bytes() as u64,
            given_up,
            late,
            active_at: flow.active_at,
        }
    }

    pub(crate) fn path_stats_all(&self, now: Instant) -> Vec<DatagramPathStats> {
        let stats = self.paths.iter().map(|path| DatagramPathStats {
            id: path.id,
            carrier: path.carrier,
            link: path.link,
            health: path.health.state(),
            in_use: path.usage != Usage::None,
            policy: path.policy,
            srtt: path.srtt(),
            delay: path.delay,
            rate: path.rate(now),
            loss: path.loss,
            max_packet: path.max_packet(),
            packets_sent: path.counters.packets_sent,
            bytes_sent: path.counters.bytes_sent,
            packets_received: path.counters.packets_received,
            bytes_received: path.counters.bytes_received,
            packets_reported: path.counters.packets_reported,
            packets_lost: path.counters.packets_lost,
            times_suspect: path.counters.times_suspect,
            age: now.saturating_sub(path.joined),
        });
        stats.collect()
    }
}
