//! When a source ends for want of traffic.

use std::time::Duration;

use tokio::time::Instant;

use crate::target::{DNS_PORT, ECHO_PORT};

/// How long a source that only asked DNS servers waits for an answer. Resolvers give up earlier: 2
/// attempts of 5 s with each of up to 3 servers (resolv.conf(5)).
const DNS_PATIENCE: Duration = Duration::from_secs(30);

/// How long a source that only sent ICMP echo requests waits for another one. Programs send one
/// every second, and most wait less than this for an answer.
const ECHO_IDLE: Duration = Duration::from_secs(30);

/// The traffic of a source, as far as its end depends on it.
#[derive(Debug)]
pub struct Expiry {
    idle: Duration,
    dns_idle: Duration,
    last: Instant,
    queried: Queried,
}

/// The client's queries to port 53.
#[derive(Debug, PartialEq, Eq)]
enum Queried {
    /// Nothing was sent at all.
    Silent,
    /// ICMP echo requests only.
    Echo,
    /// Queries only, the last of which has no answer yet.
    Asking,
    /// Queries only, and an answer since.
    Answered,
    /// Something was sent to another port, or both of these.
    Other,
}

impl Expiry {
    /// A source that ends after `idle` without traffic, or `dns_idle` after the last answer if it
    /// only sent to port 53.
    pub fn new(idle: Duration, dns_idle: Duration, now: Instant) -> Self {
        Self {
            idle,
            dns_idle,
            last: now,
            queried: Queried::Silent,
        }
    }

    /// The client has sent to this port of a remote.
    pub fn sent(&mut self, port: u16, now: Instant) {
        self.last = now;
        self.queried = match (port, &self.queried) {
            (_, Queried::Other) => Queried::Other,
            (ECHO_PORT, Queried::Silent | Queried::Echo) => Queried::Echo,
            (DNS_PORT, state) if *state != Queried::Echo => Queried::Asking,
            _ => Queried::Other,
        };
    }

    /// A remote to which the client had sent has sent.
    pub fn received(&mut self, now: Instant) {
        self.last = now;
        if self.queried == Queried::Asking {
            self.queried = Queried::Answered;
        }
    }

    /// When the source ends without further traffic.
    pub fn deadline(&self) -> Instant {
        let wait = match self.queried {
            Queried::Silent | Queried::Other => self.idle,
            Queried::Echo => ECHO_IDLE.min(self.idle),
            Queried::Asking => DNS_PATIENCE.min(self.idle),
            Queried::Answered => self.dns_idle.min(self.idle),
        };
        self.last + wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(300);
    const DNS_IDLE: Duration = Duration::from_secs(10);
    const STEP: Duration = Duration::from_secs(1);

    #[test]
    fn a_resolver_ends_early_but_not_before_its_answer() {
        let start = Instant::now();
        let mut expiry = Expiry::new(IDLE, DNS_IDLE, start);
        assert_eq!(expiry.deadline(), start + IDLE);
        expiry.sent(53, start);
        assert_eq!(expiry.deadline(), start + DNS_PATIENCE);
        expiry.received(start + STEP);
        assert_eq!(expiry.deadline(), start + STEP + DNS_IDLE);
        expiry.sent(53, start + 2 * STEP);
        assert_eq!(expiry.deadline(), start + 2 * STEP + DNS_PATIENCE);
    }

    #[test]
    fn echoes_end_early_and_a_call_beside_them_does_not() {
        let start = Instant::now();
        let mut expiry = Expiry::new(IDLE, DNS_IDLE, start);
        expiry.sent(0, start);
        expiry.received(start);
        assert_eq!(expiry.deadline(), start + ECHO_IDLE);
        expiry.sent(3478, start + STEP);
        expiry.sent(0, start + STEP);
        assert_eq!(expiry.deadline(), start + STEP + IDLE);
    }

    #[test]
    fn any_other_port_makes_it_an_ordinary_source() {
        let start = Instant::now();
        let mut expiry = Expiry::new(IDLE, DNS_IDLE, start);
        expiry.sent(53, start);
        expiry.received(start);
        expiry.sent(443, start);
        expiry.sent(53, start);
        expiry.received(start + STEP);
        assert_eq!(expiry.deadline(), start + STEP + IDLE);
    }
}
