//! The server of a link: a rate or a trace.

use core::time::Duration;

use crate::Trace;
use crate::opportunity::OpportunityServer;
use crate::rate::RateServer;

/// Sends packets one after the other, at a share of its rate while others use the medium.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    kind: Kind,
    /// Bits per second; the mean rate of a trace.
    rate: u64,
    /// Bytes that a rate may send at once after an idle time.
    burst: u64,
    /// 1 with the medium to itself; 0 while another sender holds it; above 1 to compensate for
    /// pauses.
    share: f64,
}

#[derive(Clone, Debug)]
enum Kind {
    Rate(RateServer),
    Trace(OpportunityServer),
}

impl Server {
    pub(crate) fn new(rate: u64) -> Self {
        Self {
            kind: Kind::Rate(RateServer::new(rate)),
            rate,
            burst: 0,
            share: 1.0,
        }
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Changes to a constant rate, also for the rest of the packet in transmission.
    pub(crate) fn set_rate(&mut self, now: Duration, rate: u64) {
        self.rate = rate;
        let effective = scaled(rate, self.share);
        if let Kind::Rate(server) = &mut self.kind {
            server.set_rate(now, effective);
        } else {
            let mut server = RateServer::new(effective);
            server.set_burst(now, self.burst);
            self.replace(now, Kind::Rate(server));
        }
    }

    /// Changes the bytes that may be sent at once after an idle time; a trace has no such burst.
    pub(crate) fn set_burst(&mut self, now: Duration, bytes: u64) {
        self.burst = bytes;
        if let Kind::Rate(server) = &mut self.kind {
            server.set_burst(now, bytes);
        }
    }

    /// Changes to a trace that starts now.
    pub(crate) fn set_trace(&mut self, now: Duration, trace: Trace) {
        self.rate = trace.mean_rate();
        let mut server = OpportunityServer::new(trace, now);
        server.set_share(now, self.share);
        self.replace(now, Kind::Trace(server));
    }

    /// Changes the share of the rate, or of each opportunity.
    pub(crate) fn set_share(&mut self, now: Duration, share: f64) {
        if share == self.share {
            return;
        }
        self.share = share;
        match &mut self.kind {
            Kind::Rate(server) => server.set_rate(now, scaled(self.rate, share)),
            Kind::Trace(server) => server.set_share(now, share),
        }
    }

    /// Hands the packet in transmission to another server.
    fn replace(&mut self, now: Duration, kind: Kind) {
        let remaining = match &mut self.kind {
            Kind::Rate(server) => server.remaining(now),
            Kind::Trace(server) => server.remaining(),
        };
        self.kind = kind;
        if let Some(bytes) = remaining {
            self.begin(now, bytes as usize);
        }
    }

    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        match &self.kind {
            Kind::Rate(server) => server.is_busy(),
            Kind::Trace(server) => server.is_busy(),
        }
    }

    /// The queue was empty when the last packet ended.
    pub(crate) fn drop_credit(&mut self) {
        if let Kind::Rate(server) = &mut self.kind {
            server.drop_credit();
        }
    }

    /// Starts to send a packet of `bytes` at `start`, which is not before the end of the last one.
    pub(crate) fn begin(&mut self, start: Duration, bytes: usize) {
        match &mut self.kind {
            Kind::Rate(server) => server.begin(start, bytes),
            Kind::Trace(server) => server.begin(start, bytes),
        }
    }

    /// End of the current transmission; `None` while idle or stopped.
    #[inline]
    pub(crate) fn end(&self) -> Option<Duration> {
        match &self.kind {
            Kind::Rate(server) => server.end(),
            Kind::Trace(server) => server.end(),
        }
    }

    /// Ends the transmission if it is over by `now`; returns its end.
    #[inline]
    pub(crate) fn finish(&mut self, now: Duration) -> Option<Duration> {
        match &mut self.kind {
            Kind::Rate(server) => server.finish(now),
            Kind::Trace(server) => server.finish(now),
        }
    }

    /// Discards the packet in transmission.
    pub(crate) fn abort(&mut self) {
        match &mut self.kind {
            Kind::Rate(server) => server.abort(),
            Kind::Trace(server) => server.abort(),
        }
    }
}

/// A share of a rate. A rate that is not 0 stays above 0 unless the share is 0.
fn scaled(rate: u64, share: f64) -> u64 {
    if share == 1.0 || rate == 0 || share <= 0.0 {
        return if share <= 0.0 { 0 } else { rate };
    }
    ((rate as f64 * share).round() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_rest_of_a_packet_moves_to_the_new_server() {
        let mut server = Server::new(12_000_000);
        server.begin(Duration::ZERO, 3_000);
        let trace: Trace = "2\n".parse().unwrap();
        server.set_trace(MS, trace); // half of the packet is left, and its opportunity is at 3 ms
        assert_eq!((server.rate(), server.end()), (6_000_000, Some(3 * MS)));
        server.set_rate(2 * MS, 1_500_000);
        assert_eq!(server.end(), Some(10 * MS));
    }

    #[test]
    fn a_share_of_zero_is_zero_and_of_a_small_rate_is_not() {
        assert_eq!(scaled(0, 2.0), 0);
        assert_eq!(scaled(1, 0.1), 1);
        assert_eq!(scaled(9, 0.0), 0);
        assert_eq!(scaled(90, 10.0 / 9.0), 100);
    }
}
