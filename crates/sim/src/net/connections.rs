//! The connections over the links, as programs and carriers use them.

use sumlink_scenario::config::Direction;

use sumlink_scenario::config::Fate;

use super::node::STEERED;
use super::{Connection, End, Event, Net};
use crate::clock::{Nanos, duration};
use crate::edge::Cargo;
use crate::tcp::{BuildError, Group, Packet, Side, Tcp, TcpConfig, TcpInfo};

impl Net {
    /// Opens a connection over a link, or over those that the node chooses ([`STEERED`]).
    pub(crate) fn connect(
        &mut self,
        link: usize,
        config: &TcpConfig,
    ) -> Result<Connection, BuildError> {
        let number = self.connections.len();
        let mut ends = [
            Tcp::new(number as u32, Side::Client, config)?,
            Tcp::new(number as u32, Side::Server, config)?,
        ];
        ends[Side::Client.index()].connect(self.now);
        self.connections.push(ends.map(|tcp| End {
            tcp,
            planned: Nanos::MAX,
        }));
        self.links.push(link);
        self.lost.push(None);
        self.flush(number, Side::Client);
        Ok(number)
    }

    /// The middlebox of a link loses its state of the existing connections.
    pub(super) fn lose(&mut self, link: usize, fate: Fate) {
        for (lost, of) in self.lost.iter_mut().zip(&self.links) {
            if *of == link {
                *lost = Some(fate);
            }
        }
        self.lose_lines(link);
    }

    /// The middlebox receives a packet of a connection that it has forgotten.
    pub(super) fn refuse(&mut self, connection: Connection, packet: &Packet) {
        if self.lost[connection] != Some(Fate::Reset) {
            return;
        }
        let Some(reset) = packet.reset() else {
            return;
        };
        match reset.to {
            // The middlebox is at the client's end.
            Side::Client => {
                let client = &mut self.connections[connection][Side::Client.index()];
                client.tcp.receive(&reset, self.now);
                self.notify(connection, Side::Client);
            }
            Side::Server => {
                let up = self.ids[self.links[connection]][Direction::Up.index()];
                let cargo = Cargo::Segment(reset);
                self.network.enqueue(duration(self.now), up, cargo);
            }
        }
    }

    /// Adds both senders of a connection to the groups of a bond, which are indexed by the sender's
    /// side.
    pub(crate) fn join(&mut self, connection: Connection, groups: &[Group; 2]) {
        for (end, group) in self.connections[connection].iter_mut().zip(groups) {
            end.tcp.join(group);
        }
    }

    /// The link of a connection.
    pub(crate) fn link_of(&self, connection: Connection) -> usize {
        self.links[connection]
    }

    /// An end of a connection.
    pub(crate) fn tcp(&self, connection: Connection, side: Side) -> &Tcp {
        &self.connections[connection][side.index()].tcp
    }

    /// TCP_INFO of an end.
    pub(crate) fn info(&self, connection: Connection, side: Side) -> TcpInfo {
        let info = self.tcp(connection, side).info(self.now);
        #[cfg(test)]
        let info = self.falsified(connection, info);
        info
    }

    /// Retransmissions of both ends, over all connections.
    pub(crate) fn retransmissions(&self) -> u64 {
        let ends = self.connections.iter().flatten();
        ends.map(|end| end.tcp.counters().retransmitted).sum()
    }

    /// A program writes `bytes`.
    pub(crate) fn write(&mut self, connection: Connection, side: Side, bytes: u64) {
        self.connections[connection][side.index()].tcp.write(bytes);
        self.flush(connection, side);
    }

    /// A program has read all bytes before `offset`.
    pub(crate) fn read(&mut self, connection: Connection, side: Side, offset: u64) {
        let now = self.now;
        self.connections[connection][side.index()]
            .tcp
            .read(offset, now);
        self.flush(connection, side);
    }

    /// Paces the packets of a program.
    pub(crate) fn pace(&mut self, connection: Connection, side: Side) {
        self.connections[connection][side.index()].tcp.pace();
    }

    /// Limits the rate of a program's socket, in bytes per second.
    pub(crate) fn limit(&mut self, connection: Connection, side: Side, rate: Option<u64>) {
        let end = &mut self.connections[connection][side.index()];
        end.tcp.limit(rate);
    }

    /// Changes the congestion control of a program's socket.
    pub(crate) fn set_congestion(
        &mut self,
        connection: Connection,
        side: Side,
        name: &str,
    ) -> Result<(), BuildError> {
        let end = &mut self.connections[connection][side.index()];
        end.tcp.set_congestion(name)
    }

    /// Sends a delayed acknowledgment at once, for a program.
    pub(crate) fn acknowledge_waiting(&mut self, connection: Connection, side: Side) {
        let end = &mut self.connections[connection][side.index()];
        end.tcp.acknowledge_waiting();
        self.flush(connection, side);
    }

    /// Sets the data-level acknowledgment of a subflow's next packets; `soon` requests a packet
    /// that carries it.
    pub(crate) fn set_data_ack(
        &mut self,
        connection: Connection,
        side: Side,
        offset: u64,
        soon: bool,
    ) {
        let now = self.now;
        let end = &mut self.connections[connection][side.index()];
        end.tcp.set_data_ack(offset, soon.then_some(now));
        if soon {
            self.flush(connection, side);
        }
    }

    /// A program leaves its connection.
    pub(crate) fn abort(&mut self, connection: Connection, side: Side) {
        self.connections[connection][side.index()].tcp.abort();
        self.flush(connection, side);
    }

    /// Sends the pending packets of an end and schedules its next timer.
    pub(super) fn flush(&mut self, connection: Connection, side: Side) {
        match self.links[connection] {
            STEERED => self.send_steered(connection, side),
            link => self.send_over(link, connection, side),
        }
        let end = &mut self.connections[connection][side.index()];
        if let Some(at) = end.tcp.deadline().map(|at| at.max(self.now))
            && at < end.planned
        {
            end.planned = at;
            self.agenda.plan(at, Event::Tcp(connection, side));
        }
    }

    fn send_over(&mut self, link: usize, connection: Connection, side: Side) {
        let end = &mut self.connections[connection][side.index()];
        let direction = match side {
            Side::Client => Direction::Up,
            Side::Server => Direction::Down,
        };
        let id = self.ids[link][direction.index()];
        let now = duration(self.now);
        let is_lost = side == Side::Client && self.lost[connection].is_some();
        let mut refused = None;
        while let Some(packet) = end.tcp.poll_transmit(self.now) {
            match is_lost {
                true => refused = Some(packet),
                false => self.network.enqueue(now, id, Cargo::Segment(packet)),
            }
        }
        if let Some(packet) = refused {
            self.refuse(connection, &packet);
        }
    }
}

#[cfg(test)]
impl Net {
    /// Falsifies `info` for a link that reports a wrong rate.
    fn falsified(&self, connection: Connection, mut info: TcpInfo) -> TcpInfo {
        if let Some(factor) = self.lies.get(self.links[connection]) {
            for rate in [
                &mut info.delivery_rate,
                &mut info.pacing_rate,
                &mut info.cwnd,
            ] {
                *rate = (*rate as f64 * factor) as u64;
            }
        }
        info
    }
}
