//! A golden table of situations in which the schedulers differ, with those of the engine.
//!
//! Each cell contains the pick for the fast path, then that for the slow path: `f` for new bytes
//! from the front, `b` for new bytes from further back, `r` for bytes that the other path carries,
//! `-` for none.

use std::fmt::Write;
use std::time::Duration;

use sumlink_engine::scheduler::{Pick, Scheduler};
use sumlink_engine::testing::Fixture;
use sumlink_engine::{Class, PathId, Role, StreamId};

use crate::{NAMES, all};

const BUDGET: u64 = 10_000;

/// Changes before the first pick.
type Situation = (&'static str, fn(&mut Fixture, &mut dyn Scheduler));

/// Round trips of 10 ms and 60 ms, rates of 80 and 20 Mbit/s.
const SITUATIONS: &[Situation] = &[
    ("much to send, both paths are free", |fixture, _| {
        fixture.write(0, 3_000_000);
    }),
    ("a small object, both paths are free", |fixture, _| {
        fixture.write_as(0, Class::Interactive, 20_000);
    }),
    ("little waits, the fast window is full", |fixture, _| {
        fixture.write(0, 20_000);
        fill_fast(fixture);
    }),
    ("much waits, the fast window is full", |fixture, _| {
        fixture.write(0, 5_000_000);
        fill_fast(fixture);
    }),
    ("the same, and the send window is small", |fixture, _| {
        fixture.write(0, 5_000_000);
        fill_fast(fixture);
        fixture.limit(0, 400_000);
    }),
    ("the fast path has had 20 kB", |fixture, scheduler| {
        fixture.write(0, 3_000_000);
        had(fixture, scheduler, 20_000);
    }),
    ("the fast path has had 60 kB", |fixture, scheduler| {
        fixture.write(0, 3_000_000);
        had(fixture, scheduler, 60_000);
    }),
    ("each path has had 10 kB", |fixture, scheduler| {
        fixture.write(0, 3_000_000);
        fixture.send(scheduler, 0, BUDGET);
        fixture.send(scheduler, 1, BUDGET);
    }),
    ("the fast interface has a queue of 60 ms", |fixture, _| {
        fixture.write(0, 3_000_000);
        fixture.change(0, |sample| sample.local_queue = 600_000);
    }),
    ("the fast socket holds 60 ms", |fixture, _| {
        fixture.write(0, 3_000_000);
        fixture.change(0, |sample| {
            (sample.in_flight, sample.cwnd) = (600_000, 2_000_000);
        });
    }),
    ("only the fast round trip has grown", |fixture, _| {
        fixture.write(0, 3_000_000);
        fixture.change(0, |sample| sample.min_rtt = Duration::from_millis(2));
        fixture.change(1, |sample| sample.min_rtt = Duration::from_millis(59));
    }),
    ("the slow path holds a full window's head", |fixture, _| {
        fixture.write(0, 3_000_000);
        fixture.take(1, 0, 0..20_000);
        fixture.take(0, 0, 20_000..40_000);
        fixture.limit(0, 40_000);
    }),
    ("all of it is on the fast path", |fixture, _| {
        fixture.write(0, 20_000);
        fixture.take(0, 0, 0..20_000);
    }),
    ("speech, and the fast path is unreliable", |fixture, _| {
        fixture.write_as(0, Class::Conversational, 200);
        fixture.make_unreliable();
    }),
];

const EXPECTED: &str = "
                                         fbdt minr linu bles  ecf roun redu mush qawa lrtt qdep  wrr thes
much to send, both paths are free          fb   f-   f-   f-   f-   ff   fr   ff   f-   f-   ff   ff   fb
a small object, both paths are free        f-   f-   f-   f-   f-   ff   fr   ff   f-   f-   ff   ff   fb
little waits, the fast window is full      --   -f   -f   -f   --   -f   -f   -f   -f   -f   -f   -f   -b
much waits, the fast window is full        -b   -f   -f   -f   -f   -f   -f   -f   -f   -f   -f   -f   -b
the same, and the send window is small     -b   -f   -f   --   -f   -f   -f   -f   -f   -f   -f   -f   -b
the fast path has had 20 kB                fb   f-   f-   f-   f-   -f   fr   ff   f-   f-   -f   ff   fb
the fast path has had 60 kB                fb   f-   f-   f-   f-   -f   fr   ff   f-   f-   -f   -f   ff
each path has had 10 kB                    fb   f-   f-   f-   f-   ff   fr   ff   f-   f-   f-   ff   fb
the fast interface has a queue of 60 ms    fb   f-   f-   f-   f-   ff   fr   ff   -f   f-   ff   ff   fb
the fast socket holds 60 ms                fb   f-   -f   f-   f-   ff   fr   ff   f-   f-   ff   ff   fb
only the fast round trip has grown         fb   f-   f-   f-   f-   ff   fr   ff   f-   -f   ff   ff   fb
the slow path holds a full window's head   --   r-   --   r-   r-   --   rr   --   --   --   --   --   --
all of it is on the fast path              --   --   --   --   --   --   rr   --   --   --   --   --   --
speech, and the fast path is unreliable    fr   f-   f-   f-   f-   f-   fr   f-   f-   f-   f-   f-   ff
";

fn fill_fast(fixture: &mut Fixture) {
    fixture.change(0, |sample| {
        (sample.in_flight, sample.full) = (sample.cwnd, true);
        sample.ssthresh = Some(sample.cwnd);
    });
}

/// The fast path gets `bytes` bytes, if the scheduler permits it.
fn had(fixture: &mut Fixture, scheduler: &mut dyn Scheduler, bytes: u64) {
    let mut got = 0;
    while got < bytes
        && let Some(range) = fixture.send(scheduler, 0, BUDGET.min(bytes - got))
    {
        got += range.end - range.start;
    }
}

/// The picks for both paths; the fast path is asked only if its carrier accepts data.
fn cell(name: &str, situation: fn(&mut Fixture, &mut dyn Scheduler)) -> String {
    let mut scheduler = all().make(name, Role::Client).unwrap();
    let mut fixture = Fixture::new(&[(80.0, 10), (20.0, 60)]);
    fixture.repeat_budget = 1 << 30;
    situation(&mut fixture, scheduler.as_mut());
    let mut cell = String::new();
    for path in [0, 1] {
        if fixture.path(path).sample().full {
            cell.push('-');
            continue;
        }
        let front = |fixture: &Fixture, id: StreamId| {
            let unsent = fixture.streams[&id].unsent();
            unsent.first().map(|range| range.start)
        };
        let firsts: Vec<_> = fixture
            .streams
            .keys()
            .map(|id| (*id, front(&fixture, *id)))
            .collect();
        cell.push(
            match fixture.pick(scheduler.as_mut(), PathId(path), BUDGET) {
                Pick::Send { stream, range } if firsts.contains(&(stream, Some(range.start))) => {
                    'f'
                }
                Pick::Send { .. } => 'b',
                Pick::Repeat { .. } | Pick::Race { .. } => 'r',
                Pick::Idle => '-',
            },
        );
    }
    cell
}

#[test]
fn schedulers_differ_as_in_the_golden_table() {
    let mut table = format!("\n{:40}", "");
    NAMES
        .iter()
        .for_each(|name| write!(table, " {:>4.4}", name.trim_start_matches("fbdt-")).unwrap());
    for (what, situation) in SITUATIONS {
        write!(table, "\n{what:40}").unwrap();
        for name in NAMES {
            write!(table, " {:>4}", cell(name, *situation)).unwrap();
        }
    }
    table.push('\n');
    assert_eq!(table, EXPECTED, "{table}");
}
