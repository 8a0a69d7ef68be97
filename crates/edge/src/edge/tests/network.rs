//! Whole transfers through a node, and the invariants that hold under all faults.

use std::time::Duration;

use proptest::prelude::*;

use super::world::{Incident, Line, World};
use crate::steering::POLICIES;
use crate::visible::{Boost, Parameters};
use crate::{Config, Mode, Sack};

const fn line(mbit: u64, milliseconds: u64, loss: f64) -> Line {
    Line {
        rate: mbit * 1_000_000,
        delay: Duration::from_millis(milliseconds),
        loss,
    }
}

fn config(mode: Mode, steering: &str) -> Config {
    Config {
        mode,
        steering: steering.into(),
        ..Config::default()
    }
}

const SECONDS: u64 = 10;

/// Goodput in Mbit/s after the first second, of one transfer that does not end within the time.
fn goodput(config: Config, lines: &[Line], sack: bool) -> (f64, World) {
    let mut world = World::new(config, lines, 1 << 40, sack, 77);
    world.run(Duration::from_secs(1));
    let before = world.user.next;
    world.run(Duration::from_secs(1 + SECONDS));
    (
        (world.user.next - before) as f64 * 8.0 / SECONDS as f64 / 1e6,
        world,
    )
}

#[test]
fn every_mode_and_policy_delivers_everything_in_order() {
    for (name, mode) in Mode::NAMES {
        for steering in ["qdepl", "lrtt", "roundrobin", "flowhash"] {
            for sack in [false, true] {
                // The sequence numbers wrap around within the transfer.
                let lines = [line(20, 10, 0.001), line(6, 5, 0.01)];
                let mut world = World::new(
                    config(mode, steering),
                    &lines,
                    2_000_000,
                    sack,
                    u32::MAX - 900_000,
                );
                let done = world.run(Duration::from_secs(300));
                assert!(
                    done && world.user.finished,
                    "{name} {steering} sack {sack} at {:?}",
                    world.now
                );
            }
        }
    }
}

/// Goodput of a sender that uses SACK, with mild and with strong reordering.
#[test]
fn reordering_costs_goodput_and_a_reordering_receiver_restores_it() {
    let equal = [line(20, 10, 0.0); 2];
    let alone = goodput(config(Mode::Lwip, "qdepl"), &equal[..1], true).0;
    let lwa = goodput(config(Mode::Lwa, "qdepl"), &equal, true).0;
    assert!(
        lwa > 1.5 * alone,
        "LWA over two equal links: {lwa:.1}, one alone {alone:.1} Mbit/s"
    );
    let unequal = [line(20, 10, 0.0), line(5, 10, 0.0)];
    let lwip = goodput(config(Mode::Lwip, "qdepl"), &unequal, true).0;
    let lwa = goodput(config(Mode::Lwa, "qdepl"), &unequal, true).0;
    assert!(
        lwip < alone && lwa > alone,
        "LWIP {lwip:.1}, LWA {lwa:.1}, one alone {alone:.1} Mbit/s"
    );
}

/// However far one link lags behind the other: each keeps its order, and the only losses are
/// packets that the node drops and has no copies of.
#[test]
fn late_packets_do_not_count_as_lost() {
    let all = Boost::NAMES.map(|(_, boost)| [(15, boost), (80, boost)]);
    for (delay, boost) in all.into_iter().flatten() {
        let lines = [line(50, 1, 0.0), line(50, delay, 0.0)];
        let config = Config {
            visible: Parameters {
                boost,
                ..Parameters::default()
            },
            ..config(Mode::LwipVisible, "roundrobin")
        };
        let world = goodput(config, &lines, true).1;
        let counters = world.edge.counters();
        assert!(counters.duplicates > 500, "{delay} ms: {counters:?}");
        assert_eq!(counters.repaired_behind, 0, "{delay} ms: {counters:?}");
    }
}

/// The figures of docs/notes/edge.md.
#[test]
#[ignore = "a measurement of some minutes for docs/notes/edge.md; make nightly runs it"]
fn goodput_of_the_modes() {
    for pair in [[20, 5], [20, 20], [26, 26]] {
        let lines = pair.map(|rate| line(rate, 10, 0.0));
        for sack in [false, true] {
            let visible = |parameters| Config {
                visible: parameters,
                ..config(Mode::LwipVisible, "qdepl")
            };
            let default = Parameters::default();
            let rows = [
                ("lwip", config(Mode::Lwip, "qdepl")),
                ("lwip, roundrobin", config(Mode::Lwip, "roundrobin")),
                ("lwa", config(Mode::Lwa, "qdepl")),
                ("lwip+visible", config(Mode::LwipVisible, "qdepl")),
                (
                    "boost off",
                    visible(Parameters {
                        boost: Boost::Off,
                        ..default
                    }),
                ),
                (
                    "boost many",
                    visible(Parameters {
                        boost: Boost::Many,
                        ..default
                    }),
                ),
                (
                    "SACK stripped",
                    Config {
                        sack: Sack::Strip,
                        ..config(Mode::LwipVisible, "qdepl")
                    },
                ),
                (
                    "PH 100, alpha 0.5, beta 0.05",
                    visible(Parameters {
                        held_at_first: 100.0,
                        rise: 0.5,
                        fall: 0.05,
                        ..default
                    }),
                ),
                (
                    "theta 0",
                    visible(Parameters {
                        min_free: 0.0,
                        ..default
                    }),
                ),
            ];
            let alone = [0, 1].map(|n| goodput(config(Mode::Lwip, "qdepl"), &lines[n..=n], sack).0);
            println!("{pair:?} Mbit/s, SACK {sack}: alone {alone:.1?}");
            for (name, config) in rows {
                let (goodput, world) = goodput(config, &lines, sack);
                let c = world.edge.counters();
                println!(
                    "  {name}: {goodput:.1} Mbit/s; sent again by the server {}, duplicates {}, \
                     boosted {}, held {}, repaired {} + {}",
                    world.server.retransmitted,
                    c.duplicates,
                    c.boosted,
                    c.held,
                    c.repaired,
                    c.repaired_late
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Under any link behavior, and if a node dies and another takes its place: the received bytes
    /// are those sent, no node acknowledges data that it has not received or owes more than its
    /// rules permit, and in the end all data has arrived. Otherwise an end has seen its connection
    /// fail, which only the death of a node that may owe bytes can cause.
    #[test]
    fn bytes_arrive_or_the_connection_fails_visibly(
        mode in 0..Mode::NAMES.len() + 2, steering in 0..POLICIES.len(),
        rates in [1u64..40, 1u64..40],
        delays in [0u64..80, 0u64..80],
        losses in [0.0f64..0.05, 0.0f64..0.05],
        up_loss in 0.0f64..0.05,
        sack: bool, strip: bool, boost in 0..Boost::NAMES.len(), start: u32,
        happen in proptest::collection::vec((50u64..4000, 0u8..7), 0..6),
    ) {
        let lines = [0, 1].map(|n| line(rates[n], delays[n], losses[n]));
        let sack_mode = if strip { Sack::Strip } else { Sack::Rewrite };
        let boost = Boost::NAMES[boost].1;
        let visible = Parameters { boost, ..Parameters::default() };
        // VISIBLE most often: it does the most work.
        let mode = Mode::NAMES.get(mode).map_or(Mode::LwipVisible, |(_, mode)| *mode);
        let config = Config { sack: sack_mode, visible, ..config(mode, POLICIES[steering].0) };
        let incidents: Vec<_> = happen.into_iter().map(|(at, what)| {
            let incident = match what {
                0 | 1 => Incident::Down(what),
                6 => Incident::Restart,
                up => Incident::Up(up % 2),
            };
            (Duration::from_millis(at), incident)
        }).chain((0..2).map(|link| (Duration::from_secs(5), Incident::Up(link)))).collect();
        let may_owe = boost != Boost::Off && mode == Mode::LwipVisible;
        let died = incidents.iter().any(|(_, incident)| matches!(incident, Incident::Restart));
        let mut world = World::new(config, &lines, 1_000_000, sack, start)
            .incidents(&incidents)
            .up_loss(up_loss);
        world.run(Duration::from_secs(3600));
        prop_assert!(
            died && may_owe || !world.failed(),
            "a connection failed without cause at {:?}",
            world.now
        );
        prop_assert!(
            world.over(),
            "neither finished nor failed: {} of {}",
            world.user.next,
            world.server.total
        );
        prop_assert!(
            !world.server.done() || world.user.finished,
            "the server considers undelivered data acknowledged"
        );
        prop_assert!(world.max_owed <= world.owable());
        if !may_owe {
            prop_assert_eq!(world.max_owed, 0);
        }
    }
}
