//! Packets into an edge node from both sides, and numbered ones into a receiver: whatever comes, the node owes nothing that it
//! cannot deliver, keeps no more than it may, and its timers end.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sumlink_edge::lwa::{Reorder, ReorderConfig, SequenceBits};
use sumlink_edge::{Config, Edge, LinkId, Mode, Sack, steering};

/// Bytes of copies that the node may keep, and what an entry costs beside its packet.
const KEPT: usize = 20_000;
const OVERHEAD: usize = 96;

/// Bytes that wait in the receiver.
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
    while let [step, length, tail @ ..] = rest {
        let (own, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        let link = LinkId(step >> 7);
        match step % 8 {
            0 => edge.handle_far(own.to_vec(), now),
            1 => edge.handle_user(own.to_vec(), now),
            2 | 3 => edge.handle_far(segment(own, true), now),
            4 => edge.handle_user(segment(own, false), now),
            5 => now += Duration::from_millis(u64::from(*length)),
            6 if step & 64 == 0 => edge.link_down(link, now),
            6 => edge.link_up(link, now),
            _ => receiver.handle_pdu(own, now),
        }
        check(&mut edge, &mut receiver, now);
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
        // Or nearly nothing would be read beyond its checksum.
        verify_checksums: first & 32 != 0,
        flows: 4,
        kept: KEPT,
        mss: Some(1200),
        ..Config::default()
    }
}

/// A TCP segment of one of two flows, its fields near enough to one another to belong together.
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

fn check(edge: &mut Edge, receiver: &mut Reorder, now: Duration) {
    for link in [LinkId(0), LinkId(1)] {
        while edge.poll_link(link, now).is_some() {}
    }
    while edge.poll_far().is_some() {}
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
