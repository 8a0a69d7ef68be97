//! Creates TUN devices on Linux, for the edge node and the gateway.
//!
//! [`create`] makes a device, with offloads if the kernel has them. [`set_up`] gives it addresses
//! and routes, and brings it up. The device is not persistent: it vanishes with its descriptor, and
//! its addresses and routes with it.

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::route::{RouteMessage, RouteType};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use sumlink_util::plain;
use tokio::time::{Instant, sleep};
use tun_rs::{DeviceBuilder, SyncDevice};

/// Queue length of a device in packets: more than TCP sends in a burst.
const QUEUE: u32 = 1000;

/// How often, and how long at most, an added address is looked for.
const PAUSE: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(10);

/// A device that is not up yet. Its descriptor does not block.
pub struct Created {
    /// The descriptor.
    pub device: SyncDevice,
    /// The interface's index.
    pub index: u32,
    /// The interface's name.
    pub name: String,
}

/// What [`set_up`] does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Addresses with their networks, which are routed through the device.
    pub addresses: Vec<IpNet>,
    /// Further networks routed through the device, in the main table.
    pub routes: Vec<IpNet>,
}

/// Why a device cannot be created or set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The user's fault: the process lacks permission to create a TUN device.
    #[error(
        "no permission to create the TUN device {name}; run as root, or grant CAP_NET_ADMIN and \
         access to /dev/net/tun"
    )]
    NotPermitted {
        /// Name of the device.
        name: String,
    },
    /// The system's fault: there is no TUN driver.
    #[error("/dev/net/tun does not exist; load the driver with: modprobe tun")]
    NoTun,
    /// The user's or the system's fault: the device cannot be created or set up.
    #[error("cannot set up the TUN device {name}: {step}: {reason}", reason = plain(.reason))]
    Step {
        /// Name of the device.
        name: String,
        /// The step that failed.
        step: String,
        /// The system's error.
        reason: io::Error,
    },
}

/// Creates a device in the network namespace of the calling thread.
///
/// With `offload`, packets have a header of [`VIRTIO_NET_HDR_LEN`](tun_rs::VIRTIO_NET_HDR_LEN)
/// bytes in front of them, and the kernel passes TCP data in super-packets of up to 64 KiB, with
/// incomplete checksums; UDP data, too, since Linux 6.2. If the kernel has none of this, the device
/// works without: `SyncDevice::tcp_gso` returns `false`.
///
/// # Errors
///
/// As the variants of [`DeviceError`] say. A device of this name must not exist.
pub fn create(name: &str, offload: bool) -> Result<Created, DeviceError> {
    let failed = |step: &str, reason| step_failed(name, step, reason);
    if !Path::new("/dev/net/tun").exists() {
        return Err(DeviceError::NoTun);
    }
    // Opening a persistent device of the same name would take it over.
    if if_nametoindex(name).is_ok() {
        return Err(failed("create it", Errno::EBUSY.into()));
    }
    let build = |offload| {
        DeviceBuilder::new()
            .name(name)
            .offload(offload)
            .build_sync()
    };
    let mut made = build(offload);
    if offload
        && let Err(error) = &made
        && error.raw_os_error() == Some(Errno::EINVAL as i32)
    {
        tracing::info!(device = %name, "TUN offload unavailable; each call carries one packet");
        made = build(false);
    }
    let device = made.map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => DeviceError::NotPermitted {
            name: name.to_owned(),
        },
        // The device file exists but the driver does not.
        Some(Errno::ENODEV | Errno::ENXIO | Errno::ENOENT) => DeviceError::NoTun,
        _ => failed("create it", error),
    })?;
    let set = device.set_nonblocking(true);
    set.map_err(|error| failed("create it", error))?;
    let index = if_nametoindex(name).map_err(|error| failed("look up its index", error.into()))?;
    Ok(Created {
        device,
        index,
        name: name.to_owned(),
    })
}

/// Whether the namespace of the calling thread gives a device IPv6.
pub fn has_ipv6(created: &Created) -> bool {
    let settings = PathBuf::from("/proc/sys/net/ipv6/conf").join(&created.name);
    std::fs::read_to_string(settings.join("disable_ipv6")).is_ok_and(|value| value.trim() == "0")
}

/// Sets MTU, addresses and routes, and brings the device up. Must be called inside a tokio runtime
/// with I/O, on a thread in the device's network namespace.
///
/// # Errors
///
/// [`DeviceError::Step`] names the step that failed.
pub async fn set_up(created: &Created, setup: &Setup) -> Result<(), DeviceError> {
    let failed = |step: &str, reason| step_failed(&created.name, step, reason);
    let (connection, handle, _) =
        rtnetlink::new_connection().map_err(|error| failed("open a netlink socket", error))?;
    let serving = tokio::spawn(connection);
    let done = steps(&handle, created.index, setup).await;
    serving.abort();
    done.map_err(|(step, error)| failed(&step, error))
}

async fn steps(handle: &Handle, index: u32, setup: &Setup) -> Result<(), (String, io::Error)> {
    let link = LinkUnspec::new_with_index(index)
        .mtu(setup.mtu)
        .txqueuelen(QUEUE)
        .up()
        .build();
    let set = handle.link().set(link).execute().await;
    set.map_err(|error| ("bring it up".to_owned(), of_netlink(error)))?;
    for net in &setup.addresses {
        let mut added = handle.address().add(index, net.addr(), net.prefix_len());
        if net.addr().is_ipv6() {
            // No other host is on the device, and the address can be used at once.
            added.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        }
        let added = added.execute().await;
        added.map_err(|error| (format!("address {net}"), of_netlink(error)))?;
    }
    for net in &setup.routes {
        let route = route(*net, index);
        let added = handle.route().add(route).execute().await;
        added.map_err(|error| (format!("route to {net}"), of_netlink(error)))?;
    }
    for net in setup.addresses.iter().filter(|net| net.addr().is_ipv6()) {
        let used = until_local(handle, net.addr()).await;
        used.map_err(|error| (format!("address {net}"), error))?;
    }
    Ok(())
}

/// Waits until packets to an IPv6 address of this host reach it. The kernel adds the local route
/// after the address, in a worker; until then, it drops these packets.
async fn until_local(handle: &Handle, address: IpAddr) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let asked = RouteMessageBuilder::<IpAddr>::new().destination_prefix(address, 128);
        let request = handle.route().get(asked.map_err(io::Error::other)?.build());
        // Without any route, the answer is an error.
        let answer = std::pin::pin!(request.execute()).try_next().await;
        if let Ok(Some(route)) = answer
            && route.header.kind == RouteType::Local
        {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sleep(PAUSE).await;
    }
}

fn route(net: IpNet, index: u32) -> RouteMessage {
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

fn step_failed(name: &str, step: &str, reason: io::Error) -> DeviceError {
    DeviceError::Step {
        name: name.to_owned(),
        step: step.to_owned(),
        reason,
    }
}

fn of_netlink(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(error) => error.to_io(),
        error => io::Error::other(error),
    }
}
