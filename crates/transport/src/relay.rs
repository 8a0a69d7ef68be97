//! The bytes of one connection, both ways, and an end that looks on one side as it was on the other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional_with_sizes,
};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;

/// Bytes of one connection and direction that wait here at most.
const BUFFER: usize = 64 * 1024;

/// How long a peer that has been told to go away is listened to, and how many bytes of it.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: u64 = 1 << 20;

/// What the local program may still send to the stream.
#[derive(Clone, Copy, Debug)]
pub enum Upload {
    /// Everything until its end.
    Unlimited,
    /// So many bytes; what follows belongs to nobody and ends the direction.
    Limited(u64),
}

/// Relays until both directions have ended. `early` are bytes that the program sent ahead, while the
/// stream was being opened.
///
/// The end of one direction is passed on and leaves the other one open. When either side fails, the
/// other one is reset: a download that was cut short must not look complete.
pub async fn relay<S>(mut local: TcpStream, mut stream: S, early: &[u8], upload: Upload)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // From here on, whatever drops the socket (an error, the task's abort, the end of the process)
    // resets it; only the clean end below takes that back.
    if let Err(error) = local.set_zero_linger() {
        debug!(%error, "SO_LINGER not set: a failed connection may look like a finished one");
    }
    let copied = async {
        if !early.is_empty() {
            stream.write_all(early).await?;
        }
        match upload {
            Upload::Unlimited => {
                copy_bidirectional_with_sizes(&mut local, &mut stream, BUFFER, BUFFER).await
            }
            Upload::Limited(left) => {
                let mut local = Limited {
                    local: &mut local,
                    left,
                };
                copy_bidirectional_with_sizes(&mut local, &mut stream, BUFFER, BUFFER).await
            }
        }
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

/// A local connection whose reading side ends with the first byte too many.
///
/// It does not end at the limit itself: many servers take the end of their client's direction for a
/// cancelled request.
struct Limited<'a> {
    local: &'a mut TcpStream,
    left: u64,
}

impl AsyncRead for Limited<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.left == 0 {
            let mut excess = [0];
            return Pin::new(&mut *this.local).poll_read(cx, &mut ReadBuf::new(&mut excess));
        }
        let most = usize::try_from(this.left).map_or(buf.remaining(), |n| n.min(buf.remaining()));
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        ready!(Pin::new(&mut *this.local).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buf.advance(read);
        this.left -= read as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Limited<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.get_mut().local).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().local).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().local).poll_shutdown(cx)
    }
}
