//! Acknowledgments in parts, for any acknowledgments of the user and any times.

use std::collections::BTreeSet;

use etherparse::TcpOptionElement as Option_;
use proptest::prelude::*;

use super::scripted::{drain, ms, sent, started};
use crate::Config;
use crate::packet::Segment;
use crate::packet::fixture::Draft;
use crate::visible::Boost;

/// Segments of 1000 bytes from 1000 on.
const SEGMENTS: u32 = 120;
const SCALE: u32 = 7;

fn edge_of(segment: &Segment) -> u32 {
    segment.ack + (u32::from(segment.window) << SCALE)
}

proptest! {
    /// Parts acknowledge and permit no more than the user's acknowledgment, never less than the
    /// part before, and all of it in the end.
    #[test]
    fn parts_are_the_users_and_reach_its_number(
        steps in proptest::collection::vec((0u32..50, 0u16..40, 0u64..12, 0u8..4), 1..40),
    ) {
        let mut config = Config { steering: "roundrobin".into(), ..Config::default() };
        config.visible.boost = Boost::Off;
        let mut edge = started(config, SEGMENTS);
        let (mut acked, mut now) = (2000, 41);
        // The window never moves back, as a receiver's must not (RFC 9293, section 3.8.6).
        let mut permitted = 2000 + (1000 << SCALE);
        let mut permitted_by_user = BTreeSet::from([permitted]);
        let (mut last, mut last_edge) = (2000, permitted);
        for (segments, wider, wait, kind) in steps {
            now += wait;
            while let Some(at) = edge.poll_timeout().filter(|at| *at <= ms(now)) {
                edge.handle_timeout(at);
                for part in drain(&mut edge) {
                    prop_assert!(part.ack > last && part.ack <= acked, "{} {last}", part.ack);
                    prop_assert!(edge_of(&part) >= last_edge && edge_of(&part) <= permitted);
                    (last, last_edge) = (part.ack, edge_of(&part));
                }
            }
            let before = acked;
            acked = (acked + 1000 * segments).min(1000 * (SEGMENTS + 1));
            let window = (permitted - acked).div_ceil(1 << SCALE) + u32::from(wider);
            permitted = acked + (window << SCALE);
            permitted_by_user.insert(permitted);
            let mut draft = Draft::up(501).ack(acked).window(window as u16);
            draft = draft.option(Option_::Timestamp(9, 70));
            if kind == 0 && acked + 3000 < 1000 * SEGMENTS {
                draft = draft.sack(&[(acked + 1000, acked + 2000)]);
            }
            edge.handle_user(draft.packet(), ms(now));
            for passed in drain(&mut edge) {
                prop_assert!(passed.ack >= last && passed.ack <= acked, "{} {before}", passed.ack);
                prop_assert!(edge_of(&passed) >= last_edge && edge_of(&passed) <= permitted);
                (last, last_edge) = (passed.ack, edge_of(&passed));
            }
            sent(&mut edge, ms(now));
        }
        let end = ms(now + 150);
        while let Some(at) = edge.poll_timeout().filter(|at| *at <= end) {
            edge.handle_timeout(at);
            sent(&mut edge, at);
            for part in drain(&mut edge) {
                prop_assert!(part.ack > last && part.ack <= acked);
                prop_assert!(edge_of(&part) >= last_edge && edge_of(&part) <= permitted);
                prop_assert!(permitted_by_user.contains(&edge_of(&part)), "an edge of the user's");
                (last, last_edge) = (part.ack, edge_of(&part));
            }
        }
        prop_assert_eq!(last, acked, "all of it, within 150 ms");
    }
}
