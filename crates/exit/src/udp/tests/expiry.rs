//! Sources end after a time without traffic.

use tokio::time::Instant;

use super::*;

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
