//! The QUIC connections over the links.

use sumlink_scenario::config::Direction;

use super::{Event, Line, Net, News};
use crate::clock::{Nanos, duration};
use crate::edge::Cargo;
use crate::log::Kind;
use crate::quic::{Packet, Quic};
use crate::tcp::Side;

/// Both ends of a QUIC connection.
#[derive(Debug)]
pub(super) struct Ends {
    link: usize,
    ends: [Quic; 2],
    /// Time of each end's next scheduled event.
    planned: [Nanos; 2],
    /// A middlebox of the link has lost its state: connections do not migrate, so nothing arrives.
    is_lost: bool,
}

impl Net {
    /// Opens a QUIC connection over a link.
    pub(crate) fn open_line(&mut self, link: usize) -> Line {
        let line = self.lines.len();
        self.lines.push(Ends {
            link,
            ends: Side::BOTH.map(|side| Quic::new(line as u32, side, self.now)),
            planned: [Nanos::MAX; 2],
            is_lost: false,
        });
        self.flush_line(line, Side::Client);
        line
    }

    /// A firewall drops the packets of QUIC connections on a link from now on.
    pub(crate) fn block_udp(&mut self, link: usize) {
        self.blocked.insert(link);
    }

    /// An end of a QUIC connection. After a change, [`Net::flush_line`] sends its packets.
    pub(crate) fn line(&mut self, line: Line, side: Side) -> &mut Quic {
        &mut self.lines[line].ends[side.index()]
    }

    /// Sends the pending packets of an end and schedules its next timer.
    pub(crate) fn flush_line(&mut self, line: Line, side: Side) {
        let ends = &mut self.lines[line];
        let direction = match side {
            Side::Client => Direction::Up,
            Side::Server => Direction::Down,
        };
        let id = self.ids[ends.link][direction.index()];
        let quic = &mut ends.ends[side.index()];
        while let Some(packet) = quic.poll_transmit(self.now) {
            if !self.blocked.contains(&ends.link) {
                let cargo = Cargo::Quic(Box::new(packet));
                self.network.enqueue(duration(self.now), id, cargo);
            }
        }
        let planned = &mut ends.planned[side.index()];
        if let Some(at) = quic.deadline().map(|at| at.max(self.now))
            && at < *planned
        {
            *planned = at;
            self.agenda.plan(at, Event::Quic(line, side));
        }
    }

    pub(super) fn arrive_on_line(&mut self, packet: &Packet) {
        let (line, side) = (packet.connection as usize, packet.to);
        let who = line as u64 * 2 + side.index() as u64;
        self.log.note(self.now, Kind::Quic, who, packet.mark());
        if self.lines[line].is_lost {
            return;
        }
        let now = self.now;
        self.line(line, side).receive(packet, now);
        self.flush_line(line, side);
        self.notify_line(line, side);
    }

    pub(super) fn fire_line(&mut self, line: Line, side: Side) {
        let ends = &mut self.lines[line];
        if ends.planned[side.index()] > self.now {
            return;
        }
        ends.planned[side.index()] = Nanos::MAX;
        let quic = &mut ends.ends[side.index()];
        if quic.deadline().is_some_and(|at| at <= self.now) {
            let who = line as u64 * 2 + side.index() as u64;
            self.log.note(self.now, Kind::QuicTimer, who, 0);
            quic.on_time(self.now);
        }
        self.flush_line(line, side);
        self.notify_line(line, side);
    }

    fn notify_line(&mut self, line: Line, side: Side) {
        let news = News::Line(line, side);
        if self.news.last() != Some(&news) {
            self.news.push(news);
        }
    }

    /// A middlebox of a link loses its state of the existing connections.
    pub(super) fn lose_lines(&mut self, link: usize) {
        let of_link = self.lines.iter_mut().filter(|ends| ends.link == link);
        of_link.for_each(|ends| ends.is_lost = true);
    }
}
