//! The device.

use sumlink_proxy::{ConnectionLimit, SourceLimit};
use sumlink_tun_device::{Created, Setup, create, has_ipv6, set_up};
use tracing::info;

use crate::config::{DeviceConfig, MIN_MTU, Range};
use crate::error::TunError;
use crate::port::Port;
use crate::stats::StatsHandle;
use crate::tcp::Listener;

/// A TUN device that is up. It serves nothing until [`serve`](crate::serve). Dropping it removes the device with
/// its addresses and routes.
pub struct Device {
    pub(crate) port: Port,
    pub(crate) listener4: Option<Listener>,
    pub(crate) listener6: Option<Listener>,
    pub(crate) stats: StatsHandle,
    name: String,
    index: u32,
    offload: Offload,
}

/// The traffic that the kernel passes in super-packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// TCP segments.
    pub tcp: bool,
    /// UDP datagrams; since Linux 6.2.
    pub udp: bool,
}

/// Limits of an entry.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Connections. A further one is reset.
    pub connections: ConnectionLimit,
    /// Sources of datagrams and of echo requests. A further one takes the place of the one that was
    /// idle longest, if it was idle for 5 s; otherwise its packets are dropped.
    pub sources: SourceLimit,
}

impl Device {
    /// Creates the device in the network namespace of the calling thread and brings it up. The
    /// route to the device's own range is the only one that leads to it yet. Must be called inside
    /// a tokio runtime with I/O.
    ///
    /// # Errors
    ///
    /// See the variants of [`TunError`].
    pub async fn open(config: &DeviceConfig) -> Result<Self, TunError> {
        let DeviceConfig {
            name,
            mtu,
            ipv4,
            ipv6,
            offload,
        } = config;
        if *mtu < MIN_MTU {
            return Err(TunError::Mtu(*mtu));
        }
        let created = create(name, *offload)?;
        let v4 = Range::v4(*ipv4);
        let v6 = has_ipv6(&created).then(|| Range::v6(*ipv6));
        let ranges = || [Some(v4), v6].into_iter().flatten();
        let setup = Setup {
            mtu: u32::from(*mtu),
            addresses: ranges().map(|range| range.address()).collect(),
            routes: ranges().map(|range| range.net).collect(),
        };
        set_up(&created, &setup).await?;
        let listen = |range| {
            let bound = Listener::bind(name, range);
            bound.map_err(TunError::system(name, "listen on its address"))
        };
        let listener4 = Some(listen(v4)?);
        let listener6 = v6.map(listen).transpose()?;
        let Created {
            device,
            index,
            name,
        } = created;
        let offload = Offload {
            tcp: device.tcp_gso(),
            udp: device.udp_gso(),
        };
        let stats = StatsHandle::default();
        let port = Port::new(device, usize::from(*mtu), stats.counters())
            .map_err(TunError::system(&name, "wait for packets"))?;
        info!(device = %name, mtu, ?offload, ipv6 = v6.is_some(), "TUN device is up");
        Ok(Self {
            port,
            listener4,
            listener6,
            stats,
            name,
            index,
            offload,
        })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface's index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether the device carries IPv6: not if the system has switched it off.
    pub fn has_ipv6(&self) -> bool {
        self.listener6.is_some()
    }

    /// The traffic that the kernel passes in super-packets.
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Reads the counters, also while the device is served.
    pub fn stats(&self) -> StatsHandle {
        self.stats.clone()
    }
}
