//! How much may wait unsent in a carrier's socket (`TCP_NOTSENT_LOWAT`, tcp(7)): enough to keep TCP busy between two visits,
//! little enough to be decided late. docs/fbdt.md has what was measured.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::Instant;

use crate::TcpInfo;

/// What leaves in this time at the present rate, unless the socket is found empty ([`Reserve`]) ...
pub(crate) const TIME: Duration = Duration::from_millis(3);

/// ... within these bounds, in bytes.
const BOUNDS: RangeInclusive<u32> = 12 * 1024..=512 * 1024;

/// Under BBR, at the rate at which it paces, what leaves in a sixteenth of the least round trip, and in no longer time than
/// this. What it measures while its socket is empty does not count for it as the link's rate, and until it has that it sends
/// nearly three times as fast as the link: empty once in a round trip is enough for that to last for ever. Over short
/// trips, where rounds are many, it ends without.
const PACED_TIME: Duration = Duration::from_millis(6);

/// While it sends so much faster than was delivered that it is in its startup, an eighth of the least round trip, and no longer
/// than this: the kernel tells that a socket takes more when acknowledgements arrive, and these come in bursts where a link
/// varies or repairs losses.
const STARTUP_TIME: Duration = Duration::from_millis(20);

/// The startup's gain is 2.89, the greatest one after it 1.25.
const STARTUP_GAIN: f64 = 1.8;

/// The bounds under BBR, in bytes.
const PACED: RangeInclusive<u32> = 12 * 1024..=2048 * 1024;

/// For how long what waits in a carrier's socket lasts, under BBR.
///
/// A process that waits for a processor comes too late to some of its sockets. CUBIC's links have queues to send from meanwhile;
/// BBR keeps theirs empty, and the link rests. So the reserve grows with every visit that comes too late, and shrinks in calm times.
#[derive(Debug)]
pub(crate) struct Reserve {
    time: Duration,
    changed: Instant,
}

impl Reserve {
    /// Grows by so much ...
    const STEP: Duration = Duration::from_millis(1);
    /// ... to this: what waits ahead of an urgent byte, too.
    const MOST: Duration = Duration::from_millis(8);
    /// Shrinks by half a step when it sufficed for so long.
    const CALM: Duration = Duration::from_secs(1);

    pub(crate) fn new(now: Instant) -> Self {
        Self {
            time: TIME,
            changed: now,
        }
    }

    /// A socket that had refused more was visited; `is_empty` if all that it had taken was sent meanwhile.
    pub(crate) fn visited(&mut self, is_empty: bool, now: Instant) {
        let time = if is_empty {
            (self.time + Self::STEP).min(Self::MOST)
        } else if now.saturating_sub(self.changed) > Self::CALM {
            (self.time - Self::STEP / 2).max(TIME)
        } else {
            return;
        };
        (self.time, self.changed) = (time, now);
    }
}

/// What may wait unsent in the socket of a carrier that is not young any more, in bytes. No rate counts beyond `most` bytes per
/// second: what the carrier sustains, or may send.
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
            // What was delivered while the socket was empty is less than the link's rate.
            let full = if in_startup { rate } else { rate.max(paced) };
            (rate, time, bounds) = (full, reserve.time, PACED);
        }
    } else if info.snd_ssthresh_bytes.is_none() {
        // In slow start what was measured is the rate of the window before.
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
    fn what_may_wait_follows_the_rate_and_how_the_congestion_control_uses_it() {
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
            "no more than it sustains"
        );
        let trip_of = |ms| TcpInfo {
            min_rtt: Some(Duration::from_millis(ms)),
            ..startup
        };
        assert_eq!(
            wanted(&trip_of(50), Some(&least), u64::MAX),
            180_625,
            "an eighth"
        );
        assert_eq!(
            wanted(&trip_of(20), Some(&least), u64::MAX),
            30_000,
            "too short for it"
        );
    }

    #[test]
    fn a_socket_that_was_found_empty_is_given_more_until_it_suffices_for_long() {
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
            "it sufficed"
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
            "not calm for long"
        );
        for _ in 0..100 {
            now += Duration::from_millis(1001);
            reserve.visited(false, now);
        }
        assert_eq!(
            wanted(&info, Some(&reserve), u64::MAX),
            270_000,
            "as in the beginning"
        );
        assert_eq!(
            wanted(&info, None, u64::MAX),
            270_000,
            "no matter without BBR"
        );
    }
}
