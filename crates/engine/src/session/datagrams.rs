//! Datagrams: operations on flows and datagram paths.

use bytes::Bytes;

use super::Session;
use super::transmit::Batch;
use crate::datagram::{
    DatagramCarrier, DatagramPathStats, DatagramPolicy, DatagramSample, DatagramStats, FlowConfig,
    FlowError, FlowErrorCode, FlowId, FlowStats,
};
use crate::frame::{MAX_BODY, encode_datagram};
use crate::path::PathSample;
use crate::policy::PathPolicy;
use crate::{Class, Instant, PathId, ProtocolError};

impl Session {
    /// Opens a flow. Datagrams may be sent at once; they carry the flow's properties until the peer
    /// has reported one of them.
    pub fn open_flow(&mut self, config: FlowConfig, now: Instant) -> Result<FlowId, FlowError> {
        if self.closed {
            return Err(FlowError::Closed);
        }
        self.datagrams.open_flow(config, now)
    }

    /// Ends a flow. The peer gets [`Event::FlowClosed`](crate::Event::FlowClosed), this side no
    /// event. Unsent datagrams are dropped.
    pub fn close_flow(&mut self, flow: FlowId, now: Instant) {
        self.datagrams.close_flow(flow, now);
        self.schedulers.note_change();
    }

    /// Sends a datagram, of any size from 0 bytes to what two packets of a path carry. Like any
    /// datagram it may be lost.
    pub fn send_datagram(
        &mut self,
        flow: FlowId,
        payload: Bytes,
        now: Instant,
    ) -> Result<(), FlowError> {
        if self.closed {
            return Err(FlowError::Closed);
        }
        self.latest = self.latest.max(now);
        self.datagrams.send_datagram(flow, payload, now)
    }

    /// The next datagram from the peer, and its flow.
    pub fn poll_received(&mut self) -> Option<(FlowId, Bytes)> {
        self.datagrams.poll_received()
    }

    /// A datagram of a flow could not be delivered beyond this side, as an ICMP message or the
    /// egress policy says. The peer gets [`Event::FlowFailed`](crate::Event::FlowFailed), and the
    /// flow continues. If the failure is final, [`Session::close_flow`] follows.
    pub fn flow_failed(&mut self, flow: FlowId, code: FlowErrorCode, now: Instant) {
        self.datagrams.flow_failed(flow, code, now);
        self.schedulers.note_change();
    }

    /// Sets the class of the datagrams that this side sends in a flow; with `None` it is learned
    /// from the traffic. The peer's direction is not affected.
    pub fn set_flow_class(&mut self, flow: FlowId, class: Option<Class>) -> Result<(), FlowError> {
        self.datagrams.set_class(flow, class)
    }

    /// Sets how the datagrams that this side sends in a flow use the paths.
    pub fn set_flow_policy(
        &mut self,
        flow: FlowId,
        policy: DatagramPolicy,
        now: Instant,
    ) -> Result<(), FlowError> {
        self.datagrams.set_policy(flow, policy, now)
    }

    /// A carrier of datagrams can send and receive. Both sides must use the same number; paths of
    /// streams have numbers of the same space. Paths with the same `link` share one.
    ///
    /// The carrier [`DatagramCarrier::Stream`] is the stream path `id`, and ends with it. It also
    /// becomes a datagram path when the peer sends a datagram on it. While a QUIC path over the
    /// same link delivers, a stream path is only a backup.
    pub fn datagram_path_up(
        &mut self,
        id: PathId,
        carrier: DatagramCarrier,
        link: u64,
        metered: bool,
        now: Instant,
    ) {
        if self.closed || carrier == DatagramCarrier::Stream && !self.paths.contains_key(&id) {
            return;
        }
        self.datagrams.path_up(id, carrier, link, metered, now);
        if let Some(path) = self.paths.get(&id) {
            let (policy, sample) = (path.standing.policy, path.sample);
            if policy != PathPolicy::default() {
                self.datagrams.path_policy(id, policy, now);
            }
            self.stream_path_stats(id, &sample, now);
        } else if let (Some((version, policy)), _) = self.unjoined.take(id) {
            self.on_policy(id, version, policy);
        }
        self.schedulers.note_change();
    }

    /// A carrier of datagrams has ended. A stream path must not carry datagrams of this side any
    /// more, but those of the peer still arrive, and [`Session::datagram_path_up`] undoes this.
    pub fn datagram_path_down(&mut self, id: PathId, now: Instant) {
        self.datagrams.path_off(id, now);
        self.schedulers.note_change();
    }

    /// Sets this side's policy for a datagram path. `never` leaves it reports and probes. A stream
    /// path's policy ([`Session::set_policy`] and the peer's) applies to its datagrams, too.
    pub fn datagram_path_policy(&mut self, id: PathId, policy: PathPolicy, now: Instant) {
        self.datagrams.path_policy(id, policy, now);
    }

    /// New measurements of a QUIC path, taken now. Those of stream paths follow from
    /// [`Session::path_stats`].
    pub fn datagram_path_stats(&mut self, id: PathId, sample: DatagramSample, now: Instant) {
        self.latest = self.latest.max(now);
        self.datagrams.path_stats(id, sample, now);
    }

    /// Handles a packet that arrived on a QUIC path: the body of one DATAGRAM frame (RFC 9221).
    ///
    /// Packets that cannot be decoded are counted and ignored. An error is a report of packets that
    /// were never sent; it is the peer's fault and ends the session.
    pub fn handle_datagram(
        &mut self,
        id: PathId,
        packet: Bytes,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        if self.closed {
            return Ok(());
        }
        self.latest = self.latest.max(now);
        let result = self.datagrams.handle(id, &packet, now);
        if let Err(error) = &result {
            self.close(super::receive::CODE_PROTOCOL, &error.to_string(), now);
        }
        result
    }

    /// Appends the next packet of a QUIC path, of at most `max_len` bytes: one DATAGRAM frame.
    /// False if there is nothing to send now.
    pub fn poll_datagram(
        &mut self,
        id: PathId,
        max_len: usize,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> bool {
        self.latest = self.latest.max(now);
        !self.closed && self.datagrams.poll(id, max_len, now, out)
    }

    /// Whether any link may carry a call that streams yield to. False is reliable, and always the
    /// answer without [`DatagramConfig::yield_to_calls`](crate::DatagramConfig::yield_to_calls).
    pub fn has_calls(&self, now: Instant) -> bool {
        self.datagrams.has_calls(now)
    }

    /// Whether this side sends conversational datagrams over a link, or did so within the last two
    /// seconds. `link` is the number of [`Session::datagram_path_up`].
    pub fn carries_call(&self, link: u64, now: Instant) -> bool {
        self.datagrams.carries_call(link, now)
    }

    /// Counters of all datagrams.
    pub fn datagram_stats(&self) -> DatagramStats {
        self.datagrams.stats()
    }

    /// Counters of every flow, in the order of their numbers.
    pub fn flow_stats(&self) -> impl Iterator<Item = FlowStats> + '_ {
        self.datagrams.flow_stats()
    }

    /// Counters of every datagram path.
    pub fn datagram_path_stats_all(&self, now: Instant) -> Vec<DatagramPathStats> {
        self.datagrams.path_stats_all(now)
    }

    /// A DATAGRAM frame has arrived on a stream path, which carries datagrams from now on.
    pub(super) fn on_datagram_frame(
        &mut self,
        id: PathId,
        packet: &[u8],
        now: Instant,
    ) -> Result<(), ProtocolError> {
        if !self.datagrams.has_path(id)
            && let Some(path) = self.paths.get(&id)
        {
            let link = path.standing.link.unwrap_or(u64::from(id.0));
            let metered = path.standing.policy.metered;
            self.datagram_path_up(id, DatagramCarrier::Stream, link, metered, now);
        }
        let packet = Bytes::copy_from_slice(packet);
        self.datagrams.handle(id, &packet, now)
    }

    /// Writes the packets of a stream path that carries datagrams.
    pub(super) fn write_datagrams(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        let (id, now) = (batch.path, batch.now);
        while batch.left(out) > 0 && self.datagrams.may_transmit(id, now) {
            let datagrams = &mut self.datagrams;
            if !encode_datagram(out, |out| datagrams.poll(id, MAX_BODY, now, out)) {
                break;
            }
        }
    }

    /// A stream path has ended, and its datagram path with it.
    pub(super) fn stream_path_down(&mut self, id: PathId, now: Instant) {
        self.datagrams.path_down(id, now);
    }

    /// The measurements of a stream path are those of its datagrams, too.
    pub(super) fn stream_path_stats(&mut self, id: PathId, sample: &PathSample, now: Instant) {
        if self.datagrams.has_path(id) {
            let room = sample.cwnd.saturating_sub(sample.in_flight + sample.unsent);
            let sample = DatagramSample {
                srtt: sample.srtt,
                min_rtt: sample.min_rtt,
                rttvar: sample.rttvar,
                cwnd: sample.cwnd,
                in_flight: sample.in_flight,
                max_datagram: MAX_BODY,
                space: if sample.full { 0 } else { room },
            };
            self.datagrams.path_stats(id, sample, now);
        }
    }
}
