use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sumlink_proxy::{Side, SourceLimit};
use sumlink_tun::{DeviceConfig, Limits};
use tokio::net::UdpSocket;

use crate::world::{HOST4, HOST6, Namespace, OTHER4, OTHER6, World, side};

/// Payloads around every limit: of the device, of IPv6, of fragments, of UDP.
const LENGTHS: [usize; 14] = [
    0, 1, 2, 1231, 1232, 1233, 1452, 1453, 1472, 1473, 3000, 9000, 40_001, 65_507,
];

fn any(host: &str) -> SocketAddr {
    match host.parse().unwrap() {
        IpAddr::V4(_) => "0.0.0.0:0".parse().unwrap(),
        IpAddr::V6(_) => "[::]:0".parse().unwrap(),
    }
}

/// A port of the internet's host that echoes datagrams.
fn echo(internet: &Namespace, host: &'static str) -> SocketAddr {
    internet.run(async move {
        let socket = UdpSocket::bind((host, 0)).await.unwrap();
        let bound = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = vec![0; 70_000];
            while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
                let _ = socket.send_to(&buffer[..len], from).await;
            }
        });
        bound
    })
}

#[test]
fn datagrams_of_every_length_come_back_from_the_host_and_the_lan() {
    for offload in [true, false] {
        let config = DeviceConfig {
            offload,
            ..DeviceConfig::default()
        };
        let Some(world) = World::with(config, Limits::default()) else {
            return;
        };
        for host in [HOST4, HOST6] {
            let to = echo(&world.internet, host);
            for (namespace, expected) in world.sides().into_iter().zip([Side::Host, Side::Lan]) {
                let own = namespace.run(async move {
                    let socket = UdpSocket::bind(any(host)).await.unwrap();
                    socket.connect(to).await.unwrap();
                    let mut buffer = vec![0; 70_000];
                    for len in LENGTHS {
                        let sent: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
                        socket.send(&sent).await.unwrap();
                        let received = socket.recv(&mut buffer);
                        let received = tokio::time::timeout(Duration::from_secs(9), received).await;
                        let len = received
                            .unwrap_or_else(|_| panic!("{len} bytes to {to} get lost"))
                            .unwrap();
                        assert!(buffer[..len] == sent, "{len} bytes to {to} have changed");
                    }
                    socket.local_addr().unwrap()
                });
                let origins = world.opener.origins.lock().unwrap();
                assert_eq!(side(&origins, own), Some(expected), "{own}");
            }
        }
        let stats = world.stats();
        assert_eq!(stats.drops.refused_by_kernel, 0, "{stats:?}");
        assert!(stats.flows.reassembled > 0);
        assert_eq!(stats.flows.sources, 4);
    }
}

#[test]
fn remotes_see_one_source_for_each_socket() {
    let Some(world) = World::new() else { return };
    for hosts in [[HOST4, OTHER4], [HOST6, OTHER6]] {
        // Answers with the address that it has seen.
        let remotes = hosts.map(|host| {
            world.internet.run(async move {
                let socket = UdpSocket::bind((host, 0)).await.unwrap();
                let bound = socket.local_addr().unwrap();
                tokio::spawn(async move {
                    let mut buffer = [0; 9];
                    while let Ok((_, from)) = socket.recv_from(&mut buffer).await {
                        let text = from.port().to_string();
                        socket.send_to(text.as_bytes(), from).await.unwrap();
                    }
                });
                bound
            })
        });
        world.lan.run(async move {
            let socket = UdpSocket::bind(any(hosts[0])).await.unwrap();
            let mut seen = Vec::new();
            for remote in remotes {
                socket.send_to(b"?", remote).await.unwrap();
                let mut buffer = [0; 9];
                let (len, from) = socket.recv_from(&mut buffer).await.unwrap();
                assert_eq!(from, remote);
                seen.push(buffer[..len].to_vec());
            }
            assert_eq!(seen[0], seen[1]);
        });
    }
}

#[test]
fn a_closed_port_refuses_the_program() {
    let Some(world) = World::new() else { return };
    for host in [HOST4, HOST6] {
        for namespace in world.sides() {
            namespace.run(async move {
                let socket = UdpSocket::bind(any(host)).await.unwrap();
                socket.connect((host, 9)).await.unwrap();
                socket.send(b"anyone?").await.unwrap();
                let error = socket.recv(&mut [0; 9]).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            });
        }
    }
    assert_eq!(world.stats().flows.errors_sent, 4);
}

#[test]
fn many_datagrams_arrive_in_order_and_in_super_packets() {
    let Some(world) = World::new() else { return };
    for host in [HOST4, HOST6] {
        let to = echo(&world.internet, host);
        for namespace in world.sides() {
            namespace.run(async move {
                let socket = UdpSocket::bind(any(host)).await.unwrap();
                socket.connect(to).await.unwrap();
                let mut buffer = [0; 2000];
                let mut received = Vec::new();
                for round in 0..50u32 {
                    for number in 0..20u32 {
                        let mut sent = vec![7; 1200];
                        sent[..4].copy_from_slice(&(round * 20 + number).to_be_bytes());
                        socket.send(&sent).await.unwrap();
                    }
                    for _ in 0..20 {
                        let len = socket.recv(&mut buffer).await.unwrap();
                        assert_eq!(len, 1200);
                        received.push(u32::from_be_bytes(buffer[..4].try_into().unwrap()));
                    }
                }
                assert!(received.into_iter().eq(0..1000));
            });
        }
    }
}

#[test]
fn segmented_datagrams_of_a_program_are_separate_ones() {
    use std::os::fd::AsFd;
    let Some(world) = World::new() else { return };
    for host in [HOST4, HOST6] {
        let to = echo(&world.internet, host);
        world.gateway.run(async move {
            let socket = UdpSocket::bind(any(host)).await.unwrap();
            socket.connect(to).await.unwrap();
            nix::sys::socket::setsockopt(
                &socket.as_fd(),
                nix::sys::socket::sockopt::UdpGsoSegment,
                &1000,
            )
            .unwrap();
            let sent: Vec<u8> = (0..9500).map(|at| (at / 1000) as u8).collect();
            assert_eq!(socket.send(&sent).await.unwrap(), 9500);
            let mut buffer = [0; 9999];
            for number in 0..10 {
                let len = socket.recv(&mut buffer).await.unwrap();
                assert_eq!(len, if number < 9 { 1000 } else { 500 });
                assert!(buffer[..len].iter().all(|byte| *byte == number));
            }
        });
    }
}

#[test]
fn sources_beyond_the_limit_are_dropped_until_one_is_idle() {
    let limits = Limits {
        sources: SourceLimit::new(2),
        ..Limits::default()
    };
    let Some(world) = World::with(DeviceConfig::default(), limits) else {
        return;
    };
    let to = echo(&world.internet, HOST4);
    world.gateway.run(async move {
        let mut all = Vec::new();
        for number in 0..3 {
            let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
            socket.connect(to).await.unwrap();
            socket.send(b"x").await.unwrap();
            if number < 2 {
                socket.recv(&mut [0; 9]).await.unwrap();
            }
            all.push(socket);
        }
        // The first two are idle after five seconds.
        let mut answered = false;
        for _ in 0..100 {
            all[2].send(b"x").await.unwrap();
            let mut buffer = [0; 9];
            let answer = all[2].recv(&mut buffer);
            answered = tokio::time::timeout(Duration::from_millis(200), answer)
                .await
                .is_ok();
            if answered {
                break;
            }
        }
        assert!(answered);
    });
    assert!(world.stats().drops.limit > 0);
}
