//! A QUIC download inside of a flow. It must see neither loss nor reordering caused by the bond,
//! except for the few losses that signal congestion.

use std::collections::BTreeMap;
use std::time::Duration;

use super::model::{CLIENT, Link, MS, Pair, SERVER};
use crate::datagram::{FlowConfig, FlowId, FlowStats};
use crate::{Instant, PathId};

/// The largest packet of QUIC in an IP packet of 1500 bytes, which no packet of a path takes.
const PACKET: usize = 1452;

/// Bytes of the receiver's acknowledgments.
const ACK: usize = 40;

/// Packets acknowledged at once (RFC 9000, section 13.2.2).
const ACK_EVERY: usize = 2;

/// Longest delay of an acknowledgment (RFC 9000, section 18.2).
const ACK_DELAY: Duration = Duration::from_millis(25);

/// Packets that the sender's pacer lets through at once, and its rate in windows per round trip
/// (RFC 9002, section 7.7).
const BURST: f64 = 10.0;
const PACE: f64 = 1.25;

/// Reduction and growth of CUBIC (RFC 9438, sections 4.6 and 4.2).
const BETA: f64 = 0.7;
const C: f64 = 0.4;

/// The programs act at this interval.
const STEP: Duration = Duration::from_micros(500);

/// A sender with CUBIC at the server, which has no limit on its slow start, and its receiver.
#[derive(Debug)]
struct Transfer {
    flow: FlowId,
    /// Number of the next packet, and packets that have to be sent.
    next: u64,
    left: u64,
    in_flight: BTreeMap<u64, Instant>,
    /// In packets.
    window: f64,
    threshold: f64,
    former: f64,
    recovery: Option<Instant>,
    highest: Option<u64>,
    srtt: Option<Duration>,
    tokens: f64,
    /// Packets in the order of their arrival, and how many of them the sender knows.
    arrived: Vec<u64>,
    known: usize,
    /// Arrivals that the last acknowledgment covers, and when the first one after it came.
    covered: usize,
    waits_since: Option<Instant>,
    /// Datagrams read from the engine at both sides.
    read: [usize; 2],
    lost: u64,
    reordered: u64,
    /// Reductions of the window.
    events: u64,
}

impl Transfer {
    fn new(pair: &mut Pair, bytes: usize) -> Self {
        let config = FlowConfig {
            source: 1,
            target: b"\x01\xc0\x00\x02\x07\x13\x88".to_vec(),
            ..FlowConfig::default()
        };
        let flow = pair.sides[CLIENT].open_flow(config, pair.now).unwrap();
        pair.send(CLIENT, flow, vec![0; 1200]);
        pair.run(200 * MS);
        Self {
            flow,
            next: 0,
            left: bytes.div_ceil(PACKET) as u64,
            in_flight: BTreeMap::new(),
            window: BURST,
            threshold: f64::INFINITY,
            former: 0.0,
            recovery: None,
            highest: None,
            srtt: None,
            tokens: BURST,
            arrived: Vec::new(),
            known: 0,
            covered: 0,
            waits_since: None,
            read: [CLIENT, SERVER].map(|side| pair.count(side)),
            lost: 0,
            reordered: 0,
            events: 0,
        }
    }

    /// Runs the transfer until its end, for at most `time`.
    fn run(&mut self, pair: &mut Pair, time: Duration) {
        let end = pair.now + time;
        while (self.left > 0 || !self.in_flight.is_empty()) && pair.now < end {
            pair.run(STEP);
            self.receive(pair);
            self.on_acks(pair);
            self.detect_losses(pair.now);
            self.send(pair);
            pair.exchange();
        }
    }

    /// The numbers at the beginning of the datagrams that one side has not read.
    fn read(&mut self, pair: &Pair, side: usize) -> Vec<u64> {
        let unread = &pair.arrived[side][self.read[side]..];
        self.read[side] = pair.count(side);
        let first = unread.iter().map(|arrived| arrived.payload.first_chunk());
        first
            .map(|number| u64::from_be_bytes(*number.unwrap()))
            .collect()
    }

    fn receive(&mut self, pair: &mut Pair) {
        for number in self.read(pair, CLIENT) {
            let last = self.arrived.last().copied();
            self.reordered += u64::from(last.is_some_and(|last| last > number));
            self.arrived.push(number);
            self.waits_since.get_or_insert(pair.now);
            let has_gap = last.is_some_and(|last| last + 1 != number);
            if self.arrived.len() - self.covered >= ACK_EVERY || has_gap {
                self.acknowledge(pair);
            }
        }
        if self
            .waits_since
            .is_some_and(|at| pair.now >= at + ACK_DELAY)
        {
            self.acknowledge(pair);
        }
    }

    fn acknowledge(&mut self, pair: &mut Pair) {
        self.covered = self.arrived.len();
        self.waits_since = None;
        pair.send(CLIENT, self.flow, numbered(self.covered as u64, ACK));
    }

    fn on_acks(&mut self, pair: &Pair) {
        for covered in self.read(pair, SERVER) {
            let covered = (covered as usize).max(self.known);
            for index in self.known..covered {
                let number = self.arrived[index];
                if let Some(sent) = self.in_flight.remove(&number) {
                    self.on_ack(number, sent, pair.now);
                }
            }
            self.known = covered;
        }
    }

    fn on_ack(&mut self, number: u64, sent: Instant, now: Instant) {
        self.highest = self.highest.max(Some(number));
        let trip = now - sent;
        let srtt = self.srtt.map_or(trip, |srtt| (7 * srtt + trip) / 8);
        self.srtt = Some(srtt);
        if self.recovery.is_some_and(|since| sent <= since) {
            return;
        }
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let time = self.recovery.map_or(Duration::ZERO, |since| now - since);
        let (time, trip) = (time.as_secs_f64(), srtt.as_secs_f64());
        let k = (self.former * (1.0 - BETA) / C).cbrt();
        let cubic = C * (time + trip - k).powi(3) + self.former;
        let reno = self.former * BETA + 3.0 * (1.0 - BETA) / (1.0 + BETA) * time / trip;
        let target = cubic.max(reno).min(1.5 * self.window);
        self.window += ((target - self.window) / self.window).max(0.0);
    }

    fn detect_losses(&mut self, now: Instant) {
        let Some(highest) = self.highest else {
            return;
        };
        let patience = self.srtt.unwrap_or(100 * MS) * 9 / 8;
        let earlier = self.in_flight.range(..highest);
        let lost = earlier.filter(|(number, at)| *number + 3 <= highest || now >= **at + patience);
        let lost: Vec<(u64, Instant)> = lost.map(|(number, at)| (*number, *at)).collect();
        for (number, at) in lost {
            self.in_flight.remove(&number);
            self.lost += 1;
            self.left += 1;
            if self.recovery.is_none_or(|since| at > since) {
                self.reduce(now);
            }
        }
    }

    fn reduce(&mut self, now: Instant) {
        self.recovery = Some(now);
        self.events += 1;
        // Fast convergence (RFC 9438, section 4.7).
        self.former = match self.window < self.former {
            true => self.window * (1.0 + BETA) / 2.0,
            false => self.window,
        };
        self.threshold = self.window * BETA;
        self.window = self.threshold;
    }

    fn send(&mut self, pair: &mut Pair) {
        let trip = self.srtt.unwrap_or(100 * MS).as_secs_f64();
        let earned = PACE * self.window * STEP.as_secs_f64() / trip;
        self.tokens = (self.tokens + earned).min(BURST.max(2.0 * earned));
        while self.left > 0 && (self.in_flight.len() as f64) < self.window && self.tokens >= 1.0 {
            self.tokens -= 1.0;
            self.left -= 1;
            pair.send(SERVER, self.flow, numbered(self.next, PACKET));
            self.in_flight.insert(self.next, pair.now);
            self.next += 1;
        }
    }

    fn stats(&self, pair: &Pair) -> FlowStats {
        let mut stats = pair.sides[SERVER].flow_stats();
        stats.find(|stats| stats.id == self.flow).unwrap()
    }
}

/// A datagram with a number at its beginning.
fn numbered(number: u64, len: usize) -> Vec<u8> {
    let mut payload = vec![0; len];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    payload
}

fn lossy(mbit: f64, delay_ms: u64, loss: f64) -> Link {
    Link {
        loss,
        ..Link::new(mbit, delay_ms)
    }
}

/// A slow start doubles the window once more before it learns of a loss. The queue has room for
/// that, and CoDel's first losses end it.
#[test]
fn the_start_of_a_download_has_few_losses_and_no_reordering() {
    for links in [
        [lossy(40.0, 5, 0.0), lossy(20.0, 15, 0.0)],
        [lossy(40.0, 10, 0.0), lossy(20.0, 30, 0.0)],
        [lossy(40.0, 10, 0.01), lossy(20.0, 30, 0.0)],
        [lossy(100.0, 5, 0.0), lossy(10.0, 50, 0.0)],
        [lossy(70.0, 2, 0.0), lossy(200.0, 1, 0.0)],
    ] {
        let mut pair = Pair::new(&links);
        let mut transfer = Transfer::new(&mut pair, 4_000_000);
        transfer.run(&mut pair, 3000 * MS);
        assert_eq!(transfer.left, 0, "{links:?}");
        let stats = transfer.stats(&pair);
        assert_eq!(transfer.reordered, 0, "{links:?}");
        let (lost, sent) = (transfer.lost, transfer.next);
        assert!(
            200 * lost <= sent,
            "{lost} of {sent} over {links:?}: {stats:?}"
        );
        assert_eq!(stats.drops.total(), lost, "{links:?}: {stats:?}");
        assert!(transfer.events <= 4, "{} over {links:?}", transfer.events);
    }
}

/// Packets of QUIC with the largest size of a plain path fit none of a carrier. They must not halve
/// the size of the carrier's packets, either.
#[test]
fn a_download_fills_its_links_with_full_packets() {
    let links = [Link::new(40.0, 10), Link::new(20.0, 30)];
    let mut pair = Pair::new(&links);
    let mut transfer = Transfer::new(&mut pair, usize::MAX / 2);
    let time = 4000 * MS;
    transfer.run(&mut pair, time);
    let arrived = (transfer.arrived.len() * PACKET) as f64;
    let most: f64 = links.iter().map(|link| link.rate).sum::<f64>() * time.as_secs_f64();
    assert!(arrived >= 0.92 * most, "{arrived} of {most}");
    assert_eq!(transfer.reordered, 0);
    for id in [PathId(0), PathId(1)] {
        let paths = pair.sides[SERVER].datagram_path_stats_all(pair.clock(SERVER));
        let path = paths.into_iter().find(|path| path.id == id).unwrap();
        let mean = path.bytes_sent / path.packets_sent;
        assert!(mean >= 1360, "packets of {mean} bytes on {path:?}");
    }
}

/// The slower link takes datagrams from behind, so that the program's round trip does not include
/// the difference of the delays twice, and its losses stop nothing.
#[test]
fn a_slow_and_lossy_link_does_not_hold_up_a_download() {
    let links = [lossy(100.0, 5, 0.0), lossy(10.0, 50, 0.01)];
    let mut pair = Pair::new(&links);
    let mut transfer = Transfer::new(&mut pair, usize::MAX / 2);
    let time = 6000 * MS;
    transfer.run(&mut pair, time);
    let arrived = (transfer.arrived.len() * PACKET) as f64;
    let first = links[0].rate * time.as_secs_f64();
    assert!(arrived >= 0.85 * first, "{arrived} of {first}");
    assert_eq!(transfer.reordered, 0);
    let stats = transfer.stats(&pair);
    assert_eq!(stats.drops.total(), transfer.lost, "{stats:?}");
}
