//! What a process keeps loaded for as long as it runs, whoever loaded it.
//!
//! Names of congestion controls are the system's, so that two processes that want the same one have to share it. The
//! second one finds the first one's link by its number, and keeps it: the kernel lets go of the congestion control when the
//! last of them has ended, however it ended. The bonds it finds by the programs, whose numbers the kernel gives for the
//! operations.

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

/// How long another process may take to load or unload it in this moment.
const MOST_DELAY: Duration = Duration::from_secs(5);

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
    /// Another one did: its link.
    Shared { _link: OwnedFd },
}

/// Keeps the twin of that algorithm loaded; loads it, with the settings' defaults, if it is not. `like` is something that
/// this process keeps already: flows of both then see each other, if it has to be loaded.
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
        if let Some((link, bonds)) = of_others(twin)? {
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
            // Somebody was faster, or is about to end: looked for again, now or in a moment.
            Err(Error::LoadedAlready { .. }) if start.elapsed() < MOST_DELAY => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(Error::LoadedAlready { name }) => return Err(Error::NotShared { name }),
            Err(error) => return Err(error),
        }
    }
}

impl Kept {
    /// What it is.
    pub fn twin(&self) -> &'static Twin {
        self.twin
    }

    /// Whether this process loaded it, so that it goes with this value unless another one keeps it too.
    pub fn is_own(&self) -> bool {
        matches!(self.hold, Hold::Own { .. })
    }

    /// Puts a TCP socket into a group of siblings. The numbers are shared by all processes that keep it.
    ///
    /// # Errors
    ///
    /// [`Error::Map`]: no socket, no privilege.
    pub fn join(&self, socket: &impl AsFd, group: Group) -> Result<(), Error> {
        self.bonds.join(socket, group)
    }

    /// How many flows are in bonds now, those of other processes included.
    pub fn flows(&self) -> usize {
        self.bonds.flows()
    }
}

/// The link and the bonds of one that is loaded; nothing if it is not, or in a way in which nobody can find it.
fn of_others(twin: &Twin) -> Result<Option<(OwnedFd, Bonds)>, Error> {
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
        // libbpf names it after the variable, which is named after the congestion control.
        if operations.name() != twin.system_name {
            continue;
        }
        // SAFETY: takes a number and gives a new descriptor or an error.
        let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(link.id) };
        if fd < 0 {
            continue;
        }
        // SAFETY: a descriptor that nobody else has.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let bonds = match bonds_of(&operations) {
            Some(bonds) => bonds,
            None if twin.is_coupled() => {
                let name = twin.system_name;
                return Err(Error::NotShared { name });
            }
            // Its programs look at no siblings.
            None => Bonds::new()?,
        };
        return Ok(Some((fd, bonds)));
    }
    Ok(None)
}

/// The maps that the programs of these operations use.
fn bonds_of(operations: &MapHandle) -> Option<Bonds> {
    // The value is the kernel's struct tcp_congestion_ops with the programs' numbers in place of the functions. Other words
    // of it that look like the number of a program are no matter: it would have to be one of a twin's.
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
