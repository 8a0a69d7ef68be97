//! A configuration and its key as files. They are written beside their places and then moved there,
//! so that no place ever has a part of a file.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use sumlink_transport::SecretKey;

use crate::error::{CliError, Failure};
use crate::exit::Exit;

/// The places of a configuration and of the key beside it.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) config: PathBuf,
    pub(crate) key: PathBuf,
}

impl Files {
    /// The key has the name of the configuration with the ending .key.
    pub(crate) fn new(config: &Path) -> Result<Self, CliError> {
        let key = config.with_extension("key");
        if config.file_name().is_none() || key == config {
            let reason = "--out must name a file that does not end with .key";
            return Err(CliError::Usage(reason.to_owned()));
        }
        if key.file_name().and_then(|name| name.to_str()).is_none() {
            let reason = "--out must be valid UTF-8: the configuration names the key's file";
            return Err(CliError::Usage(reason.to_owned()));
        }
        let config = config.to_owned();
        Ok(Self { config, key })
    }

    /// Only files can be replaced.
    pub(crate) fn must_be_replaceable(&self) -> Result<(), CliError> {
        for path in [&self.key, &self.config] {
            if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
                return Err(wrote(path, io::ErrorKind::IsADirectory.into()));
            }
        }
        Ok(())
    }

    /// Fails if one of them exists.
    pub(crate) fn must_be_absent(&self) -> Result<(), CliError> {
        if self.key.symlink_metadata().is_ok() {
            return Err(existing(&self.key, Exit::Key));
        }
        if self.config.symlink_metadata().is_ok() {
            return Err(existing(&self.config, Exit::Config));
        }
        Ok(())
    }
}

/// The failure of a verb that would replace a file.
fn existing(file: &Path, exit: Exit) -> CliError {
    let reason = format!(
        "{} already exists and was not changed: choose another --out, or replace the configuration \
        and its key with --force",
        file.display()
    );
    Failure::new(exit, reason).into()
}

/// A new file beside its place. Removed when dropped, unless it was moved or left there.
#[derive(Debug)]
pub(crate) struct Draft {
    beside: PathBuf,
    place: PathBuf,
    is_temporary: bool,
}

impl Draft {
    /// A file that is not written yet.
    pub(crate) fn beside(place: &Path) -> Self {
        let mut name = place.as_os_str().to_owned();
        name.push(format!(".new-{}", std::process::id()));
        Self {
            beside: PathBuf::from(name),
            place: place.to_owned(),
            is_temporary: true,
        }
    }

    /// A file with a secret key, mode 0600.
    pub(crate) fn of_key(place: &Path, key: &SecretKey) -> Result<Self, CliError> {
        let draft = Self::beside(place);
        key.save(&draft.beside)?;
        Ok(draft)
    }

    /// Writes a text in place of an earlier one.
    pub(crate) fn write(&self, text: &str) -> Result<(), CliError> {
        let write = || {
            // An earlier process with this ID may have left it.
            let _ = fs::remove_file(&self.beside);
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(&self.beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|reason| wrote(&self.place, reason))
    }

    /// Sets the mode, whatever the umask is, and the owner.
    pub(crate) fn give(&self, mode: u32, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        fs::set_permissions(&self.beside, Permissions::from_mode(mode))?;
        chown(&self.beside, user, group)
    }

    /// Moves the file to its place. Unless it `replaces`, it fails if another file is there.
    pub(crate) fn keep(&mut self, replaces: bool) -> io::Result<()> {
        match replaces {
            true => fs::rename(&self.beside, &self.place)?,
            false => rename_to_new(&self.beside, &self.place)?,
        }
        self.is_temporary = false;
        Ok(())
    }

    /// Leaves the file beside its place and returns its path.
    pub(crate) fn leave(mut self) -> PathBuf {
        self.is_temporary = false;
        self.beside.clone()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = fs::remove_file(&self.beside);
        }
    }
}

/// The failure to write a file.
pub(crate) fn wrote(path: &Path, reason: io::Error) -> CliError {
    CliError::Write {
        path: path.to_owned(),
        reason,
    }
}

/// Renames a file, and fails if the new name exists.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // A file system without links.
        Err(_) if to.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_removed_unless_it_is_kept_or_left() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("client.toml");
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let draft = Draft::beside(&place);
        draft.write("one").unwrap();
        draft.write("two").unwrap();
        assert_eq!(count(), 1);
        drop(draft);
        assert_eq!(count(), 0);

        let mut draft = Draft::beside(&place);
        draft.write("two").unwrap();
        draft.give(0o640, None, None).unwrap();
        draft.keep(false).unwrap();
        drop(draft);
        assert_eq!(fs::read_to_string(&place).unwrap(), "two");
        let mode = fs::metadata(&place).unwrap().permissions().mode();
        assert_eq!((mode & 0o7777, count()), (0o640, 1));

        let mut draft = Draft::beside(&place);
        draft.write("three").unwrap();
        let error = draft.keep(false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        draft.keep(true).unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "three");

        let draft = Draft::beside(&place);
        draft.write("four").unwrap();
        assert!(draft.leave().exists());
    }

    #[test]
    fn the_key_is_beside_the_configuration() {
        let files = Files::new(Path::new("/etc/sumlink/home.toml")).unwrap();
        assert_eq!(files.key, Path::new("/etc/sumlink/home.key"));
        assert!(Files::new(Path::new("home.key")).is_err());
        assert!(Files::new(Path::new("/")).is_err());
    }
}
