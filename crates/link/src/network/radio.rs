//! Virtual interfaces: several hotspots behind one radio that is on one channel at a time.
//!
//! After Maheshwari, Lundrigan, Kasera, "Scheduling Virtual WiFi Interfaces for High Bandwidth
//! Video Upstreaming Using Multipath TCP", section 3: a Wi-Fi card keeps an association with K
//! hotspots, each of which has its own cellular link. Before the card leaves a channel it announces
//! to the hotspot that it sleeps (a null frame with the power-save bit). The hotspot buffers
//! packets for it and delivers them when the card is back. Uplink packets of the other virtual
//! interfaces wait at the card.
//!
//! ```text
//! up:    enqueue ──▶ card's queue ──▶ Wi-Fi while on channel ──▶ the hotspot's link ──▶ poll
//! down:  enqueue ──▶ the hotspot's link ──▶ power-save buffer ──▶ Wi-Fi while on channel ──▶ poll
//! ```
//!
//! The Wi-Fi hop is faster than the cellular links. Their rates can therefore add up, because they
//! keep sending while the card is elsewhere. The hop carries one packet at a time, alternating
//! between up and down. A packet on the air at the end of a turn is finished first.

mod weights;

use core::time::Duration;
use std::collections::VecDeque;

use crate::queue::DropTail;
use crate::{LinkId, ModelError, Packet};
use weights::Weights;

/// The links of one hotspot, behind its Wi-Fi.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hotspot {
    /// From the hotspot to the far end.
    pub up: LinkId,
    /// From the far end to the hotspot.
    pub down: LinkId,
}

/// A card with virtual interfaces; see [`Network::radio`](crate::Network::radio).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Radio {
    /// Bits per second between the card and its current hotspot, both directions together; above 0.
    pub rate: u64,
    /// Dead time at each change of hotspot: null frame, retuning, wake-up frame.
    pub switching: Duration,
    /// Capacity of the card's queue for each hotspot, in bytes.
    pub card_queue: u64,
    /// Capacity of each hotspot's buffer for the sleeping card, in bytes.
    pub hotspot_buffer: u64,
    /// Order and length of the turns.
    pub schedule: Schedule,
}

/// Order and length of the card's turns at the hotspots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// One turn for each hotspot in their order, repeated forever, used or not; the lengths are the
    /// weights of a weighted round-robin. A turn includes the switching at its beginning and must
    /// be longer than it.
    Fixed(Vec<Duration>),
    /// The card stays while packets wait in either direction, but at most a `turn` if another
    /// hotspot has packets, and then goes to the next one that has. It always sees its own queues.
    /// It learns of packets in a sleeping hotspot's buffer from the next beacon, one every `listen`
    /// interval.
    OnDemand {
        /// The longest stay while others wait.
        turn: Duration,
        /// Time between two beacons; 100 ms is usual.
        listen: Duration,
    },
    /// One turn for each hotspot in their order, used or not, as long as the hotspot's share of the
    /// bytes moved in recent rounds: the weighted round-robin of the paper. Every turn includes the
    /// switching at its beginning, and a tenth of the rest is divided equally.
    Weighted {
        /// Time of all turns together; longer than all switching.
        round: Duration,
    },
}

impl Radio {
    pub(crate) fn check(&self, hotspots: usize) -> Result<(), ModelError> {
        if self.rate == 0 {
            return Err(ModelError::OutOfRange {
                what: "the rate of a radio",
                value: 0.0,
                range: "above 0",
            });
        }
        match &self.schedule {
            Schedule::Fixed(turns) => {
                if turns.len() != hotspots {
                    return Err(ModelError::WrongCount {
                        what: "the schedule of a radio",
                        got: turns.len(),
                        expected: hotspots,
                    });
                }
                if let Some(turn) = turns.iter().find(|turn| **turn <= self.switching) {
                    return Err(ModelError::OutOfRange {
                        what: "a turn in milliseconds",
                        value: turn.as_secs_f64() * 1e3,
                        range: "longer than the switching",
                    });
                }
            }
            Schedule::Weighted { round } => {
                if *round <= self.switching * hotspots as u32 {
                    return Err(ModelError::OutOfRange {
                        what: "a round in milliseconds",
                        value: round.as_secs_f64() * 1e3,
                        range: "longer than the switching to all hotspots",
                    });
                }
            }
            Schedule::OnDemand { turn, listen } => {
                for (what, time, example) in [
                    ("the turn of a radio", turn, "100ms"),
                    ("the listen interval of a radio", listen, "100ms"),
                ] {
                    if time.is_zero() {
                        return Err(ModelError::ZeroTime { what, example });
                    }
                }
            }
        }
        Ok(())
    }
}

/// A direction, seen from the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Up,
    Down,
}

/// One hotspot of a running network.
#[derive(Clone, Debug)]
pub(crate) struct Channel<P> {
    /// Number of its uplink.
    pub(crate) up: usize,
    /// Number of its downlink.
    pub(crate) down: usize,
    /// Packets that wait at the card.
    pub(crate) waiting: DropTail<P>,
    /// Packets that wait at the hotspot.
    pub(crate) buffered: DropTail<P>,
    /// Time at which the card learns of the buffered packets.
    announced: Option<Duration>,
    /// Packets that have arrived at the card, with their times of arrival.
    pub(crate) arrived: VecDeque<(Duration, P)>,
    /// Bytes of `arrived`.
    pub(crate) arrived_bytes: u64,
}

impl<P: Packet> Channel<P> {
    fn has_work(&self) -> bool {
        self.waiting.len() + self.buffered.len() > 0
    }

    /// Whether the card, while elsewhere, knows of packets for this hotspot.
    fn has_known_packets(&self, now: Duration) -> bool {
        self.waiting.len() > 0 || self.announced.is_some_and(|at| at <= now)
    }
}

/// A card of a running network.
#[derive(Clone, Debug)]
pub(crate) struct Card<P> {
    radio: Radio,
    pub(crate) channels: Vec<Channel<P>>,
    /// The channel it is on or is switching to.
    current: usize,
    /// Start of the turn on that channel.
    turn_began: Duration,
    /// End of the switching.
    ready_at: Duration,
    weights: Weights,
    /// The packet on the air: the first one of that side of the current channel, and the end of its
    /// transmission.
    sending: Option<(Side, Duration)>,
    /// Side and end of the last transmission.
    last: (Side, Duration),
    next: Option<Duration>,
}

/// Result of a transmission.
pub(crate) enum Moved<P> {
    /// A packet reached the hotspot and enters the link with that number.
    Up(usize, P),
    /// A packet reached the card over the link with that number.
    Down(usize),
}

impl<P: Packet> Card<P> {
    pub(crate) fn new(radio: Radio, hotspots: &[Hotspot]) -> Self {
        let channel = |hotspot: &Hotspot| Channel {
            up: hotspot.up.index(),
            down: hotspot.down.index(),
            waiting: DropTail::new(radio.card_queue),
            buffered: DropTail::new(radio.hotspot_buffer),
            announced: None,
            arrived: VecDeque::new(),
            arrived_bytes: 0,
        };
        Self {
            channels: hotspots.iter().map(channel).collect(),
            weights: Weights::new(&radio, hotspots.len()),
            radio,
            current: 0,
            turn_began: Duration::ZERO,
            ready_at: Duration::ZERO,
            sending: None,
            last: (Side::Down, Duration::ZERO),
            next: None,
        }
    }

    pub(crate) fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Queues a packet for a hotspot; returns it if it does not fit.
    pub(crate) fn send(&mut self, now: Duration, channel: usize, packet: P) -> Result<(), P> {
        let result = self.channels[channel].waiting.push(now, packet);
        self.plan(now);
        result
    }

    /// Buffers a packet that reached the hotspot; returns it if it does not fit.
    pub(crate) fn buffer(&mut self, now: Duration, channel: usize, packet: P) -> Result<(), P> {
        let slot = &mut self.channels[channel];
        slot.buffered.push(now, packet)?;
        if let (Schedule::OnDemand { listen, .. }, None) = (&self.radio.schedule, slot.announced) {
            let beacon = now.as_nanos().div_ceil(listen.as_nanos()) * listen.as_nanos();
            slot.announced = Some(Duration::from_nanos(
                u64::try_from(beacon).unwrap_or(u64::MAX),
            ));
        }
        self.plan(now);
        Ok(())
    }

    /// Discards the packets on one side of a channel; returns the number of packets and bytes.
    pub(crate) fn clear(&mut self, now: Duration, channel: usize, side: Side) -> (u64, u64) {
        if channel == self.current && self.sending.is_some_and(|(sending, _)| sending == side) {
            self.sending = None;
            self.last.1 = now;
        }
        let slot = &mut self.channels[channel];
        let (queue, mut packets, mut bytes) = match side {
            Side::Up => (&mut slot.waiting, 0, 0),
            Side::Down => {
                let gone = (slot.arrived.len() as u64, slot.arrived_bytes);
                slot.arrived.clear();
                slot.arrived_bytes = 0;
                slot.announced = None;
                (&mut slot.buffered, gone.0, gone.1)
            }
        };
        packets += queue.len();
        bytes += queue.bytes();
        while queue.pop().is_some() {}
        self.plan(now);
        (packets, bytes)
    }

    /// Processes the event that is due at `now`.
    pub(crate) fn fire(&mut self, now: Duration) -> Option<Moved<P>> {
        let mut moved = None;
        if let Some((side, end)) = self.sending.filter(|(_, end)| *end <= now) {
            self.sending = None;
            self.last = (side, end);
            let channel = &mut self.channels[self.current];
            let queue = match side {
                Side::Up => &channel.waiting,
                Side::Down => &channel.buffered,
            };
            let bytes = queue.front().map_or(0, |first| first.packet.wire_len());
            self.weights.moved(self.current, bytes as u64);
            moved = match side {
                Side::Up => channel
                    .waiting
                    .pop()
                    .map(|packet| Moved::Up(channel.up, packet)),
                Side::Down => channel.buffered.pop().map(|packet| {
                    channel.arrived_bytes += packet.wire_len() as u64;
                    channel.arrived.push_back((end, packet));
                    Moved::Down(channel.down)
                }),
            };
            if channel.buffered.len() == 0 {
                channel.announced = None;
            }
        }
        self.plan(now);
        moved
    }

    /// Determines the card's next action and the time of its next event.
    fn plan(&mut self, now: Duration) {
        if let Some((_, end)) = self.sending {
            self.next = Some(end);
            return;
        }
        let idle_until = match self.radio.schedule.clone() {
            Schedule::Fixed(turns) => self.follow_turns(&turns, now),
            Schedule::OnDemand { turn, .. } => self.serve_next(turn, now),
            Schedule::Weighted { .. } => self.follow_weights(now),
        };
        let channel = &self.channels[self.current];
        self.next = if !channel.has_work() {
            idle_until
        } else if self.ready_at > now {
            Some(self.ready_at)
        } else {
            let side = match (channel.waiting.front(), channel.buffered.front()) {
                (Some(_), Some(_)) if self.last.0 == Side::Up => Side::Down,
                (None, _) => Side::Down,
                _ => Side::Up,
            };
            let queue = match side {
                Side::Up => &channel.waiting,
                Side::Down => &channel.buffered,
            };
            let bits = queue.front().map_or(0, |first| first.packet.wire_len() * 8);
            let nanos = (bits as u128 * 1_000_000_000).div_ceil(u128::from(self.radio.rate));
            let end = now + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.sending = Some((side, end));
            Some(end)
        };
    }

    /// Fixed turns: moves the card to the scheduled channel; returns when it can work on another
    /// one.
    fn follow_turns(&mut self, turns: &[Duration], now: Duration) -> Option<Duration> {
        let cycle: u128 = turns.iter().map(Duration::as_nanos).sum();
        let within = (now.as_nanos() % cycle) as u64;
        let mut start = now - Duration::from_nanos(within);
        let mut hotspot = 0;
        while now - start >= turns[hotspot] {
            start += turns[hotspot];
            hotspot += 1;
        }
        if turns.len() > 1 && (hotspot, start) != (self.current, self.turn_began) {
            self.ready_at = start.max(self.last.1) + self.radio.switching;
            self.current = hotspot;
            self.turn_began = start;
        }
        for step in 0..turns.len() {
            start += turns[(hotspot + step) % turns.len()];
            let next = (hotspot + step + 1) % turns.len();
            if self.channels[next].has_work() {
                return Some(start);
            }
        }
        None
    }

    /// Weighted turns: moves the card to the hotspot in turn; returns when it can work on another
    /// one.
    fn follow_weights(&mut self, now: Duration) -> Option<Duration> {
        let count = self.channels.len();
        while let Some((hotspot, start)) = self.weights.next_turn(now) {
            self.ready_at = start.max(self.last.1) + self.radio.switching;
            self.current = hotspot;
            self.turn_began = start;
        }
        let mut start = self.weights.ends();
        for step in 1..=count {
            let next = (self.current + step) % count;
            if self.channels[next].has_work() {
                return Some(start);
            }
            start += self.weights.length(next);
        }
        None
    }

    /// On demand: moves the card to the next hotspot with packets; without any, returns when it
    /// learns of some.
    fn serve_next(&mut self, turn: Duration, now: Duration) -> Option<Duration> {
        let count = self.channels.len();
        let over = now >= self.turn_began.saturating_add(turn);
        if over || !self.channels[self.current].has_work() {
            let next = (1..count)
                .map(|step| (self.current + step) % count)
                .find(|other| self.channels[*other].has_known_packets(now));
            if let Some(next) = next {
                self.current = next;
                self.ready_at = now + self.radio.switching;
                self.turn_began = self.ready_at;
            }
        }
        self.channels
            .iter()
            .filter_map(|channel| channel.announced.filter(|at| *at > now))
            .min()
    }
}
