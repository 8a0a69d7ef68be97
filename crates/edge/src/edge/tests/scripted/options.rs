//! Options of SYNs that the node changes, and packets that it cannot parse and passes on.

use etherparse::TcpOptionElement as Option_;

use super::{answer, ms, sent};
use crate::packet::fixture::{Draft, segment};
use crate::{Config, Edge, Mode, Sack};

#[test]
fn sack_is_removed_from_syns_only_if_configured() {
    for (sack, mode, offered) in [
        (Sack::Strip, Mode::LwipVisible, false),
        (Sack::Rewrite, Mode::LwipVisible, true),
        (Sack::Strip, Mode::Lwip, true),
    ] {
        let mut edge = Edge::new(Config {
            sack,
            mode,
            mss: Some(1200),
            ..Config::default()
        })
        .unwrap();
        let syn = Draft::up(500)
            .syn()
            .option(Option_::SelectiveAcknowledgementPermitted);
        let syn = answer(
            &mut edge,
            syn.option(Option_::MaximumSegmentSize(1460)).packet(),
            ms(0),
        )
        .unwrap();
        assert_eq!(syn.options.sack_permitted.is_some(), offered);
        assert_eq!(syn.options.mss.unwrap().0, 1200);
    }
}

#[test]
fn only_the_mss_of_a_multipath_tcp_syn_is_lowered() {
    let syn = |mss| {
        // MP_CAPABLE (kind 30) in place of the timestamps.
        let draft = Draft::up(500)
            .syn()
            .option(Option_::MaximumSegmentSize(mss))
            .option(Option_::SelectiveAcknowledgementPermitted)
            .option(Option_::Timestamp(0x0101_0101, 0));
        let mut packet = draft.packet();
        let right = segment(&packet);
        packet[right.options.timestamps_at.unwrap()] = 30;
        (packet, right.header + 16)
    };
    let mut edge = Edge::new(Config {
        sack: Sack::Strip,
        mss: Some(500),
        verify_checksums: false,
        ..Config::default()
    })
    .unwrap();
    edge.handle_user(syn(1460).0, ms(0));
    let passed = edge.poll_far().unwrap();
    // The draft's checksum does not cover the replaced kind; only the MSS edit changes it.
    let (expected, checksum) = syn(500);
    let without = |packet: &[u8]| [&packet[..checksum], &packet[checksum + 2..]].concat();
    assert_eq!(without(&passed), without(&expected));
    assert_eq!(
        passed[checksum..checksum + 2],
        expected[checksum..checksum + 2]
    );
}

#[test]
fn ipv6_segments_shrink_by_the_longer_header() {
    let (far, user) = (
        "[fd00::1]:80".parse().unwrap(),
        "[fd00::2]:4000".parse().unwrap(),
    );
    let mut edge = Edge::new(Config {
        mss: Some(1360),
        ..Config::default()
    })
    .unwrap();
    let syn = Draft::between(user, far, 1).syn();
    let syn = answer(
        &mut edge,
        syn.option(Option_::MaximumSegmentSize(1440)).packet(),
        ms(0),
    );
    assert_eq!(syn.unwrap().options.mss.unwrap().0, 1340);
}

#[test]
fn sealed_flows_pass_unchanged() {
    let mut edge = Edge::new(Config {
        sack: Sack::Strip,
        mss: Some(500),
        ..Config::default()
    })
    .unwrap();
    let syn = Draft::up(500)
        .syn()
        .option(Option_::MaximumSegmentSize(1460))
        .packet();
    // A SYN with the option of Multipath TCP in place of the MSS.
    let mut sealed = syn.clone();
    let at = segment(&syn).header + 20;
    sealed[at] = 30;
    let parsed = crate::packet::parse(&sealed, false);
    let crate::packet::Parsed::Tcp(parsed) = parsed else {
        panic!()
    };
    assert!(parsed.options.sealed);
    let mut edge_without = Edge::new(Config {
        verify_checksums: false,
        ..Config::default()
    })
    .unwrap();
    edge_without.handle_user(sealed.clone(), ms(0));
    assert_eq!(edge_without.poll_far(), Some(sealed.clone()));
    edge_without.handle_user(Draft::up(501).ack(7).packet(), ms(1));
    assert_eq!(
        edge_without.poll_far(),
        Some(Draft::up(501).ack(7).packet())
    );
    // A packet with a wrong checksum changes nothing, and is passed on.
    edge.handle_user(sealed.clone(), ms(0));
    assert_eq!(edge.poll_far(), Some(sealed));
    assert_eq!((edge.counters().malformed, edge.counters().flows), (1, 0));
    edge.handle_far(vec![0x45, 0, 0], ms(1));
    assert_eq!(
        (edge.counters().malformed, sent(&mut edge, ms(1)).len()),
        (2, 0)
    );
}
