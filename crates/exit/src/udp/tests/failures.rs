//! Targets that the policy refuses or the network does not reach, and the reports of them.

use super::*;

#[tokio::test]
async fn refused_targets_are_reported_and_get_nothing() {
    let bench = Bench::new(UdpSettings::default());
    bench.policy.send_replace(rules("allow 127.0.0.1"));
    let mut source = bench.open();
    let (allowed, allowed_target) = remote("127.0.0.1:0").await;
    let (refused, refused_target) = remote("127.0.0.2:0").await;
    let mapped_refused = by_name("::ffff:127.0.0.2", &refused_target);
    for target in [&refused_target, &mapped_refused] {
        source.send(target, b"refused");
        if target == &refused_target {
            let failure = source.failure().await;
            assert_eq!(failure, (target.clone(), FlowFailure::NotAllowed));
        }
    }
    let unresolved = Target::new("host.invalid", 9).unwrap();
    source.send(&unresolved, b"lost");
    let failure = source.failure().await;
    assert_eq!(failure, (unresolved, FlowFailure::NameNotResolved));
    source.send(&allowed_target, b"allowed");
    let (_, mapped) = hear(&allowed).await;
    // Nor may a refused remote send.
    refused.send_to(b"refused", mapped).await.unwrap();
    allowed.send_to(b"allowed", mapped).await.unwrap();
    assert_eq!(source.datagram().await.1, &b"allowed"[..]);
    let nothing = refused.try_recv_from(&mut [0; 16]);
    assert_eq!(nothing.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(bench.exit.stats().refused, 3);
}

#[tokio::test]
async fn a_name_with_a_refused_address_is_refused() {
    let bench = Bench::new(UdpSettings::default());
    bench.policy.send_replace(Arc::default());
    let mut source = bench.open();
    let named = Target::new("localhost", 9).unwrap();
    source.send(&named, b"refused");
    assert_eq!(source.failure().await, (named, FlowFailure::NotAllowed));
}

#[tokio::test]
async fn a_new_policy_holds_for_known_remotes() {
    let bench = Bench::new(UdpSettings::default());
    let mut source = bench.open();
    let (socket, target) = remote("127.0.0.1:0").await;
    source.send(&target, b"allowed");
    let (_, mapped) = hear(&socket).await;
    bench.policy.send_replace(Arc::default());
    socket.send_to(b"refused", mapped).await.unwrap();
    bench.until(|stats| stats.refused == 1).await;
    source.send(&target, b"refused");
    assert_eq!(source.failure().await.1, FlowFailure::NotAllowed);
    bench.policy.send_replace(loopback());
    source.send(&target, b"allowed again");
    assert_eq!(hear(&socket).await, (b"allowed again".to_vec(), mapped));
}

#[tokio::test]
async fn a_closed_port_is_reported_for_its_target_only() {
    let bench = Bench::new(UdpSettings::default());
    let mut source = bench.open();
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let (closed, closed_target) = remote(listen).await;
        drop(closed);
        source.send(&closed_target, b"lost");
        let failure = source.failure().await;
        assert_eq!(failure, (closed_target, FlowFailure::Refused));
        // The error costs no other remote a datagram.
        source.exchange(&echo(listen).await, b"kept").await;
    }
    assert_eq!(bench.exit.stats().icmp_errors, 2);
}

#[tokio::test]
async fn a_target_without_a_route_is_reported() {
    let bench = Bench::new(UdpSettings::default());
    bench.policy.send_replace(rules("allow 255.255.255.255"));
    let mut source = bench.open();
    let broadcast: Target = "255.255.255.255:9".parse().unwrap();
    source.send(&broadcast, b"lost");
    let (from, failure) = source.failure().await;
    assert_eq!(from, broadcast);
    let expected = [FlowFailure::Filtered, FlowFailure::NetworkUnreachable];
    assert!(expected.contains(&failure), "{failure:?}");
    assert_eq!(bench.exit.stats().unsent, 1);
}
