//! A stream as programs see it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{io, mem};

use sumlink_engine::{Class, Hints};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::driver::Command;
use crate::pipe::Pipe;
use crate::relay::Relayed;
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
    /// What this side wants of what it writes, beyond the stream's class: a larger share of the links, two paths for
    /// every byte, or arrival within a time. The deadline is for what is written from now on.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use sumlink_transport::{Hints, Stream};
    /// # fn play(stream: &Stream) {
    /// // Pictures of a call: four times the share of its class, and of use for 150 ms.
    /// stream.set_hints(Hints {
    ///     priority: 2,
    ///     deadline: Some(Duration::from_millis(150)),
    ///     ..Hints::default()
    /// });
    /// # }
    /// ```
    pub fn set_hints(&self, hints: Hints) {
        self.pipe.command(|id| Command::Hint(id, hints));
    }

    /// Has what this side writes treated as `class`, from now on; without one, as of what the stream itself shows.
    pub fn set_class(&self, class: impl Into<Option<Class>>) {
        let class = class.into();
        self.pipe.command(|id| Command::Classify(id, class));
    }

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
        let bytes = ready!(self.as_mut().poll_fill_buf(cx))?;
        let len = buf.remaining().min(bytes.len());
        buf.put_slice(&bytes[..len]);
        self.consume(len);
        Poll::Ready(Ok(()))
    }
}

/// What has been received, without a copy.
impl AsyncBufRead for Stream {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.read == this.chunk.len() {
            this.read = 0;
            ready!(this.pipe.poll_take(cx, &mut this.chunk)).map_err(broken)?;
        }
        Poll::Ready(Ok(&this.chunk[this.read..]))
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        let this = self.get_mut();
        this.read += amount;
        debug_assert!(
            this.read <= this.chunk.len(),
            "only what was there can be consumed"
        );
        // A stream on which nothing moves must hold no memory.
        if this.read == this.chunk.len() && !this.chunk.is_empty() {
            this.read = 0;
            this.pipe.give_back(mem::take(&mut this.chunk));
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut chunk = ready!(self.poll_reserve(cx, data.len()))?;
        let len = data.len().min(chunk.capacity());
        chunk.extend_from_slice(&data[..len]);
        self.push(chunk);
        Poll::Ready(Ok(len))
    }

    /// Nothing is held back, so there is nothing to flush.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.pipe.finish().map_err(broken))
    }
}

impl Relayed for Stream {
    fn poll_reserve(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Vec<u8>>> {
        self.pipe.poll_reserve(cx, most).map_err(broken)
    }

    fn push(&mut self, chunk: Vec<u8>) {
        self.pipe.push(chunk);
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
