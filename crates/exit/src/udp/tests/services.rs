//! Echo requests, DNS queries and published ports.

use super::*;

#[tokio::test]
async fn a_datagram_to_port_zero_is_an_echo_request() {
    let bench = Bench::new(UdpSettings::default());
    let mut source = bench.open();
    let v4 = Target::echo(crate::target::Host::Ip([127, 0, 0, 1].into()));
    // Neither kind of socket is permitted everywhere.
    source.send(&v4, b"\0\x01probe");
    match source.event().await {
        Some((_, Received::Failed(FlowFailure::Other))) => return,
        Some((from, Received::Datagram(answer))) => {
            assert_eq!((&from, &answer[..]), (&v4, &b"\0\x01probe"[..]));
        }
        other => panic!("{other:?}"),
    }
    // Beside datagrams of the same source, and by name.
    let udp = echo("127.0.0.1:0").await;
    source.exchange(&udp, b"datagram").await;
    let v6 = Target::echo(crate::target::Host::Ip("::1".parse().unwrap()));
    let name = Target::echo(crate::target::Host::Name("localhost".to_owned()));
    for (number, target) in [&v6, &name, &v4].into_iter().enumerate() {
        source.exchange(target, &[0, number as u8]).await;
        source.exchange(target, &[1, number as u8, 5, 6, 7]).await;
    }
    // Too short for a sequence number.
    source.send(&v4, b"x");
    bench.until(|stats| stats.unsent == 1).await;
    bench.policy.send_replace(rules("deny 127.0.0.0/8"));
    source.send(&v4, b"\0\x02");
    assert_eq!(source.failure().await, (v4, FlowFailure::NotAllowed));
}

#[tokio::test]
async fn queries_reach_the_resolvers_although_the_policy_refuses_their_address() {
    use crate::resolver::{ResolverSource, Resolvers};
    let (policy, updates) = watch::channel(Arc::default());
    let resolver = Target::new(crate::target::RESOLVER, 53).unwrap();
    let answering = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let listed = ResolverSource::Listed(vec![answering.local_addr().unwrap()]);
    let exit =
        UdpExit::new(updates, UdpSettings::default(), None).with_resolvers(Resolvers::new(listed));
    let bench = Bench { policy, exit };
    let mut source = bench.open();
    let query = [1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    source.send(&resolver, &query);
    let (mut answer, from) = hear(&answering).await;
    assert_eq!(answer, query);
    answer[2] |= 0x80;
    answering.send_to(&answer, from).await.unwrap();
    assert_eq!(source.datagram().await, (resolver.clone(), answer.into()));
    // Its address stays closed, and so do other ports and services.
    let direct = Target::from(answering.local_addr().unwrap());
    source.send(&direct, &query);
    assert_eq!(source.failure().await, (direct, FlowFailure::NotAllowed));
    for name in [crate::target::RESOLVER, crate::target::PUBLISH] {
        let other = Target::new(name, 853).unwrap();
        source.send(&other, &query);
        assert_eq!(
            source.failure().await,
            (other, FlowFailure::NameNotResolved)
        );
    }
    // An exit without resolvers.
    let bench = Bench::new(UdpSettings::default());
    let mut source = bench.open();
    source.send(&resolver, &query);
    assert_eq!(source.failure().await, (resolver, FlowFailure::NotAllowed));
}

#[tokio::test]
async fn a_published_port_takes_datagrams_from_anyone_and_sends_only_answers() {
    let settings = UdpSettings {
        unsolicited: 2,
        ..UdpSettings::default()
    };
    let bench = Bench::new(settings);
    // The policy does not apply: the remotes have addresses that it refuses.
    bench.policy.send_replace(Arc::default());
    let port = PublishedPort::bind(None, 0, 0).unwrap();
    let address = port.local_addr().unwrap();
    let (near, far) = pair(ROOM);
    let exit = bench.exit.clone();
    let served = tokio::spawn(async move { exit.serve_published(&port, far).await });
    let mut source = Open { near, served };
    let mut remotes = Vec::new();
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let (socket, target) = remote(listen).await;
        let host = socket.local_addr().unwrap().ip();
        let to = SocketAddr::new(host, address.port());
        for text in ["one", "two"] {
            socket.send_to(text.as_bytes(), to).await.unwrap();
            assert_eq!(source.datagram().await, (target.clone(), text.into()));
            source.send(&target, b"answer");
            assert_eq!(hear(&socket).await, (b"answer".to_vec(), to));
        }
        remotes.push((socket, target));
    }
    // A third one at once, and an answer to a remote that has not asked.
    let (third, target) = remote("127.0.0.1:0").await;
    let to = SocketAddr::from(([127, 0, 0, 1], address.port()));
    third.send_to(b"three", to).await.unwrap();
    bench.until(|stats| stats.over_limit == 1).await;
    source.send(&target, b"unasked");
    bench.until(|stats| stats.refused == 1).await;
    let Open { near, served } = source;
    drop(near);
    assert_eq!(timeout(LONG, served).await.unwrap().unwrap(), Ended::Closed);
    // The port is free again.
    UdpSocket::bind(to).await.unwrap();
}
