//! Invariants of every network under arbitrary operations.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sumlink_link::{
    Air, Change, Distribution, GilbertElliott, Hotspot, Interferer, Jitter, LinkConfig, LinkId,
    LinkState, Loss, LossScript, Network, Packet, QueueLimit, Radio, Schedule, Trace,
};

#[derive(Clone, Debug, PartialEq)]
struct Numbered {
    number: u64,
    sent: Duration,
    len: usize,
}

impl Packet for Numbered {
    fn wire_len(&self) -> usize {
        self.len
    }
}

/// Links 0..6 and their groups.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    rates: Vec<u64>,
    delays: Vec<u64>,
    /// Links 0 and 1.
    air: Option<(f64, f64)>,
    /// Links 1 and 2.
    interferer: Option<Interferer>,
    /// Links 2 and 3 behind the first hotspot, 4 and 5 behind the second one; true is on demand.
    radio: Option<bool>,
    /// Whether jitter may reorder.
    reorder: bool,
}

const LINKS: usize = 6;

fn interferer() -> impl Strategy<Value = Interferer> {
    let share = || prop_oneof![Just(0.0), 0.0f64..=1.0, Just(1.0)];
    (share(), 1u64..5_000, share(), share(), 0u32..9).prop_map(
        |(occupancy, burst, deferral, frame_error, retry_limit)| Interferer {
            occupancy,
            burst: Duration::from_micros(burst),
            deferral,
            frame_error,
            retry_limit,
        },
    )
}

fn plan() -> impl Strategy<Value = Plan> {
    (
        any::<u64>(),
        proptest::collection::vec(100_000u64..1_000_000_000, LINKS),
        proptest::collection::vec(0u64..30_000, LINKS),
        proptest::option::of((0.0f64..=1.0, 0.0f64..=1.0)),
        proptest::option::of(interferer()),
        proptest::option::of(any::<bool>()),
        any::<bool>(),
    )
        .prop_map(
            |(seed, rates, delays, air, interferer, radio, reorder)| Plan {
                seed,
                rates,
                delays,
                air,
                interferer,
                radio,
                reorder,
            },
        )
}

fn build(plan: &Plan) -> (Network<Numbered>, Vec<LinkId>) {
    let mut network = Network::new(plan.seed);
    let ids: Vec<_> = (0..LINKS)
        .map(|i| {
            network.add(LinkConfig {
                rate: plan.rates[i],
                delay: Duration::from_micros(plan.delays[i]),
                loss: 0.0,
                queue: QueueLimit::Bytes(50_000),
                seed: 0,
            })
        })
        .collect();
    if let Some((d12, d21)) = plan.air {
        network
            .couple(&ids[..2], Air::pair(d12, d21).unwrap())
            .unwrap();
    }
    if let Some(interferer) = plan.interferer {
        network.interfere(&ids[1..3], interferer).unwrap();
    }
    if let Some(on_demand) = plan.radio {
        let ms = Duration::from_millis;
        let radio = Radio {
            rate: 50_000_000,
            switching: ms(2),
            card_queue: 20_000,
            hotspot_buffer: 10_000,
            schedule: if on_demand {
                Schedule::OnDemand {
                    turn: ms(10),
                    listen: ms(20),
                }
            } else {
                Schedule::Fixed(vec![ms(10), ms(5)])
            },
        };
        let hotspots = [(2, 3), (4, 5)].map(|(up, down)| Hotspot {
            up: ids[up],
            down: ids[down],
        });
        network.radio(&hotspots, radio).unwrap();
    }
    (network, ids)
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Send(usize, usize),
    Poll,
    Change(usize, Change),
}

fn change() -> impl Strategy<Value = Change> {
    let micros = |most: u64| (0..most).prop_map(Duration::from_micros);
    let trace = proptest::collection::vec(0u64..20_000, 1..50).prop_map(|mut stamps| {
        stamps.sort_unstable();
        *stamps.last_mut().unwrap() += 1;
        Change::Trace(Trace::from_micros(stamps).unwrap())
    });
    prop_oneof![
        prop_oneof![Just(0), 10_000u64..2_000_000_000].prop_map(Change::Rate),
        trace,
        micros(50_000).prop_map(Change::Delay),
        micros(10_000).prop_map(|spread| Change::Jitter(Jitter::uniform(spread))),
        micros(5_000).prop_map(|sigma| Change::Jitter(Jitter::normal(sigma))),
        (0.0f64..0.3).prop_map(|p| Change::Loss(Loss::Independent(p))),
        Just(Change::Loss(Loss::GilbertElliott(
            GilbertElliott::bursts(0.1, 3.0).unwrap()
        ))),
        (0u64..20, 1u64..5).prop_map(|(from, n)| Change::Loss(Loss::Script(LossScript {
            packets: std::iter::once(from..from + n).collect(),
            times: Vec::new(),
        }))),
        (0u64..100_000).prop_map(|bytes| Change::Queue(QueueLimit::Bytes(bytes))),
        micros(50_000).prop_map(|time| Change::Queue(QueueLimit::Time(time))),
        prop_oneof![
            Just(LinkState::Up),
            Just(LinkState::Up),
            Just(LinkState::Down),
            Just(LinkState::Blackhole)
        ]
        .prop_map(Change::State),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..4_000).prop_map(Step::Wait),
        12 => (0..LINKS, 1usize..1501).prop_map(|(link, len)| Step::Send(link, len)),
        5 => Just(Step::Poll),
        2 => (0..LINKS, change()).prop_map(|(link, change)| Step::Change(link, change)),
    ]
}

/// Deliveries: link, number, due time.
type Trail = Vec<(usize, u64, Duration)>;

/// The shortest possible time in flight, given the changes so far.
fn min_delay(delay: Duration, jitter: Jitter) -> Duration {
    delay.saturating_sub(match jitter.distribution {
        Distribution::Uniform(spread) => spread,
        Distribution::Normal(deviation) => 3 * deviation,
        _ => Duration::ZERO,
    })
}

/// Executes the steps, with a poll wherever `polls` returns true; checks the invariants.
fn run(plan: &Plan, steps: &[Step], polls: impl Fn(usize) -> bool) -> Trail {
    let (mut network, ids) = build(plan);
    let mut now = Duration::ZERO;
    let mut trail = Trail::new();
    let mut next_number = 0;
    let mut shape: Vec<_> = plan
        .delays
        .iter()
        .map(|delay| (Duration::from_micros(*delay), Jitter::NONE))
        .collect();
    let mut least: Vec<_> = shape.iter().map(|(d, j)| min_delay(*d, *j)).collect();
    let mut last: BTreeMap<usize, u64> = BTreeMap::new();
    let drain = |network: &mut Network<Numbered>,
                 now: Duration,
                 least: &[Duration],
                 last: &mut BTreeMap<usize, u64>,
                 trail: &mut Trail| {
        let deadline = network.next_deadline();
        let from = trail.len();
        while let Some((id, delivery)) = network.poll(now) {
            let (packet, due) = (delivery.packet, delivery.due);
            assert!(due <= now, "delivered early");
            assert!(
                deadline.is_some_and(|deadline| deadline <= due),
                "before the deadline"
            );
            assert!(
                due >= packet.sent + least[id.index()],
                "faster than the delay"
            );
            let before = trail[from..]
                .last()
                .map_or(Duration::ZERO, |(_, _, due)| *due);
            assert!(before <= due, "in the order of the due times");
            let previous = last.insert(id.index(), packet.number);
            if !plan.reorder {
                assert!(
                    previous.is_none_or(|previous| previous < packet.number),
                    "order kept"
                );
            }
            trail.push((id.index(), packet.number, due));
        }
        assert!(
            network
                .next_deadline()
                .is_none_or(|deadline| deadline > now),
            "drained"
        );
    };
    let conserved = |network: &Network<Numbered>| {
        for id in &ids {
            let counters = network.counters(*id);
            assert_eq!(
                counters.accounted_packets(),
                counters.offered_packets,
                "{counters:?}"
            );
            assert_eq!(
                counters.accounted_bytes(),
                counters.offered_bytes,
                "{counters:?}"
            );
        }
    };
    for (i, step) in steps.iter().enumerate() {
        match step {
            Step::Wait(micros) => now += Duration::from_micros(*micros),
            Step::Send(link, len) => {
                let packet = Numbered {
                    number: next_number,
                    sent: now,
                    len: *len,
                };
                next_number += 1;
                network.enqueue(now, ids[*link], packet);
            }
            Step::Poll => {}
            Step::Change(link, change) => {
                let change = match change {
                    Change::Jitter(jitter) if plan.reorder => Change::Jitter(jitter.reordering()),
                    other => other.clone(),
                };
                match &change {
                    Change::Delay(delay) => shape[*link].0 = *delay,
                    Change::Jitter(jitter) => shape[*link].1 = *jitter,
                    _ => {}
                }
                let (delay, jitter) = shape[*link];
                least[*link] = least[*link].min(min_delay(delay, jitter));
                // Due packets are polled first, so that a state change discards the same packets in
                // every run.
                drain(&mut network, now, &least, &mut last, &mut trail);
                network.set(now, ids[*link], change);
            }
        }
        if polls(i) || matches!(step, Step::Poll) {
            drain(&mut network, now, &least, &mut last, &mut trail);
        }
        conserved(&network);
    }
    // Drains the network: every link that is up and can send does so.
    for id in &ids {
        drain(&mut network, now, &least, &mut last, &mut trail);
        network.set(now, *id, Change::Rate(1_000_000_000));
    }
    let always = plan
        .interferer
        .is_some_and(|i| i.occupancy == 1.0 && i.deferral == 1.0);
    let mut polls = 0;
    while let Some(deadline) = network.next_deadline() {
        assert!(deadline >= now, "a deadline in the past");
        now = deadline;
        drain(&mut network, now, &least, &mut last, &mut trail);
        conserved(&network);
        polls += 1;
        if always && polls > 10_000 {
            // Packets behind a stopped link wait forever.
            return trail;
        }
        assert!(polls < 200_000, "polling does not terminate");
    }
    for id in &ids {
        let counters = network.counters(*id);
        let stuck = always && counters.queued_packets > 0;
        assert!(
            stuck || counters.queued_packets + counters.in_flight_packets == 0,
            "{counters:?}"
        );
    }
    trail
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_appears_disappears_or_comes_early_and_runs_repeat(
        plan in plan(),
        steps in proptest::collection::vec(step(), 1..250),
        polls in proptest::collection::vec(any::<bool>(), 250),
    ) {
        let trail = run(&plan, &steps, |_| false);
        prop_assert_eq!(&run(&plan, &steps, |_| false), &trail, "a repeated run is identical");
        let mut often = run(&plan, &steps, |i| polls[i]);
        // Polls in between return the same packets with the same due times.
        let mut once = trail;
        often.sort_by_key(|(link, number, due)| (*due, *link, *number));
        once.sort_by_key(|(link, number, due)| (*due, *link, *number));
        prop_assert_eq!(often, once);
    }

    /// Compares with a naive implementation of Mahimahi's link, opportunity by opportunity.
    #[test]
    fn a_trace_is_served_as_mahimahi_does(
        mut stamps in proptest::collection::vec(0u64..30, 1..40),
        packets in proptest::collection::vec((0u64..15_000, 1usize..4_000), 1..60),
    ) {
        stamps.sort_unstable();
        *stamps.last_mut().unwrap() += 1;
        let period = *stamps.last().unwrap();
        let text: String = stamps.iter().map(|stamp| format!("{stamp}\n")).collect();
        let mut network = Network::new(0);
        let id = network.add(LinkConfig {
            rate: 0,
            delay: Duration::ZERO,
            loss: 0.0,
            queue: QueueLimit::Bytes(u64::MAX),
            seed: 0,
        });
        network.set(Duration::ZERO, id, Change::Trace(text.parse().unwrap()));

        let mut now = Duration::ZERO;
        let mut waiting = std::collections::VecDeque::new();
        for (number, (gap, len)) in packets.iter().enumerate() {
            // Never on a whole millisecond, where the order of events would be arbitrary.
            now += Duration::from_micros(*gap) + Duration::from_nanos(1);
            let number = number as u64;
            network.enqueue(now, id, Numbered { number, sent: now, len: *len });
            waiting.push_back((now, *len));
        }
        let mut expected = Vec::new();
        for at in (0..).flat_map(|cycle| stamps.iter().map(move |stamp| cycle * period + stamp)) {
            let at = Duration::from_millis(at);
            let mut left = 1500;
            while let Some((arrived, len)) = waiting.front_mut() {
                if *arrived > at || left == 0 {
                    break;
                }
                let used = left.min(*len);
                left -= used;
                *len -= used;
                if *len == 0 {
                    expected.push(at);
                    waiting.pop_front();
                }
            }
            if waiting.is_empty() {
                break;
            }
        }
        let got: Vec<_> = std::iter::from_fn(|| network.poll(Duration::from_secs(100_000)))
            .map(|(_, delivery)| delivery.due)
            .collect();
        prop_assert_eq!(got, expected);
    }

    /// In every window of time the link carries at most the highest rate in that window.
    #[test]
    fn the_rate_is_never_exceeded_over_any_window(
        plan in plan(),
        sends in proptest::collection::vec((0u64..500, 0..LINKS, 1usize..1501), 1..150),
    ) {
        let (mut network, ids) = build(&plan);
        let mut now = Duration::ZERO;
        for (number, (gap, link, len)) in sends.iter().enumerate() {
            now += Duration::from_micros(*gap);
            let packet = Numbered { number: number as u64, sent: now, len: *len };
            network.enqueue(now, ids[*link], packet);
        }
        let mut out = vec![Vec::new(); LINKS];
        while let Some((id, delivery)) = network.poll(now + Duration::from_secs(60)) {
            out[id.index()].push((delivery.due.as_nanos(), delivery.packet.len));
        }
        for (link, out) in out.iter().enumerate() {
            let rate = if plan.air.is_some() && link < 2 {
                plan.rates[link] as f64 * (1.0 + 1.0 / Air::THETA) + 1.0
            } else if plan.radio.is_some() && matches!(link, 3 | 5) {
                50_000_000.0 // The last step is the Wi-Fi.
            } else {
                plan.rates[link] as f64
            };
            for (i, (start, _)) in out.iter().enumerate() {
                let mut bits = 0;
                for (end, len) in &out[i + 1..] {
                    bits += 8 * len;
                    // Departures are rounded to a nanosecond.
                    let most = (end - start + 1) as f64 * 1e-9 * rate;
                    prop_assert!(bits as f64 <= most, "link {link}: {bits} > {most}");
                }
            }
        }
    }
}
