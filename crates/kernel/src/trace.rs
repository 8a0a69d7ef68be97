//! A trace of the windows of TCP sockets: a record for every acknowledgment that arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBufferBuilder};
use nix::time::{ClockId, clock_gettime};

use crate::error::Error;
use crate::log::capture_log;
use crate::probe::probe;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));

/// Initial ssthresh (TCP_INFINITE_SSTHRESH of include/net/tcp.h).
const INFINITE: u32 = 0x7fff_ffff;

/// Interval for rechecking sockets that did not belong to the process: it may have acquired them
/// since.
const RECHECK: Duration = Duration::from_millis(500);

/// Maximum time of one wait for the ring buffer, so that the end of a trace is noticed.
const POLL: Duration = Duration::from_millis(50);

/// Records read before the end condition is checked; about the capacity of the buffer.
const BATCH: u32 = 4096;
const BUFFER: u32 = 40_960;

/// Selects the acknowledgments to record, in all network namespaces of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All acknowledgments.
    All,
    /// Those of a process's sockets, and of the subflows of its MPTCP connections.
    Process(u32),
    /// Those of sockets with this port, at either end.
    Port(u16),
    /// Those of MPTCP subflows.
    Mptcp,
}

/// State of loss recovery (tcp_ca_state of Linux).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No sign of loss.
    Open,
    /// A loss is possible.
    Disorder,
    /// The window was reduced by a congestion notification or a local event.
    Cwr,
    /// Lost packets are retransmitted.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

impl State {
    /// In lower case: `recovery`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Disorder => "disorder",
            Self::Cwr => "cwr",
            Self::Recovery => "recovery",
            Self::Loss => "loss",
        }
    }

    fn from_kernel(state: u8) -> Self {
        match state {
            1 => Self::Disorder,
            2 => Self::Cwr,
            3 => Self::Recovery,
            4 => Self::Loss,
            _ => Self::Open,
        }
    }
}

/// State of a socket when an acknowledgment has arrived, before the socket processes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time since the trace began.
    pub time: Duration,
    /// The socket's cookie, unique while the system runs.
    pub socket: u64,
    /// Its own address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// The token of its MPTCP connection, if it is a subflow.
    pub token: Option<u32>,
    /// Name of the congestion control on the system.
    pub congestion: String,
    /// Congestion window in packets.
    pub cwnd: u32,
    /// Slow start threshold in packets; `None` until it is set.
    pub ssthresh: Option<u32>,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Retransmission timeout, including the back-off after repeated timeouts.
    pub rto: Duration,
    /// Packets in flight.
    pub in_flight: u32,
    /// Packets delivered since the connection began, including retransmissions.
    pub delivered: u32,
    /// State of loss recovery.
    pub state: State,
}

/// A running trace; it ends with this value.
#[derive(Debug)]
pub struct Trace {
    filter: Filter,
    /// The kernel's time at the start of the trace.
    began: Duration,
    records: MapHandle,
    lost: MapHandle,
    owned: MapHandle,
    _link: Link,
    _object: Object,
}

impl Trace {
    /// Starts to record.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`], [`Error::Refused`].
    pub fn start(filter: Filter) -> Result<Self, Error> {
        if let Some(missing) = probe().into_iter().next() {
            return Err(Error::Missing(missing));
        }
        let (started, log) = capture_log(|| load(filter));
        started.map_err(|source| Error::Refused {
            name: "the trace of acknowledgments",
            source,
            log,
        })
    }

    /// Passes records to `each` until `goes_on` returns false, which is checked at least every 50
    /// ms. The records left in the buffer are passed before it returns.
    ///
    /// # Errors
    ///
    /// [`Error::Map`].
    pub fn follow(
        &self,
        mut each: impl FnMut(Record),
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let failed = || Error::map("cannot read the trace of acknowledgments");
        let mut owners = match self.filter {
            Filter::Process(pid) => Some(Owners::new(pid, &self.owned)),
            _ => None,
        };
        let mut taken = 0u32;
        let mut take = |bytes: &[u8]| {
            if let Some((mut record, inode)) = parse(bytes)
                && owners.as_mut().is_none_or(|owners| owners.has(inode))
            {
                record.time = record.time.saturating_sub(self.began);
                each(record);
            }
            taken += 1;
            match taken % BATCH {
                0 => -libc::EINTR,
                _ => 0,
            }
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(&self.records, &mut take).map_err(failed())?;
        let ring = builder.build().map_err(failed())?;
        let is_more = |result: libbpf_rs::Result<()>| match result {
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => Ok(true),
            done => done.map(|()| false).map_err(failed()),
        };
        while goes_on() {
            is_more(ring.poll(POLL))?;
        }
        for _ in 0..BUFFER / BATCH {
            if !is_more(ring.consume())? {
                break;
            }
        }
        Ok(())
    }

    /// Number of records dropped so far because the buffer was full.
    pub fn lost(&self) -> u64 {
        let value = self.lost.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let value = value.ok().flatten().and_then(|value| value.try_into().ok());
        value.map_or(0, u64::from_ne_bytes)
    }
}

fn load(filter: Filter) -> libbpf_rs::Result<Trace> {
    let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
    let (port, mptcp, process) = match filter {
        Filter::All => (0, 0, 0),
        Filter::Port(port) => (u32::from(port), 0, 0),
        Filter::Mptcp => (0, 1, 0),
        Filter::Process(_) => (0, 0, 1),
    };
    for mut map in object.maps_mut() {
        if map.name() == ".rodata.wanted" {
            let wanted = [port, mptcp, process, 0u32].map(u32::to_ne_bytes).concat();
            let value = map.initial_value_mut().expect("what is wanted has a value");
            value.copy_from_slice(&wanted);
        }
    }
    let object = object.load()?;
    let map = |name| {
        let found = object.maps().find(|map| map.name() == name);
        MapHandle::try_from(&found.expect("the object has the map"))
    };
    let (records, lost, owned) = (map("sl_records")?, map("sl_lost")?, map("sl_owned")?);
    let began = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(std::io::Error::from)?;
    let program = object.progs_mut().next().expect("the object has a program");
    let link = program.attach()?;
    Ok(Trace {
        filter,
        began: began.into(),
        records,
        lost,
        owned,
        _link: link,
        _object: object,
    })
}

/// The sockets of a process, as far as they have been looked up.
struct Owners<'a> {
    folder: PathBuf,
    /// The same knowledge in the kernel program.
    owned: &'a MapHandle,
    known: BTreeMap<u64, bool>,
    looked: Instant,
}

impl<'a> Owners<'a> {
    fn new(pid: u32, owned: &'a MapHandle) -> Self {
        Self {
            folder: PathBuf::from(format!("/proc/{pid}/fd")),
            owned,
            known: BTreeMap::new(),
            looked: Instant::now(),
        }
    }

    fn has(&mut self, inode: u64) -> bool {
        if self.looked.elapsed() >= RECHECK {
            self.forget();
        }
        if let Some(has) = self.known.get(&inode) {
            return *has;
        }
        let now = sockets(&self.folder);
        let has = now.contains(&inode);
        self.known.insert(inode, has);
        // If this fails, the program asks again.
        let _ = self
            .owned
            .update(&inode.to_ne_bytes(), &[u8::from(has)], MapFlags::ANY);
        has
    }

    /// Forgets the sockets that did not belong to the process: it may own them by now.
    fn forget(&mut self) {
        for (inode, _) in self.known.iter().filter(|(_, has)| !**has) {
            let _ = self.owned.delete(&inode.to_ne_bytes());
        }
        self.known.retain(|_, has| *has);
        self.looked = Instant::now();
    }
}

/// The inodes of a process's sockets.
fn sockets(folder: &PathBuf) -> BTreeSet<u64> {
    let Ok(entries) = fs::read_dir(folder) else {
        return BTreeSet::new();
    };
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let inodes = links.filter_map(|link| {
        let inode = link.to_str()?.strip_prefix("socket:[")?;
        inode.strip_suffix(']')?.parse().ok()
    });
    inodes.collect()
}

/// A record and its inode, in the layout of `struct record` of trace.bpf.c.
fn parse(bytes: &[u8]) -> Option<(Record, u64)> {
    const LENGTH: usize = 24 + 28 + 8 + 48;
    const AF_INET: u16 = 2;
    if bytes.len() < LENGTH {
        return None;
    }
    let u64_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight"));
    let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
    let u16_at = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two"));
    let family = u16_at(52);
    let address = |at: usize, port: u16| {
        let octets: [u8; 16] = bytes[at..at + 16].try_into().expect("sixteen");
        let ip = match family {
            AF_INET => IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3])),
            // Shows an IPv4-mapped address as IPv4.
            _ => Ipv6Addr::from(octets).to_canonical(),
        };
        SocketAddr::new(ip, port)
    };
    let name = &bytes[92..108];
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(16);
    let record = Record {
        time: Duration::from_nanos(u64_at(0)),
        socket: u64_at(8),
        local: address(60, u16_at(54)),
        remote: address(76, u16_at(56)),
        token: Some(u32_at(40)).filter(|token| *token != 0),
        congestion: String::from_utf8_lossy(&name[..end]).into_owned(),
        cwnd: u32_at(24),
        ssthresh: Some(u32_at(28)).filter(|ssthresh| *ssthresh < INFINITE),
        srtt: Duration::from_micros(u32_at(32).into()),
        rto: Duration::from_micros(u32_at(44).into()),
        in_flight: u32_at(36),
        delivered: u32_at(48),
        state: State::from_kernel(bytes[58]),
    };
    Some((record, u64_at(16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_the_program_writes_them() {
        let mut bytes = Vec::new();
        for number in [5_000_000_000u64, 77, 99] {
            bytes.extend(number.to_ne_bytes());
        }
        for number in [30u32, INFINITE, 25_000, 28, 0, 225_000, 1000] {
            bytes.extend(number.to_ne_bytes());
        }
        for number in [10u16, 7000, 40_000] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend([3, 0]);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 99, 0, 1]);
        bytes.extend(Ipv6Addr::LOCALHOST.octets());
        bytes.extend(b"sl_lia\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(parse(&bytes[..bytes.len() - 1]), None);
        // The kernel's alignment.
        bytes.extend([0; 4]);
        let (record, inode) = parse(&bytes).expect("a whole record");
        assert_eq!(inode, 99);
        let expected = Record {
            time: Duration::from_secs(5),
            socket: 77,
            local: "10.99.0.1:7000".parse().expect("an address"),
            remote: "[::1]:40000".parse().expect("an address"),
            token: None,
            congestion: "sl_lia".to_owned(),
            cwnd: 30,
            ssthresh: None,
            srtt: Duration::from_millis(25),
            rto: Duration::from_millis(225),
            in_flight: 28,
            delivered: 1000,
            state: State::Recovery,
        };
        assert_eq!(record, expected);
    }
}
