//! Happy Eyeballs (RFC 8305): staggered attempts on the addresses of one host, so that a silent
//! address or family costs 0.25 s and not a timeout.

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;

use futures_util::stream::{FuturesUnordered, StreamExt};
pub(crate) use sumlink_bond::dial::ATTEMPT_DELAY;
use tokio::time::{Instant, sleep_until};

/// Attempts on several addresses; dropping it ends those in progress.
pub(crate) struct Race<A, F> {
    /// Addresses not tried yet, in order.
    waiting: VecDeque<SocketAddr>,
    /// Makes an attempt on an address.
    attempt: A,
    running: FuturesUnordered<F>,
    /// When the next address is tried even without a failure; `None` is at once.
    next_attempt: Option<Instant>,
}

impl<A, F, T, E> Race<A, F>
where
    A: FnMut(SocketAddr) -> F,
    F: Future<Output = Result<T, E>>,
{
    /// A race over `addresses`, given in the resolver's order of preference (RFC 6724). No attempt
    /// starts before the first [`Race::next`].
    pub(crate) fn new(addresses: impl IntoIterator<Item = SocketAddr>, attempt: A) -> Self {
        Self {
            waiting: interleave(addresses),
            attempt,
            running: FuturesUnordered::new(),
            next_attempt: None,
        }
    }

    /// The result of the next attempt that ends; `None` when all have ended. An address is tried
    /// every 250 ms, or as soon as an attempt has failed. After a success, the caller drops the
    /// race.
    ///
    /// The first attempt starts at the first poll and not when a timer fires: a timer would cost a
    /// millisecond, and connections could overtake each other there.
    pub(crate) async fn next(&mut self) -> Option<F::Output> {
        loop {
            if self.next_attempt.is_none()
                && let Some(address) = self.waiting.pop_front()
            {
                self.running.push((self.attempt)(address));
            }
            let next_attempt = *self
                .next_attempt
                .get_or_insert_with(|| Instant::now() + ATTEMPT_DELAY);
            tokio::select! {
                // A completed success must win over a new attempt.
                biased;
                Some(result) = self.running.next() => {
                    if result.is_err() {
                        self.next_attempt = None;
                    }
                    return Some(result);
                }
                () = sleep_until(next_attempt), if !self.waiting.is_empty() => {
                    self.next_attempt = None;
                }
                else => return None,
            }
        }
    }
}

/// RFC 8305, section 4: alternate the families, starting with the one that the resolver prefers.
fn interleave(addresses: impl IntoIterator<Item = SocketAddr>) -> VecDeque<SocketAddr> {
    let mut addresses = addresses.into_iter().peekable();
    let prefers_v6 = addresses.peek().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.partition(|address| address.is_ipv6() == prefers_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut order = VecDeque::new();
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            return order;
        }
        order.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn addresses(text: &str) -> Vec<SocketAddr> {
        let addresses = text.split(' ').map(|address| address.parse().unwrap());
        addresses.collect()
    }

    #[test]
    fn families_alternate_from_the_preferred_one() {
        for (resolved, order) in [
            (
                "[::1]:1 [::2]:1 [::3]:1 1.1.1.1:1",
                "[::1]:1 1.1.1.1:1 [::2]:1 [::3]:1",
            ),
            ("1.1.1.1:1 [::1]:1 2.2.2.2:1", "1.1.1.1:1 [::1]:1 2.2.2.2:1"),
            ("1.1.1.1:1 2.2.2.2:1", "1.1.1.1:1 2.2.2.2:1"),
        ] {
            assert_eq!(interleave(addresses(resolved)), addresses(order));
        }
    }

    /// Port 1 is silent, 2 fails at once, 3 answers.
    async fn attempt(address: SocketAddr) -> Result<SocketAddr, SocketAddr> {
        match address.port() {
            1 => std::future::pending().await,
            2 => Err(address),
            _ => Ok(address),
        }
    }

    #[tokio::test]
    async fn silence_delays_by_one_attempt_and_failure_by_none() {
        for (order, delays) in [
            ("1.1.1.1:1 1.1.1.1:3", 1),
            ("1.1.1.1:1 1.1.1.1:1 1.1.1.1:3", 2),
            ("1.1.1.1:2 1.1.1.1:3", 0),
        ] {
            let start = Instant::now();
            let mut race = Race::new(addresses(order), attempt);
            while !race.next().await.unwrap().is_ok_and(|a| a.port() == 3) {}
            let took = start.elapsed();
            assert!(took >= delays * ATTEMPT_DELAY, "{order}: {took:?}");
            assert!(took < (delays + 1) * ATTEMPT_DELAY, "{order}: {took:?}");
        }
    }

    #[tokio::test]
    async fn no_timer_delays_the_first_attempt_or_one_after_a_failure() {
        let [bad, good] = [addresses("1.1.1.1:2")[0], addresses("1.1.1.1:3")[0]];
        let mut race = Race::new([bad, good], attempt);
        assert_eq!(race.next().now_or_never(), Some(Some(Err(bad))));
        assert_eq!(race.next().now_or_never(), Some(Some(Ok(good))));
    }

    #[tokio::test]
    async fn every_failure_is_returned_and_then_the_end() {
        let mut race = Race::new(addresses("1.1.1.1:2 [::1]:2"), attempt);
        for address in addresses("1.1.1.1:2 [::1]:2") {
            assert_eq!(race.next().await, Some(Err(address)));
        }
        assert_eq!(race.next().await, None);
    }
}
