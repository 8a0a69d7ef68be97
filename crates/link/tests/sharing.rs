//! Links that act on each other: coupling groups, interferers, virtual interfaces on one radio.

use std::time::Duration;

use sumlink_link::{
    Air, Change, Hotspot, Interferer, LinkConfig, LinkId, Network, Packet, QueueLimit, Radio,
    Schedule,
};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MBIT: u64 = 1_000_000;

/// A full packet, with the time at which it was sent.
#[derive(Clone, Debug)]
struct Full(Duration);

impl Packet for Full {
    fn wire_len(&self) -> usize {
        1500
    }
}

fn config(rate: u64, delay: Duration) -> LinkConfig {
    LinkConfig {
        rate,
        delay,
        loss: 0.0,
        queue: QueueLimit::Bytes(1_000_000),
        seed: 0,
    }
}

/// Deliveries of one link.
#[derive(Clone, Debug, Default)]
struct Result {
    /// Mbit/s.
    rate: f64,
    /// One-way delays in milliseconds, in rising order.
    delays: Vec<f64>,
}

impl Result {
    fn quantile(&self, q: f64) -> f64 {
        self.delays[((self.delays.len() - 1) as f64 * q) as usize]
    }
}

/// Keeps a fixed number of packets of each link in flight (a window without congestion control).
fn run(network: &mut Network<Full>, windows: &[(LinkId, usize)], time: Duration) -> Vec<Result> {
    let mut results = vec![Result::default(); network.len()];
    for (id, window) in windows {
        for _ in 0..*window {
            network.enqueue(Duration::ZERO, *id, Full(Duration::ZERO));
        }
    }
    while let Some(deadline) = network.next_deadline().filter(|at| *at <= time) {
        while let Some((id, delivery)) = network.poll(deadline) {
            let Full(sent) = delivery.packet;
            let delay = (delivery.due - sent).as_secs_f64() * 1e3;
            results[id.index()].delays.push(delay);
            network.enqueue(deadline, id, Full(deadline));
        }
    }
    for result in &mut results {
        result.rate = result.delays.len() as f64 * 1500.0 * 8.0 / time.as_secs_f64() / 1e6;
        result.delays.sort_by(f64::total_cmp);
    }
    results
}

fn rates(results: &[Result]) -> Vec<f64> {
    results.iter().map(|result| result.rate).collect()
}

fn near(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    for (g, e) in got.iter().zip(expected) {
        assert!(
            (g - e).abs() <= tolerance * e,
            "{got:?}, expected {expected:?}"
        );
    }
}

/// Two coupled links with short transmissions, so that a short run has many of them.
fn coupled(alone: [u64; 2], d12: f64, d21: f64) -> (Network<Full>, [LinkId; 2]) {
    let mut network = Network::new(1);
    let ids = alone.map(|rate| network.add(config(rate * MBIT, Duration::ZERO)));
    let deferral = vec![vec![0.0, d12], vec![d21, 0.0]];
    let air = Air::new(vec![Air::THETA; 2], deferral, MS / 5).unwrap();
    network.couple(&ids, air).unwrap();
    (network, ids)
}

/// Throughput of two coupled links, each alone and both at once.
fn alone_and_at_once(alone: [u64; 2], d12: f64, d21: f64) -> (Vec<f64>, Vec<f64>) {
    let each = (0..2).map(|i| {
        let (mut network, ids) = coupled(alone, d12, d21);
        run(&mut network, &[(ids[i], 64)], 10 * SECOND)[i].rate
    });
    let each = each.collect();
    let (mut network, ids) = coupled(alone, d12, d21);
    let windows = ids.map(|id| (id, 64));
    (each, rates(&run(&mut network, &windows, 20 * SECOND)))
}

#[test]
fn the_fitted_group_matches_table_5_1() {
    let (alone, at_once) = alone_and_at_once([229, 261], 0.90, 0.14);
    near(&alone, &[229.0, 261.0], 0.02);
    near(&at_once, &[149.0, 258.0], 0.02);
}

#[test]
fn the_fitted_group_matches_table_5_2() {
    let (alone, at_once) = alone_and_at_once([253, 195], 0.76, 0.0);
    near(&alone, &[253.0, 195.0], 0.02);
    near(&at_once, &[204.0, 195.0], 0.02);
}

#[test]
fn from_full_exclusion_to_no_coupling() {
    let (_, at_once) = alone_and_at_once([100, 100], 1.0, 1.0);
    near(&at_once, &[100.0 * 10.0 / 19.0; 2], 0.02);
    let (_, at_once) = alone_and_at_once([100, 100], 0.0, 0.0);
    near(&at_once, &[100.0; 2], 0.02);
    let shares = Air::pair(0.5, 0.5).unwrap().shares(&[true; 2]).unwrap();
    let (_, at_once) = alone_and_at_once([100, 100], 0.5, 0.5);
    near(&at_once, &[100.0 * shares[0], 100.0 * shares[1]], 0.02);
}

#[test]
fn four_links_share_as_the_chain_predicts() {
    let deferral = vec![
        vec![0.0, 1.0, 0.3, 0.0],
        vec![0.9, 0.0, 0.0, 0.5],
        vec![0.0, 0.2, 0.0, 1.0],
        vec![0.7, 0.0, 0.8, 0.0],
    ];
    let air = Air::new(vec![9.0, 4.0, 9.0, 2.0], deferral, MS / 5).unwrap();
    let shares = air.shares(&[true; 4]).unwrap();
    let mut network = Network::new(3);
    let ids: Vec<_> = (0..4)
        .map(|_| network.add(config(100 * MBIT, Duration::ZERO)))
        .collect();
    network.couple(&ids, air).unwrap();
    let windows: Vec<_> = ids.iter().map(|id| (*id, 64)).collect();
    let expected: Vec<f64> = shares.iter().map(|share| 100.0 * share).collect();
    near(
        &rates(&run(&mut network, &windows, 20 * SECOND)),
        &expected,
        0.03,
    );
}

#[test]
fn a_trace_alone_in_a_group_keeps_its_rate() {
    let (mut network, ids) = coupled([1, 1], 1.0, 1.0);
    let trace = "# unit: us\n100\n".parse().unwrap(); // 120 Mbit/s
    network.set(Duration::ZERO, ids[0], Change::Trace(trace));
    let got = run(&mut network, &[(ids[0], 64)], 10 * SECOND)[0].rate;
    near(&[got], &[120.0], 0.02);
}

#[test]
fn invalid_groups_are_rejected() {
    let (mut network, ids) = coupled([100, 100], 0.5, 0.5);
    let twice = network.couple(&[ids[0]], Air::uniform(1, 0.0).unwrap());
    assert!(
        twice
            .unwrap_err()
            .to_string()
            .contains("link 0 is in two coupling groups")
    );
    let short = network.couple(&[ids[0]], Air::uniform(2, 0.0).unwrap());
    assert!(
        short
            .unwrap_err()
            .to_string()
            .contains("has 1 entries, but must have 2")
    );
    let other = Network::<Full>::new(0).couple(&ids, Air::uniform(2, 0.0).unwrap());
    assert!(
        other
            .unwrap_err()
            .to_string()
            .contains("link 0 does not exist")
    );
}

fn interfered(interferer: Interferer) -> (Network<Full>, LinkId) {
    let mut network = Network::new(1);
    let id = network.add(config(100 * MBIT, MS));
    network.interfere(&[id], interferer).unwrap();
    (network, id)
}

#[test]
fn a_heard_interferer_costs_time_and_no_packets() {
    let (mut network, id) = interfered(Interferer {
        occupancy: 0.4,
        burst: 2 * MS,
        deferral: 1.0,
        ..Interferer::NONE
    });
    let result = &run(&mut network, &[(id, 64)], 20 * SECOND)[0];
    near(&[result.rate], &[60.0], 0.03);
    assert_eq!(network.counters(id).lost_packets, 0);
    assert_eq!(network.counters(id).layer2_retransmissions, 0);
    // Two in five single packets meet a busy period and wait 2 ms on average.
    let (mut quiet, id) = interfered(Interferer::NONE);
    let alone = run(&mut quiet, &[(id, 1)], SECOND)[0].quantile(0.99);
    let (mut network, id) = interfered(Interferer {
        occupancy: 0.4,
        burst: 2 * MS,
        deferral: 1.0,
        ..Interferer::NONE
    });
    let waited = &run(&mut network, &[(id, 1)], 20 * SECOND)[0];
    assert!(waited.quantile(0.99) > alone + 4.0);
    assert!(waited.quantile(0.1) < alone + 0.001);
}

#[test]
fn a_hidden_interferer_costs_repetitions_before_packets() {
    let interferer = |retry_limit| Interferer {
        occupancy: 1.0,
        burst: MS,
        deferral: 0.0,
        frame_error: 0.5,
        retry_limit,
    };
    for (limit, residual) in [(0, 0.5), (1, 0.25), (7, 1.0 / 256.0)] {
        let (mut network, id) = interfered(interferer(limit));
        let mut sent = 0u64;
        while sent < 100_000 {
            network.enqueue(sent as u32 * MS, id, Full(Duration::ZERO));
            while network.poll(sent as u32 * MS).is_some() {}
            sent += 1;
        }
        while network.poll(SECOND * 1_000).is_some() {}
        let counters = network.counters(id);
        let lost = counters.lost_packets as f64 / 1e5;
        let deviation = (residual * (1.0 - residual) / 1e5f64).sqrt();
        assert!(
            (lost - residual).abs() < 5.0 * deviation,
            "{lost} lost with {limit}"
        );
        // Half of the first attempts, and half of all repetitions but the last, lead to another
        // attempt.
        let again: f64 = (0..limit).map(|k| 0.5f64.powi(k as i32 + 1)).sum();
        near(
            &[counters.layer2_retransmissions as f64 / 1e5 + 1e-9],
            &[again + 1e-9],
            0.05,
        );
    }
}

#[test]
fn an_interferer_comes_and_goes() {
    let mut network = Network::new(1);
    let id = network.add(config(100 * MBIT, Duration::ZERO));
    let interferer = network.interfere(&[id], Interferer::NONE).unwrap();
    network.enqueue(Duration::ZERO, id, Full(Duration::ZERO));
    assert_eq!(network.next_deadline(), Some(MS * 12 / 100));
    let always = Interferer {
        occupancy: 1.0,
        deferral: 1.0,
        ..Interferer::NONE
    };
    network.set_interferer(MS / 20, interferer, always).unwrap();
    assert!(network.poll(SECOND).is_none());
    network
        .set_interferer(SECOND, interferer, Interferer::NONE)
        .unwrap();
    assert_eq!(
        network.poll(SECOND + MS).unwrap().1.due,
        SECOND + MS * 7 / 100
    );
    let nonsense = Interferer {
        occupancy: 1.5,
        ..Interferer::NONE
    };
    let refused = network.set_interferer(SECOND, interferer, nonsense);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("occupancy of an interferer is 1.5")
    );
}

const SWITCHING: Duration = Duration::from_millis(5);

/// Hotspots of 5 Mbit/s and 20 ms behind one card.
fn hotspots(schedule: Schedule, count: usize) -> (Network<Full>, Vec<Hotspot>) {
    let mut network = Network::new(1);
    let hotspots: Vec<_> = (0..count)
        .map(|_| Hotspot {
            up: network.add(config(5 * MBIT, 20 * MS)),
            down: network.add(config(5 * MBIT, 20 * MS)),
        })
        .collect();
    let radio = Radio {
        rate: 120 * MBIT, // 0.1 ms for a full packet
        switching: SWITCHING,
        card_queue: 150_000,
        hotspot_buffer: 60_000,
        schedule,
    };
    network.radio(&hotspots, radio).unwrap();
    (network, hotspots)
}

fn turns(count: usize) -> Schedule {
    Schedule::Fixed(vec![50 * MS; count])
}

fn on_demand() -> Schedule {
    Schedule::OnDemand {
        turn: 50 * MS,
        listen: 100 * MS,
    }
}

#[test]
fn the_rates_of_hotspots_add_up_behind_one_card() {
    for schedule in [turns(3), on_demand()] {
        let (mut network, hotspots) = hotspots(schedule.clone(), 3);
        // Enough for a hotspot to send while the card is with the others.
        let windows: Vec<_> = hotspots.iter().map(|h| (h.up, 200)).collect();
        let results = run(&mut network, &windows, 30 * SECOND);
        for hotspot in &hotspots {
            let rate = results[hotspot.up.index()].rate;
            assert!(rate > 4.8 && rate <= 5.01, "{rate} with {schedule:?}");
        }
    }
}

#[test]
fn packets_wait_for_the_card_at_both_ends() {
    let (mut network, spots) = hotspots(turns(2), 2);
    // The card is with the first hotspot until 50 ms, and with the second from 55 ms to 100 ms.
    network.enqueue(10 * MS, spots[0].up, Full(10 * MS));
    network.enqueue(10 * MS, spots[1].up, Full(10 * MS));
    network.enqueue(10 * MS, spots[1].down, Full(10 * MS));
    let mut out = Vec::new();
    while let Some(deadline) = network.next_deadline() {
        while let Some((id, delivery)) = network.poll(deadline) {
            out.push((id, delivery.due.as_micros()));
        }
    }
    // Wi-Fi 0.1 ms, cellular 2.4 ms and 20 ms. The last packet on the air went up, so down is next.
    let expected = [
        (spots[0].up, 10_000 + 100 + 22_400),
        (spots[1].down, 55_000 + 100),
        (spots[1].up, 55_000 + 200 + 22_400),
    ];
    assert_eq!(out, expected);
}

#[test]
fn an_idle_card_switches_on_demand_and_learns_from_beacons() {
    let (mut network, spots) = hotspots(on_demand(), 2);
    let next = |network: &mut Network<Full>| {
        let mut delivery = None;
        while delivery.is_none() {
            delivery = network.poll(network.next_deadline().unwrap());
        }
        delivery
            .map(|(id, delivery)| (id, delivery.due.as_micros()))
            .unwrap()
    };
    // A packet to send moves the card to the second hotspot at once.
    network.enqueue(10 * MS, spots[1].up, Full(10 * MS));
    assert_eq!(next(&mut network), (spots[1].up, 15_000 + 100 + 22_400));
    // The beacon at 100 ms announces the packet that the first hotspot has buffered since 62.4 ms.
    network.enqueue(40 * MS, spots[0].down, Full(40 * MS));
    assert_eq!(next(&mut network), (spots[0].down, 105_100));
    assert_eq!(network.next_deadline(), None);
}

#[test]
fn a_hotspot_buffers_at_most_its_capacity() {
    let schedule = Schedule::Fixed(vec![SECOND; 2]);
    let (mut network, spots) = hotspots(schedule, 2);
    for _ in 0..100 {
        network.enqueue(Duration::ZERO, spots[1].down, Full(Duration::ZERO));
    }
    while network.poll(2 * SECOND).is_some() {}
    let counters = network.counters(spots[1].down);
    assert_eq!(counters.delivered_packets, 40, "60000 bytes");
    assert_eq!(counters.dropped_queue_packets, 60);
    // The card's own queue is limited as well.
    for _ in 0..150 {
        network.enqueue(2 * SECOND, spots[1].up, Full(Duration::ZERO));
    }
    assert_eq!(network.counters(spots[1].up).dropped_queue_packets, 50);
    assert_eq!(network.counters(spots[1].up).queued_packets, 100);
}

#[test]
fn turns_shorter_than_the_switching_are_rejected() {
    let mut network = Network::<Full>::new(1);
    let hotspot = Hotspot {
        up: network.add(config(MBIT, MS)),
        down: network.add(config(MBIT, MS)),
    };
    let radio = |turns: Vec<Duration>| Radio {
        rate: MBIT,
        switching: 5 * MS,
        card_queue: 1,
        hotspot_buffer: 1,
        schedule: Schedule::Fixed(turns),
    };
    let refused = |network: &mut Network<Full>, turns| network.radio(&[hotspot], radio(turns));
    let short = refused(&mut network, vec![5 * MS]).unwrap_err().to_string();
    assert!(
        short.contains("a turn in milliseconds is 5, but must be longer"),
        "{short}"
    );
    let many = refused(&mut network, vec![SECOND; 2])
        .unwrap_err()
        .to_string();
    assert!(many.contains("has 2 entries, but must have 1"), "{many}");
    refused(&mut network, vec![SECOND]).unwrap();
}
