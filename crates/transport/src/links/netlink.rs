//! Queries the kernel over rtnetlink: the links with their addresses, and the routes over them.

use std::io;
use std::net::{IpAddr, SocketAddr};

use futures_util::{Stream, StreamExt, TryStreamExt};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressScope};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage};

use super::{Link, LinkError};

/// A netlink socket and the task that serves it.
pub(super) struct Netlink {
    handle: rtnetlink::Handle,
    connection: tokio::task::JoinHandle<()>,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        Ok(Self {
            handle,
            connection: tokio::spawn(connection),
        })
    }

    pub(super) async fn list(&self) -> Result<Vec<Link>, LinkError> {
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

    pub(super) async fn can_reach(
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

    /// The routes of this family in all tables.
    pub(super) fn routes(
        &self,
        family: AddressFamily,
    ) -> impl Stream<Item = Result<RouteMessage, LinkError>> {
        let mut question = RouteMessage::default();
        question.header.address_family = family;
        self.handle.route().get(question).execute().map_err(system)
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
    pub(super) fn from_message(message: LinkMessage) -> Self {
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
