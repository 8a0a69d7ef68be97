//! Moves datagrams between the engine and its datagram carriers, as the daemon does
//! (`driver/datagrams.rs` of `sumlink-transport`).
//!
//! A link has up to two datagram paths: its QUIC carrier, and its first TCP carrier, which takes
//! datagrams in frames while the QUIC carrier is missing or does not deliver.

use bytes::Bytes;
use sumlink_bond::datagram::stand_ins;
use sumlink_bond::datagram::turns::{BATCH, PACKETS, SAMPLE_EVERY};
use sumlink_engine::{DatagramCarrier, PathId};

use super::super::flows::Flows;
use super::{Daemon, Report};
use crate::clock::{Nanos, duration, nanos};
use crate::net::{Line, Net};
use crate::quic::State;

/// A QUIC carrier of a session.
#[derive(Debug)]
struct Carrier {
    id: PathId,
    line: Line,
    link: usize,
    sampled: Nanos,
    /// A packet for which the carrier had no room after all; it goes first.
    refused: Option<Bytes>,
}

/// The datagram paths of a daemon.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    /// The programs use datagrams; without them, the session has no datagram paths.
    is_on: bool,
    carriers: Vec<Carrier>,
    /// TCP carriers that stand in for a QUIC carrier of their link.
    streams: Vec<PathId>,
}

impl Datagrams {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            ..Self::default()
        }
    }
}

impl Daemon {
    /// Adds a QUIC carrier as the datagram path of its link.
    pub(in crate::bond) fn add_datagrams(
        &mut self,
        id: PathId,
        line: Line,
        link: usize,
        net: &mut Net,
    ) {
        let carriers = &self.datagrams.carriers;
        if self.session.is_closed() || carriers.len() >= self.max_paths() {
            net.line(line, self.side).close();
            net.flush_line(line, self.side);
            return;
        }
        // A former carrier of the link is obsolete: the client makes one at a time.
        self.remove_datagrams(link, net);
        let now = duration(net.now());
        let kind = DatagramCarrier::Quic;
        self.session
            .datagram_path_up(id, kind, link as u64, false, now);
        let sample = net.line(line, self.side).sample();
        self.session.datagram_path_stats(id, sample, now);
        self.datagrams.carriers.push(Carrier {
            id,
            line,
            link,
            sampled: net.now(),
            refused: None,
        });
        self.choose_stand_ins(net);
    }

    /// Ends the QUIC carrier of a link.
    pub(in crate::bond) fn remove_datagrams(&mut self, link: usize, net: &mut Net) {
        let of_link = |carrier: &Carrier| carrier.link == link;
        while let Some(index) = self.datagrams.carriers.iter().position(of_link) {
            self.end_datagrams(index, net);
        }
    }

    fn end_datagrams(&mut self, index: usize, net: &mut Net) {
        let carrier = self.datagrams.carriers.swap_remove(index);
        net.line(carrier.line, self.side).close();
        net.flush_line(carrier.line, self.side);
        let now = duration(net.now());
        self.session.datagram_path_down(carrier.id, now);
        self.reports.push(Report::LineEnded(carrier.line));
        self.choose_stand_ins(net);
    }

    /// Lets one TCP carrier of each link take datagrams, and no other. While the link's QUIC
    /// carrier delivers, the engine uses that one.
    pub(super) fn choose_stand_ins(&mut self, net: &Net) {
        if !self.datagrams.is_on {
            return;
        }
        let carriers = self.carriers.iter();
        let wanted = stand_ins(carriers.map(|carrier| {
            let link = net.link_of(carrier.connection) as u64;
            (carrier.id, Some(link))
        }));
        let now = duration(net.now());
        let former = std::mem::take(&mut self.datagrams.streams);
        for id in &former {
            if !wanted.iter().any(|(wanted, _)| wanted == id) {
                self.session.datagram_path_down(*id, now);
            }
        }
        for (id, link) in wanted {
            if !former.contains(&id) {
                let (kind, link) = (DatagramCarrier::Stream, link.unwrap_or(id.0.into()));
                self.session.datagram_path_up(id, kind, link, false, now);
            }
            self.datagrams.streams.push(id);
        }
    }

    /// Whether a change of a QUIC connection wakes the daemon.
    pub(in crate::bond) fn is_woken_by(&self, line: Line, net: &mut Net) -> bool {
        let mut carriers = self.datagrams.carriers.iter();
        if !carriers.any(|carrier| carrier.line == line) {
            return false;
        }
        let quic = net.line(line, self.side);
        quic.has_received() || quic.is_refilled() || quic.state() != State::Joined
    }

    /// Gives the engine the packets of all QUIC carriers; returns whether any had arrived.
    pub(super) fn receive_datagrams(&mut self, flows: &mut Flows, net: &mut Net) -> bool {
        let mut moved = false;
        let mut index = 0;
        while let Some(carrier) = self.datagrams.carriers.get(index) {
            let (id, now) = (carrier.id, duration(net.now()));
            let quic = net.line(carrier.line, self.side);
            let mut taken = 0;
            while taken < BATCH
                && let Some(packet) = quic.poll_received()
            {
                taken += 1;
                if let Err(error) = self.session.handle_datagram(id, packet, now) {
                    flows.note_fault(format!("path {}: {error}", id.0));
                }
            }
            moved |= taken > 0;
            if taken == 0 && quic.state() != State::Joined {
                self.end_datagrams(index, net);
                moved = true;
            } else {
                index += 1;
            }
        }
        moved
    }

    /// Gives the engine the measurements of the QUIC carriers. Those of TCP carriers follow from
    /// their own samples.
    pub(super) fn sample_datagrams(&mut self, net: &mut Net) {
        let now = net.now();
        for carrier in &mut self.datagrams.carriers {
            if now - carrier.sampled >= nanos(SAMPLE_EVERY) {
                carrier.sampled = now;
                let sample = net.line(carrier.line, self.side).sample();
                self.session
                    .datagram_path_stats(carrier.id, sample, duration(now));
            }
        }
    }

    /// Gives every QUIC carrier the engine's packets for it; returns whether there were any.
    pub(super) fn transmit_datagrams(&mut self, net: &mut Net) -> bool {
        let mut moved = false;
        for index in 0..self.datagrams.carriers.len() {
            moved |= self.transmit_datagrams_on(index, net);
        }
        moved
    }

    fn transmit_datagrams_on(&mut self, index: usize, net: &mut Net) -> bool {
        let carrier = &mut self.datagrams.carriers[index];
        let (id, line, now) = (carrier.id, carrier.line, duration(net.now()));
        let mut packets = 0;
        while packets < PACKETS && net.line(line, self.side).poll_writable() {
            let quic = net.line(line, self.side);
            // The engine gives no more than the carrier has room for.
            self.session.datagram_path_stats(id, quic.sample(), now);
            let largest = quic.max_datagram();
            let before = packets;
            while packets < PACKETS {
                let packet = match carrier.refused.take() {
                    Some(packet) => packet,
                    None => {
                        let mut packet = Vec::with_capacity(largest);
                        if !self.session.poll_datagram(id, largest, now, &mut packet) {
                            break;
                        }
                        Bytes::from(packet)
                    }
                };
                if let Err(packet) = quic.send(packet) {
                    carrier.refused = Some(packet);
                    break;
                }
                packets += 1;
            }
            net.flush_line(line, self.side);
            if packets == before {
                break;
            }
        }
        packets > 0
    }

    /// Gives the programs their datagrams; returns whether any had arrived.
    pub(super) fn deliver_datagrams(&mut self, flows: &mut Flows, net: &mut Net) -> bool {
        let mut any = false;
        while let Some((flow, payload)) = self.session.poll_received() {
            any = true;
            flows.deliver(self.side, flow, payload, net);
        }
        any
    }
}
