//! Workloads of datagrams: a constant rate, a call, a game.

use std::time::Duration;

use sumlink_settings::units::{parse_duration, parse_rate, parse_size};

use super::document::Document;
use super::section::{Section, keep};
use crate::results::Playout;

/// Payload sizes: a header with a number and a stamp, and the largest payload of UDP over IPv4.
const PAYLOAD: std::ops::RangeInclusive<u64> = 24..=65_507;
/// Frames of 20 ms with 160 bytes of G.711 behind an RTP header of 12 bytes (RFC 3551, section
/// 4.5.14).
const CALL_FRAME: Duration = Duration::from_millis(20);
const CALL_BYTES: u32 = 172;
/// Depth of the de-jitter buffer.
const CALL_BUFFER: Duration = Duration::from_millis(60);
/// Ticks of a game in a second, and the bytes of one.
const GAME_TICKS: u32 = 60;
const GAME_BYTES: u32 = 100;

/// Flows of datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Who sends them.
    pub kind: DatagramKind,
    /// When each of them is sent.
    pub schedule: Schedule,
    /// How a call is played; `None` for other kinds.
    pub playout: Option<Playout>,
    /// Whether a TCP connection carries bulk traffic in the run's direction at the same time.
    pub load: bool,
}

/// A kind of program that sends datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramKind {
    /// A constant rate, in the run's direction.
    Constant,
    /// A call, always in both directions.
    Call,
    /// A game, always in both directions.
    Game,
}

impl DatagramKind {
    /// Its name as a workload.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "datagrams",
            Self::Call => "call",
            Self::Game => "game",
        }
    }

    /// Whether both ends send, whatever the run's direction.
    pub fn is_both_ways(self) -> bool {
        !matches!(self, Self::Constant)
    }
}

/// The moments at which datagrams are sent, and their sizes. The sizes repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    sizes: Vec<u32>,
    /// The time of each datagram of a cycle since the start of the cycle, in nanoseconds.
    offsets_ns: Vec<u64>,
    cycle_ns: u64,
}

impl Schedule {
    /// Datagrams of these sizes in turn, which repeat after `cycle_ns`: after each one the sender
    /// pauses in proportion to its size. Empty sizes become a size of 1, and 0 ns becomes 1 ns.
    pub fn new(mut sizes: Vec<u32>, cycle_ns: u64) -> Self {
        if sizes.is_empty() {
            sizes.push(1);
        }
        let cycle_ns = cycle_ns.max(1);
        let all = sizes
            .iter()
            .map(|size| u128::from(*size))
            .sum::<u128>()
            .max(1);
        let mut before = 0;
        let offset = |size: &u32| {
            let offset = before * u128::from(cycle_ns) / all;
            before += u128::from(*size);
            u64::try_from(offset).unwrap_or(u64::MAX)
        };
        Self {
            offsets_ns: sizes.iter().map(offset).collect(),
            cycle_ns,
            sizes,
        }
    }

    /// The same for a rate of payload in bit/s, at least 1.
    pub fn at_rate(sizes: Vec<u32>, rate: u64) -> Self {
        let bytes = sizes.iter().map(|size| u128::from(*size)).sum::<u128>();
        let cycle_ns = bytes * 8 * 1_000_000_000 / u128::from(rate.max(1));
        Self::new(sizes, u64::try_from(cycle_ns).unwrap_or(u64::MAX))
    }

    /// Datagrams of one size with a fixed interval.
    pub fn every(interval: Duration, size: u32) -> Self {
        Self::new(
            vec![size],
            u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
        )
    }

    /// When a datagram is sent, in nanoseconds since the start; numbers start at 0.
    pub fn due_ns(&self, number: u64) -> u64 {
        let (cycle, place) = self.place(number);
        cycle
            .saturating_mul(self.cycle_ns)
            .saturating_add(self.offsets_ns[place])
    }

    /// The first datagram that is sent at `at_ns` or later, in nanoseconds since the start.
    pub fn first_from(&self, at_ns: u64) -> u64 {
        let sizes = self.sizes.len() as u64;
        let cycle = at_ns / self.cycle_ns;
        let offset = at_ns % self.cycle_ns;
        let before = self.offsets_ns.partition_point(|other| *other < offset);
        cycle.saturating_mul(sizes).saturating_add(before as u64)
    }

    /// Bytes of a datagram's payload.
    pub fn size(&self, number: u64) -> u32 {
        self.sizes[self.place(number).1]
    }

    /// Bytes of the largest payload.
    pub fn largest(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// The sizes, in the order in which they repeat.
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// Time from one repetition of the sizes to the next, in nanoseconds.
    pub fn cycle_ns(&self) -> u64 {
        self.cycle_ns
    }

    /// When each datagram of a run is sent, in seconds since its start.
    pub fn due_s(&self, run: Duration) -> Vec<f64> {
        let end_ns = u64::try_from(run.as_nanos()).unwrap_or(u64::MAX);
        let due = (0..).map(|number| self.due_ns(number));
        due.take_while(|due| *due < end_ns)
            .map(|ns| ns as f64 / 1e9)
            .collect()
    }

    fn place(&self, number: u64) -> (u64, usize) {
        let sizes = self.sizes.len() as u64;
        (number / sizes, usize::try_from(number % sizes).unwrap_or(0))
    }
}

/// Small datagrams that the far end returns, in the manner of `ping`.
pub fn probe_schedule() -> Schedule {
    /// 56 bytes of payload, as in `ping`.
    const BYTES: u32 = 56;
    const INTERVAL: Duration = Duration::from_millis(20);
    Schedule::every(INTERVAL, BYTES)
}

pub(super) fn read_constant(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
) -> Option<Datagrams> {
    let rate = section.parsed(document, "rate", parse_rate);
    for (key, example) in [
        ("rate", "rate = \"5mbit\""),
        ("sizes", "sizes = [\"1200B\"]"),
    ] {
        if !section.has(key) {
            section.missing(document, key, example);
        }
    }
    let listed = section.texts(document, "sizes")?;
    let rate = rate?;
    let mut sizes = Vec::new();
    for at in &listed {
        let size = keep(document, &at.span, "sizes", parse_size(&at.value))?;
        if !PAYLOAD.contains(&size) {
            document.problem(&at.span, "sizes: from 24B to 65507B");
        }
        sizes.push(u32::try_from(size).unwrap_or(u32::MAX));
    }
    if sizes.is_empty() {
        section.missing(document, "sizes", "sizes = [\"1200B\"]");
        return None;
    }
    let largest = sizes.iter().copied().max().unwrap_or(0);
    if rate.value < u64::from(largest) {
        let reason = "rate: less than one datagram in eight seconds gives no usable figures";
        document.problem(&rate.span, reason);
    }
    Some(Datagrams {
        kind: DatagramKind::Constant,
        schedule: Schedule::at_rate(sizes, rate.value),
        playout: None,
        load: false,
    })
}

pub(super) fn read_call(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
) -> Option<Datagrams> {
    let buffer = section.parsed(document, "buffer", parse_duration);
    let load = section.boolean(document, "load").unwrap_or(false);
    Some(Datagrams {
        kind: DatagramKind::Call,
        schedule: Schedule::every(CALL_FRAME, CALL_BYTES),
        playout: Some(Playout {
            buffer: buffer.map_or(CALL_BUFFER, |at| at.value),
            frame: CALL_FRAME,
        }),
        load,
    })
}

pub(super) fn read_game(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
) -> Option<Datagrams> {
    let size = section.parsed(document, "size", parse_size);
    if let Some(at) = size.as_ref().filter(|at| !PAYLOAD.contains(&at.value)) {
        document.problem(&at.span, "size: from 24B to 65507B");
    }
    let load = section.boolean(document, "load").unwrap_or(false);
    let size = size.map_or(GAME_BYTES, |at| {
        u32::try_from(at.value).unwrap_or(GAME_BYTES)
    });
    Some(Datagrams {
        kind: DatagramKind::Game,
        schedule: Schedule::every(Duration::from_secs(1) / GAME_TICKS, size),
        playout: None,
        load,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::{Scenario, Workload};

    fn read(workload: &str) -> Result<Workload, String> {
        let text = format!(
            "name = \"a\"\nduration = \"5s\"\n[workload]\n{workload}\n[[link]]\nname = \"wifi\"\n\
             rate = \"1mbit\"\n"
        );
        let read = Scenario::parse(Path::new("s.toml"), &text);
        read.map(|scenario| scenario.workload)
            .map_err(|problems| problems[0].to_string())
    }

    #[test]
    fn a_rate_spaces_the_sizes_in_turn() {
        let schedule = Schedule::at_rate(vec![1000, 500], 1_200_000);
        let sizes: Vec<_> = (0..3).map(|number| schedule.size(number)).collect();
        assert_eq!(sizes, [1000, 500, 1000]);
        let due: Vec<_> = (0..4)
            .map(|number| schedule.due_ns(number) / 1000)
            .collect();
        assert_eq!(due, [0, 6666, 10_000, 16_666]);
        assert_eq!(schedule.due_s(Duration::from_millis(100)).len(), 20);
        assert_eq!(Schedule::at_rate(Vec::new(), 0).size(7), 1);
    }

    #[test]
    fn calls_and_games_have_their_usual_rates() {
        let Workload::Datagrams(call) = read("kind = \"call\"\nload = true").unwrap() else {
            panic!("no call");
        };
        assert_eq!(call.schedule.due_s(Duration::from_secs(1)).len(), 50);
        assert_eq!((call.schedule.largest(), call.load), (172, true));
        assert_eq!(call.playout.unwrap().buffer, CALL_BUFFER);
        let Workload::Datagrams(game) = read("kind = \"game\"").unwrap() else {
            panic!("no game");
        };
        assert_eq!(game.schedule.due_s(Duration::from_secs(1)).len(), 61);
        assert!(game.kind.is_both_ways() && game.playout.is_none());
    }

    #[test]
    fn wrong_values_are_named() {
        let constant = "kind = \"datagrams\"\nrate = \"1mbit\"\nsizes = ";
        assert!(read(&format!("{constant}[\"24B\", \"65507B\"]")).is_ok());
        let error = read(&format!("{constant}[\"8B\"]")).unwrap_err();
        assert!(error.contains("from 24B to 65507B"), "{error}");
        assert!(read(&format!("{constant}[]")).is_err());
        assert!(read("kind = \"datagrams\"\nsizes = [\"100B\"]").is_err());
        assert!(read("kind = \"call\"\nrate = \"1mbit\"").is_err());
        assert!(read("kind = \"http3\"\nprobe = true").is_ok());
    }

    #[test]
    fn the_first_datagram_from_a_moment_is_the_first_that_is_due() {
        for (sizes, rate) in [(vec![100], 8_000), (vec![24, 1200, 500], 1_000_000)] {
            let schedule = Schedule::at_rate(sizes, rate);
            for at_ns in (0..3).flat_map(|n| {
                let due = schedule.due_ns(n * 4);
                [due.saturating_sub(1), due, due + 1]
            }) {
                let searched = (0..).find(|number| schedule.due_ns(*number) >= at_ns);
                assert_eq!(Some(schedule.first_from(at_ns)), searched, "{at_ns}");
            }
        }
    }
}
