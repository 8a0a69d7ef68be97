//! Send buffers are bounded in time: a program that writes faster than the paths deliver is little
//! ahead of them, and the paths are never short of data.

use std::time::Duration;

use super::{Pair, Side};
use crate::Class;

/// Paths of 4 and 2 Mbit/s, and their sum in bytes per second.
const LINKS: [(f64, u64); 2] = [(4.0, 12), (2.0, 12)];
const RATE: f64 = 750_000.0;

/// Runs an endless upload until the rates have settled, and four seconds more. Returns the class,
/// the most bytes that the send buffer held meanwhile, and the bytes delivered in these seconds.
fn upload(class: Option<Class>) -> (Class, u64, u64) {
    let mut pair = Pair::connected(&LINKS);
    let id = pair.open_as(class);
    pair.write(Side::Client, id, &vec![7; 20_000_000], false);
    pair.run_for(Duration::from_secs(5));
    let delivered = |pair: &Pair| pair.client.streams[&id].send.base;
    let before = delivered(&pair);
    let mut most = 0;
    for _ in 0..400 {
        pair.run_for(Duration::from_millis(10));
        most = most.max(pair.client.streams[&id].send.buffered());
    }
    let class = pair.client.streams[&id].class();
    (class, most, delivered(&pair) - before)
}

#[test]
fn a_send_buffer_holds_the_time_of_its_class_and_the_paths_stay_busy() {
    for (class, seconds) in [
        (Class::Conversational, 0.08),
        (Class::Interactive, 0.16),
        (Class::Streaming, 0.2),
    ] {
        let (_, most, delivered) = upload(Some(class));
        let bound = ((RATE * seconds) as u64).max(crate::backlog::MINIMUM);
        assert!(most <= bound * 5 / 4, "{class:?}: {most} of {bound}");
        let goodput = delivered as f64 / 4.0 / RATE;
        assert!(goodput > 0.85, "{class:?}: {goodput}");
    }
}

#[test]
fn bulk_is_learned_and_has_the_bound_of_the_background() {
    let (class, most, delivered) = upload(None);
    assert_eq!(class, Class::Background);
    let bound = ((RATE * 0.4) as u64).max(crate::backlog::BULK_MINIMUM);
    assert!(most <= bound * 5 / 4, "{most} of {bound}");
    let goodput = delivered as f64 / 4.0 / RATE;
    assert!(goodput > 0.9, "{goodput}");
}
