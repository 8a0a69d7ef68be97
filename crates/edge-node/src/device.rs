//! The TUN device: made, given addresses and routes, read and written packet by packet.
//!
//! Without IFF_VNET_HDR and without offloads the kernel hands over whole packets with whole checksums, none larger than the
//! MTU, and checks what it is given.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use ipnet::IpNet;
use nix::net::if_::if_nametoindex;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};

use crate::config::TunConfig;
use crate::error::NodeError;

// linux/if_tun.h. The request is declared with an int but takes a struct ifreq.
nix::ioctl_write_ptr_bad!(
    tun_set_iff,
    nix::request_code_write!(b'T', 202, 4),
    libc::ifreq
);

/// Packets that the device holds until they are read: more than TCP sends at once.
const QUEUE: u32 = 1000;

/// A device that is up. It goes with this value, and its addresses and routes with it.
#[derive(Debug)]
pub(crate) struct Device {
    file: File,
}

impl Device {
    /// Makes it in the network namespace of the calling thread. Must be called inside a tokio runtime with I/O.
    pub(crate) async fn open(config: &TunConfig) -> Result<Self, NodeError> {
        let file = create(&config.name)?;
        let failed = |what: &str, reason: io::Error| NodeError::Device {
            name: config.name.clone(),
            what: what.to_owned(),
            reason,
        };
        let index = if_nametoindex(config.name.as_str())
            .map_err(|error| failed("finding it", error.into()))?;
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|error| failed("asking the kernel", error))?;
        let serving = tokio::spawn(connection);
        let done = set_up(&handle, index, config).await;
        serving.abort();
        done.map_err(|(what, error)| failed(&what, error))?;
        Ok(Self { file })
    }

    /// The next packet; an error of the kind `WouldBlock` when there is none.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Hands a packet to the kernel.
    pub(crate) fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn create(name: &str) -> Result<File, NodeError> {
    let not_permitted = || NodeError::NotPermitted {
        name: name.to_owned(),
    };
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK);
    let file = options
        .open("/dev/net/tun")
        .map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => not_permitted(),
            io::ErrorKind::NotFound => NodeError::NoTun,
            // The file is there and the driver is not.
            _ if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => {
                NodeError::NoTun
            }
            _ => NodeError::Device {
                name: name.to_owned(),
                what: "opening /dev/net/tun".to_owned(),
                reason: error,
            },
        })?;
    let mut ifr_name = [0; libc::IFNAMSIZ];
    let letters = name.bytes().take(libc::IFNAMSIZ - 1);
    ifr_name
        .iter_mut()
        .zip(letters)
        .for_each(|(to, from)| *to = from as libc::c_char);
    // IFF_TUN_EXCL: a device of somebody else is not taken over.
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as libc::c_short;
    let request = libc::ifreq {
        ifr_name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags },
    };
    // SAFETY: the descriptor is open, and `request` is a whole ifreq whose name and flags are set: all that TUNSETIFF reads.
    unsafe { tun_set_iff(file.as_raw_fd(), &request) }.map_err(|error| match error {
        nix::Error::EPERM => not_permitted(),
        error => NodeError::Device {
            name: name.to_owned(),
            what: "making it".to_owned(),
            reason: error.into(),
        },
    })?;
    Ok(file)
}

/// MTU, addresses and routes; the error says at which of them.
async fn set_up(
    handle: &Handle,
    index: u32,
    config: &TunConfig,
) -> Result<(), (String, io::Error)> {
    let link = LinkUnspec::new_with_index(index)
        .mtu(config.mtu as u32)
        .txqueuelen(QUEUE)
        .up()
        .build();
    let set = handle.link().set(link).execute().await;
    set.map_err(|error| ("bringing it up".to_owned(), of_netlink(error)))?;
    for net in &config.addresses {
        let added = handle.address().add(index, net.addr(), net.prefix_len());
        let added = added.execute().await;
        added.map_err(|error| (format!("address {net}"), of_netlink(error)))?;
    }
    for net in &config.routes {
        let route = route(*net, index);
        let added = handle.route().add(route).execute().await;
        added.map_err(|error| (format!("route to {net}"), of_netlink(error)))?;
    }
    Ok(())
}

fn route(net: IpNet, index: u32) -> rtnetlink::packet_route::route::RouteMessage {
    match net.network() {
        IpAddr::V4(address) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(address, net.prefix_len())
            .output_interface(index)
            .build(),
        IpAddr::V6(address) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(address, net.prefix_len())
            .output_interface(index)
            .build(),
    }
}

fn of_netlink(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(error) => error.to_io(),
        error => io::Error::other(error),
    }
}
