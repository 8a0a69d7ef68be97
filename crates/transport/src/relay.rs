//! The bytes of one connection, both ways, and an end that looks on one side as it was on the other.

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

/// When a program or a target that has vanished, or a NAT that has forgotten it, is noticed: after this time of silence the kernel
/// starts to ask, and gives up after a few minutes.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How long a peer that has been told to go away is listened to, and how many bytes of it.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: u64 = 1 << 20;

/// What the local program may still send to the stream.
#[derive(Clone, Copy, Debug)]
pub enum Upload {
    /// Everything until its end.
    Unlimited,
    /// So many bytes; what follows belongs to nobody and is dropped.
    Limited(u64),
}

/// A stream that lends its own memory, so that a relay holds none: whatever waits is in the stream's account.
pub trait Relayed: AsyncBufRead + AsyncWrite + Unpin {
    /// Waits until something can be read, and lends as many pieces of it as there are `slices`, at least one; returns how many it
    /// filled, 0 at the end of the stream. What has been read is consumed as with [`AsyncBufRead`].
    fn poll_fill_slices<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        slices: &mut [IoSlice<'a>],
    ) -> Poll<io::Result<usize>> {
        let bytes = ready!(Pin::new(self).poll_fill_buf(cx))?;
        let filled = slices.iter_mut().take(usize::from(!bytes.is_empty()));
        Poll::Ready(Ok(filled.map(|slice| *slice = IoSlice::new(bytes)).count()))
    }

    /// Waits until bytes can be written: an empty vector with a capacity of at least one byte, which comes back by
    /// [`Relayed::push`], with at most `most` bytes (at least one) and not grown. An error means that the stream takes
    /// no more.
    fn poll_reserve(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Vec<u8>>>;

    /// Writes what was filled into a vector of [`Relayed::poll_reserve`]; nothing, if it is still empty.
    fn push(&mut self, chunk: Vec<u8>);
}

/// Sets the options of a connection to a program or a target. Nagle's delay adds up with the one of the program behind the stream,
/// which decides how it writes; and without keepalives the stream of one that has vanished would stay for ever.
pub fn tune(local: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
    local
        .set_nodelay(true)
        .and_then(|()| SockRef::from(local).set_tcp_keepalive(&keepalive))
}

/// Relays until both directions have ended. `early` are bytes that the program sent ahead, while the
/// stream was being opened.
///
/// The end of one direction is passed on and leaves the other one open, and so does one side's taking no more: what it said
/// before still arrives. When either side fails, the other one is reset: a download that was cut short must not look complete.
pub async fn relay<S>(mut local: TcpStream, mut stream: S, early: &[u8], upload: Upload)
where
    S: Relayed,
{
    // From here on, whatever drops the socket (an error, the task's abort, the end of the process)
    // resets it; only the clean end below takes that back.
    if let Err(error) = local.set_zero_linger() {
        debug!(%error, "SO_LINGER not set: a failed connection may look like a finished one");
    }
    if let Err(error) = SockRef::from(&local).set_tcp_notsent_lowat(NOTSENT) {
        debug!(%error, "TCP_NOTSENT_LOWAT not set: the kernel may hold megabytes for a program that does not read");
    }
    let copied = async {
        // Who takes none of it may still have something to say.
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
                Err(error) => debug!(%error, "SO_LINGER not cleared"),
            }
        }
        Err(error) => debug!(%error, "connection reset"),
    }
}

/// Closes a connection so that what was written last arrives: a socket that is closed with bytes
/// unread is reset, and the reset overtakes the answer (RFC 9112, section 9.6).
pub async fn part(mut local: TcpStream) {
    let drained = async {
        local.shutdown().await?;
        tokio::io::copy(&mut local.take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    match timeout(LINGER, drained).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => debug!(%error, "the local program did not take the end"),
        Err(_) => debug!("the local program keeps a finished connection open"),
    }
}
