//! When a path is late, silent or stalled, by what the peer confirms and what TCP has had acknowledged.

use std::time::Duration;

use super::hole::Hole;
use super::{Flight, Path, PathSample, srtt_of};
use crate::Instant;

/// Reports of what arrived take this much longer than half a round trip: 5 ms, rarely 15 ms.
pub(crate) const REPORT_SLACK: Duration = Duration::from_millis(15);

/// A path that has been silent for this long is doubted: what is late on it is repeated elsewhere.
const SILENT_SLACK: Duration = Duration::from_millis(15);

/// A path that gets less through than this part of what it did is as good as silent: in the time of a repair, less than its
/// rate was in a thirtieth of that.
///
/// One that browns out to a hundredth of its rate gets a segment through now and then, which helps nobody. One that fades to
/// a twentieth still carries, and is not to be given up (docs/failover.md).
const WORTH: f64 = 1.0 / 30.0;

/// So many bytes may be confirmed by one segment: those of a TLS record, which can be read when its last one is there.
pub(crate) const RECORD: u64 = 16_384;

/// A path stalls when nothing is confirmed, or its oldest piece is overdue, for two round trips, four variations, and this.
const STALL_SLACK: Duration = Duration::from_millis(150);

/// A path that is silent stalls when TCP could have repaired a loss by its timeout: that waits for a round trip and four
/// variations, or this, and the repair takes another round trip.
const REPAIR_LEAST: Duration = Duration::from_millis(50);

/// And as much more as TCP's timers are coarse.
const REPAIR_SLACK: Duration = Duration::from_millis(10);

/// So long does BBR pause to see the least round trip (PROBE_RTT), every ten seconds unless it meets a shorter one; and as
/// many round trips until what was under way is acknowledged, until it may go on, and until what has waited is there.
const PAUSE: (Duration, u32) = (Duration::from_millis(200), 2);

/// No path is waited for longer than this.
const STALL_MOST: Duration = Duration::from_secs(5);

/// The last time that a path showed that it delivers, and what it was like then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    at: Instant,
    /// Bytes that TCP had on their way.
    in_flight: u64,
    /// Bytes per second that the path delivered, or may carry where that is less; nothing while that was not known.
    rate: Option<f64>,
    /// Segments that the peer's TCP had, and bytes that the peer had confirmed.
    delivered: u64,
    confirmed: u64,
    /// Round trip and variation. Those of a path that browns out grow with each segment that gets through, and with them the
    /// time in which that would be noticed.
    srtt: Duration,
    rttvar: Duration,
}

impl Path {
    /// How long after its expected arrival something can be confirmed without being late.
    ///
    /// The report of it comes over the path of least delay, which may be another one.
    pub fn patience(&self) -> Duration {
        self.patience_at(self.srtt(), self.sample.rttvar)
    }

    fn patience_at(&self, srtt: Duration, rttvar: Duration) -> Duration {
        self.report_trip.unwrap_or(srtt / 2) + 2 * rttvar + REPORT_SLACK
    }

    /// For how long the oldest thing on the path has been late.
    ///
    /// A path that delivers hardly any of what it takes still has good figures: a rate that was measured before, a
    /// short round trip. What it owes says more.
    pub fn overdue(&self, now: Instant) -> Duration {
        let late_from = self.late_from();
        late_from.map_or(Duration::ZERO, |from| now.saturating_sub(from))
    }

    /// Whether anything on the path is late.
    pub fn is_late(&self, now: Instant) -> bool {
        self.late_from().is_some_and(|from| now >= from)
    }

    /// From when on bytes on the path are late.
    ///
    /// As long as TCP has them on their way by what was known when they were handed over: of a path that slows down round trip
    /// and variation grow with what waits on it, and with them the time in which that would be noticed.
    pub(crate) fn late_at(&self, flight: &Flight) -> Instant {
        flight.expected_at + self.patience_with(flight.record_end, flight.patience)
    }

    /// What TCP has had acknowledged is at the peer, whose process has not come to it yet: over another path it would come to it no
    /// sooner. Unless something on the way acknowledges in the peer's name (a satellite's proxy, RFC 3135), so that it is not
    /// waited for longer than for a stall.
    fn patience_with(&self, path_end: u64, patience: Duration) -> Duration {
        match self.has_acknowledged(path_end) {
            true => patience.max(self.stall_patience()),
            false => patience,
        }
    }

    /// From when on anything on the path is late, unless it is confirmed before.
    fn late_from(&self) -> Option<Instant> {
        let data = self.oldest_flights().map(|flight| self.late_at(flight));
        let data = data.min();
        if self.control.is_empty() {
            return data;
        }
        let control = [self.control.front(), self.first_control_on_its_way()];
        let control = control.into_iter().flatten().map(|sent| {
            let patience = self.patience_with(self.record_end(sent), self.patience());
            sent.sent_at + self.delay() + patience
        });
        data.into_iter().chain(control).min()
    }

    /// When the oldest thing that TCP has on its way was expected at the peer.
    fn expected_at(&self) -> Option<Instant> {
        let data = self.first_on_its_way().map(|flight| flight.expected_at);
        let control = self.first_control_on_its_way();
        let control = control.map(|sent| sent.sent_at + self.delay());
        data.into_iter().chain(control).min()
    }

    /// When the oldest control frame that only this path has is late. These are small, and somebody waits for each of them, so that
    /// it makes no difference whether TCP has had it acknowledged.
    pub(crate) fn control_late_at(&self) -> Option<Instant> {
        let oldest = self.control.iter().find(|sent| sent.is_to_be_repeated())?;
        Some(oldest.sent_at + self.delay() + self.patience())
    }

    /// When the oldest thing that the peer has not confirmed was sent.
    pub(crate) fn oldest_unconfirmed(&self) -> Option<Instant> {
        let data = self.flights.front().map(|flight| flight.sent_at);
        let control = self.control.front().map(|sent| sent.sent_at);
        match (data, control) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// From when on nothing says any more that the path delivers: its oldest piece is late, and TCP, which hears of every
    /// segment, has had next to nothing acknowledged for so long either. Nothing where TCP does not tell what it delivers.
    ///
    /// While TCP gets anything worth the name to the peer what is late may still be on its way; a path that is silent in
    /// both ways is dead, or waits for a timeout. Where TCP has nothing on its way, since all is acknowledged or the peer has closed the
    /// window, it has nothing to say.
    pub(crate) fn silent_from(&self) -> Option<Instant> {
        let heard = self.heard.filter(|_| self.sample.in_flight > 0)?;
        let patience = self.patience_at(heard.srtt, heard.rttvar);
        Some((self.expected_at()? + patience).max(heard.at + patience))
    }

    /// Whether that is so for longer than chance has it.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        self.silent_from()
            .is_some_and(|from| now >= from + SILENT_SLACK)
    }

    /// Whether what is late on it is better paid for a second time: it is silent, or TCP does not tell.
    pub(crate) fn may_have_failed(&self, now: Instant) -> bool {
        self.heard.is_none() || self.is_silent(now)
    }

    /// When the path counts as stalled: if nothing is confirmed before, or if its oldest piece is not.
    ///
    /// The second is for a path that delivers hardly any of what it takes: some progress, and none that helps. While TCP
    /// repairs losses and gets somewhere, what comes behind the hole is at the peer already: giving all of it to other
    /// paths would cost more than waiting as long again.
    ///
    /// Much sooner where TCP has had nothing acknowledged either: then nothing is being repaired, but for a loss that only
    /// a timeout finds, and one of these is waited for.
    pub(crate) fn stalls_at(&self) -> Option<Instant> {
        let late = self.late_stalls_at()?;
        let silent = self.heard.zip(self.silent_from());
        Some(silent.map_or(late, |(heard, from)| late.min(from + heard.repair())))
    }

    fn late_stalls_at(&self) -> Option<Instant> {
        let oldest = self.oldest_unconfirmed()?;
        let patience = self.stall_patience();
        let hole = self.hole.zip(self.heard);
        let heard = hole.map(|(_, heard)| heard.at).unwrap_or_default();
        let silent = oldest.max(self.last_progress.max(heard)) + patience;
        // Also when a part of the hole has just been closed: then the next piece is as late as the one before.
        let more = match hole {
            Some((hole, _)) => hole.patience(patience, STALL_MOST),
            None => Duration::ZERO,
        };
        let late = self.oldest_flights().map(|flight| {
            let least = patience.min(flight.stall_patience());
            flight.expected_at + self.patience_with(flight.record_end, least) + more
        });
        late.chain([silent]).min()
    }

    /// How long something may be overdue before the path counts as stalled, silent or not.
    pub(crate) fn stall_patience(&self) -> Duration {
        let patience = 2 * self.srtt() + 4 * self.sample.rttvar + STALL_SLACK;
        patience.min(STALL_MOST)
    }

    /// Until when a stall means no more than that TCP has paused in order to measure.
    pub(crate) fn pauses_until(&self) -> Option<Instant> {
        let (time, trips) = PAUSE;
        let longest = time + trips * self.srtt() + self.stall_patience();
        self.paused_at.map(|at| at + longest)
    }

    /// TCP has been asked, and `self.sample` is what it said before.
    pub(super) fn hear(&mut self, sample: &PathSample, now: Instant) {
        if sample.pauses && !self.sample.pauses {
            self.paused_at = Some(now);
        }
        if sample.delivered > self.sample.delivered || sample.received > self.sample.received {
            self.last_moved = Some(now);
        }
        let is_heard = match &self.heard {
            None => sample.delivered > self.sample.delivered,
            Some(heard) => {
                let segments = sample.delivered.saturating_sub(heard.delivered);
                segments * u64::from(sample.mss).max(1) >= heard.worth(sample.in_flight)
            }
        };
        if is_heard {
            self.heard = Some(Heard::new(sample, self.confirmed, now));
        }
        self.hole = Hole::of(self.hole, &self.sample, sample, now);
    }

    /// The peer has confirmed so many bytes of the path.
    pub(crate) fn confirm(&mut self, confirmed: u64, now: Instant) {
        self.confirmed = confirmed;
        self.last_progress = now;
        // Until then the peer may have all of it and not have said so.
        self.hole = self.hole.filter(|hole| !hole.is_repaired());
        if let Some(heard) = self.heard
            && confirmed - heard.confirmed >= heard.worth(self.sample.in_flight) + RECORD
        {
            self.heard = Some(Heard::new(&self.sample, confirmed, now));
        }
    }

    /// Of a stalled path: whether what it was given before has arrived, so that something new is not held up by it.
    ///
    /// By the peer's reports, or by TCP's acknowledgements. These come back over the path's own link, and sooner where
    /// the other paths that reports take are slow. Alone they prove nothing, since a proxy may acknowledge in the peer's
    /// name (RFC 3135): the reports must have moved since the stall, and a moment ago.
    pub(crate) fn has_caught_up(&self, now: Instant) -> bool {
        let moves = self.last_progress > self.useless_from
            && now.saturating_sub(self.last_progress) < self.stall_patience();
        self.confirmed >= self.recovers_at || moves && self.has_acknowledged(self.recovers_at)
    }

    /// From now on it has as much time as if it had just shown that it delivers.
    pub(crate) fn begin_again(&mut self, now: Instant) {
        self.last_progress = now;
        if let Some(heard) = &mut self.heard {
            heard.at = now;
        }
    }
}

/// See [`Heard::rate`].
fn delivered_rate(sample: &PathSample) -> Option<f64> {
    let rates = [sample.delivery_rate, sample.limit].into_iter();
    let known = rates.filter(|rate| *rate > 0).min();
    known.map(|rate| rate as f64)
}

impl Heard {
    fn new(sample: &PathSample, confirmed: u64, at: Instant) -> Self {
        Self {
            at,
            in_flight: sample.in_flight,
            rate: delivered_rate(sample),
            delivered: sample.delivered,
            confirmed,
            srtt: srtt_of(sample),
            rttvar: sample.rttvar,
        }
    }

    /// Bytes that show that it still delivers. After a timeout little is under way, and each segment counts.
    fn worth(&self, in_flight: u64) -> u64 {
        let rate = self.in_flight.min(in_flight) as f64 / self.srtt.as_secs_f64();
        // What is on its way in a short round trip may be a burst, such as a token bucket passes after a pause, or a limit
        // lets through now and then: a path that carries on at its own rate would never show as much again.
        let rate = self.rate.map_or(rate, |delivered| rate.min(delivered));
        (WORTH * rate * self.repair().as_secs_f64()).max(1.0) as u64
    }

    /// What TCP needs to find a loss by its timeout, and to repair it.
    fn repair(&self) -> Duration {
        self.srtt + (4 * self.rttvar).max(REPAIR_LEAST) + REPAIR_SLACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathId;
    use crate::path::PathState;

    const MS: Duration = Duration::from_millis(1);

    /// A path that stalled after a second with 100 kB on their way, of which TCP still has so many.
    fn stalled(in_flight: u64) -> Path {
        let mut path = Path::new(PathId(0), Instant::ZERO);
        let sample = |delivered, in_flight| PathSample {
            srtt: 20 * MS,
            mss: 1448,
            in_flight,
            delivered,
            ..PathSample::default()
        };
        path.sent = 100_000;
        path.update(sample(1, 100_000), 900 * MS);
        (path.state, path.recovers_at, path.useless_from) =
            (PathState::Stalled, 100_000, 1000 * MS);
        path.update(sample(50, in_flight), 1100 * MS);
        path
    }

    #[test]
    fn a_path_that_has_faded_is_back_when_tcp_has_had_all_of_it_acknowledged() {
        let mut path = stalled(0);
        path.confirm(50_000, 1100 * MS);
        assert!(path.has_caught_up(1100 * MS), "reports follow later");
        let mut path = stalled(1448);
        path.confirm(50_000, 1100 * MS);
        assert!(!path.has_caught_up(1100 * MS), "not all of it");
        path.confirm(100_000, 1110 * MS);
        assert!(path.has_caught_up(9999 * MS), "the peer has said so");
    }

    #[test]
    fn acknowledgements_alone_do_not_bring_a_path_back() {
        // Something on the way may have given them.
        let mut path = stalled(0);
        assert!(!path.has_caught_up(1100 * MS));
        path.confirm(50_000, 1100 * MS);
        let later = 1100 * MS + path.stall_patience();
        assert!(!path.has_caught_up(later), "nor with old reports");
    }
}
