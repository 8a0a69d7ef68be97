//! Bounds the receive buffer of a socket whose other end is a program on this machine.
//!
//! The kernel lets that buffer grow to many megabytes (`tcp_rmem`, tcp(7)) when a relay reads fast
//! for a moment, and does not shrink it. Data that waits there comes in addition to the send
//! buffer of the stream, which is bounded in time. So the relay sets the size itself: the buffer is
//! small once it has been full, and follows the rate at which the relay reads.
//!
//! A buffer that shrinks while the program may still fill it loses data: the kernel drops segments
//! within the announced window if they exceed the buffer, and the program's TCP repeats them after
//! its timeout of 200 ms. So the buffer shrinks only when the announced window is closed.
//!
//! A connection to another machine keeps the size that the kernel chooses, because it needs
//! room for its round-trip time.

use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::net::TcpStream;
use tracing::debug;

/// Smallest and largest size that is asked for, in bytes. The kernel doubles it for its own
/// bookkeeping, and `net.core.rmem_max` limits it (`SO_RCVBUF`, socket(7)).
const SMALLEST: usize = 16 * 1024;
const LARGEST: usize = 4 << 20;

/// The size for segments of the loopback device, of 64 KiB. TCP announces room for less than a
/// segment only when a timer of 200 ms fires.
const FOR_LONG_SEGMENTS: usize = 64 * 1024;

/// A window smaller than a segment is closed: the program's TCP waits for a larger one.
const ONE_SEGMENT: u32 = 1000;

/// The buffer holds what the relay reads in this time: several turns of a busy task.
const TIME: Duration = Duration::from_millis(20);

/// The rate is measured over at least this time. The buffer grows when two measurements in a row
/// call for it: the burst which fills an empty send buffer is not a rate.
const INTERVAL: Duration = Duration::from_millis(100);

/// The receive buffer of one socket.
#[derive(Debug)]
pub(super) struct ReceiveBuffer {
    /// The size last asked for; `None` where the kernel chooses.
    size: Option<usize>,
    /// The size to shrink to when the window is closed, until that has happened.
    shrinks_to: Option<usize>,
    /// Start of the current interval, and the bytes read since.
    since: Instant,
    read: u64,
    /// The size that the previous interval called for.
    wanted_before: usize,
}

impl ReceiveBuffer {
    /// Bounds the receive buffer of `socket` if its other end is on this machine.
    pub(super) fn of(socket: &TcpStream, now: Instant) -> Self {
        // The kernel reports twice the size.
        let present = SockRef::from(socket).recv_buffer_size().unwrap_or(0) / 2;
        let smallest = smallest_for(socket);
        let size = present.max(smallest);
        let mut buffer = Self {
            size: is_on_this_machine(socket).then_some(size),
            shrinks_to: (size > smallest).then_some(smallest),
            since: now,
            read: 0,
            wanted_before: 0,
        };
        buffer.apply(socket);
        buffer
    }

    /// The relay is about to read from `socket`: time to let its buffer shrink.
    pub(super) fn before_read(&mut self, socket: &TcpStream) {
        let (Some(size), Some(smallest)) = (self.size, self.shrinks_to) else {
            return;
        };
        if size <= smallest {
            self.shrinks_to = None;
        } else if announced_window(socket).is_ok_and(|window| window < ONE_SEGMENT) {
            (self.size, self.shrinks_to) = (Some(smallest), None);
            self.apply(socket);
        }
    }

    /// Records that `bytes` were read from `socket`, and lets its buffer grow with the rate.
    pub(super) fn read(&mut self, socket: &TcpStream, bytes: usize, now: Instant) {
        let Some(size) = self.size else {
            return;
        };
        self.read += bytes as u64;
        let time = now.saturating_duration_since(self.since);
        if time < INTERVAL {
            return;
        }
        let wanted = (self.read as f64 / time.as_secs_f64() * TIME.as_secs_f64()) as usize;
        let lasting = wanted.min(self.wanted_before);
        (self.since, self.read, self.wanted_before) = (now, 0, wanted);
        if lasting > size && size < LARGEST {
            self.shrinks_to = None;
            self.size = Some((2 * lasting).min(LARGEST));
            self.apply(socket);
        }
    }

    fn apply(&mut self, socket: &TcpStream) {
        let Some(size) = self.size else {
            return;
        };
        if let Err(error) = SockRef::from(socket).set_recv_buffer_size(size) {
            debug!(%error, "SO_RCVBUF not set; the kernel chooses the size of the receive buffer");
            self.size = None;
        }
    }
}

/// The window in bytes that TCP announced last (`tcpi_rcv_wnd` of linux/tcp.h, since Linux 6.2).
///
/// # Errors
///
/// The kernel does not report it.
#[expect(unsafe_code, reason = "socket2 and nix do not read this field")]
fn announced_window(socket: &TcpStream) -> io::Result<u32> {
    const OFFSET: usize = 232;
    let mut info = [0_u8; OFFSET + 4];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `info`, which has that length; both outlive
    // the call, and the borrow keeps the descriptor open.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut len,
        )
    };
    match result {
        0 if len as usize == info.len() => {
            let [.., a, b, c, d] = info;
            Ok(u32::from_ne_bytes([a, b, c, d]))
        }
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn smallest_for(socket: &TcpStream) -> usize {
    match SockRef::from(socket).tcp_mss() {
        Ok(segment) if segment as usize <= SMALLEST / 2 => SMALLEST,
        _ => FOR_LONG_SEGMENTS,
    }
}

/// A connection within one machine has both ends in a loopback network or on one address.
fn is_on_this_machine(socket: &TcpStream) -> bool {
    let (Ok(peer), Ok(local)) = (socket.peer_addr(), socket.local_addr()) else {
        return false;
    };
    let (peer, local) = (peer.ip().to_canonical(), local.ip().to_canonical());
    peer.is_loopback() || peer == local
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        crate::local_hop::tune_listener(&listener);
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    #[tokio::test]
    async fn the_buffer_holds_a_segment_of_the_loopback_device() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let near = near.await.unwrap();
        ReceiveBuffer::of(&near, Instant::now());
        assert_eq!(size(&near), 2 * FOR_LONG_SEGMENTS);
    }

    /// Size that the kernel reports: twice what was asked for.
    fn size(socket: &TcpStream) -> usize {
        SockRef::from(socket).recv_buffer_size().unwrap()
    }

    /// A connection with a closed window: the program has written all that it can.
    async fn full() -> (TcpStream, TcpStream, ReceiveBuffer) {
        let (near, far) = connected().await;
        let before = size(&near);
        let buffer = ReceiveBuffer::of(&near, Instant::now());
        assert!(size(&near) >= before, "the window is open");
        let piece = vec![0; 64 * 1024];
        while announced_window(&near).unwrap() >= ONE_SEGMENT {
            match far.try_write(&piece) {
                Ok(_) => {}
                Err(_) => tokio::task::yield_now().await,
            }
        }
        (near, far, buffer)
    }

    #[tokio::test]
    async fn the_buffer_is_small_once_it_was_full_and_follows_the_rate_of_the_reader() {
        let (near, _far, mut buffer) = full().await;
        let mut now = Instant::now();
        buffer.before_read(&near);
        assert_eq!(size(&near), 2 * SMALLEST);
        // A burst that ends within the interval, then 0.5 MB/s.
        buffer.read(&near, 1 << 20, now);
        for _ in 0..200 {
            now += Duration::from_millis(10);
            buffer.read(&near, 5000, now);
        }
        assert_eq!(size(&near), 2 * SMALLEST);
        // 20 MB/s; the kernel's limit may be lower than the size for that.
        for _ in 0..200 {
            now += Duration::from_millis(10);
            buffer.read(&near, 200_000, now);
        }
        assert!(size(&near) > 2 * SMALLEST, "{}", size(&near));
        assert_eq!(buffer.size, Some(800_000));
    }

    #[tokio::test]
    async fn an_open_window_keeps_its_buffer() {
        let (near, _far) = connected().await;
        let mut buffer = ReceiveBuffer::of(&near, Instant::now());
        let before = size(&near);
        buffer.before_read(&near);
        assert_eq!(size(&near), before);
    }

    /// The kernel would drop what exceeds a smaller buffer, and repeat it 200 ms later.
    #[tokio::test]
    async fn a_program_that_writes_at_once_has_nothing_to_repeat() {
        for _ in 0..20 {
            let (mut near, mut far) = connected().await;
            let write = async {
                far.write_all(&vec![7; 400_000]).await.unwrap();
                far
            };
            let read = async {
                let mut buffer = ReceiveBuffer::of(&near, Instant::now());
                let mut piece = vec![0; 30_000];
                let mut left = 400_000;
                while left > 0 {
                    near.readable().await.unwrap();
                    tokio::task::yield_now().await;
                    buffer.before_read(&near);
                    let read = near.read(&mut piece).await.unwrap();
                    buffer.read(&near, read, Instant::now());
                    left -= read;
                }
            };
            let (far, ()) = tokio::join!(write, read);
            let repeated = sumlink_transport::tcp_info::sample(&far).unwrap();
            // A probe repeats a segment when its acknowledgment is late (RFC 8985, section 7); a
            // dropped queue is about 40 segments.
            assert!(repeated.total_retrans < 10, "{}", repeated.total_retrans);
        }
    }

    #[tokio::test]
    async fn a_bounded_socket_loses_nothing() {
        let (mut near, mut far) = connected().await;
        let sent: Vec<u8> = (0..6_000_007_u32).map(|n| (n % 251) as u8).collect();
        let write = async {
            far.write_all(&sent).await.unwrap();
            far.shutdown().await.unwrap();
        };
        let read = async {
            // The socket already holds data when it is bounded.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let mut buffer = ReceiveBuffer::of(&near, Instant::now());
            let (mut received, mut piece) = (Vec::new(), vec![0; 30_000]);
            loop {
                match near.read(&mut piece).await.unwrap() {
                    0 => return received,
                    read => {
                        received.extend_from_slice(&piece[..read]);
                        buffer.before_read(&near);
                        buffer.read(&near, read, Instant::now());
                    }
                }
            }
        };
        let ((), received) = tokio::join!(write, read);
        assert!(received == sent, "{} bytes", received.len());
    }
}
