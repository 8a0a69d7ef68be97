//! The gateway's settings beside the links and on this machine: contradictions, and names that do
//! not exist here.

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use sumlink_gateway::kernel::Refusal;
use sumlink_gateway::rules::{Action, Conditions, Rules, User};
use sumlink_transport::config::LinkConfig;

use super::super::settings::{GatewaySettings, RuleLines};
use super::findings::Findings;

/// Records the problems of a file's gateway beside these links.
pub(super) fn check(gateway: &GatewaySettings, links: &[LinkConfig], found: &mut Findings<'_>) {
    check_interfaces(gateway, links, found);
    check_addresses(gateway, found);
    check_rules(gateway, found);
    for (line, resolver) in &gateway.lines.nameless_resolvers {
        found.warn(
            *line,
            format!(
                "the certificate of {resolver} must be for its address: write #NAME behind it for \
                 a certificate with a name"
            ),
        );
    }
}

/// The same refusals as those of the start. Another interface may appear until then.
fn check_interfaces(gateway: &GatewaySettings, links: &[LinkConfig], found: &mut Findings<'_>) {
    let (kernel, lines) = (&gateway.kernel, &gateway.lines);
    let device = &kernel.device.name;
    let lan_line = lines.lan.unwrap_or(1);
    let is_link = |name: &String| links.iter().any(|link| link.name == *name);
    if kernel.lan.contains(device) || is_link(device) {
        let name = device.clone();
        let line = lines.device.unwrap_or(lan_line);
        found.problem(line, Refusal::DeviceIsUsed { name });
    }
    for name in &kernel.lan {
        if is_link(name) {
            let name = name.clone();
            found.problem(lan_line, Refusal::LanIsLink { name });
        } else if !exists(name) {
            found.warn(
                lan_line,
                format!("`lan`: this machine has no interface {name} now; sumlink up needs it"),
            );
        }
    }
}

/// The device cannot have an address of another interface: whatever that one receives would end at
/// the device.
fn check_addresses(gateway: &GatewaySettings, found: &mut Findings<'_>) {
    let (device, lines) = (&gateway.kernel.device, &gateway.lines);
    let Ok(interfaces) = getifaddrs() else {
        return;
    };
    let owned: Vec<(String, IpAddr)> = interfaces
        .filter(|interface| interface.interface_name != device.name)
        .filter_map(|interface| {
            let address = interface.address?;
            let ipv4 = address
                .as_sockaddr_in()
                .map(|address| IpAddr::from(address.ip()));
            let ipv6 = address
                .as_sockaddr_in6()
                .map(|address| IpAddr::from(address.ip()));
            Some((interface.interface_name, ipv4.or(ipv6)?))
        })
        .collect();
    for (key, address, line) in [
        ("address", IpAddr::from(device.ipv4), lines.address),
        ("address6", IpAddr::from(device.ipv6), lines.address6),
    ] {
        if let Some((name, _)) = owned.iter().find(|(_, owned)| *owned == address) {
            found.problem(
                line.unwrap_or(1),
                format!("`{key}`: {address} is the address of {name}: choose another one"),
            );
        }
    }
}

/// Rules with a surprising effect, and rules about users and links that do not exist here.
fn check_rules(gateway: &GatewaySettings, found: &mut Findings<'_>) {
    let last = gateway.rules.len().saturating_sub(1);
    for (number, rule) in gateway.rules.iter().enumerate() {
        let lines = gateway.lines.rules.get(number).copied();
        let RuleLines {
            block,
            user,
            action,
        } = lines.unwrap_or_default();
        if rule.conditions == Conditions::default() {
            let rest = match number == last {
                true => "",
                false => ", so the rules below it have no effect",
            };
            let reason = format!("this rule has no condition and matches everything{rest}");
            found.warn(block, reason);
        }
        for name in &rule.conditions.users {
            if let User::Name(name) = name
                && matches!(nix::unistd::User::from_name(name), Ok(None))
            {
                let reason = format!("`user`: this machine has no user {name}");
                found.warn(user.unwrap_or(block), reason);
            }
        }
        if let Action::Link(name) = &rule.action
            && !exists(name)
        {
            let reason = format!(
                "`action`: this machine has no interface {name} now; without it, the rule's \
                 traffic fails"
            );
            found.warn(action.unwrap_or(block), reason);
        }
    }
    if let (Some(file), Some(line)) = (&gateway.kept_rules, gateway.lines.kept_rules)
        && let Err(error) = Rules::with_file(Vec::new(), file.clone())
    {
        found.problem(line, format!("`kept_rules`: {error}"));
    }
}

/// Whether this machine has an interface of this name.
fn exists(name: &str) -> bool {
    if_nametoindex(name).is_ok()
}
