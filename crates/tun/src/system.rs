//! Operations without a safe wrapper among the dependencies.

use std::io;
use std::os::fd::AsRawFd;

use socket2::{SockAddr, SockAddrStorage, Socket};
use tokio::io::unix::AsyncFd;
use tun_rs::SyncDevice;

/// A type that owns one descriptor: it keeps it open, and the same, until it is dropped.
trait Owner: AsRawFd {}

impl Owner for SyncDevice {}
impl Owner for Socket {}

/// A device for which tasks can wait. Must be called within a tokio runtime.
pub(crate) fn register_device(device: SyncDevice) -> io::Result<AsyncFd<SyncDevice>> {
    register(device)
}

/// A socket for which tasks can wait. Must be called within a tokio runtime.
pub(crate) fn register_socket(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    register(socket)
}

fn register<T: Owner>(owner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: the descriptor stays open and the same for the lifetime of the `AsyncFd`, which owns
    // its owner and lends it only as a shared reference.
    let registered = unsafe { AsyncFd::register(owner) };
    Ok(registered?)
}

/// The address that binds a packet socket to an interface and an Ethernet protocol (packet(7)).
pub(crate) fn packet_address(index: u32, ethertype: u16) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: a zeroed `sockaddr_ll` is valid, and it fits into the storage of any address.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = index as i32;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the storage has an address of this length, as its family says.
    unsafe { SockAddr::new(storage, len) }
}
