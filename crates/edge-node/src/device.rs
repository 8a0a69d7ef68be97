//! The TUN device: created, given addresses and routes, and read and written many packets at a
//! time.
//!
//! With offload, the kernel passes TCP data in super-packets of up to 64 KiB, with incomplete
//! checksums. This module splits and joins them and completes the checksums, so that the other
//! modules see packets as on a wire. If the kernel has no offload, each call passes one packet.

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

/// Queue length of the device in packets: more than TCP sends in a burst.
const QUEUE: u32 = 1000;

/// The largest packet or super-packet.
const PACKET: usize = 65_535;

/// Most packets per super-packet: first the number for a segment size of 536 bytes (RFC 9293,
/// section 3.7.1), and, once a larger one has been seen, the largest possible number.
const SEGMENTS: [usize; 2] = [128, 2048];

/// Packets written at once.
const WRITES: usize = 64;

/// A TUN device that is up. Dropping it removes the device with its addresses and routes.
pub(crate) struct Device {
    device: SyncDevice,
    /// Packets to be written, each after room for a super-packet header; the first `waiting` are in
    /// use.
    output: Vec<Vec<u8>>,
    waiting: usize,
    joined: GROTable,
    /// Packets that the kernel refused, and super-packets that could not be split.
    pub(crate) refused: u64,
}

/// Packets read from a device.
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
        // Untouched pages use no memory.
        self.packets.resize_with(count, || vec![0; PACKET]);
        self.lengths.resize(count, 0);
    }

    /// The packet with this number.
    pub(crate) fn packet(&self, number: usize) -> &[u8] {
        &self.packets[number][..self.lengths[number]]
    }
}

impl Device {
    /// Creates the device in the network namespace of the calling thread. Must be called inside a
    /// tokio runtime with I/O.
    pub(crate) async fn open(config: &TunConfig) -> Result<Self, NodeError> {
        let device = create(config)?;
        let failed = |step: &str, reason: io::Error| NodeError::Device {
            name: config.name.clone(),
            step: step.to_owned(),
            reason,
        };
        let index = if_nametoindex(config.name.as_str())
            .map_err(|error| failed("look up its index", error.into()))?;
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|error| failed("open a netlink socket", error))?;
        let serving = tokio::spawn(connection);
        let done = set_up(&handle, index, config).await;
        serving.abort();
        done.map_err(|(step, error)| failed(&step, error))?;
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

    /// Reads once and returns the number of packets. The error kind is `WouldBlock` if none is
    /// available.
    pub(crate) fn read(&mut self, input: &mut Input) -> io::Result<usize> {
        let Input {
            whole,
            packets,
            lengths,
        } = &mut *input;
        match self.device.recv_multiple(whole, packets, lengths, 0) {
            // The super-packet cannot be split, or has too many segments.
            Err(error)
                if error.raw_os_error().is_none() && error.kind() != io::ErrorKind::WouldBlock =>
            {
                tracing::debug!(%error, "cannot split a super-packet from the device");
                self.refused += 1;
                input.resize(SEGMENTS[1]);
                Ok(0)
            }
            other => other,
        }
    }

    /// Queues a packet for the kernel; [`Device::flush`] writes it at the latest.
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

    /// Writes the queued packets.
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
            tracing::debug!(%error, "the device refused a packet");
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Creates the device, with offload if it is enabled and available.
fn create(config: &TunConfig) -> Result<SyncDevice, NodeError> {
    let name = &config.name;
    let failed = |step: &str, reason| NodeError::Device {
        name: name.clone(),
        step: step.to_owned(),
        reason,
    };
    if !Path::new("/dev/net/tun").exists() {
        return Err(NodeError::NoTun);
    }
    // Opening a persistent device of the same name would take it over.
    if if_nametoindex(name.as_str()).is_ok() {
        return Err(failed("create it", Errno::EBUSY.into()));
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
        tracing::info!(device = %name, "TUN offload unavailable; each call carries one packet");
        made = build(false);
    }
    let device = made.map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => NodeError::NotPermitted { name: name.clone() },
        // The device file exists but the driver does not.
        Some(Errno::ENODEV | Errno::ENXIO | Errno::ENOENT) => NodeError::NoTun,
        _ => failed("create it", error),
    })?;
    let set = device.set_nonblocking(true);
    set.map_err(|error| failed("create it", error))?;
    Ok(device)
}

/// Sets MTU, addresses and routes; the error names the step that failed.
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
    set.map_err(|error| ("bring it up".to_owned(), of_netlink(error)))?;
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
