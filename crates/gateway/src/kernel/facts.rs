//! The facts about the system that a plan needs.

use std::fs;

use super::conntrack::Conntrack;
use super::error::KernelError;
use super::netlink::Netlink;
use super::network::{DeviceFact, RouteFact, RuleFact};
use super::nft::{self, NftSupport};
use super::refusal::Refusal;
use super::sysctl::Sysctl;

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
