//! The table through which coupled congestion controls see each other, and groups set up by user
//! space.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder};

use crate::error::Error;
use crate::log::capture_log;

/// Maximum number of sockets of one bond that see each other. Further ones see these and are not
/// seen.
pub const MAX_SIBLINGS: usize = 16;

/// Maps that all twins share; names as in siblings.h.
const FLOWS: &str = "sl_flows";
const GROUPS: &str = "sl_groups";

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bonds.bpf.o"));

/// Numbers of groups have this bit in the table, as in siblings.h.
const IS_GROUP: u64 = 1 << 63;

/// The number of a bond: sockets with the same one are siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group(NonZeroU64);

impl Group {
    /// A number chosen by the caller, from 1 to 2^62 - 1; `None` otherwise. Numbers are shared by
    /// all users of the same [`Bonds`].
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number)
            .filter(|number| number.get() < 1 << 62)
            .map(Self)
    }
}

/// A flow of a group, as of its last acknowledgment, or of its start to send with no data in
/// flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// Congestion window in packets, with its fraction.
    pub cwnd: f64,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Round-trip time measured by the last acknowledgment; `None` if it acknowledged only
    /// retransmitted data.
    pub rtt: Option<Duration>,
    /// Time of that, by the kernel's monotonic clock.
    pub seen: Duration,
}

/// The kernel's table of flows and their groups. Twins loaded with the same table see each other's
/// flows, even if they are different algorithms.
#[derive(Debug)]
pub struct Bonds {
    flows: MapHandle,
    groups: MapHandle,
}

impl Bonds {
    /// A new table, which lives as long as this value and everything loaded with it.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel cannot create it.
    pub fn new() -> Result<Self, Error> {
        capture_log(|| {
            let made = || {
                let object = ObjectBuilder::default().open_memory(OBJECT)?.load()?;
                let map = |name| {
                    let found = object.maps().find(|map| map.name() == name);
                    MapHandle::try_from(&found.expect("the object has both maps"))
                };
                Ok(Self {
                    flows: map(FLOWS)?,
                    groups: map(GROUPS)?,
                })
            };
            made().map_err(Error::map("cannot create the maps of flows and groups"))
        })
        .0
    }

    /// Puts a TCP socket into a group; it leaves its former group. The socket need not be
    /// connected, and may choose its congestion control before or after. Siblings see it from its
    /// next acknowledgment on.
    ///
    /// # Errors
    ///
    /// [`Error::Map`]: not a socket, or no privilege.
    pub fn join(&self, socket: &impl AsFd, group: Group) -> Result<(), Error> {
        let key = socket.as_fd().as_raw_fd().to_ne_bytes();
        let value = group.0.get().to_ne_bytes();
        let joined = self.groups.update(&key, &value, MapFlags::ANY);
        joined.map_err(Error::map("cannot put a socket into a group"))
    }

    /// Takes a socket out of its group. MPTCP subflows are siblings again then; other sockets are
    /// alone.
    ///
    /// # Errors
    ///
    /// [`Error::Map`]: not a socket, no privilege, or in no group.
    pub fn leave(&self, socket: &impl AsFd) -> Result<(), Error> {
        let key = socket.as_fd().as_raw_fd().to_ne_bytes();
        let left = self.groups.delete(&key);
        left.map_err(Error::map("cannot take a socket out of its group"))
    }

    /// The flows of a group that have received an acknowledgment since they joined, in no
    /// particular order.
    ///
    /// # Errors
    ///
    /// [`Error::Map`]: no privilege.
    pub fn members(&self, group: Group) -> Result<Vec<Member>, Error> {
        let mut members = Vec::new();
        for place in 0..MAX_SIBLINGS as u64 {
            let bond = group.0.get() | IS_GROUP;
            let key = [bond.to_ne_bytes(), place.to_ne_bytes()].concat();
            let found = self.flows.lookup(&key, MapFlags::ANY);
            let found = found.map_err(Error::map("cannot look up the flows of a group"))?;
            members.extend(found.as_deref().map(Member::read));
        }
        Ok(members)
    }

    /// Number of flows in bonds now.
    pub fn flows(&self) -> usize {
        self.flows.keys().count()
    }

    /// Another handle to the same table.
    pub(crate) fn share(&self) -> Result<Self, Error> {
        let share = || {
            Ok(Self {
                flows: MapHandle::try_from(&self.flows)?,
                groups: MapHandle::try_from(&self.groups)?,
            })
        };
        share().map_err(Error::map("cannot share the maps of flows and groups"))
    }

    /// The table among some maps; `None` if it is missing.
    pub(crate) fn of_maps(mut maps: Vec<MapHandle>) -> Option<Self> {
        let mut take = |name: &str| {
            let at = maps.iter().position(|map| map.name() == name)?;
            Some(maps.swap_remove(at))
        };
        Some(Self {
            flows: take(FLOWS)?,
            groups: take(GROUPS)?,
        })
    }

    /// The maps by the names that the programs use for them.
    pub(crate) fn maps(&self) -> [(&'static str, &MapHandle); 2] {
        [(FLOWS, &self.flows), (GROUPS, &self.groups)]
    }

    pub(crate) fn pin(&mut self, folder: &Path) -> Result<(), Error> {
        let mut pin = || {
            self.flows.pin(folder.join(FLOWS))?;
            self.groups.pin(folder.join(GROUPS))
        };
        pin().map_err(Error::map("cannot pin the maps of flows and groups"))
    }

    /// The table pinned in a folder.
    pub(crate) fn pinned(folder: &Path) -> Result<Self, Error> {
        let open = |name: &str| MapHandle::from_pinned_path(folder.join(name));
        let opened = || {
            Ok(Self {
                flows: open(FLOWS)?,
                groups: open(GROUPS)?,
            })
        };
        opened().map_err(Error::map(
            "cannot open the pinned maps of flows and groups",
        ))
    }

    /// File names of the pins.
    pub(crate) const PINS: [&'static str; 2] = [FLOWS, GROUPS];
}

impl Member {
    /// Parses `struct flow` of siblings.h.
    fn read(bytes: &[u8]) -> Self {
        let u32_at = |at| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let time = |us: u32| Duration::from_micros(us.into());
        Self {
            cwnd: u64_at(0) as f64 / f64::from(1 << 20),
            srtt: time(u32_at(16)),
            rtt: Some(time(u32_at(20))).filter(|rtt| !rtt.is_zero()),
            seen: Duration::from_micros(u64_at(24)),
        }
    }
}
