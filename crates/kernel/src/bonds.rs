//! What coupled congestion controls know of each other, and the groups that user space makes.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder};

use crate::error::Error;

/// How many sockets of one bond see each other. Those beyond see the others, who do not see them.
pub const MOST_SIBLINGS: usize = 16;

/// Maps that all twins share; names as in siblings.h.
const FLOWS: &str = "sl_flows";
const GROUPS: &str = "sl_groups";

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bonds.bpf.o"));

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
    /// control before or after; siblings see it with its next acknowledgement.
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

    /// How many flows are in bonds now.
    pub fn flows(&self) -> usize {
        self.flows.keys().count()
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
