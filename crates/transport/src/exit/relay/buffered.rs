//! Adapts any two-way byte stream for a relay.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, ReadBuf};

use super::Relayed;

/// Size of the buffer of one direction, in bytes.
const BUFFER: usize = 64 * 1024;

/// A byte stream without lendable buffers, with a 64 KiB buffer for each direction.
#[derive(Debug)]
pub struct Buffered<S> {
    inner: BufReader<S>,
    /// Pushed data; bytes before `written` are already written.
    pending: Vec<u8>,
    written: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Buffered<S> {
    /// Adds buffers to `inner`.
    pub fn new(inner: S) -> Self {
        Self {
            inner: BufReader::with_capacity(BUFFER, inner),
            pending: Vec::new(),
            written: 0,
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.pending.len() {
            let rest = &self.pending[self.written..];
            match ready!(Pin::new(&mut self.inner).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Buffered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncBufRead for Buffered<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Pin::new(&mut self.get_mut().inner).poll_fill_buf(cx)
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        Pin::new(&mut self.inner).consume(amount);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Buffered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Relayed for Buffered<S> {
    fn poll_reserve(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Vec<u8>>> {
        ready!(self.poll_drain(cx))?;
        self.written = 0;
        let mut chunk = std::mem::take(&mut self.pending);
        chunk.clear();
        chunk.reserve_exact(most.min(BUFFER));
        Poll::Ready(Ok(chunk))
    }

    fn push(&mut self, chunk: Vec<u8>) {
        self.pending = chunk;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn pushed_data_arrives_before_the_end() {
        let (near, mut far) = tokio::io::duplex(10);
        let mut stream = Buffered::new(near);
        let writer = async {
            for piece in [b"first ".as_slice(), b"second, longer than the pipe "] {
                let reserved = std::future::poll_fn(|cx| stream.poll_reserve(cx, 1000));
                let mut chunk = reserved.await.unwrap();
                chunk.extend_from_slice(piece);
                stream.push(chunk);
            }
            stream.write_all(b"third").await.unwrap();
            stream.shutdown().await.unwrap();
        };
        let mut text = String::new();
        let (_, read) = tokio::join!(writer, far.read_to_string(&mut text));
        read.unwrap();
        assert_eq!(text, "first second, longer than the pipe third");
    }
}
