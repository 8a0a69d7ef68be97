//! A path MTU black hole between namespaces: packets above 1280 bytes are lost, and so are the ICMP
//! messages that report it.

use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::api::client::Client;
use crate::carrier::keys::SecretKey;
use crate::fixture::{client_config, server_config};
use crate::server::Server;
use sumlink_exit::target::Target;
use sumlink_test_support::netns::Netns;

/// Client, two routers and server in a row; the MTU between the routers is 1280 bytes.
struct Way {
    client: Netns,
    /// Kept alive as long as the topology.
    _routers: [Netns; 2],
    server: Netns,
}

impl Way {
    fn new() -> Option<Self> {
        let [client, near, far, server] =
            [Netns::new()?, Netns::new()?, Netns::new()?, Netns::new()?];
        // Left end, right end, the network between, its MTU.
        for (left, right, net, mtu) in [
            (&client, &near, "192.0.2", 1500),
            (&near, &far, "198.51.100", 1280),
            (&far, &server, "203.0.113", 1500),
        ] {
            left.ip(&format!(
                "link add right mtu {mtu} type veth peer name left mtu {mtu} netns {}",
                right.name()
            ));
            for (ns, end, host) in [(left, "right", 1), (right, "left", 2)] {
                ns.ip(&format!("addr add {net}.{host}/24 dev {end}"));
                ns.ip(&format!("link set {end} up"));
            }
        }
        client.ip("route add default via 192.0.2.2");
        near.ip("route add 203.0.113.0/24 via 198.51.100.2");
        far.ip("route add 192.0.2.0/24 via 198.51.100.1");
        server.ip("route add default via 203.0.113.1");
        for router in [&near, &far] {
            in_namespace(router, "sysctl -qw net.ipv4.ip_forward=1");
            in_namespace(router, "nft add table ip filter");
            let chain = "add chain ip filter out { type filter hook output priority 0 ; }";
            in_namespace(router, &format!("nft {chain}"));
            in_namespace(router, "nft add rule ip filter out ip protocol icmp drop");
        }
        Some(Self {
            client,
            _routers: [near, far],
            server,
        })
    }
}

fn in_namespace(ns: &Netns, command: &str) {
    let mut words = vec!["netns", "exec", ns.name()];
    words.extend(command.split_whitespace());
    let ran = Command::new("ip").args(words).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{command}: {said}");
}

/// More than a packet, yet quickly transferred.
const MUCH: usize = 200_000;

/// Large packets are lost in either direction alone: those of the client, and those of the server.
#[test]
fn a_path_mtu_black_hole_makes_connections_use_smaller_packets() {
    for is_upload in [true, false] {
        let Some(way) = Way::new() else { return };
        carries(way, is_upload);
    }
}

fn carries(way: Way, is_upload: bool) {
    let (server_key, key) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let mut config = server_config(&server_key, &key);
    config.listen = "203.0.113.2:7443".parse().unwrap();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = way.server;
    let serving = std::thread::spawn(move || {
        server.run(async move || {
            let server = Server::bind(config).await.unwrap();
            let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
            ready.send(target.local_addr().unwrap()).unwrap();
            tokio::spawn(async move {
                let (mut program, _) = target.accept().await.unwrap();
                let sent = [7; MUCH];
                if is_upload {
                    let mut received = [0; MUCH];
                    program.read_exact(&mut received).await.unwrap();
                    program.write_all(&sent[..1]).await.unwrap();
                } else {
                    program.write_all(&sent).await.unwrap();
                }
                // Until the client has received its data.
                let _ = program.read_to_end(&mut Vec::new()).await;
            });
            let until = async {
                let _ = stopped.await;
            };
            server.run(until).await;
        });
    });
    let target = is_ready.recv().unwrap();
    let mut config = client_config(&server_key, &key, "203.0.113.2:7443");
    config.links.clear();
    let path = way.client.run(async move || {
        let client = Client::connect(config).await.unwrap();
        let mut stream = client.open_stream(Target::from(target)).await.unwrap();
        let moved = async {
            if is_upload {
                stream.write_all(&[7; MUCH]).await.unwrap();
            }
            let expected = if is_upload { 1 } else { MUCH };
            let mut received = vec![0; expected];
            stream.read_exact(&mut received).await.unwrap();
        };
        let moved = tokio::time::timeout(Duration::from_secs(40), moved).await;
        let paths = client.status().await.paths;
        moved.unwrap_or_else(|_| panic!("upload {is_upload}: nothing gets through: {paths:?}"));
        client.close().await;
        paths.into_iter().next().unwrap()
    });
    drop(stop);
    serving.join().unwrap();
    assert_eq!(path.mtu_bytes, Some(1280));
    assert!(path.reason.contains("MTU 1280"), "{}", path.reason);
}
