//! SOCKS5 messages as programs may send them: every decoded message survives a round trip through
//! its encoding, which equals the input except for the reserved bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sumlink_proxy::socks5::message::{Credentials, DatagramHeader, Greeting, MAX_MESSAGE, Request};

fuzz_target!(|bytes: &[u8]| {
    let mut encoded = Vec::new();
    if let Ok(Some((greeting, length))) = Greeting::decode(bytes) {
        greeting.encode(&mut encoded);
        assert_eq!(encoded, bytes[..length]);
        let _ = [true, false].map(|named| greeting.method(named));
    }
    if let Ok(Some((credentials, length))) = Credentials::decode(bytes) {
        encoded.clear();
        credentials.encode(&mut encoded);
        assert_eq!(encoded, bytes[..length]);
    }
    if let Ok(Some((request, length))) = Request::decode(bytes) {
        encoded.clear();
        request.encode(&mut encoded);
        assert_eq!(encoded.len(), length);
        assert_eq!(
            Request::decode(&encoded),
            Ok(Some((request.clone(), length)))
        );
        if let Ok(target) = request.target() {
            assert!(target.port != 0);
        }
    }
    if let Ok(Some((header, length))) = DatagramHeader::decode(bytes) {
        encoded.clear();
        header.encode(&mut encoded);
        assert_eq!(encoded[2..], bytes[2..length]);
        if let Ok(target) = header.target() {
            assert!(target.port != 0);
            assert_eq!(DatagramHeader::from(&target).target(), Ok(target));
        }
    }
    if bytes.len() >= MAX_MESSAGE {
        assert!(!matches!(Greeting::decode(bytes), Ok(None)));
        assert!(!matches!(Credentials::decode(bytes), Ok(None)));
        assert!(!matches!(Request::decode(bytes), Ok(None)));
        assert!(!matches!(DatagramHeader::decode(bytes), Ok(None)));
    }
});
