//! Measures how much received data a local program has left unread in its socket.
//!
//! TCP acknowledges data that the program's kernel has accepted. Over loopback this buffer grows to
//! many megabytes if the program reads in bursts or was once fast. So the writer checks the
//! program's socket: if both ends of a connection are on this machine, the kernel reports the state
//! of each ([`sock_diag`]).

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::sock_diag::{self, Protocol};

/// Fixed part of the limit on unread data in a program's socket, in bytes.
const UNREAD: u64 = 128 * 1024;

/// Variable part of the limit: the data that the program reads in this time.
const TIME: Duration = Duration::from_millis(10);

/// Averaging time of the reading rate.
const AVERAGE: Duration = Duration::from_millis(200);

/// A program that reads in bursts may have this much more unread data than its mean rate requires.
const BURST: f64 = 2.0;

/// Bytes written between two checks of the socket.
const LOOK: u64 = 64 * 1024;

/// Averaging time for a program that has read everything: it may just have had less to read.
const DECAY: Duration = Duration::from_secs(2);

/// Pause before the next check while the limit is exceeded: the time in which the program reads the
/// excess, or a part of the time in which it has read nothing. A program that did not run for some
/// milliseconds then empties its socket, and must not wait for data as long again.
const PAUSE_PART: u32 = 4;
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// The program at the other end of a connection, if it can be watched.
#[derive(Debug)]
pub(crate) struct Unread {
    /// The program's address and this side's; `None` if the kernel does not report the program's
    /// socket.
    ends: Option<(SocketAddr, SocketAddr)>,
    /// Bytes written since the last check.
    written: u64,
    /// Unread bytes at the last check.
    before: u64,
    /// Time of the last check, or of the first write after it if nothing was unread.
    since: Instant,
    /// Bytes read since the last measurement of the rate, and the time in which there were some.
    sample: (u64, Duration),
    /// The program's reading rate while it has data to read, in bytes per second.
    rate: f64,
    /// Its mean rate, pauses included, and the time of the last measurement.
    mean: f64,
    measured_at: Instant,
    /// When the program was last seen reading, or without anything to read.
    read_at: Instant,
}

impl Unread {
    /// Watches the other end of `socket`.
    pub(crate) fn of(socket: &TcpStream) -> Self {
        let ends = socket.peer_addr().ok().zip(socket.local_addr().ok());
        Self::new(ends, Instant::now())
    }

    fn new(ends: Option<(SocketAddr, SocketAddr)>, now: Instant) -> Self {
        Self {
            ends,
            written: 0,
            before: 0,
            since: now,
            sample: (0, Duration::ZERO),
            rate: 0.0,
            mean: 0.0,
            measured_at: now,
            read_at: now,
        }
    }

    /// Records that `bytes` were written to the socket.
    pub(crate) fn wrote(&mut self, bytes: u64) {
        self.wrote_at(bytes, Instant::now());
    }

    fn wrote_at(&mut self, bytes: u64, now: Instant) {
        if self.before == 0 && self.written == 0 {
            // Until now the program had nothing to read.
            (self.since, self.read_at) = (now, now);
        }
        self.written += bytes;
    }

    /// How long to wait before more data may be written; `None` if it may be written now.
    pub(crate) fn wait(&mut self) -> Option<Duration> {
        let (program, own) = self.ends?;
        if self.written < LOOK && self.before <= self.most() {
            return None;
        }
        let Ok(unread) = ask(program, own) else {
            // The program is on another machine, or the kernel does not report its socket.
            self.ends = None;
            return None;
        };
        self.note(unread, Instant::now())
    }

    /// The program's socket holds `unread` bytes. Returns the pause before the next check.
    fn note(&mut self, unread: u64, now: Instant) -> Option<Duration> {
        let read = (self.before + self.written).saturating_sub(unread);
        self.measure(read, unread == 0, now.saturating_duration_since(self.since));
        self.measure_mean(read, now);
        (self.before, self.written, self.since) = (unread, 0, now);
        if read > 0 || unread == 0 {
            self.read_at = now;
        }
        let excess = unread
            .checked_sub(self.most())
            .filter(|excess| *excess > 0)?;
        let pause = match read {
            0 => now.saturating_duration_since(self.read_at) / PAUSE_PART,
            // Without a rate the quotient is no duration: the shortest pause.
            _ => Duration::try_from_secs_f64(excess as f64 / self.rate).unwrap_or_default(),
        };
        Some(pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE))
    }

    /// The program has read `read` bytes in a time in which it had some; `is_all` if none is left.
    fn measure(&mut self, read: u64, is_all: bool, took: Duration) {
        let (bytes, time) = (self.sample.0 + read, self.sample.1 + took);
        if time < TIME {
            self.sample = (bytes, time);
            return;
        }
        self.sample = (0, Duration::ZERO);
        let seconds = time.as_secs_f64();
        let average = |over: Duration, rate: f64| {
            // Weights each measurement by its time.
            let weight = 1.0 - (-seconds / over.as_secs_f64()).exp();
            rate + weight * (bytes as f64 / seconds - rate)
        };
        self.rate = match is_all {
            true => average(DECAY, self.rate).max(bytes as f64 / seconds),
            false => average(AVERAGE, self.rate),
        };
    }

    fn measure_mean(&mut self, read: u64, now: Instant) {
        let time = now.saturating_duration_since(self.measured_at);
        self.measured_at = now;
        let seconds = time.as_secs_f64().max(1e-6);
        let weight = 1.0 - (-seconds / AVERAGE.as_secs_f64()).exp();
        self.mean += weight * (read as f64 / seconds - self.mean);
    }

    /// The limit on unread data, in bytes.
    fn most(&self) -> u64 {
        let rate = self.rate.min(BURST * self.mean);
        UNREAD + (rate * TIME.as_secs_f64()) as u64
    }
}

/// Unread bytes in the connected local socket with the address `own` and the peer `peer`.
fn ask(own: SocketAddr, peer: SocketAddr) -> io::Result<u64> {
    let report = sock_diag::find(Protocol::Tcp, own, peer)?;
    Ok(u64::from(report.unread))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    async fn pair(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).await.unwrap();
        let program = TcpStream::connect(listener.local_addr().unwrap());
        let (program, accepted) = tokio::join!(program, listener.accept());
        (program.unwrap(), accepted.unwrap().0)
    }

    #[tokio::test]
    async fn the_kernel_reports_unread_data_of_local_programs() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (mut program, mut own) = pair(address).await;
            own.write_all(&[1; 1000]).await.unwrap();
            let ends = (own.peer_addr().unwrap(), own.local_addr().unwrap());
            match ask(ends.0, ends.1) {
                Ok(unread) => assert_eq!(unread, 1000, "{address}"),
                Err(error) => {
                    eprintln!("skipped: this kernel does not report unread data: {error}");
                    return;
                }
            }
            program.read_exact(&mut [0; 600]).await.unwrap();
            assert_eq!(ask(ends.0, ends.1).unwrap(), 400, "{address}");
        }
        // RFC 5737: belongs to no host.
        let unused = "192.0.2.1:1".parse().unwrap();
        assert!(ask(unused, unused).is_err());
    }

    /// A connection to a program whose kernel buffers more than the limit on unread data.
    async fn pair_with_room() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let program = TcpSocket::new_v4().unwrap();
        program.set_recv_buffer_size(4 << 20).unwrap();
        let program = program.connect(listener.local_addr().unwrap());
        let (program, accepted) = tokio::join!(program, listener.accept());
        (program.unwrap(), accepted.unwrap().0)
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_program_waits_a_quarter_of_its_own_pause_at_most() {
        let now = Instant::now();
        let mut unread = Unread::new(None, now);
        unread.wrote_at(1 << 20, now);
        assert_eq!(unread.note(1 << 20, now + MS), Some(SHORTEST_PAUSE));
        for idle in [8, 40, 200] {
            let pause = unread.note(1 << 20, now + idle * MS);
            assert_eq!(pause, Some(idle * MS / PAUSE_PART));
        }
        assert_eq!(unread.note(1 << 20, now + 1000 * MS), Some(LONGEST_PAUSE));
        assert_eq!(unread.note(0, now + 1065 * MS), None);
    }

    #[test]
    fn a_time_without_data_is_no_pause_of_the_program() {
        let mut now = Instant::now();
        let mut unread = Unread::new(None, now);
        for _ in 0..100 {
            unread.wrote_at(1 << 20, now);
            now += MS;
            unread.note(0, now);
        }
        let rate = unread.rate;
        assert!(rate > 1e9, "{rate}");
        now += 5000 * MS;
        unread.wrote_at(16 << 20, now);
        let pause = unread.note(16 << 20, now + MS / 4);
        assert_eq!(pause, Some(SHORTEST_PAUSE));
        assert_eq!(unread.rate, rate);
    }

    #[test]
    fn the_rate_follows_a_program_that_becomes_slow() {
        let mut now = Instant::now();
        let mut unread = Unread::new(None, now);
        for _ in 0..100 {
            unread.wrote_at(100_000, now);
            now += MS;
            unread.note(0, now);
        }
        let rate = unread.rate;
        assert!((0.9e8..=1.1e8).contains(&rate), "{rate}");
        unread.wrote_at(10 << 20, now);
        for ms in 1..=1000 {
            let pause = unread.note((10 << 20) - 1000 * ms, now + ms as u32 * MS);
            assert!(pause.is_some(), "after {ms} ms");
        }
        assert!((0.9e6..=2e6).contains(&unread.rate), "{}", unread.rate);
        assert_eq!(unread.note(9 << 20, now + 1001 * MS), Some(LONGEST_PAUSE));
    }

    #[test]
    fn a_program_that_reads_in_bursts_has_the_limit_of_its_mean_rate() {
        let mut now = Instant::now();
        let mut unread = Unread::new(None, now);
        // 5 MB/s: half a megabyte at once, every 100 ms.
        for _ in 0..20 {
            unread.wrote_at(500_000, now);
            now += 90 * MS;
            unread.note(500_000, now);
            now += 10 * MS;
            unread.note(0, now);
        }
        let more = unread.most() - UNREAD;
        assert!((50_000..200_000).contains(&more), "{more}");
    }

    #[tokio::test]
    async fn only_a_program_that_reads_gets_more_data() {
        let (program, own) = pair_with_room().await;
        let ends = (own.peer_addr().unwrap(), own.local_addr().unwrap());
        if ask(ends.0, ends.1).is_err() {
            eprintln!("skipped: this kernel does not report unread data");
            return;
        }
        let mut unread = Unread::of(&own);
        // Long ago, so that data buffered at once does not count as a rate.
        unread.sample.1 = Duration::from_secs(60);
        own.writable().await.unwrap();
        let mut written = 0;
        while unread.wait().is_none() {
            let more = own.try_write(&[1; 8192]);
            let more = more.expect("the kernel buffers more than the limit");
            unread.wrote(more as u64);
            written += more;
        }
        assert!(written as u64 > UNREAD, "{written}");
        let mut sink = vec![0; 1 << 20];
        while unread.wait().is_some() {
            program.readable().await.unwrap();
            program.try_read(&mut sink).unwrap_or(0);
        }
    }
}
