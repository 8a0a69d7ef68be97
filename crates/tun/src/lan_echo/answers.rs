//! Raw sockets for answers.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use socket2::{Domain, Protocol, Socket, Type};
use tracing::debug;

use crate::packet::build::{self};
use crate::packet::header::MIN_MTU6;
use crate::sink::Sink;
use crate::stats::Counters;

/// `IPPROTO_RAW`: packets are sent with their IP headers, and none are received (raw(7)).
const RAW: i32 = 255;

/// Longest IPv4 packet that is sent whole: that of Ethernet.
const MTU: usize = 1500;

/// Sends packets with any source address out of one interface.
pub(super) struct Answers {
    sockets: Mutex<Sockets>,
    next_id: AtomicU32,
    counters: Arc<Counters>,
}

struct Sockets {
    v4: Socket,
    /// `None` if the system has switched IPv6 off.
    v6: Option<Socket>,
}

impl Answers {
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        let open = |domain| -> io::Result<Socket> {
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(RAW)))?;
            socket.set_nonblocking(true)?;
            socket.bind_device(Some(interface.as_bytes()))?;
            Ok(socket)
        };
        let v6 = open(Domain::IPV6)
            .inspect_err(|error| debug!(%error, "echo requests over IPv6 are not answered"));
        Ok(Self {
            sockets: Mutex::new(Sockets {
                v4: open(Domain::IPV4)?,
                v6: v6.ok(),
            }),
            next_id: AtomicU32::new(1),
            counters: Arc::default(),
        })
    }

    /// Counts into these counters.
    pub(super) fn counted(self, counters: Arc<Counters>) -> Self {
        Self { counters, ..self }
    }

    /// Takes the sockets of another incarnation of the interface.
    pub(super) fn replace(&self, other: Self) {
        let new = other
            .sockets
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        *self.sockets.lock().unwrap_or_else(PoisonError::into_inner) = new;
    }

    fn send(&self, packet: &[u8]) {
        let Ok(parsed) = crate::packet::parse(packet) else {
            return;
        };
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = match parsed.source.is_ipv4() {
            true => Some(&sockets.v4),
            false => sockets.v6.as_ref(),
        };
        // A raw socket takes the port as a protocol.
        let to = SocketAddr::new(parsed.destination, 0);
        match socket.map(|socket| socket.send_to(packet, &to.into())) {
            Some(Ok(_)) => self.counters.sent(packet.len()),
            Some(Err(error)) => {
                debug!(%to, %error, "cannot send an answer");
                self.counters.dropped.refused_by_kernel.increment();
            }
            None => self.counters.dropped.refused_by_kernel.increment(),
        }
    }
}

impl Sink for Answers {
    fn packet(&self, packet: &[u8]) {
        let most = match packet.first().map(|byte| byte >> 4) {
            Some(4) => MTU,
            _ => MIN_MTU6,
        };
        match packet.len() > most {
            true => {
                let id = self.next_id.fetch_add(1, Ordering::Relaxed);
                build::fragments(packet, most, id, |fragment| self.send(fragment));
            }
            false => self.send(packet),
        }
    }

    fn next_id(&self) -> u16 {
        self.next_id.fetch_add(1, Ordering::Relaxed) as u16
    }
}
