//! Service periods of a station within a beacon interval.
//!
//! The data interval is divided into as many rounds as a station has service periods. A round is
//! divided equally among the stations with a sector, one after the other. 802.11ad's schedule
//! expresses that as one allocation for each station, of several blocks at the distance of a block
//! period (802.11-2016, 9.4.2.132). The station of the link is the last of each round, so that its
//! last period ends with the beacon interval. Guard times between periods are omitted.

use core::time::Duration;

use sumlink_link::Trace;

use crate::mac::data::{PACKET_OCTETS, packets_within};
use crate::phy::Mcs;

/// The service periods of a station in a beacon interval, of equal length and spacing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turns {
    /// Start of the first one, in microseconds since the start of the interval.
    pub first_us: f64,
    /// Time between the starts of two of them, in microseconds.
    pub every_us: f64,
    /// Length of each, in microseconds.
    pub length_us: f64,
    /// Their number.
    pub count: u32,
    /// Number of packets of 1500 bytes that fit each.
    pub packets: usize,
}

impl Turns {
    /// The periods of the last of `sharing` stations, if they have room for a packet; `data_us` is
    /// the start and the length of the data interval.
    pub fn last_of(data_us: (f64, f64), sharing: usize, count: u32, mcs: &Mcs) -> Option<Self> {
        let every_us = data_us.1 / f64::from(count);
        let length_us = every_us / sharing.max(1) as f64;
        let packets = packets_within(mcs, length_us);
        (packets > 0).then_some(Self {
            first_us: data_us.0 + every_us - length_us,
            every_us,
            length_us,
            count,
            packets,
        })
    }

    /// Packets of an interval.
    fn all_packets(&self) -> f64 {
        self.packets as f64 * f64::from(self.count)
    }

    /// Bit/s of IP packets, on average over an interval of that length.
    pub fn mean_bps(&self, interval: Duration) -> u64 {
        let bits = self.all_packets() * (PACKET_OCTETS * 8) as f64;
        (bits / interval.as_secs_f64()).round() as u64
    }

    /// An interval as delivery opportunities, evenly distributed over all periods, `scale` times
    /// the number of packets. A fraction of one is `carried` to the next interval. The last one is
    /// at the end, which is the trace's period. `None` without an opportunity.
    pub fn trace(&self, scale: f64, carried: &mut f64) -> Option<Trace> {
        let due = self.all_packets() * scale + *carried;
        let count = due.floor();
        *carried = due - count;
        // Position of an opportunity, by the elapsed time of the periods.
        let each = f64::from(self.count) * self.length_us / count;
        let stamps = (1..=count as u64).map(|number| {
            let served = each * number as f64;
            let before = ((served / self.length_us) - 1e-9).floor().max(0.0);
            let at = self.first_us + before * (self.every_us - self.length_us) + served;
            at.round() as u64
        });
        Trace::from_micros(stamps.collect()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phy::SINGLE_CARRIER;

    const FASTEST: Mcs = SINGLE_CARRIER[11];
    const INTERVAL: Duration = Duration::from_millis(100);

    fn stamps(trace: &Trace) -> Vec<u64> {
        let text = trace.to_string();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.parse().unwrap()).collect()
    }

    #[test]
    fn packets_pass_only_in_service_periods() {
        let turns = Turns::last_of((4_000.0, 96_000.0), 8, 10, &FASTEST).unwrap();
        assert_eq!((turns.every_us, turns.length_us), (9_600.0, 1_200.0));
        let trace = turns.trace(0.1, &mut 0.0).unwrap();
        assert_eq!(trace.period(), INTERVAL);
        let stamps = stamps(&trace);
        for stamp in &stamps {
            // Each round ends with the station's period.
            let within = (*stamp as f64 - 4_000.0 - 1e-6) % 9_600.0;
            assert!(within >= 8_400.0 - 1.0, "{stamp}");
        }
        // No wait is longer than a round, except at the head of the beacon interval.
        let gaps = stamps.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.max().unwrap() <= 9_600 - 1_200 + 50);
        assert!((12_400..12_500).contains(&stamps[0]));
    }

    #[test]
    fn the_rate_is_kept_over_intervals() {
        for (sharing, scale) in [(1, 1.0), (9, 0.1), (33, 0.1), (64, 0.013)] {
            let turns = Turns::last_of((5_000.0, 95_000.0), sharing, 10, &FASTEST).unwrap();
            let mut carried = 0.0;
            let traces = (0..100).filter_map(|_| turns.trace(scale, &mut carried));
            let sent: usize = traces.map(|trace| trace.opportunities()).sum();
            let expected = turns.mean_bps(INTERVAL) as f64 * scale * 10.0 / 12_000.0;
            assert!(
                (sent as f64 - expected).abs() <= 1.0 + 1e-6 * expected,
                "{sent} {expected}"
            );
        }
    }

    #[test]
    fn a_station_with_one_period_sends_in_one_block() {
        let turns = Turns::last_of((5_000.0, 95_000.0), 5, 1, &FASTEST).unwrap();
        let stamps = stamps(&turns.trace(1.0, &mut 0.0).unwrap());
        assert!(stamps[0] > 81_000 && stamps[stamps.len() - 1] == 100_000);
    }

    #[test]
    fn a_period_without_room_for_a_packet_is_none() {
        let slowest = &SINGLE_CARRIER[0];
        assert!(Turns::last_of((5_000.0, 95_000.0), 512, 100, slowest).is_none());
        let turns = Turns::last_of((5_000.0, 95_000.0), 64, 10, slowest).unwrap();
        // Less than a packet per interval: one every few intervals.
        let mut carried = 0.0;
        let traces = (0..100).map(|_| turns.trace(0.0005, &mut carried));
        let some = traces.filter(Option::is_some).count();
        assert!((1..100).contains(&some), "{some}");
    }
}
