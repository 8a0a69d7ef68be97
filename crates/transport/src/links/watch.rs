//! Being told when links, addresses or routes change.

use std::fmt;
use std::io;
use std::time::Duration;

use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use tokio::time::{Instant, sleep_until};

/// Tells that something about links, addresses or routes has changed; what it was, [`super::list`] says.
///
/// Changes come in bursts (a link that goes down takes its addresses and routes along), so one call of
/// [`Watch::changed`] reports all that happens within 3 milliseconds, and the next one returns 50 milliseconds later at the
/// soonest: a link that has gone is known at once, and one that flaps keeps nobody busy. A burst that overruns the
/// kernel's buffer counts as a change like any other: nothing is missed.
pub struct Watch {
    /// The subscribed netlink socket; the kernel bounds what waits in it.
    socket: TokioSocket,
    /// When the burst that has begun is reported.
    due: Option<Instant>,
    /// No report before.
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
    /// Cancel safe: a change noticed by a call that was dropped is reported by the next one. An error
    /// means that the subscription is broken and a new [`Watch`] is needed.
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

    /// Takes the rest of the burst that is about to be reported.
    fn drain(&self) -> io::Result<()> {
        for _ in 0..DRAIN_LIMIT {
            // The messages are not looked at, and taken whole however short the buffer is.
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

/// How long a burst of changes is gathered.
const GATHER: Duration = Duration::from_millis(3);

/// Time between two reports, at least.
const PAUSE: Duration = Duration::from_millis(50);

/// Most messages that are taken in one go, so that an endless burst does not hold up the runtime.
const DRAIN_LIMIT: usize = 4096;

/// The multicast groups of `linux/rtnetlink.h`.
const GROUPS: u32 = (libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_ROUTE) as u32;

/// Whether there was a message, or traces of one.
fn is_message(received: io::Result<()>) -> io::Result<bool> {
    match received {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error() {
            // Messages were dropped because the buffer was full (netlink(7)): changes, too.
            Some(libc::ENOBUFS | libc::EINTR) => Ok(true),
            Some(libc::EAGAIN) => Ok(false),
            _ => Err(error),
        },
    }
}
