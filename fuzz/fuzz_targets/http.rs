//! Request heads on the HTTP proxy port: none panics, none exceeds its limit, and the head for the
//! origin server is one complete head for one host.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sumlink_proxy::http_proxy::request::{MAX_HEAD, Request};

/// Text around the input, so that each part of a head is reached without guessing the others.
const FRAMES: [(&str, &str); 4] = [
    ("", ""),
    ("CONNECT ", " HTTP/1.1\r\n\r\n"),
    ("GET http://", " HTTP/1.1\r\n\r\n"),
    ("GET http://a/ HTTP/1.1\r\n", "\r\n\r\n"),
];

fuzz_target!(|bytes: &[u8]| {
    for (start, end) in FRAMES {
        decode(&[start.as_bytes(), bytes, end.as_bytes()].concat());
    }
});

fn decode(bytes: &[u8]) {
    let Ok(decoded) = Request::decode(bytes) else {
        return;
    };
    let Some((request, length)) = decoded else {
        assert!(bytes.len() < MAX_HEAD);
        return;
    };
    assert!(length <= MAX_HEAD.min(bytes.len()));
    if let Request::Forward(forwarded) = request {
        let head = &forwarded.head;
        let end = head.windows(4).position(|window| window == b"\r\n\r\n");
        assert_eq!(end, Some(head.len() - 4));
        let path = head.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
        assert!(path.starts_with(b"/") || path == b"*");
        let lines = head.split(|&byte| byte == b'\n');
        let hosts = lines.filter(|line| line.to_ascii_lowercase().starts_with(b"host:"));
        assert_eq!(hosts.count(), 1);
    }
}
