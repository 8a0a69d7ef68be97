//! Decodes the examples in docs/protocol.md and checks them against their descriptions.

use std::collections::BTreeSet;

use sumlink_engine::frame::{Frame, MAX_ACK_RANGES, MAX_BODY, MAX_DATA, MAX_TEXT};

const TEXT: &str = include_str!("../../../docs/protocol.md");

/// Label, bytes and meaning of every block that is fenced as `hex LABEL`.
fn examples() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let block = |text: &'static str| {
        let (label, rest) = text.split_once('\n').expect("the fence's line has a label");
        let (body, _) = rest.split_once("\n```").expect("a fence is closed");
        let (hex, meaning) = body
            .split_once("\n= ")
            .expect("the description follows \"= \"");
        let byte = |digits| u8::from_str_radix(digits, 16).expect("two hex digits");
        (label, hex.split_whitespace().map(byte).collect(), meaning)
    };
    TEXT.split("\n```hex ").skip(1).map(block).collect()
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
    assert_eq!(types, (0x01..=0x12).chain([0x43]).collect());
    for kind in types {
        assert!(TEXT.contains(&format!("\n| {kind:#04x} | ")), "{kind:#x}");
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
