//! Flows of datagrams: each carries its number, the time at which it was sent, and a content that
//! the receiver compares.
//!
//! ```text
//! client ── request ──▶ server   repeated until anything comes back
//!        ◀── ready ────          at once, for each request
//!        ◀── data ─────          on schedule, if the request asks for it
//!        ─── data ────▶          on schedule, if the request says so
//!        ─── echo ────▶ ── echo ──▶ client
//! ```
//!
//! Schedules start with the run at both ends, so that a datagram's number gives its due time.

mod client;
mod server;

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::Duration;

use socket2::SockRef;
use sumlink_scenario::scenario::Schedule;

use super::pattern::Pattern;
use super::{Window, now_ns, sleep_until_ns};

pub(super) use client::run;
pub(crate) use server::serve;

/// Bytes before the content: kind, flow, number, time.
const HEADER: usize = 21;
/// The largest payload of UDP.
const LARGEST: usize = 65_507;
/// Interval at which blocking calls check whether the run is over.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of a socket's buffers: 100 ms at 300 Mbit/s.
const SOCKET_BUFFER: usize = 4 << 20;
/// Distance of the contents of two datagrams in the pattern.
const CONTENT: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request = 0,
    Ready = 1,
    Data = 2,
    Echo = 3,
}

/// The start of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    kind: Kind,
    flow: u32,
    number: u64,
    sent_ns: u64,
}

impl Header {
    fn write(&self, datagram: &mut [u8; HEADER]) {
        datagram[0] = self.kind as u8;
        datagram[1..5].copy_from_slice(&self.flow.to_be_bytes());
        datagram[5..13].copy_from_slice(&self.number.to_be_bytes());
        datagram[13..].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// The header and the content; `None` for datagrams of other programs.
    fn read(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (header, content) = datagram.split_first_chunk::<HEADER>()?;
        let kind = match header[0] {
            0 => Kind::Request,
            1 => Kind::Ready,
            2 => Kind::Data,
            3 => Kind::Echo,
            _ => return None,
        };
        let header = Self {
            kind,
            flow: u32::from_be_bytes(*header[1..].first_chunk()?),
            number: u64::from_be_bytes(*header[5..].first_chunk()?),
            sent_ns: u64::from_be_bytes(*header[13..].first_chunk()?),
        };
        Some((header, content))
    }
}

/// A datagram of a flow with the content of its number.
fn filled(pattern: &Pattern, header: Header, size: u32, buffer: &mut Vec<u8>) {
    buffer.resize(
        usize::try_from(size)
            .unwrap_or(LARGEST)
            .clamp(HEADER, LARGEST),
        0,
    );
    if let Some((start, content)) = buffer.split_first_chunk_mut::<HEADER>() {
        header.write(start);
        pattern.fill(header.number.wrapping_mul(CONTENT), content);
    }
}

/// Whether a content is the one of that number.
fn is_right(pattern: &Pattern, number: u64, content: &[u8]) -> bool {
    pattern
        .difference(number.wrapping_mul(CONTENT), content)
        .is_none()
}

/// Sends all datagrams that are due from now on until the run is over. A datagram that the socket
/// refuses is lost, as on a link that is down.
fn send_on_schedule(
    (kind, flow): (Kind, u32),
    schedule: &Schedule,
    window: Window,
    mut send: impl FnMut(&[u8]) -> io::Result<usize>,
) {
    let pattern = Pattern::new();
    let mut buffer = Vec::new();
    let due = |number: u64| window.epoch_ns.saturating_add(schedule.due_ns(number));
    let first = schedule.first_from(now_ns().saturating_sub(window.epoch_ns));
    for number in (first..).take_while(|number| due(*number) < window.end_ns()) {
        sleep_until_ns(due(number));
        let sent_ns = now_ns();
        let header = Header {
            kind,
            flow,
            number,
            sent_ns,
        };
        filled(&pattern, header, schedule.size(number), &mut buffer);
        let _ = send(&buffer);
    }
}

/// Prepares a socket for bursts.
pub(super) fn prepare(socket: &UdpSocket) -> io::Result<()> {
    let options = SockRef::from(socket);
    // Beyond the limit for ordinary sockets; the laboratory runs as root.
    nix::sys::socket::setsockopt(
        socket,
        nix::sys::socket::sockopt::RcvBufForce,
        &SOCKET_BUFFER,
    )
    .or_else(|_| options.set_recv_buffer_size(SOCKET_BUFFER))?;
    options.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.set_read_timeout(Some(POLL_INTERVAL))
}

/// Whether a call is worth repeating: a time limit, or an earlier datagram that the network
/// reports as undeliverable.
fn again(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
    )
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::record::Recorder;
    use super::super::{Job, Request, Route};
    use super::*;

    #[test]
    fn headers_survive_and_foreign_datagrams_are_ignored() {
        let header = Header {
            kind: Kind::Data,
            flow: 7,
            number: 1 << 40,
            sent_ns: u64::MAX,
        };
        let pattern = Pattern::new();
        let mut datagram = Vec::new();
        filled(&pattern, header, 172, &mut datagram);
        assert_eq!(datagram.len(), 172);
        let (read, content) = Header::read(&datagram).unwrap();
        assert_eq!(read, header);
        assert!(is_right(&pattern, header.number, content));
        assert!(!is_right(&pattern, header.number + 1, content));
        assert_eq!(Header::read(&datagram[..HEADER - 1]), None);
        assert_eq!(Header::read(&[9; 100]), None);
    }

    #[test]
    fn both_directions_and_echoes_arrive_on_loopback() {
        let server: SocketAddr = serve(([127, 0, 0, 1], 0).into()).unwrap();
        let route = Route {
            datagrams: Some(server),
            ..Route::direct(server)
        };
        let window = Window {
            epoch_ns: now_ns(),
            duration_ms: 600,
        };
        let request = |flow, job| Request {
            flow,
            epoch_ns: window.epoch_ns,
            duration_ms: window.duration_ms,
            interval_ms: 100,
            down: true,
            job,
        };
        let call = Job::Datagrams {
            sizes: vec![172],
            cycle_ns: 20_000_000,
            down: true,
            up: true,
        };
        let echo = std::thread::spawn({
            let (route, request) = (route.clone(), request(2, Job::Echo));
            move || {
                let mut recorder = Recorder::new(2, window, 100);
                run(&route, &request, &mut recorder).map(|()| recorder.record)
            }
        });
        let mut recorder = Recorder::new(0, window, 100);
        run(&route, &request(0, call), &mut recorder).unwrap();
        for record in [recorder.record, echo.join().unwrap().unwrap()] {
            assert!(record.connected);
            let datagrams = record.datagrams.unwrap();
            assert_eq!(datagrams.echo, record.flow == 2);
            assert!((1..=30).contains(&datagrams.arrivals.len()));
            assert!(datagrams.arrivals.iter().all(|a| a.arrived_s >= a.sent_s));
        }
    }
}
