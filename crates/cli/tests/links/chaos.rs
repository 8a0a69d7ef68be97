//! Two minutes of random faults on three links, during a download and an upload by curl. Both
//! copies equal the source, every link carries again at the end, and nothing is left behind.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use sumlink_lab::Side;

use crate::bond::{Bond, Plan, active};
use sumlink_test_support::emulated::traffic::{Pattern, Transfer};
use sumlink_test_support::emulated::until;

const LINKS: [&str; 3] = [
    "a:rate=16mbit,delay=5ms",
    "b:rate=12mbit,delay=15ms",
    "c:rate=8mbit,delay=30ms",
];
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Faults of a link and their ends; a momentary fault has no end.
const FAULTS: [(&str, Option<&str>); 10] = [
    ("state=blackhole", Some("state=up")),
    ("state=down", Some("state=up")),
    ("state=unaddressed", Some("state=up")),
    ("state=removed", Some("state=up")),
    ("down.loss=100%", Some("down.loss=0%")),
    ("up.loss=100%", Some("up.loss=0%")),
    ("rate=80kbit", Some("rate=8mbit")),
    ("connections=reset", None),
    ("connections=forgotten", None),
    ("address=new", None),
];

/// Duration of the faults.
const DURATION: Duration = Duration::from_secs(120);

/// Mean time between two changes, in seconds.
const MEAN_PAUSE: f64 = 0.7;

/// Random numbers; `SEED` sets another seed.
struct Random(Pattern);

impl Random {
    fn new() -> Self {
        let seed = std::env::var("SEED").ok();
        let seed = seed.and_then(|text| text.parse().ok()).unwrap_or(1);
        println!("SEED={seed}");
        Self(Pattern::new(seed))
    }

    fn below(&mut self, end: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        // The high half, because the low half of small seeds starts with small numbers.
        (u64::from_le_bytes(bytes) >> 32) as usize % end
    }
}

#[test]
fn two_minutes_of_chaos_lose_no_data_and_leave_nothing() {
    let Some(bond) = Plan::new(&LINKS).memory("8MiB", "4MiB").start() else {
        return;
    };
    bond.until_active(&NAMES);
    let session = bond.status(Side::Client).session;
    let down = Transfer::download(&bond.bench, "10.99.0.1:8080".parse().unwrap());
    let up = Transfer::upload(&bond.bench, "10.99.0.1:8081".parse().unwrap());
    let mut random = Random::new();
    let mut broken: [Option<&str>; 3] = [None; 3];
    let begun = Instant::now();
    while begun.elapsed() < DURATION {
        // The test is about time, so it waits for no condition.
        let pause = MEAN_PAUSE * (0.2 + 1.6 * random.below(1000) as f64 / 1000.0);
        thread::sleep(Duration::from_secs_f64(pause));
        let link = random.below(NAMES.len());
        if let Some(end) = broken[link].take() {
            bond.bench.set(NAMES[link], end);
            continue;
        }
        let (fault, end) = FAULTS[random.below(FAULTS.len())];
        bond.bench.set(NAMES[link], fault);
        broken[link] = end;
    }
    for (link, end) in NAMES.iter().zip(broken) {
        if let Some(end) = end {
            bond.bench.set(link, end);
        }
    }
    bond.until_active(&NAMES);
    down.goes_on(1_000_000);
    up.goes_on(1_000_000);
    for (link, path) in NAMES.iter().map(|link| (link, path_of(&bond, link))) {
        bond.until(&format!("{link} carries again"), |session| {
            active(session)
                .find(|now| now.link == *link)
                .filter(|now| now.id != path.0 || now.bytes_received > path.1 + 50_000)
                .map(drop)
        });
    }
    let after = bond.status(Side::Client).session;
    assert_eq!(after, session, "a new session was made");
    // `finish` compares the SHA-256 of both ends.
    assert!(down.finish() > 10_000_000);
    assert!(up.finish() > 10_000_000);
    // Neither the ends of abandoned paths nor streams are kept.
    until("the server has one path for each link", || {
        let sessions = bond.sessions(Side::Server);
        (sessions.len() == 1 && sessions[0].paths.len() == NAMES.len()).then_some(())
    });
    until("no stream is open", || {
        let sessions = [Side::Client, Side::Server].map(|side| bond.status(side));
        sessions
            .iter()
            .all(|session| session.streams_open == 0)
            .then_some(())
    });
    let namespaces =
        [Side::Client, Side::Server].map(|side| bond.bench.lab.namespace(side).unwrap().to_owned());
    bond.stop();
    for namespace in namespaces {
        let file = Path::new("/run/netns").join(&namespace);
        assert!(!file.exists(), "{} is left", file.display());
    }
}

/// Number of a link's active path, and the bytes received over it.
fn path_of(bond: &Bond, link: &str) -> (Option<u32>, u64) {
    bond.until(&format!("{link} is active"), |session| {
        let path = active(session).find(|path| path.link == link)?;
        Some((path.id, path.bytes_received))
    })
}
