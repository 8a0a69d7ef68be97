//! Pacing (RFC 9002, section 7.7): a token bucket, with the rate and the burst of quinn.

use crate::clock::{MILLISECOND, Nanos, nanos};
use std::time::Duration;

/// Rate in windows per round trip.
const RATE: f64 = 1.25;

/// Packets of this time leave at once.
const BURST: Nanos = 2 * MILLISECOND;

/// Least and most packets that leave at once.
const PACKETS: (u64, u64) = (10, 256);

/// See the module.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Bytes that may leave now; `None` before the first packet, when all of a burst may.
    tokens: Option<u64>,
    filled: Nanos,
}

impl Pacer {
    pub(crate) fn new() -> Self {
        Self {
            tokens: None,
            filled: 0,
        }
    }

    /// When `bytes` may leave, for a window in bytes and a round trip; `None` if now.
    pub(crate) fn due(
        &mut self,
        bytes: u64,
        (window, srtt): (u64, Duration),
        mtu: u64,
        now: Nanos,
    ) -> Option<Nanos> {
        let rtt = nanos(srtt).max(1);
        let burst = (u128::from(window) * u128::from(BURST) / u128::from(rtt)) as u64;
        let burst = burst.clamp(PACKETS.0 * mtu, PACKETS.1 * mtu);
        let tokens = self.tokens.get_or_insert(burst);
        *tokens = burst.min(*tokens);
        if *tokens >= bytes {
            return None;
        }
        let rate = RATE * window as f64 / rtt as f64;
        let gained = (now - self.filled) as f64 * rate;
        *tokens = tokens.saturating_add(gained as u64).min(burst);
        self.filled = now;
        if *tokens >= bytes {
            return None;
        }
        // A whole burst, so that the timer seldom fires.
        let missing = burst.max(bytes) - *tokens;
        Some(now + ((missing as f64 / rate).ceil() as Nanos).max(1))
    }

    /// Bytes have left.
    pub(crate) fn sent(&mut self, bytes: u64) {
        if let Some(tokens) = &mut self.tokens {
            *tokens = tokens.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_leaves_in_four_fifths_of_a_round_trip() {
        let (mut pacer, mut now, mut sent) = (Pacer::new(), 0, 0);
        let window = (250_000, Duration::from_millis(20));
        while now < 1000 * MILLISECOND {
            match pacer.due(1472, window, 1472, now) {
                Some(at) => now = at,
                None => {
                    pacer.sent(1472);
                    sent += 1472;
                }
            }
        }
        // 50 round trips, and the first burst.
        let expected = 50 * 312_500;
        assert!((expected..expected + 50_000).contains(&sent), "{sent}");
    }
}
