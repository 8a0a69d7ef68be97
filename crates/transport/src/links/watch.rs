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
