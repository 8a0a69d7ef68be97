//! How much may wait unsent in a carrier's socket (`TCP_NOTSENT_LOWAT`, tcp(7)): enough to keep TCP busy between two visits,
//! little enough to be decided late. docs/fbdt.md has what was measured.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::tcp_info::TcpInfo;

/// What leaves in this time at the present rate ...
const TIME: Duration = Duration::from_millis(3);

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

/// What may wait unsent in the socket of a carrier that is not young any more, in bytes.
pub(crate) fn wanted(info: &TcpInfo, is_model_based: bool) -> u32 {
    let mut rate = info.delivery_rate_bytes_per_s as f64;
    let (mut time, mut bounds) = (TIME, BOUNDS);
    if is_model_based {
        let paced = info.pacing_rate_bytes_per_s.unwrap_or(0) as f64;
        let trip = info.min_rtt.unwrap_or(info.srtt);
        let wanted = match paced > STARTUP_GAIN * rate {
            true => (trip / 8).min(STARTUP_TIME),
            false => (trip / 16).min(PACED_TIME),
        };
        if wanted > TIME {
            (rate, time, bounds) = (rate.max(paced), wanted, PACED);
        }
    } else if info.snd_ssthresh_bytes.is_none() {
        // In slow start what was measured is the rate of the window before.
        rate = rate.max(info.snd_cwnd_bytes as f64 / info.srtt.as_secs_f64().max(1e-6));
    }
    let wanted = rate * time.as_secs_f64();
    wanted.clamp(*bounds.start() as f64, *bounds.end() as f64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_wait_follows_the_rate_and_how_the_congestion_control_uses_it() {
        let info = TcpInfo {
            delivery_rate_bytes_per_s: 10_000_000,
            pacing_rate_bytes_per_s: Some(12_000_000),
            snd_ssthresh_bytes: Some(1),
            srtt: Duration::from_millis(250),
            min_rtt: Some(Duration::from_millis(200)),
            snd_cwnd_bytes: 1_000_000,
            ..TcpInfo::default()
        };
        assert_eq!(wanted(&info, false), 30_000, "3 ms");
        assert_eq!(wanted(&info, true), 72_000, "6 ms as it is paced");
        let startup = TcpInfo {
            pacing_rate_bytes_per_s: Some(28_900_000),
            snd_ssthresh_bytes: None,
            ..info
        };
        assert_eq!(wanted(&startup, true), 578_000, "20 ms");
        assert_eq!(wanted(&startup, false), 30_000, "3 ms, a window in 250 ms");
        let trip_of = |ms| TcpInfo {
            min_rtt: Some(Duration::from_millis(ms)),
            ..startup
        };
        assert_eq!(wanted(&trip_of(50), true), 180_625, "an eighth");
        assert_eq!(wanted(&trip_of(20), true), 30_000, "too short for it");
    }
}
