//! The server's own addresses, for its egress policy: read at the start and after every change.

use std::convert::Infallible;

use super::Shared;
use crate::links::OwnAddresses;

/// Tracks the networks that lead to this machine.
#[derive(Debug)]
pub(super) struct Addresses(OwnAddresses);

impl Addresses {
    /// Adds this machine's addresses to the egress policy.
    pub(super) async fn read(shared: &Shared) -> Self {
        let mut addresses = Self(OwnAddresses::watch());
        addresses.take(shared).await;
        addresses
    }

    /// Keeps the addresses up to date; never returns.
    pub(super) async fn follow(&mut self, shared: &Shared) -> Infallible {
        loop {
            self.0.changed().await;
            self.take(shared).await;
        }
    }

    /// Reads the addresses; keeps the known ones if that fails.
    async fn take(&mut self, shared: &Shared) {
        if let Some(own) = self.0.read().await {
            shared.change_egress(|policy| policy.clone().with_own_addresses(own));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use crate::carrier::keys::SecretKey;
    use crate::fixture::server_config;
    use crate::server::Server;
    use sumlink_exit::egress::EgressPolicy;
    use sumlink_test_support::netns::Netns;

    #[test]
    fn new_addresses_of_the_server_are_refused_at_once() {
        let Some(ns) = Netns::new() else { return };
        ns.ip("link add up1 type veth peer name up2");
        ns.ip("link set up1 up");
        ns.ip("addr add 192.0.2.7/24 dev up1");
        let ip = ns.commands();
        ns.run(async move || {
            let key = || SecretKey::generate().unwrap();
            let server = Server::bind(server_config(&key(), &key())).await.unwrap();
            let handle = server.handle();
            let running = tokio::spawn(server.run(std::future::pending()));
            let allows = |address: &str| {
                let address: IpAddr = address.parse().unwrap();
                let policy = handle.shared.egress.borrow().clone();
                policy.check(address, 22).is_ok()
            };
            let until = async |address: &str, allowed: bool| {
                let changed = async {
                    while allows(address) != allowed {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                let in_time = tokio::time::timeout(Duration::from_secs(10), changed).await;
                in_time.unwrap_or_else(|_| panic!("{address} is not {allowed} in time"));
            };
            until("192.0.2.7", false).await;
            assert!(allows("198.51.100.7") && allows("2001:db8::7"));
            ip("addr add 198.51.100.7/24 dev up1");
            ip("-6 addr add 2001:db8::7/64 dev up1 nodad");
            for address in ["198.51.100.7", "2001:db8::7", "::ffff:198.51.100.7"] {
                until(address, false).await;
            }
            // Reloading the rules keeps the addresses.
            handle.set_egress(EgressPolicy::new(["allow *:22".parse().unwrap()]));
            assert!(!allows("198.51.100.7") && !allows("192.0.2.7"));
            ip("addr del 198.51.100.7/24 dev up1");
            until("198.51.100.7", true).await;
            assert!(!allows("192.0.2.7"));
            running.abort();
        });
    }
}
