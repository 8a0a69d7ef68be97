//! The table of a plan.

use ipnet::IpNet;

use super::super::settings::{Capture, ListenerPorts, Settings};
use super::super::{CARRIER_MARK, Family, LOCAL_MARK, PROBE_MARK};
use super::part::{self, Mark, Part};
use super::{Chain, Table};

/// The table for these settings; `families` are those that are captured, and `touched` those that
/// must not leave beside the bond. `networks` have specific routes.
pub(in super::super) fn table(
    settings: &Settings,
    capture: Capture,
    families: &[Family],
    touched: &[Family],
    networks: &[IpNet],
) -> Table {
    let mut prerouting = marks_of_arriving_packets(settings);
    let mut chains = Vec::new();
    if capture == Capture::Nftables && !settings.lan.is_empty() {
        prerouting.extend(packets_of_the_lan(settings, families));
    }
    chains.push(Chain {
        name: "prerouting",
        kind: "filter",
        hook: "prerouting",
        priority: ("mangle", -150),
        rules: prerouting,
    });
    chains.push(Chain {
        name: "output",
        kind: "route",
        hook: "output",
        priority: ("mangle", -150),
        rules: marks_of_leaving_packets(),
    });
    if capture == Capture::Nftables && settings.host {
        chains.push(Chain {
            name: "host",
            kind: "nat",
            hook: "output",
            priority: ("-100", -100),
            rules: connections_of_the_host(settings, families),
        });
    }
    if settings.refuses_bound_programs() {
        chains.push(Chain {
            name: "bound",
            kind: "filter",
            hook: "output",
            priority: ("filter", 0),
            rules: packets_of_bound_programs(settings, touched, networks),
        });
    }
    Table { chains }
}

/// A program that binds to an interface (SO_BINDTODEVICE, IP_UNICAST_IF, IP_PKTINFO) chooses the
/// route itself. Such packets pass to directly connected networks only, as without binding.
fn packets_of_bound_programs(
    settings: &Settings,
    touched: &[Family],
    networks: &[IpNet],
) -> Vec<Vec<Part>> {
    let mut free = vec!["lo".to_owned(), settings.device.name.clone()];
    free.extend(settings.lan.iter().cloned());
    let mut rules = vec![
        vec![Mark::Packet.is(CARRIER_MARK), part::accept()],
        vec![part::to_any(&free), part::accept()],
        vec![
            part::destination_is(&["local", "broadcast", "multicast", "anycast"]),
            part::accept(),
        ],
    ];
    let networks = IpNet::aggregate(&networks.to_vec());
    for family in touched {
        let (name, ip, _, icmp, _) = words(settings, *family);
        if *family == Family::V6 {
            rules.push(vec![
                part::family(name),
                part::protocol(icmp),
                part::neighbor_discovery(),
                part::accept(),
            ]);
        }
        let of_family = |network: &&IpNet| Family::of(network.addr()) == *family;
        let own: Vec<IpNet> = networks.iter().filter(of_family).copied().collect();
        if !own.is_empty() {
            rules.push(vec![part::destination_in(ip, &own), part::accept()]);
        }
        rules.push(vec![part::family(name), part::reject()]);
    }
    rules
}

/// Packets of carriers, and of connections from outside, are routed as without the gateway. Strict
/// reverse path filters (`rp_filter`, and those of firewalld) then accept them.
fn marks_of_arriving_packets(settings: &Settings) -> Vec<Vec<Part>> {
    let mut captured = vec!["lo".to_owned(), settings.device.name.clone()];
    captured.extend(settings.lan.iter().cloned());
    vec![
        vec![
            Mark::Connection.is(CARRIER_MARK),
            Mark::Packet.set(CARRIER_MARK),
            part::accept(),
        ],
        vec![
            part::from_none(&captured),
            part::new_connection(),
            part::destination_is(&["local"]),
            Mark::Connection.set(CARRIER_MARK),
            Mark::Packet.set(CARRIER_MARK),
            part::accept(),
        ],
    ]
}

/// Conntrack remembers carriers; answers to connections from outside get their mark.
fn marks_of_leaving_packets() -> Vec<Vec<Part>> {
    vec![
        vec![
            Mark::Packet.is(CARRIER_MARK),
            Mark::Connection.is_not(CARRIER_MARK),
            Mark::Connection.set(CARRIER_MARK),
        ],
        vec![
            part::replies(),
            Mark::Connection.is(CARRIER_MARK),
            Mark::Packet.set(CARRIER_MARK),
        ],
    ]
}

/// Packets of the LAN that are routed to the TUN device go to transparent sockets instead.
fn packets_of_the_lan(settings: &Settings, families: &[Family]) -> Vec<Vec<Part>> {
    let mut rules = vec![
        vec![part::from_none(&settings.lan), part::accept()],
        vec![Mark::Packet.is_not(0), part::accept()],
        vec![
            part::destination_is(&["local", "broadcast", "multicast", "anycast"]),
            part::accept(),
        ],
        vec![Mark::Packet.set(PROBE_MARK)],
        vec![
            part::route_is_not_over(&settings.device.name),
            Mark::Packet.set(0),
            part::accept(),
        ],
        // Packets rejected below must not keep the mark, which would route the ICMP error.
        vec![Mark::Packet.set(0)],
    ];
    for family in families {
        let (name, ip, address, icmp, ports) = words(settings, *family);
        for (protocol, port) in [
            ("tcp", ports.transparent_tcp),
            ("udp", ports.transparent_udp),
        ] {
            rules.push(vec![
                part::family(name),
                part::protocol(protocol),
                part::tproxy(ip, address, port),
                Mark::Packet.set(LOCAL_MARK),
                part::accept(),
            ]);
        }
        if settings.lan_echo {
            rules.push(vec![
                part::family(name),
                part::protocol(icmp),
                part::echo_request(icmp_header(*family)),
                part::drop(),
            ]);
        }
    }
    rules.push(vec![part::reject()]);
    rules
}

/// TCP connections of this host that are routed to the TUN device.
fn connections_of_the_host(settings: &Settings, families: &[Family]) -> Vec<Vec<Part>> {
    families
        .iter()
        .map(|family| {
            let (name, _, _, _, ports) = words(settings, *family);
            vec![
                part::to_interface(&settings.device.name),
                part::family(name),
                part::protocol("tcp"),
                part::redirect(ports.redirect),
            ]
        })
        .collect()
}

type Words = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    ListenerPorts,
);

/// The words of a family, and its ports.
fn words(settings: &Settings, family: Family) -> Words {
    match family {
        Family::V4 => ("ipv4", "ip", "127.0.0.1", "icmp", settings.ipv4_ports),
        Family::V6 => ("ipv6", "ip6", "::1", "ipv6-icmp", settings.ipv6_ports),
    }
}

fn icmp_header(family: Family) -> &'static str {
    match family {
        Family::V4 => "icmp",
        Family::V6 => "icmpv6",
    }
}
