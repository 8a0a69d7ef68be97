//! The rate server: the time for which a packet occupies the link.

use core::time::Duration;

/// Nanoseconds per second; work is counted in bit-nanoseconds per second so that it stays an
/// integer.
const NANOS: u128 = 1_000_000_000;

/// Sends packets one after the other at a constant number of bits per second, or as a token bucket
/// filter (tbf), which may send up to a burst at once after an idle time.
///
/// Arithmetic is exact: the part of a nanosecond beyond the end of a packet is credited to the next
/// one of the same busy period, so rounding errors never add up. A burst is the same credit, kept
/// while idle.
#[derive(Clone, Debug)]
pub(crate) struct RateServer {
    /// Bits per second; 0 stops the server.
    rate: u64,
    /// The credit that may accumulate while idle, in bits * 10^9.
    burst: u128,
    /// Remaining work of the packet in transmission, in bits * 10^9; `None` while idle.
    work: Option<u128>,
    /// Time to which `work` is advanced.
    at: Duration,
    /// Work done at `at` beyond the end of the last packet: within its last nanosecond, or
    /// accumulated.
    surplus: u128,
    /// End of the current transmission. It is cached because it is read several times per packet
    /// and takes a long division.
    end: Option<Duration>,
}

impl RateServer {
    pub(crate) fn new(rate: u64) -> Self {
        Self {
            rate,
            burst: 0,
            work: None,
            at: Duration::ZERO,
            surplus: 0,
            end: None,
        }
    }

    /// Bytes of the packet in transmission that are unsent at `now`, rounded up.
    pub(crate) fn remaining(&self, now: Duration) -> Option<u64> {
        let elapsed = now.saturating_sub(self.at).as_nanos();
        let done = u128::from(self.rate).saturating_mul(elapsed);
        let left = self.work?.saturating_sub(done).div_ceil(8 * NANOS);
        Some(u64::try_from(left).unwrap_or(u64::MAX))
    }

    /// Changes the rate from `now` on, also for the rest of the packet in transmission.
    ///
    /// Transmissions that ended before `now` must have been removed with [`RateServer::finish`].
    pub(crate) fn set_rate(&mut self, now: Duration, rate: u64) {
        if let Some(work) = &mut self.work {
            let elapsed = now.saturating_sub(self.at).as_nanos();
            let done = u128::from(self.rate).saturating_mul(elapsed);
            *work = work.saturating_sub(done);
        }
        self.surplus = self.saved(now).min(self.burst);
        self.at = self.at.max(now);
        self.rate = rate;
        self.end = self.compute_end();
    }

    /// Changes the bytes that may accumulate while idle; the bucket starts full.
    pub(crate) fn set_burst(&mut self, now: Duration, bytes: u64) {
        self.burst = u128::from(bytes) * 8 * NANOS;
        self.set_rate(now, self.rate);
        self.surplus = self.burst;
        if let Some(work) = &mut self.work {
            let used = self.surplus.min(*work);
            *work -= used;
            self.surplus -= used;
        }
        self.end = self.compute_end();
    }

    /// Whether a packet is in transmission.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.work.is_some()
    }

    /// The queue was empty when the last packet ended: drops the credit for the next one.
    pub(crate) fn drop_credit(&mut self) {
        self.surplus = self.surplus.min(self.burst);
    }

    /// Starts to send a packet of `bytes` at `start`, which is not before the end of the last one.
    pub(crate) fn begin(&mut self, start: Duration, bytes: usize) {
        debug_assert!(self.work.is_none(), "one packet at a time");
        let credit = if start == self.at {
            self.surplus
        } else {
            self.saved(start).min(self.burst)
        };
        let work = bytes as u128 * 8 * NANOS;
        self.work = Some(work.saturating_sub(credit));
        self.at = self.at.max(start);
        self.surplus = credit.saturating_sub(work);
        self.end = self.compute_end();
    }

    /// End of the current transmission; `None` while idle or while the rate is 0.
    #[inline]
    pub(crate) fn end(&self) -> Option<Duration> {
        self.end
    }

    /// Ends the transmission if it is over by `now`; returns its end.
    #[inline]
    pub(crate) fn finish(&mut self, now: Duration) -> Option<Duration> {
        let end = self.end.filter(|end| *end <= now)?;
        let done = u128::from(self.rate) * (end - self.at).as_nanos();
        self.surplus += done - self.work.take()?;
        self.at = end;
        self.end = None;
        Some(end)
    }

    /// Discards the packet in transmission.
    pub(crate) fn abort(&mut self) {
        self.work = None;
        self.surplus = self.surplus.min(self.burst);
        self.end = None;
    }

    /// Credit at `now` if the server stays idle until then.
    fn saved(&self, now: Duration) -> u128 {
        if self.burst == 0 || self.work.is_some() {
            return self.surplus;
        }
        let idle = now.saturating_sub(self.at).as_nanos();
        (self.surplus).saturating_add(u128::from(self.rate).saturating_mul(idle))
    }

    fn compute_end(&self) -> Option<Duration> {
        let work = self.work?;
        if self.rate == 0 {
            return None;
        }
        // Most packets need no long division: more than 2 GB fit into 64 bits.
        let time = match u64::try_from(work) {
            Ok(work) => Duration::from_nanos(work.div_ceil(self.rate)),
            Err(_) => {
                let nanos = work.div_ceil(u128::from(self.rate));
                let seconds = u64::try_from(nanos / NANOS).ok()?;
                Duration::new(seconds, (nanos % NANOS) as u32)
            }
        };
        self.at.checked_add(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_does_not_add_up() {
        // 1500 bytes at 7 Mbit/s last 1714285.714... ns; 7000 of them last 12 s to the nanosecond.
        let mut server = RateServer::new(7_000_000);
        let mut now = Duration::ZERO;
        for _ in 0..7_000 {
            server.begin(now, 1500);
            now = server.end().unwrap();
            assert_eq!(server.finish(now), Some(now));
        }
        assert_eq!(now, Duration::from_secs(12));
    }

    #[test]
    fn a_new_rate_applies_to_the_rest_of_the_packet() {
        let mut server = RateServer::new(12_000_000);
        server.begin(Duration::ZERO, 1500); // 1 ms
        // The other half takes twice as long.
        server.set_rate(Duration::from_micros(500), 6_000_000);
        assert_eq!(server.end(), Some(Duration::from_micros(1500)));
        server.set_rate(Duration::from_micros(1000), 0);
        assert_eq!(server.end(), None);
        server.set_rate(Duration::from_secs(5), 6_000_000);
        assert_eq!(
            server.end(),
            Some(Duration::from_secs(5) + Duration::from_micros(500))
        );
    }

    #[test]
    fn a_burst_accumulates_while_idle_and_is_sent_at_once() {
        let ms = Duration::from_millis;
        let mut server = RateServer::new(12_000_000); // 1500 bytes each ms
        server.set_burst(Duration::ZERO, 4_500);
        let mut send = |at: Duration| {
            server.begin(at, 1500);
            let end = server.end().unwrap();
            assert_eq!(server.finish(end), Some(end));
            end
        };
        let ends: Vec<_> = (0..5)
            .scan(ms(0), |at, _| {
                *at = send(*at);
                Some(*at)
            })
            .collect();
        assert_eq!(ends, [ms(0), ms(0), ms(0), ms(1), ms(2)]);
        // 2 ms accumulate two packets, an hour only the burst.
        assert_eq!(
            [send(ms(4)), send(ms(4)), send(ms(4))],
            [ms(4), ms(4), ms(5)]
        );
        let hour = Duration::from_secs(3_600);
        let ends = [(); 4].map(|()| send(hour));
        assert_eq!(ends[..3], [hour; 3]);
        assert!(ends[3] > hour);
    }

    #[test]
    fn an_unrepresentable_end_is_none() {
        let mut server = RateServer::new(1);
        server.set_rate(Duration::MAX - Duration::from_secs(1), 1);
        server.begin(Duration::MAX - Duration::from_secs(1), 1500);
        assert_eq!(server.end(), None);
    }
}
