//! The kernel's part of the gateway: routes, rules, firewall table and sysctls that bring packets
//! to this program.
//!
//! Everything without a specific route goes to a TUN device. Rules of policy routing do that, the
//! same ones for a host and for the networks behind it:
//!
//! ```text
//! 7438  not fwmark CARRIER         lookup 7438   subnets of the LAN, before equal ones of modems
//! 7439  iif LAN fwmark LOCAL       lookup 7442   "local default": TPROXY delivers to our sockets
//! 7440  to multicast, broadcast    lookup main
//! 7441  not fwmark CARRIER         lookup main suppress_prefixlength 0   specific routes bypass
//! 7442  not fwmark CARRIER         lookup 7443   default over the TUN device
//! ```
//!
//! No rule matches the mark [`CARRIER_MARK`]: carriers, and whatever else this program sends over
//! a link, are routed exactly as without the gateway, by rules of the administrator, too. Table
//! 7443 also has an unreachable default route if the setting is to block: when the device
//! disappears with its program, that route remains. A program that binds its socket to a link's
//! device chooses that link, whatever the rules say.
//!
//! Without the host's own traffic (`host = false`), rules 7441 and 7442 match packets from LAN
//! interfaces, and a mark with which the firewall table asks for their routes.
//!
//! The nftables table `inet sumlink` then redirects the host's TCP connections to a listener, and
//! hands the LAN's TCP and UDP to transparent sockets before the FORWARD hook, in which Docker
//! drops. It also keeps the mark of carriers in conntrack, so that strict reverse path filters
//! accept their answers. Answers to connections from outside leave as they did before.
//!
//! # MTU and MSS
//!
//! A TCP connection of the host or of the LAN ends in this machine's kernel, which negotiates the
//! segment size with the MTU of the interface in between: the LAN's, or loopback. The bond carries
//! a stream in separate segments, so no MSS needs to be rewritten. UDP of the host is limited by
//! the MTU of the TUN device ([`DeviceSettings::mtu`]): the kernel fragments or reports longer
//! datagrams there, before they reach the bond.
//!
//! # A run
//!
//! 1. [`Prepared::new`] takes the lock and looks at the system.
//! 2. [`Prepared::plan`] is a pure function of settings and [`Facts`]; it refuses settings that
//!    cannot work.
//! 3. [`Prepared::apply`] makes the changes, or none of them. It replaces the leftovers of a killed
//!    gateway, so that its kill switch has no gap.
//! 4. [`Applied::follow`] restores changes that others remove, and follows the interfaces.
//! 5. [`Applied::remove`], or [`clean`] by any later process, removes everything.

mod apply;
mod check;
mod conntrack;
mod error;
mod facts;
mod follow;
mod netlink;
mod network;
mod nft;
mod plan;
mod refusal;
mod remove;
mod routing;
mod settings;
mod state;
mod sysctl;
#[cfg(test)]
mod tests;
mod vpn;

pub use apply::{Applied, Prepared};
pub use conntrack::Conntrack;
pub use error::KernelError;
pub use facts::{Facts, check_permission};
pub use network::{DeviceFact, RouteFact, RouteKind, RuleFact};
pub use nft::NftSupport;
pub use plan::Plan;
pub use refusal::{Refusal, Warning};
pub use remove::{Cleaned, clean};
pub use routing::{Family, Hop, Route, Rule};
pub use settings::{Capture, CaptureSetting, DeviceSettings, ListenerPorts, Settings, WithoutBond};
pub use state::DEFAULT_STATE;
pub use sysctl::Sysctl;

/// The bits of a packet's mark that belong to the gateway. Marks of other programs use the rest.
pub const MARK_MASK: u32 = 0xff00_0000;

/// The mark of packets that no rule of the gateway matches: `SO_MARK` of carriers and local exits.
pub const CARRIER_MARK: u32 = 0x5c00_0000;

/// The mark of packets of the LAN that are delivered to transparent sockets.
pub const LOCAL_MARK: u32 = 0x5d00_0000;

/// The mark with which the firewall table asks whether a packet of the LAN has a specific route.
const PROBE_MARK: u32 = 0x5e00_0000;

/// The protocol number of our routes and rules (`/etc/iproute2/rt_protos`), which identifies them.
pub const ROUTE_PROTOCOL: u8 = 74;

/// The nftables table, of family inet.
pub const NFT_TABLE: &str = "sumlink";

/// The routing table with the subnets of the LAN.
const TABLE_LAN: u32 = 7438;

/// The routing table with `local default`.
const TABLE_LOCAL: u32 = 7442;

/// The routing table with the default route over the TUN device.
const TABLE_BOND: u32 = 7443;

/// The preference of the first rule, unless another VPN's rule comes before it.
const FIRST_PREFERENCE: u32 = 7438;
