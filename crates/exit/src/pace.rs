//! A rate limit of a client that all its connections and datagrams share, and that may change
//! while they run.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::relay::Relayed;

/// The rate limit of one client in each direction. Without one, it costs an atomic read.
#[derive(Debug, Default)]
pub struct Pace {
    up: Way,
    down: Way,
}

/// A direction, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// From the client to the network.
    Network,
    /// From the network to the client.
    Client,
}

#[derive(Debug, Default)]
struct Way {
    /// Bytes per second; 0 is no limit.
    rate: AtomicU64,
    /// Bytes that may pass now, negative after a piece larger than the rest; and when they were
    /// counted.
    level: Mutex<(f64, Option<Instant>)>,
}

/// Time for which unused bytes are saved.
const BURST: Duration = Duration::from_millis(100);

/// Longest wait before the rate is read again.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// Least size of a piece, in bytes.
const LEAST_PIECE: usize = 1400;

impl Pace {
    /// Sets the rate of each direction in bytes per second; `None` for no limit.
    pub fn set(&self, rate: Option<u64>) {
        for way in [&self.up, &self.down] {
            way.rate
                .store(rate.map_or(0, |rate| rate.max(1)), Ordering::Relaxed);
        }
    }

    /// Takes bytes of a datagram; false if the rate does not permit it.
    pub fn take(&self, toward: Toward, bytes: usize, now: Instant) -> bool {
        let way = self.way(toward);
        let is_free = way.wait(now).is_ok();
        if is_free {
            way.charge(bytes);
        }
        is_free
    }

    fn way(&self, toward: Toward) -> &Way {
        match toward {
            Toward::Network => &self.up,
            Toward::Client => &self.down,
        }
    }
}

impl Way {
    /// The bytes that may pass now, or the time until some may.
    fn wait(&self, now: Instant) -> Result<usize, Duration> {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return Ok(usize::MAX);
        }
        let rate = rate as f64;
        let mut state = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let (level, at) = &mut *state;
        let passed = at.replace(now).map(|at| now.saturating_duration_since(at));
        let gained = passed.map_or(f64::INFINITY, |passed| rate * passed.as_secs_f64());
        *level = (*level + gained).min(rate * BURST.as_secs_f64());
        if *level > 0.0 {
            Ok(*level as usize)
        } else {
            Err(Duration::from_secs_f64((1.0 - *level) / rate))
        }
    }

    fn charge(&self, bytes: usize) {
        if self.rate.load(Ordering::Relaxed) > 0 {
            let mut state = self.level.lock().unwrap_or_else(PoisonError::into_inner);
            state.0 -= bytes as f64;
        }
    }
}

/// A stream of a client at a pace.
#[derive(Debug)]
pub struct Paced<S> {
    stream: S,
    pace: Arc<Pace>,
    /// Wait for each direction.
    up: Option<Pin<Box<Sleep>>>,
    down: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    /// Takes the stream of a client: bytes read from it go to the network.
    pub fn new(stream: S, pace: Arc<Pace>) -> Self {
        let (up, down) = (None, None);
        Self {
            stream,
            pace,
            up,
            down,
        }
    }

    /// Waits until bytes may pass; returns their number, at least [`LEAST_PIECE`].
    fn poll_pace(&mut self, cx: &mut Context<'_>, toward: Toward) -> Poll<usize> {
        let slot = match toward {
            Toward::Network => &mut self.up,
            Toward::Client => &mut self.down,
        };
        loop {
            if let Some(sleep) = slot {
                ready!(sleep.as_mut().poll(cx));
                *slot = None;
            }
            match self.pace.way(toward).wait(Instant::now()) {
                Ok(bytes) => return Poll::Ready(bytes.max(LEAST_PIECE)),
                Err(wait) => *slot = Some(Box::pin(sleep(wait.min(LONGEST_WAIT)))),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_pace(cx, Toward::Network));
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        this.pace.up.charge(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncBufRead + Unpin> AsyncBufRead for Paced<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_pace(cx, Toward::Network));
        Pin::new(&mut this.stream).poll_fill_buf(cx)
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        let this = self.get_mut();
        this.pace.up.charge(amount);
        Pin::new(&mut this.stream).consume(amount);
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let most = ready!(this.poll_pace(cx, Toward::Client));
        let data = &data[..data.len().min(most)];
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, data))?;
        this.pace.down.charge(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl<S: Relayed> Relayed for Paced<S> {
    fn poll_fill_slices<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        slices: &mut [IoSlice<'a>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pace(cx, Toward::Network));
        self.stream.poll_fill_slices(cx, slices)
    }

    fn poll_reserve(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Vec<u8>>> {
        let permitted = ready!(self.poll_pace(cx, Toward::Client));
        self.stream.poll_reserve(cx, most.min(permitted))
    }

    fn push(&mut self, chunk: Vec<u8>) {
        self.pace.down.charge(chunk.len());
        self.stream.push(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that pass in this time, in pieces of `piece`.
    fn passed(pace: &Pace, piece: usize, time: Duration) -> usize {
        let begun = Instant::now();
        let (mut now, mut bytes) = (begun, 0);
        while now < begun + time {
            match pace.down.wait(now) {
                Ok(_) => {
                    pace.down.charge(piece);
                    bytes += piece;
                }
                Err(wait) => now += wait,
            }
        }
        bytes
    }

    #[test]
    fn a_rate_holds_for_small_and_large_pieces() {
        for piece in [100, 1400, 64 * 1024] {
            let pace = Pace::default();
            pace.set(Some(16_000));
            let bytes = passed(&pace, piece, Duration::from_secs(100));
            let most = 1_600_000 + 1_600 + 2 * piece;
            assert!((1_500_000..=most).contains(&bytes), "{piece}: {bytes}");
        }
    }

    #[test]
    fn a_limit_can_come_and_go() {
        let (pace, now) = (Pace::default(), Instant::now());
        assert!((0..1000).all(|_| pace.take(Toward::Client, 65_000, now)));
        pace.set(Some(1000));
        assert!(pace.take(Toward::Client, 65_000, now));
        assert!(!pace.take(Toward::Client, 1, now));
        assert!(pace.take(Toward::Network, 1, now));
        pace.set(None);
        assert!(pace.take(Toward::Client, 65_000, now));
    }

    #[tokio::test(start_paused = true)]
    async fn a_paced_stream_delivers_everything_at_the_rate() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let pace = Arc::new(Pace::default());
        pace.set(Some(10_000));
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut near = Paced::new(near, Arc::clone(&pace));
        let begun = Instant::now();
        near.write_all(&[7; 50_000]).await.unwrap();
        let took = begun.elapsed().as_secs_f64();
        assert!((4.5..6.0).contains(&took), "{took}");
        let mut bytes = vec![0; 50_000];
        far.read_exact(&mut bytes).await.unwrap();
        assert_eq!(bytes, [7; 50_000]);
        // The limit ends while a writer waits.
        pace.set(Some(1));
        let writing = tokio::spawn(async move { near.write_all(&[7; 50_000]).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        pace.set(None);
        tokio::time::timeout(Duration::from_secs(1), writing)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
}
