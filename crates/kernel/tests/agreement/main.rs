//! The reference and its twin in the kernel, given the same events, have the same windows.
//!
//! A script (`scripts/*.txt`, format in `script.rs`) is played twice. Once to the reference alone, with the round-trip times
//! that the script says: the windows must be those that it expects. And once to the kernel: a socket sends to a TCP
//! end in this process, behind a TUN device, that acknowledges, loses and keeps silent as it is told. The
//! reference is then given what the kernel has measured, and windows must agree within the bound.
//!
//! As `loopback.rs` it needs root, unless `SUMLINK_SKIP_BPF=1` is set.

mod kernel;
mod peer;
mod reference;
mod script;
mod tun;

use std::sync::{Mutex, PoisonError};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use sumlink_congestion::Settings;
use sumlink_kernel::{Bonds, Group, load, probe};

use kernel::Kernel;
use reference::{Event, Reference};
use script::{Script, Step};

/// How far the kernel's window may be above and below the reference's, which is a real number: it is the whole part of a
/// window that is rounded down at every step, here less than a hundred times.
const ABOVE: f64 = 0.001;
const BELOW: f64 = 1.001;

/// Names of congestion controls are the system's, so that the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn play(name: &str, text: &str) {
    let script = Script::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    for algorithm in &script.algorithms {
        play_to_the_reference(&script, algorithm);
    }
    if std::env::var_os("SUMLINK_SKIP_BPF").is_some_and(|value| value == "1") {
        eprintln!("only the reference was asked because SUMLINK_SKIP_BPF=1");
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(
        probe(),
        [],
        "set SUMLINK_SKIP_BPF=1 to leave the kernel out"
    );
    for algorithm in &script.algorithms {
        thread::scope(|scope| {
            let play = || {
                // The thread alone is in a network of its own, which goes with it.
                unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
                play_to_the_kernel(&script, algorithm);
            };
            scope
                .spawn(play)
                .join()
                .unwrap_or_else(|_| panic!("{name} with {algorithm}"));
        });
    }
}

fn play_to_the_reference(script: &Script, algorithm: &str) {
    let mut reference = Reference::new(algorithm, script.flows());
    for (line, step) in &script.steps {
        match *step {
            Step::Ack(flow, packets) => {
                let rtt = script.rtts[flow];
                reference.handle(
                    flow,
                    Event::Ack {
                        packets,
                        rtt,
                        srtt: rtt,
                    },
                );
            }
            Step::Lose(flow) => reference.handle(flow, Event::Loss),
            Step::TimeOut(flow) => reference.handle(flow, Event::Timeout),
            Step::Recover(flow) => {
                let rtt = script.rtts[flow];
                let packets = reference.unrepaired(flow);
                reference.handle(flow, Event::RecoveryExit);
                reference.handle(
                    flow,
                    Event::Ack {
                        packets,
                        rtt,
                        srtt: rtt,
                    },
                );
            }
            Step::Expect { ref of, .. }
                if !of.is_empty() && !of.iter().any(|name| name == algorithm) => {}
            Step::Expect {
                flow,
                cwnd,
                ssthresh,
                ..
            } => {
                let found = (reference.cwnd(flow), reference.ssthresh(flow));
                let close = |found: f64, expected: f64| {
                    found == expected || (found - expected).abs() < 0.01
                };
                assert!(
                    close(found.0, cwnd) && close(found.1, ssthresh),
                    "line {line}: {algorithm} has {found:?}"
                );
            }
        }
    }
}

fn play_to_the_kernel(script: &Script, algorithm: &str) {
    let bonds = Bonds::new().expect("maps");
    let loaded = load(algorithm, &Settings::default(), &bonds).expect("loads");
    let mut kernel = Kernel::new(loaded.twin().system_name, script);
    let mut reference = Reference::new(algorithm, script.flows());
    let group = Group::new(1).expect("a number");
    for socket in kernel.sockets() {
        bonds.join(socket, group).expect("joins");
    }
    for (line, step) in &script.steps {
        let at = format!("line {line}, {algorithm}");
        let flow = match *step {
            Step::Ack(flow, packets) => {
                let (rtt, srtt) = kernel.acknowledge(flow, packets);
                reference.handle(flow, Event::Ack { packets, rtt, srtt });
                flow
            }
            Step::Lose(flow) => {
                let (rtt, srtt) = kernel.lose(flow);
                // The selective acknowledgement is measured before the loss is seen, and counted when that is repaired.
                let packets = 0;
                reference.handle(flow, Event::Ack { packets, rtt, srtt });
                reference.handle(flow, Event::Loss);
                flow
            }
            Step::TimeOut(flow) => {
                kernel.time_out(flow);
                reference.handle(flow, Event::Timeout);
                flow
            }
            Step::Recover(flow) => {
                let packets = reference.unrepaired(flow);
                let (rtt, srtt) = kernel.recover(flow);
                reference.handle(flow, Event::RecoveryExit);
                reference.handle(flow, Event::Ack { packets, rtt, srtt });
                flow
            }
            // Of round-trip times that are not quite those of the script; the reference has been given the real ones.
            Step::Expect { .. } => continue,
        };
        let agree = |kernel: u32, reference: f64| {
            (reference - BELOW..=reference + ABOVE).contains(&f64::from(kernel))
        };
        let info = kernel.info(flow);
        eprintln!(
            "{at}: kernel {} {}, reference {} {}",
            info.cwnd,
            info.ssthresh,
            reference.cwnd(flow),
            reference.ssthresh(flow)
        );
        if reference.ssthresh(flow).is_finite() {
            assert!(
                agree(info.ssthresh, reference.ssthresh(flow)),
                "{at}: ssthresh"
            );
        } else {
            assert_eq!(info.ssthresh, kernel::INFINITE, "{at}: ssthresh");
        }
        // In recovery the kernel's window approaches ssthresh, the reference's is there.
        if !matches!(step, Step::Lose(_)) {
            assert!(agree(info.cwnd, reference.cwnd(flow)), "{at}: cwnd");
        }
    }
}

macro_rules! scripts {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                play(stringify!($name), include_str!(concat!("scripts/", stringify!($name), ".txt")));
            }
        )+
    };
}

scripts!(lia, one_flow, reno, two_flows);
