//! Plans for systems that are only described.

use proptest::prelude::*;

use super::*;

fn device(index: u32, name: &str, kind: Option<&str>, addresses: &[&str]) -> DeviceFact {
    DeviceFact {
        index,
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        is_up: true,
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

fn route(table: u32, destination: &str, device: &str, metric: u32) -> RouteFact {
    RouteFact {
        table,
        destination: destination.parse().unwrap(),
        kind: RouteKind::Unicast,
        device: Some(device.to_owned()),
        metric,
        source: None,
        is_ours: false,
    }
}

/// A router with a LAN and two links.
fn facts() -> Facts {
    let mut sysctls = Vec::new();
    for (path, value) in [
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/all/src_valid_mark", "0"),
        ("net/ipv4/conf/default/rp_filter", "2"),
        ("net/ipv4/conf/lan0/forwarding", "0"),
        ("net/ipv4/conf/wifi/rp_filter", "1"),
        ("net/ipv4/conf/lte/rp_filter", "2"),
        ("net/ipv6/conf/all/forwarding", "0"),
        ("net/ipv6/conf/default/accept_ra", "1"),
        ("net/ipv6/conf/lan0/forwarding", "0"),
        ("net/ipv6/conf/lte/accept_ra", "1"),
        ("net/ipv6/conf/wifi/accept_ra", "0"),
    ] {
        sysctls.push(Sysctl::new(path, value));
    }
    Facts {
        is_permitted: true,
        has_ipv6: true,
        nft: NftSupport::Works,
        drops_forwarded: false,
        conntrack: Some(Conntrack {
            count: 7,
            max: 65_536,
        }),
        devices: vec![
            device(1, "lo", None, &["127.0.0.1/8", "::1/128"]),
            device(
                2,
                "lan0",
                None,
                &["192.168.1.1/24", "2001:db8:7::1/64", "fe80::1/64"],
            ),
            device(3, "wifi", None, &["10.0.1.2/24"]),
            device(4, "lte", None, &["100.64.3.2/30", "2001:db8:1::2/64"]),
        ],
        rules: Vec::new(),
        routes: vec![
            route(254, "0.0.0.0/0", "wifi", 100),
            route(254, "0.0.0.0/0", "lte", 200),
            route(254, "::/0", "lte", 200),
        ],
        sysctls,
    }
}

fn router() -> Settings {
    let ports = |first| ListenerPorts {
        redirect: first,
        transparent_tcp: first + 1,
        transparent_udp: first + 2,
    };
    Settings {
        lan: vec!["lan0".to_owned()],
        links: vec!["wifi".to_owned(), "lte".to_owned()],
        ipv4_ports: ports(7001),
        ipv6_ports: ports(7061),
        ..Settings::default()
    }
}

#[test]
fn a_router_is_planned_with_nftables() {
    insta::assert_snapshot!(Plan::new(&router(), &facts()).unwrap());
}

#[test]
fn a_router_is_planned_with_the_tun_device() {
    let mut facts = facts();
    facts.nft = NftSupport::NoProgram;
    insta::assert_snapshot!(Plan::new(&router(), &facts).unwrap());
}

#[test]
fn a_host_is_planned_without_a_lan() {
    let settings = Settings {
        lan: Vec::new(),
        without_bond: WithoutBond::Direct,
        ipv6: false,
        ..router()
    };
    insta::assert_snapshot!(Plan::new(&settings, &facts()).unwrap());
}

#[test]
fn a_lan_is_planned_without_the_host() {
    let settings = Settings {
        host: false,
        ..router()
    };
    insta::assert_snapshot!(Plan::new(&settings, &facts()).unwrap());
}

#[test]
fn the_firewall_table_is_one_transaction() {
    let plan = Plan::new(&router(), &facts()).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&plan.nft()).unwrap());
}

/// The dry run shows the loaded table: nft prints the same for both.
#[test]
fn the_lines_of_the_dry_run_are_the_table_that_is_loaded() {
    let Some(netns) = netns::Netns::new() else {
        return;
    };
    let plans = [
        Plan::new(&router(), &facts()).unwrap(),
        Plan::new(
            &Settings {
                host: false,
                ..router()
            },
            &facts(),
        )
        .unwrap(),
    ];
    for plan in plans {
        let table = plan.table.unwrap();
        netns.run(async || {
            nft::load(&table.to_json()).await.unwrap();
            let from_json = nft::listing().await.unwrap();
            assert!(nft::delete().await.unwrap());
            assert!(!nft::delete().await.unwrap());
            netns::nft(&table.lines().join("\n"));
            assert_eq!(nft::listing().await.unwrap(), from_json);
            assert!(nft::delete().await.unwrap());
        });
    }
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let change = |change: fn(&mut Settings)| {
        let mut settings = router();
        change(&mut settings);
        Plan::new(&settings, &facts()).unwrap_err().to_string()
    };
    let refusals = [
        change(|settings| {
            settings.host = false;
            settings.lan.clear();
        }),
        change(|settings| {
            settings.ipv4 = false;
            settings.ipv6 = false;
        }),
        change(|settings| settings.device.name = "a/b".to_owned()),
        change(|settings| settings.lan = vec!["lan1".to_owned()]),
        change(|settings| settings.lan = vec!["wifi".to_owned()]),
        change(|settings| settings.lan = vec!["sumlink0".to_owned()]),
        change(|settings| settings.links.push("sumlink0".to_owned())),
    ];
    insta::assert_snapshot!(refusals.join("\n"));
}

#[test]
fn nftables_that_does_not_work_is_refused_or_replaced() {
    let mut facts = facts();
    facts.nft = NftSupport::Refused("Error: Could not process rule".to_owned());
    let mut settings = router();
    settings.capture = CaptureSetting::Nftables;
    let refused = Plan::new(&settings, &facts).unwrap_err();
    assert!(matches!(refused, Refusal::NoNftables { .. }), "{refused}");
    settings.capture = CaptureSetting::Auto;
    let plan = Plan::new(&settings, &facts).unwrap();
    assert_eq!(plan.capture(), Capture::Tun);
    assert!(matches!(plan.warnings(), [Warning::WithoutNftables { .. }]));
}

#[test]
fn every_kind_of_vpn_is_noticed() {
    let mut openvpn = facts();
    openvpn
        .devices
        .push(device(5, "tun0", Some("tun"), &["10.8.0.2/24"]));
    let mut network_manager = openvpn.clone();
    openvpn.routes.push(route(254, "0.0.0.0/1", "tun0", 0));
    openvpn.routes.push(route(254, "128.0.0.0/1", "tun0", 0));
    network_manager
        .routes
        .push(route(254, "0.0.0.0/0", "tun0", 50));
    let mut ipv6 = facts();
    ipv6.routes.push(route(254, "2000::/3", "wg0", 0));
    for facts in [openvpn, network_manager, ipv6] {
        let refused = Plan::new(&router(), &facts).unwrap_err();
        assert!(matches!(refused, Refusal::OtherVpn { .. }), "{refused}");
        let settings = Settings {
            over_vpn: true,
            ..router()
        };
        let plan = Plan::new(&settings, &facts).unwrap();
        assert!(matches!(plan.warnings(), [Warning::VpnOverridden { .. }]));
    }
}

/// Tables that an administrator has for each link are none.
#[test]
fn tables_of_links_are_no_vpn() {
    let mut facts = facts();
    facts.routes.push(route(101, "0.0.0.0/0", "wifi", 0));
    let rule = RuleFact {
        family: Family::V4,
        preference: 1000,
        table: Some(101),
        is_general: false,
        is_ours: false,
        text: "from 10.0.1.2 lookup 101".to_owned(),
    };
    facts.rules.push(rule.clone());
    assert_eq!(Plan::new(&router(), &facts).unwrap().warnings(), []);
    // Without a selector it would take everything, the bond's traffic, too.
    facts.rules.push(RuleFact {
        is_general: true,
        ..rule.clone()
    });
    assert!(Plan::new(&router(), &facts).is_err());
    facts.rules.pop();
    facts.rules.push(RuleFact {
        is_general: true,
        preference: 20_000,
        ..rule
    });
    assert!(Plan::new(&router(), &facts).is_ok());
}

#[test]
fn there_is_no_preference_before_the_first_one() {
    let mut facts = facts();
    facts.routes.push(route(99, "0.0.0.0/0", "wg0", 0));
    facts.rules.push(RuleFact {
        family: Family::V4,
        preference: 3,
        table: Some(99),
        is_general: true,
        is_ours: false,
        text: "from all lookup 99".to_owned(),
    });
    let settings = Settings {
        over_vpn: true,
        ..router()
    };
    let refused = Plan::new(&settings, &facts).unwrap_err();
    assert!(
        matches!(refused, Refusal::NoPreference { preference: 3, .. }),
        "{refused}"
    );
}

proptest! {
    /// Whatever the settings: no rule matches packets with the mark of carriers, except those for
    /// multicast and broadcast, and every table of ours is looked up by rules of ours only.
    #[test]
    fn no_rule_matches_carriers(
        host: bool,
        has_lan: bool,
        ipv4: bool,
        ipv6: bool,
        tun: bool,
        block: bool,
    ) {
        let mut settings = router();
        settings.host = host;
        settings.ipv4 = ipv4;
        settings.ipv6 = ipv6;
        if !has_lan {
            settings.lan.clear();
        }
        if tun {
            settings.capture = CaptureSetting::Tun;
        }
        if !block {
            settings.without_bond = WithoutBond::Direct;
        }
        match Plan::new(&settings, &facts()) {
            Ok(plan) => {
                for rule in plan.rules() {
                    let matches = rule.mark.is_none_or(|mark| mark == CARRIER_MARK) != rule.invert;
                    prop_assert!(!matches || rule.to.is_some(), "{}", rule);
                }
                let unreachable = plan.routes().iter().any(|route| route.hop == Hop::Unreachable);
                prop_assert_eq!(unreachable, block);
            }
            Err(error) => prop_assert!(
                matches!(error, Refusal::NothingToCapture | Refusal::NoFamily)
            ),
        }
    }
}
