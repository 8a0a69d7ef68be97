//! The machine's links: lists them, finds those that lead to the server, and watches them for
//! changes.
//!
//! All functions query the kernel over rtnetlink (rtnetlink(7)) in the network namespace of the
//! calling thread and need no privilege.
//!
//! Of the submodules, `netlink`, `watch` and `interface_state` ask the kernel. The others keep a
//! client's carriers on these links: `manager` decides when a link is dialed, `dialer` and
//! `resolver` connect to the server, [`policy`] limits the use of a link.

pub(crate) mod datagrams;
mod dialer;
mod glob;
mod interface_state;
pub(crate) mod manager;
pub(crate) mod names;
mod netlink;
mod own;
pub mod policy;
mod portal;
mod resolver;
pub(crate) mod servers;
mod services;
mod watch;

use std::io;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;
use sumlink_util::plain;

pub(crate) use dialer::NO_SESSION;
pub use glob::{Overlap, is_pattern, name_matches, overlap};
pub(crate) use interface_state::InterfaceCheck;
use netlink::Netlink;
pub use own::OwnAddresses;
pub use resolver::Lookup;
pub use services::{MAX_SERVICES, Service, is_service, usable, with_listed_servers};
pub use watch::Watch;

/// The current state of a network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The kernel's interface index; a device that is deleted and made again gets a new one.
    pub index: u32,
    /// The name, at most 15 bytes: `wlan0`.
    pub name: String,
    /// The kind of a virtual device as `ip -details link` names it (`veth`, `wireguard`); `None`
    /// for hardware.
    pub kind: Option<String>,
    /// Whether this is a loopback device.
    pub loopback: bool,
    /// Whether packets can pass: the interface is administratively up and has a carrier.
    pub up: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// The addresses usable as the source of a connection to another network, IPv4 and IPv6.
    /// Addresses of link scope (`fe80::`) and those still being probed for duplicates are left out.
    pub addresses: Vec<IpAddr>,
}

/// Why a link cannot be used to reach a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// No interface has this name.
    #[error("no link named {name}: `sumlink links` lists the links")]
    NoSuchLink {
        /// The name.
        name: String,
    },
    /// The interface is switched off or has no carrier.
    #[error("the link {name} is down: switch it on, plug it in or connect it to its network")]
    Down {
        /// The interface.
        name: String,
    },
    /// A loopback device leads only to this machine.
    #[error("the link {name} does not leave this machine and cannot reach {remote}")]
    Loopback {
        /// The interface.
        name: String,
        /// The server's address.
        remote: IpAddr,
    },
    /// No route to the server uses this interface.
    #[error(
        "the link {name} has no route to {remote}: add one, such as a default route with a higher \
        metric"
    )]
    NoRoute {
        /// The interface.
        name: String,
        /// The server's address.
        remote: IpAddr,
    },
    /// The interface has no address of the server's family.
    #[error("the link {name} has no address from which to reach {remote}: wait for one or add one")]
    NoAddress {
        /// The interface.
        name: String,
        /// The server's address.
        remote: IpAddr,
    },
    /// The kernel did not answer.
    #[error("cannot query the links of the kernel (rtnetlink): {}", plain(.0))]
    System(#[from] io::Error),
}

/// All interfaces, in the kernel's order.
///
/// Must be called inside a tokio runtime with I/O, like everything here that is `async`.
pub async fn list() -> Result<Vec<Link>, LinkError> {
    Netlink::open()?.list().await
}

/// The interface with this name, whether up or down.
pub async fn find(name: &str) -> Result<Link, LinkError> {
    let links = list().await?;
    let no_such_link = || LinkError::NoSuchLink {
        name: name.to_owned(),
    };
    links
        .into_iter()
        .find(|link| link.name == name)
        .ok_or_else(no_such_link)
}

/// The source address for packets to `remote` over this link, or the reason why they cannot leave
/// by it. Sends nothing.
///
/// The answer comes from the routing tables and rules alone. A connected socket would not do: bound
/// to a device, IPv4 assumes that a destination without a route is a neighbor, and "connects".
pub async fn can_reach(link: &Link, remote: SocketAddr) -> Result<IpAddr, LinkError> {
    can_reach_marked(link, remote, None).await
}

/// [`can_reach`] for packets with this firewall mark (`SO_MARK`, socket(7)), on which routing rules
/// may depend.
pub async fn can_reach_marked(
    link: &Link,
    remote: SocketAddr,
    mark: Option<u32>,
) -> Result<IpAddr, LinkError> {
    Netlink::open()?.can_reach(link, remote, mark).await
}

/// Every link except loopback that can reach `remote`: the links of a client that has none
/// configured.
pub async fn reaching(remote: SocketAddr) -> Result<Vec<Link>, LinkError> {
    let netlink = Netlink::open()?;
    let mut usable = Vec::new();
    for link in netlink.list().await? {
        if link.loopback {
            continue;
        }
        match netlink.can_reach(&link, remote, None).await {
            Ok(_) => usable.push(link),
            Err(LinkError::System(error)) => return Err(LinkError::System(error)),
            Err(_) => {}
        }
    }
    Ok(usable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sumlink_test_support::netns::Netns;

    const SERVER_V4: &str = "203.0.113.1:443";
    const SERVER_V6: &str = "[2001:db8:f::1]:443";

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn loopback_is_listed_but_not_used_by_default() {
        let lo = find("lo").await.unwrap();
        assert!(
            lo.loopback && lo.up && lo.kind.is_none() && lo.mtu > 1500,
            "{lo:?}"
        );
        assert!(
            lo.addresses.contains(&"127.0.0.1".parse().unwrap()),
            "{lo:?}"
        );
        let source = can_reach(&lo, addr("127.0.0.1:1")).await.unwrap();
        assert_eq!(source.to_string(), "127.0.0.1");
        let links = reaching(addr("127.0.0.1:1")).await.unwrap();
        assert!(links.iter().all(|link| link.name != "lo"), "{links:?}");
    }

    #[tokio::test]
    async fn a_missing_link_is_named() {
        let error = find("nosuchlink0").await.unwrap_err();
        assert!(matches!(error, LinkError::NoSuchLink { .. }));
        assert!(error.to_string().contains("nosuchlink0"), "{error}");
    }

    /// Two uplinks with routes of different metrics in one subnet, one link with an address but no
    /// route, one without an address, one with its interface carrier state off.
    fn uplinks() -> Option<Netns> {
        let ns = Netns::new()?;
        for name in ["up1", "up2", "noroute", "noaddr", "off"] {
            ns.ip(&format!("link add {name} type veth peer name {name}-peer"));
            // The interface carrier state of a link whose peer is off is off, too.
            ns.ip(&format!("link set {name} up"));
            if name != "off" {
                ns.ip(&format!("link set {name}-peer up"));
            }
        }
        for (link, host, metric) in [("up1", 1, 100), ("up2", 2, 200)] {
            ns.ip(&format!("addr add 192.0.2.{host}/24 dev {link}"));
            ns.ip(&format!("-6 addr add 2001:db8::{host}/64 dev {link} nodad"));
            ns.ip(&format!(
                "route add default via 192.0.2.254 dev {link} metric {metric}"
            ));
            ns.ip(&format!(
                "-6 route add default via 2001:db8::fe dev {link} metric {metric}"
            ));
        }
        ns.ip("addr add 198.51.100.1/24 dev noroute");
        ns.ip("-6 addr add 2001:db8:2::1/64 dev noroute nodad");
        ns.ip("route add default dev noaddr metric 300");
        Some(ns)
    }

    #[test]
    fn links_with_a_route_reach_the_server_from_their_own_address() {
        let Some(ns) = uplinks() else { return };
        ns.run(async || {
            for (link, v4, v6) in [
                ("up1", "192.0.2.1", "2001:db8::1"),
                ("up2", "192.0.2.2", "2001:db8::2"),
            ] {
                let link = find(link).await.unwrap();
                assert_eq!(link.kind.as_deref(), Some("veth"));
                assert_eq!(
                    link.addresses,
                    [v4.parse::<IpAddr>().unwrap(), v6.parse().unwrap()]
                );
                for (server, source) in [(SERVER_V4, v4), (SERVER_V6, v6)] {
                    let found = can_reach(&link, addr(server)).await.unwrap();
                    assert_eq!(found.to_string(), source);
                }
                let mapped = can_reach(&link, addr("[::ffff:203.0.113.1]:443"))
                    .await
                    .unwrap();
                assert_eq!(mapped.to_string(), v4);
            }
            for server in [SERVER_V4, SERVER_V6] {
                let links = reaching(addr(server)).await.unwrap();
                let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
                assert_eq!(names, ["up1", "up2"], "{server}");
            }
        });
    }

    #[test]
    fn links_that_cannot_reach_the_server_say_why() {
        let Some(ns) = uplinks() else { return };
        ns.run(async || {
            for server in [SERVER_V4, SERVER_V6] {
                let reach = async |name: &str| {
                    let link = find(name).await.unwrap();
                    can_reach(&link, addr(server)).await.unwrap_err()
                };
                let error = reach("noroute").await;
                assert!(
                    matches!(error, LinkError::NoRoute { .. }),
                    "{server}: {error}"
                );
                let error = reach("off").await;
                assert!(matches!(error, LinkError::Down { .. }), "{server}: {error}");
            }
            let noaddr = find("noaddr").await.unwrap();
            let error = can_reach(&noaddr, addr(SERVER_V4)).await.unwrap_err();
            assert!(matches!(error, LinkError::NoAddress { .. }), "{error}");
            // Neighbors on a link need no gateway.
            let noroute = find("noroute").await.unwrap();
            assert!(can_reach(&noroute, addr("198.51.100.7:1")).await.is_ok());
        });
    }
}
