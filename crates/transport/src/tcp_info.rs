//! The kernel's statistics of a TCP connection: one sample of `getsockopt(TCP_INFO)`.
//!
//! The kernel's structure grows at its end every few releases, and a kernel fills in only the
//! fields that it knows. It is therefore read as bytes at the stable offsets of `linux/tcp.h`.
//! Fields that the running kernel does not report are zero (or `None` where zero would be wrong).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

pub use sumlink_bond::{CaState, TcpInfo, TcpState};

/// Reads the statistics; fails with `ENOTSOCK`, `EOPNOTSUPP` or `ENOPROTOOPT` if this is not a TCP
/// socket.
pub fn sample(socket: &impl AsFd) -> io::Result<TcpInfo> {
    let mut raw = Raw([0; RAW_LEN]);
    let mut len = RAW_LEN as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `raw`, which has that length; both outlive
    // the call, and the borrow keeps the descriptor open.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            raw.0.as_mut_ptr().cast(),
            &mut len,
        )
    };
    if result == 0 {
        Ok(raw.decode())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Long enough for all fields read below. A newer kernel truncates to this length, an older one
/// leaves the zeros.
const RAW_LEN: usize = 232;

/// `struct tcp_info` of `linux/tcp.h`.
struct Raw([u8; RAW_LEN]);

impl Raw {
    fn decode(&self) -> TcpInfo {
        let snd_mss = self.u32(16);
        let bytes = |segments: u32| u64::from(segments) * u64::from(snd_mss);
        let micros = |offset| Duration::from_micros(self.u32(offset).into());
        let millis = |offset| Duration::from_millis(self.u32(offset).into());
        TcpInfo {
            state: tcp_state(self.0[0]),
            ca_state: ca_state(self.0[1]),
            backoff: self.0[4],
            app_limited: self.0[7] & APP_LIMITED != 0,
            rto: micros(8),
            snd_mss,
            rcv_mss: self.u32(20),
            unacked_bytes: bytes(self.u32(24)),
            lost: self.u32(32),
            retrans: self.u32(36),
            since_data_sent: millis(44),
            since_data_received: millis(52),
            since_ack_received: millis(56),
            srtt: micros(68),
            rttvar: micros(72),
            // TCP_INFINITE_SSTHRESH: no loss so far.
            snd_ssthresh_bytes: Some(self.u32(76)).filter(|n| *n < 0x7fff_ffff).map(bytes),
            snd_cwnd_bytes: bytes(self.u32(80)),
            total_retrans: self.u32(100),
            // All ones if the kernel does not pace.
            pacing_rate_bytes_per_s: Some(self.u64(104)).filter(|n| !matches!(n, 0 | &u64::MAX)),
            bytes_acked: self.u64(120),
            bytes_received: self.u64(128),
            segs_out: self.u32(136),
            segs_in: self.u32(140),
            notsent_bytes: self.u32(144).into(),
            min_rtt: Some(self.u32(148))
                .filter(|n| !matches!(n, 0 | &u32::MAX))
                .map(|n| Duration::from_micros(n.into())),
            delivery_rate_bytes_per_s: self.u64(160),
            busy: Duration::from_micros(self.u64(168)),
            rwnd_limited: Duration::from_micros(self.u64(176)),
            sndbuf_limited: Duration::from_micros(self.u64(184)),
            delivered: self.u32(192),
            bytes_sent: self.u64(200),
            bytes_retrans: self.u64(208),
            dsack_dups: self.u32(216),
            snd_wnd_bytes: self.u32(228).into(),
        }
    }

    fn u32(&self, offset: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[offset..offset + 4]);
        u32::from_ne_bytes(bytes)
    }

    fn u64(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[offset..offset + 8]);
        u64::from_ne_bytes(bytes)
    }
}

/// `tcpi_delivery_rate_app_limited`, the first bit field of its byte.
const APP_LIMITED: u8 = if cfg!(target_endian = "little") {
    1
} else {
    0x80
};

fn tcp_state(state: u8) -> TcpState {
    match state {
        1 => TcpState::Established,
        2 | 3 | 12 => TcpState::Opening,
        4 | 5 | 8 | 9 | 11 => TcpState::Closing,
        _ => TcpState::Closed,
    }
}

fn ca_state(state: u8) -> CaState {
    match state {
        1 => CaState::Disorder,
        2 => CaState::Cwr,
        3 => CaState::Recovery,
        4 => CaState::Loss,
        _ => CaState::Open,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn a_transfer_shows_in_the_counters_of_both_ends() {
        let (mut client, mut server) = pair();
        let data = vec![7; 100_000];
        let mut received = vec![0; data.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&data).unwrap());
            server.read_exact(&mut received).unwrap();
        });
        // One byte back; all earlier data is acknowledged when it has arrived.
        server.write_all(&[1]).unwrap();
        client.read_exact(&mut [0]).unwrap();
        let at_client = sample(&client).unwrap();
        let at_server = sample(&server).unwrap();
        assert_eq!(at_client.state, TcpState::Established);
        assert_eq!(at_client.ca_state, CaState::Open);
        // Linux counts the SYN as an acknowledged byte.
        assert_eq!(at_client.bytes_acked, data.len() as u64 + 1);
        assert_eq!(
            at_client.bytes_sent - at_client.bytes_retrans,
            data.len() as u64
        );
        assert_eq!(at_client.bytes_received, 1);
        assert_eq!(at_server.bytes_received, data.len() as u64);
        assert_eq!((at_client.notsent_bytes, at_client.unacked_bytes), (0, 0));
        assert!(at_client.snd_mss >= 536 && at_client.snd_cwnd_bytes >= at_client.snd_mss.into());
        assert_eq!(at_client.snd_cwnd_bytes % u64::from(at_client.snd_mss), 0);
        assert!(at_client.delivery_rate_bytes_per_s > 0 && at_client.segs_out >= 2);
        assert!(at_client.srtt > Duration::ZERO && at_client.srtt < Duration::from_secs(1));
        let min_rtt = at_client.min_rtt.unwrap();
        assert!(min_rtt > Duration::ZERO && min_rtt < Duration::from_secs(1));
        assert!(at_client.rto >= Duration::from_millis(1));
    }

    #[test]
    fn a_sender_with_little_data_is_app_limited() {
        let (mut client, mut server) = pair();
        for _ in 0..3 {
            client.write_all(&[1]).unwrap();
            server.read_exact(&mut [0]).unwrap();
            server.write_all(&[2]).unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        assert!(sample(&client).unwrap().app_limited);
    }

    #[test]
    fn bytes_that_the_peer_does_not_read_count_as_not_sent() {
        let (mut client, server) = pair();
        client.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(n) = client.write(&[0; 65536]) {
            written += n as u64;
        }
        let info = sample(&client).unwrap();
        assert!(
            info.notsent_bytes > 0 && info.notsent_bytes < written,
            "{written} {info:?}"
        );
        // Data neither acknowledged nor waiting is in flight, in whole segments.
        let in_flight = written - (info.bytes_acked - 1) - info.notsent_bytes;
        assert!(info.unacked_bytes >= in_flight, "{in_flight} {info:?}");
        drop(server);
    }

    #[test]
    fn other_sockets_are_an_error() {
        assert!(sample(&UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
        assert!(sample(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn a_short_answer_of_an_old_kernel_is_zeros_and_nones() {
        let info = Raw([0; RAW_LEN]).decode();
        assert_eq!(info.min_rtt, None);
        assert_eq!(info.pacing_rate_bytes_per_s, None);
        assert_eq!(
            (info.state, info.ca_state),
            (TcpState::Closed, CaState::Open)
        );
        assert_eq!(info.delivery_rate_bytes_per_s, 0);
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn the_offsets_are_those_of_the_c_structure() {
        macro_rules! same {
            ($($field:ident at $offset:literal),* $(,)?) => {$(
                assert_eq!(std::mem::offset_of!(libc::tcp_info, $field), $offset);
            )*};
        }
        same!(tcpi_state at 0, tcpi_ca_state at 1, tcpi_backoff at 4);
        same!(tcpi_rto at 8, tcpi_snd_mss at 16, tcpi_unacked at 24, tcpi_lost at 32,
            tcpi_retrans at 36, tcpi_last_data_sent at 44, tcpi_last_data_recv at 52,
            tcpi_last_ack_recv at 56, tcpi_rtt at 68, tcpi_rttvar at 72, tcpi_snd_ssthresh at 76,
            tcpi_snd_cwnd at 80, tcpi_total_retrans at 100, tcpi_segs_out at 136,
            tcpi_segs_in at 140, tcpi_notsent_bytes at 144, tcpi_min_rtt at 148,
            tcpi_delivered at 192, tcpi_dsack_dups at 216, tcpi_snd_wnd at 228);
        same!(tcpi_pacing_rate at 104, tcpi_bytes_acked at 120, tcpi_bytes_received at 128,
            tcpi_delivery_rate at 160, tcpi_busy_time at 168, tcpi_rwnd_limited at 176,
            tcpi_sndbuf_limited at 184, tcpi_bytes_sent at 200, tcpi_bytes_retrans at 208);
    }
}
