//! Packets sent on a path that the peer has not reported.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::Instant;
use crate::datagram::control::Pending;
use crate::datagram::flow::table::FlowRef;
use crate::datagram::wire::{Half, Report};

/// Most packets that are remembered: a gigabit per second of large packets for half a second.
const MAX: usize = 1 << 16;

/// Most bytes of datagrams that are kept for a second attempt: 1 Gbit/s for 90 ms.
const MAX_YOUNG: usize = 12 << 20;

/// Bookkeeping of such a datagram, which counts as memory.
const YOUNG_OVERHEAD: usize = 128;

/// A packet is lost when one with a number this much higher has arrived (RFC 9002, section 6.1.1).
const REORDER_PACKETS: u64 = 3;

/// The same as a time between the two; a path does not reorder packets that are so far apart.
const REORDER_TIME: Duration = Duration::from_millis(5);

/// Something in a packet that matters when the packet is reported or lost.
#[derive(Debug)]
pub(crate) enum Item {
    /// A datagram with the properties of its flow: once reported, the peer knows the flow.
    Open(FlowRef),
    /// A datagram that may be sent again over another path.
    Datagram(Young),
    /// A record that must arrive.
    Control(Pending),
}

impl Item {
    /// Memory of a datagram; 0 for the other items, which are small.
    fn bytes(&self) -> usize {
        match self {
            Self::Datagram(young) => young.payload.len() + YOUNG_OVERHEAD,
            Self::Open(_) | Self::Control(_) => 0,
        }
    }
}

/// A datagram that is worth a second attempt while it is young.
#[derive(Clone, Debug)]
pub(crate) struct Young {
    pub(crate) flow: FlowRef,
    pub(crate) sequence: u64,
    pub(crate) half: Option<Half>,
    pub(crate) payload: Bytes,
    /// When the program sent it.
    pub(crate) at: Instant,
    pub(crate) expires: Instant,
    /// The receiver waits for it, so that it is repaired even if its path is well.
    pub(crate) is_repaired: bool,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    at: Instant,
    len: u32,
    has_arrived: bool,
    /// The peer must report it.
    elicits: bool,
}

/// The news in a report.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Newly reported packets, and their bytes.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Packets that turned out to be lost.
    pub(crate) lost: u64,
    /// When the highest packet was sent, if it is newly reported; and whether it asked for a
    /// report.
    pub(crate) largest: Option<(Instant, bool)>,
    /// Items that are settled, and whether they arrived.
    pub(crate) items: Vec<(Item, bool)>,
}

/// A report of a packet that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeverSent;

/// The packets of one path, from the oldest unreported one.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    packets: VecDeque<Packet>,
    /// Number of the first packet.
    base: u64,
    /// Items by packet number, ascending.
    items: VecDeque<(u64, Item)>,
    /// Bytes of the datagrams among them.
    young_bytes: usize,
    /// Highest number reported, and when that packet was sent.
    largest: Option<(u64, Instant)>,
}

impl Sent {
    /// The number of the next packet.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.packets.len() as u64
    }

    /// An item of the next packet. Datagrams beyond the limit get no second attempt.
    pub(crate) fn attach(&mut self, item: Item, now: Instant) {
        let bytes = item.bytes();
        while self.young_bytes + bytes > MAX_YOUNG
            && let Some((_, Item::Datagram(young))) = self.items.front()
            && young.expires <= now
        {
            self.pop_item(u64::MAX);
        }
        if bytes == 0 || self.young_bytes + bytes <= MAX_YOUNG {
            self.young_bytes += bytes;
            self.items.push_back((self.next(), item));
        }
    }

    /// The next packet has left.
    pub(crate) fn push(&mut self, len: usize, elicits: bool, now: Instant) {
        self.packets.push_back(Packet {
            at: now,
            len: len as u32,
            has_arrived: false,
            elicits,
        });
        if self.packets.len() > MAX {
            self.pop();
            while self.pop_item(self.base - 1).is_some() {}
        }
        self.skip_silent();
    }

    /// Evaluates a report.
    pub(crate) fn on_report(&mut self, report: &Report, news: &mut News) -> Result<(), NeverSent> {
        let largest = report.largest();
        if largest >= self.next() {
            return Err(NeverSent);
        }
        if let Some(packet) = self.packet(largest)
            && !packet.has_arrived
        {
            news.largest = Some((packet.at, packet.elicits));
            if self.largest.is_none_or(|(known, _)| known < largest) {
                self.largest = Some((largest, packet.at));
            }
        }
        for range in report.ranges.iter().rev() {
            let start = (*range.start()).max(self.base);
            for number in start..=*range.end() {
                let Some(packet) = self.packet_mut(number) else {
                    break;
                };
                if !packet.has_arrived {
                    packet.has_arrived = true;
                    news.packets += 1;
                    news.bytes += u64::from(packet.len);
                }
            }
        }
        self.settle(news);
        Ok(())
    }

    /// When the oldest unreported packet that asked for a report was sent.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.packets.front().map(|packet| packet.at)
    }

    /// Takes the items that satisfy `wanted` out of unsettled packets.
    pub(crate) fn take_items(&mut self, mut wanted: impl FnMut(&Item) -> bool) -> Vec<Item> {
        let mut taken = Vec::new();
        let mut left = VecDeque::with_capacity(self.items.len());
        for (number, item) in self.items.drain(..) {
            match wanted(&item) {
                true => {
                    self.young_bytes -= item.bytes();
                    taken.push(item);
                }
                false => left.push_back((number, item)),
            }
        }
        self.items = left;
        taken
    }

    /// Drops packets from the front that have arrived, are lost, or need no report.
    fn settle(&mut self, news: &mut News) {
        let Some((largest, sent_at)) = self.largest else {
            return;
        };
        while let Some(packet) = self.packets.front() {
            let is_lost = largest >= self.base + REORDER_PACKETS
                || largest > self.base && sent_at >= packet.at + REORDER_TIME;
            let has_arrived = packet.has_arrived;
            if packet.elicits && !has_arrived && !is_lost {
                break;
            }
            news.lost += u64::from(packet.elicits && !has_arrived);
            let number = self.base;
            self.pop();
            while let Some(item) = self.pop_item(number) {
                news.items.push((item, has_arrived));
            }
        }
    }

    /// A packet that asks for no report does not count as unreported.
    fn skip_silent(&mut self) {
        while self.packets.front().is_some_and(|packet| !packet.elicits) {
            self.pop();
        }
    }

    /// Takes the first item, if its packet has this number or a lower one.
    fn pop_item(&mut self, number: u64) -> Option<Item> {
        let (of, _) = self.items.front()?;
        if *of > number {
            return None;
        }
        let (_, item) = self.items.pop_front()?;
        self.young_bytes -= item.bytes();
        Some(item)
    }

    fn pop(&mut self) {
        self.packets.pop_front();
        self.base += 1;
    }

    fn packet(&self, number: u64) -> Option<Packet> {
        let index = number.checked_sub(self.base)?;
        self.packets.get(index as usize).copied()
    }

    fn packet_mut(&mut self, number: u64) -> Option<&mut Packet> {
        let index = number.checked_sub(self.base)?;
        self.packets.get_mut(index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::flow::table::FlowTable;
    use crate::datagram::{DatagramConfig, FlowConfig, flow::Flow};

    const MS: Duration = Duration::from_millis(1);

    fn report(ranges: &[(u64, u64)]) -> Report {
        Report {
            path: 0,
            received_at: 0,
            ranges: ranges.iter().map(|&(start, end)| start..=end).collect(),
        }
    }

    fn item(sequence: u64) -> Item {
        let config = DatagramConfig::default();
        let flow = Flow::new(0, FlowConfig::default(), &config, Instant::ZERO);
        Item::Datagram(Young {
            flow: FlowTable::default().insert(flow, Instant::ZERO),
            sequence,
            half: None,
            payload: Bytes::new(),
            at: Instant::ZERO,
            expires: Instant::ZERO,
            is_repaired: false,
        })
    }

    fn sent(packets: u32) -> Sent {
        let mut sent = Sent::default();
        for ms in 0..packets {
            sent.attach(item(u64::from(ms)), ms * MS);
            sent.push(100, true, ms * MS);
        }
        sent
    }

    fn on_report(sent: &mut Sent, ranges: &[(u64, u64)]) -> (u64, u64, Vec<(u64, bool)>) {
        let mut news = News::default();
        sent.on_report(&report(ranges), &mut news).unwrap();
        let items = news.items.iter().map(|(item, arrived)| match item {
            Item::Datagram(young) => (young.sequence, *arrived),
            _ => unreachable!("only datagrams were attached"),
        });
        (news.packets, news.lost, items.collect())
    }

    #[test]
    fn a_packet_is_lost_when_later_ones_have_arrived() {
        let mut sent = sent(10);
        assert_eq!(
            on_report(&mut sent, &[(0, 1)]),
            (2, 0, vec![(0, true), (1, true)])
        );
        assert_eq!(on_report(&mut sent, &[(3, 4)]), (2, 0, vec![]));
        assert_eq!(sent.oldest(), Some(2 * MS));
        let settled = vec![(2, false), (3, true), (4, true), (5, true)];
        assert_eq!(on_report(&mut sent, &[(3, 5)]), (1, 1, settled));
        assert_eq!(sent.oldest(), Some(6 * MS));
        assert_eq!(on_report(&mut sent, &[(2, 2)]), (0, 0, vec![]), "too late");
    }

    #[test]
    fn time_replaces_the_third_packet() {
        let mut sent = Sent::default();
        sent.push(100, true, Duration::ZERO);
        sent.push(100, true, 20 * MS);
        assert_eq!(on_report(&mut sent, &[(1, 1)]), (1, 1, vec![]));
        assert_eq!(sent.oldest(), None);
    }

    #[test]
    fn a_loss_in_a_burst_is_settled_without_later_packets() {
        let mut sent = Sent::default();
        for _ in 0..4 {
            sent.push(100, true, Duration::ZERO);
        }
        assert_eq!(on_report(&mut sent, &[(1, 3)]), (3, 1, vec![]));
        assert_eq!(sent.oldest(), None, "nothing becomes overdue");
    }

    #[test]
    fn packets_without_a_request_are_never_unreported_or_lost() {
        let mut sent = Sent::default();
        for index in 0..6u32 {
            sent.push(100, index == 2, index * MS);
        }
        assert_eq!(sent.oldest(), Some(2 * MS));
        assert_eq!(on_report(&mut sent, &[(2, 2)]), (1, 0, vec![]));
        assert_eq!((sent.oldest(), sent.next()), (None, 6));
    }

    #[test]
    fn a_report_of_the_future_is_an_error_and_the_memory_is_bounded() {
        let mut sent = sent(3);
        let mut news = News::default();
        assert_eq!(
            sent.on_report(&report(&[(0, 3)]), &mut news),
            Err(NeverSent)
        );
        for _ in 0..2 * MAX {
            sent.push(1, true, Instant::ZERO);
        }
        assert_eq!(sent.packets.len(), MAX);
        assert!(sent.items.is_empty() && sent.young_bytes == 0);
        for _ in 0..2 * MAX_YOUNG / YOUNG_OVERHEAD {
            sent.attach(item(0), Instant::ZERO);
        }
        assert_eq!(sent.items.len(), MAX_YOUNG / YOUNG_OVERHEAD);
    }

    #[test]
    fn items_can_be_taken_back() {
        let mut sent = sent(3);
        let is_first = |item: &Item| matches!(item, Item::Datagram(Young { sequence: 0, .. }));
        assert_eq!(sent.take_items(is_first).len(), 1);
        let left = vec![(1, true), (2, true)];
        assert_eq!(on_report(&mut sent, &[(0, 2)]), (3, 0, left));
    }
}
