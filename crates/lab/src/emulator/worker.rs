//! The emulator's thread: reads packets at the ends of all links, runs the model, and writes the
//! results.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use sumlink_link::{Delivery, LinkId, Network};
use sumlink_scenario::timeline::{Action, Timeline};

use super::carrier::Carriers;
use super::exit::{Exit, Port, is_gone};
use super::meter::{Meter, use_realtime_priority};
use super::middlebox::Verdict;
use super::pace::Pace;
use super::segment::{OFFLOAD_HEADER, Segment};
use super::{LinkReport, Message};
use crate::config::{Direction, InterfaceState, LinkChange, Setting};

/// Packets read from one interface before the next interface's turn.
const BATCH: usize = 32;
/// Longest idle wait; only bounds the cost of a lost wake-up.
const IDLE: Duration = Duration::from_secs(1);
/// Maximum length of a packet of a TUN device.
const MAX_PACKET: usize = 65_536;

pub(super) struct Worker {
    /// The model of every direction of every link.
    pub(super) network: Network<Segment>,
    /// The interfaces, and the handling of packets that leave the model.
    pub(super) exit: Exit,
    /// Scheduled changes.
    pub(super) timeline: Timeline,
    pub(super) carriers: Carriers,
    pub(super) inbox: Receiver<Message>,
    pub(super) woken: UnixStream,
    /// Time zero of the model.
    pub(super) epoch: Instant,
}

impl Worker {
    pub(super) fn run(mut self) {
        // Otherwise the kernel may round up the waits of ordinary threads by 50 us.
        let _ = prctl::set_timerslack(1);
        use_realtime_priority();
        let mut buffer = vec![0; OFFLOAD_HEADER + MAX_PACKET];
        // The largest number of packets read from one end in the last round.
        let mut taken = 0;
        let mut pace = Pace::new(self.exit.offload);
        loop {
            let delivered = self.deliver();
            let pause = pace.after(delivered);
            if taken < BATCH && (taken > 0 || delivered > 0) {
                thread::sleep(pause);
            }
            let (ready, woken) = self.wait();
            taken = 0;
            for (port, directions) in ready.into_iter().enumerate() {
                for direction in Direction::BOTH {
                    if directions[direction.index()] {
                        taken = taken.max(self.take_in(port, direction, &mut buffer));
                    }
                }
            }
            if woken && self.handle_messages() {
                return;
            }
        }
    }

    /// Hands over all packets that are due; returns their number.
    fn deliver(&mut self) -> u64 {
        let before = self.exit.meter.packets();
        loop {
            let now = self.epoch.elapsed();
            self.apply_planned(now);
            let Some((id, delivery)) = self.network.poll(now) else {
                break;
            };
            self.hand_over(id, delivery, now);
        }
        self.exit.flush();
        self.note_lost_ends();
        self.exit.meter.packets() - before
    }

    /// Makes the scheduled changes up to `now`, each at its exact time. Packets that were due
    /// before a change leave first, so that a late emulator does not alter the packets that a
    /// change affects.
    fn apply_planned(&mut self, now: Duration) {
        while let Some((at, action)) = self.timeline.pop(now) {
            while let Some((id, delivery)) = self.network.poll(at) {
                self.hand_over(id, delivery, now);
            }
            match action {
                Action::Link(link, change) => self.apply_to_link(at, link, change),
                Action::Interferer(id, interferer) => {
                    // Validated when the network was built.
                    let _ = self.network.set_interferer(at, id, interferer);
                }
            }
        }
    }

    /// Handles a packet that leaves the model.
    fn hand_over(&mut self, id: LinkId, delivery: Delivery<Segment>, now: Duration) {
        match self.exit.judge(id, &delivery.packet) {
            (Verdict::Pass, _) => self.exit.hand_over(id, delivery, now),
            (Verdict::Drop, _) => {}
            (Verdict::Answer(reset), up) => {
                self.network
                    .enqueue(now, up, Segment::whole(Arc::new(reset)));
            }
        }
    }

    fn apply_to_link(&mut self, at: Duration, link: usize, change: LinkChange) {
        let port = &self.exit.ports[link];
        match change.setting {
            Setting::State(state) => {
                // The interfaces exist again when the link is brought up.
                let Some(ends) = &port.ends else {
                    return;
                };
                self.carriers.set(ends, state != InterfaceState::Down);
                let without = |state| state == InterfaceState::Unaddressed;
                match (without(port.state), without(state)) {
                    (false, true) => self.carriers.take_addresses(link),
                    (true, false) => self.carriers.give_addresses_back(link),
                    _ => {}
                }
            }
            Setting::NewAddress if port.state != InterfaceState::Removed => {
                let has_any = port.state != InterfaceState::Unaddressed;
                self.carriers.renew_addresses(link, has_any);
            }
            _ => {}
        }
        self.apply(at, link, change);
    }

    fn apply(&mut self, at: Duration, link: usize, change: LinkChange) {
        let port = &mut self.exit.ports[link];
        port.note(&change);
        for direction in change.directions() {
            let id = port.ids[direction.index()];
            if let Some(change) = change.setting.to_change(self.timeline.zero()) {
                self.network.set(at, id, change);
            }
        }
    }

    /// Reads the packets that the kernel sent to the end at which this direction starts; returns
    /// their number, at most [`BATCH`].
    fn take_in(&mut self, port: usize, direction: Direction, buffer: &mut [u8]) -> usize {
        let id = self.exit.ports[port].ids[direction.index()];
        for taken in 0..BATCH {
            let Some(ends) = &self.exit.ports[port].ends else {
                return taken;
            };
            match (&mut ends[direction.index()].file()).read(buffer) {
                Ok(len) => {
                    let data = &buffer[..len];
                    if direction == Direction::Down || self.passes(port, data) {
                        self.enqueue(id, data);
                    }
                }
                Err(error) => {
                    if is_gone(&error) {
                        self.exit.ports[port].ends = None;
                        self.note_lost_ends();
                    }
                    return taken;
                }
            }
        }
        BATCH
    }

    /// Whether the middlebox passes a packet from the client; answers are sent at once.
    fn passes(&mut self, port: usize, data: &[u8]) -> bool {
        let port = &mut self.exit.ports[port];
        match port.middlebox.judge(data, Direction::Up) {
            Verdict::Pass => return true,
            Verdict::Drop => {}
            Verdict::Answer(reset) => {
                if let Some([client, _]) = &port.ends {
                    // If the interface does not accept the reset, it is lost.
                    let _ = client.file().write(&reset);
                }
            }
        }
        false
    }

    fn enqueue(&mut self, id: LinkId, data: &[u8]) {
        let now = self.epoch.elapsed();
        self.apply_planned(now);
        let data = self.exit.buffers.filled(data);
        if self.exit.offload {
            for segment in Segment::cut(data) {
                self.network.enqueue(now, id, segment);
            }
        } else {
            self.network.enqueue(now, id, Segment::whole(data));
        }
    }

    /// Waits for a packet, a due packet, a scheduled change, or a message. Returns the readable
    /// ends and whether messages are waiting.
    fn wait(&self) -> (Vec<[bool; 2]>, bool) {
        let deadlines = [self.network.next_deadline(), self.timeline.next()];
        let now = self.epoch.elapsed();
        let timeout = deadlines
            .into_iter()
            .flatten()
            .min()
            .map_or(IDLE, |deadline| deadline.saturating_sub(now).min(IDLE));
        let mut fds = vec![PollFd::new(self.woken.as_fd(), PollFlags::POLLIN)];
        let ports = &self.exit.ports;
        for ends in ports.iter().filter_map(|port| port.ends.as_ref()) {
            fds.extend(
                ends.iter()
                    .map(|e| PollFd::new(e.file().as_fd(), PollFlags::POLLIN)),
            );
        }
        // EINTR and ENOMEM: the next round tries again.
        let polled = ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None).unwrap_or(0);
        let mut events = fds.iter().map(|fd| polled > 0 && fd.any().unwrap_or(false));
        let woken = events.next().unwrap_or(false);
        let mut next = || events.next().unwrap_or(false);
        let ready = ports
            .iter()
            .map(|port| {
                if port.ends.is_some() {
                    [next(), next()]
                } else {
                    [false; 2]
                }
            })
            .collect();
        (ready, woken)
    }

    /// Handles interfaces deleted from outside: their links are no longer up.
    fn note_lost_ends(&mut self) {
        let now = self.epoch.elapsed();
        for link in 0..self.exit.ports.len() {
            let port = &self.exit.ports[link];
            if port.ends.is_none() && port.state != InterfaceState::Removed {
                self.apply(now, link, LinkChange::state(InterfaceState::Removed));
            }
        }
    }

    /// Returns whether to stop.
    fn handle_messages(&mut self) -> bool {
        let mut sink = [0; 64];
        while matches!((&self.woken).read(&mut sink), Ok(n) if n > 0) {}
        while let Ok(message) = self.inbox.try_recv() {
            let now = self.epoch.elapsed();
            self.apply_planned(now);
            match message {
                Message::Change(link, change) => self.apply(now, link, change),
                Message::Replace(link, ends) => {
                    let state = if ends.is_some() {
                        InterfaceState::Up
                    } else {
                        InterfaceState::Removed
                    };
                    self.exit.ports[link].ends = ends;
                    self.apply(now, link, LinkChange::state(state));
                }
                Message::Begin => self.begin(now),
                Message::ResetHealth => self.exit.meter = Meter::new(),
                Message::Report(answer) => {
                    let links = self.exit.ports.iter().map(|port| self.report(port));
                    let _ = answer.send((links.collect(), self.exit.meter.read()));
                }
                Message::Series(answer) => {
                    let _ = answer.send(self.exit.series.read(now));
                }
                Message::Stop => return true,
            }
        }
        false
    }

    /// Sets time zero for all settings that have one. Jitter and losses other than scripts have
    /// none, and links that were changed in the meantime keep their settings.
    fn begin(&mut self, now: Duration) {
        self.timeline.begin(now);
        self.exit.series.begin(now);
        for link in 0..self.exit.ports.len() {
            for direction in Direction::BOTH {
                let restarts = self.exit.ports[link].clocked[direction.index()].clone();
                for setting in restarts {
                    let direction = Some(direction);
                    self.apply(now, link, LinkChange { direction, setting });
                }
            }
        }
    }

    fn report(&self, port: &Port) -> LinkReport {
        LinkReport {
            state: port.state,
            counters: port.ids.map(|id| self.network.counters(id)),
            rates: port.ids.map(|id| self.network.rate(id)),
        }
    }
}
