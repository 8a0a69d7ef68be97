use etherparse::TcpOptionElement as Option_;
use proptest::prelude::*;

use super::fixture::{Draft, segment};
use super::*;

fn full() -> Draft {
    Draft::up(7)
        .ack(1000)
        .option(Option_::MaximumSegmentSize(1460))
        .option(Option_::Noop)
        .option(Option_::Timestamp(11, 22))
        .sack(&[(2000, 3000), (4000, 5000)])
}

#[test]
fn a_parsed_segment_matches_its_header() {
    let packet = full().payload(b"hello").packet();
    let segment = segment(&packet);
    assert_eq!((segment.sequence, segment.ack, segment.len), (7, 1000, 5));
    assert_eq!(&packet[segment.payload..], b"hello");
    assert_eq!(segment.options.mss.unwrap().0, 1460);
    assert_eq!(segment.options.timestamps, Some((11, 22)));
    assert_eq!(
        segment.options.sack.iter().collect::<Vec<_>>(),
        [(2000, 3000), (4000, 5000)]
    );
    assert_eq!(segment.sequence_len(), 5);
    assert_eq!(Draft::up(1).syn().fin().segment().sequence_len(), 2);
}

#[test]
fn edits_keep_the_checksum_valid() {
    let mut packet = full().payload(b"odd").packet();
    let before = segment(&packet);
    set_ack(&mut packet, &before, 0xfedc_ba98);
    set_window(&mut packet, &before, 17);
    set_timestamp(&mut packet, &before, 12);
    set_timestamp_echo(&mut packet, &before, 99);
    clamp_mss(&mut packet, &before, 1300);
    let mut blocks = SackBlocks::default();
    blocks.push(4000, 5000);
    set_sack_blocks(&mut packet, &before, &blocks);
    let after = segment(&packet);
    assert_eq!((after.ack, after.window), (0xfedc_ba98, 17));
    assert_eq!(after.options.timestamps, Some((12, 99)));
    assert_eq!(after.options.mss.unwrap().0, 1300);
    assert_eq!(after.options.sack, blocks);
    set_sack_blocks(&mut packet, &after, &SackBlocks::default());
    assert!(segment(&packet).options.sack.is_empty());
}

#[test]
fn sack_permitted_is_removed_from_a_syn() {
    let mut packet = Draft::down(1)
        .syn()
        .option(Option_::SelectiveAcknowledgementPermitted)
        .option(Option_::WindowScale(15))
        .packet();
    let before = segment(&packet);
    assert_eq!(
        before.options.window_scale,
        Some(14),
        "RFC 7323: a larger count is read as 14"
    );
    strip_sack_permitted(&mut packet, &before);
    let after = segment(&packet);
    assert_eq!(after.options.sack_permitted, None);
    assert_eq!(after.options.window_scale, Some(14));
}

/// Linux uses the last of them, others the first.
#[test]
fn a_repeated_option_is_edited_every_time() {
    let mut packet = Draft::down(1)
        .syn()
        .option(Option_::MaximumSegmentSize(1200))
        .option(Option_::SelectiveAcknowledgementPermitted)
        .option(Option_::MaximumSegmentSize(1460))
        .option(Option_::SelectiveAcknowledgementPermitted)
        .packet();
    let before = segment(&packet);
    assert_eq!(before.options.mss.unwrap().0, 1460);
    clamp_mss(&mut packet, &before, 1000);
    strip_sack_permitted(&mut packet, &before);
    let options = &segment(&packet);
    let options = &packet[options.header + 20..options.payload];
    assert_eq!(options[..12], [2, 4, 3, 232, 1, 1, 2, 4, 3, 232, 1, 1]);

    let mut packet = Draft::up(7)
        .ack(1000)
        .option(Option_::Timestamp(11, 22))
        .option(Option_::Timestamp(33, 44))
        .packet();
    let before = segment(&packet);
    assert_eq!(before.options.timestamps, Some((33, 44)));
    set_timestamp(&mut packet, &before, 5);
    set_timestamp_echo(&mut packet, &before, 6);
    let twice = [&[8, 10, 0, 0, 0, 5, 0, 0, 0, 6][..]; 2].concat();
    assert_eq!(packet[before.header + 20..][..20], twice);

    let mut packet = Draft::up(7)
        .ack(1000)
        .sack(&[(2000, 3000)])
        .sack(&[(4000, 5000), (6000, 7000)])
        .packet();
    let before = segment(&packet);
    let last = [(4000, 5000), (6000, 7000)];
    assert_eq!(before.options.sack.iter().collect::<Vec<_>>(), last);
    let mut blocks = SackBlocks::default();
    blocks.push(8000, 9000);
    set_sack_blocks(&mut packet, &before, &blocks);
    let after = segment(&packet);
    assert_eq!(after.options.sack, blocks);
    assert_eq!(packet[before.header + 20..][..10], [1; 10]);
}

#[test]
fn an_edit_does_not_hide_damage_elsewhere() {
    let mut packet = full().payload(b"payload").packet();
    let before = segment(&packet);
    *packet.last_mut().unwrap() ^= 1;
    set_ack(&mut packet, &before, 5);
    let parsed = parse(&packet, true);
    let Parsed::Malformed(Malformed::Checksum, Some(addresses)) = parsed else {
        panic!("{parsed:?}");
    };
    assert_eq!(addresses.destination, before.destination.ip());
}

#[test]
fn fragments_and_other_protocols_are_not_segments() {
    let mut packet = full().payload(&[0; 64]).packet();
    packet[6] |= 0x20; // more fragments
    let Parsed::Other(addresses) = parse(&packet, true) else {
        panic!("parsed as a segment")
    };
    assert_eq!((addresses.protocol, addresses.ports), (6, None));

    let mut udp = Vec::new();
    etherparse::PacketBuilder::ipv6([1; 16], [2; 16], 9)
        .udp(53, 5353)
        .write(&mut udp, b"x")
        .unwrap();
    let Parsed::Other(addresses) = parse(&udp, true) else {
        panic!("parsed as a segment")
    };
    assert_eq!(addresses.ports, Some((53, 5353)));
}

#[test]
fn options_of_impossible_length_are_errors() {
    for options in [&[5, 1, 0, 0][..], &[5, 0], &[8, 10, 0, 0], &[2]] {
        assert_eq!(
            Options::read(options, 0),
            Err(Malformed::TcpOption),
            "{options:?}"
        );
    }
    assert_eq!(
        Options::read(&[1, 0, 77, 99], 0),
        Ok(Options::default()),
        "options after the end are ignored"
    );
    assert_eq!(
        Options::read(&[254, 2, 3, 3, 5, 1], 0)
            .unwrap()
            .window_scale,
        Some(5),
        "an unknown option is skipped"
    );
}

#[test]
fn signed_flows_and_multipath_tcp_are_sealed() {
    for kind in [19, 29, 30] {
        let options = Options::read(&[kind, 4, 0, 0], 0).unwrap();
        assert!(options.sealed);
        assert_eq!(options.signed, kind != 30, "{kind}");
    }
}

#[test]
fn a_reset_is_a_valid_segment() {
    for (from, to) in [
        ("192.0.2.1:80", "10.0.0.2:99"),
        ("[2001:db8::1]:80", "[2001:db8::2]:99"),
    ] {
        let packet = reset(from.parse().unwrap(), to.parse().unwrap(), 7, 9).unwrap();
        let segment = segment(&packet);
        assert!(segment.flags.rst);
        assert_eq!((segment.sequence, segment.ack), (7, 9));
    }
    assert_eq!(
        reset(
            "1.2.3.4:5".parse().unwrap(),
            "[::1]:5".parse().unwrap(),
            1,
            2
        ),
        None
    );
}

proptest! {
    #[test]
    fn no_input_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        verify: bool,
    ) {
        parse(&bytes, verify);
    }

    /// Truncated and damaged segments are parsed without a panic, and edits of parsed ones stay
    /// inside the packet.
    #[test]
    fn damaged_segments_can_be_edited(
        cut in 0usize..120,
        damage in proptest::collection::vec((0usize..120, any::<u8>()), 0..6),
        ack: u32,
        echo: u32,
    ) {
        let mut packet = full().payload(b"some payload").packet();
        packet.truncate(cut.max(1));
        for (at, value) in damage {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        if let Parsed::Tcp(segment) = parse(&packet, false) {
            let verified = matches!(parse(&packet, true), Parsed::Tcp(_));
            set_ack(&mut packet, &segment, ack);
            set_timestamp_echo(&mut packet, &segment, echo);
            set_sack_blocks(&mut packet, &segment, &SackBlocks::default());
            strip_sack_permitted(&mut packet, &segment);
            clamp_mss(&mut packet, &segment, 1000);
            prop_assert_eq!(verified, matches!(parse(&packet, true), Parsed::Tcp(_)));
        }
    }
}
