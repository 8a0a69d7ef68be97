//! The reference and its twin in the kernel have the same windows after the same events.
//!
//! The scripts are those of `sumlink-congestion` (format in its `script` module), whose tests play
//! them to the reference with exactly the scripted round-trip times. Here a socket sends to a TCP
//! end in this process, behind a TUN device. That end acknowledges, loses packets and stays silent
//! as scripted. The reference receives the values that the twin was given, as published to its
//! siblings. After each step windows and thresholds must agree within the bound.
//!
//! Like `loopback.rs` these tests need root, unless `SUMLINK_SKIP_BPF=1` is set.

#![allow(clippy::print_stderr, reason = "a test")]

mod info;
mod kernel;
mod peer;
mod reference;
mod tun;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use sumlink_congestion::Settings;
use sumlink_congestion::script::{Script, Step};
use sumlink_kernel::{Bonds, Error, Loaded, TWINS, load, load_forgetful, probe};

use kernel::{AckReport, Kernel};
use reference::Reference;

/// Allowed difference in packets of the kernel's window, which is rounded down at every step.
const ERROR: f64 = 0.001;
/// Allowed difference of the threshold, of which TCP_INFO has the whole part.
const BELOW: f64 = 1.0 + ERROR;
/// More packets than any script reaches: a larger threshold was not computed by a twin.
const IMPLAUSIBLE: f64 = 1e6;
/// Maximum number of plays of a script in which the kernel was seen not to ask the twin.
const PLAYS: usize = 3;

/// All scripts by their file names, in order.
fn scripts() -> Vec<(String, Script)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../congestion/scripts");
    let files = fs::read_dir(folder).expect("the folder of the scripts");
    let mut files: Vec<_> = files.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let script = |path: &std::path::PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy();
        let script = fs::read_to_string(path).expect("a script").parse();
        let script = script.unwrap_or_else(|error| panic!("{name}: {error}"));
        (name.into_owned(), script)
    };
    files.iter().map(script).collect()
}

#[test]
fn every_twin_has_the_windows_of_its_reference() {
    if is_skipped() {
        return;
    }
    let scripts = scripts();
    let mut wrong = Vec::new();
    for twin in TWINS {
        let load = |settings: &Settings, bonds: &Bonds| load(twin.algorithm, settings, bonds);
        wrong.extend(disagreements(&scripts, twin.algorithm, load));
    }
    assert!(wrong.is_empty(), "{wrong:?}: see the differences above");
}

/// Linux 6.18 sometimes ignores an answer ([`NotAsked`]); here it ignores every one: the kernel
/// does not use the threshold that a program computed.
#[test]
fn lost_answers_are_corrected() {
    if is_skipped() {
        return;
    }
    let wrong = disagreements(&scripts(), "uncoupled", load_forgetful);
    assert!(wrong.is_empty(), "{wrong:?}: see the differences above");
}

fn is_skipped() -> bool {
    if std::env::var_os("SUMLINK_SKIP_BPF").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_BPF=1");
        return true;
    }
    assert_eq!(probe(), [], "set SUMLINK_SKIP_BPF=1 to skip kernel tests");
    false
}

/// The scripts of that algorithm in which the congestion control loaded by `load` differs from the
/// reference.
fn disagreements(
    scripts: &[(String, Script)],
    algorithm: &str,
    load: impl Fn(&Settings, &Bonds) -> Result<Loaded, Error> + Sync,
) -> Vec<String> {
    let of_algorithm =
        |(_, script): &&(String, Script)| script.algorithms.iter().any(|name| name == algorithm);
    let mut wrong = Vec::new();
    let mut played = 0;
    for (name, script) in scripts.iter().filter(of_algorithm) {
        played += 1;
        // Only this thread enters the new network namespace, which ends with it.
        let play = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            let bonds = Bonds::new().expect("maps");
            let loaded = load(&script.settings, &bonds).expect("loads");
            let system_name = loaded.twin().system_name;
            let mut play = Play {
                kernel: Kernel::new(system_name, script, &bonds),
                reference: Reference::new(algorithm, &script.settings, script.rtts.len()),
            };
            script.steps.iter().try_for_each(|(line, flow, step)| {
                play.step(&format!("line {line}, {system_name}"), *flow, step)
            })
        };
        let result =
            (0..PLAYS).find_map(|_| match thread::scope(|scope| scope.spawn(play).join()) {
                Ok(Ok(())) => Some(true),
                Ok(Err(NotAsked(what))) => {
                    eprintln!("{name} is played again because of a kernel fault: {what}");
                    None
                }
                Err(_) => Some(false),
            });
        if result != Some(true) {
            wrong.push(format!("{name} with {algorithm}"));
        }
    }
    assert!(played > 0, "no script for {algorithm}");
    wrong
}

/// In that step the kernel used values that no program computed (docs/congestion.md, "A kernel
/// fault"): the play proves nothing about the twin.
struct NotAsked(String);

/// A twin and its reference, playing the same script.
struct Play<'b> {
    kernel: Kernel<'b>,
    reference: Reference,
}

impl Play<'_> {
    fn step(&mut self, at: &str, flow: usize, step: &Step) -> Result<(), NotAsked> {
        match *step {
            Step::Rounds(count) => {
                for _ in 0..count {
                    for _ in 0..self.kernel.info(flow).cwnd {
                        self.acknowledge(at, flow, 1)?;
                    }
                }
            }
            Step::Ack(packets) => self.acknowledge(at, flow, packets)?,
            Step::Rtt(rtt) => self.kernel.set_rtt(flow, rtt),
            Step::Sack(packets) => self.lose(at, flow, packets)?,
            Step::Timeout => {
                self.kernel.time_out(flow);
                self.reference.time_out(flow);
                self.compare(at, flow, Some(f64::from(self.kernel.info(flow).cwnd)))?;
            }
            Step::Recover => self.recover(at, flow)?,
            Step::Undo => {
                let report = self.kernel.undo(flow);
                self.reference.undo(flow, &report);
                self.compare(at, flow, Some(report.member.cwnd))?;
            }
            Step::Loss => {
                self.lose(at, flow, self.kernel.in_flight(flow) - 1)?;
                self.recover(at, flow)?;
            }
            Step::Idle(lasted) => self.idle(at, lasted)?,
            // The measured round-trip times differ slightly from those of the script.
            Step::Expect { .. } => {}
        }
        Ok(())
    }

    fn acknowledge(&mut self, at: &str, flow: usize, packets: u32) -> Result<(), NotAsked> {
        let report = self.kernel.acknowledge(flow, packets);
        self.report(at, flow, &report)
    }

    fn lose(&mut self, at: &str, flow: usize, behind: u32) -> Result<(), NotAsked> {
        let report = self.kernel.lose(flow, behind);
        self.reference.acknowledge(flow, &report, true);
        // The kernel's window approaches ssthresh; the reference's is already there.
        self.compare(at, flow, None)
    }

    fn recover(&mut self, at: &str, flow: usize) -> Result<(), NotAsked> {
        let report = self.kernel.recover(flow);
        self.report(at, flow, &report)
    }

    /// The kernel halves whole packets. The reference then adopts the kernel's lower window, so
    /// that later steps are compared as exactly as earlier ones.
    fn idle(&mut self, at: &str, lasted: Duration) -> Result<(), NotAsked> {
        let flows = self.reference.flows();
        for flow in 0..flows {
            let report = self.kernel.drain(flow);
            self.report(at, flow, &report)?;
        }
        for (flow, (lasted, rto)) in self.kernel.idle(lasted).into_iter().enumerate() {
            self.reference.idle(flow, lasted, rto);
            let found = self.kernel.info(flow);
            let (cwnd, ssthresh) = (self.reference.cwnd(flow), self.reference.ssthresh(flow));
            let (window, threshold) = (f64::from(found.cwnd), found.ssthresh);
            let same_ssthresh = threshold == ssthresh
                || (ssthresh - 2.0 * BELOW..=ssthresh + ERROR).contains(&threshold);
            assert!(
                same_ssthresh && (cwnd - BELOW..=cwnd + ERROR).contains(&window),
                "{at}, flow {flow}: after {lasted:?} with a timeout of {rto:?} the kernel has \
                 {window} {threshold}, the reference {cwnd} {ssthresh}"
            );
            if lasted > rto {
                self.reference.take(flow, window, threshold);
            }
        }
        for flow in 0..flows {
            self.kernel.fill(flow);
        }
        Ok(())
    }

    fn report(&mut self, at: &str, flow: usize, report: &AckReport) -> Result<(), NotAsked> {
        self.reference.acknowledge(flow, report, false);
        self.compare(at, flow, Some(report.member.cwnd))
    }

    fn compare(&self, at: &str, flow: usize, cwnd: Option<f64>) -> Result<(), NotAsked> {
        let (expected, ssthresh) = (self.reference.cwnd(flow), self.reference.ssthresh(flow));
        let found = self.kernel.info(flow).ssthresh;
        if found.is_finite() && found > IMPLAUSIBLE && ssthresh < IMPLAUSIBLE {
            return Err(NotAsked(format!(
                "{at}, flow {flow}: it has a threshold of {found}, the reference {ssthresh}"
            )));
        }
        let same_ssthresh =
            found == ssthresh || (ssthresh - BELOW..=ssthresh + ERROR).contains(&found);
        assert!(
            same_ssthresh && cwnd.is_none_or(|cwnd| (cwnd - expected).abs() <= ERROR),
            "{at}, flow {flow}: the kernel has {cwnd:?} {found}, the reference {expected} \
             {ssthresh}",
        );
        Ok(())
    }
}
