//! The option that lets routers fragment IPv4 datagrams.

use std::os::fd::AsFd;

use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};

sockopt_impl!(
    /// Whether the kernel sets "don't fragment" (ip(7)).
    MtuDiscover,
    SetOnly,
    libc::IPPROTO_IP,
    libc::IP_MTU_DISCOVER,
    libc::c_int
);

/// Clears "don't fragment" in all datagrams of an IPv4 socket. With the system's default, it is set
/// in each datagram that fits the known path MTU, so the first datagrams over a path with a smaller
/// MTU get lost.
///
/// IPv6 has no such flag. The kernel fragments once it knows the path MTU.
pub(super) fn allow(socket: &impl AsFd) -> nix::Result<()> {
    setsockopt(socket, MtuDiscover, &libc::IP_PMTUDISC_DONT)
}
