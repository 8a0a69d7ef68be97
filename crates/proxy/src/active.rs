//! A stream that notes its traffic, so that the connection idle longest is known.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use sumlink_exit::relay::Relayed;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::Usage;

/// A stream that notes the use of its place with each piece of data.
#[derive(Debug)]
pub struct Active<S> {
    stream: S,
    usage: Usage,
}

impl<S> Active<S> {
    pub(crate) fn new(stream: S, usage: Usage) -> Self {
        Self { stream, usage }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Active<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() {
            self.usage.used();
        }
        read
    }
}

impl<S: AsyncBufRead + Unpin> AsyncBufRead for Active<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Pin::new(&mut self.get_mut().stream).poll_fill_buf(cx)
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        self.usage.used();
        Pin::new(&mut self.stream).consume(amount);
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Active<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if written.is_ready() {
            self.usage.used();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: Relayed> Relayed for Active<S> {
    fn poll_fill_slices<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        slices: &mut [IoSlice<'a>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_fill_slices(cx, slices)
    }

    fn poll_reserve(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Vec<u8>>> {
        self.stream.poll_reserve(cx, most)
    }

    fn push(&mut self, chunk: Vec<u8>) {
        if !chunk.is_empty() {
            self.usage.used();
        }
        self.stream.push(chunk);
    }
}
