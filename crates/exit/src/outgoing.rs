//! Where the packets of an exit's sockets leave.

use std::io;
use std::os::fd::AsFd;

use socket2::SockRef;

/// How the connections and UDP sockets of an exit are routed. The default leaves it to the system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// The interface by which all packets leave (`SO_BINDTODEVICE`, socket(7)).
    pub device: Option<String>,
    /// The mark of all packets (`SO_MARK`, socket(7)), which needs CAP_NET_ADMIN.
    pub mark: Option<u32>,
}

impl Outgoing {
    /// Whether the system decides.
    pub fn is_default(&self) -> bool {
        self.device.is_none() && self.mark.is_none()
    }

    /// Sets the options on a socket that is neither bound nor connected.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the interface does not exist, and those of a missing permission. The socket must
    /// not be used then: its packets would take another way.
    pub fn apply(&self, socket: &impl AsFd) -> io::Result<()> {
        let socket = SockRef::from(socket);
        if let Some(mark) = self.mark {
            socket.set_mark(mark)?;
        }
        match &self.device {
            Some(device) => socket.bind_device(Some(device.as_bytes())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    #[tokio::test]
    async fn a_missing_interface_is_an_error_and_an_existing_one_is_bound() {
        let of = |device: &str| Outgoing {
            device: Some(device.to_owned()),
            mark: None,
        };
        let socket = TcpSocket::new_v4().unwrap();
        let error = of("no-such-link").apply(&socket).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        of("lo").apply(&socket).unwrap();
        let bound = SockRef::from(&socket).device().unwrap();
        assert_eq!(bound.as_deref(), Some(&b"lo"[..]));
        assert!(Outgoing::default().is_default());
    }
}
