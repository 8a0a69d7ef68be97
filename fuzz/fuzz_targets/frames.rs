//! Frames as a peer may send them: every decoded frame survives a round trip through its encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sumlink_engine::frame::Frame;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((frame, length))) = Frame::decode(rest) {
        assert!((1..=rest.len()).contains(&length));
        // The encoding may be shorter than the input: integers have several forms.
        let mut encoded = Vec::new();
        frame.encode(&mut encoded);
        let again = Frame::decode(&encoded).expect("an encoded frame decodes");
        assert_eq!(again, Some((frame, encoded.len())));
        rest = &rest[length..];
    }
});
