//! The TUN device: made, given addresses and routes, read and written packet by packet.
//!
//! Without IFF_VNET_HDR and without offloads the kernel hands over whole packets with whole checksums, none larger than the
//! MTU, and checks what it is given.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use ipnet::IpNet;
use nix::net::if_::if_nametoindex;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use sumlink_tun::{Framing, OpenError};

use crate::config::TunConfig;
use crate::error::NodeError;

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
    let failed = |what: &str, reason| NodeError::Device {
        name: name.to_owned(),
        what: what.to_owned(),
        reason,
    };
    sumlink_tun::open(name, Framing::Plain).map_err(|error| match error {
        OpenError::NotPermitted => NodeError::NotPermitted {
            name: name.to_owned(),
        },
        OpenError::NoTun => NodeError::NoTun,
        OpenError::File(error) => failed("opening /dev/net/tun", error),
        OpenError::Interface(error) => failed("making it", error),
    })
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
