//! The congestion control of a TCP socket, by its name in the kernel.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use socket2::{SockRef, Socket};

use super::{SocketError, new_socket};
use crate::carrier::congestion;

/// Whether this kernel has a congestion control of this name and allows this program to use it; the
/// kernel may load a module for it. Needs no connection.
///
/// Errors: [`SocketError::UnknownCongestion`] and [`SocketError::CongestionNotAllowed`], which list
/// the available ones.
pub fn check_congestion(name: &str) -> Result<(), SocketError> {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    first_congestion(&new_socket(any)?, Some(name))
}

/// Changes the congestion control of a TCP socket, even of a connected one.
pub(crate) fn set_congestion(socket: &impl AsFd, name: &str) -> Result<(), SocketError> {
    change_congestion(&SockRef::from(socket), name)
}

/// The name of a TCP socket's congestion control, such as `bbr`.
pub fn congestion_name(socket: &impl AsFd) -> io::Result<String> {
    let name = SockRef::from(socket).tcp_congestion()?;
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Sets the initial congestion control of a connection.
pub(super) fn first_congestion(socket: &Socket, name: Option<&str>) -> Result<(), SocketError> {
    match name {
        None => Ok(()),
        Some(congestion::AUTO) => match change_congestion(socket, congestion::LOSS_BASED) {
            // The kernel's default always works as the initial one.
            Err(
                SocketError::UnknownCongestion { .. } | SocketError::CongestionNotAllowed { .. },
            ) => Ok(()),
            result => result,
        },
        Some(name) => change_congestion(socket, name),
    }
}

fn change_congestion(socket: &Socket, name: &str) -> Result<(), SocketError> {
    let listing = |file: &str| {
        let path = format!("/proc/sys/net/ipv4/tcp_{file}_congestion_control");
        let names = std::fs::read_to_string(path).unwrap_or_default();
        let names = names.split_whitespace().collect::<Vec<_>>().join(", ");
        if names.is_empty() {
            "none listed".to_owned()
        } else {
            names
        }
    };
    let unknown = || SocketError::UnknownCongestion {
        name: name.to_owned(),
        available: listing("available"),
    };
    // TCP_CA_NAME_MAX: the kernel truncates longer names, possibly to the name of another control.
    if name.is_empty() || name.len() > 15 {
        return Err(unknown());
    }
    socket
        .set_tcp_congestion(name.as_bytes())
        .map_err(|source| match source.raw_os_error() {
            Some(libc::ENOENT) => unknown(),
            Some(libc::EPERM) => SocketError::CongestionNotAllowed {
                name: name.to_owned(),
                allowed: listing("allowed"),
            },
            _ => SocketError::System {
                action: format!("set the congestion control {name}"),
                source,
            },
        })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::carrier::socket::{connect_on_link, listen};

    #[tokio::test]
    async fn an_unknown_congestion_control_is_refused_with_the_available_ones() {
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        for name in ["nosuch", "", "cubic-with-a-long-name"] {
            let error = connect_on_link(None, remote, Some(name), Duration::from_secs(5))
                .await
                .unwrap_err();
            assert!(
                matches!(error, SocketError::UnknownCongestion { .. }),
                "{error}"
            );
            assert!(error.to_string().contains("reno"), "{error}");
            assert!(listen("127.0.0.1:0".parse().unwrap(), Some(name)).is_err());
        }
    }
}
