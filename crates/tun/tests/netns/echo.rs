use crate::world::{HOST4, HOST6, World};

/// Pings; returns the output.
fn ping(namespace: &crate::world::Namespace, options: &[&str], host: &str) -> (bool, String) {
    let words = [&["ping", "-n", "-W", "9"], options, &[host]].concat();
    namespace.program(&words)
}

#[test]
fn echo_requests_reach_the_host_and_come_back() {
    let Some(world) = World::new() else { return };
    for namespace in world.sides() {
        for host in [HOST4, HOST6] {
            for size in ["0", "56", "1452", "3000"] {
                let (done, text) = ping(namespace, &["-c", "3", "-i", "0.2", "-s", size], host);
                assert!(done && text.contains("3 received"), "{host} {size}: {text}");
            }
        }
    }
    let stats = world.stats();
    assert_eq!(stats.flows.echo_sources, 16, "{stats:?}");
    assert_eq!((stats.drops.checksum, stats.drops.malformed), (0, 0));
}

#[test]
fn the_gateway_is_a_hop() {
    let Some(world) = World::new() else { return };
    // The kernel is the first hop of the LAN, the device the second one.
    for (namespace, limit) in world.sides().into_iter().zip(["1", "2"]) {
        for (host, gateway) in [(HOST4, "198.18.74.2"), (HOST6, "fd73:756d:6c69::2")] {
            let (_, text) = ping(namespace, &["-c", "1", "-t", limit], host);
            let text = text.to_lowercase();
            assert!(
                text.contains("time to live exceeded") || text.contains("hop limit"),
                "{text}"
            );
            assert!(text.contains(gateway), "{text}");
        }
    }
    assert_eq!(world.stats().drops.hop_limit, 4);
}

#[test]
fn a_host_that_does_not_exist_is_reported() {
    let Some(world) = World::new() else { return };
    // The internet has no route to it.
    for host in ["203.0.113.200", "2001:db8:9::9"] {
        let (done, text) = ping(&world.gateway, &["-c", "1"], host);
        assert!(
            !done && text.to_lowercase().contains("unreachable"),
            "{text}"
        );
        assert!(text.contains(host), "{text}");
    }
}

#[test]
fn other_protocols_are_refused() {
    use socket2::{Domain, Protocol, Socket, Type};
    let Some(world) = World::new() else { return };
    for (host, domain) in [(HOST4, Domain::IPV4), (HOST6, Domain::IPV6)] {
        let to: std::net::IpAddr = host.parse().unwrap();
        let before = world.stats();
        world.gateway.run(async move {
            // "Use for experimentation and testing" (RFC 3692).
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(253))).unwrap();
            let to = std::net::SocketAddr::new(to, 0);
            socket.send_to(b"hello", &to.into()).unwrap();
        });
        world.until("an error is sent", |stats| {
            stats.drops.protocol == before.drops.protocol + 1
                && stats.flows.errors_sent == before.flows.errors_sent + 1
        });
    }
}
