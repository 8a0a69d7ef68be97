//! Other programs that use the same host: their rules, routes and tables.

use super::*;

/// Rules as of Docker, libvirt, mwan3 and an administrator.
pub(super) fn install(world: &World) {
    world.gateway.ip("link add docker0 type bridge");
    world.gateway.ip("address add 172.17.0.1/16 dev docker0");
    world.gateway.ip("link set docker0 addrgenmode none");
    world.gateway.ip("link set docker0 up");
    world
        .gateway
        .ip("rule add preference 7441 from 10.0.1.2 lookup 101");
    world
        .gateway
        .ip("-6 rule add preference 7000 fwmark 0x5c lookup 102");
    world
        .gateway
        .ip("route add default via 10.0.1.1 dev wan0 table 101");
    // The same number of a table, and of a protocol, but not both.
    world
        .gateway
        .ip("route add 198.18.99.0/24 via 10.0.1.1 table 7443 protocol static");
    world
        .gateway
        .ip("route add 198.18.98.0/24 via 10.0.1.1 table 55 protocol 74");
    world.gateway.enter(|| {
        netns::nft(
            "table ip filter {
                chain FORWARD { type filter hook forward priority filter; policy drop;
                    iifname docker0 accept
                }
                chain DOCKER-USER {
                    return
                }
            }
            table ip nat {
                chain PREROUTING { type nat hook prerouting priority dstnat; policy accept;
                    fib daddr type local tcp dport 8080 dnat to 172.17.0.2:80
                }
                chain POSTROUTING { type nat hook postrouting priority srcnat; policy accept;
                    ip saddr 172.17.0.0/16 oifname != docker0 masquerade
                }
            }
            table inet libvirt { set ports { type inet_service; elements = { 22,80 }; }; }",
        );
    });
}

/// TPROXY comes before the FORWARD hook.
#[test]
fn the_lan_is_captured_although_docker_drops_what_is_forwarded() {
    let Some(world) = World::new() else { return };
    install(&world);
    world.gateway.run(async || {
        let listeners = Listeners::new();
        let (_tun, applied) = start(world.state(), &listeners.settings()).await;
        assert_eq!(applied.plan().warnings(), []);
        for (listener, address) in listeners.tcp.iter().zip(ELSEWHERE) {
            let remote = SocketAddr::new(address, 443);
            let client = world.lan.enter(|| connect(remote).unwrap());
            exchange(client, listener.accept().unwrap().0);
        }
    });
}

#[test]
fn a_firewall_that_drops_forwarded_packets_is_reported_for_the_tun_device() {
    let Some(world) = World::new() else { return };
    install(&world);
    world.gateway.run(async || {
        let settings = Settings {
            capture: CaptureSetting::Tun,
            ..settings()
        };
        let prepared = Prepared::new(&world.state(), &settings).await.unwrap();
        let plan = prepared.plan(&settings).unwrap();
        let warnings = plan.warnings();
        assert!(
            matches!(warnings, [Warning::ForwardingDropped { .. }]),
            "{warnings:?}"
        );
    });
}

/// The rules of wg-quick(8), with a plain device for its tunnel.
#[test]
fn another_vpn_is_refused_and_can_be_overridden() {
    let Some(world) = World::new() else { return };
    world.gateway.ip("link add wg0 type bridge");
    world.gateway.ip("address add 10.9.0.2/32 dev wg0");
    world.gateway.ip("link set wg0 addrgenmode none");
    world.gateway.ip("link set wg0 up");
    world.gateway.ip("route add default dev wg0 table 51820");
    world.gateway.ip("rule add not fwmark 51820 table 51820");
    world
        .gateway
        .ip("rule add table main suppress_prefixlength 0");
    let before = world.snapshot();
    world.gateway.run(async || {
        let listeners = Listeners::new();
        let settings = listeners.settings();
        let prepared = Prepared::new(&world.state(), &settings).await.unwrap();
        let refused = prepared.plan(&settings).unwrap_err().to_string();
        assert_eq!(
            refused,
            "another VPN has the default route (device wg0, rule 32765: 'not from all fwmark \
             0xca6c lookup 51820'): stop it, or set over_vpn = true to send everything over the \
             bond nevertheless"
        );
        drop(prepared);
        let settings = Settings {
            over_vpn: true,
            ..settings
        };
        let (tun, applied) = start(world.state(), &settings).await;
        let client = connect(SocketAddr::new(ELSEWHERE[0], 443)).unwrap();
        exchange(client, listeners.redirect[0].accept().unwrap().0);
        applied.remove().await.unwrap();
        vanish(tun).await;
    });
    assert_same(&world.snapshot(), &before, ());
}

/// A VPN that was started after a former gateway has rules before ours.
#[test]
fn a_vpn_with_an_earlier_rule_can_be_overridden() {
    let Some(world) = World::new() else { return };
    world.gateway.ip("link add wg0 type bridge");
    world.gateway.ip("address add 10.9.0.2/32 dev wg0");
    world.gateway.ip("link set wg0 addrgenmode none");
    world.gateway.ip("link set wg0 up");
    world.gateway.ip("route add default dev wg0 table 51820");
    world
        .gateway
        .ip("rule add preference 7437 not fwmark 51820 table 51820");
    world.gateway.run(async || {
        let listeners = Listeners::new();
        let settings = Settings {
            over_vpn: true,
            ..listeners.settings()
        };
        let _running = start(world.state(), &settings).await;
        let client = connect(SocketAddr::new(ELSEWHERE[0], 443)).unwrap();
        exchange(client, listeners.redirect[0].accept().unwrap().0);
    });
}

#[test]
fn a_route_of_the_server_into_the_bond_is_refused() {
    let Some(world) = World::new() else { return };
    let before = world.snapshot();
    world.gateway.run(async || {
        let settings = Settings {
            servers: vec![OUTSIDE[0]],
            ..settings()
        };
        let prepared = Prepared::new(&world.state(), &settings).await.unwrap();
        let tun = tun().await;
        world.gateway.ip("link set sumlink0 up");
        world.gateway.ip("route add 203.0.113.0/24 dev sumlink0");
        let plan = prepared.plan(&settings).unwrap();
        let error = prepared.apply(plan).await.unwrap_err();
        assert!(
            matches!(error, KernelError::CarriersIntoBond { .. }),
            "{error}"
        );
        vanish(tun).await;
    });
    assert_same(&world.snapshot(), &before, ());
}
