//! Requests at the control socket: none panics, invalid ones are answered with one line, and valid
//! ones survive a round trip through their encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use request::{MAX_REQUEST, Request};

/// Included as modules because the program's library does not have them.
#[path = "../../crates/cli/src/control/request.rs"]
mod request;

#[allow(dead_code, reason = "the target only reads and writes requests")]
#[path = "../../crates/cli/src/control/clients_request.rs"]
mod clients_request;

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    // Text around the input, so that each part of a request is reached without guessing the others.
    for (start, end) in [
        (
            "{\"cmd\":\"link\",\"name\":\"a\",\"change\":{\"policy\":{",
            "}}}\n",
        ),
        ("{\"cmd\":\"link\",", "}\n"),
        ("{\"cmd\":\"rate\",", "}\n"),
        ("{\"cmd\":\"clients\",", "}\n"),
        ("{", "}\n"),
    ] {
        decode(&[start.as_bytes(), bytes, end.as_bytes()].concat());
    }
});

fn decode(bytes: &[u8]) {
    let line = &bytes[..bytes.len().min(MAX_REQUEST)];
    match Request::decode(line) {
        Ok(request) => {
            if let Request::Link { change, .. } = &request
                && let Some(policy) = change.as_ref().and_then(|change| change.policy.as_ref())
            {
                let _ = policy.check();
            }
            let encoded = serde_json::to_vec(&request).expect("a request can be written");
            assert_eq!(Request::decode(&encoded), Ok(request));
        }
        Err(error) => {
            let answer = serde_json::json!({ "error": error }).to_string();
            assert!(!answer.contains('\n'));
        }
    }
}
