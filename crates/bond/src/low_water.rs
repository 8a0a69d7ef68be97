//! Limits unsent data in a carrier's socket (`TCP_NOTSENT_LOWAT`, tcp(7)): enough to keep TCP busy
//! between two visits, and little enough to be committed late. docs/fbdt.md has the measurements.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::Instant;

use crate::TcpInfo;

/// The limit as sending time at the current rate, unless the socket is found empty ([`Reserve`]).
pub(crate) const TIME: Duration = Duration::from_millis(3);

/// Bounds of the limit, in bytes.
const BOUNDS: RangeInclusive<u32> = 12 * 1024..=512 * 1024;

/// Under BBR, the limit is a sixteenth of the least round trip at the pacing rate, and at most this
/// time. BBR does not count measurements with an empty socket as the link's rate, and until it has
/// that rate it sends nearly three times as fast as the link. One empty moment per round trip is
/// enough to prolong this state forever. On short paths, with many round trips, it ends anyway.
const PACED_TIME: Duration = Duration::from_millis(6);

/// While BBR sends so much faster than data is delivered that it is in its startup, the limit is an
/// eighth of the least round trip, and at most this time. The kernel reports a writable socket when
/// acknowledgments arrive, and these come in bursts if a link varies or repairs losses.
const STARTUP_TIME: Duration = Duration::from_millis(20);

/// Separates the startup's gain of 2.89 from the highest later one, 1.25.
const STARTUP_GAIN: f64 = 1.8;

/// The bounds under BBR, in bytes.
const PACED: RangeInclusive<u32> = 12 * 1024..=2048 * 1024;

/// How long the data in a carrier's socket should last under BBR.
///
/// A process that waits for a processor serves some of its sockets too late. CUBIC's links then
/// have queues to send from, but BBR keeps theirs empty, and the link idles. So the reserve grows
/// with every late visit, and shrinks in calm times.
#[derive(Debug)]
pub(crate) struct Reserve {
    time: Duration,
    changed: Instant,
}

impl Reserve {
    /// Growth per late visit.
    const STEP: Duration = Duration::from_millis(1);
    /// Maximum, because the reserve also delays urgent data.
    const MAX: Duration = Duration::from_millis(8);
    /// Time without a late visit after which the reserve shrinks by half a step.
    const CALM: Duration = Duration::from_secs(1);

    pub(crate) fn new(now: Instant) -> Self {
        Self {
            time: TIME,
            changed: now,
        }
    }

    /// Records a visit to a socket that had refused more data; `is_empty` if all its data was sent
    /// meanwhile.
    pub(crate) fn visited(&mut self, is_empty: bool, now: Instant) {
        let time = if is_empty {
            (self.time + Self::STEP).min(Self::MAX)
        } else if now.saturating_sub(self.changed) > Self::CALM {
            (self.time - Self::STEP / 2).max(TIME)
        } else {
            return;
        };
        (self.time, self.changed) = (time, now);
    }
}

/// The limit on unsent data for a carrier that is no longer young, in bytes. Rates above `most`
/// bytes per second, the rate that the carrier sustains or its limit, do not count.
pub(crate) fn wanted(info: &TcpInfo, reserve: Option<&Reserve>, most: u64) -> u32 {
    let mut rate = info.delivery_rate_bytes_per_s as f64;
    let (mut time, mut bounds) = (TIME, BOUNDS);
    if let Some(reserve) = reserve {
        let paced = info.pacing_rate_bytes_per_s.unwrap_or(0) as f64;
        let trip = info.min_rtt.unwrap_or(info.srtt);
        let in_startup = paced > STARTUP_GAIN * rate;
        let wanted = match in_startup {
            true => (trip / 8).min(STARTUP_TIME),
            false => (trip / 16).min(PACED_TIME),
        };
        if wanted > TIME {
            (rate, time, bounds) = (rate.max(paced), wanted, PACED);
        }
        if reserve.time > time {
            // The rate delivered from an empty socket is below the link's rate.
            let full = if in_startup { rate } else { rate.max(paced) };
            (rate, time, bounds) = (full, reserve.time, PACED);
        }
    } else if info.snd_ssthresh_bytes.is_none() {
        // In slow start the measured rate belongs to the previous window.
        rate = rate.max(info.snd_cwnd_bytes as f64 / info.srtt.as_secs_f64().max(1e-6));
    }
    let wanted = rate.min(most as f64) * time.as_secs_f64();
    wanted.clamp(*bounds.start() as f64, *bounds.end() as f64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::START;

    #[test]
    fn the_low_water_mark_follows_the_rate_and_the_congestion_control() {
        let least = Reserve::new(START);
        let info = TcpInfo {
            delivery_rate_bytes_per_s: 10_000_000,
            pacing_rate_bytes_per_s: Some(12_000_000),
            snd_ssthresh_bytes: Some(1),
            srtt: Duration::from_millis(250),
            min_rtt: Some(Duration::from_millis(200)),
            snd_cwnd_bytes: 1_000_000,
            ..TcpInfo::default()
        };
        assert_eq!(wanted(&info, None, u64::MAX), 30_000, "3 ms");
        assert_eq!(
            wanted(&info, Some(&least), u64::MAX),
            72_000,
            "6 ms as it is paced"
        );
        let startup = TcpInfo {
            pacing_rate_bytes_per_s: Some(28_900_000),
            snd_ssthresh_bytes: None,
            ..info
        };
        assert_eq!(wanted(&startup, Some(&least), u64::MAX), 578_000, "20 ms");
        assert_eq!(
            wanted(&startup, None, u64::MAX),
            30_000,
            "3 ms, a window in 250 ms"
        );
        assert_eq!(
            wanted(&startup, Some(&least), 2_000_000),
            40_000,
            "at most the sustained rate"
        );
        let trip_of = |ms| TcpInfo {
            min_rtt: Some(Duration::from_millis(ms)),
            ..startup
        };
        assert_eq!(
            wanted(&trip_of(50), Some(&least), u64::MAX),
            180_625,
            "an eighth of the round trip"
        );
        assert_eq!(
            wanted(&trip_of(20), Some(&least), u64::MAX),
            30_000,
            "the round trip is too short"
        );
    }

    #[test]
    fn the_reserve_grows_when_a_socket_is_empty_and_shrinks_in_calm_times() {
        let info = TcpInfo {
            delivery_rate_bytes_per_s: 90_000_000,
            pacing_rate_bytes_per_s: Some(100_000_000),
            min_rtt: Some(Duration::from_millis(2)),
            ..TcpInfo::default()
        };
        let mut now = START;
        let mut reserve = Reserve::new(now);
        assert_eq!(
            wanted(&info, Some(&reserve), u64::MAX),
            270_000,
            "3 ms as delivered"
        );
        reserve.visited(false, now);
        assert_eq!(
            wanted(&info, Some(&reserve), u64::MAX),
            270_000,
            "the reserve sufficed"
        );
        reserve.visited(true, now);
        assert_eq!(
            wanted(&info, Some(&reserve), u64::MAX),
            400_000,
            "4 ms as paced"
        );
        for _ in 0..100 {
            reserve.visited(true, now);
        }
        assert_eq!(
            wanted(&info, Some(&reserve), u64::MAX),
            800_000,
            "8 ms and no more"
        );
        now += Duration::from_secs(1);
        reserve.visited(false, now);
        assert_eq!(
            wanted(&info, Some(&reserve), u64::MAX),
            800_000,
            "the calm time is too short"
        );
        for _ in 0..100 {
            now += Duration::from_millis(1001);
            reserve.visited(false, now);
        }
        assert_eq!(
            wanted(&info, Some(&reserve), u64::MAX),
            270_000,
            "as at the start"
        );
        assert_eq!(
            wanted(&info, None, u64::MAX),
            270_000,
            "the reserve applies only to BBR"
        );
    }
}
