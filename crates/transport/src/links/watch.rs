//! Reports changes of links, addresses and routes.

use std::fmt;
use std::io;
use std::time::Duration;

use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use tokio::time::{Instant, sleep_until};

/// Reports that links, addresses or routes have changed; [`super::list`] returns the new state.
///
/// Changes come in bursts: a link that goes down takes its addresses and routes with it. One call
/// of [`Watch::changed`] therefore covers all changes within 3 ms, and the next call returns at
/// least 50 ms later. A lost link is known at once, and a flapping one causes little work. A burst
/// that overruns the kernel's buffer counts as a change like any other: nothing is missed.
pub struct Watch {
    /// The subscribed netlink socket; the kernel limits its receive buffer.
    socket: TokioSocket,
    /// When the current burst is reported.
    due: Option<Instant>,
    /// The earliest time of the next report.
    not_before: Option<Instant>,
}

impl Watch {
    /// Subscribes in the network namespace of the calling thread; needs no privilege.
    ///
    /// Must be called inside a tokio runtime with I/O and time.
    pub fn new() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
        socket.socket_mut().bind(&SocketAddr::new(0, GROUPS))?;
        Ok(Self {
            socket,
            due: None,
            not_before: None,
        })
    }

    /// Waits until something has changed since the last call returned.
    ///
    /// Cancel safe: a change noticed by a call that was dropped is reported by the next one. An
    /// error means that the subscription is broken and a new [`Watch`] is needed.
    pub async fn changed(&mut self) -> io::Result<()> {
        let due = match self.due {
            Some(due) => due,
            None => {
                let message = self.socket.recv(&mut &mut [0; 16][..]).await;
                // No await between taking the message and remembering it: see "cancel safe".
                is_message(message)?;
                let soon = Instant::now() + GATHER;
                let due = self.not_before.map_or(soon, |at| at.max(soon));
                *self.due.insert(due)
            }
        };
        sleep_until(due).await;
        self.drain()?;
        self.due = None;
        self.not_before = Some(Instant::now() + PAUSE);
        Ok(())
    }

    /// Reads the rest of the burst that is about to be reported.
    fn drain(&self) -> io::Result<()> {
        for _ in 0..DRAIN_LIMIT {
            // The content is not used, and a datagram is consumed whole however short the buffer
            // is.
            let message = self
                .socket
                .socket_ref()
                .recv(&mut &mut [0; 16][..], libc::MSG_DONTWAIT);
            if !is_message(message.map(drop))? {
                break;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

/// Time over which a burst of changes is collected.
const GATHER: Duration = Duration::from_millis(3);

/// Minimum time between two reports.
const PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of messages read in one go, so that an endless burst does not block the runtime.
const DRAIN_LIMIT: usize = 4096;

/// The multicast groups of `linux/rtnetlink.h`.
const GROUPS: u32 = (libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_ROUTE) as u32;

/// Whether a message arrived, or the kernel reported a dropped one.
fn is_message(received: io::Result<()>) -> io::Result<bool> {
    match received {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error() {
            // The kernel dropped messages because the buffer was full (netlink(7)); these were
            // changes too.
            Some(libc::ENOBUFS | libc::EINTR) => Ok(true),
            Some(libc::EAGAIN) => Ok(false),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use sumlink_test_support::netns::Netns;

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
