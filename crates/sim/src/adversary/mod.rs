//! Random operations on complete bonds: paths fail, stall, return and report wrong rates; streams
//! open, stall and break; peers end the session at the worst time.
//!
//! At all times every byte is correct, memory stays under its limit, and no component works without
//! effect. Then the links become equal and free of faults, and the programs read and finish.
//! Everything must end, every link must get a path again, and every link and every stream must get
//! its share of a bulk transfer that follows.
//!
//! `PROPTEST_CASES` sets the number of cases and `PROPTEST_RNG_SEED` chooses them; `make test-long`
//! runs many. A failure is shrunk and printed as a value of [`Case`], and becomes a named test in
//! `found.rs`.

mod case;
mod drill;
mod flows;
mod found;

use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use case::{Case, Op};
use drill::{Drill, ms};

use crate::clock::SECOND;
use crate::tcp::Side;
use crate::workload::Bearer;

/// Cases of an ordinary test run.
const CASES: u32 = 500;
/// Interval, in cases, of progress messages, for runs of a hundred thousand cases.
const PROGRESS_INTERVAL: u32 = 1_000;
static PASSED: AtomicU32 = AtomicU32::new(0);
/// Seeds of chaos.
const CHAOS: u64 = 4;

/// Most time without faults until everything has ended; TCP waits up to 30 s for an answer before
/// it gives up a connection.
const OVER_WITHIN: u64 = 120 * SECOND;
/// Most time until each link has its paths again.
const BACK_WITHIN: u64 = 20 * SECOND;
/// Time before the bulk transfer, in which recovered and forgotten paths are discovered: a PING is
/// due every 10 s, and a silent link is dialed at least every 5 s.
const REST: u64 = 20 * SECOND;
/// Most time until a peer learns of the end of a session.
const END_HEARD_WITHIN: u64 = 15 * SECOND;

/// Bulk bytes per link; then the number of streams that share them, and the bytes of a small stream
/// during the transfer.
const BULK: u64 = 1_500_000;
const STREAMS: u64 = 3;
const SMALL: u64 = 30_000;
/// Most bulk transfers until every link has carried its share of one.
const MAX_BULKS: u32 = 4;

fn run(case: &Case) {
    let mut drill = Drill::new(case);
    // By channel and side: whether the program left, and if so, without an error.
    let mut left: Vec<[Option<bool>; 2]> = Vec::new();
    for op in &case.ops {
        let links = case.links.len();
        let at = |index: usize, left: &[_]| (!left.is_empty()).then(|| index % left.len());
        let (net, bond) = (&mut drill.net, &mut drill.bond);
        match *op {
            Op::Open => {
                bond.open(net, None, None);
                left.push([None; 2]);
            }
            Op::Offer {
                side,
                stream,
                bytes,
            } => {
                if let Some(channel) = at(stream, &left) {
                    bond.offer(net, channel, side, bytes);
                }
            }
            Op::Finish { side, stream } => {
                if let Some(channel) = at(stream, &left) {
                    bond.finish(net, channel, side);
                }
            }
            Op::Read { side, stream, on } => {
                if let Some(channel) = at(stream, &left) {
                    bond.set_reading(net, channel, side, on);
                }
            }
            Op::Reset { side, stream } | Op::Abandon { side, stream } => {
                let in_peace = matches!(op, Op::Abandon { .. });
                if let Some(channel) = at(stream, &left)
                    && bond.stream_at(channel, side).is_some()
                    && left[channel][side.index()].is_none()
                {
                    bond.leave(net, channel, side, in_peace);
                    left[channel][side.index()] = Some(in_peace);
                }
            }
            Op::Lie { link, factor } => net.lies[link % links] = factor,
            // This case has no flows.
            Op::Burst { .. } => {}
            Op::Wait { ms: time } => drill.run(ms(time)),
            Op::End { side } => return end(&mut drill, side, case.is_quiet()),
            // These are scheduled when the network is built.
            Op::Reshape { .. }
            | Op::Silence { .. }
            | Op::Freeze { .. }
            | Op::Down { .. }
            | Op::Unaddress { .. }
            | Op::Readdress { .. }
            | Op::Lose { .. }
            | Op::Restore { .. } => {}
        }
    }
    come_to_an_end(&mut drill, &left);
    share_what_there_is(&mut drill);
}

/// A side ends the session at any point. Only a reachable peer learns of it; otherwise it waits for
/// paths until its session times out.
fn end(drill: &mut Drill, side: Side, is_quiet: bool) {
    let is_reachable = is_quiet && drill.bond.is_ready();
    drill.bond.end(&mut drill.net, side);
    drill.run(ms(1));
    assert!(drill.bond.sessions()[side.index()].is_closed());
    let all_closed = |drill: &Drill| drill.bond.sessions().iter().all(|s| s.is_closed());
    let heard = drill.until(END_HEARD_WITHIN, all_closed);
    assert!(heard || !is_reachable, "the peer did not learn of the end");
    drill.run(5 * SECOND);
}

/// The links return, and the programs read and finish.
fn come_to_an_end(drill: &mut Drill, left: &[[Option<bool>; 2]]) {
    drill.net.lies.fill(1.0);
    for channel in 0..left.len() {
        for side in Side::BOTH {
            drill.bond.set_reading(&mut drill.net, channel, side, true);
            drill.bond.finish(&mut drill.net, channel, side);
        }
    }
    let over = |drill: &Drill| !drill.bond.has_streams();
    assert!(
        drill.until(OVER_WITHIN, over),
        "streams are open: {:?}",
        drill.bond.sessions().map(|session| session.stats())
    );
    drill.run(REST);
    drill.check_streams(left);
    assert!(
        drill.until(BACK_WITHIN, |drill| drill.bond.is_ready()),
        "a link has no path that delivers"
    );
}

/// Runs bulk streams over equal links, and a small stream later: no stream and no link may starve.
///
/// A link with a large remembered round-trip time, from before its pause, stays idle until a PING
/// corrects the estimate. That may take longer than the first bulk transfer of about a second, so
/// the link must carry its share of a later one.
fn share_what_there_is(drill: &mut Drill) {
    let mut starving = Vec::new();
    for _ in 0..MAX_BULKS {
        let before = drill.carried(Side::Client);
        carry_bulk(drill);
        let after = drill.carried(Side::Client);
        let carried = before
            .iter()
            .zip(&after)
            .map(|(before, after)| after - before);
        let too_little = carried.enumerate().filter(|(_, bytes)| *bytes <= BULK / 10);
        starving = too_little.collect();
        if starving.is_empty() {
            return;
        }
    }
    panic!("links starve; bytes carried: {starving:?}");
}

fn carry_bulk(drill: &mut Drill) {
    let links = drill.net.link_count() as u64;
    let of_each = BULK * links / STREAMS;
    let bulk: Vec<usize> = (0..STREAMS)
        .map(|_| drill.open(Side::Server, of_each))
        .collect();
    drill.run(ms(300));
    let small = drill.open(Side::Server, SMALL);
    let is_done =
        |drill: &Drill, channel: usize| drill.bond.passage(channel, Side::Client).is_finished;
    let received =
        |drill: &Drill, channel: usize| drill.bond.passage(channel, Side::Client).received;
    assert!(
        drill.until(3 * SECOND, |drill| is_done(drill, small)),
        "the small stream starves: {} bytes",
        received(drill, small)
    );
    let any = |drill: &Drill| bulk.iter().any(|channel| is_done(drill, *channel));
    assert!(drill.until(20 * SECOND, any), "the bulk takes too long");
    for channel in &bulk {
        let bytes = received(drill, *channel);
        assert!(
            bytes > of_each / 4,
            "a stream starves: {bytes} of {of_each}"
        );
    }
    let all = |drill: &Drill| bulk.iter().all(|channel| is_done(drill, *channel));
    assert!(drill.until(20 * SECOND, all), "the bulk takes too long");
}

/// Continuous faults, many of them on links that have just recovered: all bytes arrive, and in the
/// end every link carries data again.
#[test]
fn ten_minutes_of_faults_lose_no_data() {
    for seed in 1..=CHAOS {
        println!("seed {seed}");
        run(&case::chaos(seed, 10 * 60 * 1000));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES),
        // A case has tens of thousands of events, so shrinking is limited.
        max_shrink_iters: 4096,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_bond_survives_all_faults(case in case::case()) {
        run(&case);
        let done = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(PROGRESS_INTERVAL) {
            println!("{done} cases have passed");
        }
    }
}
