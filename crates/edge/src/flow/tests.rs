use etherparse::TcpOptionElement as Option_;
use proptest::prelude::*;

use super::*;
use crate::packet::fixture::Draft;

/// An open flow: the far end's data starts at `data`, the user's at 501; the window scale is 3.
fn open(data: u32) -> Flow {
    let mut flow = Flow::new();
    let syn = Draft::up(500)
        .syn()
        .option(Option_::WindowScale(3))
        .option(Option_::MaximumSegmentSize(1000));
    assert_eq!(flow.user_segment(&syn.segment()), Acknowledgment::None);
    assert_eq!(flow.phase(), Phase::HalfOpen);
    let syn = Draft::down(data.wrapping_sub(1))
        .syn()
        .ack(501)
        .option(Option_::WindowScale(7));
    flow.far_segment(&syn.segment());
    assert_eq!(
        (flow.phase(), flow.scale(), flow.mss()),
        (Phase::Open, Some(3), 1000)
    );
    flow.user_segment(&Draft::up(501).ack(data).segment());
    flow
}

fn data(flow: &mut Flow, sequence: u32, len: usize) -> Arrival {
    flow.far_segment(
        &Draft::down(sequence)
            .ack(501)
            .payload(&vec![0; len])
            .segment(),
    )
}

fn ack(flow: &mut Flow, number: u32) -> Acknowledgment {
    flow.user_segment(&Draft::up(501).ack(number).segment())
}

#[test]
fn acknowledgments_are_classified_across_the_wrap_around() {
    let start = u32::MAX - 1499;
    let mut flow = open(start);
    let first = flow.acked().unwrap();
    assert_eq!(flow.initial(), Some(first - 1));
    for n in 0..4u32 {
        assert_eq!(
            data(&mut flow, start.wrapping_add(1000 * n), 1000).new_bytes,
            1000
        );
    }
    assert_eq!(flow.contiguous(), first + 4000);
    assert_eq!(
        ack(&mut flow, start.wrapping_add(2000)),
        Acknowledgment::New { from: first }
    );
    assert_eq!(
        ack(&mut flow, start.wrapping_add(1000)),
        Acknowledgment::Old
    );
    assert_eq!(
        ack(&mut flow, start.wrapping_add(2000)),
        Acknowledgment::Duplicate {
            window_moves: false
        }
    );
    assert_eq!(flow.outstanding(), 2000);
    assert_eq!(flow.permitted(), first + 2000 + 480_000);
}

#[test]
fn segments_with_data_or_a_larger_window_are_not_duplicates() {
    let mut flow = open(1000);
    data(&mut flow, 1000, 100);
    data(&mut flow, 1100, 100);
    let up = || Draft::up(501).ack(1000);
    assert_eq!(
        flow.user_segment(&up().payload(b"x").segment()),
        Acknowledgment::Same
    );
    assert_eq!(
        flow.user_segment(&up().window(9).segment()),
        Acknowledgment::Same
    );
    assert_eq!(
        flow.user_segment(&up().window(9).segment()),
        Acknowledgment::Duplicate {
            window_moves: false
        }
    );
    let with_blocks = up().window(8).sack(&[(1100, 1200)]);
    assert_eq!(
        flow.user_segment(&with_blocks.segment()),
        Acknowledgment::Duplicate { window_moves: true }
    );
    assert_eq!(
        ack(&mut flow, 1200),
        Acknowledgment::New {
            from: flow.initial().unwrap() + 1
        }
    );
    assert_eq!(
        ack(&mut flow, 1200),
        Acknowledgment::Repeated,
        "without outstanding data, a keepalive is not a duplicate"
    );
    let up = || Draft::up(502).ack(1200);
    for (window, expected) in [
        (9, Acknowledgment::Repeated),
        (u16::MAX, Acknowledgment::Same),
        (0, Acknowledgment::Same),
    ] {
        let segment = up().window(window).segment();
        assert_eq!(flow.user_segment(&segment), expected, "{window}");
    }
}

#[test]
fn only_data_that_the_node_received_counts_as_received() {
    let mut flow = open(1000);
    let base = flow.acked().unwrap();
    data(&mut flow, 1000, 100);
    data(&mut flow, 1200, 100);
    assert_eq!(flow.contiguous(), base + 100);
    assert!(flow.has_received(base + 100) && !flow.has_received(base + 101));
    assert_eq!(data(&mut flow, 1050, 200).new_bytes, 100);
    assert_eq!(flow.contiguous(), base + 300);
}

#[test]
fn data_outside_the_window_is_ignored() {
    let mut flow = open(1000);
    assert_eq!(data(&mut flow, 1000 + 480_002, 100).position, None);
    assert_eq!(data(&mut flow, 1000 + 479_900, 100).new_bytes, 100);
}

#[test]
fn without_both_offers_windows_are_not_scaled() {
    let mut flow = Flow::new();
    flow.user_segment(
        &Draft::up(500)
            .syn()
            .option(Option_::WindowScale(3))
            .segment(),
    );
    assert_eq!(flow.scale(), None, "one SYN does not suffice");
    flow.far_segment(&Draft::down(999).syn().ack(501).segment());
    assert_eq!(flow.scale(), Some(0));
}

#[test]
fn a_syn_without_an_mss_means_536_until_a_larger_segment_arrives() {
    let mut flow = Flow::new();
    flow.user_segment(&Draft::up(500).syn().segment());
    flow.far_segment(&Draft::down(999).syn().ack(501).segment());
    flow.user_segment(&Draft::up(501).ack(1000).segment());
    assert_eq!(flow.mss(), 536);
    data(&mut flow, 1000, 100);
    assert_eq!(flow.mss(), 536);
    data(&mut flow, 1100, 1300);
    assert_eq!(flow.mss(), 1300);
    data(&mut flow, 2400, 200);
    assert_eq!(flow.mss(), 1300);

    // A user that claims to receive nothing more.
    let mut flow = open(1000);
    data(&mut flow, 1000, 1300);
    assert_eq!(flow.mss(), 1000);
}

#[test]
fn both_fins_close_a_flow_and_a_reset_in_its_place_ends_it() {
    let mut flow = open(1000);
    flow.far_segment(&Draft::down(1000).ack(501).fin().segment());
    assert_eq!(flow.phase(), Phase::Open);
    assert_eq!(flow.far_fin(), Some(flow.acked().unwrap() + 1));
    flow.user_segment(&Draft::up(501).ack(1001).fin().segment());
    assert_eq!(flow.phase(), Phase::Closing);

    let mut flow = open(1000);
    flow.user_segment(&Draft::up(77).rst().segment());
    assert_eq!(flow.phase(), Phase::Open, "such a reset can be forged");
    flow.user_segment(&Draft::up(501).rst().segment());
    assert_eq!(flow.phase(), Phase::Closed);

    let mut flow = open(1000);
    flow.far_segment(&Draft::down(999_999).rst().segment());
    assert_eq!(flow.phase(), Phase::Open);
    flow.far_segment(&Draft::down(1000).rst().segment());
    assert_eq!(flow.phase(), Phase::Closed);
}

#[test]
fn data_acknowledged_long_ago_changes_nothing() {
    let mut flow = open(1000);
    data(&mut flow, 1000, 1000);
    ack(&mut flow, 2000);
    let scale = flow.scale();
    flow.far_segment(&Draft::down(500).ack(501).fin().segment());
    assert_eq!(flow.far_fin(), None);
    flow.far_segment(&Draft::down(700).syn().ack(501).segment());
    flow.user_segment(&Draft::up(500).syn().ack(2000).segment());
    assert_eq!((flow.scale(), flow.phase()), (scale, Phase::Open));
}

#[test]
fn a_flow_seen_in_one_direction_tracks_only_that() {
    let mut flow = Flow::new();
    for n in 0..10 {
        data(&mut flow, 1000 + 100 * n, 100);
    }
    assert_eq!(
        (flow.phase(), flow.acked(), flow.outstanding(), flow.owed()),
        (Phase::Adopted, None, 0, 0)
    );

    let mut flow = Flow::new();
    assert!(matches!(ack(&mut flow, 1000), Acknowledgment::New { .. }));
    assert!(matches!(ack(&mut flow, 2000), Acknowledgment::New { .. }));
    assert_eq!(ack(&mut flow, 2000), Acknowledgment::Repeated);
    assert_eq!(flow.outstanding(), 0);
    assert!(!flow.has_received(flow.acked().unwrap() + 1));
}

#[test]
fn many_gaps_cost_bounded_memory() {
    let mut flow = open(0);
    for n in 0..10_000 {
        data(&mut flow, 20 + 40 * n, 10);
    }
    assert_eq!(flow.received.count(), MAX_RANGES);
}

#[test]
fn a_far_end_with_premature_acknowledgments_is_detected() {
    let mut flow = Flow::new();
    ack(&mut flow, 1000);
    data(&mut flow, 2000, 100);
    assert_eq!(flow.orphaned(), None);
    data(&mut flow, 2000, 100);
    assert_eq!(flow.orphaned(), Some(seq::first(2000)));
    data(&mut flow, 1000, 1000);
    assert_eq!(flow.orphaned(), None);
}

proptest! {
    /// Random segments from both ends, anywhere in the window and across the wrap-around, compared
    /// with a plain array of bytes.
    #[test]
    fn random_segments_match_a_plain_array(
        start: u32,
        operations in proptest::collection::vec((any::<bool>(), 0u32..3000, 0usize..300), 0..120),
    ) {
        let mut flow = open(start);
        let base = flow.acked().unwrap();
        let mut received = [false; 4000];
        let (mut acked, mut highest) = (0, 0);
        for (is_data, offset, len) in operations {
            let number = start.wrapping_add(offset);
            if is_data {
                let range = offset as usize..offset as usize + len;
                let floor = range.start.max(acked);
                let missing = |bytes: &[bool]| bytes.iter().filter(|&&b| !b).count();
                let new = received.get(floor..range.end).map_or(0, missing);
                prop_assert_eq!(data(&mut flow, number, len).new_bytes, new as u64);
                received[range.clone()].fill(true);
                if len > 0 { highest = highest.max(range.end); }
                else { highest = highest.max(range.start); }
            } else {
                let offset = offset as usize;
                let expected = match offset.cmp(&acked) {
                    std::cmp::Ordering::Less => Acknowledgment::Old,
                    std::cmp::Ordering::Equal if highest > acked => {
                        Acknowledgment::Duplicate { window_moves: false }
                    }
                    std::cmp::Ordering::Equal => Acknowledgment::Repeated,
                    std::cmp::Ordering::Greater if offset > highest => Acknowledgment::Beyond,
                    std::cmp::Ordering::Greater => {
                        Acknowledgment::New { from: base + acked as u64 }
                    }
                };
                prop_assert_eq!(ack(&mut flow, number), expected);
                acked = acked.max(offset);
                highest = highest.max(acked);
            }
            let run = received[acked..].iter().take_while(|&&b| b).count();
            prop_assert_eq!(flow.acked(), Some(base + acked as u64));
            prop_assert_eq!(flow.contiguous(), base + (acked + run) as u64);
            prop_assert_eq!(flow.highest(), base + highest as u64);
            prop_assert!(flow.ack_sent() >= flow.acked().unwrap());
        }
    }
}
