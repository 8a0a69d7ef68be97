//! Relays one connection in both directions and passes its end on in the form in which it occurred.

mod buffered;
mod copy;
mod receive_buffer;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncBufRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;

pub use buffered::Buffered;

/// Upper limit of the unsent bytes in the socket of a program or target (`TCP_NOTSENT_LOWAT`,
/// tcp(7)): a program that does not read must not fill the kernel's send buffer, which grows to
/// megabytes.
const NOTSENT: u32 = 64 * 1024;

/// Silence after which the kernel sends keepalive probes. A program or target that has vanished, or
/// whose NAT entry has expired, is detected a few minutes later.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How long, and for how many bytes, a peer is still read after the connection was closed towards
/// it.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: u64 = 1 << 20;

/// The data that the local program may still send to the stream.
#[derive(Clone, Copy, Debug)]
pub enum Upload {
    /// All data until its end.
    Unlimited,
    /// This number of bytes; further data is dropped.
    Limited(u64),
}

/// A stream that lends its buffers, so that a relay needs none: all waiting data is charged to the
/// stream.
pub trait Relayed: AsyncBufRead + AsyncWrite + Unpin {
    /// Waits for data and lends as many pieces of it as fit in `slices`, at least one. Returns the
    /// number filled, 0 at the end of the stream. Read data is consumed as with [`AsyncBufRead`].
    fn poll_fill_slices<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        slices: &mut [IoSlice<'a>],
    ) -> Poll<io::Result<usize>> {
        let bytes = ready!(Pin::new(self).poll_fill_buf(cx))?;
        let filled = slices.iter_mut().take(usize::from(!bytes.is_empty()));
        Poll::Ready(Ok(filled.map(|slice| *slice = IoSlice::new(bytes)).count()))
    }

    /// Waits until data can be written, and returns an empty vector with a capacity of at least one
    /// byte. It is given back with [`Relayed::push`], with at most `most` bytes (at least one) and
    /// not grown. An error means that the stream accepts no more data.
    fn poll_reserve(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Vec<u8>>>;

    /// Writes the content of a vector from [`Relayed::poll_reserve`]; an empty one writes nothing.
    fn push(&mut self, chunk: Vec<u8>);
}

/// Sets the options of a connection to a program or a target. Nagle's delay would add to that of
/// the program behind the stream, which decides how it writes. Without keepalives, the stream of a
/// vanished program would stay forever.
pub fn tune(local: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
    local
        .set_nodelay(true)
        .and_then(|()| SockRef::from(local).set_tcp_keepalive(&keepalive))
}

/// Relays until both directions have ended. `early` is data that the program sent while the stream
/// was being opened.
///
/// The end of one direction is passed on and leaves the other one open. The same holds when one
/// side accepts no more data: the data that it sent before still arrives. When either side fails,
/// the other one is reset, so that a truncated download does not look complete.
pub async fn relay<S>(mut local: TcpStream, mut stream: S, early: &[u8], upload: Upload)
where
    S: Relayed,
{
    // From here on, dropping the socket (an error, the task's abort, the end of the process) resets
    // it; only the clean end below undoes that.
    if let Err(error) = local.set_zero_linger() {
        debug!(%error, "cannot set SO_LINGER; a failed connection may look finished");
    }
    if let Err(error) = SockRef::from(&local).set_tcp_notsent_lowat(NOTSENT) {
        debug!(
            %error,
            "cannot set TCP_NOTSENT_LOWAT; the kernel may buffer megabytes for a program that \
            does not read"
        );
    }
    let copied = async {
        // A stream that accepts no data may still send some.
        let is_taken = early.is_empty() || stream.write_all(early).await.is_ok();
        let left = match upload {
            Upload::Unlimited => None,
            Upload::Limited(left) => Some(left),
        };
        copy::both(&mut local, &mut stream, left, !is_taken).await
    };
    match copied.await {
        Ok((sent, received)) => {
            debug!(
                sent = sent + early.len() as u64,
                received, "connection ended"
            );
            match SockRef::from(&local).set_linger(None) {
                Ok(()) => part(local).await,
                Err(error) => debug!(%error, "cannot clear SO_LINGER"),
            }
        }
        Err(error) => debug!(%error, "connection reset"),
    }
}

/// Closes a connection so that the last data written arrives: a socket that is closed with unread
/// data is reset, and the reset overtakes the answer (RFC 9112, section 9.6).
pub async fn part(mut local: TcpStream) {
    let drained = async {
        local.shutdown().await?;
        tokio::io::copy(&mut local.take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    match timeout(LINGER, drained).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            debug!(%error, "cannot close the connection to the local program cleanly")
        }
        Err(_) => debug!("the local program keeps a finished connection open; resetting it"),
    }
}
