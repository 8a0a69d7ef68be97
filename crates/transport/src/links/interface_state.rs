//! Polls interface carrier state; the kernel delays link-down events by up to 1 s.
//!
//! `net/core/link_watch.c` batches events that are not urgent, among them a change of
//! interface carrier state:
//! those that occur within a second after others wait for the rest of that second. A query returns
//! the current state.

use std::io;
use std::sync::Arc;

use rtnetlink::packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::Link;

/// Queries the kernel about single links, in the network namespace of the thread that opened it.
#[derive(Clone, Debug)]
pub(crate) struct InterfaceCheck {
    socket: Arc<Socket>,
}

impl InterfaceCheck {
    /// Needs no privilege.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel answers during the send call.
        socket.set_non_blocking(true)?;
        let socket = Arc::new(socket);
        Ok(Self { socket })
    }

    /// Whether one of the links, each given by its interface index ([`Link::index`]), does not
    /// exist, or its interface carrier state is off.
    ///
    /// The system call blocks while another process changes links (the kernel's RTNL lock). Call it
    /// on a thread where no data waits behind it.
    pub(crate) fn is_any_lost(&self, links: &[u32]) -> io::Result<bool> {
        for link in links {
            if !self.is_up(*link)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_up(&self, index: u32) -> io::Result<bool> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        // Some drivers query their device for its counters.
        let mask = LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]);
        question.attributes.push(mask);
        let mut message = NetlinkMessage::from(RouteNetlinkMessage::GetLink(question));
        message.header.flags = NLM_F_REQUEST;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        let answer = NetlinkMessage::deserialize(&answer).map_err(io::Error::other)?;
        match answer.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                Ok(Link::from_message(link).up)
            }
            NetlinkPayload::Error(error) => match error.to_io() {
                error if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
                error => Err(error),
            },
            other => Err(io::Error::other(format!("no answer: {other:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::find;
    use sumlink_test_support::netns::Netns;

    #[test]
    fn a_query_sees_every_change_at_once() {
        let Some(ns) = Netns::new() else { return };
        let ip = ns.commands();
        ns.run(async move || {
            ip("link add d0 type veth peer name d1");
            ip("link set d0 up");
            ip("link set d1 up");
            ip("link set lo up");
            let number = async |name| find(name).await.unwrap().index;
            let links = vec![number("lo").await, number("d0").await];
            let check = InterfaceCheck::open().unwrap();
            let is_lost = || check.is_any_lost(&links).unwrap();
            // Faster than the one event per second that the kernel would send.
            for _ in 0..4 {
                assert!(!is_lost());
                ip("link set d1 down");
                assert!(is_lost());
                ip("link set d1 up");
            }
            ip("link del d0");
            assert!(is_lost());
            assert!(!check.is_any_lost(&[]).unwrap());
        });
    }

    /// Devices without a cable, whose state the kernel calls unknown, and a tunnel whose program
    /// has exited.
    #[test]
    fn devices_without_a_cable_are_not_lost() {
        let Some(ns) = Netns::new() else { return };
        let ip = ns.commands();
        ns.run(async move || {
            ip("link set lo up");
            ip("link add br0 type bridge");
            ip("link set br0 up");
            ip("tuntap add t0 mode tun");
            ip("link set t0 up");
            let check = InterfaceCheck::open().unwrap();
            for (name, lost) in [("lo", false), ("br0", false), ("t0", true)] {
                let link = find(name).await.unwrap();
                assert_eq!(link.up, !lost, "{name}");
                let is_lost = check.is_any_lost(&[link.index]).unwrap();
                assert_eq!(is_lost, lost, "{name}");
            }
        });
    }
}
