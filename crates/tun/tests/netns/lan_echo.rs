use std::sync::Arc;
use std::time::{Duration, Instant};

use sumlink_proxy::{Side, SourceLimit};
use sumlink_tun::{Device, DeviceConfig, LanEcho, StatsHandle};

use crate::world::{HOST4, HOST6, LONG, World};

/// Serves the capture, beside a device that is not served. Returns its counters.
fn capture(world: &World) -> StatsHandle {
    let opener = world.opener.clone();
    let stats = world.gateway.run(async move {
        let device = Device::open(&DeviceConfig::default()).await.unwrap();
        // Only its routes matter. It lives as long as the namespace.
        std::mem::forget(device);
        let echo = LanEcho::open("lan", "sumlink0").unwrap();
        let stats = echo.stats();
        let limit = SourceLimit::default();
        tokio::spawn(echo.serve(opener, limit, Arc::default(), std::future::pending()));
        stats
    });
    world.gateway.ip("-4 route add default dev sumlink0");
    world.gateway.ip("-6 route add default dev sumlink0");
    stats
}

fn ping(world: &World, size: &str, host: &str) -> String {
    let words = [
        "ping", "-n", "-W", "9", "-c", "3", "-i", "0.2", "-s", size, host,
    ];
    world.lan.program(&words).1
}

#[test]
fn requests_of_the_lan_are_answered_without_a_device() {
    let Some(world) = World::without_device() else {
        return;
    };
    let stats = capture(&world);
    for host in [HOST4, HOST6] {
        for size in ["0", "56", "1400", "3000"] {
            let text = ping(&world, size, host);
            assert!(text.contains("3 received"), "{host} {size}: {text}");
        }
    }
    let origins = world.opener.origins.lock().unwrap();
    assert!(origins.iter().all(|origin| origin.from == Side::Lan) && origins.len() == 8);
    assert_eq!(stats.stats().drops.checksum, 0);
}

#[test]
fn requests_to_the_gateway_itself_and_with_a_spent_hop_limit_are_not_passed_on() {
    let Some(world) = World::without_device() else {
        return;
    };
    let stats = capture(&world);
    let text = ping(&world, "56", "192.168.77.1");
    assert!(
        text.contains("3 received") && !text.contains("DUP"),
        "{text}"
    );
    assert_eq!(stats.stats().flows.echo_sources, 0);
    let (_, text) = world
        .lan
        .program(&["ping", "-n", "-c", "1", "-W", "1", "-t", "1", HOST4]);
    assert!(
        text.to_lowercase().contains("time to live exceeded"),
        "{text}"
    );
    // The kernel has answered, too, perhaps earlier.
    let start = Instant::now();
    while stats.stats().drops.hop_limit == 0 {
        assert!(start.elapsed() < LONG, "{:?}", stats.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(world.opener.origins.lock().unwrap().is_empty());
}

#[test]
fn the_interface_may_vanish_and_return() {
    let Some(world) = World::without_device() else {
        return;
    };
    capture(&world);
    let text = ping(&world, "56", HOST4);
    assert!(text.contains("3 received"), "{text}");
    world.gateway.ip("link del lan");
    world.join_lan();
    let answered = (0..20).any(|_| ping(&world, "56", HOST4).contains("3 received"));
    assert!(answered);
}
