//! The table of TCP connections.
//!
//! A connection of a program, a [`Flow`], continues between a *peer* and the listener: a peer is an
//! address of the device's range with a port. The table knows nothing of packets and sockets.
//!
//! A flow keeps its peer until its entry is removed. Peers are used in turn, so a peer rests as
//! long as possible: the kernel's end of an old connection may be in TIME-WAIT and would refuse a
//! new one between the same ports. With the default range, 800,000 connections lie between two
//! uses.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::Instant;

use crate::packet::Flags;

/// Lowest port of a peer.
const FIRST_PORT: u16 = 1024;

/// Time without segments after which a connection that both ends have closed is forgotten. Its last
/// acknowledgment may be repeated until then.
const CLOSED: Duration = Duration::from_secs(10);

/// The same for a connection that one end has not closed: as long as Linux keeps its end
/// (net.ipv4.tcp_fin_timeout).
const HALF_CLOSED: Duration = Duration::from_secs(60);

/// A connection as its program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The program's address and port.
    pub source: SocketAddr,
    /// The target's.
    pub destination: SocketAddr,
}

/// What happens with a segment from a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A new connection; the entry must be made by [`Nat::insert`].
    New,
    /// The first segment of a connection that is being opened was repeated.
    Repeated,
    /// It belongs to this peer.
    Pass(SocketAddr),
    /// The program has given up a connection that was being opened. The entry is gone.
    Canceled,
    /// It belongs to no connection.
    Unknown,
}

/// The table. `T` is the caller's state for each connection until it is accepted.
#[derive(Debug)]
pub struct Nat<T> {
    entries: HashMap<Flow, Entry<T>>,
    by_peer: HashMap<SocketAddr, Flow>,
    /// Closed connections by the time when they are looked at.
    closing: BTreeMap<(Instant, u64), Flow>,
    v4: Peers,
    v6: Peers,
    most: usize,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    number: u64,
    peer: SocketAddr,
    state: State<T>,
    last: Instant,
    /// Which ends have sent a FIN: the program, the kernel.
    ends: [bool; 2],
    /// Whether one of them has sent a reset.
    is_reset: bool,
}

#[derive(Debug)]
enum State<T> {
    /// The target has not answered; the first segment is kept back.
    Opening(T),
    /// The first segment has been passed on, and the connection is not accepted yet.
    Connecting(T),
    Relayed,
    /// The relay has ended; the time is the key in `closing`.
    Closing(Instant),
}

/// Peers of one family, used in turn.
#[derive(Debug)]
struct Peers {
    addresses: Vec<IpAddr>,
    next: (usize, u16),
}

impl<T> Nat<T> {
    /// A table of `most` connections, with these addresses for their peers.
    pub fn new(v4: Vec<IpAddr>, v6: Vec<IpAddr>, most: usize) -> Self {
        Self {
            entries: HashMap::new(),
            by_peer: HashMap::new(),
            closing: BTreeMap::new(),
            v4: Peers::new(v4),
            v6: Peers::new(v6),
            most,
            next: 0,
        }
    }

    /// A segment from a program.
    pub fn outbound(&mut self, flow: &Flow, flags: Flags, now: Instant) -> Verdict {
        let opens = flags.syn && !flags.ack && !flags.rst;
        let Some(entry) = self.entries.get_mut(flow) else {
            return if opens {
                Verdict::New
            } else {
                Verdict::Unknown
            };
        };
        entry.last = now;
        match &entry.state {
            State::Opening(_) if opens => Verdict::Repeated,
            State::Opening(_) if flags.rst => {
                self.remove(flow);
                Verdict::Canceled
            }
            State::Opening(_) => Verdict::Unknown,
            State::Closing(_) if opens => {
                self.remove(flow);
                Verdict::New
            }
            // The relay has not noticed yet. The kernel's end, if it still exists, would take the
            // segment for one of the old connection, or the listener would take it for a connection
            // that nothing was opened for.
            State::Relayed if opens && entry.is_over() => {
                self.remove(flow);
                Verdict::New
            }
            State::Connecting(_) if flags.rst => {
                let peer = entry.peer;
                // The program has given up; the caller's state for it is dropped. The reset ends
                // the kernel's half of the connection.
                self.remove(flow);
                Verdict::Pass(peer)
            }
            _ => {
                entry.ends[0] |= flags.fin;
                entry.is_reset |= flags.rst;
                Verdict::Pass(entry.peer)
            }
        }
    }

    /// A segment from the listener to this peer; returns the flow that it belongs to.
    pub fn inbound(&mut self, peer: SocketAddr, flags: Flags, now: Instant) -> Option<Flow> {
        let flow = *self.by_peer.get(&peer)?;
        let entry = self.entries.get_mut(&flow)?;
        entry.last = now;
        entry.ends[1] |= flags.fin;
        entry.is_reset |= flags.rst;
        Some(flow)
    }

    /// Makes the entry of a new flow and returns its number; `None` if the table is full of
    /// connections that are not closed, or has no peers of the flow's family.
    pub fn insert(&mut self, flow: Flow, data: T, now: Instant) -> Option<u64> {
        if self.entries.len() >= self.most {
            let (_, oldest) = self.closing.pop_first()?;
            self.remove(&oldest);
        }
        let by_peer = &self.by_peer;
        let peers = match flow.source {
            SocketAddr::V4(_) => &mut self.v4,
            SocketAddr::V6(_) => &mut self.v6,
        };
        let peer = peers.free(by_peer.len(), |peer| !by_peer.contains_key(peer))?;
        let number = self.next;
        self.next += 1;
        let entry = Entry {
            number,
            peer,
            state: State::Opening(data),
            last: now,
            ends: [false; 2],
            is_reset: false,
        };
        self.by_peer.insert(peer, flow);
        self.entries.insert(flow, entry);
        Some(number)
    }

    /// The caller's state for a connection that is being opened.
    pub fn opening(&mut self, flow: &Flow, number: u64) -> Option<&mut T> {
        match &mut self.numbered(flow, number)?.state {
            State::Opening(data) => Some(data),
            _ => None,
        }
    }

    /// [`Nat::opening`] for the flow's present connection.
    pub fn held(&mut self, flow: &Flow) -> Option<&mut T> {
        match &mut self.entries.get_mut(flow)?.state {
            State::Opening(data) => Some(data),
            _ => None,
        }
    }

    /// The target has answered: from now on, segments are passed on to the returned peer.
    pub fn connecting(&mut self, flow: &Flow, number: u64) -> Option<SocketAddr> {
        let entry = self.numbered(flow, number)?;
        // The other states do not occur: the caller reports each answer once.
        let State::Opening(data) = std::mem::replace(&mut entry.state, State::Relayed) else {
            return None;
        };
        entry.state = State::Connecting(data);
        Some(entry.peer)
    }

    /// The listener has accepted a connection of this peer. Returns its flow and the caller's state
    /// for it.
    pub fn accepted(&mut self, peer: SocketAddr) -> Option<(Flow, T)> {
        let flow = *self.by_peer.get(&peer)?;
        let entry = self.entries.get_mut(&flow)?;
        match std::mem::replace(&mut entry.state, State::Relayed) {
            State::Connecting(data) => Some((flow, data)),
            other => {
                entry.state = other;
                None
            }
        }
    }

    /// Forgets a connection that could not be opened.
    pub fn refused(&mut self, flow: &Flow, number: u64) {
        if self.numbered(flow, number).is_some() {
            self.remove(flow);
        }
    }

    /// The relay has ended. Segments are still passed on until there have been none for a while.
    pub fn ended(&mut self, flow: &Flow, number: u64, now: Instant) {
        let Some(entry) = self.numbered(flow, number) else {
            return;
        };
        match entry.state {
            State::Relayed => {
                let at = now + CLOSED;
                entry.state = State::Closing(at);
                entry.last = now;
                self.closing.insert((at, number), *flow);
            }
            State::Closing(_) => {}
            // It was never accepted.
            _ => self.remove(flow),
        }
    }

    /// Forgets connections that have been closed for long enough.
    pub fn expire(&mut self, now: Instant) {
        while let Some((&(at, number), &flow)) = self.closing.first_key_value()
            && at <= now
        {
            self.closing.pop_first();
            let Some(entry) = self.numbered(&flow, number) else {
                continue;
            };
            let rest = match entry.ends {
                [true, true] => CLOSED,
                _ => HALF_CLOSED,
            };
            let again = entry.last + rest;
            if again > now {
                entry.state = State::Closing(again);
                self.closing.insert((again, number), flow);
            } else {
                self.remove(&flow);
            }
        }
    }

    /// Connections in the table, closed ones included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table has none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn numbered(&mut self, flow: &Flow, number: u64) -> Option<&mut Entry<T>> {
        let entry = self.entries.get_mut(flow)?;
        (entry.number == number).then_some(entry)
    }

    fn remove(&mut self, flow: &Flow) {
        if let Some(entry) = self.entries.remove(flow) {
            self.by_peer.remove(&entry.peer);
            if let State::Closing(at) = entry.state {
                self.closing.remove(&(at, entry.number));
            }
        }
    }
}

impl<T> Entry<T> {
    /// Whether the program may use the same ports for a new connection.
    fn is_over(&self) -> bool {
        self.is_reset || self.ends == [true, true]
    }
}

impl Peers {
    fn new(addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            next: (0, FIRST_PORT),
        }
    }

    /// The next free peer, if `taken` others are in use.
    fn free(&mut self, taken: usize, is_free: impl Fn(&SocketAddr) -> bool) -> Option<SocketAddr> {
        for _ in 0..=taken {
            let (place, port) = self.next;
            let peer = SocketAddr::new(*self.addresses.get(place)?, port);
            self.next = match port.checked_add(1) {
                Some(port) => (place, port),
                None => ((place + 1) % self.addresses.len(), FIRST_PORT),
            };
            if is_free(&peer) {
                return Some(peer);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
