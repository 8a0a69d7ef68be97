//! Copies both directions between a socket and a stream, using the stream's memory.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::Relayed;
use super::receive_buffer::ReceiveBuffer;
use crate::unread::Unread;

/// Maximum bytes read from a socket in one go.
const READ: usize = 64 * 1024;

/// Copies until both directions have ended; returns the bytes sent into and received from the
/// stream. With `left`, at most that many bytes are sent, and later data of the socket is dropped;
/// with `is_refused`, all of it is dropped.
///
/// A side that accepts no more data may still have data in transit: that direction continues to its
/// end, and data in the other direction is dropped meanwhile. A reset of the stream or of the
/// socket is an error.
pub(super) async fn both<S: Relayed>(
    local: &mut TcpStream,
    stream: &mut S,
    left: Option<u64>,
    is_refused: bool,
) -> io::Result<(u64, u64)> {
    let mut up = Up {
        bytes: 0,
        left,
        stage: match is_refused {
            true => Stage::Dropping,
            false => Stage::Copying,
        },
        is_refused,
        buffer: ReceiveBuffer::of(local, Instant::now()),
    };
    let mut down = Down {
        bytes: 0,
        stage: Stage::Copying,
        unread: Unread::of(local),
        pause: None,
    };
    std::future::poll_fn(|cx| {
        let (sent, received);
        if up.stage == Stage::Dropping {
            // This may use up the task's cooperative budget.
            received = down.poll(cx, local, stream)?;
            sent = up.poll(cx, local, stream)?;
        } else {
            sent = up.poll(cx, local, stream)?;
            received = down.poll(cx, local, stream)?;
        }
        match (sent, received) {
            (Poll::Ready(sent), Poll::Ready(received)) => Poll::Ready(Ok((sent, received))),
            // A sender that continues must notice that its data is not accepted.
            (Poll::Pending, Poll::Ready(received)) if up.is_refused => {
                Poll::Ready(Ok((up.bytes, received)))
            }
            (Poll::Ready(sent), Poll::Pending) if down.stage == Stage::Dropping => {
                Poll::Ready(Ok((sent, down.bytes)))
            }
            _ => Poll::Pending,
        }
    })
    .await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Copying,
    /// Received data is dropped.
    Dropping,
    /// The end is being passed on.
    Ending,
    Ended,
}

/// From the socket into the stream.
struct Up {
    bytes: u64,
    left: Option<u64>,
    stage: Stage,
    /// The stream accepts no more data.
    is_refused: bool,
    /// The receive buffer of the socket.
    buffer: ReceiveBuffer,
}

impl Up {
    fn poll<S: Relayed>(
        &mut self,
        cx: &mut Context<'_>,
        local: &mut TcpStream,
        stream: &mut S,
    ) -> Poll<io::Result<u64>> {
        loop {
            match self.stage {
                Stage::Copying => match ready!(self.copy(cx, local, stream)) {
                    Ok(()) => {}
                    Err(Failed::Socket(error)) => return Poll::Ready(Err(error)),
                    Err(Failed::Stream) => {
                        (self.stage, self.is_refused) = (Stage::Dropping, true);
                    }
                },
                Stage::Dropping => {
                    let mut dropped = [0; 16 * 1024];
                    let mut dropped = ReadBuf::new(&mut dropped);
                    ready!(Pin::new(&mut *local).poll_read(cx, &mut dropped))?;
                    if dropped.filled().is_empty() {
                        self.stage = match self.is_refused {
                            true => Stage::Ended,
                            false => Stage::Ending,
                        };
                    }
                }
                Stage::Ending => {
                    // A stream that does not accept its end either has failed, which the other
                    // direction will notice, or does not need the end.
                    let _ = ready!(Pin::new(&mut *stream).poll_shutdown(cx));
                    self.stage = Stage::Ended;
                }
                Stage::Ended => return Poll::Ready(Ok(self.bytes)),
            }
        }
    }

    /// Copies available data; ready if there was any.
    fn copy<S: Relayed>(
        &mut self,
        cx: &mut Context<'_>,
        local: &mut TcpStream,
        stream: &mut S,
    ) -> Poll<Result<(), Failed>> {
        // Memory is reserved only when there is data for it.
        match local.poll_read_ready(cx) {
            Poll::Ready(result) => result.map_err(Failed::Socket)?,
            Poll::Pending => {
                let flushed = ready!(Pin::new(&mut *stream).poll_flush(cx));
                flushed.map_err(|_| Failed::Stream)?;
                return Poll::Pending;
            }
        }
        if self.left == Some(0) {
            // The direction does not end at the limit: many servers treat the end of the client's
            // direction as a canceled request, and some clients send an extra line end.
            let flushed = ready!(Pin::new(&mut *stream).poll_flush(cx));
            flushed.map_err(|_| Failed::Stream)?;
            self.stage = Stage::Dropping;
            return Poll::Ready(Ok(()));
        }
        let left = self
            .left
            .map_or(READ, |left| usize::try_from(left).unwrap_or(READ));
        let most = left.min(READ);
        let reserved = ready!(stream.poll_reserve(cx, most));
        let mut chunk = reserved.map_err(|_| Failed::Stream)?;
        let room = chunk.capacity().min(most);
        self.buffer.before_read(local);
        let read = local.try_read_buf(&mut (&mut chunk).limit(room));
        stream.push(chunk);
        match read {
            Ok(0) => self.stage = Stage::Ending,
            Ok(read) => {
                self.bytes += read as u64;
                self.left = self.left.map(|left| left - read as u64);
                self.buffer.read(local, read, Instant::now());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(Failed::Socket(error))),
        }
        Poll::Ready(Ok(()))
    }
}

/// What made a direction end early.
enum Failed {
    Socket(io::Error),
    /// The stream accepts no more data; the other direction knows whether it has failed.
    Stream,
}

/// Maximum number of memory pieces written to a socket in one go: 256 KiB of a stream's pages.
const PIECES: usize = 128;

/// From the stream into the socket.
struct Down {
    bytes: u64,
    stage: Stage,
    /// Tracks the program's unread data.
    unread: Unread,
    /// Running while the program has too much unread data.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Down {
    fn poll<S: Relayed>(
        &mut self,
        cx: &mut Context<'_>,
        local: &mut TcpStream,
        stream: &mut S,
    ) -> Poll<io::Result<u64>> {
        while self.stage == Stage::Copying {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            if let Some(time) = self.unread.wait() {
                self.pause = Some(Box::pin(sleep(time)));
                continue;
            }
            let mut slices = [IoSlice::new(&[]); PIECES];
            let filled = ready!(stream.poll_fill_slices(cx, &mut slices))?;
            if filled == 0 {
                self.stage = Stage::Ending;
                break;
            }
            let socket = Pin::new(&mut *local);
            let written = match ready!(socket.poll_write_vectored(cx, &slices[..filled])) {
                Ok(written) => written,
                // The program sent its FIN and then closed: the FIN must still be passed on. Linux
                // reports EPIPE only in this case, and a connection reset otherwise.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.stage = Stage::Dropping;
                    break;
                }
                Err(error) => return Poll::Ready(Err(error)),
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            Pin::new(&mut *stream).consume(written);
            self.bytes += written as u64;
            self.unread.wrote(written as u64);
        }
        // The sender may not read the rest of the other direction before its own data is consumed.
        while self.stage == Stage::Dropping {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let filled = ready!(stream.poll_fill_slices(cx, &mut slices))?;
            let len = slices[..filled].iter().map(|piece| piece.len()).sum();
            match len {
                0 => self.stage = Stage::Ended,
                len => Pin::new(&mut *stream).consume(len),
            }
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
    use socket2::SockRef;
    use tokio::io::{AsyncBufRead, AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use sumlink_transport::tcp_info;

    const PAGE: usize = 2048;

    /// A stream that lends its remaining bytes page by page, and accepts none.
    struct Pages {
        bytes: Vec<u8>,
        consumed: usize,
        /// Refuses bytes with an error.
        is_refusing: bool,
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
            Poll::Ready(match self.is_refusing {
                true => Err(io::ErrorKind::ConnectionReset.into()),
                false => Ok(Vec::with_capacity(most)),
            })
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

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    fn pages(is_refusing: bool) -> Pages {
        Pages {
            bytes: (0..8_000_003u32).map(|n| (n % 251) as u8).collect(),
            consumed: 0,
            is_refusing,
            torn: 0,
        }
    }

    #[tokio::test]
    async fn the_rest_of_a_partly_written_page_follows() {
        let (mut near, mut far) = connected().await;
        let mut stream = pages(false);
        far.shutdown().await.unwrap();
        let mut received = Vec::new();
        let read = async {
            far.read_to_end(&mut received).await.unwrap();
        };
        let (copied, ()) = tokio::join!(both(&mut near, &mut stream, None, false), read);
        assert_eq!(copied.unwrap(), (0, 8_000_003));
        assert_eq!(received, stream.bytes);
        assert!(stream.torn > 0, "the socket took whole pages only");
    }

    /// A server answers and closes, and is then sent more data.
    #[tokio::test]
    async fn an_answer_arrives_though_its_sender_accepts_no_more() {
        let (mut near, far) = connected().await;
        let mut stream = pages(true);
        let (mut reader, mut writer) = far.into_split();
        SockRef::from(&near)
            .set_tcp_notsent_lowat(128 << 10)
            .unwrap();
        // Endless, unless the data is refused.
        let write = async {
            while writer.write_all(&[0; 4096]).await.is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        let mut received = Vec::new();
        let read = async {
            reader.read_to_end(&mut received).await.unwrap();
        };
        let relaying = async {
            let copied = both(&mut near, &mut stream, None, false).await;
            crate::relay::part(near).await;
            copied
        };
        let (copied, (), ()) = tokio::join!(relaying, write, read);
        assert_eq!(copied.unwrap(), (0, 8_000_003));
        assert_eq!(received, stream.bytes);
    }

    /// A server answers and closes before it has read everything: its end precedes its reset.
    #[tokio::test]
    async fn data_before_an_end_and_a_reset_arrives() {
        let (mut near, mut far) = connected().await;
        let (front, mut origin) = tokio::io::duplex(64);
        let mut stream = super::super::Buffered::new(front);
        // More than is read at once, so that a part waits in the kernel.
        let sent = vec![7; READ + 20_000];
        let program = async {
            far.write_all(&sent).await.unwrap();
            far.shutdown().await.unwrap();
            let waits = |far: &TcpStream| {
                let info = tcp_info::sample(far).unwrap();
                info.unacked_bytes + info.notsent_bytes > 0
            };
            while waits(&far) {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            far.set_zero_linger().unwrap();
            drop(far);
            origin.write_all(b"no reader left").await.unwrap();
            let mut received = Vec::new();
            origin.read_to_end(&mut received).await.unwrap();
            assert!(received == sent, "{} bytes", received.len());
        };
        let copied = both(&mut near, &mut stream, None, false);
        let ended = async { tokio::join!(copied, program).0 };
        let ended = tokio::time::timeout(std::time::Duration::from_secs(30), ended).await;
        assert_eq!(ended.unwrap().unwrap(), (sent.len() as u64, 0));
    }

    /// A browser's extra line end, or its next request: an origin would treat the end of the
    /// direction as a canceled request.
    #[tokio::test]
    async fn data_beyond_the_limit_is_dropped_and_ends_nothing() {
        let (mut near, mut far) = connected().await;
        let (front, mut origin) = tokio::io::duplex(64);
        let mut stream = super::super::Buffered::new(front);
        let program = async {
            far.write_all(b"body\r\nGET /next").await.unwrap();
            let mut body = [0; 4];
            origin.read_exact(&mut body).await.unwrap();
            assert_eq!(&body, b"body");
            origin.write_all(b"answer").await.unwrap();
            let mut answer = [0; 6];
            far.read_exact(&mut answer).await.unwrap();
            // The end that arrives is the program's.
            far.shutdown().await.unwrap();
            let mut rest = Vec::new();
            origin.read_to_end(&mut rest).await.unwrap();
            assert!(rest.is_empty(), "{rest:?}");
            drop(origin);
        };
        let (copied, ()) = tokio::join!(both(&mut near, &mut stream, Some(4), false), program);
        assert_eq!(copied.unwrap(), (4, 6));
    }
}
