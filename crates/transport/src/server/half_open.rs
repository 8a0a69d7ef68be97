//! How many connections may be there that have not proved a key.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts connections that have not proved a key, for each address and in total.
#[derive(Debug)]
pub(super) struct HalfOpenLimit {
    /// Of one address at most.
    per_address: usize,
    /// Of all addresses together at most.
    total: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// Counts a connection as long as it has not proved a key.
#[derive(Debug)]
pub(super) struct HalfOpen {
    limit: Arc<HalfOpenLimit>,
    from: IpAddr,
}

/// Connections that have not proved a key, of all addresses together.
pub(super) const MAX_HALF_OPEN: usize = 512;

impl HalfOpenLimit {
    pub(super) fn new(per_address: usize, total: usize) -> Arc<Self> {
        Arc::new(Self {
            per_address,
            total,
            counts: Mutex::default(),
        })
    }

    /// Counts a connection, unless it is one too many.
    pub(super) fn count(self: &Arc<Self>, from: IpAddr) -> Option<HalfOpen> {
        let from = neighbourhood(from);
        let mut counts = self.lock();
        if counts.values().sum::<usize>() >= self.total {
            return None;
        }
        let count = counts.entry(from).or_default();
        if *count >= self.per_address {
            return None;
        }
        *count += 1;
        let limit = Arc::clone(self);
        Some(HalfOpen { limit, from })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        let mut counts = self.limit.lock();
        if let Some(count) = counts.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.from);
            }
        }
    }
}

/// What belongs to one host for sure: an IPv4 address, or an IPv6 /64, of which a host has all addresses.
fn neighbourhood(from: IpAddr) -> IpAddr {
    match from {
        IpAddr::V4(_) => from,
        IpAddr::V6(ip) => std::net::Ipv6Addr::from(u128::from(ip) & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_counts_as_one_however_many_ipv6_addresses_it_has() {
        let of = |text: &str| neighbourhood(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::1"));
        assert_ne!(of("2001:db8:1:3::1"), of("2001:db8:1:2::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn connections_are_limited_for_an_address_and_in_total() {
        let limit = HalfOpenLimit::new(32, MAX_HALF_OPEN);
        let count = |address: u32| limit.count(IpAddr::V4(address.into()));
        let mut held: Vec<HalfOpen> = (0..100).map_while(|_| count(1)).collect();
        assert_eq!(held.len(), 32);
        // Each from an address of its own.
        held.extend((2..=1000).map_while(count));
        assert_eq!(held.len(), 512);
        // Who has proved a key, or has given up, makes room for one other.
        drop(held.pop());
        let next = count(2000);
        assert!(next.is_some() && count(2001).is_none());
        drop((held, next));
        assert!(limit.lock().is_empty());
    }
}
