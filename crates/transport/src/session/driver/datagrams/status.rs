//! The datagram paths and flows of a session, for its status.

use sumlink_engine::{DatagramCarrier as Kind, DatagramPathStats, PathId};
use sumlink_exit::target::Target;

use crate::api::status::{DatagramPathStatus, FlowStatus};
use crate::carrier::quic::DatagramCarrier;
use crate::session::driver::Driver;

/// Most flows in a status.
const MAX_FLOWS: usize = 1000;

impl Driver {
    /// The datagram paths, for the status.
    pub(in crate::session::driver) fn datagram_paths(&self) -> Vec<DatagramPathStatus> {
        let stats = self.engine.datagram_path_stats_all(self.now());
        // A TCP carrier that stands by is not worth a line.
        let is_shown = |path: &DatagramPathStats| {
            let is_quic = path.carrier == Kind::Quic;
            is_quic || path.in_use || self.quic_of(&self.link_of(path.id)).is_none()
        };
        let status = stats.into_iter().filter(is_shown).map(|path| {
            let quic = self.datagrams.carriers.iter();
            let quic = quic.map(|quic| &quic.carrier);
            let quic = quic.into_iter().find(|carrier| carrier.path() == path.id);
            let link = quic.map_or_else(|| self.link_of(path.id), |quic| quic.link().to_owned());
            let reason = match quic {
                Some(_) => String::new(),
                None if !self.listeners.udp => "UDP is switched off at this side".to_owned(),
                None => self
                    .datagrams
                    .reasons
                    .get(&link)
                    .cloned()
                    .unwrap_or_default(),
            };
            let sample = quic.map(DatagramCarrier::sample);
            DatagramPathStatus {
                id: path.id.0,
                carrier: if quic.is_some() { "udp" } else { "tcp" }.to_owned(),
                reason,
                link,
                state: path.health.name().to_owned(),
                srtt_ms: path.srtt.as_secs_f64() * 1e3,
                cwnd_bytes: sample.map_or(0, |sample| sample.cwnd),
                delay_ms: path.delay.as_secs_f64() * 1e3,
                rate_bps: path.rate * 8.0,
                max_datagram_bytes: path.max_packet as u64,
                packets_sent: path.packets_sent,
                packets_received: path.packets_received,
                bytes_sent: path.bytes_sent,
                bytes_received: path.bytes_received,
                packets_lost: path.packets_lost,
                queued_bytes: sample.map_or(0, |sample| sample.buffered as u64),
            }
        });
        status.collect()
    }

    /// Datagrams that waited too long for the session or for their program.
    pub(in crate::session::driver) fn datagrams_dropped(&self) -> u64 {
        self.datagrams.sources.dropped()
    }

    /// The flows, for the status.
    pub(in crate::session::driver) fn flow_statuses(&self) -> Vec<FlowStatus> {
        let flows = self.engine.flow_stats().take(MAX_FLOWS);
        let link_of = |id: PathId| {
            let mut quic = self.datagrams.carriers.iter();
            let quic = quic.find(|quic| quic.carrier.path() == id);
            quic.map_or_else(|| self.link_of(id), |quic| quic.carrier.link().to_owned())
        };
        flows
            .map(|flow| FlowStatus {
                id: flow.id,
                source: flow.source,
                target: Target::decode_datagram(&flow.target)
                    .map_or_else(|error| error.to_string(), |target| target.to_string()),
                class: flow.class.name().to_owned(),
                policy: flow.policy.name().to_owned(),
                reason: flow.reason.clone(),
                links: distinct(flow.paths.iter().map(|path| link_of(*path))),
                datagrams_sent: flow.sent,
                datagrams_received: flow.received,
                bytes_sent: flow.bytes_sent,
                bytes_received: flow.bytes_received,
                copies_sent: flow.copies_sent + flow.rescued,
                dropped: flow.drops.total(),
                dropped_full: flow.drops.full,
                dropped_late: flow.drops.late,
                dropped_codel: flow.drops.codel,
                dropped_too_big: flow.drops.too_big,
                given_up: flow.given_up,
                late: flow.late,
            })
            .collect()
    }
}
/// The names without repetitions, in the same order: a link has up to two paths for datagrams.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}
