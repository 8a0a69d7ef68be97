//! Late, suspect and stalled paths.

use super::*;
use crate::PathId;
use crate::path::{PathState, STALL_HALF_LIFE};

const MS: Duration = Duration::from_millis(1);

/// A path that stalled after a second with 100 kB in flight, of which TCP still has
/// `in_flight`.
fn stalled(in_flight: u64) -> Path {
    let mut path = Path::new(PathId(0), Instant::ZERO);
    let sample = |delivered, in_flight| PathSample {
        srtt: 20 * MS,
        mss: 1448,
        in_flight,
        delivered,
        ..PathSample::default()
    };
    path.outbound.sent = 100_000;
    path.update(sample(1, 100_000), 900 * MS);
    (path.state, path.stall.recovers_at, path.stall.began) =
        (PathState::Stalled, 100_000, 1000 * MS);
    path.update(sample(50, in_flight), 1100 * MS);
    path
}

#[test]
fn a_faded_path_recovers_when_all_is_acknowledged_to_tcp() {
    let mut path = stalled(0);
    path.confirm(50_000, 1100 * MS);
    assert!(path.has_caught_up(1100 * MS), "reports follow later");
    let mut path = stalled(1448);
    path.confirm(50_000, 1100 * MS);
    assert!(
        !path.has_caught_up(1100 * MS),
        "not all of it is acknowledged"
    );
    path.confirm(100_000, 1110 * MS);
    assert!(path.has_caught_up(9999 * MS), "the peer has reported it");
}

#[test]
fn tcp_acknowledgments_alone_do_not_recover_a_path() {
    // A proxy may have sent the acknowledgments.
    let mut path = stalled(0);
    assert!(!path.has_caught_up(1100 * MS));
    path.confirm(50_000, 1100 * MS);
    let later = 1100 * MS + path.stall_patience();
    assert!(!path.has_caught_up(later), "old reports do not count");
}

/// A path with a round trip of 1 ms and 10 kB in flight. It delivered after 1 s, was silent for
/// `silence`, and delivers again.
fn after_silence(silence: Duration) -> Path {
    let mut path = Path::new(PathId(0), Instant::ZERO);
    let sample = |delivered| PathSample {
        srtt: MS,
        mss: 1448,
        in_flight: 10_000,
        delivered,
        ..PathSample::default()
    };
    path.update(sample(1), 900 * MS);
    path.update(sample(2), 1000 * MS);
    path.outbound.sent = 10_000;
    path.outbound.flights.push_back(Flight {
        stream: 0,
        range: 0..10_000,
        sent_at: 1000 * MS,
        expected_at: 1001 * MS,
        patience: 16 * MS,
        round_trip: MS,
        repeated: false,
        path_end: 10_000,
        record_end: 10_000,
    });
    path.update(sample(40), 1000 * MS + silence);
    path
}

#[test]
fn a_path_whose_repairs_take_longer_gets_more_time() {
    let mut path = after_silence(130 * MS);
    // Suspect 30 ms after the last proof, it needed another 99 ms, and now gets them.
    assert!(!path.is_suspect(1257 * MS));
    assert!(path.is_suspect(1260 * MS));
    let stalls_at = path.stalls_at();
    path.progress.more_repair = MoreRepair::new(Instant::ZERO);
    assert!(stalls_at > path.stalls_at());
}

#[test]
fn a_lost_retransmission_has_the_time_of_a_timeout() {
    for (loss, least) in [
        (LossState::Open, REPAIR_MIN),
        (LossState::Recovery, TIMEOUT_MIN),
    ] {
        let sample = PathSample {
            srtt: 20 * MS,
            loss,
            ..PathSample::default()
        };
        let proof = DeliveryProof::new(&sample, 0, 1000 * MS);
        assert_eq!(proof.stall_repair(), 20 * MS + least + REPAIR_SLACK);
    }
}

/// BBR's window in startup is small, so that the path counts as one beyond its slow start.
#[test]
fn a_queue_that_fills_in_the_first_second_is_no_stall() {
    let mut path = after_silence(40 * MS);
    let grown = PathSample {
        srtt: 50 * MS,
        rttvar: 10 * MS,
        ..path.sample
    };
    path.outbound.sent = 10_000_000;
    path.sample.in_flight = 5_000_000;
    let flight = path.outbound.flights.back_mut().unwrap();
    (flight.path_end, flight.record_end) = (10_000_000, 10_000_000);
    assert!(!path.is_doubling());
    path.progress.proof = Some(DeliveryProof::new(&grown, 0, 1040 * MS));
    path.progress.acknowledged_at = 1040 * MS;
    let late = path.late_stalls_at();
    assert_eq!(late, Some(1001 * MS + MS + 2 * 16 * MS));
    path.progress.first_data = Some(1000 * MS);
    assert!(path.late_stalls_at() >= late.map(|late| late + 50 * MS));
    path.progress.first_data = Some(Instant::ZERO);
    assert_eq!(path.late_stalls_at(), late, "a second ago");
}

#[test]
fn an_outage_brings_a_path_no_patience() {
    let path = after_silence(400 * MS);
    assert!(path.is_suspect(1432 * MS));
}

#[test]
fn additional_time_for_repairs_decays() {
    let mut more = MoreRepair::new(Instant::ZERO);
    more.needed(1000 * MS, 1200 * MS);
    assert_eq!(more.at(1200 * MS), 200 * MS);
    assert_eq!(more.at(1200 * MS + STALL_HALF_LIFE), 100 * MS);
    more.needed(2000 * MS, 2050 * MS);
    assert!(
        more.at(2050 * MS) > 190 * MS,
        "a shorter repair needs no more"
    );
    more.needed(3000 * MS, 3301 * MS);
    assert!(more.at(3301 * MS) < 200 * MS, "an outage");
}
