//! What coupled congestion controls know of each other, and the groups that user space makes.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder};

use crate::error::Error;

/// How many sockets of one bond see each other. Those beyond see the others, who do not see them.
pub const MOST_SIBLINGS: usize = 16;

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
    /// A number that the caller chooses, from 1 to 2^62 - 1: numbers are shared by all that use the same [`Bonds`].
    /// Nothing for others.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number)
            .filter(|number| number.get() < 1 << 62)
            .map(Self)
    }
}

/// A flow of a group, as it was at its last acknowledgment, or when it began to send with nothing in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// Congestion window in packets, with its fraction.
    pub cwnd: f64,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// What the last acknowledgment has measured; nothing if it acknowledged only what had been sent again.
    pub rtt: Option<Duration>,
    /// When that was, by the kernel's monotonic clock.
    pub seen: Duration,
}

/// The kernel's table of flows and their groups. Twins that are loaded with the same one see each other's flows, even if
/// they are different algorithms.
#[derive(Debug)]
pub struct Bonds {
    flows: MapHandle,
    groups: MapHandle,
}

impl Bonds {
    /// A table of its own, which goes with this value and all that was loaded with it.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel does not make it.
    pub fn new() -> Result<Self, Error> {
        crate::load::quietly(|| {
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
            made().map_err(Error::map("making the maps of flows and groups"))
        })
        .0
    }

    /// Puts a TCP socket into a group; it leaves the one it was in. It may be connected or not yet, and choose its congestion
    /// control before or after; siblings see it with its next acknowledgment.
    ///
    /// # Errors
    ///
    /// [`Error::Map`]: no socket, no privilege.
    pub fn join(&self, socket: &impl AsFd, group: Group) -> Result<(), Error> {
        let key = socket.as_fd().as_raw_fd().to_ne_bytes();
        let value = group.0.get().to_ne_bytes();
        let joined = self.groups.update(&key, &value, MapFlags::ANY);
        joined.map_err(Error::map("putting a socket into a group"))
    }

    /// Takes a socket out of its group. MPTCP's subflows are siblings then again, others alone.
    ///
    /// # Errors
    ///
    /// [`Error::Map`]: no socket, no privilege, in no group.
    pub fn leave(&self, socket: &impl AsFd) -> Result<(), Error> {
        let key = socket.as_fd().as_raw_fd().to_ne_bytes();
        let left = self.groups.delete(&key);
        left.map_err(Error::map("taking a socket out of its group"))
    }

    /// The flows of a group that have been acknowledged something since they joined, in no order.
    ///
    /// # Errors
    ///
    /// [`Error::Map`]: no privilege.
    pub fn members(&self, group: Group) -> Result<Vec<Member>, Error> {
        let mut members = Vec::new();
        for place in 0..MOST_SIBLINGS as u64 {
            let bond = group.0.get() | IS_GROUP;
            let key = [bond.to_ne_bytes(), place.to_ne_bytes()].concat();
            let found = self.flows.lookup(&key, MapFlags::ANY);
            let found = found.map_err(Error::map("looking up the flows of a group"))?;
            members.extend(found.as_deref().map(Member::read));
        }
        Ok(members)
    }

    /// How many flows are in bonds now.
    pub fn flows(&self) -> usize {
        self.flows.keys().count()
    }

    /// The same table once more.
    pub(crate) fn share(&self) -> Result<Self, Error> {
        let share = || {
            Ok(Self {
                flows: MapHandle::try_from(&self.flows)?,
                groups: MapHandle::try_from(&self.groups)?,
            })
        };
        share().map_err(Error::map("sharing the maps of flows and groups"))
    }

    /// Those among some maps; nothing if they are not there.
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

    /// The maps by the names that the programs have for them.
    pub(crate) fn maps(&self) -> [(&'static str, &MapHandle); 2] {
        [(FLOWS, &self.flows), (GROUPS, &self.groups)]
    }

    pub(crate) fn pin(&mut self, folder: &Path) -> Result<(), Error> {
        let mut pin = || {
            self.flows.pin(folder.join(FLOWS))?;
            self.groups.pin(folder.join(GROUPS))
        };
        pin().map_err(Error::map("pinning the maps of flows and groups"))
    }

    /// Those pinned in a folder.
    pub(crate) fn pinned(folder: &Path) -> Result<Self, Error> {
        let open = |name: &str| MapHandle::from_pinned_path(folder.join(name));
        let opened = || {
            Ok(Self {
                flows: open(FLOWS)?,
                groups: open(GROUPS)?,
            })
        };
        opened().map_err(Error::map("opening the pinned maps of flows and groups"))
    }

    /// File names of the pins.
    pub(crate) const PINS: [&'static str; 2] = [FLOWS, GROUPS];
}

impl Member {
    /// From `struct flow` of siblings.h.
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
