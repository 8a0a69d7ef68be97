//! Sources between a client's end in memory and real sockets on loopback.

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;
use crate::datagram::{FlowFailure, MAX_PAYLOAD, PairSocket, Received, pair};
use crate::target::Target;

/// Longer than any step takes; a test that reaches this time has failed.
const LONG: Duration = Duration::from_secs(30);

/// Room of each direction of a source's ends.
const ROOM: usize = 1024;

/// A client with its exit.
struct Bench {
    policy: watch::Sender<Arc<EgressPolicy>>,
    exit: UdpExit,
}

/// A source: the client's end of it, and its end.
struct Open {
    near: PairSocket,
    served: JoinHandle<Ended>,
}

fn rules(text: &str) -> Arc<EgressPolicy> {
    let rules = text.split(';').map(|rule| rule.parse().unwrap());
    Arc::new(EgressPolicy::new(rules))
}

fn loopback() -> Arc<EgressPolicy> {
    rules("allow 127.0.0.0/8;allow [::1]")
}

impl Bench {
    fn new(settings: UdpSettings) -> Self {
        let (policy, updates) = watch::channel(loopback());
        let exit = UdpExit::new(updates, settings, None);
        Self { policy, exit }
    }

    fn open(&self) -> Open {
        let (near, far) = pair(ROOM);
        let exit = self.exit.clone();
        let served = tokio::spawn(async move { exit.serve(far).await });
        Open { near, served }
    }

    /// Waits until the counters satisfy a condition.
    async fn until(&self, condition: impl Fn(&UdpStats) -> bool) {
        let met = async {
            while !condition(&self.exit.stats()) {
                tokio::task::yield_now().await;
            }
        };
        let met = timeout(LONG, met).await;
        assert!(met.is_ok(), "{:?}", self.exit.stats());
    }
}

impl Open {
    fn send(&self, target: &Target, payload: &[u8]) {
        let payload = Bytes::copy_from_slice(payload);
        self.near.send(target, payload, None).unwrap();
    }

    /// The next event; `None` at the end of the source.
    async fn event(&mut self) -> Option<(Target, Received)> {
        let mut events = Vec::new();
        let received = self.near.receive(&mut events, 1);
        timeout(LONG, received).await.expect("an event");
        events.pop()
    }

    async fn datagram(&mut self) -> (Target, Bytes) {
        match self.event().await {
            Some((target, Received::Datagram(payload))) => (target, payload),
            other => panic!("no datagram but {other:?}"),
        }
    }

    async fn failure(&mut self) -> (Target, FlowFailure) {
        match self.event().await {
            Some((target, Received::Failed(failure))) => (target, failure),
            other => panic!("no failure but {other:?}"),
        }
    }

    /// Sends to an echo, and expects the answer from the same target.
    async fn exchange(&mut self, target: &Target, payload: &[u8]) {
        self.send(target, payload);
        let (from, answer) = self.datagram().await;
        assert_eq!((&from, &answer[..]), (target, payload));
    }
}

async fn remote(listen: &str) -> (UdpSocket, Target) {
    let socket = UdpSocket::bind(listen).await.unwrap();
    let target = socket.local_addr().unwrap().into();
    (socket, target)
}

/// A remote that returns every datagram.
async fn echo(listen: &str) -> Target {
    let (socket, target) = remote(listen).await;
    tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            socket.send_to(&buffer[..length], from).await.unwrap();
        }
    });
    target
}

async fn hear(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 1 << 16];
    let heard = timeout(LONG, socket.recv_from(&mut buffer)).await;
    let (length, from) = heard.expect("a datagram").unwrap();
    (buffer[..length].to_vec(), from)
}

fn by_name(name: &str, target: &Target) -> Target {
    Target::new(name, target.port).unwrap()
}

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

#[tokio::test(start_paused = true)]
async fn an_idle_source_ends_and_traffic_keeps_it() {
    let idle = Duration::from_secs(150);
    let bench = Bench::new(UdpSettings {
        idle,
        ..UdpSettings::default()
    });
    let mut source = bench.open();
    let target = echo("127.0.0.1:0").await;
    let mut last = Instant::now();
    for _ in 0..3 {
        tokio::time::sleep(idle - Duration::from_secs(1)).await;
        last = Instant::now();
        source.exchange(&target, b"alive").await;
    }
    assert_eq!(source.served.await.unwrap(), Ended::Idle);
    let lived = last.elapsed();
    assert!(
        lived >= idle && lived < idle + Duration::from_secs(2),
        "{lived:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn strangers_do_not_keep_a_source() {
    let bench = Bench::new(UdpSettings::default());
    let mut source = bench.open();
    let (socket, target) = remote("127.0.0.1:0").await;
    let (stranger, _) = remote("127.0.0.2:0").await;
    source.send(&target, b"only one");
    let (_, mapped) = hear(&socket).await;
    let start = Instant::now();
    let mut heard = 0;
    while !source.served.is_finished() {
        assert!(start.elapsed() < Duration::from_secs(600));
        stranger.send_to(b"still there?", mapped).await.unwrap();
        tokio::time::sleep(Duration::from_secs(50)).await;
        let mut events = Vec::new();
        let received = source.near.receive(&mut events, 8);
        heard += timeout(Duration::from_millis(1), received)
            .await
            .unwrap_or(0);
    }
    assert!(heard > 0);
    assert_eq!(source.served.await.unwrap(), Ended::Idle);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_only_asked_dns_servers_ends_early() {
    let bench = Bench::new(UdpSettings::default());
    let source = bench.open();
    let start = Instant::now();
    source.send(&"127.0.0.1:53".parse().unwrap(), b"query");
    assert_eq!(source.served.await.unwrap(), Ended::Idle);
    let lived = start.elapsed();
    assert!(lived < super::MIN_IDLE, "{lived:?}");
}

#[tokio::test]
async fn a_source_beyond_the_limit_is_refused_with_a_report() {
    let bench = Bench::new(UdpSettings {
        sources: 1,
        ..UdpSettings::default()
    });
    let target = echo("127.0.0.1:0").await;
    let mut call = bench.open();
    call.exchange(&target, b"call").await;
    let mut further = bench.open();
    further.send(&target, b"refused");
    let failure = further.failure().await;
    assert_eq!(failure, (target.clone(), FlowFailure::LimitReached));
    assert_eq!(further.event().await, None);
    assert_eq!(further.served.await.unwrap(), Ended::Refused);
    call.exchange(&target, b"call").await;
    drop(call.near);
    assert_eq!(call.served.await.unwrap(), Ended::Closed);
    bench.open().exchange(&target, b"free").await;
}

#[tokio::test]
async fn the_sockets_of_all_clients_are_bounded() {
    let (_, policy) = watch::channel(loopback());
    let sockets = Arc::new(Semaphore::new(1));
    let benches = [0, 1].map(|_| {
        let (settings, sockets) = (UdpSettings::default(), Arc::clone(&sockets));
        let exit = UdpExit::new(policy.clone(), settings, Some(sockets));
        let (policy, _) = watch::channel(loopback());
        Bench { policy, exit }
    });
    let target = echo("127.0.0.1:0").await;
    let [mut one, mut other] = benches.each_ref().map(Bench::open);
    one.exchange(&target, b"first").await;
    other.send(&target, b"refused");
    let failure = (target.clone(), FlowFailure::LimitReached);
    assert_eq!(other.failure().await, failure);
    drop(one.near);
    one.served.await.unwrap();
    benches[1].open().exchange(&target, b"free").await;
}

#[tokio::test(start_paused = true)]
async fn a_new_source_takes_the_place_of_an_idle_one() {
    let bench = Bench::new(UdpSettings {
        sources: 2,
        ..UdpSettings::default()
    });
    let target = echo("127.0.0.1:0").await;
    let (mut idle, mut busy) = (bench.open(), bench.open());
    idle.exchange(&target, b"once").await;
    for _ in 0..6 {
        busy.exchange(&target, b"always").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let mut new = bench.open();
    new.exchange(&target, b"new").await;
    assert_eq!(idle.served.await.unwrap(), Ended::Replaced);
    busy.exchange(&target, b"always").await;
    assert_eq!(bench.exit.stats().sources, 2);
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_kept_in_both_directions() {
    let rate = 1_000_000;
    let bench = Bench::new(UdpSettings {
        rate: NonZeroU64::new(rate),
        ..UdpSettings::default()
    });
    let mut source = bench.open();
    let (socket, target) = remote("127.0.0.1:0").await;
    for _ in 0..200 {
        source.send(&target, &[0; 1000]);
    }
    let (_, mapped) = hear(&socket).await;
    bench
        .until(|stats| stats.sent + stats.over_rate == 200)
        .await;
    let sent = bench.exit.stats().sent;
    assert!((100..150).contains(&sent), "{sent}");
    // The other direction has its own share.
    for _ in 0..50 {
        socket.send_to(&[0; 1000], mapped).await.unwrap();
        source.datagram().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stranger_cannot_flood_the_client() {
    let bench = Bench::new(UdpSettings::default());
    let source = bench.open();
    let (socket, target) = remote("127.0.0.1:0").await;
    let (stranger, _) = remote("127.0.0.2:0").await;
    source.send(&target, b"hello");
    let (_, mapped) = hear(&socket).await;
    for number in 1..=500 {
        stranger.send_to(&[0; 1024], mapped).await.unwrap();
        bench
            .until(|stats| stats.received + stats.over_rate == number)
            .await;
    }
    let passed = bench.exit.stats().received;
    assert!((128..256).contains(&passed), "{passed}");
    socket.send_to(b"unharmed", mapped).await.unwrap();
    bench.until(|stats| stats.received == passed + 1).await;
}

#[tokio::test]
async fn memory_is_bounded_and_running_flows_continue() {
    let memory = 8 * 1024;
    let bench = Bench::new(UdpSettings {
        memory,
        ..UdpSettings::default()
    });
    let mut source = bench.open();
    let target = echo("127.0.0.1:0").await;
    source.exchange(&target, b"before").await;
    for number in 0..2000u32 {
        let remote = SocketAddr::from(([127, 1, (number >> 8) as u8, number as u8], 9));
        source.send(&remote.into(), b"scan");
        if number % 100 == 0 {
            bench.until(|stats| stats.sent > u64::from(number)).await;
            assert!(bench.exit.stats().memory <= memory);
        }
    }
    bench.until(|stats| stats.sent > 2000).await;
    assert!(bench.exit.stats().memory <= memory);
    source.send(&target, b"after");
    let answer = async {
        loop {
            if let Some((from, Received::Datagram(payload))) = source.event().await {
                return (from, payload);
            }
        }
    };
    assert_eq!(answer.await, (target, Bytes::from_static(b"after")));
}

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
