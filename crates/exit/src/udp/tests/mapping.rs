//! Addresses, names and sizes: each answer comes from the target as the client wrote it.

use super::*;
use crate::datagram::MAX_PAYLOAD;

#[tokio::test]
async fn answers_come_from_the_target_as_the_client_wrote_it() {
    let bench = Bench::new(UdpSettings::default());
    let mut source = bench.open();
    let (v4, v6) = (echo("127.0.0.1:0").await, echo("[::1]:0").await);
    let mapped = by_name("::ffff:127.0.0.1", &v4);
    let mut targets = vec![v4.clone(), v6, mapped];
    // "localhost" may resolve to either family first.
    let (near, port) = (remote("127.0.0.1:0").await, v4.port);
    drop(near);
    if UdpSocket::bind(("::1", port)).await.is_ok() {
        echo(&format!("[::1]:{port}")).await;
    }
    targets.push(by_name("localhost", &v4));
    targets.push(v4);
    for target in &targets {
        for payload in [&b"question"[..], b"", b"?"] {
            source.exchange(target, payload).await;
        }
    }
    let stats = bench.exit.stats();
    assert_eq!((stats.sent, stats.received), (15, 15));
    assert!(stats.memory > 0);
    drop(source.near);
    assert_eq!(source.served.await.unwrap(), Ended::Closed);
    let stats = bench.exit.stats();
    assert_eq!((stats.sources, stats.memory), (0, 0));
}

#[tokio::test]
async fn datagrams_of_every_length_pass() {
    let bench = Bench::new(UdpSettings::default());
    let mut source = bench.open();
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let target = echo(listen).await;
        for length in [0, 1, 1472, 1473, 9000, MAX_PAYLOAD] {
            source.exchange(&target, &vec![length as u8; length]).await;
        }
        let oversized = Bytes::from(vec![0; MAX_PAYLOAD + 1]);
        assert!(source.near.send(&target, oversized, None).is_err());
    }
}

#[tokio::test]
async fn all_remotes_see_one_port_and_any_remote_may_answer() {
    let bench = Bench::new(UdpSettings::default());
    let mut source = bench.open();
    let (one, one_target) = remote("127.0.0.1:0").await;
    let (other, other_target) = remote("127.0.0.2:0").await;
    source.send(&one_target, b"to one");
    let (_, mapped) = hear(&one).await;
    // RFC 4787, REQ-8: a target that answers from another port, and a host never sent to.
    let (elsewhere, elsewhere_target) = remote("127.0.0.1:0").await;
    elsewhere.send_to(b"from elsewhere", mapped).await.unwrap();
    let from_elsewhere = (elsewhere_target, Bytes::from_static(b"from elsewhere"));
    assert_eq!(source.datagram().await, from_elsewhere);
    other.send_to(b"first", mapped).await.unwrap();
    assert_eq!(source.datagram().await.0, other_target);
    // RFC 4787, REQ-1.
    source.send(&other_target, b"to other");
    assert_eq!(hear(&other).await, (b"to other".to_vec(), mapped));
}

#[tokio::test]
async fn one_address_by_two_targets_answers_to_the_one_used_last() {
    let bench = Bench::new(UdpSettings::default());
    let mut source = bench.open();
    let (socket, by_address) = remote("127.0.0.1:0").await;
    let named = Target::new("localhost", by_address.port).unwrap();
    source.send(&named, b"1");
    // The resolver may prefer IPv6, where nothing listens.
    let first = timeout(LONG, async {
        tokio::select! {
            heard = hear(&socket) => Some(heard.1),
            _ = source.failure() => None,
        }
    });
    let Some(mapped) = first.await.unwrap() else {
        return;
    };
    for target in [&by_address, &named, &by_address] {
        source.send(target, b"2");
        hear(&socket).await;
        socket.send_to(b"answer", mapped).await.unwrap();
        assert_eq!(source.datagram().await.0, *target);
    }
}

#[tokio::test]
async fn datagrams_wait_for_the_name_in_order() {
    let bench = Bench::new(UdpSettings::default());
    let mut source = bench.open();
    let (socket, target) = remote("127.0.0.1:0").await;
    // The only name without a lookup over the network.
    bench.policy.send_replace(rules("allow 127.0.0.0/8"));
    let named = Target::new("localhost", target.port).unwrap();
    for number in 0..20u8 {
        source.send(&named, &[number]);
    }
    for number in 0..20u8 {
        assert_eq!(hear(&socket).await.0, [number]);
    }
    let (_, mapped) = {
        source.send(&named, b"again");
        hear(&socket).await
    };
    socket.send_to(b"answer", mapped).await.unwrap();
    assert_eq!(source.datagram().await.0, named);
}
