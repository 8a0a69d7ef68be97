//! The texts of a report, before they are redacted. Files of keys are never read.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use chrono::Local;
use sumlink_util::plain;

use super::command::{capped, file, output};
use super::redact::Redactor;
use super::section::Section;
use super::{configuration, names};
use crate::control::{self, ControlError};
use crate::find_socket;
use crate::kernel;

/// Folder of the runtime directories of the services.
const RUN: &str = "/run";

/// Kernel parameters besides those of TCP, below /proc/sys/net.
const PARAMETERS: &[&str] = &[
    "core/default_qdisc",
    "core/netdev_max_backlog",
    "core/rmem_default",
    "core/rmem_max",
    "core/somaxconn",
    "core/wmem_default",
    "core/wmem_max",
    "ipv4/ip_forward",
    "ipv4/ip_local_port_range",
    "ipv4/ping_group_range",
    "ipv4/udp_mem",
    "ipv4/udp_rmem_min",
    "ipv4/udp_wmem_min",
    "ipv6/conf/all/disable_ipv6",
    "ipv6/conf/all/forwarding",
    "netfilter/nf_conntrack_count",
    "netfilter/nf_conntrack_max",
];

/// Collects all sections and makes their names known to the redactor.
pub(super) async fn collect(
    config: Option<&Path>,
    control: Option<&Path>,
    redactor: &mut Redactor,
) -> Vec<Section> {
    let mut sections = vec![
        Section::new("sumlink", version()),
        Section::new("kernel", output("uname -srvm").await),
        Section::new("system", file(Path::new("/etc/os-release"))),
        Section::new("clock", clock().await),
        Section::new("memory", memory()),
        Section::new("limits", file(Path::new("/proc/self/limits"))),
    ];
    let commands = [
        (
            "interfaces and addresses",
            "ip -details -statistics address",
        ),
        ("routes", "ip route show table all"),
        ("routes of IPv6", "ip -6 route show table all"),
        ("routing rules", "ip rule"),
        ("routing rules of IPv6", "ip -6 rule"),
        ("firewall tables", "nft list tables"),
        ("firewall table of sumlink", "nft list table inet sumlink"),
    ];
    for (title, line) in commands {
        sections.push(Section::new(title, output(line).await));
    }
    let resolver = file(Path::new("/etc/resolv.conf"));
    names::of_resolver(&resolver, redactor);
    sections.push(Section::new("DNS", resolver));
    sections.push(Section::new("kernel parameters", parameters()));
    let wireless = file(Path::new("/proc/net/wireless"));
    sections.push(Section::new("wireless", wireless));

    let files = configuration::files(config);
    let mut sockets = sockets(control);
    for file in &files {
        let (section, socket) = configuration::section(file, redactor);
        sections.push(section);
        let socket = socket.filter(|socket| control.is_none() && !sockets.contains(socket));
        sockets.extend(socket.filter(|socket| socket.exists()));
    }
    if files.is_empty() {
        let text = "(no client.toml or server.toml in /etc/sumlink or the current folder)";
        sections.push(Section::new("configuration", text));
    }
    for socket in &sockets {
        sections.push(program(socket, redactor));
    }
    if sockets.is_empty() {
        let text = "(no control socket of a running program; name one with --control)";
        sections.push(Section::new("running programs", text));
    }
    let log = output("journalctl -u sumlink-* -n 500 --no-pager").await;
    names::of_log(&log, redactor);
    sections.push(Section::new("log", log));
    sections
}

/// Version and properties of this program.
fn version() -> String {
    let kernel = match kernel::ABSENT {
        None => "with congestion controls for the kernel",
        Some(_) => "without congestion controls for the kernel",
    };
    let form = if cfg!(target_env = "musl") {
        "static"
    } else {
        "dynamic"
    };
    format!(
        "sumlink {}, {kernel}, {form}, {}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    )
}

async fn clock() -> String {
    let now = Local::now().format("%Y-%m-%d %H:%M:%S %:z");
    let mut text = format!("now {now}\n");
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    for (name, path) in [("uptime", "/proc/uptime"), ("clock source", source)] {
        // Writing to a string cannot fail, here and below.
        let _ = write!(text, "{name} {}", file(Path::new(path)));
    }
    text.push_str(&output("timedatectl").await);
    text
}

fn memory() -> String {
    let meminfo = file(Path::new("/proc/meminfo"));
    let wanted = [
        "Mem", "Buffers", "Cached", "Swap", "Slab", "Commit", "Sock", "(",
    ];
    let is_wanted = |line: &&str| wanted.iter().any(|name| line.starts_with(*name));
    let lines: Vec<&str> = meminfo.lines().filter(is_wanted).collect();
    format!(
        "{}\n$ cat /proc/net/sockstat\n{}",
        lines.join("\n"),
        file(Path::new("/proc/net/sockstat"))
    )
}

/// The parameters of TCP and those of the list. Keys are left out.
fn parameters() -> String {
    let net = Path::new("/proc/sys/net");
    let mut all: Vec<String> = PARAMETERS.iter().map(|&name| name.to_owned()).collect();
    let entries = |folder: &str| -> Vec<String> {
        let found = std::fs::read_dir(net.join(folder));
        let found = found.into_iter().flatten().flatten();
        let names = found.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.collect()
    };
    let tcp = entries("ipv4").into_iter();
    let tcp = tcp.filter(|name| name.starts_with("tcp_") && !name.contains("key"));
    all.extend(tcp.map(|name| format!("ipv4/{name}")));
    let links = entries("ipv4/conf").into_iter();
    all.extend(links.map(|link| format!("ipv4/conf/{link}/rp_filter")));
    all.sort();
    let mut text = String::new();
    for name in all {
        // A kernel without a part has no parameters of it.
        if let Ok(value) = std::fs::read_to_string(net.join(&name)) {
            let _ = writeln!(text, "net/{name} = {}", value.trim().replace('\t', " "));
        }
    }
    text
}

/// The socket that was named, or those of the services that exist.
fn sockets(named: Option<&Path>) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named.to_owned()];
    }
    let all = find_socket::SOCKETS.iter();
    let all = all.map(|socket| Path::new(RUN).join(socket));
    all.filter(|path| path.symlink_metadata().is_ok()).collect()
}

/// The report of a running program, with the policies of its links.
fn program(socket: &Path, redactor: &mut Redactor) -> Section {
    let title = format!("status at {}", socket.display());
    let report = control::ask(socket).and_then(|report| {
        let failed = |error: serde_json::Error| ControlError::Answer {
            path: socket.to_owned(),
            reason: error.to_string(),
        };
        serde_json::to_value(&report).map_err(failed)
    });
    let text = match report {
        Ok(report) => {
            names::of_report(&report, redactor);
            capped(format!("{report:#}\n").into_bytes())
        }
        Err(error) => format!("({})", plain(&error)),
    };
    Section::new(title, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_no_key() {
        let text = parameters();
        assert!(
            text.contains("net/ipv4/tcp_congestion_control = "),
            "{text}"
        );
        assert!(!text.contains("fastopen_key"), "{text}");
    }

    #[test]
    fn a_socket_without_a_program_is_one_line() {
        let section = program(Path::new("/nowhere/x.sock"), &mut Redactor::default());
        assert_eq!(section.text.lines().count(), 1, "{}", section.text);
        assert!(version().starts_with("sumlink "));
    }
}
