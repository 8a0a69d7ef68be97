//! The emulator's thread: reads the ends of all links, runs the model, writes what comes out.

use std::io::{self, Read, Write};
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
use super::exit::{Exit, Port};
use super::meter::{Meter, become_punctual};
use super::middlebox::Verdict;
use super::pace::Pace;
use super::segment::{OFFLOAD_HEADER, Segment};
use super::{LinkReport, Message};
use crate::config::{Direction, InterfaceState, LinkChange, Setting};

/// Packets read from one interface before the other ones get their turn.
const BATCH: usize = 32;
/// Longest wait without anything to do; only bounds what a lost wake-up could cost.
const IDLE: Duration = Duration::from_secs(1);
/// A packet of a TUN device is never longer.
const MAX_PACKET: usize = 65_536;

pub(super) struct Worker {
    /// The model of every direction of every link.
    pub(super) network: Network<Segment>,
    /// The interfaces, and what becomes of packets that come out of the model.
    pub(super) exit: Exit,
    /// Changes that were planned before.
    pub(super) timeline: Timeline,
    pub(super) carriers: Carriers,
    pub(super) inbox: Receiver<Message>,
    pub(super) woken: UnixStream,
    /// Time zero of the model.
    pub(super) epoch: Instant,
}

impl Worker {
    pub(super) fn run(mut self) {
        // The kernel may otherwise round waits of ordinary threads up by 50 us.
        let _ = prctl::set_timerslack(1);
        become_punctual();
        let mut buffer = vec![0; OFFLOAD_HEADER + MAX_PACKET];
        // The most packets that one end had in the last round.
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

    /// Hands over everything that is due; returns how many packets that were.
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

    /// Carries out the changes that were planned up to `now`, each at its exact time. What was due before
    /// leaves first: being late must not change what a change finds on the way.
    fn apply_planned(&mut self, now: Duration) {
        while let Some((at, action)) = self.timeline.pop(now) {
            while let Some((id, delivery)) = self.network.poll(at) {
                self.hand_over(id, delivery, now);
            }
            match action {
                Action::Link(link, change) => self.apply_to_link(at, link, change),
                Action::Interferer(id, interferer) => {
                    // It was tried when the network was built.
                    let _ = self.network.set_interferer(at, id, interferer);
                }
            }
        }
    }

    /// A packet has come out of the model.
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
                // Whoever deleted the interfaces also brings them back.
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

    /// Takes in what the kernel has sent to the end at which packets of this direction start; returns
    /// how many packets that were, at most [`BATCH`].
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

    /// Whether the middlebox lets a packet of the client's pass; it answers at once where it answers.
    fn passes(&mut self, port: usize, data: &[u8]) -> bool {
        let port = &mut self.exit.ports[port];
        match port.middlebox.judge(data, Direction::Up) {
            Verdict::Pass => return true,
            Verdict::Drop => {}
            Verdict::Answer(reset) => {
                if let Some([client, _]) = &port.ends {
                    // An interface that takes nothing loses the packet.
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

    /// Waits until a packet arrives, one is due, a change is planned, or a message comes. Says which ends
    /// are readable, and whether there are messages.
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
        // EINTR and ENOMEM are answered by trying again in the next round.
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

    /// Somebody deleted an interface: the link is not up any more.
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

    /// Time zero of everything that has one. Jitter and losses other than scripts have none, and links
    /// that were changed meanwhile stay as they are.
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

/// EBADFD: the descriptor is not attached to an interface any more.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}
