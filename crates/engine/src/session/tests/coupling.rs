//! Coupled mode in sessions: no path has more in flight than its share of its window, and
//! everything still arrives.

use std::time::Duration;

use super::{Pair, Side};
use crate::scheduler::fbdt::Coupling;
use crate::{Class, Config, PathId, Role};

/// Amount by which one pick may exceed the limit: one piece.
const PIECE: u64 = 64 * 1024;

/// Time for three megabytes over 50 Mbit/s at 10 ms and at 15 ms; `bound` returns the permitted
/// share of each path's window.
fn upload(coupling: Coupling, bound: impl Fn(PathId) -> f64) -> Duration {
    let mut client = Config::new(Role::Client);
    client.fbdt.coupling = coupling;
    let mut pair = Pair::with(client, Config::new(Role::Server));
    pair.connect(&[(50.0, 10), (50.0, 15)]);
    pair.end_slow_start();
    let begin = pair.now;
    let id = pair.open_as(Class::Background);
    pair.write(Side::Client, id, &vec![7; 3_000_000], true);
    pair.write(Side::Server, id, b"", true);
    let arrived = |pair: &Pair| {
        let program = pair.programs.get(&(Side::Server, id));
        program.is_some_and(|program| program.received.len() == 3_000_000)
    };
    while !pair.run_until(arrived, Duration::from_millis(2)) {
        for path in pair.client.paths() {
            let sample = path.sample();
            let most = bound(path.id()) * sample.cwnd as f64;
            let under_way = sample.in_flight + sample.unsent;
            assert!(under_way as f64 <= most + PIECE as f64, "{path:?}");
        }
        assert!(pair.now - begin < Duration::from_secs(20), "{pair:?}");
    }
    pair.now - begin
}

#[test]
fn coupled_paths_stay_within_their_share_and_deliver_everything() {
    let free = upload(Coupling::Decoupled, |_| 1.0);
    // The windows are approximately 320 and 445 kB: the best of them, by the round trip, gets half
    // of the sum.
    upload(Coupling::Fair, |_| 0.53);
    let scaled = |alpha, beta| {
        let part = move |id| if id == PathId(0) { alpha } else { beta };
        upload(Coupling::Scaled { alpha, beta }, part)
    };
    let (tenth, twentieth) = (scaled(0.1, 0.1), scaled(0.1, 0.01));
    // 32 kB in 20 ms and 45 kB in 30 ms are 25 Mbit/s, a quarter of the links' rate.
    assert!(tenth > 3 * free, "{tenth:?}, {free:?}");
    assert!(twentieth > tenth.mul_f64(1.2), "{twentieth:?}, {tenth:?}");
}
