//! One script for all algorithms, with the resulting windows: a change in behavior is a readable
//! difference.

use std::fmt::Write;

use crate::NAMES;
use crate::fixture::{fresh, ms};
use crate::player::Player;

/// A step and the title of its column.
type Step = (&'static str, fn(&mut Player));

/// Events of the first of two flows (base round-trip times 40 and 60 ms), in order.
const STEPS: [Step; 11] = [
    ("3 rounds", |bond| bond.rounds_of_all(3)),
    ("both lose", |bond| {
        bond.repaired_loss(1);
        bond.repaired_loss(0);
    }),
    ("20 rounds", |bond| bond.rounds_of_all(20)),
    ("+15 ms, 10", |bond| {
        bond.set_rtt(0, ms(55));
        bond.rounds_of_all(10);
    }),
    ("+60 ms, 5", |bond| {
        bond.set_rtt(0, ms(100));
        bond.rounds_of_all(5);
    }),
    ("+0 ms, 20", |bond| {
        bond.set_rtt(0, ms(40));
        bond.rounds_of_all(20);
    }),
    ("other loses", |bond| {
        bond.repaired_loss(1);
        bond.rounds_of_all(5);
    }),
    ("loss", |bond| {
        bond.repaired_loss(0);
    }),
    ("timeout", |bond| bond.time_out(0, false)),
    ("8 rounds", |bond| {
        bond.round(0);
        bond.recover(0);
        bond.rounds_of_all(7);
    }),
    ("1 s idle", |bond| bond.idle(ms(1_000), ms(300))),
];

/// For each algorithm its windows in packets after each step, and the thresholds below.
fn table() -> String {
    let mut table = format!("{:16}", "");
    for (step, _) in STEPS {
        write!(table, "{step:>12}").unwrap();
    }
    for name in NAMES {
        let mut bond = fresh(name, &[], &[ms(40), ms(60)]);
        let (mut windows, mut thresholds) = (format!("\n{name:16}"), format!("\n{:16}", ""));
        for (_, step) in STEPS {
            step(&mut bond);
            write!(windows, "{:12.3}", bond.cwnd(0)).unwrap();
            write!(thresholds, "{:12.3}", bond.ssthresh(0)).unwrap();
        }
        table += &windows;
        table += &thresholds;
    }
    table
}

#[test]
fn windows_of_one_script() {
    insta::assert_snapshot!(table());
}
