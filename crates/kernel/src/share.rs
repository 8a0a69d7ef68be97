//! Congestion controls that a process keeps loaded while it runs, whichever process loaded them.
//!
//! Names of congestion controls are unique per system, so two processes that use the same one must
//! share it. The second process finds the link of the first by its number, and keeps it open. The
//! kernel releases the congestion control when the last of them has ended, in any way. The bonds
//! are found through the programs, whose numbers the kernel returns with the operations.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ProgramType};
use sumlink_congestion::Settings;

use crate::bonds::{Bonds, Group};
use crate::error::Error;
use crate::load::{Loaded, load, loaded};
use crate::probe::probe;
use crate::twin::Twin;

/// Maximum time that another process needs to finish loading or unloading.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// A congestion control that stays loaded at least as long as this value lives.
#[derive(Debug)]
pub struct Kept {
    twin: &'static Twin,
    bonds: Bonds,
    hold: Hold,
}

#[derive(Debug)]
enum Hold {
    /// This process loaded it.
    Own { _loaded: Loaded },
    /// Another process loaded it: its link.
    Shared { _link: OwnedFd },
}

/// Keeps the twin of that algorithm loaded; loads it with default settings if necessary. `like` is
/// a congestion control that this process already keeps: if the twin must be loaded, flows of both
/// see each other.
///
/// # Errors
///
/// Those of [`load`]; [`Error::NotShared`].
pub fn keep(name: &str, like: Option<&Kept>) -> Result<Kept, Error> {
    let twin = Twin::of(name)?;
    if let Some(missing) = probe().into_iter().next() {
        return Err(Error::Missing(missing));
    }
    let start = Instant::now();
    loop {
        if let Some((link, bonds)) = find_loaded(twin)? {
            return Ok(Kept {
                twin,
                bonds,
                hold: Hold::Shared { _link: link },
            });
        }
        let bonds = match like {
            Some(kept) => kept.bonds.share()?,
            None => Bonds::new()?,
        };
        match load(name, &Settings::default(), &bonds) {
            Ok(loaded) => {
                return Ok(Kept {
                    twin,
                    bonds,
                    hold: Hold::Own { _loaded: loaded },
                });
            }
            // Another process was faster, or is about to end: retry now or shortly.
            Err(Error::LoadedAlready { .. }) if start.elapsed() < MAX_DELAY => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(Error::LoadedAlready { name }) => return Err(Error::NotShared { name }),
            Err(error) => return Err(error),
        }
    }
}

impl Kept {
    /// The loaded twin.
    pub fn twin(&self) -> &'static Twin {
        self.twin
    }

    /// Whether this process loaded it, so that it is unloaded with this value unless another
    /// process keeps it too.
    pub fn is_own(&self) -> bool {
        matches!(self.hold, Hold::Own { .. })
    }

    /// Puts a TCP socket into a group of siblings. The numbers are shared by all processes that
    /// keep the twin.
    ///
    /// # Errors
    ///
    /// [`Error::Map`]: not a socket, or no privilege.
    pub fn join(&self, socket: &impl AsFd, group: Group) -> Result<(), Error> {
        self.bonds.join(socket, group)
    }

    /// Number of flows in bonds now, including those of other processes.
    pub fn flows(&self) -> usize {
        self.bonds.flows()
    }
}

/// Link and bonds of a loaded twin; `None` if it is not loaded, or cannot be found.
fn find_loaded(twin: &Twin) -> Result<Option<(OwnedFd, Bonds)>, Error> {
    if !loaded()?
        .iter()
        .any(|other| other.system_name == twin.system_name)
    {
        return Ok(None);
    }
    for link in LinkInfoIter::default() {
        let LinkTypeInfo::StructOps(info) = &link.info else {
            continue;
        };
        let Ok(operations) = MapHandle::from_map_id(info.map_id) else {
            continue;
        };
        // libbpf names the map after the variable, which is named after the congestion control.
        if operations.name() != twin.system_name {
            continue;
        }
        // SAFETY: takes a number and gives a new descriptor or an error.
        let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(link.id) };
        if fd < 0 {
            continue;
        }
        // SAFETY: the descriptor is valid and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let bonds = match bonds_of(&operations) {
            Some(bonds) => bonds,
            None if twin.is_coupled() => {
                let name = twin.system_name;
                return Err(Error::NotShared { name });
            }
            // Its programs read no siblings.
            None => Bonds::new()?,
        };
        return Ok(Some((fd, bonds)));
    }
    Ok(None)
}

/// The maps that the programs of these operations use.
fn bonds_of(operations: &MapHandle) -> Option<Bonds> {
    // The value is the kernel's struct tcp_congestion_ops with program numbers in place of the
    // functions. Other words that look like a program number do no harm, unless it is the number of
    // a twin's program.
    let value = operations.lookup(&0u32.to_ne_bytes(), MapFlags::empty());
    let value = value.ok().flatten()?;
    let words: Vec<u64> = value
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let with_maps = ProgInfoQueryOptions::default().include_map_ids(true);
    ProgInfoIter::with_query_opts(with_maps)
        .filter(|program| program.ty == ProgramType::StructOps)
        .filter(|program| words.contains(&u64::from(program.id)))
        .find_map(|program| {
            let maps = program.map_ids.iter();
            let maps = maps.filter_map(|id| MapHandle::from_map_id(*id).ok());
            Bonds::of_maps(maps.collect())
        })
}
