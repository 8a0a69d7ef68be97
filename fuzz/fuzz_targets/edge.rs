//! Packets into an edge node from both sides, and numbered ones into a receiver. For any input, the
//! node owes only bytes that it can deliver, and acknowledges to the far side only data that the
//! user has acknowledged or that the node has received. It respects its memory bounds, and its
//! timers end.
#![no_main]

use std::collections::HashSet;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sumlink_edge::lwa::{Reorder, ReorderConfig, SequenceBits};
use sumlink_edge::{Config, Edge, LinkId, Mode, Sack, steering};

/// Bytes of copies that the node may keep, and the overhead of an entry besides its packet.
const KEPT: usize = 20_000;
const OVERHEAD: usize = 96;

/// Bound on the bytes stored in the receiver.
const WAITING: usize = 4000;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, mut rest)) = bytes.split_first() else {
        return;
    };
    let mut edge = Edge::new(config(first)).expect("a right configuration");
    let bits = if first & 64 == 0 {
        SequenceBits::Twelve
    } else {
        SequenceBits::Eighteen
    };
    let mut receiver = Reorder::new(ReorderConfig {
        bits,
        timer: Duration::from_millis(100),
        bytes: WAITING,
    });
    let mut now = Duration::ZERO;
    let mut said = Said::default();
    while let [step, length, tail @ ..] = rest {
        let (own, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        let link = LinkId(step >> 7);
        let mut far = |packet: Vec<u8>| {
            said.far(&packet);
            edge.handle_far(packet, now);
        };
        match step % 8 {
            0 => far(own.to_vec()),
            2 | 3 => far(segment(own, true)),
            1 | 4 => {
                let packet = match step % 8 {
                    1 => own.to_vec(),
                    _ => segment(own, false),
                };
                said.user(&packet);
                edge.handle_user(packet, now);
            }
            5 => now += Duration::from_millis(u64::from(*length)),
            6 if step & 64 == 0 => edge.link_down(link, now),
            6 => edge.link_up(link, now),
            _ => receiver.handle_pdu(own, now),
        }
        check(&mut edge, &mut receiver, now, &said);
    }
});

fn config(first: u8) -> Config {
    let policies = steering::POLICIES;
    Config {
        mode: [Mode::LwipVisible, Mode::Lwip, Mode::Lwa][usize::from(first & 3) % 3],
        steering: policies[usize::from(first >> 2 & 3) % policies.len()]
            .0
            .to_owned(),
        sack: if first & 16 == 0 {
            Sack::Rewrite
        } else {
            Sack::Strip
        },
        // Otherwise almost no packet would pass its checksum.
        verify_checksums: first & 32 != 0,
        flows: 4,
        kept: KEPT,
        mss: Some(1200),
        ..Config::default()
    }
}

/// A TCP segment of one of two flows, with fields close enough to each other to belong together.
fn segment(own: &[u8], is_far: bool) -> Vec<u8> {
    let byte = |at: usize| own.get(at).copied().unwrap_or_default();
    let ends = [
        ([192, 0, 2, 1], 80),
        ([10, 0, 0, 2], 4000 + u16::from(byte(0) & 1)),
    ];
    let [from, to] = if is_far { ends } else { [ends[1], ends[0]] };
    let number = |at| u32::from(byte(at)) * 100 + u32::from(byte(at + 1));
    let options = own.get(8..).unwrap_or_default();
    let options = &options[..options.len().min(40) / 4 * 4];
    let payload = if is_far {
        usize::from(byte(7)) * 4
    } else {
        usize::from(byte(7) & 1)
    };
    let total = (40 + options.len() + payload) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    packet.extend(from.0.iter().chain(&to.0));
    packet.extend([from.1, to.1].map(u16::to_be_bytes).concat());
    packet.extend(number(1).to_be_bytes());
    packet.extend(number(3).to_be_bytes());
    // Most segments acknowledge something.
    packet.extend([
        (20 + options.len() as u8) << 2,
        byte(5) & 0x07 | if byte(5) & 8 == 0 { 0x10 } else { 0 },
    ]);
    packet.extend([byte(6), 0, 0, 0, 0, 0]);
    packet.extend(options);
    packet.resize(usize::from(total), byte(5));
    packet
}

/// Invariant of the packets for the far side: an acknowledgment repeats a number of the user's, or
/// ends with a segment that the node has received, never after a FIN.
#[derive(Default)]
struct Said {
    /// By the user's port.
    numbers: HashSet<(u16, u32)>,
}

impl Said {
    /// The edges of a segment's data. Overlapping copies are stored in parts; their edges are those
    /// of other segments.
    fn far(&mut self, packet: &[u8]) {
        if let Some(tcp) = Tcp::read(packet, true) {
            let data = tcp.sequence.wrapping_add(u32::from(tcp.flags & SYN != 0));
            self.numbers.insert((tcp.user, data));
            self.numbers.insert((tcp.user, data.wrapping_add(tcp.data)));
        }
    }

    fn user(&mut self, packet: &[u8]) {
        if let Some(tcp) = Tcp::read(packet, false) {
            self.numbers.insert((tcp.user, tcp.acknowledged));
        }
    }

    fn check(&self, packet: &[u8]) {
        let Some(tcp) = Tcp::read(packet, false).filter(|tcp| tcp.flags & ACK != 0) else {
            return;
        };
        let number = (tcp.user, tcp.acknowledged);
        assert!(
            self.numbers.contains(&number),
            "{} acknowledged, which the user did not",
            tcp.acknowledged
        );
    }
}

const SYN: u8 = 2;
const ACK: u8 = 16;

/// The fields of a segment that the invariant needs.
struct Tcp {
    user: u16,
    sequence: u32,
    acknowledged: u32,
    flags: u8,
    data: u32,
}

impl Tcp {
    /// Parses an unfragmented IPv4 packet between the two ends. It accepts more than the node does,
    /// which is safe here.
    fn read(packet: &[u8], is_far: bool) -> Option<Self> {
        let header = usize::from(packet.first()? & 0xf) * 4;
        let ends = packet.get(12..20)?;
        let wanted: [u8; 8] = if is_far {
            [192, 0, 2, 1, 10, 0, 0, 2]
        } else {
            [10, 0, 0, 2, 192, 0, 2, 1]
        };
        if packet[0] >> 4 != 4 || packet[9] != 6 || ends != wanted {
            return None;
        }
        let total = usize::from(u16::from_be_bytes([packet[2], packet[3]])).min(packet.len());
        let tcp = packet.get(header..total)?;
        let offset = usize::from(*tcp.get(12)? >> 4) * 4;
        let short = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        let long = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
        Some(Self {
            user: short(if is_far { 2 } else { 0 })?,
            sequence: long(4)?,
            acknowledged: long(8)?,
            flags: *tcp.get(13)?,
            data: tcp.len().saturating_sub(offset) as u32,
        })
    }
}

fn check(edge: &mut Edge, receiver: &mut Reorder, now: Duration, said: &Said) {
    for link in [LinkId(0), LinkId(1)] {
        while edge.poll_link(link, now).is_some() {}
    }
    while let Some(packet) = edge.poll_far() {
        said.check(&packet);
    }
    while edge.poll_event().is_some() {}
    if edge.poll_timeout().is_some_and(|at| at <= now) {
        edge.handle_timeout(now);
        assert!(
            edge.poll_timeout().is_none_or(|at| at > now),
            "a timer that is due for ever"
        );
    }
    let mut kept = 0;
    for (_, flow) in edge.flows() {
        assert!(flow.owed <= u64::from(u16::MAX), "{flow:?}");
        assert!(flow.owed == 0 || flow.deliverable, "{flow:?}");
        kept += flow.kept;
    }
    assert!(kept <= KEPT + OVERHEAD, "{kept} bytes are kept");
    receiver.handle_timeout(now);
    while receiver.poll().is_some() {}
    assert!(receiver.stored_bytes() <= WAITING);
    assert!(receiver.poll_timeout().is_none_or(|at| at > now));
}
