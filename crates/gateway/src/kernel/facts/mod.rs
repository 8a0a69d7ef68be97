//! The facts about the system that a plan needs.

mod parse;

use std::fs;
use std::net::IpAddr;

use ipnet::IpNet;

use super::check::Refusal;
use super::conntrack::Conntrack;
use super::error::KernelError;
use super::netlink::Netlink;
use super::nft::{self, NftSupport};
use super::routing::Family;
use super::sysctl::Sysctl;

pub(super) use parse::{device, route, rule};

/// The state of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether this process may change it (`CAP_NET_ADMIN`).
    pub is_permitted: bool,
    /// Whether the kernel has IPv6, and it is not disabled.
    pub has_ipv6: bool,
    /// Whether nftables can capture.
    pub nft: NftSupport,
    /// Whether another program's firewall drops forwarded packets by default.
    pub drops_forwarded: bool,
    /// The connection table.
    pub conntrack: Option<Conntrack>,
    /// Interfaces.
    pub devices: Vec<DeviceFact>,
    /// Rules of policy routing of both families.
    pub rules: Vec<RuleFact>,
    /// Routes of all tables and both families.
    pub routes: Vec<RouteFact>,
    /// Values of kernel parameters that a plan may need, by interface.
    pub sysctls: Vec<Sysctl>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFact {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The kind of a virtual device (`tun`, `wireguard`); `None` for hardware.
    pub kind: Option<String>,
    /// Whether it is up.
    pub is_up: bool,
    /// Addresses with the prefix of their network.
    pub addresses: Vec<IpNet>,
}

/// A rule of policy routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFact {
    /// The family.
    pub family: Family,
    /// Rules apply in ascending order.
    pub preference: u32,
    /// The routing table; `None` for other actions.
    pub table: Option<u32>,
    /// Whether it applies to unmarked packets of any address, interface, user and port.
    pub is_general: bool,
    /// Whether the gateway created it.
    pub is_ours: bool,
    /// The rule as `ip rule` prints it.
    pub text: String,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFact {
    /// The routing table.
    pub table: u32,
    /// The destination.
    pub destination: IpNet,
    /// The type.
    pub kind: RouteKind,
    /// The interface.
    pub device: Option<String>,
    /// The lowest metric wins.
    pub metric: u32,
    /// The source address.
    pub source: Option<IpAddr>,
    /// Whether the gateway created it.
    pub is_ours: bool,
}

/// Type of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Packets leave by an interface.
    Unicast,
    /// Packets are for this machine.
    Local,
    /// The sender gets an error.
    Unreachable,
    /// Any other type.
    Other,
}

impl Facts {
    /// Asks the kernel, in the network namespace of the calling thread.
    ///
    /// Probes the support of nftables with a temporary table. Must be called inside a tokio runtime
    /// with I/O.
    ///
    /// # Errors
    ///
    /// [`KernelError::System`] if netlink does not answer.
    pub async fn collect() -> Result<Self, KernelError> {
        let netlink = Netlink::open().map_err(KernelError::system("ask the kernel"))?;
        let is_permitted = has_net_admin();
        let nft = match is_permitted {
            true => nft::probe().await,
            false => NftSupport::Refused("no permission".to_owned()),
        };
        let drops_forwarded = nft == NftSupport::Works && nft::is_forwarding_dropped().await;
        let asked = netlink.state().await;
        let (devices, rules, routes) = asked.map_err(KernelError::system("list the routes"))?;
        let sysctls = parameters(&devices);
        Ok(Self {
            is_permitted,
            has_ipv6: has_ipv6(),
            nft,
            drops_forwarded,
            conntrack: Conntrack::read(),
            devices,
            rules,
            routes,
            sysctls,
        })
    }

    /// The interface of that name.
    pub(super) fn device(&self, name: &str) -> Option<&DeviceFact> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// Value of a kernel parameter.
    pub(super) fn sysctl(&self, path: &str) -> Option<&str> {
        let found = self.sysctls.iter().find(|sysctl| sysctl.path == path);
        found.map(|sysctl| sysctl.value.as_str())
    }
}

/// Whether this process may start a gateway.
///
/// # Errors
///
/// [`Refusal::NotPermitted`].
pub fn check_permission() -> Result<(), Refusal> {
    match has_net_admin() {
        true => Ok(()),
        false => Err(Refusal::NotPermitted),
    }
}

/// Whether the effective capabilities contain `CAP_NET_ADMIN` (bit 12, capabilities(7)).
fn has_net_admin() -> bool {
    const CAP_NET_ADMIN: u32 = 12;
    let Ok(status) = fs::read_to_string("/proc/self/status") else {
        return true;
    };
    let Some(bits) = status.lines().find_map(|line| line.strip_prefix("CapEff:")) else {
        return true;
    };
    u64::from_str_radix(bits.trim(), 16).is_ok_and(|bits| bits >> CAP_NET_ADMIN & 1 == 1)
}

fn has_ipv6() -> bool {
    let disabled = Sysctl::read("net/ipv6/conf/all/disable_ipv6");
    matches!(disabled.ok().flatten().as_deref(), Some("0"))
}

/// The parameters that decide about forwarding, router advertisements and source addresses.
fn parameters(devices: &[DeviceFact]) -> Vec<Sysctl> {
    let keys = [
        ("ipv4", "forwarding"),
        ("ipv4", "rp_filter"),
        ("ipv4", "src_valid_mark"),
        ("ipv6", "forwarding"),
        ("ipv6", "accept_ra"),
    ];
    let names = devices.iter().map(|device| device.name.as_str());
    let mut found = Vec::new();
    for name in ["all", "default"].into_iter().chain(names) {
        for (family, key) in keys {
            let path = super::sysctl::of_interface(family, name, key);
            if let Ok(Some(value)) = Sysctl::read(&path) {
                found.push(Sysctl { path, value });
            }
        }
    }
    found
}
