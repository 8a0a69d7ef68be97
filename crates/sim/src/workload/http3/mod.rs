//! A bulk transfer over HTTP/3: the packets of a QUIC connection between the programs, as quinn
//! sends them, inside datagrams.
//!
//! A packet has data of one stream. The data of lost packets is sent again in others, and the
//! receiver's program reads in order. Flow control never limits the transfer.

mod cubic;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use sumlink_engine::{Class, RangeSet};
use sumlink_link::Random;
use sumlink_scenario::results::FlowRecord;

use super::{Channel, FlowBearer, FlowProgram};
use crate::clock::{MILLISECOND, Nanos};
use crate::net::{Alarm, Net};
use crate::quic::{AckRules, Pacer, Receiver, Sender};
use crate::tcp::Side;
use cubic::ProgramCubic;
use wire::{DATA, MTU, Message};

/// When quinn acknowledges by default.
const ACKS: AckRules = AckRules {
    every: 2,
    delay: Duration::from_millis(25),
    reordering: 1,
};

/// Pause before a question is repeated.
const ASK_AGAIN: Nanos = 300 * MILLISECOND;

/// The end that sends the content.
#[derive(Debug)]
struct Source {
    sender: Sender<ProgramCubic>,
    pacer: Pacer,
    /// The part of the content in each packet in flight.
    parts: BTreeMap<u64, u64>,
    next: u64,
    /// Parts of lost packets.
    again: VecDeque<u64>,
}

/// The end that receives it.
#[derive(Debug)]
struct Sink {
    receiver: Receiver,
    arrived: RangeSet,
    /// Parts that the program has read.
    read: u64,
    record: FlowRecord,
}

/// A transfer in one direction.
#[derive(Debug)]
pub(super) struct Http3 {
    link: Option<usize>,
    down: bool,
    class: Option<Class>,
    channel: Option<Channel>,
    /// The client's present question, until it is answered.
    asks: Option<Message>,
    ask_at: Nanos,
    source: Option<Source>,
    sink: Sink,
    /// The earliest alarm that is set.
    alarm: Nanos,
}

impl Http3 {
    /// A transfer over a link, if given.
    pub(super) fn new(
        link: Option<usize>,
        down: bool,
        class: Option<Class>,
        record: FlowRecord,
    ) -> Self {
        Self {
            link,
            down,
            class,
            channel: None,
            asks: Some(Message::Hello),
            ask_at: 0,
            source: None,
            sink: Sink {
                receiver: Receiver::new(ACKS),
                arrived: RangeSet::default(),
                read: 0,
                record,
            },
            alarm: 0,
        }
    }

    /// The side that sends the content.
    fn from(&self) -> Side {
        match self.down {
            true => Side::Server,
            false => Side::Client,
        }
    }

    /// Sends everything that may leave now, and sets the next alarm.
    fn send(&mut self, number: usize, net: &mut Net, bearer: &mut dyn FlowBearer) {
        let Some(channel) = self.channel else {
            return;
        };
        let (now, from) = (net.now(), self.from());
        if let Some(question) = self.asks.clone().filter(|_| self.ask_at <= now) {
            self.ask_at = now + ASK_AGAIN;
            bearer.send(net, channel, Side::Client, question.write());
        }
        let mut paced = None;
        while let Some(source) = &mut self.source
            && source.may_send(&mut paced, now)
        {
            let message = source.next(now);
            bearer.send(net, channel, from, message.write());
        }
        let receiver = &mut self.sink.receiver;
        if receiver.due().is_some_and(|due| due <= now)
            && let Some(ack) = receiver.ack(now)
        {
            receiver.acknowledged();
            bearer.send(net, channel, from.peer(), Message::Ack(ack).write());
        }
        let deadline = self.source.as_ref().and_then(|one| one.sender.deadline());
        let asks_at = self.asks.as_ref().map(|_| self.ask_at);
        let all = [deadline, paced, self.sink.receiver.due(), asks_at];
        if let Some(next) = all.into_iter().flatten().min()
            && (self.alarm <= now || next < self.alarm)
        {
            self.alarm = next.max(now + 1);
            net.wake(self.alarm, Alarm::Talk(number));
        }
    }
}

impl FlowProgram for Http3 {
    fn begin(&mut self, number: usize, net: &mut Net, random: &mut Random) {
        self.ask_at = net.now() + random.next_u64() % MILLISECOND;
        self.alarm = self.ask_at;
        net.wake(self.ask_at, Alarm::Talk(number));
    }

    fn channel(&self) -> Option<Channel> {
        self.channel
    }

    fn into_records(self: Box<Self>) -> Vec<FlowRecord> {
        vec![self.sink.record]
    }

    fn on_alarm(&mut self, number: usize, net: &mut Net, bearer: &mut dyn FlowBearer) {
        if self.channel.is_none() {
            self.channel = Some(bearer.open_flow(net, self.link, self.class));
        }
        if let Some(source) = &mut self.source {
            let lost = source.sender.on_time(net.now());
            source.repeat(&lost);
        }
        self.send(number, net, bearer);
    }

    fn received(
        &mut self,
        (number, side): (usize, Side),
        payload: &Bytes,
        interval: Nanos,
        net: &mut Net,
        bearer: &mut dyn FlowBearer,
    ) {
        let (Some(message), Some(channel)) = (Message::read(payload), self.channel) else {
            return;
        };
        match message {
            Message::Hello => bearer.send(net, channel, side, Message::Welcome.write()),
            Message::Welcome if self.asks == Some(Message::Hello) => {
                self.asks = self.down.then_some(Message::Request);
                self.ask_at = net.now();
                if !self.down {
                    self.source.get_or_insert_with(Source::new);
                }
            }
            Message::Welcome => {}
            Message::Request => {
                self.source.get_or_insert_with(Source::new);
            }
            Message::Data { number, part } => {
                self.asks = None;
                self.sink.receive(number, part, interval, net);
            }
            Message::Ack(ack) => {
                if let Some(source) = &mut self.source {
                    let lost = source.sender.acknowledge(&ack, true, net.now());
                    source.repeat(&lost);
                    source.forget(&ack.ranges);
                }
            }
        }
        self.send(number, net, bearer);
    }
}

impl Source {
    fn new() -> Self {
        Self {
            sender: Sender::new(ProgramCubic::new(MTU), MTU, ACKS.delay),
            pacer: Pacer::new(),
            parts: BTreeMap::new(),
            next: 0,
            again: VecDeque::new(),
        }
    }

    /// Whether a packet may leave now; if pacing forbids it, `paced` is when it may.
    fn may_send(&mut self, paced: &mut Option<Nanos>, now: Nanos) -> bool {
        let sender = &mut self.sender;
        if sender.probes > 0 {
            sender.probes -= 1;
            return true;
        }
        if !sender.has_window() {
            return false;
        }
        let path = (sender.window(), sender.srtt());
        let mtu = u64::from(MTU);
        *paced = self.pacer.due(mtu, path, mtu, now);
        paced.is_none()
    }

    /// The next packet, which leaves now.
    fn next(&mut self, now: Nanos) -> Message {
        let part = self.again.pop_front().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let bytes = u64::from(MTU);
        let number = self.sender.send(bytes, true, now);
        self.pacer.sent(bytes);
        self.parts.insert(number, part);
        Message::Data { number, part }
    }

    /// Sends the content of lost packets again.
    fn repeat(&mut self, lost: &[u64]) {
        let parts = lost.iter().filter_map(|number| self.parts.remove(number));
        self.again.extend(parts);
    }

    /// Packets have arrived.
    fn forget(&mut self, arrived: &[std::ops::Range<u64>]) {
        for range in arrived {
            let numbers = self.parts.range(range.clone());
            let numbers: Vec<u64> = numbers.map(|(number, _)| *number).collect();
            for number in numbers {
                self.parts.remove(&number);
            }
        }
    }
}

impl Sink {
    fn receive(&mut self, number: u64, part: u64, interval: Nanos, net: &Net) {
        self.record.connected = true;
        self.receiver.arrive(number, true, false, net.now());
        self.arrived.insert(part..part + 1);
        let first = self.arrived.first().filter(|first| first.start == 0);
        let end = first.map_or(0, |first| first.end);
        let bytes = (end - self.read.min(end)) * DATA;
        self.read = self.read.max(end);
        if bytes > 0 {
            self.record.count(net.elapsed(), interval, bytes);
        }
    }
}
