//! A SOCKS5 port, as seen by programs.

use crate::common::{FAILING, Proxy, echo, exchange, origin, rest, within};
use sumlink_proxy::{OpenError, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SUCCEEDED: [u8; 10] = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

fn named(command: u8, name: &str, port: u16) -> Vec<u8> {
    let mut request = vec![5, command, 0, 3, name.len() as u8];
    request.extend_from_slice(name.as_bytes());
    request.extend(port.to_be_bytes());
    request
}

#[tokio::test]
async fn connects_by_name_and_address_over_both_families() {
    let (v4, v6) = (echo("127.0.0.1:0").await.port, echo("[::1]:0").await.port);
    let mut v4_request = vec![5, 1, 0, 1, 127, 0, 0, 1];
    v4_request.extend(v4.to_be_bytes());
    let mut v6_request = vec![5, 1, 0, 4];
    v6_request.extend(std::net::Ipv6Addr::LOCALHOST.octets());
    v6_request.extend(v6.to_be_bytes());
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let proxy = Proxy::start(listen, Service::Socks5).await;
        for request in [
            v4_request.clone(),
            v6_request.clone(),
            named(1, "echo.test", v4),
            named(1, "127.0.0.1", v4),
            named(1, "::1", v6),
        ] {
            let mut client = proxy.connect().await;
            exchange(&mut client, &[5, 2, 0, 2], &[5, 0]).await;
            exchange(&mut client, &request, &SUCCEEDED).await;
            exchange(&mut client, b"hello", b"hello").await;
        }
    }
}

#[tokio::test]
async fn a_client_that_insists_on_a_password_is_accepted() {
    let port = echo("127.0.0.1:0").await.port;
    let proxy = Proxy::start("127.0.0.1:0", Service::Socks5).await;
    let mut client = proxy.connect().await;
    exchange(&mut client, &[5, 1, 2], &[5, 2]).await;
    exchange(&mut client, b"\x01\x04name\x08password", &[1, 0]).await;
    exchange(&mut client, &named(1, "echo.test", port), &SUCCEEDED).await;
    exchange(&mut client, b"hello", b"hello").await;
}

#[tokio::test]
async fn early_data_is_relayed_however_it_is_split() {
    let port = echo("127.0.0.1:0").await.port;
    let proxy = Proxy::start("127.0.0.1:0", Service::Socks5).await;
    let sent = [&[5, 1, 0], &named(1, "echo.test", port)[..], b"ahead"].concat();
    let expected = [&[5, 0], &SUCCEEDED[..], b"ahead"].concat();
    let mut client = proxy.connect().await;
    exchange(&mut client, &sent, &expected).await;
    let mut client = proxy.connect().await;
    client.set_nodelay(true).unwrap();
    for byte in &sent {
        client.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    exchange(&mut client, b"", &expected).await;
}

#[tokio::test]
async fn failures_have_their_reply_codes() {
    let proxy = Proxy::start("127.0.0.1:0", Service::Socks5).await;
    let failing = FAILING.map(|(name, error)| {
        let code = match error {
            OpenError::NotAllowed => 2,
            OpenError::Unreachable => 3,
            OpenError::NameNotResolved => 4,
            OpenError::Refused => 5,
            OpenError::TimedOut => 6,
            _ => 1,
        };
        (named(1, name, 80), code)
    });
    let malformed = [
        (named(2, "echo.test", 80), 7),
        (vec![5, 3, 0, 1, 0, 0, 0, 0, 0, 0], 7),
        (named(9, "echo.test", 80), 7),
        (vec![5, 1, 0, 2], 8),
        (named(1, "echo.test", 0), 1),
        (named(1, "no/name", 80), 1),
        (named(1, "", 80), 1),
    ];
    for (request, code) in failing.into_iter().chain(malformed) {
        let mut client = proxy.connect().await;
        exchange(&mut client, &[5, 1, 0], &[5, 0]).await;
        client.write_all(&request).await.unwrap();
        let reply = rest(&mut client).await.unwrap();
        assert_eq!(reply, [5, code, 0, 1, 0, 0, 0, 0, 0, 0], "{request:?}");
    }
}

#[tokio::test]
async fn other_protocols_get_an_answer_and_a_clean_end() {
    let proxy = Proxy::start("127.0.0.1:0", Service::Socks5).await;
    let long_request = format!(
        "GET http://a/ HTTP/1.1\r\nA: {}\r\n\r\n",
        "a".repeat(100_000)
    );
    for (sent, answer) in [
        (&[5, 1, 1][..], &[5, 0xff][..]),
        (
            b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00",
            &[0, 91, 0, 0, 0, 0, 0, 0],
        ),
        (long_request.as_bytes(), b"HTTP/1.1 400 Bad Request\r\n"),
        (b"\x16\x03\x01\x02\x00", b""),
        (b"\xff\xff\xff", b""),
        (b"", b""),
    ] {
        let mut client = proxy.connect().await;
        client.write_all(sent).await.unwrap();
        client.shutdown().await.unwrap();
        let received = rest(&mut client).await.unwrap();
        assert!(
            received.starts_with(answer),
            "{}",
            String::from_utf8_lossy(&received)
        );
        assert_eq!(received.is_empty(), answer.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_endless_handshake_times_out() {
    let proxy = Proxy::start("127.0.0.1:0", Service::Socks5).await;
    let mut client = proxy.connect().await;
    client.write_all(&[5]).await.unwrap();
    let start = tokio::time::Instant::now();
    let _ = client.read(&mut [0]).await;
    assert!(start.elapsed().as_secs() >= 10);
}

#[tokio::test]
async fn a_client_that_leaves_while_its_target_connects_leaves_nothing_behind() {
    let (listener, target) = origin("127.0.0.1:0").await;
    let proxy = Proxy::start("127.0.0.1:0", Service::Socks5).await;
    let mut client = proxy.connect().await;
    exchange(&mut client, &[5, 1, 0], &[5, 0]).await;
    client
        .write_all(&named(1, "origin.test", target.port))
        .await
        .unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    let (mut accepted, _) = within(listener.accept()).await.unwrap();
    assert!(!matches!(within(accepted.read(&mut [0])).await, Ok(1..)));
    proxy.stop.send(()).unwrap();
    within(proxy.served).await.unwrap();
}
