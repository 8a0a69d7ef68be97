//! Why the resolver file is not written or not restored.

use std::io;
use std::path::PathBuf;

use sumlink_util::plain;

/// Why the file is not written or not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolvConfError {
    /// A file cannot be read.
    #[error("cannot read {path}: {reason}", path = .0.display(), reason = plain(.1))]
    Read(PathBuf, io::Error),
    /// A file cannot be written.
    #[error("cannot write {path}: {reason}", path = .0.display(), reason = plain(.1))]
    Write(PathBuf, io::Error),
    /// It is not a text file of a sensible size.
    #[error(
        "{path} is not a text file of at most 64 KiB; it is left as it is", path = .0.display()
    )]
    Unusual(PathBuf),
    /// The state file is damaged.
    #[error(
        "{path} is damaged, so the earlier content of the resolver file is unknown; check that \
         file, then remove {path}", path = .0.display()
    )]
    BadState(PathBuf),
}
