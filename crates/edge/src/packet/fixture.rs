//! Packets for tests.

use std::net::{IpAddr, SocketAddr};

use etherparse::{PacketBuilder, TcpOptionElement};

use super::{Parsed, Segment, parse};

/// The server.
pub(crate) fn far() -> SocketAddr {
    "192.0.2.1:443".parse().unwrap()
}

/// The user behind the links.
pub(crate) fn user() -> SocketAddr {
    "10.0.0.2:50000".parse().unwrap()
}

/// A segment under construction.
pub(crate) struct Draft {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) ack: Option<u32>,
    pub(crate) window: u16,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    pub(crate) ece: bool,
    pub(crate) options: Vec<TcpOptionElement>,
    pub(crate) payload: Vec<u8>,
}

impl Draft {
    /// From the server to the user.
    pub(crate) fn down(sequence: u32) -> Self {
        Self::between(far(), user(), sequence)
    }

    /// From the user to the server.
    pub(crate) fn up(sequence: u32) -> Self {
        Self::between(user(), far(), sequence)
    }

    pub(crate) fn between(from: SocketAddr, to: SocketAddr, sequence: u32) -> Self {
        Self {
            from,
            to,
            sequence,
            ack: None,
            window: 60_000,
            syn: false,
            fin: false,
            rst: false,
            ece: false,
            options: Vec::new(),
            payload: Vec::new(),
        }
    }

    pub(crate) fn ack(mut self, ack: u32) -> Self {
        self.ack = Some(ack);
        self
    }

    pub(crate) fn window(mut self, window: u16) -> Self {
        self.window = window;
        self
    }

    pub(crate) fn syn(mut self) -> Self {
        self.syn = true;
        self
    }

    pub(crate) fn fin(mut self) -> Self {
        self.fin = true;
        self
    }

    pub(crate) fn rst(mut self) -> Self {
        self.rst = true;
        self
    }

    /// Sets ECE (congestion experienced).
    pub(crate) fn ece(mut self) -> Self {
        self.ece = true;
        self
    }

    pub(crate) fn option(mut self, option: TcpOptionElement) -> Self {
        self.options.push(option);
        self
    }

    pub(crate) fn sack(self, blocks: &[(u32, u32)]) -> Self {
        let block = |n: usize| blocks.get(n).copied();
        let Some(first) = block(0) else { return self };
        self.option(TcpOptionElement::SelectiveAcknowledgement(
            first,
            [block(1), block(2), block(3)],
        ))
    }

    pub(crate) fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    pub(crate) fn packet(&self) -> Vec<u8> {
        let builder = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                PacketBuilder::ipv4(from.octets(), to.octets(), 64)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                PacketBuilder::ipv6(from.octets(), to.octets(), 64)
            }
            _ => panic!("mixed address families"),
        };
        let mut builder = builder.tcp(self.from.port(), self.to.port(), self.sequence, self.window);
        if let Some(ack) = self.ack {
            builder = builder.ack(ack);
        }
        builder = if self.syn { builder.syn() } else { builder };
        builder = if self.fin { builder.fin() } else { builder };
        builder = if self.rst { builder.rst() } else { builder };
        builder = if self.ece { builder.ece() } else { builder };
        let builder = builder.options(&self.options).unwrap();
        let mut packet = Vec::new();
        builder.write(&mut packet, &self.payload).unwrap();
        packet
    }

    pub(crate) fn segment(&self) -> Segment {
        segment(&self.packet())
    }
}

/// Parses a packet as a TCP segment.
pub(crate) fn segment(packet: &[u8]) -> Segment {
    match parse(packet, true) {
        Parsed::Tcp(segment) => segment,
        other => panic!("not a segment: {other:?}"),
    }
}
