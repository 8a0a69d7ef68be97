//! TCP_INFO of a socket.

use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Initial ssthresh (TCP_INFINITE_SSTHRESH).
const INFINITE: u32 = 0x7fff_ffff;

/// Number of bytes read of struct tcp_info.
const LENGTH: usize = 196;

// Values of enum tcp_ca_state.
pub(crate) const OPEN: u8 = 0;
pub(crate) const RECOVERY: u8 = 3;
pub(crate) const LOSS: u8 = 4;

/// TCP_INFO of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    pub(crate) cwnd: u32,
    /// Infinite until it is set.
    pub(crate) ssthresh: f64,
    /// Retransmission timeout, and the time since data was last sent.
    pub(crate) rto: Duration,
    pub(crate) silent: Duration,
    pub(crate) state: u8,
    pub(crate) unacked: u32,
    /// Unsent bytes that wait for the window.
    pub(crate) waiting: u32,
    pub(crate) bytes_acked: u64,
    pub(crate) delivered: u32,
}

impl Info {
    pub(crate) fn of(socket: &TcpStream) -> Self {
        // struct tcp_info of linux/tcp.h up to tcpi_delivered, which libc's definition lacks
        let mut bytes = MaybeUninit::<[u8; LENGTH]>::zeroed();
        let mut length = size_of_val(&bytes) as libc::socklen_t;
        // SAFETY: the descriptor is open, and the kernel writes no more than `length` bytes.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        assert_eq!((result, length), (0, LENGTH as u32), "TCP_INFO");
        // SAFETY: every byte is initialized, at least to zero.
        let bytes = unsafe { bytes.assume_init() };
        let u32_at =
            |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        Self {
            state: bytes[1],
            rto: Duration::from_micros(u32_at(8).into()),
            silent: Duration::from_millis(u32_at(44).into()),
            unacked: u32_at(24),
            waiting: u32_at(144),
            ssthresh: match u32_at(76) {
                INFINITE => f64::INFINITY,
                packets => f64::from(packets),
            },
            cwnd: u32_at(80),
            bytes_acked: u64::from_ne_bytes(bytes[120..128].try_into().expect("eight bytes")),
            delivered: u32_at(192),
        }
    }
}
