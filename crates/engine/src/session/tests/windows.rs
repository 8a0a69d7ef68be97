//! The measurement behind the sizes of transmission windows.
//!
//! `cargo test -p sumlink-engine windows -- --nocapture` prints the table of
//! docs/notes/fbdt-parameters.md.

use std::time::Duration;

use super::{Pair, Side};
use crate::scheduler::fbdt::{FbdtConfig, WindowRule};
use crate::{Class, Config, Role};

/// Paths, each with Mbit/s and one-way milliseconds.
const PATHS: [&[(f64, u64)]; 3] = [
    &[(60.0, 10), (180.0, 4)],
    &[(10.0, 50), (100.0, 5), (50.0, 150), (200.0, 2)],
    &[(100.0, 5), (10.0, 50)],
];

/// The result of a rule.
#[derive(Debug)]
struct Outcome {
    /// Seconds from the request to the last byte of an object, or the highest delay of a frame.
    seconds: f64,
    /// Most bytes held behind a gap.
    reorder: u64,
}

/// Two sessions in which the windows of every class follow `rule`.
fn pair(rule: WindowRule, links: &[(f64, u64)]) -> Pair {
    let config = |role| Config {
        fbdt: FbdtConfig {
            windows: [rule; 4],
            ..FbdtConfig::default()
        },
        ..Config::new(role)
    };
    let mut pair = Pair::with(config(Role::Client), config(Role::Server));
    pair.connect(links);
    pair
}

/// The server sends an object.
fn object(rule: WindowRule, class: Class, links: &[(f64, u64)], len: usize) -> Outcome {
    let mut pair = pair(rule, links);
    let id = pair.open_as(class);
    let start = pair.now;
    pair.write(Side::Client, id, b"GET", true);
    pair.write(Side::Server, id, &vec![7; len], true);
    pair.run_to_end(Duration::from_secs(100));
    let seconds = (pair.program(Side::Client, id).done_at - start).as_secs_f64();
    Outcome {
        seconds,
        reorder: pair.client.stats().reorder_peak,
    }
}

/// The server writes a frame of `len` bytes every `every` for three seconds.
fn frames(
    rule: WindowRule,
    class: Class,
    links: &[(f64, u64)],
    len: usize,
    every: Duration,
) -> Outcome {
    let mut pair = pair(rule, links);
    let id = pair.open_as(class);
    pair.write(Side::Client, id, b"PLAY", false);
    let reported = |pair: &Pair| pair.knows(Side::Server, id);
    assert!(pair.run_until(reported, Duration::from_secs(1)));
    let mut written = Vec::new();
    let end = pair.now + Duration::from_secs(3);
    while pair.now < end {
        written.push(pair.now);
        pair.write(Side::Server, id, &vec![7; len], false);
        pair.run_for(every);
    }
    pair.run_for(Duration::from_secs(1));
    let arrivals = &pair.program(Side::Client, id).arrivals;
    let delay = |(index, at): (usize, &crate::Instant)| {
        let whole = arrivals.iter().find(|(_, had)| *had >= (index + 1) * len);
        let (arrived, _) = whole.expect("every frame arrives");
        (*arrived - *at).as_secs_f64()
    };
    // The first second covers slow start.
    let settled = written.iter().enumerate().skip(written.len() / 3);
    Outcome {
        seconds: settled.map(delay).fold(0.0, f64::max),
        reorder: pair.client.stats().reorder_peak,
    }
}

/// The measurement for each class.
fn outcome(class: Class, rule: WindowRule, links: &[(f64, u64)]) -> Outcome {
    match class {
        Class::Background => object(rule, class, links, 30_000_000),
        Class::Interactive => object(rule, class, links, 1_000_000),
        Class::Streaming => frames(rule, class, links, 150_000, Duration::from_millis(40)),
        Class::Conversational => frames(rule, class, links, 1_000, Duration::from_millis(20)),
    }
}

#[test]
fn default_windows_perform_as_well_as_any_other_size() {
    let classes = [
        Class::Conversational,
        Class::Streaming,
        Class::Interactive,
        Class::Background,
    ];
    let mut worse = Vec::new();
    for class in classes {
        let chosen = FbdtConfig::default().windows[class.code() as usize];
        for links in PATHS {
            let here = outcome(class, chosen, links);
            println!("{class:?} {links:?}");
            println!(
                "  chosen          {:8.4} s {:9} B",
                here.seconds, here.reorder
            );
            for (products, least) in [
                (0.0, 16 << 10),
                (0.0, 64 << 10),
                (0.0, 256 << 10),
                (1.0 / 16.0, 16 << 10),
                (0.5, 16 << 10),
                (2.0, 16 << 10),
                (0.5, 64 << 10),
                (1.0, 64 << 10),
                (2.0, 64 << 10),
                (4.0, 64 << 10),
            ] {
                let most = 64 << 20;
                let rule = WindowRule {
                    products,
                    least,
                    most,
                };
                let rule = if products == 0.0 {
                    WindowRule {
                        most: least,
                        ..rule
                    }
                } else {
                    rule
                };
                let there = outcome(class, rule, links);
                println!(
                    "  {products:4.2} from {:3} KiB {:8.4} s {:9} B",
                    least >> 10,
                    there.seconds,
                    there.reorder
                );
                if here.seconds > 1.05 * there.seconds + 0.001 {
                    worse.push(format!(
                        "{class:?} over {links:?}: {here:?}, not {there:?} with {rule:?}"
                    ));
                }
            }
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}
