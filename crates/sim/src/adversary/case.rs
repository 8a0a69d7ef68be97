//! Random operations and faults of a bond.

use std::num::NonZeroU8;

use proptest::prelude::*;
use sumlink_bond::congestion::AUTO;
use sumlink_bond::{Carriers, Early};
use sumlink_engine::Role;
use sumlink_link::Random;
use sumlink_scenario::config::Fate;

use crate::tcp::Side;

/// Properties of a link, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    /// Rate in Mbit/s.
    pub(super) mbit: f64,
    /// One-way delay in milliseconds.
    pub(super) ms: u64,
    /// Capacity of its queue in milliseconds.
    pub(super) queue: u64,
    /// Share of lost packets.
    pub(super) loss: f64,
}

impl Shape {
    /// Properties of every link at the end of a case.
    pub(super) const PEACE: Self = Self {
        mbit: 20.0,
        ms: 10,
        queue: 100,
        loss: 0.0,
    };
}

/// An operation or a fault. Streams and links are chosen by index among the existing ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Op {
    Open,
    Offer {
        side: Side,
        stream: usize,
        bytes: u64,
    },
    Finish {
        side: Side,
        stream: usize,
    },
    Read {
        side: Side,
        stream: usize,
        on: bool,
    },
    Reset {
        side: Side,
        stream: usize,
    },
    Abandon {
        side: Side,
        stream: usize,
    },
    /// The properties of the link change.
    Reshape {
        link: usize,
        shape: Shape,
    },
    /// The link drops all packets to one side, or to both.
    Silence {
        link: usize,
        to: Option<Side>,
    },
    /// The link pauses: packets wait and are not lost.
    Freeze {
        link: usize,
    },
    /// The interface goes down, and the client notices.
    Down {
        link: usize,
    },
    /// The client's interface loses its address, or gets another one.
    Unaddress {
        link: usize,
    },
    Readdress {
        link: usize,
    },
    /// A middlebox loses its state of the existing connections.
    Lose {
        link: usize,
        fate: Fate,
    },
    /// The link works again.
    Restore {
        link: usize,
    },
    /// The rate that the link reports is wrong by this factor.
    Lie {
        link: usize,
        factor: f64,
    },
    Wait {
        ms: u64,
    },
    /// The program of a side sends datagrams at once; of cases with flows only.
    Burst {
        side: Side,
        flow: usize,
        size: usize,
        count: u32,
    },
    /// This side ends the session; always the last operation.
    End {
        side: Side,
    },
}

/// A bond, and the operations and faults that it undergoes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) scheduler: &'static str,
    pub(super) congestion: &'static str,
    /// Carriers per link.
    pub(super) carriers: Carriers,
    /// When programs get their streams.
    pub(super) early: Early,
    /// Memory is scarce.
    pub(super) is_tight: bool,
    /// The programs use datagrams.
    pub(super) has_datagrams: bool,
    pub(super) seed: u64,
    pub(super) links: Vec<Shape>,
    pub(super) ops: Vec<Op>,
}

impl Case {
    /// Whether the links have no faults.
    pub(super) fn is_quiet(&self) -> bool {
        !self.ops.iter().any(|op| {
            matches!(
                op,
                Op::Silence { .. }
                    | Op::Freeze { .. }
                    | Op::Down { .. }
                    | Op::Reshape { .. }
                    | Op::Unaddress { .. }
                    | Op::Readdress { .. }
                    | Op::Lose { .. }
            )
        })
    }
}

/// Random faults of three links, in kind, place and time, under a large and a small load in both
/// directions.
pub(super) fn chaos(seed: u64, lasts_ms: u64) -> Case {
    let mut random = Random::new(seed);
    let shape = |mbit, ms| Shape {
        mbit,
        ms,
        queue: 50,
        loss: 0.0,
    };
    let links = vec![shape(16.0, 5), shape(12.0, 15), shape(8.0, 30)];
    let mut ops = vec![Op::Open; 3];
    let mut broken = [false; 3];
    let mut at = 0;
    while at < lasts_ms {
        for (stream, side, bytes) in [
            (0, Side::Server, 600_000),
            (1, Side::Client, 600_000),
            (2, Side::Client, 100),
            (2, Side::Server, 1_000),
        ] {
            ops.push(Op::Offer {
                side,
                stream,
                bytes,
            });
        }
        let ms = (1_500.0 * random.next_exponential()) as u64;
        ops.push(Op::Wait { ms });
        at += ms;
        let link = (random.next_u64() % 3) as usize;
        if broken[link] {
            broken[link] = false;
            ops.push(Op::Restore { link });
            continue;
        }
        let fault = random.next_u64() % 10;
        broken[link] = fault < 7;
        let slow = shape(0.01 * links[link].mbit, links[link].ms);
        ops.push(match fault {
            0 => Op::Silence { link, to: None },
            1 => Op::Silence {
                link,
                to: Some(Side::Client),
            },
            2 => Op::Silence {
                link,
                to: Some(Side::Server),
            },
            3 => Op::Freeze { link },
            4 => Op::Down { link },
            5 => Op::Unaddress { link },
            6 => Op::Reshape { link, shape: slow },
            7 => Op::Readdress { link },
            8 => Op::Lose {
                link,
                fate: Fate::Forgotten,
            },
            _ => Op::Lose {
                link,
                fate: Fate::Reset,
            },
        });
        if let Some(Op::Reshape { shape, .. }) = ops.last_mut() {
            // The rate from before applies again afterwards.
            let back = Op::Reshape {
                link,
                shape: Shape {
                    mbit: 100.0 * shape.mbit,
                    ..*shape
                },
            };
            ops.extend([Op::Wait { ms: 2_000 }, back]);
            at += 2_000;
            broken[link] = false;
        }
    }
    Case {
        ops,
        ..plain(seed, links)
    }
}

/// Flows of datagrams over links without faults.
pub(super) fn quiet(seed: u64, links: Vec<Shape>) -> Case {
    Case {
        has_datagrams: true,
        ..plain(seed, links)
    }
}

/// The usual settings, and nothing that happens.
fn plain(seed: u64, links: Vec<Shape>) -> Case {
    Case {
        scheduler: "fbdt",
        congestion: "cubic",
        carriers: Carriers::ONE,
        early: Early::Known,
        is_tight: false,
        has_datagrams: false,
        seed,
        links,
        ops: Vec::new(),
    }
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Client), Just(Side::Server)]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![Just(Fate::Forgotten), Just(Fate::Reset)]
}

pub(super) fn shape() -> impl Strategy<Value = Shape> {
    let mbit = prop_oneof![1 => 0.1..1.0f64, 4 => 1.0..20.0f64, 1 => 20.0..100.0f64];
    let ms = prop_oneof![4 => 0..30u64, 1 => 30..400u64];
    let queue = prop_oneof![1 => 1..20u64, 3 => 20..200u64, 1 => 200..2_000u64];
    let loss = prop_oneof![6 => Just(0.0), 2 => 0.0..0.05f64, 1 => 0.05..0.4f64];
    (mbit, ms, queue, loss).prop_map(|(mbit, ms, queue, loss)| Shape {
        mbit,
        ms,
        queue,
        loss,
    })
}

/// A fault of a link, or its end.
pub(super) fn fault() -> impl Strategy<Value = Op> {
    let link = || 0..4usize;
    prop_oneof![
        2 => (link(), shape()).prop_map(|(link, shape)| Op::Reshape { link, shape }),
        2 => (link(), proptest::option::of(side())).prop_map(|(link, to)| Op::Silence { link, to }),
        1 => link().prop_map(|link| Op::Freeze { link }),
        2 => link().prop_map(|link| Op::Down { link }),
        1 => link().prop_map(|link| Op::Unaddress { link }),
        1 => link().prop_map(|link| Op::Readdress { link }),
        1 => (link(), fate()).prop_map(|(link, fate)| Op::Lose { link, fate }),
        4 => link().prop_map(|link| Op::Restore { link }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let stream = || 0..8usize;
    let link = || 0..4usize;
    let bytes = prop_oneof![1..2_000u64, 1..50_000u64, 1..400_000u64];
    let ms = prop_oneof![0..5u64, 0..100u64, 0..1_000u64, 1_000..8_000u64];
    let factor = prop_oneof![Just(0.0), 0.01..1.0f64, 1.0..100.0f64];
    prop_oneof![
        6 => Just(Op::Open),
        12 => (side(), stream(), bytes).prop_map(|(side, stream, bytes)| Op::Offer { side, stream, bytes }),
        2 => (side(), stream()).prop_map(|(side, stream)| Op::Finish { side, stream }),
        3 => (side(), stream(), any::<bool>()).prop_map(|(side, stream, on)| Op::Read { side, stream, on }),
        1 => (side(), stream()).prop_map(|(side, stream)| Op::Reset { side, stream }),
        1 => (side(), stream()).prop_map(|(side, stream)| Op::Abandon { side, stream }),
        14 => fault(),
        2 => (link(), factor).prop_map(|(link, factor)| Op::Lie { link, factor }),
        14 => ms.prop_map(|ms| Op::Wait { ms }),
    ]
}

/// A fixed number of carriers per link.
pub(super) fn fixed(carriers: usize) -> Carriers {
    let count = u8::try_from(carriers).ok().and_then(NonZeroU8::new);
    count.map_or(Carriers::ONE, Carriers::Fixed)
}

/// Any case.
pub(super) fn case() -> impl Strategy<Value = Case> {
    let ops = proptest::collection::vec(op(), 1..40);
    let end = proptest::option::weighted(0.15, side().prop_map(|side| Op::End { side }));
    (
        proptest::sample::select(&sumlink_schedulers::NAMES),
        prop_oneof![6 => Just("cubic"), 2 => Just("reno"), 1 => Just("bbr"), 2 => Just(AUTO)],
        (
            prop_oneof![8 => Just(Some(1)), 2 => Just(Some(2)), 1 => Just(None)],
            prop_oneof![1 => Just(Early::Never), 6 => Just(Early::Known), 2 => Just(Early::Always)],
        ),
        any::<bool>(),
        any::<u64>(),
        proptest::collection::vec(shape(), 1..=4),
        (ops, end),
    )
        .prop_map(
            |(
                scheduler,
                congestion,
                (mut carriers, early),
                is_tight,
                seed,
                mut links,
                (mut ops, end),
            )| {
                ops.extend(end);
                let own = sumlink_schedulers::all();
                if let Some(most) = own.max_paths(scheduler, Role::Client) {
                    let each = carriers.unwrap_or(1).min(most);
                    carriers = Some(each);
                    links.truncate(most / each);
                }
                let carriers = carriers.map_or(Carriers::Auto, fixed);
                Case {
                    scheduler,
                    congestion,
                    carriers,
                    early,
                    is_tight,
                    has_datagrams: false,
                    seed,
                    links,
                    ops,
                }
            },
        )
}
