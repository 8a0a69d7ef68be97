//! A stream over the bond or over a local exit.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sumlink_exit::relay::{Buffered, Relayed};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tracing::debug;

/// A stream of a [`Router`](super::Router).
#[derive(Debug)]
pub struct RouterStream<S>(Inner<S>);

#[derive(Debug)]
enum Inner<S> {
    Bond(S),
    /// Boxed: most streams take the bond.
    Local(Box<Buffered<LocalStream>>),
}

impl<S> RouterStream<S> {
    pub(super) fn bond(stream: S) -> Self {
        Self(Inner::Bond(stream))
    }

    pub(super) fn local(stream: TcpStream) -> Self {
        let stream = LocalStream {
            stream,
            read_ended: false,
            write_ended: false,
        };
        Self(Inner::Local(Box::new(Buffered::new(stream))))
    }

    /// Whether the stream takes the bond.
    pub fn is_bond(&self) -> bool {
        matches!(self.0, Inner::Bond(_))
    }
}

/// Calls a method of the pinned stream.
macro_rules! pinned {
    ($self:expr, $method:ident($($argument:expr),*)) => {
        match &mut $self.get_mut().0 {
            Inner::Bond(stream) => Pin::new(stream).$method($($argument),*),
            Inner::Local(stream) => Pin::new(&mut **stream).$method($($argument),*),
        }
    };
}

impl<S: AsyncRead + Unpin> AsyncRead for RouterStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        pinned!(self, poll_read(cx, buf))
    }
}

impl<S: AsyncBufRead + Unpin> AsyncBufRead for RouterStream<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        pinned!(self, poll_fill_buf(cx))
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        pinned!(self, consume(amount));
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RouterStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        pinned!(self, poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pinned!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pinned!(self, poll_shutdown(cx))
    }
}

impl<S: Relayed> Relayed for RouterStream<S> {
    fn poll_fill_slices<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        slices: &mut [IoSlice<'a>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Inner::Bond(stream) => stream.poll_fill_slices(cx, slices),
            Inner::Local(stream) => stream.poll_fill_slices(cx, slices),
        }
    }

    fn poll_reserve(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Vec<u8>>> {
        match &mut self.0 {
            Inner::Bond(stream) => stream.poll_reserve(cx, most),
            Inner::Local(stream) => stream.poll_reserve(cx, most),
        }
    }

    fn push(&mut self, chunk: Vec<u8>) {
        match &mut self.0 {
            Inner::Bond(stream) => stream.push(chunk),
            Inner::Local(stream) => stream.push(chunk),
        }
    }
}

/// A TCP connection that is reset when it is dropped before both directions have ended.
#[derive(Debug)]
struct LocalStream {
    stream: TcpStream,
    read_ended: bool,
    write_ended: bool,
}

impl Drop for LocalStream {
    fn drop(&mut self) {
        if !(self.read_ended && self.write_ended)
            && let Err(error) = self.stream.set_zero_linger()
        {
            debug!(%error, "cannot set SO_LINGER; a failed connection may look finished");
        }
    }
}

impl AsyncRead for LocalStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.read_ended |= buf.filled().len() == before && buf.remaining() > 0;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LocalStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        self.write_ended = true;
        Poll::Ready(Ok(()))
    }
}
