//! Binds sockets to their link, so that packets leave by it.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::Socket;

use super::SocketError;
use crate::links::{self, Link, LinkError};

/// How a connection's packets are made to leave by their link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Binding {
    /// Nothing: the routing table chooses.
    None,
    /// `SO_BINDTODEVICE`: packets leave by the link whatever the routing table prefers.
    Device,
    /// Only by the link's source address, because the system refuses `SO_BINDTODEVICE`. Without
    /// routing rules for source addresses, packets still leave by the preferred link.
    SourceAddress(IpAddr),
}

/// The way of a socket's packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way<'a> {
    /// The link, or `None` for the routing table's choice.
    pub(crate) link: Option<&'a str>,
    /// Firewall mark of the packets (`SO_MARK`, socket(7)), on which routing rules may depend.
    pub(crate) mark: Option<u32>,
}

/// Makes the packets of a socket to `remote` take this way. Also returns the link, if it has one.
pub(crate) async fn send_by(
    socket: &Socket,
    way: Way<'_>,
    remote: SocketAddr,
) -> Result<(Binding, Option<Link>), SocketError> {
    if let Some(mark) = way.mark {
        socket.set_mark(mark).map_err(mark_error)?;
    }
    let Some(name) = way.link else {
        return Ok((Binding::None, None));
    };
    let link = links::find(name).await?;
    let source = links::can_reach_marked(&link, remote, way.mark).await?;
    let binding = bind_to_link(socket, &link, source)?;
    Ok((binding, Some(link)))
}

fn mark_error(source: io::Error) -> SocketError {
    let action = "mark the packets of a connection".to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => SocketError::NotPermitted {
            action,
            hint: "a gateway needs CAP_NET_ADMIN",
        },
        _ => SocketError::System { action, source },
    }
}

/// Makes the packets of a socket leave by a link that has the address `source`.
fn bind_to_link(socket: &Socket, link: &Link, source: IpAddr) -> Result<Binding, SocketError> {
    // Since Linux 5.7 any user may bind a socket that is not yet bound; before, CAP_NET_RAW is
    // needed.
    match socket.bind_device(Some(link.name.as_bytes())) {
        Ok(()) => Ok(Binding::Device),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Err(LinkError::NoSuchLink {
            name: link.name.clone(),
        }
        .into()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            bind_to_source(socket, link, source)
        }
        Err(source) => Err(SocketError::System {
            action: format!("bind to the link {}", link.name),
            source,
        }),
    }
}

fn bind_to_source(socket: &Socket, link: &Link, source: IpAddr) -> Result<Binding, SocketError> {
    socket
        .bind(&SocketAddr::new(source, 0).into())
        .map_err(|error| SocketError::System {
            action: format!("bind to the address {source} of the link {}", link.name),
            source: error,
        })?;
    Ok(Binding::SourceAddress(source))
}

#[cfg(test)]
mod tests {
    use super::super::new_socket;
    use super::*;

    #[tokio::test]
    async fn without_the_privilege_the_source_address_is_bound() {
        let lo = links::find("lo").await.unwrap();
        let socket = new_socket("127.0.0.1:1".parse().unwrap()).unwrap();
        let source = "127.0.0.1".parse().unwrap();
        let binding = bind_to_source(&socket, &lo, source).unwrap();
        assert_eq!(binding, Binding::SourceAddress(source));
        assert_eq!(
            socket.local_addr().unwrap().as_socket().unwrap().ip(),
            source
        );
    }
}
