//! What a carrier's socket may hold: as little as keeps TCP busy, so that as little as possible is decided early.

use std::io;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::Interest;

use super::Carrier;
use crate::low_water;
use crate::socket;

/// TCP_NOTSENT_LOWAT is changed no more often than this, unless twice as much is wanted.
const LOWAT_PAUSE: Duration = Duration::from_millis(50);

/// A carrier is young until so much of what it sends has been acknowledged, after it was made and after a pause in
/// which TCP forgets its window (RFC 5681, section 4.1): four round trips of slow start.
pub(super) const YOUTH: u64 = 256 * 1024;

/// TCP_NOTSENT_LOWAT of a young carrier: it is writable when nothing waits.
pub(super) const YOUNG_LOWAT: u32 = 2;

/// What TCP puts into a segment of its queue before it divides it for the link (`tcp_send_mss` in Linux).
const SOCKET_SEGMENT: u32 = 64 * 1024;

/// Most bytes handed over at once.
const MOST_AT_ONCE: usize = 64 * 1024;

/// Fewest bytes of frames handed over at once: less would hold hardly any data.
const LEAST_AT_ONCE: u64 = 512;

/// Bytes of frames in a full record of TLS 1.3, and what it has beside them: header, type and tag (RFC 8446, section 5.2).
const RECORD: u64 = 16 * 1024;
const RECORD_OVERHEAD: u64 = 22;

impl Carrier {
    /// Bytes to hand over at once: a part of what the socket may hold, so that little is decided early; of a young
    /// carrier what TCP can send now, and a segment, by which the kernel tells when it can send more.
    pub(crate) fn budget(&self) -> usize {
        if self.is_young() {
            let info = &self.info;
            let waits = info.notsent_bytes + self.unwritten as u64;
            let window = info.snd_cwnd_bytes.min(self.limited_window());
            let room = window.saturating_sub(info.unacked_bytes + waits);
            return frames_in_whole_segments(room, waits, u64::from(info.snd_mss)) as usize;
        }
        (self.lowat as usize / 2).clamp(8 * 1024, MOST_AT_ONCE)
    }

    /// What TCP has on its way at most under the carrier's limit, and what leaves until the next visit: a window beyond that waits
    /// in the socket.
    fn limited_window(&self) -> u64 {
        let lasts = self.info.srtt + low_water::TIME;
        self.limit.map_or(u64::MAX, |limit| {
            (limit as f64 * lasts.as_secs_f64()) as u64
        })
    }

    /// Whether its window is small and grows.
    pub(super) fn is_young(&self) -> bool {
        self.info.bytes_acked < self.young_until
    }

    /// Whether the socket may take more than is wanted, and is to be asked before it is given anything.
    ///
    /// Of a young carrier, when something waits there for TCP's window to open: a window of ten segments and a low-water
    /// mark of as much would be taken for twice the window; what waits leaves a round trip later, and another path could
    /// have had it there by then. Of others, when the low-water mark is small: TCP looks at it only where a new segment
    /// begins in its queue, and such a segment takes [`SOCKET_SEGMENT`].
    pub(super) fn is_parked(&mut self) -> bool {
        if self.is_young() && (self.handed > 0 || self.info.notsent_bytes > 0) {
            self.refresh(Instant::now());
        }
        match self.is_young() {
            true => self.info.notsent_bytes > 0,
            false => self.is_exact(),
        }
    }

    /// The kernel tells that a socket takes more when less than this waits in it.
    pub(super) fn wakes_at(&self) -> u64 {
        u64::from(self.lowat / 2)
    }

    /// Whether its low-water mark is so small that TCP by itself would take far more.
    pub(super) fn is_exact(&self) -> bool {
        self.lowat < 2 * SOCKET_SEGMENT
    }

    /// Ready when less than half of the low-water mark waits in the socket.
    pub(super) fn poll_window(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            // poll(2) has the kernel tell when the window opens, which it does only for those who were refused.
            let ask = || match socket::is_writable(&self.tcp)? {
                true => Ok(()),
                false => Err(io::ErrorKind::WouldBlock.into()),
            };
            match self.tcp.try_io(Interest::WRITABLE, ask) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.tcp.poll_write_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        other => return other,
                    }
                }
                result => return Poll::Ready(result),
            }
        }
    }

    /// Lets as much wait in the socket as leaves in a few milliseconds: enough to keep TCP busy between two visits,
    /// little enough to be decided late.
    pub(super) fn adapt_lowat(&mut self, now: Instant) {
        let reserve = self.is_model_based().then_some(&self.reserve);
        let most = self.most_sustained().min(self.limit.unwrap_or(u64::MAX));
        let wanted = low_water::wanted(&self.info, reserve, most);
        let is_due = now.duration_since(self.lowat_set) >= LOWAT_PAUSE;
        let has_grown = wanted / 2 >= self.lowat;
        if has_grown || is_due && wanted.abs_diff(self.lowat) > self.lowat / 4 {
            self.set_lowat(wanted, now);
        }
    }

    pub(super) fn set_lowat(&mut self, lowat: u32, now: Instant) {
        if lowat != self.lowat {
            self.lowat_set = now;
            if socket::set_notsent_lowat(&self.tcp, lowat).is_ok() {
                self.lowat = lowat;
            }
        }
    }
}

/// Bytes of frames that fill the `room` of a window and a segment beyond it, to its last byte, behind what `waits` in the
/// socket. A rest would leave as a packet of its own when the window opens, and a window has room for so many packets, however
/// small: a young one would carry a third less.
fn frames_in_whole_segments(room: u64, waits: u64, segment: u64) -> u64 {
    let segment = segment.max(1);
    let end = (waits + room) / segment * segment + segment;
    let wire = match end - waits {
        crumb if crumb < LEAST_AT_ONCE + RECORD_OVERHEAD => crumb + segment,
        wire => wire.min(MOST_AT_ONCE as u64),
    };
    let records = wire.div_ceil(RECORD + RECORD_OVERHEAD);
    wire.saturating_sub(records * RECORD_OVERHEAD)
        .max(LEAST_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::carrier;
    use super::*;
    use crate::tcp_info::TcpInfo;

    #[test]
    fn what_a_young_carrier_is_given_ends_with_a_whole_segment() {
        let wire = |frames: u64| frames + frames.div_ceil(RECORD) * RECORD_OVERHEAD;
        for room in [0, 1, 1448, 14_480, 40_000] {
            for waits in [0, 1, 28, 1447, 1448, 5000] {
                let given = wire(frames_in_whole_segments(room, waits, 1448));
                let beyond = waits + given - (waits + room);
                assert_eq!((waits + given) % 1448, 0, "{room} {waits}");
                assert!((1..=2 * 1448).contains(&beyond), "{room} {waits}: {given}");
            }
        }
        assert_eq!(frames_in_whole_segments(0, 0, 100), LEAST_AT_ONCE);
        assert!(frames_in_whole_segments(1 << 30, 0, 1448) <= MOST_AT_ONCE as u64);
    }

    #[tokio::test]
    async fn no_more_waits_in_a_socket_than_is_wanted() {
        let (mut carrier, _peer) = carrier().await;
        carrier.young_until = 0;
        let lowat = 12 * 1024;
        carrier.set_lowat(lowat, Instant::now());
        // Until the peer's window is full, and what may wait does.
        let waits = std::future::poll_fn(|cx| {
            loop {
                if carrier.poll_writable(cx)?.is_pending() {
                    return Poll::Ready(TcpInfo::sample(&carrier.tcp).map(|i| i.notsent_bytes));
                }
                carrier.send(&vec![0; carrier.budget()])?;
            }
        });
        let waits = waits.await.unwrap();
        let most = u64::from(lowat / 2) + carrier.budget() as u64 + 64;
        assert!((1..=most).contains(&waits), "{waits} bytes of {most}");
    }
}
