//! Kernel parameters of a plan.

use super::super::facts::Facts;
use super::super::routing::Family;
use super::super::settings::{Capture, Settings};
use super::super::sysctl::{ALL_IPV6_FORWARDING, Sysctl, of_interface};
use super::super::vpn;

/// Parameters of the TUN device vanish with it; the others are restored.
pub(super) fn sysctls(
    settings: &Settings,
    facts: &Facts,
    capture: Capture,
    captured: &[Family],
    has_table: bool,
) -> Vec<Sysctl> {
    let mut set = Vec::new();
    let mut change = |path: String, value: &str| {
        if facts.sysctl(&path).is_some_and(|now| now != value) {
            set.push(Sysctl::new(path, value));
        }
    };
    let has_lan = !settings.lan.is_empty();
    if captured.contains(&Family::V4) {
        for lan in &settings.lan {
            change(of_interface("ipv4", lan, "forwarding"), "1");
        }
        for (path, value) in reverse_path(settings, facts, has_table) {
            change(path, value);
        }
    }
    if captured.contains(&Family::V6) && has_lan {
        // A host that begins to forward deletes the default routes that router advertisements have
        // given its links, unless accept_ra is 2 (`rt6_purge_dflt_routers` in `net/ipv6/route.c`).
        let mut links: Vec<&str> = settings.links.iter().map(String::as_str).collect();
        links.extend(vpn::ipv6_default_devices(facts));
        if capture == Capture::Tun {
            links.push("default");
        }
        links.sort_unstable();
        links.dedup();
        for link in links
            .into_iter()
            .filter(|link| !settings.lan.iter().any(|lan| lan == link))
        {
            let path = of_interface("ipv6", link, "accept_ra");
            if facts.sysctl(&path) == Some("1") {
                change(path, "2");
            }
        }
        for lan in &settings.lan {
            change(of_interface("ipv6", lan, "forwarding"), "1");
        }
        if capture == Capture::Tun {
            change(ALL_IPV6_FORWARDING.to_owned(), "1");
        }
    }
    let device = &settings.device.name;
    if captured.contains(&Family::V4) && capture == Capture::Tun && has_lan {
        set.push(Sysctl::new(of_interface("ipv4", device, "forwarding"), "1"));
    }
    if captured.contains(&Family::V4) && !settings.host {
        // Only packets of the LAN have a route to the device: a strict filter would drop answers.
        set.push(Sysctl::new(of_interface("ipv4", device, "rp_filter"), "2"));
    }
    set
}

/// Parameters that let a strict reverse path filter (RFC 3704) accept the answers to carriers, on
/// the links and on those that appear later.
fn reverse_path(
    settings: &Settings,
    facts: &Facts,
    has_table: bool,
) -> Vec<(String, &'static str)> {
    let value = |name: &str| facts.sysctl(&of_interface("ipv4", name, "rp_filter"));
    let links = settings.links.iter().map(String::as_str);
    // The larger of both values counts: 1 is strict, 2 is loose.
    let is_strict = |link: &&str| value("all").max(value(link)) == Some("1");
    let strict: Vec<&str> = links.chain(["default"]).filter(is_strict).collect();
    match (strict.is_empty(), has_table) {
        (true, _) => Vec::new(),
        // The filter then asks with the mark that the firewall table restores.
        (false, true) => vec![(of_interface("ipv4", "all", "src_valid_mark"), "1")],
        // Without marks of connections only a loose filter accepts answers.
        (false, false) => {
            let loose = |link: &&str| (of_interface("ipv4", link, "rp_filter"), "2");
            strict.iter().map(loose).collect()
        }
    }
}

/// The device gets no link-local address, because nothing behind it answers to one.
pub(super) fn niceties(settings: &Settings, captured: &[Family]) -> Vec<Sysctl> {
    if !captured.contains(&Family::V6) {
        return Vec::new();
    }
    let of_device = |key| of_interface("ipv6", &settings.device.name, key);
    vec![
        Sysctl::new(of_device("addr_gen_mode"), "1"),
        Sysctl::new(of_device("accept_ra"), "0"),
    ]
}
