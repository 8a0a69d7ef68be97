//! Datagrams from the client to the server over one link, with the kernel's time of their arrival.

use std::ffi::OsString;
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::{BindToDevice, RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::error::LabError;
use crate::laboratory::Lab;
use crate::topology::{SERVER_V4, Side};

/// Bytes of the IPv4 and UDP headers.
const HEADERS: usize = 28;
/// The smallest packet: headers, number and time.
pub(super) const SMALL: usize = HEADERS + 16;
/// The largest packet.
pub(super) const LARGE: usize = 1500;
/// Room for everything that a check sends before it reads, in bytes of kernel memory.
const RECEIVE_BUFFER: usize = 128 << 20;
/// How long nothing may arrive before the rest counts as lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the emulator may take to read what was sent.
const READ_WITHIN: Duration = Duration::from_secs(20);
const PORT: u16 = 5999;

/// A datagram that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Its number, from 0 in the order of sending.
    pub(super) number: u64,
    /// When it was sent, since 1970.
    pub(super) sent: Duration,
    /// When the kernel received it, since 1970.
    pub(super) received: Duration,
}

impl Arrival {
    /// From sending to arrival.
    pub(super) fn delay(&self) -> Duration {
        self.received.saturating_sub(self.sent)
    }
}

/// Sends over the laboratory's only link, and counts.
pub(super) struct Probe<'a> {
    lab: &'a Lab,
    client: UdpSocket,
    server: UdpSocket,
    /// Number of the next datagram.
    next: u64,
}

impl<'a> Probe<'a> {
    pub(super) fn new(lab: &'a Lab) -> Result<Self, LabError> {
        let system = |error: std::io::Error| LabError::system("opening a socket", error);
        let option = |error: nix::Error| LabError::system("setting up a socket", error);
        let bound =
            |side, at: (Ipv4Addr, u16)| lab.run(side, move || UdpSocket::bind(at))?.map_err(system);
        let server = bound(Side::Server, (SERVER_V4, PORT))?;
        setsockopt(&server, RcvBufForce, &RECEIVE_BUFFER).map_err(option)?;
        setsockopt(&server, ReceiveTimestampns, &true).map_err(option)?;
        server.set_read_timeout(Some(PATIENCE)).map_err(system)?;
        let client = bound(Side::Client, (Ipv4Addr::UNSPECIFIED, 0))?;
        let device = OsString::from(&lab.links()[0].name);
        setsockopt(&client, BindToDevice, &device).map_err(option)?;
        client.connect((SERVER_V4, PORT)).map_err(system)?;
        Ok(Self {
            lab,
            client,
            server,
            next: 0,
        })
    }

    /// Sends one packet of `len` bytes, headers included.
    pub(super) fn send(&mut self, len: usize) -> Result<(), LabError> {
        let mut payload = [0; LARGE - HEADERS];
        payload[..8].copy_from_slice(&self.next.to_be_bytes());
        payload[8..16].copy_from_slice(&(wall_clock().as_nanos() as u64).to_be_bytes());
        self.next += 1;
        self.client
            .send(&payload[..len - HEADERS])
            .map(drop)
            .map_err(|error| LabError::system("sending a probe", error))
    }

    /// Sends `count` packets of `len` bytes, one every `interval` on average.
    pub(super) fn send_paced(
        &mut self,
        count: u32,
        len: usize,
        interval: Duration,
    ) -> Result<(), LabError> {
        let start = Instant::now();
        for i in 0..count {
            thread::sleep((interval * i).saturating_sub(start.elapsed()));
            self.send(len)?;
        }
        Ok(())
    }

    /// Sends `count` packets of `len` bytes at once, and waits until the emulator has read them.
    pub(super) fn fill(&mut self, count: u64, len: usize) -> Result<(), LabError> {
        let before = self.offered()?;
        for _ in 0..count {
            self.send(len)?;
        }
        self.wait_until(|probe| Ok(probe.offered()? >= before + count))
    }

    /// Waits until the link is empty.
    pub(super) fn wait_until_empty(&self) -> Result<(), LabError> {
        self.wait_until(|probe| Ok(probe.lab.status()?[0].directions[0].backlog_packets == 0))
    }

    fn wait_until(
        &self,
        condition: impl Fn(&Self) -> Result<bool, LabError>,
    ) -> Result<(), LabError> {
        let deadline = Instant::now() + READ_WITHIN;
        while !condition(self)? {
            if Instant::now() > deadline {
                return Err(LabError::Refused(
                    "the emulator does not come to read what is sent to it".into(),
                ));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn offered(&self) -> Result<u64, LabError> {
        Ok(self.lab.status()?[0].directions[0].offered_packets)
    }

    /// What arrives until there are `count`, or nothing arrives any more.
    pub(super) fn receive(&self, count: usize) -> Result<Vec<Arrival>, LabError> {
        let mut arrivals = Vec::with_capacity(count);
        while arrivals.len() < count {
            match self.receive_one()? {
                Some(arrival) => arrivals.push(arrival),
                None => break,
            }
        }
        Ok(arrivals)
    }

    /// What has arrived up to now; the link must be empty.
    pub(super) fn receive_all(&self, into: &mut Vec<Arrival>) -> Result<(), LabError> {
        let set = |nonblocking| {
            self.server
                .set_nonblocking(nonblocking)
                .map_err(|error| LabError::system("setting up a socket", error))
        };
        set(true)?;
        while let Some(arrival) = self.receive_one()? {
            into.push(arrival);
        }
        set(false)
    }

    fn receive_one(&self) -> Result<Option<Arrival>, LabError> {
        let system = |error: nix::Error| LabError::system("receiving a probe", error);
        let mut payload = [0; 16];
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut parts = [IoSliceMut::new(&mut payload)];
        let message = match recvmsg::<()>(
            self.server.as_raw_fd(),
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

/// The clock that the kernel stamps packets with.
pub(super) fn wall_clock() -> Duration {
    clock_gettime(ClockId::CLOCK_REALTIME)
        .map(Duration::from)
        .unwrap_or_default()
}
