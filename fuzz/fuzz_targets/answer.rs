//! A client reads a server's answer to its HELLO, and a server reads a HELLO, in pieces as TLS
//! delivers them. Each must finish within the size of a handshake frame, and text from a peer must
//! not reach the terminal unescaped.
#![no_main]

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use libfuzzer_sys::fuzz_target;
use sumlink_transport::{CarrierError, fuzz};
use tokio::io::{AsyncRead, ReadBuf};

/// The longest frame of a handshake, plus the following piece, in bytes.
const MAX: usize = 2 * 1024 + 64;

/// Yields its bytes in pieces of a fixed size, then the end.
struct Pieces<'a> {
    rest: &'a [u8],
    size: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let size = self.size.min(buf.remaining()).min(self.rest.len());
        let (piece, rest) = self.rest.split_at(size);
        buf.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    let size = usize::from(first % 64) + 1;
    let (mut stream, mut buffer) = (Pieces { rest: bytes, size }, Vec::new());
    let answered = run(fuzz::answer(&mut stream, &mut buffer));
    assert!(buffer.len() + bytes.len() - stream.rest.len() <= 2 * MAX);
    if let Err(CarrierError::Refused { reason, .. }) = &answered {
        assert!(!reason.to_string().chars().any(char::is_control));
    }
    if let Err(error) = &answered {
        assert!(!error.to_string().contains('\n'));
    }
    let (mut stream, mut buffer) = (Pieces { rest: bytes, size }, Vec::new());
    match run(fuzz::hello(&mut stream, &mut buffer)) {
        Ok(link) => assert!(!link.chars().any(char::is_control)),
        Err(Some((_, reason))) => assert!(!reason.is_empty()),
        Err(None) => {}
    }
    assert!(bytes.len() - stream.rest.len() <= MAX);
});

/// Runs a future that never waits.
fn run<F: Future>(future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits although all bytes are available"),
    }
}
