//! Both directions between a socket and a stream, in memory of the stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::Relayed;

/// Bytes read from a socket in one go, at most.
const READ: usize = 64 * 1024;

/// Copies until both directions have ended; returns the bytes sent into and received from the stream. With `left`, so
/// many bytes are sent at most, and what the socket says behind them ends that direction.
pub(super) async fn both<S: Relayed>(
    local: &mut TcpStream,
    stream: &mut S,
    left: Option<u64>,
) -> io::Result<(u64, u64)> {
    let mut up = Up {
        bytes: 0,
        left,
        stage: Stage::Copying,
    };
    let mut down = Down {
        bytes: 0,
        stage: Stage::Copying,
    };
    std::future::poll_fn(|cx| {
        let sent = up.poll(cx, local, stream)?;
        let received = down.poll(cx, local, stream)?;
        match (sent, received) {
            (Poll::Ready(sent), Poll::Ready(received)) => Poll::Ready(Ok((sent, received))),
            _ => Poll::Pending,
        }
    })
    .await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Copying,
    /// The end is being passed on.
    Ending,
    Ended,
}

/// From the socket into the stream.
struct Up {
    bytes: u64,
    left: Option<u64>,
    stage: Stage,
}

impl Up {
    fn poll<S: Relayed>(
        &mut self,
        cx: &mut Context<'_>,
        local: &mut TcpStream,
        stream: &mut S,
    ) -> Poll<io::Result<u64>> {
        while self.stage == Stage::Copying {
            // Memory is asked for only when there is something to put into it.
            match local.poll_read_ready(cx) {
                Poll::Ready(result) => result?,
                Poll::Pending => {
                    ready!(Pin::new(&mut *stream).poll_flush(cx))?;
                    return Poll::Pending;
                }
            }
            if self.left == Some(0) {
                // The direction does not end at the limit itself: many servers take the end of their client's
                // direction for a cancelled request.
                let mut excess = [0];
                ready!(Pin::new(&mut *local).poll_read(cx, &mut ReadBuf::new(&mut excess)))?;
                self.stage = Stage::Ending;
                break;
            }
            let left = self
                .left
                .map_or(READ, |left| usize::try_from(left).unwrap_or(READ));
            let most = left.min(READ);
            let mut chunk = ready!(stream.poll_reserve(cx, most))?;
            let room = chunk.capacity().min(most);
            let read = local.try_read_buf(&mut (&mut chunk).limit(room));
            stream.push(chunk);
            match read {
                Ok(0) => self.stage = Stage::Ending,
                Ok(read) => {
                    self.bytes += read as u64;
                    self.left = self.left.map(|left| left - read as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if self.stage == Stage::Ending {
            ready!(Pin::new(stream).poll_shutdown(cx))?;
            self.stage = Stage::Ended;
        }
        Poll::Ready(Ok(self.bytes))
    }
}

/// Pieces of memory written to a socket in one go, at most: 256 KiB of a stream's pages.
const PIECES: usize = 128;

/// From the stream into the socket.
struct Down {
    bytes: u64,
    stage: Stage,
}

impl Down {
    fn poll<S: Relayed>(
        &mut self,
        cx: &mut Context<'_>,
        local: &mut TcpStream,
        stream: &mut S,
    ) -> Poll<io::Result<u64>> {
        while self.stage == Stage::Copying {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let filled = ready!(stream.poll_fill_slices(cx, &mut slices))?;
            if filled == 0 {
                self.stage = Stage::Ending;
                break;
            }
            let socket = Pin::new(&mut *local);
            let written = ready!(socket.poll_write_vectored(cx, &slices[..filled]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            Pin::new(&mut *stream).consume(written);
            self.bytes += written as u64;
        }
        if self.stage == Stage::Ending {
            ready!(Pin::new(local).poll_shutdown(cx))?;
            self.stage = Stage::Ended;
        }
        Poll::Ready(Ok(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufRead, AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const PAGE: usize = 2048;

    /// A stream that lends what is left of its bytes page by page, and takes none.
    struct Pages {
        bytes: Vec<u8>,
        consumed: usize,
        /// How often a part of a page was left.
        torn: usize,
    }

    impl Pages {
        fn pages(&self) -> impl Iterator<Item = &[u8]> {
            let (first, rest) = self.bytes[self.consumed..]
                .split_at((PAGE - self.consumed % PAGE).min(self.bytes.len() - self.consumed));
            let whole = rest.chunks(PAGE);
            [first]
                .into_iter()
                .chain(whole)
                .filter(|page| !page.is_empty())
        }
    }

    impl Relayed for Pages {
        fn poll_fill_slices<'a>(
            &'a mut self,
            _: &mut Context<'_>,
            slices: &mut [IoSlice<'a>],
        ) -> Poll<io::Result<usize>> {
            let filled = slices.iter_mut().zip(self.pages());
            Poll::Ready(Ok(filled
                .map(|(slice, page)| *slice = IoSlice::new(page))
                .count()))
        }

        fn poll_reserve(&mut self, _: &mut Context<'_>, most: usize) -> Poll<io::Result<Vec<u8>>> {
            Poll::Ready(Ok(Vec::with_capacity(most)))
        }

        fn push(&mut self, chunk: Vec<u8>) {
            assert!(chunk.is_empty(), "the program says nothing");
        }
    }

    impl AsyncRead for Pages {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            unreachable!("it lends");
        }
    }

    impl AsyncBufRead for Pages {
        fn poll_fill_buf(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            unreachable!("it lends several pages at once");
        }

        fn consume(mut self: Pin<&mut Self>, amount: usize) {
            self.consumed += amount;
            let is_torn = !self.consumed.is_multiple_of(PAGE) && self.consumed < self.bytes.len();
            self.torn += usize::from(is_torn);
        }
    }

    impl AsyncWrite for Pages {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            unreachable!("the program says nothing");
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_a_socket_did_not_take_of_a_page_follows() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        let (mut near, (mut far, _)) = (near.unwrap(), far.unwrap());
        let bytes: Vec<u8> = (0..8_000_003u32).map(|n| (n % 251) as u8).collect();
        let mut stream = Pages {
            bytes,
            consumed: 0,
            torn: 0,
        };
        far.shutdown().await.unwrap();
        let mut received = Vec::new();
        let read = async {
            far.read_to_end(&mut received).await.unwrap();
        };
        let (copied, ()) = tokio::join!(both(&mut near, &mut stream, None), read);
        assert_eq!(copied.unwrap(), (0, 8_000_003));
        assert_eq!(received, stream.bytes);
        assert!(stream.torn > 0, "the socket took whole pages only");
    }
}
