//! Traffic that is captured, and traffic that bypasses the gateway.

use std::net::UdpSocket;

use super::*;

#[test]
fn tcp_of_the_host_is_redirected_and_keeps_its_destination() {
    let Some(world) = World::new() else { return };
    world.gateway.run(async || {
        let listeners = Listeners::new();
        let (_tun, applied) = start(world.state(), &listeners.settings()).await;
        assert_eq!(applied.plan().capture(), Capture::Nftables);
        assert_eq!(applied.plan().warnings(), []);
        for (listener, address) in listeners.redirect.iter().zip(ELSEWHERE) {
            let remote = SocketAddr::new(address, 443);
            let client = connect(remote).unwrap();
            let (server, from) = listener.accept().unwrap();
            assert_eq!(original_destination(&server), remote);
            let device = DeviceSettings::default();
            assert!([IpAddr::from(device.ipv4), device.ipv6.into()].contains(&from.ip()));
            exchange(client, server);
        }
    });
}

#[test]
fn tcp_of_the_lan_arrives_at_a_transparent_listener() {
    let Some(world) = World::new() else { return };
    world.gateway.run(async || {
        let listeners = Listeners::new();
        let _running = start(world.state(), &listeners.settings()).await;
        for (listener, address) in listeners.tcp.iter().zip(ELSEWHERE) {
            let remote = SocketAddr::new(address, 443);
            let client = world.lan.enter(|| connect(remote).unwrap());
            let (server, from) = listener.accept().unwrap();
            assert_eq!(server.local_addr().unwrap(), remote);
            assert_eq!(from, client.local_addr().unwrap());
            exchange(client, server);
        }
    });
}

#[test]
fn datagrams_of_the_lan_arrive_with_their_destination_and_are_answered_from_it() {
    let Some(world) = World::new() else { return };
    world.gateway.run(async || {
        let listeners = Listeners::new();
        let _running = start(world.state(), &listeners.settings()).await;
        for (socket, address) in listeners.udp.iter().zip(ELSEWHERE) {
            let remote = SocketAddr::new(address, 5060);
            let client = world.lan.enter(|| {
                let socket = UdpSocket::bind(SocketAddr::new(anywhere(address), 0)).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.connect(remote).unwrap();
                socket.send(b"question").unwrap();
                socket
            });
            let (data, from, destination) = receive_with_destination(socket);
            assert_eq!(data, b"question");
            assert_eq!((from, destination), (client.local_addr().unwrap(), remote));
            let answering = bound(Type::DGRAM, remote, true);
            answering.send_to(b"answer", &from.into()).unwrap();
            let mut answer = [0; 16];
            let length = client.recv(&mut answer).unwrap();
            assert_eq!(&answer[..length], b"answer");
        }
    });
}

/// UDP and echo requests of the host have a route to the TUN device.
#[test]
fn datagrams_of_the_host_enter_the_tun_device() {
    let Some(world) = World::new() else { return };
    world.gateway.run(async || {
        let (tun, _applied) = start(world.state(), &settings()).await;
        for address in ELSEWHERE {
            let socket = UdpSocket::bind(SocketAddr::new(anywhere(address), 0)).unwrap();
            socket
                .send_to(b"a question", SocketAddr::new(address, 53))
                .unwrap();
            let packet = read_until(&tun, b"a question");
            let destination: &[u8] = match address {
                IpAddr::V4(address) => &address.octets(),
                IpAddr::V6(address) => &address.octets(),
            };
            assert!(
                packet
                    .windows(destination.len())
                    .any(|window| window == destination)
            );
        }
    });
}

#[test]
fn carriers_are_routed_as_without_the_gateway() {
    let Some(world) = World::new() else { return };
    for address in OUTSIDE {
        let listening = world
            .outside
            .enter(|| TcpListener::bind((address, 0)).unwrap());
        let remote = listening.local_addr().unwrap();
        world.gateway.run(async || {
            let (_tun, applied) = start(world.state(), &settings()).await;
            let client = connect_as_carrier(remote, "wan0").unwrap();
            let (server, _) = listening.accept().unwrap();
            exchange(client, server);
            applied.remove().await.unwrap();
        });
    }
}

/// The reverse path filter asks for a route to the server, which leads into the bond without the
/// mark of the connection.
#[test]
fn strict_reverse_path_filters_accept_the_answers_to_carriers_and_the_lan() {
    let Some(world) = World::new() else { return };
    let listening = world
        .outside
        .enter(|| TcpListener::bind((OUTSIDE[0], 0)).unwrap());
    let remote = listening.local_addr().unwrap();
    world.gateway.run(async || {
        netns::command("sysctl -w net.ipv4.conf.all.rp_filter=1");
        let listeners = Listeners::new();
        let _running = start(world.state(), &listeners.settings()).await;
        let client = connect_as_carrier(remote, "wan0").unwrap();
        exchange(client, listening.accept().unwrap().0);
        // Another VPN's setting, for all interfaces.
        netns::command("sysctl -w net.ipv4.conf.all.src_valid_mark=1");
        let remote = SocketAddr::new(ELSEWHERE[0], 80);
        let client = world.lan.enter(|| connect(remote).unwrap());
        exchange(client, listeners.tcp[0].accept().unwrap().0);
    });
}

#[test]
fn specific_routes_bypass_the_bond() {
    let Some(world) = World::new() else { return };
    let at = |address: &str| SocketAddr::new(address.parse().unwrap(), 0);
    for address in ["10.0.1.1", "2001:db8:1::1"] {
        let outside = world
            .outside
            .enter(|| TcpListener::bind(at(address)).unwrap());
        let remote = outside.local_addr().unwrap();
        world.gateway.run(async || {
            let (_tun, applied) = start(world.state(), &settings()).await;
            // From the host, and from the LAN by plain forwarding.
            exchange(connect(remote).unwrap(), outside.accept().unwrap().0);
            if remote.is_ipv4() {
                netns::command("sysctl -w net.ipv4.conf.wan0.forwarding=1");
                let client = world.lan.enter(|| connect(remote).unwrap());
                exchange(client, outside.accept().unwrap().0);
            }
            applied.remove().await.unwrap();
        });
    }
    for address in ["192.168.7.50", "2001:db8:7::50"] {
        let lan = world.lan.enter(|| TcpListener::bind(at(address)).unwrap());
        let remote = lan.local_addr().unwrap();
        world.gateway.run(async || {
            let (_tun, applied) = start(world.state(), &settings()).await;
            exchange(connect(remote).unwrap(), lan.accept().unwrap().0);
            applied.remove().await.unwrap();
        });
    }
}

/// An administrator's login over a link survives.
#[test]
fn connections_from_outside_are_answered_over_their_link() {
    let Some(world) = World::new() else { return };
    world.gateway.run(async || {
        let _running = start(world.state(), &settings()).await;
        for (address, from) in ["10.0.1.2", "2001:db8:1::2"].iter().zip(OUTSIDE) {
            let host = TcpListener::bind((*address, 0)).unwrap();
            let remote = host.local_addr().unwrap();
            let client = world.outside.enter(|| {
                let socket = bound(Type::STREAM, SocketAddr::new(from, 0), false);
                socket.connect_timeout(&remote.into(), PATIENCE).unwrap();
                TcpStream::from(socket)
            });
            exchange(client, host.accept().unwrap().0);
        }
    });
}

#[test]
fn only_the_lan_is_captured_without_the_host() {
    let Some(world) = World::new() else { return };
    let outside = world
        .outside
        .enter(|| TcpListener::bind((OUTSIDE[0], 0)).unwrap());
    let remote = outside.local_addr().unwrap();
    world.gateway.run(async || {
        let listeners = Listeners::new();
        let settings = Settings {
            host: false,
            ..listeners.settings()
        };
        let _running = start(world.state(), &settings).await;
        exchange(connect(remote).unwrap(), outside.accept().unwrap().0);
        for (listener, address) in listeners.tcp.iter().zip(ELSEWHERE) {
            let remote = SocketAddr::new(address, 443);
            let client = world.lan.enter(|| connect(remote).unwrap());
            exchange(client, listener.accept().unwrap().0);
        }
    });
}

/// Addresses of the LAN belong to the LAN, although a modem has the same.
#[test]
fn a_lan_wins_over_a_modem_with_the_same_subnet() {
    let Some(world) = World::new() else { return };
    world.gateway.ip("address add 192.168.7.2/24 dev wan0");
    world.gateway.ip("route del 192.168.7.0/24 dev lan0");
    let lan = world
        .lan
        .enter(|| TcpListener::bind(("192.168.7.50", 0)).unwrap());
    let remote = lan.local_addr().unwrap();
    world.gateway.run(async || {
        let (_tun, applied) = start(world.state(), &settings()).await;
        let warnings = applied.plan().warnings();
        assert!(
            matches!(warnings, [Warning::OverlappingSubnets { .. }]),
            "{warnings:?}"
        );
        exchange(connect(remote).unwrap(), lan.accept().unwrap().0);
    });
}

/// Protocols that the bond does not carry fail at once.
#[test]
fn other_protocols_of_the_lan_are_rejected() {
    let Some(world) = World::new() else { return };
    world.gateway.run(async || {
        let _running = start(world.state(), &settings()).await;
        let refused = world.lan.enter(|| {
            // SCTP, by number: an ICMP error ends the wait.
            let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(132))).unwrap();
            raw.set_read_timeout(Some(PATIENCE)).unwrap();
            raw.connect(&SocketAddr::new(ELSEWHERE[0], 0).into())
                .unwrap();
            raw.send(&[0; 32]).unwrap();
            raw.recv(&mut [std::mem::MaybeUninit::uninit(); 64])
                .unwrap_err()
        });
        let number = refused.raw_os_error();
        assert!(
            number == Some(libc::EHOSTUNREACH) || number == Some(libc::EACCES),
            "{refused}"
        );
    });
}

#[test]
fn without_nftables_the_lan_is_forwarded_into_the_tun_device() {
    let Some(world) = World::new() else { return };
    world.gateway.run(async || {
        let settings = Settings {
            capture: CaptureSetting::Tun,
            ..settings()
        };
        let (tun, applied) = start(world.state(), &settings).await;
        assert_eq!(applied.plan().capture(), Capture::Tun);
        for address in ELSEWHERE {
            world.lan.enter(|| {
                let socket = UdpSocket::bind(SocketAddr::new(anywhere(address), 0)).unwrap();
                socket
                    .send_to(b"from the LAN", SocketAddr::new(address, 53))
                    .unwrap();
            });
            read_until(&tun, b"from the LAN");
        }
    });
}
