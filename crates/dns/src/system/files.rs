//! Reading and replacing a text file of the system.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::error::ResolvConfError;

/// Largest file that is kept, in bytes. Real ones have a few lines.
const MAX_SIZE: u64 = 64 * 1024;

/// Symbolic links that are followed (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The file behind all symbolic links. It need not exist.
pub(super) fn target(file: &Path) -> Result<PathBuf, ResolvConfError> {
    let mut path = file.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(link) => {
                let directory = path.parent().unwrap_or(Path::new("/"));
                path = directory.join(link);
            }
            // Not a link, or nothing.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path),
            Err(error) => return Err(ResolvConfError::Read(path, error)),
        }
    }
    Err(ResolvConfError::Unusual(file.to_owned()))
}

/// The content of a file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<String>, ResolvConfError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ResolvConfError::Read(path.to_owned(), error)),
    };
    if !metadata.is_file() || metadata.len() > MAX_SIZE {
        return Err(ResolvConfError::Unusual(path.to_owned()));
    }
    match fs::read_to_string(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(ResolvConfError::Unusual(path.to_owned()))
        }
        Err(error) => Err(ResolvConfError::Read(path.to_owned(), error)),
    }
}

/// Writes a file, with the mode and the owner that it has.
pub(super) fn write_like(path: &Path, content: &str) -> Result<(), ResolvConfError> {
    let metadata = fs::metadata(path).ok();
    let mode = metadata
        .as_ref()
        .map_or(0o644, |metadata| metadata.mode() & 0o7777);
    match replace(path, content.as_bytes(), mode, metadata.as_ref()) {
        // In a container, the file is a separate mount: it can be written, but not replaced.
        Err(ResolvConfError::Write(_, error)) if is_mount(&error) => {
            let write = || -> io::Result<()> {
                let mut file = File::options().write(true).truncate(true).open(path)?;
                file.write_all(content.as_bytes())?;
                file.sync_all()
            };
            write().map_err(|error| ResolvConfError::Write(path.to_owned(), error))
        }
        replaced => replaced,
    }
}

fn is_mount(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices
    )
}

/// Replaces a file at once: readers see the earlier or the new content, also after a power loss.
pub(super) fn replace(
    path: &Path,
    content: &[u8],
    mode: u32,
    owner: Option<&Metadata>,
) -> Result<(), ResolvConfError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".sumlink-new");
    let new = path.with_file_name(name);
    let write = || -> io::Result<()> {
        // A file that an earlier process left is not reused: it may have another owner.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&new)?;
        file.write_all(content)?;
        // The mode at creation is limited by the umask.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        if let Some(owner) = owner {
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (owner.uid(), owner.gid()) {
                std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
            }
        }
        file.sync_all()?;
        fs::rename(&new, path)?;
        match path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(|error| {
        // It exists only if the rename failed.
        let _ = fs::remove_file(&new);
        ResolvConfError::Write(path.to_owned(), error)
    })
}
