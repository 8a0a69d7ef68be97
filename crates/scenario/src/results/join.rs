//! Joins parts of a run that were measured one after the other.

use super::{Flow, LinkSeries, Measurement, push_note, set_shares, sum_series};

/// Joins two phases of a run, measured one after the other; their figures add up.
pub fn join(mut a: Measurement, b: Measurement) -> Measurement {
    a.goodput_bps += b.goodput_bps;
    a.bytes += b.bytes;
    a.goodput = sum_series([&a.goodput, &b.goodput].into_iter());
    a.flows.extend(b.flows);
    a.completions.extend(b.completions);
    a.videos.extend(b.videos);
    a.datagrams.extend(b.datagrams);
    a.connections = match (a.connections, b.connections) {
        (Some(a), Some(b)) => Some(a.and(b)),
        (a, b) => a.or(b),
    };
    // The slower start, as both count.
    a.first_byte_s = longer(a.first_byte_s, b.first_byte_s);
    a.message_delays_ms.extend(b.message_delays_ms);
    a.retransmissions = a.retransmissions.zip(b.retransmissions).map(|(a, b)| a + b);
    a.duplicates_bytes = a
        .duplicates_bytes
        .zip(b.duplicates_bytes)
        .map(|(a, b)| a + b);
    a.reorder_peak_bytes = a.reorder_peak_bytes.max(b.reorder_peak_bytes);
    a.in_order_wait_p99_s = longer(a.in_order_wait_p99_s, b.in_order_wait_p99_s);
    a.memory_peak_bytes = a.memory_peak_bytes.max(b.memory_peak_bytes);
    a.rested.extend(b.rested);
    a.rival_bps = a.rival_bps.or(b.rival_bps);
    for (link, delays) in b.link_delays_ms {
        a.link_delays_ms.entry(link).or_default().extend(delays);
    }
    a.over_limit = a.over_limit.zip(b.over_limit).map(|(a, b)| a + b);
    // Each link carried traffic mainly in its own phase.
    for other in b.links {
        let same =
            |link: &&mut LinkSeries| link.link == other.link && link.direction == other.direction;
        match a.links.iter_mut().find(same) {
            Some(link) => {
                link.wire_bytes += other.wire_bytes;
                link.lost_packets += other.lost_packets;
                link.dropped_packets += other.dropped_packets;
                link.rate = sum_series([&link.rate, &other.rate].into_iter());
            }
            None => a.links.push(other),
        }
    }
    set_shares(&mut a.links);
    a.processes.extend(b.processes);
    a.traffic_cpu_s = a.traffic_cpu_s.zip(b.traffic_cpu_s).map(|(a, b)| a + b);
    a.machine = match (a.machine, b.machine) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    let health = &mut a.emulator;
    health.packets += b.emulator.packets;
    health.overruns += b.emulator.overruns;
    health.lateness_p50_us = health.lateness_p50_us.max(b.emulator.lateness_p50_us);
    health.lateness_p99_us = health.lateness_p99_us.max(b.emulator.lateness_p99_us);
    health.cpu_share = health.cpu_share.max(b.emulator.cpu_share);
    for note in b.note.split("; ").filter(|note| !note.is_empty()) {
        if !a.note.contains(note) {
            push_note(&mut a.note, note);
        }
    }
    a
}

/// Joins two parts of one phase, measured one after the other: bytes and time add up, and goodput
/// is the mean.
pub fn in_series(a: Measurement, b: Measurement) -> Measurement {
    let seconds = [a.duration_s, b.duration_s];
    let flows = a.flows.iter().zip(&b.flows).map(|(first, second)| Flow {
        goodput_bps: mean([first.goodput_bps, second.goodput_bps], seconds),
        goodput: sum_series([&first.goodput, &second.goodput].into_iter()),
        // They belong to different times.
        arrivals: Vec::new(),
        ..first.clone()
    });
    let flows = flows.collect();
    Measurement {
        goodput_bps: mean([a.goodput_bps, b.goodput_bps], seconds),
        duration_s: seconds.iter().sum(),
        flows,
        ..join(a, b)
    }
}

/// The mean rate over two times.
fn mean(rates: [f64; 2], seconds: [f64; 2]) -> f64 {
    let whole: f64 = seconds.iter().sum();
    let bits = rates[0] * seconds[0] + rates[1] * seconds[1];
    if whole > 0.0 { bits / whole } else { 0.0 }
}

/// The longer of two times of which each may be unknown.
fn longer(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Machine;

    #[test]
    fn the_machine_is_that_of_the_busiest_part() {
        let part = |runs_at_once, runs_share, others_share| Measurement {
            machine: Some(Machine {
                runs_at_once,
                runs_share,
                others_share,
            }),
            ..Measurement::default()
        };
        let both = join(part(2, 0.5, 0.0), part(1, 0.6, 0.1)).machine;
        assert_eq!(both, part(2, 0.6, 0.1).machine);
        let one = part(1, 0.6, 0.1);
        let known = one.machine;
        assert_eq!(join(Measurement::default(), one).machine, known);
    }

    #[test]
    fn parts_of_a_phase_have_the_mean_of_their_goodput() {
        let part = |duration_s: f64, goodput_bps: f64| Measurement {
            duration_s,
            goodput_bps,
            bytes: (duration_s * goodput_bps / 8.0) as u64,
            flows: vec![Flow {
                link: Some("wifi".to_owned()),
                goodput_bps,
                ..Flow::default()
            }],
            ..Measurement::default()
        };
        let both = in_series(part(1.0, 8e6), part(3.0, 16e6));
        assert_eq!((both.duration_s, both.goodput_bps), (4.0, 14e6));
        assert_eq!((both.bytes, both.flows.len()), (7_000_000, 1));
        assert_eq!(both.flows[0].goodput_bps, 14e6);
        // Links that were measured one after the other add up instead.
        assert_eq!(join(part(1.0, 8e6), part(3.0, 16e6)).goodput_bps, 24e6);
        assert_eq!(in_series(part(0.0, 0.0), part(0.0, 0.0)).goodput_bps, 0.0);
    }
}
