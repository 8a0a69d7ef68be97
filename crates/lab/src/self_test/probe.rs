//! Datagrams over one direction of one link, with the kernel's time stamps of their arrival.

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::sockopt::{BindToDevice, RcvBufForce, ReceiveTimestampns, UdpGsoSegment};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::config::Direction;
use crate::error::LabError;
use crate::laboratory::Lab;
use crate::topology::{SERVER_V4, Side, client_v4};

/// Bytes of the IPv4 and UDP headers.
const HEADERS: usize = 28;
/// The smallest packet: headers, number and time.
pub(super) const SMALL: usize = HEADERS + 16;
/// The largest packet.
pub(super) const LARGE: usize = 1500;
/// Receive buffer in bytes of kernel memory: enough for all packets that a check sends before it
/// reads.
const RECEIVE_BUFFER: usize = 128 << 20;
/// Maximum datagrams per call to the kernel, and their bytes.
const MAX_BATCH: (usize, usize) = (64, 65_000);
/// Port of the first link's probe; the others follow.
const PORT: u16 = 5900;

/// A datagram that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Its number, from 0 in the order of sending.
    pub(super) number: u64,
    /// Send time, since 1970.
    pub(super) sent: Duration,
    /// Time at which the kernel received it, since 1970.
    pub(super) received: Duration,
}

impl Arrival {
    /// Time from sending to arrival.
    pub(super) fn delay(&self) -> Duration {
        self.received.saturating_sub(self.sent)
    }
}

/// Sends over one direction of a link, and receives at its far end.
pub(super) struct Probe {
    /// The number of the link.
    pub(super) link: usize,
    pub(super) direction: Direction,
    from: UdpSocket,
    to: UdpSocket,
    /// Number of the next datagram.
    next: u64,
}

impl Probe {
    pub(super) fn new(lab: &Lab, link: usize, direction: Direction) -> Result<Self, LabError> {
        let system = |error: io::Error| LabError::system("opening a socket", error);
        let option = |error: nix::Error| LabError::system("setting up a socket", error);
        let bound =
            |side, at: (Ipv4Addr, u16)| lab.run(side, move || UdpSocket::bind(at))?.map_err(system);
        let port = PORT + link as u16;
        let (near, far, target) = match direction {
            Direction::Up => (Side::Client, Side::Server, SERVER_V4),
            Direction::Down => (Side::Server, Side::Client, client_v4(link)),
        };
        let to = bound(far, (target, port))?;
        setsockopt(&to, RcvBufForce, &RECEIVE_BUFFER).map_err(option)?;
        setsockopt(&to, ReceiveTimestampns, &true).map_err(option)?;
        to.set_nonblocking(true).map_err(system)?;
        let from = bound(near, (Ipv4Addr::UNSPECIFIED, 0))?;
        let device = OsString::from(&lab.links()[link].name);
        setsockopt(&from, BindToDevice, &device).map_err(option)?;
        from.connect((target, port)).map_err(system)?;
        Ok(Self {
            link,
            direction,
            from,
            to,
            next: 0,
        })
    }

    /// Datagrams sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.next
    }

    /// Sends one packet of `len` bytes, headers included.
    pub(super) fn send(&mut self, len: usize) -> Result<(), LabError> {
        self.send_joined(1, len)
    }

    /// Sends `count` packets of `len` bytes. The kernel gets many with one call, and hands them to
    /// the emulator as super-packets if the laboratory uses them.
    pub(super) fn send_many(&mut self, count: u64, len: usize) -> Result<(), LabError> {
        let (packets, bytes) = MAX_BATCH;
        let joined = packets.min(bytes / (len - HEADERS)) as u64;
        self.segment_by(len - HEADERS)?;
        let mut left = count;
        while left > 0 {
            self.send_joined(left.min(joined), len)?;
            left -= left.min(joined);
        }
        self.segment_by(0)
    }

    /// Reads all datagrams that have arrived.
    pub(super) fn receive(&self, into: &mut Vec<Arrival>) -> Result<(), LabError> {
        while let Some(arrival) = self.receive_one()? {
            into.push(arrival);
        }
        Ok(())
    }

    /// Makes the kernel cut sent data into datagrams of that payload; 0 disables this.
    fn segment_by(&self, payload: usize) -> Result<(), LabError> {
        setsockopt(&self.from, UdpGsoSegment, &(payload as i32))
            .map_err(|error| LabError::system("asking for datagrams in super-packets", error))
    }

    fn send_joined(&mut self, count: u64, len: usize) -> Result<(), LabError> {
        let size = len - HEADERS;
        let mut payload = vec![0; size * count as usize];
        let now = (wall_clock().as_nanos() as u64).to_be_bytes();
        for datagram in payload.chunks_mut(size) {
            datagram[..8].copy_from_slice(&self.next.to_be_bytes());
            datagram[8..16].copy_from_slice(&now);
            self.next += 1;
        }
        let failed = |error| LabError::system("sending a probe", error);
        match self.from.send(&payload) {
            // Linux before 6.11 does not segment for interfaces that offload checksums.
            Err(error) if count > 1 && error.raw_os_error() == Some(libc::EIO) => payload
                .chunks(size)
                .try_for_each(|datagram| self.from.send(datagram).map(drop))
                .map_err(failed),
            sent => sent.map(drop).map_err(failed),
        }
    }

    fn receive_one(&self) -> Result<Option<Arrival>, LabError> {
        let system = |error: nix::Error| LabError::system("receiving a probe", error);
        let mut payload = [0; 16];
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut parts = [IoSliceMut::new(&mut payload)];
        let message = match recvmsg::<()>(
            self.to.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::empty(),
        ) {
            Ok(message) => message,
            Err(nix::Error::EAGAIN) => return Ok(None),
            Err(error) => return Err(system(error)),
        };
        let stamp = message
            .cmsgs()
            .map_err(system)?
            .find_map(|part| match part {
                ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
                _ => None,
            });
        let number = |at: usize| {
            let bytes = payload[at..at + 8].try_into().unwrap_or_default();
            u64::from_be_bytes(bytes)
        };
        Ok(Some(Arrival {
            number: number(0),
            sent: Duration::from_nanos(number(8)),
            received: stamp.unwrap_or_default(),
        }))
    }
}

/// The clock of the kernel's packet time stamps.
pub(super) fn wall_clock() -> Duration {
    clock_gettime(ClockId::CLOCK_REALTIME)
        .map(Duration::from)
        .unwrap_or_default()
}
