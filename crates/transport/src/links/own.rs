//! The addresses that lead to this machine itself.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};

use super::{LinkError, Netlink, Watch};

/// Pause after a kernel error, and between two reads while changes cannot be watched.
const PAUSE: Duration = Duration::from_secs(5);

/// Follows the networks that lead to this machine, for an
/// [`EgressPolicy`](sumlink_exit::egress::EgressPolicy) that refuses them.
#[derive(Debug)]
pub struct OwnAddresses {
    /// Subscribed before the addresses are read, so that no change is missed; `None` if that
    /// failed.
    watch: Option<Watch>,
    /// The last read failed and was logged.
    has_failed: bool,
}

impl OwnAddresses {
    /// Subscribes to changes, in the network namespace of the calling thread. Must be called inside
    /// a tokio runtime with I/O and time.
    pub fn watch() -> Self {
        Self {
            watch: Watch::new().ok(),
            has_failed: false,
        }
    }

    /// The networks now: all addresses of this machine, and all other routes of type `local`.
    /// `None` if they cannot be read, which is logged.
    pub async fn read(&mut self) -> Option<Vec<IpNet>> {
        match own_addresses().await {
            Ok(own) => {
                self.has_failed = false;
                Some(own)
            }
            Err(error) if self.has_failed => {
                tracing::debug!(%error, "still cannot read this machine's own addresses; retrying");
                None
            }
            Err(error) => {
                self.has_failed = true;
                tracing::error!(
                    %error,
                    "cannot read this machine's own addresses; others can reach its services at \
                    addresses not yet known"
                );
                None
            }
        }
    }

    /// Waits until the networks may have changed.
    pub async fn changed(&mut self) {
        let changed = match &mut self.watch {
            Some(watch) => watch.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            tokio::time::sleep(PAUSE).await;
            self.watch = Watch::new().ok();
        }
    }
}

/// Every network whose packets the kernel delivers to this machine: its addresses on all
/// interfaces, loopback included, and all other routes of type `local` (`ip route show table all
/// type local`).
///
/// Must be called inside a tokio runtime with I/O.
async fn own_addresses() -> Result<Vec<IpNet>, LinkError> {
    let netlink = Netlink::open()?;
    let mut own = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut routes = std::pin::pin!(netlink.routes(family));
        while let Some(route) = routes.try_next().await? {
            if route.header.kind == RouteType::Local {
                own.extend(destination(&route));
            }
        }
    }
    Ok(own)
}

/// The destination network of a route.
fn destination(route: &RouteMessage) -> Option<IpNet> {
    let address = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
            RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
            _ => None,
        })?;
    IpNet::new(address, route.header.destination_prefix_length).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sumlink_test_support::netns::Netns;

    #[test]
    fn all_addresses_of_this_machine_are_found() {
        let Some(ns) = Netns::new() else { return };
        ns.ip("link add up1 type veth peer name up2");
        ns.ip("addr add 192.0.2.7/24 dev up1");
        ns.ip("-6 addr add 2001:db8::7/64 dev up1 nodad");
        ns.ip("link set up1 up");
        ns.ip("route add local 198.51.100.0/24 dev lo");
        let own = ns.run(async || own_addresses().await.unwrap());
        let has = |text: &str| {
            let ip: IpAddr = text.parse().unwrap();
            own.iter().any(|net| net.contains(&ip))
        };
        for text in [
            "127.0.0.1",
            "::1",
            "192.0.2.7",
            "2001:db8::7",
            "198.51.100.99",
        ] {
            assert!(has(text), "{text}: {own:?}");
        }
        for text in ["192.0.2.8", "2001:db8::8", "203.0.113.1"] {
            assert!(!has(text), "{text}: {own:?}");
        }
    }
}
