//! What happens when the program, and with it the TUN device, is gone.

use super::*;

#[test]
fn nothing_leaves_beside_the_bond_after_the_device_has_vanished() {
    let Some(world) = World::new() else { return };
    for host in [true, false] {
        let settings = Settings { host, ..settings() };
        for address in OUTSIDE {
            let outside = world
                .outside
                .enter(|| TcpListener::bind((address, 0)).unwrap());
            outside.set_nonblocking(true).unwrap();
            let remote = outside.local_addr().unwrap();
            world.gateway.run(async || {
                // A host that forwards, with a link through which all of this could leave.
                netns::command("sysctl -w net.ipv4.ip_forward=1");
                netns::command("sysctl -w net.ipv6.conf.all.forwarding=1");
                let (tun, applied) = start(world.state(), &settings).await;
                vanish(tun).await;
                if host {
                    let error = connect(remote).unwrap_err();
                    let number = error.raw_os_error();
                    let unreachable = [Some(libc::EHOSTUNREACH), Some(libc::ENETUNREACH)];
                    assert!(unreachable.contains(&number), "{error}");
                }
                world.lan.enter(|| connect(remote).unwrap_err());
                let error = outside.accept().unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                // Carriers of the next process still work.
                let client = connect_as_carrier(remote, "wan0").unwrap();
                outside.set_nonblocking(false).unwrap();
                exchange(client, outside.accept().unwrap().0);
                applied.remove().await.unwrap();
                exchange(connect(remote).unwrap(), outside.accept().unwrap().0);
            });
        }
    }
}

/// SO_BINDTODEVICE needs no privilege, and the kernel then ignores that a route is missing.
#[test]
fn a_program_that_binds_to_a_link_does_not_leave_beside_the_bond() {
    let Some(world) = World::new() else { return };
    for without_bond in [WithoutBond::Block, WithoutBond::Direct] {
        let settings = Settings {
            without_bond,
            ..settings()
        };
        // A host behind the router, and the router itself, which is directly connected.
        let near: [IpAddr; 2] = [
            "10.0.1.1".parse().unwrap(),
            "2001:db8:1::1".parse().unwrap(),
        ];
        for (far, near) in OUTSIDE.into_iter().zip(near) {
            let [far, near] = [far, near].map(|address| {
                let bind = || TcpListener::bind((address, 0)).unwrap();
                let listener = world.outside.enter(bind);
                (listener.local_addr().unwrap(), listener)
            });
            world.gateway.run(async || {
                let (tun, applied) = start(world.state(), &settings).await;
                let is_blocked = without_bond == WithoutBond::Block;
                assert_eq!(connect_bound(far.0, "wan0").is_err(), is_blocked, "{far:?}");
                connect_bound(near.0, "wan0").unwrap();
                vanish(tun).await;
                assert_eq!(connect_bound(far.0, "wan0").is_err(), is_blocked, "{far:?}");
                connect_bound(near.0, "wan0").unwrap();
                applied.remove().await.unwrap();
                connect_bound(far.0, "wan0").unwrap();
            });
        }
    }
}

#[test]
fn plain_links_are_used_if_that_is_the_setting() {
    let Some(world) = World::new() else { return };
    let settings = Settings {
        without_bond: WithoutBond::Direct,
        ..settings()
    };
    for address in OUTSIDE {
        let outside = world
            .outside
            .enter(|| TcpListener::bind((address, 0)).unwrap());
        let remote = outside.local_addr().unwrap();
        world.gateway.run(async || {
            netns::command("sysctl -w net.ipv4.ip_forward=1");
            netns::command("sysctl -w net.ipv6.conf.all.forwarding=1");
            let (tun, applied) = start(world.state(), &settings).await;
            vanish(tun).await;
            exchange(connect(remote).unwrap(), outside.accept().unwrap().0);
            let client = world.lan.enter(|| connect(remote).unwrap());
            exchange(client, outside.accept().unwrap().0);
            applied.remove().await.unwrap();
        });
    }
}

/// A family that the bond does not carry must not leave beside it.
#[test]
fn a_family_that_is_not_captured_is_blocked() {
    let Some(world) = World::new() else { return };
    let outside = world
        .outside
        .enter(|| TcpListener::bind((OUTSIDE[1], 0)).unwrap());
    let remote = outside.local_addr().unwrap();
    world.gateway.run(async || {
        for (without_bond, is_blocked) in [(WithoutBond::Block, true), (WithoutBond::Direct, false)]
        {
            let settings = Settings {
                ipv6: false,
                without_bond,
                ..settings()
            };
            let (_tun, applied) = start(world.state(), &settings).await;
            assert_eq!(connect(remote).is_err(), is_blocked);
            applied.remove().await.unwrap();
        }
    });
}

/// A process that starts after a killed one takes its changes over without a gap.
#[test]
fn a_new_start_replaces_what_is_left() {
    let Some(world) = World::new() else { return };
    let before = world.snapshot();
    world.gateway.run(async || {
        let listeners = Listeners::new();
        let (tun, applied) = start(world.state(), &listeners.settings()).await;
        vanish(tun).await;
        drop(applied);
        let other = Settings {
            lan: Vec::new(),
            without_bond: WithoutBond::Direct,
            ..listeners.settings()
        };
        let (tun, applied) = start(world.state(), &other).await;
        let rules = netns::command("ip rule show");
        assert!(!rules.contains("lookup 7438"), "{rules}");
        assert!(rules.contains("lookup 7443"), "{rules}");
        let routes = netns::command("ip route show table 7443");
        assert!(!routes.contains("unreachable"), "{routes}");
        applied.remove().await.unwrap();
        vanish(tun).await;
    });
    assert_same(&world.snapshot(), &before, ());
}
