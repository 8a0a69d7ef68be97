//! Addresses, routes and kernel settings of the namespaces at the ends of the links. With a LAN
//! there are two more: [`crate::lan`].
//!
//! ```text
//! client namespace                                        server namespace
//!   wifi   10.77.1.2/24  ──── emulated link 1 ────  10.77.1.1/24  wifi   ┐
//!   wigig  10.77.2.2/24  ──── emulated link 2 ────  10.77.2.1/24  wigig  ├ lo 10.99.0.1/32
//!   default route over each, metric 101, 102 …                           ┘    fd99::1/128
//! ```
//!
//! The server has one address that is reachable over every link. A program selects a link by
//! binding to its interface (SO_BINDTODEVICE) only.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

use crate::MTU;
use crate::error::LabError;
use crate::netns::Namespace;

/// The server's address, reachable over every link.
pub const SERVER_V4: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The server's IPv6 address, reachable over every link.
pub const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1);
/// Flags that let clients of a sumlink server reach the laboratory's servers, which share the
/// sumlink server's addresses.
pub(crate) fn egress_flags() -> [String; 4] {
    let allow = |address: &str| format!("allow {address}");
    let flag = || "--egress".to_owned();
    [
        flag(),
        allow(&SERVER_V4.to_string()),
        flag(),
        allow(&format!("[{SERVER_V6}]")),
    ]
}

/// Maximum size of TCP receive and send buffers in the namespaces, in bytes.
pub const SOCKET_BUFFER_MAX: u64 = 32 << 20;

/// The congestion controls that unprivileged programs may use, and that namespaces may have as
/// their default.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// Packets that an interface holds for the emulator to read; more than any burst of TCP.
pub(crate) const TX_QUEUE: u32 = 10_000;

/// Maximum number of endpoints in the kernel's path manager; further links have no MPTCP subflow.
const MPTCP_ENDPOINTS: usize = 8;

/// A side of the laboratory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Side {
    /// The side that selects links; with a LAN its gateway.
    Client,
    /// The side with the single address.
    Server,
    /// The host in the LAN behind the client, if there is one.
    Lan,
    /// The host behind the server, if there is a LAN.
    Internet,
}

impl Side {
    /// Whether it exists only with a LAN.
    pub fn needs_lan(self) -> bool {
        matches!(self, Self::Lan | Self::Internet)
    }

    /// The side's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Lan => "lan",
            Self::Internet => "internet",
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// The client's initial IPv4 address on the link of that number, counted from 0.
pub fn client_v4(link: usize) -> Ipv4Addr {
    host_v4(link, FIRST_HOST)
}

/// The host number of the client's first address on each link.
pub(crate) const FIRST_HOST: u8 = 2;

fn host_v4(link: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, link as u8 + 1, host)
}

/// Commands that give the client's end of a link the addresses of that host number, and default
/// routes.
pub(crate) fn client_addresses(link: usize, host: u8, name: &str, kernel: Kernel) -> String {
    let number = link + 1;
    let metric = 100 + number;
    let mut batch = format!("addr add {}/24 dev {name}\n", host_v4(link, host));
    if kernel.ipv6 {
        let _ = writeln!(
            batch,
            "addr add fd77:{number:x}::{host:x}/64 dev {name} nodad"
        );
    }
    // When addresses change, the IPv4 route disappears with the old address, but the IPv6 route
    // stays.
    let _ = writeln!(
        batch,
        "route replace default via 10.77.{number}.1 dev {name} metric {metric}"
    );
    if kernel.ipv6 {
        let _ = writeln!(
            batch,
            "route replace ::/0 via fd77:{number:x}::1 dev {name} metric {metric}"
        );
    }
    batch
}

/// Commands that make MPTCP use the client's address of that host number on a link instead of the
/// previous one.
pub(crate) fn move_endpoint(link: usize, host: u8, name: &str, kernel: Kernel) -> String {
    if !kernel.mptcp || link >= MPTCP_ENDPOINTS {
        return String::new();
    }
    format!("{}{}", unlink_batch(link), endpoint(link, host, name))
}

fn endpoint(link: usize, host: u8, name: &str) -> String {
    let (address, id) = (host_v4(link, host), link + 1);
    format!("mptcp endpoint add {address} dev {name} id {id} subflow fullmesh\n")
}

/// The command that makes the subflows over a link backups, or ends that, at both ends: the kernel
/// sends MP_PRIO (RFC 8684, section 3.3.8). Without `fullmesh` it would also replace the subflows.
pub(crate) fn prioritize(link: usize, is_backup: bool) -> String {
    let backup = if is_backup { "backup" } else { "nobackup" };
    format!("mptcp endpoint change id {} {backup} fullmesh\n", link + 1)
}

/// Commands for everything that does not belong to a link.
pub(crate) fn base_batch(side: Side, links: usize, kernel: Kernel) -> String {
    let mut batch = String::from("link set lo up\n");
    if side == Side::Server {
        let _ = writeln!(batch, "addr add {SERVER_V4}/32 dev lo");
        if kernel.ipv6 {
            let _ = writeln!(batch, "addr add {SERVER_V6}/128 dev lo nodad");
        }
    }
    if kernel.mptcp {
        // The first subflow does not count; the kernel's own limit is 8.
        let _ = writeln!(
            batch,
            "mptcp limits set subflow {} add_addr_accepted 8",
            links.clamp(1, 8)
        );
    }
    batch
}

/// Commands that set up one end of a link; the interface exists and has no address.
pub(crate) fn link_batch(side: Side, link: usize, name: &str, kernel: Kernel) -> String {
    let number = link + 1;
    let mut batch = format!("link set dev {name} mtu {MTU} txqueuelen {TX_QUEUE} up\n");
    match side {
        Side::Client => {
            batch.push_str(&client_addresses(link, FIRST_HOST, name, kernel));
            if kernel.mptcp && number <= MPTCP_ENDPOINTS {
                batch.push_str(&endpoint(link, FIRST_HOST, name));
            }
        }
        Side::Server => {
            let _ = writeln!(batch, "addr add 10.77.{number}.1/24 dev {name}");
            if kernel.ipv6 {
                let _ = writeln!(batch, "addr add fd77:{number:x}::1/64 dev {name} nodad");
            }
        }
        // No link leads to them.
        Side::Lan | Side::Internet => {}
    }
    batch
}

/// The command that removes the state that outlives the interface of a link's client end, if it
/// ever existed.
pub(crate) fn unlink_batch(link: usize) -> String {
    format!("mptcp endpoint delete id {}\n", link + 1)
}

/// Features of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) ipv6: bool,
    pub(crate) mptcp: bool,
}

impl Kernel {
    pub(crate) fn probe() -> Self {
        Self {
            ipv6: Path::new("/proc/sys/net/ipv6").exists(),
            mptcp: Path::new("/proc/sys/net/mptcp/enabled").exists(),
        }
    }
}

/// Applies the kernel settings to a namespace, except the congestion control, for which see
/// [`set_congestion`].
pub(crate) fn set_sysctls(namespace: &Namespace, kernel: Kernel) -> Result<(), LabError> {
    let mut settings = vec![
        // A namespace inherits it from a host that routes for containers. It comes first: a change
        // sets the other parameters of IPv4 to their defaults.
        ("ipv4/ip_forward", "0".to_owned()),
        ("ipv4/conf/all/rp_filter", "0".to_owned()),
        ("ipv4/conf/default/rp_filter", "0".to_owned()),
        ("ipv4/tcp_no_metrics_save", "1".to_owned()),
        ("ipv4/tcp_rmem", format!("4096 131072 {SOCKET_BUFFER_MAX}")),
        ("ipv4/tcp_wmem", format!("4096 65536 {SOCKET_BUFFER_MAX}")),
    ];
    if kernel.ipv6 {
        settings.extend(
            [
                ("ipv6/conf/all/forwarding", "0"),
                ("ipv6/conf/all/disable_ipv6", "0"),
                ("ipv6/conf/default/disable_ipv6", "0"),
                // Addresses are usable at once, also after a loss of the carrier.
                ("ipv6/conf/all/accept_dad", "0"),
                ("ipv6/conf/default/accept_dad", "0"),
                ("ipv6/conf/all/accept_ra", "0"),
                ("ipv6/conf/default/accept_ra", "0"),
            ]
            .map(|(key, value)| (key, value.to_owned())),
        );
    }
    if kernel.mptcp {
        settings.push(("mptcp/enabled", "1".to_owned()));
    }
    namespace.run(move || {
        settings
            .iter()
            .try_for_each(|(key, value)| write_sysctl(key, value))
    })?
}

/// Makes `name` the congestion control of every new connection in the namespaces.
///
/// A namespace accepts only congestion controls that the initial namespace allows to all users. If
/// privileged, this process allows `name` there for a moment. Returns a description of this change
/// and its reversal.
pub(crate) fn set_congestion(
    namespaces: &[Namespace],
    name: &str,
    lock: &Path,
) -> Result<Option<String>, LabError> {
    let plausible = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !plausible {
        return Err(LabError::Usage(format!(
            "'{name}' is not a valid name of a congestion control"
        )));
    }
    let set_all = || {
        namespaces
            .iter()
            .try_for_each(|ns| set_congestion_in(ns, name))
    };
    // Two laboratories that start at once must not restore each other's change, nor take it for the
    // user's.
    let file = fs::File::create(lock).map_err(LabError::file(lock))?;
    let _held = Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, error)| LabError::system("locking the laboratory", error))?;
    let allowed = fs::read_to_string(ALLOWED).map_err(LabError::file(ALLOWED))?;
    let before = allowed.trim();
    if before.split_whitespace().any(|word| word == name) {
        return set_all().map(|()| None);
    }
    if fs::write(ALLOWED, format!("{before} {name}")).is_err() {
        // Not writable, or unknown to the kernel; the namespace's answer shows which.
        return set_all().map(|()| None);
    }
    let result = set_all();
    fs::write(ALLOWED, before).map_err(LabError::file(ALLOWED))?;
    result.map(|()| {
        Some(format!(
            "net.ipv4.tcp_allowed_congestion_control was '{before} {name}' for a moment, and is \
             '{before}' again"
        ))
    })
}

fn set_congestion_in(namespace: &Namespace, name: &str) -> Result<(), LabError> {
    let name = name.to_owned();
    namespace.run(move || {
        let Err(error) = fs::write("/proc/sys/net/ipv4/tcp_congestion_control", &name) else {
            return Ok(());
        };
        let reason = match error.raw_os_error() {
            Some(libc::ENOENT) => "the kernel does not have it; see 'sysctl \
                 net.ipv4.tcp_available_congestion_control', or load it with: modprobe tcp_NAME"
                .to_owned(),
            _ => {
                let allowed = fs::read_to_string(ALLOWED).unwrap_or_default();
                format!(
                    "{error}; run as root, or allow it with: sudo sysctl -w \
                     net.ipv4.tcp_allowed_congestion_control=\"{} {name}\"",
                    allowed.trim()
                )
            }
        };
        Err(LabError::Congestion { name, reason })
    })?
}

pub(crate) fn write_sysctl(key: &str, value: &str) -> Result<(), LabError> {
    let path = Path::new("/proc/sys/net").join(key);
    fs::write(&path, value).map_err(LabError::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_has_a_default_route_over_each_link() {
        let batch = link_batch(
            Side::Client,
            1,
            "wigig",
            Kernel {
                ipv6: true,
                mptcp: true,
            },
        );
        assert_eq!(
            batch,
            "link set dev wigig mtu 1500 txqueuelen 10000 up\n\
             addr add 10.77.2.2/24 dev wigig\n\
             addr add fd77:2::2/64 dev wigig nodad\n\
             route replace default via 10.77.2.1 dev wigig metric 102\n\
             route replace ::/0 via fd77:2::1 dev wigig metric 102\n\
             mptcp endpoint add 10.77.2.2 dev wigig id 2 subflow fullmesh\n"
        );
    }

    #[test]
    fn a_backup_remains_an_endpoint_of_the_full_mesh() {
        let batch = [true, false].map(|is_backup| prioritize(1, is_backup));
        assert_eq!(
            batch,
            [
                "mptcp endpoint change id 2 backup fullmesh\n",
                "mptcp endpoint change id 2 nobackup fullmesh\n"
            ]
        );
    }

    #[test]
    fn the_server_answers_over_the_link_it_was_asked_on() {
        let batch = link_batch(
            Side::Server,
            0,
            "wifi",
            Kernel {
                ipv6: false,
                mptcp: true,
            },
        );
        assert_eq!(
            batch,
            "link set dev wifi mtu 1500 txqueuelen 10000 up\naddr add 10.77.1.1/24 dev wifi\n"
        );
        assert!(
            base_batch(
                Side::Server,
                2,
                Kernel {
                    ipv6: false,
                    mptcp: false
                }
            )
            .contains("10.99.0.1/32 dev lo")
        );
    }
}
