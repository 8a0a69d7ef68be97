//! The paths of control groups (version 2).

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Mount points of version 2, alone and beside version 1.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// A file that every control group of version 2 has.
const MARKER: &str = "cgroup.procs";

/// Least time between two searches.
const PAUSE: Duration = Duration::from_secs(1);

/// Most groups.
const MAX: usize = 8192;

/// The ids of the control groups and their paths. An id is the inode number of the directory, which
/// is not used again.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    paths: HashMap<u64, Arc<str>>,
    searched: Option<Instant>,
}

impl Cgroups {
    /// The path of a group: `/` for the root, without a slash at the end for the others. A group
    /// that is younger than the last search is found at most a second later.
    pub(super) fn path(&self, id: u64) -> Option<Arc<str>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = known.paths.get(&id) {
            return Some(Arc::clone(path));
        }
        if known.searched.is_some_and(|at| at.elapsed() < PAUSE) {
            return None;
        }
        let mut roots = ROOTS.into_iter().map(Path::new);
        let root = roots.find(|root| root.join(MARKER).exists())?;
        known.paths = search(root);
        known.searched = Some(Instant::now());
        known.paths.get(&id).map(Arc::clone)
    }
}

/// The groups below a mount point, level by level.
fn search(root: &Path) -> HashMap<u64, Arc<str>> {
    let mut paths = HashMap::new();
    if let Ok(metadata) = fs::metadata(root) {
        paths.insert(metadata.ino(), Arc::from("/"));
    }
    let mut directories: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        // A group may disappear during the search.
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if paths.len() >= MAX {
                return paths;
            }
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
                paths.insert(entry.ino(), format!("/{name}").into());
            }
            directories.push(path);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_at_every_level() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("user.slice/a.scope");
        fs::create_dir_all(&deep).unwrap();
        fs::write(root.path().join(MARKER), "").unwrap();
        let paths = search(root.path());
        let path = |path: &Path| {
            let id = fs::metadata(path).unwrap().ino();
            paths.get(&id).map(|path| path.to_string())
        };
        assert_eq!(path(root.path()).as_deref(), Some("/"));
        assert_eq!(path(&deep).as_deref(), Some("/user.slice/a.scope"));
        assert_eq!(paths.len(), 3);
    }
}
