//! Plain TCP and UDP: each channel is one connection over a link, or through the edge node if the
//! scenario has one. A channel without a link uses the first one. A flow of datagrams has no
//! connection.

use bytes::Bytes;
use sumlink_engine::Class;

use crate::net::{Connection, Net};
use crate::tcp::{Side, TcpConfig};
use crate::udp::Udp;
use crate::workload::{Bearer, Channel, FlowBearer, Progress};

/// Most bytes that a program may write to its socket ahead of transmission: a part of its send
/// buffer.
const AHEAD: u64 = 1 << 20;

/// Number of the first flow of datagrams, after those of the connections.
const FLOWS: Channel = 1 << 32;

#[derive(Debug)]
struct Plain {
    connection: Connection,
    is_open: bool,
    is_over: bool,
    /// Bytes that the program of each side still wants to write, and bytes that it has received.
    offered: [u64; 2],
    received: [u64; 2],
}

/// The programs' connections.
#[derive(Debug)]
pub(crate) struct PlainTcp {
    config: TcpConfig,
    channels: Vec<Plain>,
    /// Number of the first channel.
    base: Channel,
    progress: Vec<Progress>,
    /// The links of the flows of datagrams.
    flows: Vec<usize>,
}

impl PlainTcp {
    /// Channels are numbered from `base`.
    pub(crate) fn new(config: TcpConfig, base: Channel) -> Self {
        Self {
            config,
            channels: Vec::new(),
            base,
            progress: Vec::new(),
            flows: Vec::new(),
        }
    }

    /// Handles a change at one end of a connection; returns false if the connection does not belong
    /// here.
    pub(crate) fn on_connection(
        &mut self,
        net: &mut Net,
        connection: Connection,
        side: Side,
    ) -> bool {
        let found = self
            .channels
            .iter()
            .rposition(|channel| channel.connection == connection);
        let Some(index) = found else {
            return false;
        };
        let number = self.base + index;
        let tcp = net.tcp(connection, side);
        let channel = &mut self.channels[index];
        if channel.is_over {
            return true;
        }
        if tcp.state().has_ended() {
            channel.is_over = true;
            self.progress.push(Progress::Broken(number));
            return true;
        }
        if side == Side::Client && !channel.is_open && tcp.is_established() {
            channel.is_open = true;
            self.progress.push(Progress::Opened(number));
        }
        let received = tcp.received();
        let new = received - channel.received[side.index()];
        if new > 0 {
            channel.received[side.index()] = received;
            net.read(connection, side, received);
            self.progress.push(Progress::Received(number, side, new));
        }
        self.pump(net, index, side);
        true
    }

    pub(crate) fn take_progress(&mut self, net: &mut Net) -> Vec<Progress> {
        let mut progress = std::mem::take(&mut self.progress);
        let arrived = net.take_udp().into_iter();
        progress.extend(arrived.map(|udp| {
            let channel = self.base + FLOWS + udp.flow as usize;
            Progress::Datagram(channel, udp.to, udp.payload)
        }));
        progress
    }

    /// Keeps the socket filled.
    fn pump(&mut self, net: &mut Net, index: usize, side: Side) {
        let channel = &mut self.channels[index];
        let offered = &mut channel.offered[side.index()];
        let tcp = net.tcp(channel.connection, side);
        if *offered == 0 || !tcp.is_established() || tcp.unsent() > AHEAD / 2 {
            return;
        }
        let bytes = (*offered).min(AHEAD - tcp.unsent());
        *offered -= bytes;
        net.write(channel.connection, side, bytes);
    }
}

impl Bearer for PlainTcp {
    fn open(&mut self, net: &mut Net, link: Option<usize>, _class: Option<Class>) -> Channel {
        // Cannot fail: the congestion control's name was checked before the run.
        let connected = match link {
            None if net.has_node() => net.connect_steered(&self.config),
            _ => net.connect(link.unwrap_or(0), &self.config),
        };
        let connection = connected.unwrap_or(Connection::MAX);
        self.channels.push(Plain {
            connection,
            is_open: false,
            is_over: connection == Connection::MAX,
            offered: [0; 2],
            received: [0; 2],
        });
        self.base + self.channels.len() - 1
    }

    fn offer(&mut self, net: &mut Net, channel: Channel, side: Side, bytes: u64) {
        let index = channel - self.base;
        self.channels[index].offered[side.index()] += bytes;
        self.pump(net, index, side);
    }

    fn close(&mut self, net: &mut Net, channel: Channel) {
        let index = channel - self.base;
        self.channels[index].is_over = true;
        net.abort(self.channels[index].connection, Side::Client);
    }
}

impl FlowBearer for PlainTcp {
    fn open_flow(&mut self, _net: &mut Net, link: Option<usize>, _: Option<Class>) -> Channel {
        self.flows.push(link.unwrap_or(0));
        self.base + FLOWS + self.flows.len() - 1
    }

    fn send(&mut self, net: &mut Net, channel: Channel, side: Side, payload: Bytes) {
        let flow = channel - self.base - FLOWS;
        let udp = Udp {
            flow: flow as u64,
            to: side.peer(),
            payload,
        };
        net.send_udp(self.flows[flow], udp);
    }
}
