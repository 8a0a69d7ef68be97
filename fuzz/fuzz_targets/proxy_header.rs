//! The header of a load balancer before a connection: no more than the longest one is read, errors
//! are one line, and an address that was read is read again after it was written.
#![no_main]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use libfuzzer_sys::fuzz_target;
use sumlink_transport::fuzz::{proxy_header, written_header};

/// The longest header: 16 bytes, addresses and additions.
const MAX: usize = 16 + 8 * 1024;

fuzz_target!(|bytes: &[u8]| {
    for start in [&b""[..], b"\r\n\r\n\0\r\nQUIT\n\x21", b"PROXY TCP4 "] {
        let whole = [start, bytes].concat();
        let mut rest = whole.as_slice();
        let read = run(proxy_header(&mut rest));
        assert!(whole.len() - rest.len() <= MAX);
        match read {
            Ok(Some(peer)) => {
                let written = written_header(peer, peer);
                assert_eq!(
                    run(proxy_header(&mut written.as_slice())).unwrap(),
                    Some(peer)
                );
            }
            Ok(None) => {}
            Err(error) => assert!(!error.to_string().contains('\n')),
        }
    }
});

/// Runs a future that never waits.
fn run<F: Future>(future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits although all bytes are available"),
    }
}
