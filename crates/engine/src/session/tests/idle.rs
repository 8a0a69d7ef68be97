//! Sessions without streams: the PINGs on their paths, and the first stream after a long time.

use std::time::Duration;

use super::{Pair, Side};
use crate::{Instant, PathId};

const SECOND: Duration = Duration::from_secs(1);

/// The times at which either side had something to send, in an idle session.
fn sends(pair: &mut Pair, time: Duration) -> Vec<(Side, Instant)> {
    let sent = |pair: &mut Pair, side: Side| -> u64 {
        pair.session(side).paths().map(|path| path.sent()).sum()
    };
    let end = pair.now + time;
    let mut sends = Vec::new();
    while pair.now < end {
        let before = Side::BOTH.map(|side| sent(pair, side));
        pair.run_for(SECOND);
        for (side, before) in Side::BOTH.into_iter().zip(before) {
            if sent(pair, side) > before {
                sends.push((side, pair.now));
            }
        }
    }
    sends
}

#[test]
fn an_idle_session_asks_ever_less_often_and_at_last_every_45_seconds() {
    let mut pair = Pair::connected(&[(20.0, 10)]);
    pair.run_for(2 * SECOND);
    let sends = sends(&mut pair, 600 * SECOND);
    let of_client: Vec<Instant> = (sends.iter())
        .filter(|(side, _)| *side == Side::Client)
        .map(|(_, at)| *at)
        .collect();
    let gaps: Vec<u64> = of_client
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs())
        .collect();
    assert!(gaps.starts_with(&[10, 20, 40, 45]), "{gaps:?}");
    assert!(gaps[3..].iter().all(|gap| *gap == 45), "{gaps:?}");
    // The server answers, and asks nothing: each PING is one exchange.
    let of_server = sends.len() - of_client.len();
    assert_eq!(of_server, of_client.len(), "{sends:?}");
}

#[test]
fn a_server_asks_when_the_client_does_not() {
    let mut pair = Pair::connected(&[(20.0, 10), (20.0, 30)]);
    pair.run_for(300 * SECOND);
    let sent = |pair: &Pair| pair.server.paths().map(|path| path.sent()).sum::<u64>();
    let before = sent(&pair);
    for carrier in pair.carriers.values_mut() {
        carrier.blackhole = true;
    }
    pair.run_for(120 * SECOND);
    assert!(sent(&pair) > before);
}

/// The path dies unnoticed between two PINGs that are far apart.
#[test]
fn a_stream_of_a_long_idle_session_does_not_wait_for_a_dead_path() {
    let mut pair = Pair::connected(&[(20.0, 10), (20.0, 30)]);
    pair.run_for(600 * SECOND);
    pair.carriers.get_mut(&PathId(0)).unwrap().blackhole = true;
    let began = pair.now;
    let id = pair.open();
    pair.write(Side::Client, id, b"question", true);
    pair.write(Side::Server, id, b"answer", true);
    pair.run_to_end(10 * SECOND);
    let took = pair.program(Side::Client, id).done_at - began;
    assert!(took < Duration::from_millis(300), "{took:?}");
}
