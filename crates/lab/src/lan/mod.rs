//! The hosts behind the links: a LAN host behind the client, which is its gateway, and an internet
//! host behind the server.
//!
//! ```text
//! lan namespace         client namespace              server namespace            internet namespace
//!   lan0 192.168.8.2 ── lan0 192.168.8.1                net0 198.51.100.1/24 ── net0 198.51.100.2
//!        fd55:8::2           fd55:8::1                       2001:db8:2::1/64        2001:db8:2::2
//!   default route       wifi 10.77.1.2 ─ link 1 ─ wifi  lo 10.99.0.1                lo 203.0.113.0/24
//!                       wigig 10.77.2.2 ─ link 2 ─ ...     fd99::1                     2001:db8:3::/64
//! ```
//!
//! Every address of the last two networks is the internet host; its first address has a name server
//! ([`resolver`]). The server forwards between its links and that host.

mod message;
mod resolver;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};
use sumlink_scenario::lan::{LanConfig, UPLINK};

use crate::error::LabError;
use crate::netns::{self, Namespace};
use crate::programs;
use crate::rundir::RunDir;
use crate::topology::{Kernel, Side, write_sysctl};

pub use sumlink_scenario::lan::LAN_INTERFACE;

pub(crate) use message::{answered, question};
pub use resolver::Question;
pub(crate) use resolver::Resolver;

/// The gateway's address in the LAN.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(192, 168, 8, 1);
/// The gateway's IPv6 address in the LAN.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd55, 8, 0, 0, 0, 0, 0, 1);
/// The LAN host.
pub const LAN_V4: Ipv4Addr = Ipv4Addr::new(192, 168, 8, 2);
/// The LAN host.
pub const LAN_V6: Ipv6Addr = Ipv6Addr::new(0xfd55, 8, 0, 0, 0, 0, 0, 2);
/// The first address of the internet host, and its name server.
pub const INTERNET_V4: Ipv4Addr = internet_v4(1);
/// The first IPv6 address of the internet host, and its name server.
pub const INTERNET_V6: Ipv6Addr = internet_v6(1);

/// Local ports in the namespaces: enough for the connections of one host to one other.
const LOCAL_PORTS: &str = "10000 65000";
/// Where a gateway keeps what must outlive a restart: laboratories must not find that of others.
const STATE: &str = "/var/lib/sumlink";
/// The table of the plain router.
const TABLE: &str = "sumlink_lab_router";

/// An IPv4 address of the internet host.
pub const fn internet_v4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, host)
}

/// An IPv6 address of the internet host.
pub const fn internet_v6(host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, host as u16)
}

/// The sides of a laboratory.
pub(crate) fn sides(config: Option<LanConfig>) -> &'static [Side] {
    const PAIR: [Side; 2] = [Side::Client, Side::Server];
    const ALL: [Side; 4] = [Side::Client, Side::Server, Side::Lan, Side::Internet];
    match config {
        None => &PAIR,
        Some(_) => &ALL,
    }
}

/// Sets what interfaces take over when they are made.
pub(crate) fn prepare(
    namespaces: &[Namespace],
    config: LanConfig,
    kernel: Kernel,
) -> Result<(), LabError> {
    for namespace in namespaces {
        namespace.run(|| write_sysctl("ipv4/ip_local_port_range", LOCAL_PORTS))??;
    }
    let filter = config.rp_filter.sysctl().to_string();
    namespaces[Side::Client.index()].run(move || {
        write_sysctl("ipv4/conf/all/rp_filter", &filter)?;
        write_sysctl("ipv4/conf/default/rp_filter", &filter)
    })??;
    // IPv6 binds only to addresses of interfaces, unless asked: the internet host has a network.
    namespaces[Side::Internet.index()].run(move || match kernel.ipv6 {
        true => write_sysctl("ipv6/ip_nonlocal_bind", "1"),
        false => Ok(()),
    })??;
    let server = &namespaces[Side::Server.index()];
    server.run(move || forward_packets(kernel))?
}

/// Connects the hosts to the gateway and to the server, and gives all sides their own files.
pub(crate) fn connect(
    namespaces: &[Namespace],
    kernel: Kernel,
    run_dir: &RunDir,
) -> Result<(), LabError> {
    let of = |side: Side| &namespaces[side.index()];
    of(Side::Client).join(of(Side::Lan), LAN_INTERFACE)?;
    of(Side::Server).join(of(Side::Internet), UPLINK)?;
    for side in [Side::Client, Side::Server, Side::Lan, Side::Internet] {
        of(side).ip_batch(batch(side, kernel))?;
        let file = run_dir.resolv_conf(side.name());
        fs::write(&file, resolv_conf(side)).map_err(LabError::file(&file))?;
        let run = run_dir.run_of(side.name());
        fs::create_dir(&run).map_err(LabError::file(&run))?;
        of(side).run(move || use_files(&run, &file))?;
    }
    Ok(())
}

/// Commands for the interfaces and routes of one side.
fn batch(side: Side, kernel: Kernel) -> String {
    let mut batch = String::new();
    let mut own = |interface: &str, v4: IpAddr, v6: IpAddr| {
        let _ = writeln!(batch, "link set dev {interface} up");
        let _ = writeln!(batch, "addr add {v4}/24 dev {interface}");
        if kernel.ipv6 {
            let _ = writeln!(batch, "addr add {v6}/64 dev {interface} nodad");
        }
    };
    // Routes: destination, gateway, by version.
    let routes: &[[&str; 2]] = match side {
        Side::Client => {
            own(LAN_INTERFACE, GATEWAY_V4.into(), GATEWAY_V6.into());
            &[]
        }
        Side::Lan => {
            own(LAN_INTERFACE, LAN_V4.into(), LAN_V6.into());
            &[["0.0.0.0/0", "192.168.8.1"], ["::/0", "fd55:8::1"]]
        }
        Side::Server => {
            own(UPLINK, uplink_v4(1).into(), uplink_v6(1).into());
            &[
                ["203.0.113.0/24", "198.51.100.2"],
                ["2001:db8:3::/64", "2001:db8:2::2"],
            ]
        }
        Side::Internet => {
            own(UPLINK, uplink_v4(2).into(), uplink_v6(2).into());
            let _ = writeln!(batch, "addr add {INTERNET_V4}/32 dev lo");
            let _ = writeln!(batch, "route add local 203.0.113.0/24 dev lo");
            if kernel.ipv6 {
                let _ = writeln!(batch, "addr add {INTERNET_V6}/128 dev lo nodad");
                let _ = writeln!(batch, "route add local 2001:db8:3::/64 dev lo");
            }
            &[["0.0.0.0/0", "198.51.100.1"], ["::/0", "2001:db8:2::1"]]
        }
    };
    for [destination, via] in routes {
        if kernel.ipv6 || !via.contains(':') {
            let _ = writeln!(batch, "route add {destination} via {via}");
        }
    }
    batch
}

const fn uplink_v4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, host)
}

const fn uplink_v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, host)
}

/// The name servers of a side. A LAN host asks its gateway first. While no program answers there,
/// the gateway's kernel refuses at once, and the host goes on with the next line.
fn resolv_conf(side: Side) -> String {
    let gateway = match side {
        Side::Lan => format!("nameserver {GATEWAY_V4}\n"),
        _ => String::new(),
    };
    format!("{gateway}nameserver {INTERNET_V4}\n")
}

/// Gives the calling thread, and the programs that it starts, that directory as /run, that file
/// as /etc/resolv.conf, and a state of sumlink of its own. Its mount namespace must be its own.
///
/// A gateway keeps its state and its socket in /run, next to the system bus: those of other
/// laboratories, and of the machine itself, must be out of reach.
pub(crate) fn use_files(run: &Path, resolv_conf: &Path) {
    if let Err(error) = replace_state(run) {
        tracing::debug!("mounting {STATE}: {error}");
    }
    // A container may forbid mounts; only names and concurrent gateways are affected.
    if let Err(error) = replace_run(run) {
        tracing::debug!("mounting /run: {error}");
    }
    if let Err(error) = replace_resolv_conf(resolv_conf) {
        tracing::debug!("mounting /etc/resolv.conf: {error}");
    }
}

fn replace_state(run: &Path) -> io::Result<()> {
    let own = run.join("state");
    fs::create_dir_all(&own)?;
    fs::create_dir_all(STATE)?;
    bind(&own, Path::new(STATE))
}

fn replace_run(directory: &Path) -> io::Result<()> {
    // The laboratory's own files there, for programs that use it.
    for name in ["sumlink-lab", "netns"] {
        let there = Path::new("/run").join(name);
        if there.is_dir() {
            let here = directory.join(name);
            fs::create_dir_all(&here)?;
            bind(&there, &here)?;
        }
    }
    bind(directory, Path::new("/run"))
}

fn replace_resolv_conf(file: &Path) -> io::Result<()> {
    let place = Path::new("/etc/resolv.conf");
    // Often a link into /run, where it is gone.
    if let Ok(target) = fs::read_link(place)
        && !place.exists()
    {
        let target = Path::new("/etc").join(target);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::File::create(target)?;
    }
    bind(file, place)
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    let none = None::<&str>;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(from), to, none, flags, none).map_err(io::Error::from)
}

/// Makes the client a plain router without sumlink: LAN packets leave over the route of the lowest
/// metric, with the address of that link. Repeated calls have the same effect.
pub(crate) fn forward(
    client: &Namespace,
    links: impl Iterator<Item = String>,
    kernel: Kernel,
) -> Result<(), LabError> {
    client.run(move || forward_packets(kernel))??;
    let rules = masquerade(links);
    let nft = programs::find("nft")?;
    client
        .run(move || {
            let mut command = Command::new(nft);
            command.args(["--file", "-"]).stdin(Stdio::piped());
            let mut child = command.stderr(Stdio::piped()).spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(rules.as_bytes())?;
            }
            child.wait_with_output()
        })?
        .map_err(|error| LabError::system("running nft", error))
        .and_then(|output| netns::check_output("making a router with nft", &output))
}

/// The rules for nft.
fn masquerade(links: impl Iterator<Item = String>) -> String {
    let links: Vec<_> = links.map(|link| format!("\"{link}\"")).collect();
    let links = links.join(", ");
    // The first two lines make a repeated call replace the table.
    format!(
        "table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n  chain \
         postrouting {{\n    type nat hook postrouting priority srcnat;\n    iifname \
         \"{LAN_INTERFACE}\" oifname {{ {links} }} masquerade\n  }}\n}}\n"
    )
}

/// Makes the namespace of the calling thread a router.
fn forward_packets(kernel: Kernel) -> Result<(), LabError> {
    write_sysctl("ipv4/ip_forward", "1")?;
    match kernel.ipv6 {
        true => write_sysctl("ipv6/conf/all/forwarding", "1"),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_ipv6_has_no_such_address() {
        let kernel = |ipv6| Kernel { ipv6, mptcp: false };
        for &side in sides(Some(LanConfig::default())) {
            assert!(!batch(side, kernel(false)).contains("::"), "{side:?}");
            assert!(batch(side, kernel(true)).contains("::"), "{side:?}");
        }
        assert_eq!(
            batch(Side::Lan, kernel(true)),
            "link set dev lan0 up\naddr add 192.168.8.2/24 dev lan0\n\
             addr add fd55:8::2/64 dev lan0 nodad\nroute add 0.0.0.0/0 via 192.168.8.1\n\
             route add ::/0 via fd55:8::1\n"
        );
    }

    #[test]
    fn a_lan_host_asks_its_gateway_first() {
        assert_eq!(
            resolv_conf(Side::Lan),
            "nameserver 192.168.8.1\nnameserver 203.0.113.1\n"
        );
        assert_eq!(resolv_conf(Side::Server), "nameserver 203.0.113.1\n");
    }

    #[test]
    fn only_packets_of_the_lan_are_masqueraded() {
        let rules = masquerade(["wifi", "lte"].map(str::to_owned).into_iter());
        let rule = "iifname \"lan0\" oifname { \"wifi\", \"lte\" } masquerade";
        assert!(rules.contains(rule), "{rules}");
    }
}
