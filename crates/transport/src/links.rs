//! The machine's links: lists them, finds those that lead to the server, and watches them for
//! changes.
//!
//! All functions query the kernel over rtnetlink (rtnetlink(7)) in the network namespace of the
//! calling thread and need no privilege.
//!
//! The submodules keep a client's carriers on these links: `manager` decides when a link is
//! dialed, `dialer` and `resolver` connect to the server, [`policy`] limits what a link may carry.

mod carrier;
pub(crate) mod datagrams;
mod dialer;
mod glob;
pub(crate) mod manager;
pub(crate) mod names;
mod own;
pub mod policy;
mod portal;
mod resolver;
pub(crate) mod servers;
mod watch;

use std::io;
use std::net::{IpAddr, SocketAddr};

use futures_util::{Stream, StreamExt, TryStreamExt};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressScope};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage};
use serde::Serialize;
use sumlink_util::plain;

pub(crate) use carrier::CarrierCheck;
pub(crate) use dialer::NO_SESSION;
pub use glob::{Overlap, is_pattern, name_matches, overlap};
pub use own::OwnAddresses;
pub use resolver::Lookup;
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

/// A netlink socket and the task that serves it.
struct Netlink {
    handle: rtnetlink::Handle,
    connection: tokio::task::JoinHandle<()>,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Netlink {
    fn open() -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        Ok(Self {
            handle,
            connection: tokio::spawn(connection),
        })
    }

    async fn list(&self) -> Result<Vec<Link>, LinkError> {
        let messages = self.handle.link().get().execute();
        let mut links: Vec<Link> = messages
            .map_ok(Link::from_message)
            .try_collect()
            .await
            .map_err(system)?;
        let mut addresses = self.handle.address().get().execute();
        while let Some(message) = addresses.try_next().await.map_err(system)? {
            let Some(link) = links
                .iter_mut()
                .find(|link| link.index == message.header.index)
            else {
                continue;
            };
            // RFC 4862, section 5.4: an address must not be used before it is known to be unique.
            let unproven = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
            let optimistic = message
                .header
                .flags
                .contains(AddressHeaderFlags::Optimistic);
            if (message.header.flags.intersects(unproven) && !optimistic)
                || matches!(
                    message.header.scope,
                    AddressScope::Link | AddressScope::Nowhere
                )
            {
                continue;
            }
            link.addresses.extend(own_address(&message.attributes));
        }
        Ok(links)
    }

    async fn can_reach(
        &self,
        link: &Link,
        remote: SocketAddr,
        mark: Option<u32>,
    ) -> Result<IpAddr, LinkError> {
        let remote = remote.ip().to_canonical();
        let name = || link.name.clone();
        if !link.up {
            return Err(LinkError::Down { name: name() });
        }
        // A default route seems to lead there, but packets for loopback never leave the machine.
        if remote.is_loopback() && !link.loopback {
            return Err(LinkError::NoRoute {
                name: name(),
                remote,
            });
        }
        if link.loopback && !remote.is_loopback() && !link.addresses.contains(&remote) {
            return Err(LinkError::Loopback {
                name: name(),
                remote,
            });
        }
        // Without an address, routes are missing for that reason: adding one would not help.
        let has_family = |ip: &IpAddr| ip.is_ipv4() == remote.is_ipv4();
        if !link.addresses.iter().any(has_family) {
            return Err(LinkError::NoAddress {
                name: name(),
                remote,
            });
        }
        // The first query finds out whether a route over this link exists. Only the second query
        // returns the source address, but it invents a route where none exists.
        let entry = self.route(link, remote, mark, RouteFlags::FibMatch).await?;
        let route = match entry {
            Some(_) => self.route(link, remote, mark, RouteFlags::empty()).await?,
            None => None,
        };
        let route = route.ok_or_else(|| LinkError::NoRoute {
            name: name(),
            remote,
        })?;
        let source = route
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                RouteAttribute::PrefSource(RouteAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
                RouteAttribute::PrefSource(RouteAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
                _ => None,
            });
        // A link without an address would borrow the address of another link.
        source
            .filter(|source| link.addresses.contains(source))
            .ok_or_else(|| LinkError::NoAddress {
                name: name(),
                remote,
            })
    }

    /// The route to `remote` over `link`, or `None` if the tables and rules contain none.
    async fn route(
        &self,
        link: &Link,
        remote: IpAddr,
        mark: Option<u32>,
        flags: RouteFlags,
    ) -> Result<Option<RouteMessage>, LinkError> {
        let (family, length, destination) = match remote {
            IpAddr::V4(ip) => (AddressFamily::Inet, 32, RouteAddress::Inet(ip)),
            IpAddr::V6(ip) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(ip)),
        };
        let mut question = RouteMessage::default();
        question.header.address_family = family;
        question.header.destination_prefix_length = length;
        question.header.flags = flags;
        question.attributes = vec![
            RouteAttribute::Destination(destination),
            RouteAttribute::Oif(link.index),
        ];
        question.attributes.extend(mark.map(RouteAttribute::Mark));
        match first(self.handle.route().get(question).execute()).await {
            Ok(route) => Ok(route),
            Err(rtnetlink::Error::NetlinkError(error)) => {
                match error.to_io().raw_os_error() {
                    // The last four: routes of type prohibit and blackhole, IPv6 switched off on
                    // the link or the machine, and a link that has gone since it was listed.
                    Some(
                        libc::ENETUNREACH
                        | libc::EHOSTUNREACH
                        | libc::EACCES
                        | libc::EINVAL
                        | libc::EAFNOSUPPORT
                        | libc::ENODEV,
                    ) => Ok(None),
                    _ => Err(LinkError::System(error.to_io())),
                }
            }
            Err(error) => Err(system(error)),
        }
    }
}

async fn first<T, E>(stream: impl Stream<Item = Result<T, E>>) -> Result<Option<T>, E> {
    std::pin::pin!(stream).next().await.transpose()
}

fn system(error: rtnetlink::Error) -> LinkError {
    LinkError::System(match error {
        rtnetlink::Error::NetlinkError(error) => error.to_io(),
        error => io::Error::other(error),
    })
}

/// The address of the interface itself: on a point-to-point link, `Address` is the peer's.
fn own_address(attributes: &[AddressAttribute]) -> Option<IpAddr> {
    let local = attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    local.or_else(|| {
        attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(ip) => Some(*ip),
            _ => None,
        })
    })
}

impl Link {
    fn from_message(message: LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            kind: None,
            loopback: flags.contains(LinkFlags::Loopback),
            up: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            mtu: 0,
            addresses: Vec::new(),
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                // RFC 2863, section 3.1.14. Drivers that do not maintain the state report Unknown.
                LinkAttribute::OperState(state) => {
                    link.up &= matches!(state, State::Up | State::Unknown);
                }
                LinkAttribute::LinkInfo(infos) => {
                    link.kind = infos.iter().find_map(|info| match info {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        link
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

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
    /// route, one without an address, one without a carrier.
    fn uplinks() -> Option<Netns> {
        let ns = Netns::new()?;
        for name in ["up1", "up2", "noroute", "noaddr", "off"] {
            ns.ip(&format!("link add {name} type veth peer name {name}-peer"));
            // A link whose peer is off has no carrier.
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

    #[test]
    fn the_watch_reports_links_addresses_and_routes_and_is_quiet_in_between() {
        let Some(ns) = Netns::new() else { return };
        let ip = ns.commands();
        ns.run(async move || {
            let mut watch = Watch::new().unwrap();
            let mut told_of = async |change: &str| {
                ip(change);
                timeout(Duration::from_secs(5), watch.changed())
                    .await
                    .expect(change)
                    .unwrap();
                // The kernel may delay the carrier event; wait so that the next event belongs to
                // the next change.
                while timeout(Duration::from_millis(300), watch.changed())
                    .await
                    .is_ok()
                {}
            };
            told_of("link add d0 type veth peer name d1").await;
            // Without link-local addresses, no IPv6 event follows after the command.
            ip("link set d0 addrgenmode none");
            ip("link set d1 addrgenmode none");
            for change in [
                "link set d0 up",
                "link set d1 up",
                "addr add 192.0.2.1/24 dev d0",
                "-6 addr add 2001:db8::1/64 dev d0 nodad",
                "route add default via 192.0.2.254",
                "-6 route add default via 2001:db8::fe",
                "link set d0 down",
                "link del d0",
            ] {
                told_of(change).await;
            }
        });
    }

    #[test]
    fn a_burst_of_changes_that_overruns_the_buffer_is_one_change() {
        let Some(ns) = Netns::new() else { return };
        let ip = ns.commands();
        ns.run(async move || {
            ip("link add d0 type veth peer name d1");
            ip("link set d0 up");
            ip("link set d1 up");
            ip("addr add 192.0.2.1/24 dev d0");
            let mut watch = Watch::new().unwrap();
            let batch: String = (0..4096)
                .map(|i| format!("route add 10.{}.{}.0/24 dev d0\n", i / 256, i % 256))
                .collect();
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), batch).unwrap();
            ip(&format!("-batch {}", file.path().display()));
            // Dropping the call loses no event. On a busy machine it may return at once.
            if timeout(Duration::ZERO, watch.changed()).await.is_err() {
                timeout(Duration::from_secs(5), watch.changed())
                    .await
                    .expect("a change")
                    .unwrap();
            }
            ip("link del d0");
            timeout(Duration::from_secs(5), watch.changed())
                .await
                .expect("a change")
                .unwrap();
        });
    }
}
