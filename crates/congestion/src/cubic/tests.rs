//! CUBIC's curve by RFC 9438, and the effects of losses, timeouts and idle times.

use std::time::Duration;

use crate::fixture::{assert_close, ms, steady};
use crate::player::Player;
use crate::{Flow, Idle};

/// A flow in congestion avoidance after a loss at `w_max` packets, and the time of the loss.
fn after_loss(w_max: f64, rtt_ms: u64, assignments: &[&str]) -> (Player, Duration) {
    let mut cubic = steady("cubic", assignments, &[(w_max, rtt_ms)]);
    cubic.repaired_loss(0);
    let start = cubic.now;
    (cubic, start)
}

/// Continues until `seconds` after `start` and returns the window.
fn at(cubic: &mut Player, start: Duration, seconds: f64) -> f64 {
    while cubic.now < start + Duration::from_secs_f64(seconds) {
        cubic.round(0);
    }
    cubic.cwnd(0)
}

#[test]
fn the_window_follows_the_curve_concave_to_the_last_loss_and_convex_beyond() {
    // After a loss at 400 packets, 280 are left, and K is the cube root of 120 / 0.4: 6.694 s. The
    // equation's values at whole seconds (RFC 9438, equation 1: 0.4 (t - 6.694)^3 + 400):
    let table = [
        (1.0, 326.1),
        (2.0, 358.6),
        (3.0, 379.8),
        (4.0, 392.2),
        (5.0, 398.1),
        (6.0, 399.9),
        (7.0, 400.0),
        (8.0, 400.9),
        (9.0, 404.9),
        (10.0, 414.5),
        (12.0, 459.8),
    ];
    let (mut cubic, start) = after_loss(400.0, 100, &[]);
    assert_eq!(cubic.cwnd(0), 280.0);
    let mut last = 280.0;
    let mut steps = Vec::new();
    for (seconds, window) in table {
        let found = at(&mut cubic, start, seconds);
        // A window that is reached over a round trip lags behind the curve by part of a round trip.
        assert!(
            (found - window).abs() < 4.0,
            "{seconds} s: {found}, expected {window}"
        );
        steps.push(found - last);
        last = found;
    }
    let flattest = steps
        .iter()
        .position(|&step| step < 1.0)
        .expect("a plateau");
    assert!(
        steps[..flattest].is_sorted_by(|a, b| a > b),
        "concave: {steps:?}"
    );
    assert!(steps[6..].is_sorted(), "convex: {steps:?}");
}

#[test]
fn a_loss_leaves_seven_tenths() {
    let mut cubic = steady("cubic", &[], &[(100.0, 100)]);
    cubic.lose(0);
    assert_close(cubic.cwnd(0), 70.0);
    assert_close(cubic.ssthresh(0), 70.0);
    assert_eq!(cubic.ack(0, 30), 0.0);
}

#[test]
fn fast_convergence_lowers_the_plateau_when_losses_come_sooner() {
    let plateau = |assignments: &[&str]| {
        let (mut cubic, _) = after_loss(400.0, 100, assignments);
        // A second loss at 300 packets, before 400 are reached: 210 are left, and the plateau is at
        // 300 or 300 * 0.85.
        cubic.place(0, 300.0);
        cubic.repaired_loss(0);
        let start = cubic.now;
        // K is the cube root of 45 / 0.4 or 90 / 0.4: 4.83 s or 6.08 s.
        at(&mut cubic, start, 5.5)
    };
    let lowered = plateau(&[]);
    assert!((254.0..257.0).contains(&lowered), "{lowered}");
    let kept = plateau(&["fast_convergence=false"]);
    assert!((298.0..301.0).contains(&kept), "{kept}");
}

#[test]
fn on_short_paths_it_is_as_fast_as_reno() {
    let (mut cubic, _) = after_loss(20.0, 10, &[]);
    // From 14 packets: each round trip adds 3 * 0.3 / 1.7 = 0.529 packets until 20 are reached,
    // then one.
    cubic.rounds(0, 5);
    let young = cubic.cwnd(0);
    assert!((16.4..16.8).contains(&young), "{young}");
    cubic.rounds(0, 8);
    let grown = cubic.round(0);
    assert!((0.9..=1.0).contains(&grown), "{grown}");
    let (mut unfriendly, _) = after_loss(20.0, 10, &["reno_friendly=false"]);
    unfriendly.rounds(0, 5);
    assert!(unfriendly.cwnd(0) < 15.0);
}

#[test]
fn a_round_trip_adds_at_most_half_a_window() {
    // The curve is at 1.5 s * 1000 MSS/s^3 after one round trip, far above.
    let (mut cubic, _) = after_loss(100.0, 1_500, &["c=100"]);
    let before = cubic.cwnd(0);
    let grown = cubic.round(0);
    assert!(grown > 0.3 * before && grown < 0.6 * before, "{grown}");
    // One acknowledgment for the whole window adds no more.
    let before = cubic.cwnd(0);
    cubic.now += ms(1_500);
    assert!(cubic.ack(0, before as u32) <= 0.5 * before);
}

#[test]
fn a_timeout_starts_the_curve_at_its_plateau() {
    let mut cubic = steady("cubic", &[], &[(100.0, 100)]);
    cubic.time_out(0, false);
    assert_eq!((cubic.cwnd(0), cubic.ssthresh(0)), (1.0, 70.0));
    cubic.recover(0);
    while cubic.flows[0].in_slow_start {
        cubic.round(0);
    }
    let start = cubic.now;
    let base = cubic.cwnd(0);
    let window = at(&mut cubic, start, 3.0);
    // K = 0: 0.4 * 3^3 packets more, not back to 100.
    assert!((window - base - 10.8).abs() < 6.0, "{base} {window}");
}

#[test]
fn slow_start_without_a_loss_continues_from_the_plateau() {
    let mut cubic = steady("cubic", &[], &[(100.0, 100)]);
    let start = cubic.now;
    let window = at(&mut cubic, start, 4.0);
    // 0.4 * 4^3 = 25.6, or Reno's 40 packets in 40 round trips
    assert!((139.0..=141.0).contains(&window), "{window}");
    let mut cubic = steady("cubic", &["reno_friendly=false"], &[(100.0, 100)]);
    let window = at(&mut cubic, start, 4.0);
    assert!((123.0..129.0).contains(&window), "{window}");
}

#[test]
fn unused_time_does_not_count() {
    let (mut busy, start) = after_loss(400.0, 100, &[]);
    let expected = at(&mut busy, start, 3.0);
    let (mut pausing, start) = after_loss(400.0, 100, &[]);
    at(&mut pausing, start, 1.5);
    for _ in 0..50 {
        pausing.now += ms(100);
        assert_eq!(pausing.ack_if(0, 10, false), 0.0);
    }
    let lasted = ms(10_000);
    pausing.now += lasted;
    let idle = Idle {
        now: pausing.now,
        lasted,
        rto: ms(20_000),
    };
    pausing.controls[0].on_idle_end(&idle);
    let found = at(&mut pausing, start, 18.0);
    assert!(
        (found - expected).abs() < 2.0,
        "{found}, expected {expected}"
    );
}

#[test]
fn a_spurious_loss_restores_the_curve() {
    let (mut cubic, start) = after_loss(400.0, 100, &[]);
    let (mut twin, _) = after_loss(400.0, 100, &[]);
    at(&mut cubic, start, 2.0);
    at(&mut twin, start, 2.0);
    cubic.lose(0);
    cubic.controls[0].on_spurious_loss(cubic.now);
    cubic.flows[0] = cubic.controls[0].flow();
    let state = |bond: &Player| -> Flow {
        let flow = bond.flows[0];
        Flow {
            between_losses: Default::default(),
            ..flow
        }
    };
    assert_eq!(state(&cubic), state(&twin));
    assert_close(at(&mut cubic, start, 5.0), at(&mut twin, start, 5.0));
}
