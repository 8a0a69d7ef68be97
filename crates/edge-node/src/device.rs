//! The TUN device: made, given addresses and routes, and read and written many packets at a time.
//!
//! With offload the kernel hands over and takes TCP data in super-packets of up to 64 KiB, and leaves checksums to whoever needs
//! them; both are undone and done here, so that everybody else sees packets as on a wire. Where the kernel cannot do that, it is
//! one packet for each call.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use ipnet::IpNet;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use tun_rs::{DeviceBuilder, GROTable, SyncDevice, VIRTIO_NET_HDR_LEN};

use crate::config::TunConfig;
use crate::error::NodeError;

/// Packets that the device holds until they are read: more than TCP sends at once.
const QUEUE: u32 = 1000;

/// The largest packet or super-packet.
const PACKET: usize = 65_535;

/// Packets that a super-packet is cut into: as many as there are with a segment size of 536 bytes (RFC 9293, section 3.7.1), until
/// one of more has been met, and then as many as there can be.
const SEGMENTS: [usize; 2] = [128, 2048];

/// Packets that are written at once.
const WRITES: usize = 64;

/// A device that is up. It goes with this value, and its addresses and routes with it.
pub(crate) struct Device {
    device: SyncDevice,
    /// Packets to be written, each behind room for the header of a super-packet; the first `waiting` are in use.
    output: Vec<Vec<u8>>,
    waiting: usize,
    joined: GROTable,
    /// Times that the kernel took something not, and that what it gave could not be cut.
    pub(crate) refused: u64,
}

/// What was read from a device.
pub(crate) struct Input {
    whole: Vec<u8>,
    packets: Vec<Vec<u8>>,
    lengths: Vec<usize>,
}

impl Input {
    pub(crate) fn new() -> Self {
        let mut input = Self {
            whole: vec![0; VIRTIO_NET_HDR_LEN + PACKET],
            packets: Vec::new(),
            lengths: Vec::new(),
        };
        input.resize(SEGMENTS[0]);
        input
    }

    fn resize(&mut self, count: usize) {
        // Untouched pages take no memory.
        self.packets.resize_with(count, || vec![0; PACKET]);
        self.lengths.resize(count, 0);
    }

    /// The packet of that number.
    pub(crate) fn packet(&self, number: usize) -> &[u8] {
        &self.packets[number][..self.lengths[number]]
    }
}

impl Device {
    /// Makes it in the network namespace of the calling thread. Must be called inside a tokio runtime with I/O.
    pub(crate) async fn open(config: &TunConfig) -> Result<Self, NodeError> {
        let device = create(config)?;
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
        // Joined packets grow in place.
        let empty = || Vec::with_capacity(2 * VIRTIO_NET_HDR_LEN + PACKET);
        Ok(Self {
            device,
            output: std::iter::repeat_with(empty).take(WRITES).collect(),
            waiting: 0,
            joined: GROTable::new(),
            refused: 0,
        })
    }

    /// Reads once: how many packets that were. An error of the kind `WouldBlock` when there is none.
    pub(crate) fn read(&mut self, input: &mut Input) -> io::Result<usize> {
        let Input {
            whole,
            packets,
            lengths,
        } = &mut *input;
        match self.device.recv_multiple(whole, packets, lengths, 0) {
            // The kernel has handed over something that cannot be cut, or not into so few.
            Err(error)
                if error.raw_os_error().is_none() && error.kind() != io::ErrorKind::WouldBlock =>
            {
                tracing::debug!(%error, "what the device gave cannot be cut into packets");
                self.refused += 1;
                input.resize(SEGMENTS[1]);
                Ok(0)
            }
            other => other,
        }
    }

    /// Takes a packet for the kernel, which gets it with [`Device::flush`] or before.
    pub(crate) fn write(&mut self, packet: &[u8]) {
        let buffer = &mut self.output[self.waiting];
        buffer.clear();
        buffer.resize(VIRTIO_NET_HDR_LEN, 0);
        buffer.extend_from_slice(packet);
        self.waiting += 1;
        if self.waiting == WRITES {
            self.flush();
        }
    }

    /// Hands over what has been written.
    pub(crate) fn flush(&mut self) {
        if self.waiting == 0 {
            return;
        }
        let packets = &mut self.output[..std::mem::take(&mut self.waiting)];
        let written = self
            .device
            .send_multiple(&mut self.joined, packets, VIRTIO_NET_HDR_LEN);
        if let Err(error) = written {
            self.refused += 1;
            tracing::debug!(%error, "the device refuses a packet");
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Makes it, with offload where that is wanted and can be had.
fn create(config: &TunConfig) -> Result<SyncDevice, NodeError> {
    let name = &config.name;
    let failed = |what: &str, reason| NodeError::Device {
        name: name.clone(),
        what: what.to_owned(),
        reason,
    };
    if !Path::new("/dev/net/tun").exists() {
        return Err(NodeError::NoTun);
    }
    // One that somebody has made to stay would be taken over.
    if if_nametoindex(name.as_str()).is_ok() {
        return Err(failed("making it", Errno::EBUSY.into()));
    }
    let build = |offload| {
        DeviceBuilder::new()
            .name(name)
            .offload(offload)
            .build_sync()
    };
    let mut made = build(config.offload);
    if config.offload
        && let Err(error) = &made
        && error.raw_os_error() == Some(Errno::EINVAL as i32)
    {
        tracing::info!(device = %name, "the kernel's TUN has no offload: it is one packet for each call");
        made = build(false);
    }
    let device = made.map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => NodeError::NotPermitted { name: name.clone() },
        // The file is there and the driver is not.
        Some(Errno::ENODEV | Errno::ENXIO | Errno::ENOENT) => NodeError::NoTun,
        _ => failed("making it", error),
    })?;
    let set = device.set_nonblocking(true);
    set.map_err(|error| failed("making it", error))?;
    Ok(device)
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
