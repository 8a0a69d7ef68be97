//! Ends, resets, limits and the shutdown of a served port.

use std::io::ErrorKind;
use std::net::SocketAddr;

use crate::common::{Direct, Proxy, echo, exchange, origin, rest, within};
use sumlink_proxy::{Client, ConnectionLimit, Forward, ListenError, Listener, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A connection through a forward: the program's end and the target's.
async fn pair() -> (Proxy, TcpStream, TcpStream) {
    let (listener, target) = origin("127.0.0.1:0").await;
    let proxy = Proxy::start("127.0.0.1:0", Service::Forward(target)).await;
    let client = proxy.connect().await;
    let (accepted, _) = within(listener.accept()).await.unwrap();
    (proxy, client, accepted)
}

#[tokio::test]
async fn the_end_of_one_direction_leaves_the_other_open() {
    for swap in [false, true] {
        let (_proxy, client, target) = pair().await;
        let (mut first, mut second) = if swap {
            (target, client)
        } else {
            (client, target)
        };
        first.write_all(b"question").await.unwrap();
        first.shutdown().await.unwrap();
        assert_eq!(rest(&mut second).await.unwrap(), b"question");
        let answer = vec![b'a'; 3_000_000];
        let (sent, received) = tokio::join!(
            async {
                second.write_all(&answer).await?;
                second.shutdown().await
            },
            rest(&mut first),
        );
        sent.unwrap();
        assert!(received.unwrap() == answer);
    }
}

#[tokio::test]
async fn a_reset_on_one_side_is_a_reset_on_the_other() {
    for swap in [false, true] {
        let (_proxy, client, target) = pair().await;
        let (mut first, mut second) = if swap {
            (target, client)
        } else {
            (client, target)
        };
        second.write_all(b"the first half").await.unwrap();
        exchange(&mut first, b"", b"the first half").await;
        second.set_zero_linger().unwrap();
        drop(second);
        let error = rest(&mut first).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn a_forward_whose_target_refuses_resets_the_program() {
    let (closed, target) = origin("127.0.0.1:0").await;
    drop(closed);
    let proxy = Proxy::start("127.0.0.1:0", Service::Forward(target)).await;
    let error = rest(&mut proxy.connect().await).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_reach_their_target_in_order() {
    for _ in 0..10 {
        let (origin, target) = origin("127.0.0.1:0").await;
        let listen = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::forward(Forward { listen, target }).await.unwrap();
        let mut programs = Vec::new();
        for number in 0..20 {
            let mut program = TcpStream::connect(listener.local_addr()).await.unwrap();
            program.write_u8(number).await.unwrap();
            programs.push(program);
        }
        // All connections are waiting already, as on a busy machine.
        let _proxy = Proxy::serve(listener);
        let mut order = Vec::new();
        for _ in 0..20 {
            let (mut tcp, _) = within(origin.accept()).await.unwrap();
            order.push(within(tcp.read_u8()).await.unwrap());
        }
        assert!(order.is_sorted(), "{order:?}");
    }
}

#[tokio::test]
async fn a_shutdown_closes_the_port_and_lets_connections_end() {
    let (proxy, mut client, mut target) = pair().await;
    proxy.stop.send(()).unwrap();
    within(async {
        // Connections are refused as soon as the port is closed.
        while TcpStream::connect(proxy.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!proxy.served.is_finished());
    exchange(&mut client, b"still", b"").await;
    exchange(&mut target, b"there", b"still").await;
    exchange(&mut client, b"", b"there").await;
    drop(client);
    drop(target);
    within(proxy.served).await.unwrap();
}

#[tokio::test]
async fn an_aborted_server_resets_its_connections() {
    let (proxy, mut client, mut target) = pair().await;
    target.write_all(b"the first half").await.unwrap();
    exchange(&mut client, b"", b"the first half").await;
    proxy.served.abort();
    for side in [&mut client, &mut target] {
        let error = rest(side).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

/// Whether a connection is reset; an early reset arrives while it is being established.
async fn is_reset(address: SocketAddr) -> bool {
    let outcome = async {
        let mut program = TcpStream::connect(address).await?;
        rest(&mut program).await
    };
    outcome
        .await
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

/// A SOCKS5 greeting and a request for 192.0.2.1:80.
const SOCKS_REQUEST: &[u8] = b"\x05\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50";

#[tokio::test]
async fn the_connection_idle_longest_is_reset_for_another_machine() {
    let target = echo("127.0.0.1:0").await;
    let limit = ConnectionLimit::new(2);
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Service::Forward(target)).await;
    let proxy = Proxy::serve(listener.unwrap().with_limit(limit.clone()));
    let [mut idle, mut kept] = [proxy.connect().await, proxy.connect().await];
    exchange(&mut idle, b"first", b"first").await;
    exchange(&mut kept, b"other", b"other").await;
    let machine = Client::lan([192, 0, 2, 7].into());
    let place = limit.permit(machine).unwrap();
    let error = rest(&mut idle).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // Both have one now.
    assert!(limit.permit(machine).is_none());
    assert!(is_reset(proxy.address).await);
    exchange(&mut kept, b"still", b"still").await;
    drop(place);
}

#[tokio::test]
async fn connections_above_the_limit_are_refused_at_once_in_their_own_protocol() {
    let target = echo("127.0.0.1:0").await;
    let limit = ConnectionLimit::new(2);
    let services = [
        Service::Forward(target),
        Service::Socks5,
        Service::HttpProxy,
    ];
    let mut proxies = Vec::new();
    for service in services {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), service).await;
        proxies.push(Proxy::serve(listener.unwrap().with_limit(limit.clone())));
    }
    let [forward, socks, http] = &proxies[..] else {
        unreachable!("only three services exist")
    };
    let mut held = [forward.connect().await, forward.connect().await];
    for (program, sent) in held.iter_mut().zip([b"first", b"other"]) {
        exchange(program, sent, sent).await;
    }

    let mut refused = socks.connect().await;
    // No authentication; then "general SOCKS server failure" (RFC 1928, section 6).
    let answer = b"\x05\x00\x05\x01\x00\x01\0\0\0\0\0\0";
    exchange(&mut refused, SOCKS_REQUEST, answer).await;
    assert_eq!(rest(&mut refused).await.unwrap(), b"");
    let mut refused = http.connect().await;
    let request = b"CONNECT 192.0.2.1:80 HTTP/1.1\r\nHost: 192.0.2.1:80\r\n\r\n";
    let answer = b"HTTP/1.1 503 Service Unavailable\r\n";
    exchange(&mut refused, request, answer).await;
    assert!(!rest(&mut refused).await.unwrap().is_empty());
    assert!(is_reset(forward.address).await);

    // More than the number of answers: no connection waits for those that send no request.
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(socks.address).await);
    }
    assert!(is_reset(socks.address).await);
    drop(silent);

    // The place of an ended connection is free again, for all entries.
    let [ended, mut kept] = held;
    drop(ended);
    within(async {
        loop {
            let Ok(mut program) = TcpStream::connect(forward.address).await else {
                continue;
            };
            let _ = program.write_all(b"again").await;
            let mut received = [0; 5];
            if program.read_exact(&mut received).await.is_ok() {
                return;
            }
        }
    })
    .await;
    exchange(&mut kept, b"still", b"still").await;
}

#[tokio::test]
async fn a_dual_stack_port_accepts_ipv4() {
    let target = echo("127.0.0.1:0").await;
    let proxy = Proxy::start("[::]:0", Service::Forward(target)).await;
    for ip in ["127.0.0.1", "::1"] {
        let mut client = TcpStream::connect((ip, proxy.address.port()))
            .await
            .unwrap();
        exchange(&mut client, b"hello", b"hello").await;
    }
}

#[tokio::test]
async fn a_port_that_cannot_be_bound_says_why() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = Listener::bind(address, Service::Socks5).await.unwrap_err();
    assert!(matches!(error, ListenError::Taken(..)));
    let text = format!("cannot listen on {address} for SOCKS5: the port is taken");
    assert!(error.to_string().starts_with(&text));

    // TEST-NET-1, RFC 5737.
    let elsewhere = "192.0.2.1:0".parse().unwrap();
    let error = Listener::bind(elsewhere, Service::HttpProxy)
        .await
        .unwrap_err();
    assert!(matches!(error, ListenError::NoSuchAddress(..)));
}

#[tokio::test]
async fn the_future_can_be_dropped_before_it_runs() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Service::Socks5)
        .await
        .unwrap();
    let address = listener.local_addr();
    drop(listener.serve(Direct, std::future::pending()));
    let mut client = TcpStream::connect(address).await;
    if let Ok(client) = &mut client {
        assert!(client.read(&mut [0]).await.is_err());
    }
}
