//! Limits on sources, sockets, rates and memory.

use super::*;

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
