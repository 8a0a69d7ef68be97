//! CUBIC as in quinn 0.11, the default of its programs: RFC 9438 with RFC 9002's slow start, which
//! only a loss ends.

use std::time::Duration;

use sumlink_bond::datagram::Acked;

use crate::quic::Control;

/// Reduction and growth (RFC 9438, sections 4.6 and 4.2).
const BETA: f64 = 0.7;
const C: f64 = 0.4;

/// Packets of the initial and of the least window.
const INITIAL: f64 = 12_000.0;
const LEAST: f64 = 2.0;

/// The state in bytes, like quinn's.
#[derive(Clone, Debug)]
pub(super) struct ProgramCubic {
    mtu: f64,
    window: f64,
    threshold: f64,
    /// Time of the last reduction.
    recovery: Option<Duration>,
    /// The plateau, and when it is reached.
    plateau: f64,
    k: f64,
    /// Growth that is no whole packet yet.
    growth: f64,
    /// Reductions.
    pub(super) reductions: u64,
}

impl ProgramCubic {
    pub(super) fn new(mtu: u16) -> Self {
        Self {
            mtu: f64::from(mtu),
            window: INITIAL,
            threshold: f64::INFINITY,
            recovery: None,
            plateau: 0.0,
            k: 0.0,
            growth: 0.0,
            reductions: 0,
        }
    }

    fn least(&self) -> f64 {
        LEAST * self.mtu
    }

    fn avoid_congestion(&mut self, now: Duration, srtt: Duration) {
        let since = *self.recovery.get_or_insert_with(|| {
            (self.plateau, self.k) = (self.window, 0.0);
            now
        });
        let (time, trip) = (now.saturating_sub(since).as_secs_f64(), srtt.as_secs_f64());
        let cubic = C * (time + trip - self.k).powi(3) * self.mtu + self.plateau;
        let slope = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        let reno = self.plateau * BETA + slope * time / trip * self.mtu;
        let target = if cubic < reno {
            self.window.max(reno)
        } else {
            self.window + ((cubic - self.window) / self.window * self.mtu).max(0.0)
        };
        self.growth += target - self.window;
        if self.growth >= self.mtu {
            self.window += self.mtu;
            self.growth = 0.0;
        }
    }
}

impl Control for ProgramCubic {
    fn window(&self) -> u64 {
        self.window as u64
    }

    fn on_ack(&mut self, acked: &Acked) {
        if self.recovery.is_some_and(|since| acked.sent <= since) {
            return;
        }
        let mut bytes = acked.bytes as f64;
        while bytes > 0.0 {
            let packet = bytes.min(self.mtu);
            bytes -= packet;
            if self.window < self.threshold {
                self.window += packet;
            } else {
                self.avoid_congestion(acked.now, acked.srtt);
            }
        }
    }

    fn on_loss(&mut self, now: Duration, sent: Duration, is_persistent: bool) {
        if self.recovery.is_some_and(|since| sent <= since) {
            return;
        }
        self.reductions += 1;
        self.recovery = Some(now);
        // Fast convergence (RFC 9438, section 4.7).
        self.plateau = match self.window < self.plateau {
            true => self.window * (1.0 + BETA) / 2.0,
            false => self.window,
        };
        self.threshold = (self.window * BETA).max(self.least());
        self.window = self.threshold;
        self.k = (self.plateau / self.mtu * (1.0 - BETA) / C).cbrt();
        self.growth *= BETA;
        if is_persistent {
            self.recovery = None;
            self.plateau = self.window;
            self.threshold = (self.window * BETA).max(self.least());
            self.window = self.least();
            self.growth = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// So long that the window is above that of Reno.
    const TRIP: Duration = Duration::from_millis(200);

    fn acked(now: Duration, packets: u64) -> Acked {
        Acked {
            now,
            sent: now - TRIP,
            bytes: packets * 1452,
            rtt: Some(TRIP),
            srtt: TRIP,
            used: 0,
            waits: true,
        }
    }

    #[test]
    fn a_loss_ends_slow_start_and_the_window_returns() {
        let mut cubic = ProgramCubic::new(1452);
        for ms in 400..500 {
            cubic.on_ack(&acked(ms * MS, 1));
        }
        assert_eq!(cubic.window(), 12_000 + 100 * 1452);
        let full = cubic.window();
        cubic.on_loss(500 * MS, 495 * MS, false);
        cubic.on_loss(501 * MS, 496 * MS, false);
        assert_eq!((cubic.window(), cubic.reductions), (full * 7 / 10, 1));
        let packets = full / 1452;
        let k = (packets as f64 * 0.3 / 0.4).cbrt();
        let mut now = 500 * MS;
        while now < Duration::from_secs_f64(0.5 + k) {
            now += TRIP;
            let per_trip = cubic.window() / 1452;
            cubic.on_ack(&acked(now, per_trip));
        }
        let returned = cubic.window() as f64 / full as f64;
        assert!((0.93..1.05).contains(&returned), "{returned}");
    }
}
