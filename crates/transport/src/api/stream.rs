//! A stream as used by programs.

use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{io, mem};

use bytes::Buf;
use sumlink_engine::{Class, Hints, Received};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::session::command::Command;
use crate::session::pipe::Pipe;
use sumlink_exit::relay::Relayed;
use sumlink_exit::target::OpenError;

/// An ordered byte stream in each direction, carried by every path of its session.
///
/// Shutting down the writing side ([`tokio::io::AsyncWriteExt::shutdown`]) lets the peer read the
/// end after the last byte. **Dropping a stream that was not shut down resets it**: undelivered
/// data is lost and the peer gets an error, so that a partial transfer never looks complete. After
/// a shutdown, dropping is safe: written data still arrives.
#[derive(Debug)]
pub struct Stream {
    pipe: Arc<Pipe>,
    /// The data being read.
    received: Received,
}

impl Stream {
    pub(crate) fn new(pipe: Arc<Pipe>) -> Self {
        Self {
            pipe,
            received: Received::default(),
        }
    }
}

impl Stream {
    /// Sets hints for the data that this side writes, beyond the stream's class: a larger share of
    /// the links, two paths for every byte, or a deadline. The deadline applies to data written
    /// from now on. Only the default scheduler, `fbdt`, uses them.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use sumlink_transport::{Hints, Stream};
    /// # fn play(stream: &Stream) {
    /// // Video of a call: four times the share of its class, and useful for 150 ms.
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

    /// Sets the class of the data that this side writes from now on; `None` lets the stream's
    /// behavior decide.
    pub fn set_class(&self, class: impl Into<Option<Class>>) {
        let class = class.into();
        self.pipe.command(|id| Command::Classify(id, class));
    }

    /// Waits for data and lends up to 256 KiB of it in place, without a copy. Advancing over data
    /// marks it as read. The loan is empty at the end of the stream.
    ///
    /// ```no_run
    /// # use bytes::Buf;
    /// # use sumlink_transport::Stream;
    /// # async fn count(stream: &mut Stream) -> std::io::Result<usize> {
    /// let mut zeros = 0;
    /// loop {
    ///     let mut received = stream.received().await?;
    ///     if !received.has_remaining() {
    ///         return Ok(zeros);
    ///     }
    ///     while received.has_remaining() {
    ///         let bytes = received.chunk();
    ///         zeros += bytes.iter().filter(|byte| **byte == 0).count();
    ///         let len = bytes.len();
    ///         received.advance(len);
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn received(&mut self) -> io::Result<Lent<'_>> {
        std::future::poll_fn(|cx| self.poll_received(cx)).await?;
        Ok(Lent { stream: self })
    }

    /// Waits until data or the end of the stream can be read.
    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.received.has_remaining() {
            // A loan leaked with `mem::forget` has returned nothing.
            self.give_back_if_read();
            self.received = ready!(self.pipe.poll_take(cx)).map_err(broken)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns read memory: an idle stream must hold none.
    fn give_back_if_read(&mut self) {
        if !self.received.has_remaining() && self.received.memory() > 0 {
            self.pipe.give_back(mem::take(&mut self.received));
        }
    }

    /// Waits until the stream is reset, without reading it.
    pub(crate) async fn failed(&self) -> OpenError {
        std::future::poll_fn(|cx| self.pipe.poll_failed(cx)).await
    }
}

/// Received data lent to the reader by [`Stream::received`].
#[derive(Debug)]
pub struct Lent<'a> {
    stream: &'a mut Stream,
}

impl Buf for Lent<'_> {
    fn remaining(&self) -> usize {
        self.stream.received.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.stream.received.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.stream.received.chunks_vectored(slices)
    }

    fn advance(&mut self, count: usize) {
        self.stream.received.advance(count);
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.stream.give_back_if_read();
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_received(cx))?;
        while buf.remaining() > 0 && self.received.has_remaining() {
            let bytes = self.received.chunk();
            let len = buf.remaining().min(bytes.len());
            buf.put_slice(&bytes[..len]);
            self.received.advance(len);
        }
        self.give_back_if_read();
        Poll::Ready(Ok(()))
    }
}

/// Lends received data without a copy, in pieces of at most [`PAGE`](sumlink_engine::PAGE) bytes;
/// [`Stream::received`] lends larger ones.
impl AsyncBufRead for Stream {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_received(cx))?;
        Poll::Ready(Ok(this.received.chunk()))
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        let this = self.get_mut();
        this.received.advance(amount);
        this.give_back_if_read();
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

    /// Nothing is buffered, so there is nothing to flush.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.pipe.finish().map_err(broken))
    }
}

impl Relayed for Stream {
    fn poll_fill_slices<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        slices: &mut [IoSlice<'a>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_received(cx))?;
        Poll::Ready(Ok(self.received.chunks_vectored(slices)))
    }

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

#[cfg(test)]
mod tests {
    use sumlink_engine::PAGE;
    use tokio::io::AsyncReadExt;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::session::pipe::Pools;

    /// A stream that has received `text`, with its session's side of the pipe.
    fn stream_with(text: &[u8]) -> (Stream, Arc<Pipe>, Arc<Pools>) {
        let pools = Pools::new(8 << 20);
        let pipe = Pipe::new(0, unbounded_channel().0, Arc::clone(&pools));
        let received = Received::from(text);
        let pages = received.memory() / PAGE;
        assert_eq!(pipe.space_down(pages), pages);
        pipe.give_down(received, false);
        (Stream::new(Arc::clone(&pipe)), pipe, pools)
    }

    fn text() -> Vec<u8> {
        (0..5 * PAGE + 7).map(|at| (at % 251) as u8).collect()
    }

    #[tokio::test]
    async fn one_read_fills_its_buffer_across_pages() {
        let (mut stream, _pipe, pools) = stream_with(&text());
        let mut buffer = vec![0; 3 * PAGE + 5];
        assert_eq!(stream.read(&mut buffer).await.unwrap(), buffer.len());
        assert!(buffer == text()[..buffer.len()]);
        assert_eq!(pools.down.held(), 6 * PAGE as u64);
        let mut rest = vec![0; 10 * PAGE];
        let len = stream.read(&mut rest).await.unwrap();
        assert!(rest[..len] == text()[buffer.len()..]);
        assert_eq!(pools.down.held(), 0, "nothing moves, and nothing is held");
    }

    #[tokio::test]
    async fn read_data_is_returned_when_the_loan_ends() {
        let (mut stream, pipe, pools) = stream_with(&text());
        let mut lent = stream.received().await.unwrap();
        assert_eq!(lent.remaining(), text().len());
        lent.advance(PAGE + 1);
        drop(lent);
        assert_eq!(pools.down.held(), 6 * PAGE as u64);
        let mut lent = stream.received().await.unwrap();
        assert!(lent.copy_to_bytes(lent.remaining()) == text()[PAGE + 1..]);
        drop(lent);
        assert_eq!(pools.down.held(), 0);
        pipe.give_down(Received::default(), true);
        assert!(!stream.received().await.unwrap().has_remaining());
    }

    #[tokio::test]
    async fn received_data_is_read_before_the_error() {
        let (mut stream, pipe, _pools) = stream_with(b"text");
        pipe.fail(OpenError::Reset);
        let mut buffer = [0; 10];
        assert_eq!(stream.read(&mut buffer).await.unwrap(), 4);
        let error = stream.read(&mut buffer).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(stream.received().await.is_err());
    }
}
