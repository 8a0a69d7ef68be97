use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sumlink_proxy::{ConnectionLimit, Side};
use sumlink_tun::{DeviceConfig, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::world::{FAR, FORBIDDEN, HOST4, HOST6, Namespace, SLOW, WHILE, World, side};

/// A port on which nothing listens.
const CLOSED: u16 = 9;

fn address(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().unwrap(), port)
}

/// A port of the internet's host that serves connections with `serve`.
fn listen<F>(
    internet: &Namespace,
    host: &'static str,
    serve: impl Fn(TcpStream) -> F + Send + Sync + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    internet.run(async move {
        let listener = TcpListener::bind(address(host, 0)).await.unwrap();
        let bound = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        bound
    })
}

async fn echo(mut stream: TcpStream) {
    let (mut read, mut write) = stream.split();
    let _ = tokio::io::copy(&mut read, &mut write).await;
    let _ = stream.shutdown().await;
}

/// Bytes in which every change of order or content shows.
fn pattern(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Sends `len` bytes to an echo and compares the echoed bytes.
async fn transfer(to: SocketAddr, len: usize) -> SocketAddr {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let own = stream.local_addr().unwrap();
    let (mut read, mut write) = stream.split();
    let sent = pattern(len);
    let writing = async {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let reading = read.read_to_end(&mut received);
    let (_, done) = tokio::join!(writing, reading);
    done.unwrap();
    assert_eq!(received.len(), sent.len());
    assert!(received == sent, "the data has changed");
    own
}

#[test]
fn large_transfers_arrive_unchanged_from_the_host_and_the_lan() {
    let Some(world) = World::new() else { return };
    for host in [HOST4, HOST6] {
        let to = listen(&world.internet, host, echo);
        for (namespace, expected) in world.sides().into_iter().zip([Side::Host, Side::Lan]) {
            let own = namespace.run(transfer(to, 16 << 20));
            let origins = world.opener.origins.lock().unwrap();
            assert_eq!(side(&origins, own), Some(expected), "{own}");
        }
    }
    let stats = world.stats();
    assert_eq!(stats.flows.connections_opened, 4);
    // Four connections, each with 16 MiB in both directions.
    let bytes = 4 * (32 << 20);
    assert!(stats.flows.bytes_in > bytes, "{stats:?}");
    // Super-packets carry far more than an MTU.
    assert!(stats.flows.packets_in < bytes / 4500, "{stats:?}");
    assert_eq!(stats.drops.refused_by_kernel, 0);
    world.until("all connections end", |stats| stats.flows.connections == 0);
}

#[test]
fn transfers_without_offload_arrive_unchanged() {
    let config = DeviceConfig {
        offload: false,
        ..DeviceConfig::default()
    };
    let Some(world) = World::with(config, Limits::default()) else {
        return;
    };
    for host in [HOST4, HOST6] {
        let to = listen(&world.internet, host, echo);
        for namespace in world.sides() {
            namespace.run(transfer(to, 1 << 20));
        }
    }
}

#[test]
fn each_direction_ends_on_its_own() {
    let Some(world) = World::new() else { return };
    for host in [HOST4, HOST6] {
        // Answers with the number of bytes, once the program has ended its direction.
        let to = listen(&world.internet, host, async |mut stream| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            let answer = format!("{} bytes", all.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        world.gateway.run(async move {
            let mut stream = TcpStream::connect(to).await.unwrap();
            stream.write_all(&[7; 100_000]).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, "100000 bytes");
        });
    }
}

#[test]
fn resets_are_passed_on_in_both_directions() {
    let Some(world) = World::new() else { return };
    let (reports, reported) = std::sync::mpsc::channel();
    let to = listen(&world.internet, HOST4, move |mut stream| {
        let reports = reports.clone();
        async move {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            if byte == *b"r" {
                stream.set_zero_linger().unwrap();
                return;
            }
            let end = stream.read_exact(&mut byte).await;
            reports.send(end.unwrap_err().kind()).unwrap();
        }
    });
    world.gateway.run(async move {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(b"r").await.unwrap();
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(b"w").await.unwrap();
        stream.set_zero_linger().unwrap();
    });
    let end = reported.recv_timeout(crate::world::LONG).unwrap();
    assert_eq!(end, ErrorKind::ConnectionReset);
    world.until("both connections end", |stats| stats.flows.connections == 0);
}

#[test]
fn a_connection_is_confirmed_only_by_its_target() {
    let Some(world) = World::new() else { return };
    let answered = listen(&world.internet, SLOW, echo).port();
    for namespace in world.sides() {
        namespace.run(async move {
            let connect = |host: &str, port| TcpStream::connect(address(host, port));
            for host in [HOST4, HOST6] {
                let error = connect(host, CLOSED).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{host}");
            }
            let error = connect(FORBIDDEN, 80).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            let error = connect(FAR, 80).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
            let start = Instant::now();
            let error = connect(SLOW, CLOSED).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            assert!(start.elapsed() >= WHILE);
            let start = Instant::now();
            connect(SLOW, answered).await.unwrap();
            assert!(start.elapsed() >= WHILE);
        });
    }
    assert_eq!(world.stats().flows.connections_refused, 10);
}

#[test]
fn a_program_that_gives_up_while_its_target_is_opened_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let port = listen(&world.internet, SLOW, echo).port();
    world.gateway.run(async move {
        let connecting = TcpStream::connect(address(SLOW, port));
        let given_up = tokio::time::timeout(WHILE / 3, connecting).await;
        assert!(given_up.is_err());
    });
    world.until("the connection ends", |stats| {
        stats.flows.packets_in > 0 && stats.flows.connections == 0
    });
    assert_eq!(world.stats().flows.connections_opened, 0);
}

#[test]
fn a_thousand_connections_at_once() {
    let Some(world) = World::new() else { return };
    for (namespace, host) in world.sides().into_iter().zip([HOST4, HOST6]) {
        let to = listen(&world.internet, host, echo);
        namespace.run(async move {
            let mut open = Vec::new();
            for _ in 0..1000 {
                open.push(tokio::spawn(TcpStream::connect(to)));
            }
            for (number, stream) in open.into_iter().enumerate() {
                let mut stream = stream.await.unwrap().unwrap();
                stream.write_u32(number as u32).await.unwrap();
                assert_eq!(stream.read_u32().await.unwrap(), number as u32);
            }
        });
    }
    world.until("all connections end", |stats| stats.flows.connections == 0);
    assert_eq!(world.stats().flows.connections_opened, 2000);
}

#[test]
fn a_port_can_be_used_again_at_once() {
    let Some(world) = World::new() else { return };
    let to = listen(&world.internet, HOST4, echo);
    world.gateway.run(async move {
        for number in 0..20 {
            let connect = async || {
                let socket = TcpSocket::new_v4().unwrap();
                socket.set_reuseaddr(true).unwrap();
                socket.bind("0.0.0.0:4444".parse().unwrap()).unwrap();
                socket.connect(to).await
            };
            let mut stream = loop {
                match connect().await {
                    // A program that another test is just starting still has the socket.
                    Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    connected => break connected.unwrap(),
                }
            };
            stream.write_u32(number).await.unwrap();
            assert_eq!(stream.read_u32().await.unwrap(), number);
            // Otherwise the program's own end would stay in TIME-WAIT.
            stream.set_zero_linger().unwrap();
        }
    });
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let limits = Limits {
        connections: ConnectionLimit::new(2),
        ..Limits::default()
    };
    let Some(world) = World::with(DeviceConfig::default(), limits) else {
        return;
    };
    let to = listen(&world.internet, HOST4, echo);
    world.gateway.run(async move {
        let first = TcpStream::connect(to).await.unwrap();
        let _second = TcpStream::connect(to).await.unwrap();
        let error = TcpStream::connect(to).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        drop(first);
        while TcpStream::connect(to).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn a_shutdown_waits_for_open_connections_and_refuses_new_ones() {
    let Some(mut world) = World::new() else {
        return;
    };
    let to = listen(&world.internet, HOST4, echo);
    let mut stream = world
        .gateway
        .run(async move { TcpStream::connect(to).await.unwrap() });
    world.stop();
    world.gateway.run(async move {
        while TcpStream::connect(to).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stream.write_u32(7).await.unwrap();
        assert_eq!(stream.read_u32().await.unwrap(), 7);
        stream.shutdown().await.unwrap();
        assert!(stream.read_u8().await.is_err());
    });
    world.served().unwrap();
}

#[test]
fn a_deleted_device_is_reported() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.gateway.ip("link del sumlink0");
    let error = world.served().unwrap_err();
    assert!(error.raw_os_error().is_some(), "{error}");
}

#[test]
fn the_listener_serves_no_one_directly() {
    let Some(world) = World::new() else { return };
    let (_, listeners) = world.gateway.program(&["ss", "-Hltn"]);
    let own = listeners
        .split_whitespace()
        .find(|word| word.starts_with("198.18.74.1"));
    // "198.18.74.1%sumlink0:PORT"
    let port: u16 = own.unwrap().rsplit(':').next().unwrap().parse().unwrap();
    world.gateway.run(async move {
        let end = match TcpStream::connect(address("198.18.74.1", port)).await {
            Ok(mut stream) => stream.read_u8().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    });
}
