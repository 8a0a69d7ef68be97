//! Decides when bytes are overdue and a path is suspect or stalled, from the peer's reports and
//! TCP's acknowledgments.

use std::time::Duration;

use super::gap::Gap;
use super::{Flight, LossState, Path, PathSample, fade, srtt_of};
use crate::Instant;

/// Reports of arrivals take this much longer than half a round trip: 5 ms, rarely 15 ms.
pub(crate) const REPORT_SLACK: Duration = Duration::from_millis(15);

/// A path is suspect once it has been silent for this long; its overdue data is then duplicated
/// over other paths.
const SUSPECT_SLACK: Duration = Duration::from_millis(15);

/// Share of its previous rate below which a path delivers nothing of use: during the time of a
/// repair, less than its rate would deliver in a thirtieth of that time.
///
/// A path that browns out to a hundredth of its rate delivers an occasional segment, which is
/// useless. One that fades to a twentieth still carries data and must not be given up
/// (docs/failover.md).
const USEFUL_SHARE: f64 = 1.0 / 30.0;

/// One segment may complete the acknowledgment of this many bytes: those of a TLS record, which can
/// be read once its last byte has arrived.
pub(crate) const RECORD: u64 = 16_384;

/// A path stalls when nothing is acknowledged, or its oldest piece is overdue, for two round trips,
/// four variations and this time.
const STALL_SLACK: Duration = Duration::from_millis(150);

/// A suspect path stalls once TCP could have repaired a loss through its timeout. The timeout takes
/// a round trip and four variations, or this time if that is longer, and the repair takes another
/// round trip.
const REPAIR_MIN: Duration = Duration::from_millis(50);

/// Shortest retransmission timeout of common systems (Linux's `TCP_RTO_MIN`). While TCP repairs
/// losses, a retransmission may be lost as well, and only this timeout repairs that: BBR overruns a
/// short queue before it has found a link's rate.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);

/// Time from a path's first data in which any congestion control looks for the link's rate. BBR
/// reports no threshold that would show the end of its startup.
const START: Duration = Duration::from_secs(1);

/// Added for the granularity of TCP's timers.
const REPAIR_SLACK: Duration = Duration::from_millis(10);

/// BBR pauses for this time to measure the lowest round trip (PROBE_RTT), every ten seconds unless
/// it measures a shorter one. It takes this many round trips in addition: for the acknowledgment of
/// the data in flight before the pause, and for the arrival of the delayed data after it.
const PAUSE: (Duration, u32) = (Duration::from_millis(200), 2);

/// Most additional time for a path that has recently needed it for repairs. Two further timeouts,
/// each twice as long as the one before, take 300 ms from [`REPAIR_MIN`].
const MORE_REPAIR_MAX: Duration = Duration::from_millis(300);

/// Longest patience for any path.
const STALL_MAX: Duration = Duration::from_secs(5);

/// The last time that a path proved that it delivers, and its state then.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeliveryProof {
    at: Instant,
    /// Bytes that TCP had in flight.
    in_flight: u64,
    /// TCP was repairing losses.
    repairs: bool,
    /// Delivery rate of the path, or its limit if that is lower, in bytes per second; none if it
    /// was unknown.
    rate: Option<f64>,
    /// Segments that the peer's TCP had, and bytes that the peer had acknowledged.
    delivered: u64,
    confirmed: u64,
    /// Round trip and variation. Those of a path that browns out grow with each segment that gets
    /// through, and would postpone its detection.
    srtt: Duration,
    rttvar: Duration,
}

impl Path {
    /// How long after its expected arrival data may be acknowledged without being late.
    ///
    /// The report comes over the path with the least delay, which may be another one.
    pub fn patience(&self) -> Duration {
        self.patience_at(self.srtt(), self.sample.rttvar)
    }

    fn patience_at(&self, srtt: Duration, rttvar: Duration) -> Duration {
        self.delays.report_trip.unwrap_or(srtt / 2) + 2 * rttvar + REPORT_SLACK
    }

    /// How long the oldest data on the path has been overdue.
    ///
    /// A path that hardly delivers anything still has good statistics: a rate that was measured
    /// earlier, a short round trip. Its overdue data is a better indicator.
    pub fn overdue(&self, now: Instant) -> Duration {
        let late_from = self.late_from();
        late_from.map_or(Duration::ZERO, |from| now.saturating_sub(from))
    }

    /// Whether any data on the path is late.
    pub fn is_late(&self, now: Instant) -> bool {
        self.late_from().is_some_and(|from| now >= from)
    }

    /// Time from which bytes on the path are late.
    ///
    /// While TCP has them in flight, the prediction from the time of sending applies. On a path
    /// that slows down, round trip and variation grow with the data that waits on it, and would
    /// postpone the detection.
    pub(crate) fn late_at(&self, flight: &Flight) -> Instant {
        flight.expected_at + self.patience_for(flight.record_end, flight.patience)
    }

    /// Patience for data of which TCP has received an acknowledgment: it has reached the peer's
    /// host, but its process has not read it yet, and another path would not deliver it sooner. An
    /// intermediary may have acknowledged in the peer's name (a satellite's proxy, RFC 3135), so
    /// the patience does not exceed that for a stall.
    fn patience_for(&self, path_end: u64, patience: Duration) -> Duration {
        match self.has_acknowledged(path_end) {
            true => patience.max(self.stall_patience()),
            false => patience,
        }
    }

    /// Time from which data on the path is late, unless it is acknowledged before.
    fn late_from(&self) -> Option<Instant> {
        let data = self.oldest_flights().map(|flight| self.late_at(flight));
        let data = data.min();
        if self.outbound.control.is_empty() {
            return data;
        }
        let control = [
            self.outbound.control.front(),
            self.first_control_in_flight(),
        ];
        let control = control.into_iter().flatten().map(|sent| {
            let patience = self.patience_for(self.record_end(sent), self.patience());
            sent.sent_at + self.delay() + patience
        });
        data.into_iter().chain(control).min()
    }

    /// Expected arrival of the oldest data that TCP has in flight.
    fn expected_at(&self) -> Option<Instant> {
        let data = self.first_in_flight().map(|flight| flight.expected_at);
        let control = self.first_control_in_flight();
        let control = control.map(|sent| sent.sent_at + self.delay());
        data.into_iter().chain(control).min()
    }

    /// Time from which the oldest control frame that only this path has is late. Control frames are
    /// small and each holds something up, so it makes no difference whether TCP has received an
    /// acknowledgment.
    pub(crate) fn control_late_at(&self) -> Option<Instant> {
        let oldest = self
            .outbound
            .control
            .iter()
            .find(|sent| sent.needs_repeat())?;
        Some(oldest.sent_at + self.delay() + self.patience())
    }

    /// Time at which the oldest unacknowledged data was sent.
    pub(crate) fn oldest_unacknowledged(&self) -> Option<Instant> {
        let data = self.outbound.flights.front().map(|flight| flight.sent_at);
        let control = self.outbound.control.front().map(|sent| sent.sent_at);
        match (data, control) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Time from which nothing shows that the path delivers: its oldest piece is late, and TCP,
    /// which learns of every segment, has received almost no acknowledgments since then either.
    /// None if TCP does not report deliveries.
    ///
    /// While TCP delivers a useful amount, late data may still be in flight. A path that is silent
    /// at both levels is dead, or waits for a timeout. If TCP has nothing in flight, because all is
    /// acknowledged or the peer has closed the window, it gives no indication.
    pub(crate) fn suspect_from(&self) -> Option<Instant> {
        let proof = self.progress.proof.filter(|_| self.sample.in_flight > 0)?;
        let patience = self.patience_at(proof.srtt, proof.rttvar);
        Some((self.expected_at()? + patience).max(proof.at + patience))
    }

    /// Whether the path has been silent for longer than chance or its recent repairs explain.
    pub(crate) fn is_suspect(&self, now: Instant) -> bool {
        self.suspect_from()
            .is_some_and(|from| now >= from + SUSPECT_SLACK + self.more_repair(now))
    }

    /// Whether late data on it is worth a duplicate: the path is suspect, or TCP does not report
    /// deliveries.
    pub(crate) fn may_have_failed(&self, now: Instant) -> bool {
        self.progress.proof.is_none() || self.is_suspect(now)
    }

    /// Additional time at `now` before the path is suspect or stalls, because its repairs have
    /// recently taken as long.
    pub(crate) fn more_repair(&self, now: Instant) -> Duration {
        self.progress.more_repair.at(now)
    }

    /// Time at which the path counts as stalled, if nothing is acknowledged before, or if its
    /// oldest piece is not.
    ///
    /// The second condition is for a path that hardly delivers anything: it makes some progress,
    /// but too little to help. While TCP repairs losses and makes progress, the data behind the
    /// gap has already arrived. Moving all of it to other paths would cost more than waiting as
    /// long again. In slow start and in a path's first second, a piece has at least the patience of
    /// a piece handed over at the last proof: the queue grows from nothing within some round trips.
    ///
    /// Much sooner if TCP has received no acknowledgment either. Then no repair is under way,
    /// except of a loss that only a timeout detects, and one such timeout is allowed; a longer one
    /// if TCP was repairing losses when it last proved that it delivers.
    pub(crate) fn stalls_at(&self) -> Option<Instant> {
        let late = self.late_stalls_at()?;
        let suspect = self.progress.proof.zip(self.suspect_from());
        let stalls_at = suspect.map_or(late, |(proof, from)| late.min(from + proof.stall_repair()));
        Some(stalls_at + self.more_repair(stalls_at))
    }

    fn late_stalls_at(&self) -> Option<Instant> {
        let oldest = self.oldest_unacknowledged()?;
        let patience = self.stall_patience();
        let gap = self.progress.gap.zip(self.progress.proof);
        let proof = gap.map(|(_, proof)| proof.at).unwrap_or_default();
        let silent = oldest.max(self.progress.acknowledged_at.max(proof)) + patience;
        // Also if a part of the gap has just been closed: then the next piece is as late as the
        // one before.
        let more = match gap {
            Some((gap, _)) => gap.patience(patience, STALL_MAX),
            None => Duration::ZERO,
        };
        let grown = self.progress.proof.filter(|proof| {
            let first = self.progress.first_data;
            self.is_doubling() || first.is_some_and(|first| proof.at <= first + START)
        });
        let grown = grown.map_or(Duration::ZERO, |proof| {
            let patience = self.patience_at(proof.srtt, proof.rttvar);
            Flight::stall_patience_of(proof.srtt, patience)
        });
        let late = self.oldest_flights().map(|flight| {
            let least = patience.min(flight.stall_patience().max(grown));
            flight.expected_at + self.patience_for(flight.record_end, least) + more
        });
        late.chain([silent]).min()
    }

    /// How long data may be overdue before the path counts as stalled, suspect or not.
    pub(crate) fn stall_patience(&self) -> Duration {
        let patience = 2 * self.srtt() + 4 * self.sample.rttvar + STALL_SLACK;
        patience.min(STALL_MAX)
    }

    /// Time until which a stall only means that TCP has paused to measure.
    pub(crate) fn pauses_until(&self) -> Option<Instant> {
        let (time, trips) = PAUSE;
        let longest = time + trips * self.srtt() + self.stall_patience();
        self.progress.paused_at.map(|at| at + longest)
    }

    /// Compares a new sample of TCP with the previous one in `self.sample`.
    pub(super) fn note_sample(&mut self, sample: &PathSample, now: Instant) {
        if sample.pauses && !self.sample.pauses {
            self.progress.paused_at = Some(now);
        }
        if sample.delivered > self.sample.delivered || sample.received > self.sample.received {
            self.progress.last_moved = Some(now);
        }
        let is_proof = match &self.progress.proof {
            None => sample.delivered > self.sample.delivered,
            Some(proof) => {
                let segments = sample.delivered.saturating_sub(proof.delivered);
                segments * u64::from(sample.mss).max(1) >= proof.useful_bytes(sample.in_flight)
            }
        };
        if is_proof {
            self.prove(DeliveryProof::new(sample, self.outbound.confirmed, now));
        }
        self.progress.gap = Gap::of(self.progress.gap, &self.sample, sample, now);
    }

    /// The path has proven that it delivers.
    ///
    /// If it was suspect until now, TCP was repairing a loss, and a little more patience would have
    /// spared the duplicates. Behind a policer every full window ends with such a loss.
    fn prove(&mut self, proof: DeliveryProof) {
        if let Some(from) = self.suspect_from() {
            let suspect_at = from + SUSPECT_SLACK;
            self.progress.more_repair.needed(suspect_at, proof.at);
        }
        self.progress.proof = Some(proof);
    }

    /// The peer has acknowledged `confirmed` bytes of the path.
    pub(crate) fn confirm(&mut self, confirmed: u64, now: Instant) {
        self.outbound.confirmed = confirmed;
        self.progress.acknowledged_at = now;
        // Until then the peer may have all of it without having reported it.
        self.progress.gap = self.progress.gap.filter(|gap| !gap.is_repaired());
        if let Some(proof) = self.progress.proof
            && confirmed - proof.confirmed >= proof.useful_bytes(self.sample.in_flight) + RECORD
        {
            self.prove(DeliveryProof::new(&self.sample, confirmed, now));
        }
    }

    /// For a stalled path: whether its earlier data has arrived, so that new data is not held up by
    /// it.
    ///
    /// The evidence is the peer's reports or TCP's acknowledgments. The latter return over the
    /// path's own link, and sooner if the other paths that carry reports are slow. Alone they prove
    /// nothing, since a proxy may acknowledge in the peer's name (RFC 3135). So the reports must
    /// also have advanced since the stall, and recently.
    pub(crate) fn has_caught_up(&self, now: Instant) -> bool {
        let moves = self.progress.acknowledged_at > self.stall.began
            && now.saturating_sub(self.progress.acknowledged_at) < self.stall_patience();
        self.outbound.confirmed >= self.stall.recovers_at
            || moves && self.has_acknowledged(self.stall.recovers_at)
    }

    /// Restarts the path's patience, as if it had just proven that it delivers.
    pub(crate) fn restart_patience(&mut self, now: Instant) {
        self.progress.acknowledged_at = now;
        if let Some(proof) = &mut self.progress.proof {
            proof.at = now;
        }
    }
}

/// See [`DeliveryProof::rate`].
fn delivered_rate(sample: &PathSample) -> Option<f64> {
    let rates = [sample.delivery_rate, sample.limit].into_iter();
    let known = rates.filter(|rate| *rate > 0).min();
    known.map(|rate| rate as f64)
}

/// Additional time that TCP has recently needed for its repairs. It decays.
#[derive(Clone, Copy, Debug)]
pub(super) struct MoreRepair {
    time: Duration,
    since: Instant,
}

impl MoreRepair {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            time: Duration::ZERO,
            since: now,
        }
    }

    /// The additional time at `now`.
    fn at(&self, now: Instant) -> Duration {
        self.time.mul_f64(fade(self.since, now))
    }

    /// A path that would have been suspect from `suspect_at` has proven at `now` that it delivers.
    /// If it was silent for longer than any repair, that was an outage, for which patience is of no
    /// use.
    fn needed(&mut self, suspect_at: Instant, now: Instant) {
        let time = now.saturating_sub(suspect_at);
        if time > self.at(now) && time <= MORE_REPAIR_MAX {
            (self.time, self.since) = (time, now);
        }
    }
}

impl DeliveryProof {
    fn new(sample: &PathSample, confirmed: u64, at: Instant) -> Self {
        Self {
            at,
            in_flight: sample.in_flight,
            repairs: sample.loss != LossState::Open,
            rate: delivered_rate(sample),
            delivered: sample.delivered,
            confirmed,
            srtt: srtt_of(sample),
            rttvar: sample.rttvar,
        }
    }

    /// Number of delivered bytes that proves that the path still delivers. After a timeout little
    /// is in flight, and each segment counts.
    fn useful_bytes(&self, in_flight: u64) -> u64 {
        let rate = self.in_flight.min(in_flight) as f64 / self.srtt.as_secs_f64();
        // The data in flight in a short round trip may be a burst, which a token bucket passes
        // after a pause or a limit passes now and then. A path that continues at its own rate would
        // never show as much again.
        let rate = self.rate.map_or(rate, |delivered| rate.min(delivered));
        (USEFUL_SHARE * rate * self.repair().as_secs_f64()).max(1.0) as u64
    }

    /// Time that TCP needs to detect a loss by its timeout and to repair it.
    fn repair(&self) -> Duration {
        self.srtt + (4 * self.rttvar).max(REPAIR_MIN) + REPAIR_SLACK
    }

    /// The same before a path stalls.
    fn stall_repair(&self) -> Duration {
        match self.repairs {
            true => self.repair().max(self.srtt + TIMEOUT_MIN + REPAIR_SLACK),
            false => self.repair(),
        }
    }
}

#[cfg(test)]
mod tests;
