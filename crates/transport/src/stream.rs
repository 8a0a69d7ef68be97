//! A stream as programs see it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::pipe::Pipe;
use crate::target::OpenError;

/// One ordered byte stream each way, carried by every path of its session.
///
/// Shutting down the writing side ([`tokio::io::AsyncWriteExt::shutdown`]) lets the peer read the end after the last
/// byte. **Dropping a stream that was not shut down resets it**: what had not arrived is lost and the peer gets an
/// error, so that half a transfer never looks like a whole one. After a shutdown, dropping is safe: what was written
/// still arrives.
#[derive(Debug)]
pub struct Stream {
    pipe: Arc<Pipe>,
    /// The chunk being read, and how much of it is.
    chunk: Vec<u8>,
    read: usize,
}

impl Stream {
    pub(crate) fn new(pipe: Arc<Pipe>) -> Self {
        Self {
            pipe,
            chunk: Vec::new(),
            read: 0,
        }
    }
}

impl Stream {
    /// Waits until the stream is reset, while nobody reads it.
    pub(crate) async fn failed(&self) -> OpenError {
        std::future::poll_fn(|cx| self.pipe.poll_failed(cx)).await
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.read == this.chunk.len() {
            this.read = 0;
            this.chunk.clear();
            if !ready!(this.pipe.poll_take(cx, &mut this.chunk)).map_err(broken)? {
                return Poll::Ready(Ok(()));
            }
        }
        let len = buf.remaining().min(this.chunk.len() - this.read);
        buf.put_slice(&this.chunk[this.read..this.read + len]);
        this.read += len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.pipe.poll_write(cx, data).map_err(broken)
    }

    /// Nothing is held back, so there is nothing to flush.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.pipe.finish().map_err(broken))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.pipe.abandon();
    }
}

fn broken(error: OpenError) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}
