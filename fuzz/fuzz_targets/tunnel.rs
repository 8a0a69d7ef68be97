//! Datagrams into the end of an edge node's tunnel, and their payloads into the reordering
//! receiver. For any input: a parsed datagram equals the written one, every delivered packet was
//! received, stored bytes stay within their bound, and timers end.
#![no_main]

use std::collections::HashMap;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sumlink_edge::lwa::{Header, ReorderConfig, SequenceBits};
use sumlink_edge_node::wire::{self, Kind};

// Included as a module because the library does not export it.
#[path = "../../crates/edge-node/src/receive.rs"]
#[allow(dead_code, unreachable_pub)]
mod receive;

use receive::Receive;

/// Bound on the bytes stored for all users together.
const WAITING: usize = 3000;

const TIMER: Duration = Duration::from_millis(100);

fuzz_target!(|bytes: &[u8]| {
    let mut receive = Receive::new(ReorderConfig {
        bits: SequenceBits::Eighteen,
        timer: TIMER,
        bytes: WAITING,
    });
    let mut now = Duration::ZERO;
    // How often each packet was received and not yet delivered.
    let mut inside: HashMap<Vec<u8>, u64> = HashMap::new();
    let mut rest = bytes;
    while let [step, length, tail @ ..] = rest {
        let (own, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        let datagram = match step % 4 {
            0 => own.to_vec(),
            1 => {
                now += Duration::from_millis(u64::from(*length));
                Vec::new()
            }
            // An end uses one number length for all packets; an attacker may mix them.
            _ if step & 16 == 0 => numbered(*step, own, Kind::Pdu18, SequenceBits::Eighteen),
            _ => numbered(*step, own, Kind::Pdu12, SequenceBits::Twelve),
        };
        let Some((header, payload)) = wire::Header::read(&datagram) else {
            continue;
        };
        let mut again = Vec::new();
        header.write(payload, &mut again);
        assert_eq!(again, datagram);
        let bits = match header.kind {
            Kind::Pdu12 => SequenceBits::Twelve,
            Kind::Pdu18 => SequenceBits::Eighteen,
            _ => continue,
        };
        if let Some((_, packet)) = Header::read(bits, payload) {
            *inside.entry(packet.to_vec()).or_default() += 1;
        }
        let mut out = Vec::new();
        receive.handle_pdu(bits, header.epoch, payload, now, |packet| out.push(packet));
        if receive.poll_timeout().is_some_and(|at| at <= now) {
            receive.handle_timeout(now, |packet| out.push(packet));
        }
        for packet in out {
            let came = inside.get_mut(&packet).filter(|times| **times > 0);
            *came.expect("a packet that did not come, or came less often") -= 1;
        }
        let due = receive.poll_timeout();
        assert!(due.is_none_or(|at| at > now && at <= now + TIMER));
    }
    receive.handle_timeout(now + TIMER, |packet| assert!(!packet.is_empty()));
    let due = receive.poll_timeout();
    assert!(
        due.is_none_or(|at| at > now + TIMER),
        "what waits is given up"
    );
});

/// A datagram of the node's, close enough to earlier ones to belong to them: epoch, number and user
/// come from the input.
fn numbered(step: u8, own: &[u8], kind: Kind, bits: SequenceBits) -> Vec<u8> {
    let byte = |at: usize| own.get(at).copied().unwrap_or_default();
    let packet = if step & 8 == 0 {
        [&[0x45][..], &[0; 15], &[10, 0, 0, byte(0) & 7], own].concat()
    } else {
        [&[0x60][..], &[0; 38], &[byte(0) & 7], own].concat()
    };
    let sequence = u32::from(byte(1)) << (byte(2) & 15) & 0x0fff;
    let pdu = Header { sequence }.write(bits, &packet);
    let header = wire::Header {
        kind,
        tunnel: 0,
        epoch: u32::from(byte(3) & 3),
    };
    let mut datagram = Vec::new();
    header.write(&pdu, &mut datagram);
    datagram
}
