//! Congestion controls that stay after the process that loaded them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use sumlink_congestion::Settings;

use crate::bonds::Bonds;
use crate::error::Error;
use crate::load::{load, loaded};
use crate::probe::{Missing, probe};
use crate::twin::{TWINS, Twin};

/// Usual mount point of the BPF file system.
const PLACE: &str = "/sys/fs/bpf";

/// Maximum time that the kernel needs to release an object.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// A folder of the BPF file system with permanently loaded congestion controls and their shared
/// maps.
#[derive(Clone, Debug)]
pub struct Pins {
    folder: PathBuf,
}

impl Default for Pins {
    /// `/sys/fs/bpf/sumlink`, which all programs of a system share.
    fn default() -> Self {
        Self::at("/sys/fs/bpf/sumlink")
    }
}

impl Pins {
    /// Another folder, which is created when needed; its parent must be in a BPF file system.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// The shared maps, for putting sockets into groups; creates them if they are missing.
    ///
    /// # Errors
    ///
    /// No BPF file system at that place, or no privilege.
    pub fn bonds(&self) -> Result<Bonds, Error> {
        if !Bonds::PINS
            .iter()
            .all(|name| self.folder.join(name).exists())
        {
            self.check()?;
            match fs::create_dir(&self.folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(Error::file(&self.folder)(error));
                }
                _ => {}
            }
            let pinned = Bonds::new().and_then(|mut bonds| bonds.pin(&self.folder));
            if let Err(error) = pinned {
                self.clean()?;
                return Err(error);
            }
        }
        Bonds::pinned(&self.folder)
    }

    /// Loads a congestion control that stays until it is unloaded.
    ///
    /// # Errors
    ///
    /// Those of [`load`], and of [`Pins::bonds`].
    pub fn load(&self, name: &str, settings: &Settings) -> Result<(), Error> {
        Twin::of(name)?;
        let loaded = self.bonds().and_then(|bonds| load(name, settings, &bonds));
        let pinned = loaded.and_then(|loaded| loaded.pin(&self.folder));
        if pinned.is_err() {
            self.clean()?;
        }
        pinned
    }

    /// The twins pinned here.
    pub fn list(&self) -> Vec<&'static Twin> {
        let is_pinned = |twin: &&Twin| self.path(twin).exists();
        TWINS.iter().filter(is_pinned).collect()
    }

    /// Unloads a congestion control pinned here. Sockets that use it keep it until they close; new
    /// ones cannot choose it. Returns whether it is gone: false if another process keeps it loaded
    /// ([`keep`](crate::keep)).
    ///
    /// # Errors
    ///
    /// An unknown name, [`Error::NotLoaded`], or no privilege.
    pub fn unload(&self, name: &str) -> Result<bool, Error> {
        let twin = Twin::of(name)?;
        let path = self.path(twin);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::NotLoaded {
                name: twin.system_name,
            }),
            removed => {
                removed.map_err(Error::file(path))?;
                let gone = wait_until_unloaded(twin)?;
                self.clean().map(|()| gone)
            }
        }
    }

    /// Like [`Pins::check`], but mounts the BPF file system at its usual place if it is missing.
    /// Returns whether it did.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] with the first missing requirement.
    pub fn prepare(&self) -> Result<bool, Error> {
        match self.check() {
            Err(Error::Missing(Missing::FileSystem))
                if self.folder.parent() == Some(Path::new(PLACE)) => {}
            checked => return checked.map(|()| false),
        }
        let kind = Some("bpf");
        match mount(kind, PLACE, kind, MsFlags::empty(), None::<&str>) {
            Ok(()) => self.check().map(|()| true),
            Err(_) => Err(Error::Missing(Missing::FileSystem)),
        }
    }

    /// Checks that a congestion control can be loaded and pinned here.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] with the first missing requirement.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(missing) = probe().into_iter().next() {
            return Err(Error::Missing(missing));
        }
        let parent = self.folder.parent().unwrap_or(Path::new("/"));
        match statfs(parent) {
            Ok(found) if found.filesystem_type() == BPF_FS_MAGIC => Ok(()),
            _ => Err(Error::Missing(Missing::FileSystem)),
        }
    }

    fn path(&self, twin: &Twin) -> PathBuf {
        self.folder.join(twin.system_name)
    }

    /// Removes the maps and the folder when nothing else is pinned here.
    fn clean(&self) -> Result<(), Error> {
        if !self.list().is_empty() {
            return Ok(());
        }
        for name in Bonds::PINS {
            remove_if_exists(&self.folder.join(name), |path| fs::remove_file(path))?;
        }
        remove_if_exists(&self.folder, |path| fs::remove_dir(path))
    }
}

/// Waits until the kernel has released the unpinned twin; returns false if another process holds
/// it.
fn wait_until_unloaded(twin: &Twin) -> Result<bool, Error> {
    let start = Instant::now();
    let is_it = |other: &&Twin| other.system_name == twin.system_name;
    while loaded()?.iter().any(is_it) {
        if start.elapsed() > MAX_DELAY {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

fn remove_if_exists(
    path: &Path,
    remove: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<(), Error> {
    match remove(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::file(path)(error)),
        _ => Ok(()),
    }
}
