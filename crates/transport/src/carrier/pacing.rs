//! A limit on TCP's sending rate: `SO_MAX_PACING_RATE` (socket(7), Linux 3.13).
//!
//! Where no qdisc paces packets, TCP does (Linux 4.13), so that no queue builds below it. Pacing
//! stays on after the limit is removed: from the first limit on, TCP paces at the rate given by its
//! window and its round-trip time (`tcp_update_pacing_rate`).

use std::io;
use std::os::fd::AsFd;

use crate::carrier::sockopt;

/// Limits TCP to `rate` bytes per second, retransmissions included. `None` removes the limit; TCP
/// keeps pacing.
pub(crate) fn limit(socket: &impl AsFd, rate: Option<u64>) -> io::Result<()> {
    let unlimited = libc::c_ulong::MAX;
    let rate = rate.map_or(unlimited, |rate| {
        libc::c_ulong::try_from(rate).unwrap_or(unlimited)
    });
    sockopt::set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate)
}

/// A rate that is never reached but that the kernel treats as a limit; it treats the highest number
/// as no limit.
const UNREACHED: libc::c_ulong = libc::c_ulong::MAX - 1;

/// Turns TCP's pacing on without a limit.
pub(crate) fn space(socket: &impl AsFd) -> io::Result<()> {
    sockopt::set(
        socket,
        libc::SOL_SOCKET,
        libc::SO_MAX_PACING_RATE,
        UNREACHED,
    )
}

/// The socket's limit in bytes per second.
#[cfg(test)]
pub(crate) fn bound(socket: &impl AsFd) -> io::Result<libc::c_ulong> {
    sockopt::get(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE)
}

/// Whether [`space`] was called and no limit was set afterwards.
#[cfg(test)]
pub(crate) fn is_spaced(socket: &impl AsFd) -> bool {
    bound(socket).is_ok_and(|bound| bound == UNREACHED)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;

    /// A pair of sockets on loopback.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (sender, listener.accept().unwrap().0)
    }

    #[test]
    fn a_limit_applies_and_can_be_removed() {
        let (mut sender, mut receiver) = pair();
        limit(&sender, Some(1_000_000)).unwrap();
        // One second of data; the first packets leave before there is a rate to pace them at.
        let mut bytes = vec![0; 1_000_000];
        let started = Instant::now();
        let writer = std::thread::spawn(move || {
            sender.write_all(&vec![0; 1_000_000]).unwrap();
            sender
        });
        receiver.read_exact(&mut bytes).unwrap();
        let took = started.elapsed().as_secs_f64();
        assert!(took > 0.5, "{took} s");
        let mut sender = writer.join().unwrap();
        limit(&sender, None).unwrap();
        let started = Instant::now();
        let writer = std::thread::spawn(move || sender.write_all(&vec![0; 1_000_000]));
        receiver.read_exact(&mut bytes).unwrap();
        writer.join().unwrap().unwrap();
        let without = started.elapsed().as_secs_f64();
        assert!(without < took / 2.0, "{without} s");
    }
}
