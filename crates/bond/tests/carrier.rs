//! The policy of a carrier against a socket with simulated TCP statistics.

use std::time::Duration;

use proptest::prelude::*;
use sumlink_bond::socket::{Report, Socket};
use sumlink_bond::{CaState, CallCapState, Carrier, TcpInfo};

const MSS: u32 = 1448;
const MS: Duration = Duration::from_millis(1);
/// More bytes than a carrier acknowledges while it is young.
const GROWN: u64 = 300_000;

/// A socket that accepts every setting, unless it refuses congestion controls.
#[derive(Debug, Default)]
struct Fake {
    info: TcpInfo,
    lowat: u32,
    paced: u32,
    limit: Option<u64>,
    limits: u32,
    controls: Vec<String>,
    refuses: bool,
    reports: usize,
}

impl Socket for Fake {
    type Error = &'static str;

    fn info(&self) -> Option<TcpInfo> {
        Some(self.info)
    }

    fn set_notsent_lowat(&mut self, bytes: u32) -> bool {
        self.lowat = bytes;
        true
    }

    fn pace(&mut self) {
        self.paced += 1;
    }

    fn limit(&mut self, rate: Option<u64>) {
        self.limit = rate;
        self.limits += 1;
    }

    fn set_congestion(&mut self, name: &str) -> Result<(), &'static str> {
        if self.refuses {
            return Err("not permitted");
        }
        self.controls.push(name.to_owned());
        Ok(())
    }

    fn report(&mut self, _: Report<'_, &'static str>) {
        self.reports += 1;
    }
}

fn info(acked: u64) -> TcpInfo {
    TcpInfo {
        srtt: 200 * MS,
        min_rtt: Some(200 * MS),
        rto: 400 * MS,
        snd_mss: MSS,
        snd_cwnd_bytes: 10 * u64::from(MSS),
        bytes_acked: acked,
        delivery_rate_bytes_per_s: 10_000_000,
        snd_ssthresh_bytes: Some(1 << 20),
        ..TcpInfo::default()
    }
}

fn carrier(socket: &mut Fake) -> Carrier {
    socket.info = info(0);
    Carrier::new("cubic".to_owned(), socket.info, socket, Duration::ZERO)
}

#[test]
fn a_young_carrier_gets_a_window_and_a_segment_a_grown_one_its_low_water_mark() {
    let mut socket = Fake::default();
    let mut carrier = carrier(&mut socket);
    assert_eq!(socket.lowat, 2);
    // Eleven segments minus the overhead of one record.
    assert_eq!(carrier.budget(), 11 * 1448 - 22);
    socket.info = info(GROWN);
    carrier.refresh(&mut socket, 100 * MS);
    assert_eq!(socket.lowat, 30_000, "3 ms at 10 MB/s");
    assert_eq!(carrier.budget(), 15_000);
    assert_eq!(carrier.wakes_at(), 15_000);
}

#[test]
fn a_grown_carrier_on_a_slow_path_gets_one_short_record() {
    let mut socket = Fake::default();
    let mut carrier = carrier(&mut socket);
    // 5 ms at 1 and 10 Mbit/s; without a rate of its own, 10 segments in 200 ms are 0.6 Mbit/s.
    for (rate, app_limited, segments) in [
        (125_000, false, 1),
        (1_250_000, false, 4),
        (1_250_000, true, 1),
        (0, false, 1),
    ] {
        socket.info = info(GROWN);
        socket.info.delivery_rate_bytes_per_s = rate;
        socket.info.app_limited = app_limited;
        carrier.refresh(&mut socket, 100 * MS);
        assert_eq!(carrier.budget(), segments * 1448 - 22, "{rate}");
    }
}

#[test]
fn a_carrier_is_young_again_after_a_pause() {
    let mut socket = Fake::default();
    let mut carrier = carrier(&mut socket);
    socket.info = info(GROWN);
    carrier.refresh(&mut socket, 100 * MS);
    assert_ne!(socket.lowat, 2);
    socket.info.since_data_sent = 401 * MS;
    carrier.refresh(&mut socket, 600 * MS);
    assert_eq!(socket.lowat, 2);
}

#[test]
fn only_a_grown_carrier_on_a_high_rtt_path_without_a_limit_is_paced() {
    for (acked, least, limit, paced) in [
        (GROWN, 150, None, 1),
        (GROWN, 149, None, 0),
        (1000, 150, None, 0),
        (GROWN, 150, Some(1_000_000), 0),
    ] {
        let mut socket = Fake::default();
        let mut carrier = carrier(&mut socket);
        carrier.set_limit(limit, &mut socket);
        socket.info = info(acked);
        socket.info.min_rtt = Some(least * MS);
        for ms in 1..100 {
            carrier.refresh(&mut socket, ms * MS);
        }
        assert_eq!(socket.paced, paced, "{acked} {least} {limit:?}");
    }
}

/// TCP statistics of bulk data at 10 MB/s over a link that delays it by this much.
fn bulk(ms: u32, queue: Duration) -> TcpInfo {
    TcpInfo {
        srtt: 20 * MS + queue,
        min_rtt: Some(20 * MS),
        snd_cwnd_bytes: 1 << 20,
        unacked_bytes: 500_000,
        notsent_bytes: 20_000,
        delivered: ms * 10_000 / MSS,
        ..info(GROWN + u64::from(ms) * 10_000)
    }
}

#[test]
fn a_call_caps_the_rate_until_it_ends_and_a_lower_limit_stays() {
    let mut socket = Fake::default();
    let mut carrier = carrier(&mut socket);
    for ms in 0..300 {
        socket.info = bulk(ms, 50 * MS);
        carrier.refresh(&mut socket, ms * MS);
    }
    assert_eq!(socket.limits, 0, "without a call nothing changes");
    carrier.set_call(Some(1), &mut socket);
    for ms in 300..600 {
        socket.info = bulk(ms, 50 * MS);
        carrier.refresh(&mut socket, ms * MS);
    }
    let cap = socket.limit.expect("the queue is long");
    assert!((5_000_000..10_000_000).contains(&cap), "{cap}");
    let CallCapState::Capped { rate, queue } = carrier.call_cap(600 * MS) else {
        panic!("{carrier:?}");
    };
    assert!(rate.abs_diff(cap) <= cap / 100 && queue == 50 * MS);
    assert_eq!(carrier.sample(&mut socket, 0, false, 600 * MS).limit, rate);
    carrier.set_limit(Some(1_000_000), &mut socket);
    assert_eq!(socket.limit, Some(1_000_000));
    carrier.set_call(None, &mut socket);
    assert_eq!(carrier.call_cap(600 * MS), CallCapState::Off);
    assert_eq!(socket.limit, Some(1_000_000));
    carrier.set_limit(None, &mut socket);
    assert_eq!(socket.limit, None);
}

#[test]
fn written_bytes_refresh_the_statistics_before_a_decision() {
    let mut socket = Fake::default();
    let mut carrier = carrier(&mut socket);
    socket.info.unacked_bytes = 1448;
    assert_eq!(
        carrier.sample(&mut socket, 0, false, MS / 2).in_flight,
        0,
        "half a millisecond old"
    );
    carrier.queued(100);
    assert_eq!(carrier.sample(&mut socket, 0, true, MS / 2).unsent, 100);
    carrier.handed(122, false);
    let sample = carrier.sample(&mut socket, 0, false, MS / 2);
    assert_eq!((sample.in_flight, sample.unsent), (1448, 0));
    assert!(carrier.sample(&mut socket, 7, true, MS / 2).full);
}

/// A connection with a full window of `segments`.
fn window(ca_state: CaState, segments: u64, threshold: u64) -> TcpInfo {
    let mss = u64::from(MSS);
    TcpInfo {
        ca_state,
        srtt: 5 * MS,
        min_rtt: Some(5 * MS),
        snd_cwnd_bytes: segments * mss,
        snd_ssthresh_bytes: Some(threshold * mss),
        unacked_bytes: segments * mss,
        ..info(GROWN)
    }
}

#[test]
fn slow_start_after_an_outage_switches_to_bbr_and_back() {
    for refuses in [false, true] {
        let mut socket = Fake {
            refuses,
            ..Fake::default()
        };
        let mut carrier = carrier(&mut socket);
        let outage = [
            window(CaState::Open, 3973, 2783),
            window(CaState::Loss, 51, 2783),
            window(CaState::Open, 88, 88),
        ];
        for (ms, info) in (1..).zip(outage) {
            socket.info = info;
            carrier.refresh(&mut socket, ms * MS);
        }
        let expected: &[&str] = if refuses { &[] } else { &["bbr", "cubic"] };
        assert_eq!(socket.controls, expected);
        assert_eq!(carrier.can_restart(), !refuses);
        assert_eq!((carrier.congestion(), socket.reports), ("cubic", 1));
    }
}

proptest! {
    /// For any TCP statistics, budgets and low-water marks stay within their bounds, pacing begins
    /// at most once, and the engine gets the statistics unchanged.
    #[test]
    fn any_tcp_statistics_lead_to_valid_settings(
        congestion in prop_oneof![Just("cubic"), Just("bbr"), Just("reno"), Just("lia")],
        chooses: bool,
        limit in proptest::option::of(1u64..1 << 32),
        samples in proptest::collection::vec(
            (
                (0u64..1 << 32, 0u64..1 << 26, 0u64..1 << 26, 0u64..1 << 24),
                (0u64..2000, 0u64..2000, 0u64..40_000, 0u32..9000),
                (0usize..5, any::<bool>(), 0u64..1 << 34, 0u64..100),
                0usize..5,
            ),
            1..60,
        ),
    ) {
        let mut socket = Fake {
            info: info(0),
            ..Fake::default()
        };
        let (first, start) = (socket.info, Duration::from_secs(9));
        let mut carrier = Carrier::new(congestion.to_owned(), first, &mut socket, start);
        if chooses {
            carrier.choose_congestion();
        }
        let mut now = start;
        let states = [
            CaState::Open, CaState::Disorder, CaState::Cwr, CaState::Recovery, CaState::Loss,
        ];
        for ((acked, cwnd, unacked, unsent), (srtt, least, idle, mss), (state, early, rate, wait), op)
            in samples
        {
            now += wait as u32 * MS;
            socket.info = TcpInfo {
                ca_state: states[state],
                srtt: srtt as u32 * MS,
                min_rtt: (least > 0).then_some(least as u32 * MS),
                rto: 200 * MS,
                since_data_sent: idle as u32 * MS,
                snd_mss: mss,
                snd_cwnd_bytes: cwnd,
                snd_ssthresh_bytes: (!early).then_some(cwnd / 2),
                unacked_bytes: unacked,
                notsent_bytes: unsent,
                bytes_acked: acked,
                delivery_rate_bytes_per_s: rate,
                pacing_rate_bytes_per_s: Some(rate * 2),
                ..first
            };
            match op {
                0 => carrier.queued(1000),
                1 => carrier.handed(1022, false),
                2 => carrier.arrived(100, now),
                3 => carrier.set_call(early.then_some(2), &mut socket),
                _ => carrier.set_limit(limit, &mut socket),
            }
            carrier.must_ask_first(&mut socket, now);
            carrier.refresh(&mut socket, now);
            let sample = carrier.sample(&mut socket, 5, false, now);
            prop_assert_eq!((sample.in_flight, sample.local_queue), (unacked, 5));
            prop_assert!(sample.delivery_rate <= rate);
            let budget = carrier.budget() as u64;
            prop_assert!((512..=64 * 1024 + u64::from(mss)).contains(&budget), "{}", budget);
            let set = socket.limit.unwrap_or(0);
            prop_assert!(sample.limit.abs_diff(set) <= set / 100, "{} {}", sample.limit, set);
            prop_assert_eq!(carrier.lowat(), socket.lowat);
            prop_assert!(socket.lowat == 2 || (12 * 1024..=2 << 20).contains(&socket.lowat));
            prop_assert!(socket.paced <= 1);
            prop_assert!(!carrier.acknowledges_now(true));
            if carrier.acknowledges_now(false) {
                prop_assert!(!carrier.acknowledges_now(false), "only once per arrival");
            }
        }
    }
}
