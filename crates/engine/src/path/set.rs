//! The paths of a session.

use std::collections::BTreeMap;

use super::Path;
use crate::PathId;

/// The paths of a session, by number.
///
/// A node of the map has places for eleven paths, so each one is a box: a server has many sessions
/// with one or two.
#[derive(Debug, Default)]
pub(crate) struct Paths(BTreeMap<PathId, Box<Path>>);

impl Paths {
    pub(crate) fn insert(&mut self, path: Path) {
        self.0.insert(path.id, Box::new(path));
    }

    pub(crate) fn remove(&mut self, id: &PathId) -> Option<Path> {
        self.0.remove(id).map(|path| *path)
    }

    pub(crate) fn contains_key(&self, id: &PathId) -> bool {
        self.0.contains_key(id)
    }

    pub(crate) fn get(&self, id: &PathId) -> Option<&Path> {
        self.0.get(id).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, id: &PathId) -> Option<&mut Path> {
        self.0.get_mut(id).map(Box::as_mut)
    }

    /// The paths in the order of their numbers.
    pub(crate) fn values(&self) -> impl DoubleEndedIterator<Item = &Path> + Clone {
        self.0.values().map(Box::as_ref)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.0.values_mut().map(Box::as_mut)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(any(test, feature = "testing"))]
impl std::ops::Index<&PathId> for Paths {
    type Output = Path;

    fn index(&self, id: &PathId) -> &Path {
        &self.0[id]
    }
}
