//! Failures found by the random tests, each reduced to a minimal case.

use sumlink_bond::Early;
use sumlink_scenario::config::Fate;

use super::case::{Case, Op, Shape, fixed};
use super::run;
use crate::tcp::Side;

/// A link without loss.
fn clean(mbit: f64, ms: u64) -> Shape {
    Shape {
        mbit,
        ms,
        queue: 1,
        loss: 0.0,
    }
}

#[test]
fn a_silent_link_causes_no_wakes() {
    run(&Case {
        scheduler: "fbdt",
        congestion: "cubic",
        carriers: fixed(2),
        early: Early::Known,
        is_tight: false,
        has_datagrams: false,
        seed: 4_712_263_658_539_101_343,
        links: vec![
            clean(0.839_828_271_709_252_6, 22),
            clean(1.0, 2),
            Shape {
                loss: 0.372_733_016_466_634_54,
                ..clean(19.768_225_819_796_328, 14)
            },
        ],
        ops: vec![
            Op::Wait { ms: 1864 + 1165 },
            Op::Silence { link: 2, to: None },
            Op::Wait { ms: 4057 },
            Op::Open,
            Op::Wait { ms: 631 },
        ],
    });
}

/// The same, with no link left that carries anything.
#[test]
fn paused_links_cause_no_wakes() {
    run(&Case {
        scheduler: "musher",
        congestion: "cubic",
        carriers: fixed(1),
        early: Early::Known,
        is_tight: false,
        has_datagrams: false,
        seed: 4_929_798,
        links: vec![
            clean(0.768_552_826_903_236_7, 4),
            clean(17.323_576_628_247_686, 12),
        ],
        ops: vec![
            Op::Open,
            Op::Wait { ms: 0 },
            Op::Offer {
                side: Side::Client,
                stream: 0,
                bytes: 19_793,
            },
            Op::Wait { ms: 1 },
            Op::Offer {
                side: Side::Server,
                stream: 0,
                bytes: 24_586,
            },
            Op::Freeze { link: 2 },
            Op::Open,
            Op::Silence { link: 1, to: None },
            Op::Wait { ms: 2345 + 5581 },
        ],
    });
}

/// A program may write before its stream is open.
#[test]
fn queued_streams_end_as_well() {
    run(&Case {
        scheduler: "fbdt",
        congestion: "cubic",
        carriers: fixed(1),
        early: Early::Known,
        is_tight: true,
        has_datagrams: false,
        seed: 0,
        links: vec![clean(0.1, 0)],
        ops: vec![Op::Open, Op::Open, Op::Open],
    });
}

/// A server that still has the paths of a link that went down refuses new ones, because the
/// scheduler takes no more. The client must learn of the refusal, and the server must find out that
/// the old paths are dead.
#[test]
fn a_refused_path_is_retried() {
    run(&Case {
        scheduler: "musher",
        congestion: "cubic",
        carriers: fixed(1),
        early: Early::Known,
        is_tight: false,
        has_datagrams: false,
        seed: 0,
        links: vec![clean(0.1, 0), clean(0.1, 0)],
        ops: vec![Op::Down { link: 0 }, Op::Wait { ms: 75 }],
    });
}

/// After a slow link pauses, TCP has a small window and a scheduler that waits has an outdated
/// estimate. The link need not carry much at once, but no stream may starve.
#[test]
fn a_slow_link_that_paused_starves_no_stream() {
    run(&Case {
        scheduler: "blest",
        congestion: "cubic",
        carriers: fixed(1),
        early: Early::Known,
        is_tight: true,
        has_datagrams: false,
        seed: 2005250413726480673,
        links: vec![
            Shape {
                mbit: 2.562893728258495,
                ms: 6,
                queue: 63,
                loss: 0.0,
            },
            Shape {
                mbit: 0.1,
                ms: 0,
                queue: 494,
                loss: 0.012273966249106856,
            },
        ],
        ops: vec![
            Op::Wait { ms: 11 },
            Op::Freeze { link: 1 },
            Op::Open,
            Op::Wait { ms: 0 },
            Op::Offer {
                side: Side::Client,
                stream: 0,
                bytes: 37615,
            },
            Op::Wait { ms: 5323 },
        ],
    });
}

/// A NAT forgets an idle connection.
#[test]
fn a_connection_forgotten_while_idle_is_replaced() {
    let link = |mbit, ms, loss| Shape {
        mbit,
        ms,
        queue: 1,
        loss,
    };
    let forget = |link| Op::Lose {
        link,
        fate: Fate::Forgotten,
    };
    run(&Case {
        scheduler: "fbdt",
        congestion: "cubic",
        carriers: fixed(1),
        early: Early::Known,
        is_tight: false,
        has_datagrams: false,
        seed: 10097664111587673559,
        links: vec![link(0.87, 252, 0.282), link(0.1, 0, 0.0), link(0.1, 0, 0.0)],
        ops: vec![forget(3), forget(0), forget(0)],
    });
}

/// A link that was redialed got two paths, and the other link none.
#[test]
fn a_silent_link_gets_one_new_path() {
    let link = |ms| Shape {
        mbit: 0.1,
        ms,
        queue: 1,
        loss: 0.0,
    };
    run(&Case {
        scheduler: "musher",
        congestion: "cubic",
        carriers: fixed(1),
        early: Early::Known,
        is_tight: false,
        has_datagrams: false,
        seed: 0,
        links: vec![link(11), link(0)],
        ops: vec![
            Op::Down { link: 1 },
            Op::Wait { ms: 1 },
            Op::Lose {
                link: 2,
                fate: Fate::Forgotten,
            },
            Op::Wait { ms: 3488 },
        ],
    });
}

/// The round-trip time of the pause was remembered for longer than the first bulk transfer took.
#[test]
fn a_link_that_paused_carries_data_again() {
    let link = |mbit, ms, queue| Shape {
        mbit,
        ms,
        queue,
        loss: 0.0,
    };
    run(&Case {
        scheduler: "fbdt",
        congestion: "cubic",
        carriers: fixed(1),
        early: Early::Known,
        is_tight: true,
        has_datagrams: false,
        seed: 0,
        links: vec![
            link(1.0, 22, 26),
            link(0.343_095_892_138_525_26, 22, 200),
            link(19.993_291_836_696_97, 7, 1),
        ],
        ops: vec![
            Op::Down { link: 0 },
            Op::Lie {
                link: 0,
                factor: 0.0,
            },
            Op::Open,
            Op::Freeze { link: 1 },
            Op::Open,
            Op::Open,
            Op::Offer {
                side: Side::Client,
                stream: 0,
                bytes: 20_058,
            },
            Op::Open,
            Op::Wait { ms: 74 },
            Op::Wait { ms: 5748 },
        ],
    });
}

/// The scheduler musher takes two paths, and the server did not know yet that its two were gone, so
/// it refused each new one. The client dialed a thousand times within ten seconds, because each
/// dial's success canceled the pause after the last refusal.
#[test]
fn a_peer_that_refuses_paths_is_dialed_with_pauses() {
    run(&Case {
        scheduler: "musher",
        congestion: "cubic",
        carriers: fixed(2),
        early: Early::Known,
        is_tight: false,
        has_datagrams: false,
        seed: 0,
        links: vec![Shape {
            mbit: 12.23739465357185,
            ms: 0,
            queue: 1,
            loss: 0.0,
        }],
        ops: vec![
            Op::Wait { ms: 4 },
            Op::Readdress { link: 0 },
            Op::Wait { ms: 1546 },
        ],
    });
}

/// The server finished a handshake half a second before the client, whose last flight was lost. Its
/// report that the path had stalled arrived before the path was up at the client, and was ignored.
/// The client never redialed, and TCP waited for a minute.
#[test]
fn two_carriers_of_a_lossy_link_recover() {
    let link = |mbit, ms, loss| Shape {
        mbit,
        ms,
        queue: 1,
        loss,
    };
    run(&Case {
        scheduler: "fbdt",
        congestion: "cubic",
        carriers: fixed(2),
        early: Early::Known,
        is_tight: false,
        has_datagrams: false,
        seed: 15112928608225878546,
        links: vec![
            link(5.083023128533242, 219, 0.0),
            link(0.9696896835012924, 14, 0.0),
            link(1.0, 14, 0.3965153799318131),
        ],
        ops: vec![Op::Wait { ms: 889 }],
    });
}
