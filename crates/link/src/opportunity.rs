//! The server of a trace: delivery opportunities instead of a rate.

use core::time::Duration;

use crate::Trace;

/// Sends packets at the opportunities of a [`Trace`], as Mahimahi's link does. An opportunity
/// without a packet is wasted, and a packet may need several opportunities. The rest of a packet's
/// last opportunity serves the packet that waits behind it.
#[derive(Clone, Debug)]
pub(crate) struct OpportunityServer {
    trace: Trace,
    /// Start of the trace.
    epoch: Duration,
    /// Bytes of one opportunity; 0 sends nothing.
    size: u64,
    /// The first opportunity that has not passed.
    next: u64,
    /// Bytes left of the last opportunity used, for a packet that starts at `left_at`.
    left: u64,
    left_at: Duration,
    /// The packet in transmission.
    work: Option<Work>,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    /// Start of the transmission or, if later, the time to which `bytes` is advanced.
    at: Duration,
    /// Bytes left to send.
    bytes: u64,
    /// Its end; `None` while the server is stopped.
    end: Option<Duration>,
}

impl OpportunityServer {
    pub(crate) fn new(trace: Trace, epoch: Duration) -> Self {
        Self {
            trace,
            epoch,
            size: Trace::OPPORTUNITY,
            next: 0,
            left: 0,
            left_at: Duration::ZERO,
            work: None,
        }
    }

    /// Scales the opportunities from `now` on to that share of their size, rounded to a byte.
    ///
    /// Transmissions that ended before `now` must have been removed with [`Self::finish`].
    pub(crate) fn set_share(&mut self, now: Duration, share: f64) {
        let passed = self.first_from(now).saturating_sub(self.next);
        self.next += passed;
        self.left = 0;
        let sent = passed.saturating_mul(self.size);
        self.size = (Trace::OPPORTUNITY as f64 * share).round() as u64;
        if let Some(mut work) = self.work {
            work.bytes = work.bytes.saturating_sub(sent).max(1);
            work.at = work.at.max(now);
            self.resume(work);
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.work.is_some()
    }

    /// Unsent bytes of the packet in transmission.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.work.map(|work| work.bytes)
    }

    /// Starts to send a packet of `bytes` at `start`.
    pub(crate) fn begin(&mut self, start: Duration, bytes: usize) {
        debug_assert!(self.work.is_none(), "one packet at a time");
        let mut bytes = bytes as u64;
        if start == self.left_at {
            let used = bytes.min(self.left);
            self.left -= used;
            bytes -= used;
        } else {
            self.left = 0;
        }
        self.next = self.next.max(self.first_from(start));
        self.resume(Work {
            at: start,
            bytes,
            end: None,
        });
    }

    pub(crate) fn end(&self) -> Option<Duration> {
        self.work?.end
    }

    /// Ends the transmission if it is over by `now`; returns its end.
    pub(crate) fn finish(&mut self, now: Duration) -> Option<Duration> {
        let end = self.end().filter(|end| *end <= now)?;
        let bytes = self.work.take()?.bytes;
        if bytes > 0 {
            let used = bytes.div_ceil(self.size);
            self.next += used;
            self.left = used * self.size - bytes;
            self.left_at = end;
        }
        Some(end)
    }

    pub(crate) fn abort(&mut self) {
        self.work = None;
        self.left = 0;
    }

    fn resume(&mut self, mut work: Work) {
        work.end = match (work.bytes, self.size) {
            (0, _) => Some(work.at),
            (_, 0) => None,
            (bytes, size) => {
                let last = self.next.saturating_add(bytes.div_ceil(size) - 1);
                self.epoch
                    .checked_add(Duration::from_micros(self.trace.micros_of(last)))
            }
        };
        self.work = Some(work);
    }

    /// The first opportunity at or after that time.
    fn first_from(&self, time: Duration) -> u64 {
        let micros = time.saturating_sub(self.epoch).as_nanos().div_ceil(1_000);
        self.trace
            .first_from(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn server(text: &str) -> OpportunityServer {
        OpportunityServer::new(text.parse().unwrap(), Duration::ZERO)
    }

    /// Sends packets that are enqueued at the given times; returns the millisecond in which each is
    /// sent.
    fn send(server: &mut OpportunityServer, packets: &[(u32, usize)]) -> Vec<u128> {
        let mut free = Duration::ZERO;
        let one = |(at, bytes): &(u32, usize)| {
            server.begin(free.max(*at * MS), *bytes);
            free = server.end().unwrap();
            assert_eq!(server.finish(free), Some(free));
            free.as_millis()
        };
        packets.iter().map(one).collect()
    }

    #[test]
    fn one_packet_for_each_opportunity_and_repeats() {
        let mut server = server("2\n5\n");
        let packets = [(0, 1500); 5];
        assert_eq!(send(&mut server, &packets), [2, 5, 7, 10, 12]);
    }

    #[test]
    fn unused_opportunities_are_wasted() {
        let mut server = server("1\n2\n3\n10\n");
        assert_eq!(
            send(&mut server, &[(0, 1500), (4, 1500), (4, 1500)]),
            [1, 10, 11]
        );
    }

    #[test]
    fn a_packet_may_need_several_opportunities_and_leave_a_rest() {
        let mut server = server("1\n2\n2\n9\n");
        // 4000 bytes use three opportunities, which leaves 500 bytes for the two packets that wait.
        let packets = [(0, 4000), (0, 300), (0, 200), (0, 100), (9, 1400), (9, 1)];
        assert_eq!(send(&mut server, &packets), [2, 2, 2, 9, 9, 10]);
        // A packet that comes later does not get the rest.
        let mut server = self::server("1\n2\n9\n");
        assert_eq!(
            send(&mut server, &[(0, 100), (2, 100), (3, 100)]),
            [1, 2, 9]
        );
    }

    #[test]
    fn opportunities_pass_while_the_server_is_stopped() {
        let mut server = server("1\n2\n3\n4\n5\n6\n");
        server.begin(Duration::ZERO, 4_500);
        server.set_share(2 * MS, 0.0);
        assert_eq!(server.end(), None);
        assert_eq!(
            server.remaining(),
            Some(3_000),
            "the opportunity at 1 ms was used"
        );
        server.set_share(4 * MS, 1.0);
        assert_eq!(
            server.end(),
            Some(5 * MS),
            "the opportunities at 4 and 5 ms"
        );
        server.set_share(4 * MS, 0.5);
        assert_eq!(server.end(), Some(7 * MS));
    }
}
