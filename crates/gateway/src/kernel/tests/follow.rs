//! Changes by others while the gateway runs.

use super::super::follow::Answer;
use super::*;

/// Runs `job` while the gateway of `world` follows the kernel's changes.
fn following(world: &World, job: impl AsyncFnOnce() + Send) {
    world.gateway.run(async || {
        let (_tun, mut applied) = start(world.state(), &settings()).await;
        tokio::select! {
            error = applied.follow() => panic!("{error:?}"),
            () = job() => {}
        }
        applied.remove().await.unwrap();
    });
}

fn lan_routes() -> String {
    netns::command("ip route show table 7438") + &netns::command("ip -6 route show table 7438")
}

#[test]
fn the_routes_follow_the_addresses_of_the_lan() {
    let Some(world) = World::new() else { return };
    following(&world, async || {
        until("the first network", || {
            lan_routes().contains("192.168.7.0/24")
        })
        .await;
        world.gateway.ip("address add 192.168.9.1/24 dev lan0");
        until("the new network", || {
            lan_routes().contains("192.168.9.0/24")
        })
        .await;
        world.gateway.ip("address del 192.168.7.1/24 dev lan0");
        until("the end of the first", || {
            !lan_routes().contains("192.168.7.0/24")
        })
        .await;
        world.gateway.ip("link set lan0 down");
        until("the end of all", || {
            !lan_routes().contains("192.168.9.0/24")
        })
        .await;
        world.gateway.ip("link set lan0 up");
        until("the way back", || lan_routes().contains("192.168.9.0/24")).await;
    });
}

#[test]
fn a_lan_interface_that_is_made_again_is_used_again() {
    let Some(world) = World::new() else { return };
    following(&world, async || {
        world.gateway.ip("link del lan0");
        until("the end of the routes", || lan_routes().is_empty()).await;
        let peer = world.lan.name();
        world.gateway.ip(&format!(
            "link add lan0 type veth peer name eth0 netns {peer}"
        ));
        world.gateway.ip("address add 192.168.7.1/24 dev lan0");
        world.gateway.ip("link set lan0 up");
        until("the routes", || lan_routes().contains("192.168.7.0/24")).await;
        let forwarding = "net/ipv4/conf/lan0/forwarding";
        until("forwarding", || {
            sysctl::Sysctl::read(forwarding).unwrap().as_deref() == Some("1")
        })
        .await;
    });
}

#[test]
fn what_others_delete_is_restored() {
    let Some(world) = World::new() else { return };
    following(&world, async || {
        let ruleset = || netns::command("nft list tables");
        let rules = || netns::command("ip rule show") + &netns::command("ip -6 rule show");
        let (all_rules, all_routes) = (rules(), netns::command("ip route show table 7443"));
        // A firewall that is reloaded.
        netns::command("nft flush ruleset");
        until("the firewall table", || ruleset().contains("inet sumlink")).await;
        // Network managers that delete unknown rules.
        netns::command("ip rule del preference 7442");
        netns::command("ip -6 rule del preference 7441");
        netns::command("ip route flush table 7443");
        until("the rules", || rules() == all_rules).await;
        until("the routes", || {
            netns::command("ip route show table 7443") == all_routes
        })
        .await;
    });
}

#[test]
fn fifty_flaps_of_a_link_and_the_lan_end_in_the_planned_state() {
    let Some(world) = World::new() else { return };
    following(&world, async || {
        for _ in 0..50 {
            for device in ["lan0", "wan0"] {
                world.gateway.ip(&format!("link set {device} down"));
                world.gateway.ip(&format!("link set {device} up"));
            }
            tokio::task::yield_now().await;
        }
        until("the LAN's network", || {
            lan_routes().contains("192.168.7.0/24")
        })
        .await;
    });
    // The kernel itself has deleted the link's routes and IPv6 addresses.
    let after = world.snapshot();
    assert!(!after.contains("lookup 7443") && !after.contains("table inet sumlink"));
}

#[test]
fn a_vpn_that_starts_and_ends_while_the_gateway_runs_is_reported_once() {
    let Some(world) = World::new() else { return };
    world.gateway.run(async || {
        let (_tun, mut applied) = start(world.state(), &settings()).await;
        let reported = async |applied: &mut Applied| {
            applied.restore(Answer::Routing).await.unwrap();
            let vpns = applied.vpns.iter();
            let vpns = vpns.map(|vpn| (vpn.device.clone(), vpn.takes_all));
            vpns.collect::<Vec<_>>()
        };
        assert_eq!(reported(&mut applied).await, []);
        world.gateway.ip("tuntap add vpn0 mode tun");
        world.gateway.ip("link set vpn0 up");
        // The two halves of the default route that OpenVPN adds.
        world.gateway.ip("route add 0.0.0.0/1 dev vpn0");
        world.gateway.ip("route add 128.0.0.0/1 dev vpn0");
        assert_eq!(reported(&mut applied).await, [("vpn0".to_owned(), false)]);
        // A rule as wg-quick adds it: the kernel places it before all others.
        world.gateway.ip("route add default dev vpn0 table 51820");
        world.gateway.ip("rule add table 51820");
        let both = reported(&mut applied).await;
        assert!(both.contains(&("vpn0".to_owned(), true)), "{both:?}");
        world.gateway.ip("rule del table 51820");
        world.gateway.ip("link del vpn0");
        assert_eq!(reported(&mut applied).await, []);
        applied.remove().await.unwrap();
    });
}
