//! Decodes the examples in docs/protocol-frames.md and docs/protocol-datagrams.md and checks them
//! against their descriptions.

use std::collections::BTreeSet;

use sumlink_engine::datagram::wire::{MAX_REPORT_RANGES, MAX_TARGET, Packet, Record};
use sumlink_engine::datagram::{CloseReason, FlowErrorCode};
use sumlink_engine::frame::{Frame, MAX_ACK_RANGES, MAX_BODY, MAX_DATA, MAX_TEXT};

const FRAMES: &str = include_str!("../../../docs/protocol-frames.md");

const TEXT: &str = include_str!("../../../docs/protocol.md");

const DATAGRAMS: &str = include_str!("../../../docs/protocol-datagrams.md");

/// Label, bytes and meaning of every block of the page that is fenced as `hex LABEL`.
fn examples_in(page: &'static str) -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let block = |text: &'static str| {
        let (label, rest) = text.split_once('\n').expect("the fence's line has a label");
        let (body, _) = rest.split_once("\n```").expect("a fence is closed");
        let (hex, meaning) = body
            .split_once("\n= ")
            .expect("the description follows \"= \"");
        let byte = |digits| u8::from_str_radix(digits, 16).expect("two hex digits");
        (label, hex.split_whitespace().map(byte).collect(), meaning)
    };
    page.split("\n```hex ").skip(1).map(block).collect()
}

fn examples() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    examples_in(FRAMES)
}

#[test]
fn every_example_decodes_to_its_description() {
    for (label, bytes, meaning) in examples() {
        let (frame, len) = Frame::decode(&bytes)
            .expect(label)
            .expect("the frame is complete");
        assert_eq!(len, bytes.len(), "{label}");
        assert_eq!(format!("{frame:?}"), meaning, "{label}");
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again, bytes, "{label}");
    }
}

#[test]
fn every_type_has_an_example_and_a_row() {
    // Optional types take two bytes, the first of which encodes the type's length.
    let kind = |bytes: &[u8]| match bytes[0] {
        0x40 => bytes[1],
        kind => kind,
    };
    let types: BTreeSet<u8> = examples().iter().map(|(_, bytes, _)| kind(bytes)).collect();
    assert_eq!(types, (0x01..=0x14).chain([0x43, 0x45, 0x47]).collect());
    for kind in types {
        assert!(FRAMES.contains(&format!("\n| {kind:#04x} | ")), "{kind:#x}");
    }
}

#[test]
fn the_documented_limits_match_the_code() {
    for (what, limit) in [
        ("| body of a frame", MAX_BODY),
        ("| data of a DATA frame", MAX_DATA),
        ("| target, reason, link name", MAX_TEXT),
        ("| ranges in an ACK", MAX_ACK_RANGES),
    ] {
        let line = TEXT
            .lines()
            .find(|line| line.starts_with(what))
            .expect(what);
        assert!(line.contains(&format!("| {limit}")), "{line}");
    }
}

#[test]
fn every_example_of_a_datagram_packet_decodes_to_its_description() {
    for (label, bytes, meaning) in examples_in(DATAGRAMS) {
        let packet = Packet::decode(&bytes).expect(label);
        assert_eq!(format!("{packet:?}"), meaning, "{label}");
        let mut again = Vec::new();
        packet.encode(&mut again);
        assert_eq!(again, bytes, "{label}");
    }
}

#[test]
fn every_record_of_datagram_packets_has_an_example_and_a_row() {
    let packets = examples_in(DATAGRAMS);
    let packets = packets
        .iter()
        .map(|(label, bytes, _)| Packet::decode(bytes).expect(label));
    let records: Vec<Record<'_>> = packets.flat_map(|packet| packet.records).collect();
    let has = |is: fn(&Record<'_>) -> bool| records.iter().any(is);
    assert!(has(|record| matches!(record, Record::Ping)));
    assert!(has(
        |record| matches!(record, Record::Report(report) if report.ranges.len() > 1)
    ));
    assert!(has(|record| matches!(record, Record::Close { .. })));
    assert!(has(|record| matches!(record, Record::Failed { .. })));
    assert!(has(
        |record| matches!(record, Record::Data(data) if data.open.is_some())
    ));
    assert!(has(
        |record| matches!(record, Record::Data(data) if data.after.is_some())
    ));
    assert!(has(
        |record| matches!(record, Record::Data(data) if data.half.is_some())
    ));
    for row in [
        "0x01 | PING",
        "0x02 | REPORT",
        "0x03 | FLOW_CLOSE",
        "0x04 | FLOW_FAILED",
    ] {
        assert!(DATAGRAMS.contains(&format!("\n| {row} | ")), "{row}");
    }
    // The row of DATA names the range of its types.
    assert!(DATAGRAMS.contains("\n| 0x10 to 0x1f | DATA | "));
}

#[test]
fn the_documented_codes_and_limits_of_datagrams_match_the_code() {
    let codes = FlowErrorCode::ALL.map(FlowErrorCode::code);
    let reasons = CloseReason::ALL.map(CloseReason::code);
    let table = |head: &str| {
        let (_, rows) = DATAGRAMS.split_once(head).expect(head);
        let rows = rows.lines().skip(2);
        let rows = rows.take_while(|line| line.starts_with("| "));
        let number = |row: &str| row.split(' ').nth(1).and_then(|number| number.parse().ok());
        rows.map(|row| number(row).expect("a number"))
            .collect::<Vec<u64>>()
    };
    assert_eq!(table("| code | meaning |"), codes);
    assert_eq!(table("| reason | meaning |"), reasons);
    assert!(DATAGRAMS.contains(&format!("target (up to {MAX_TARGET} bytes)")));
    assert!(DATAGRAMS.contains(&format!("(0 to {})", MAX_REPORT_RANGES - 1)));
}
