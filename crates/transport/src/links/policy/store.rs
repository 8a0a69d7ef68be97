//! The link state that a client keeps across restarts: a small JSON file, replaced as a whole.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};
use sumlink_util::{is_shortage, plain};

use super::{LinkPolicy, Usage};

/// Why the saved link state cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The user's or the system's fault: the file exists but cannot be read.
    #[error(
        "{}: cannot read the saved link state: {reason}",
        file.display(),
        reason = plain(.reason)
    )]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// The user's fault: the file has other content or is damaged. It is not changed.
    #[error(
        "{}: not a saved link state of sumlink ({reason}): move it away, or name another file as \
        `state`",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The error in its content.
        reason: String,
    },
    /// The user's or the system's fault: the file cannot be written.
    #[error(
        "{}: cannot save the link state: {reason}; its directory must exist and be writable",
        file.display(),
        reason = plain(.reason)
    )]
    Unwritable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// The user's fault: a policy is to be kept, but no file is configured.
    #[error(
        "no state file to save the policy in: start the client with `state = \"FILE\"` or --state \
        FILE"
    )]
    NoFile,
    /// The user's fault: a data cap is set, but no file is configured.
    #[error(
        "no file stores the bytes that the link moves, so that a data cap would start again with the \
        client: start the client with `state = \"FILE\"` or --state FILE"
    )]
    NoFileForCap,
}

impl StateError {
    /// Whether the same attempt may succeed later, without a correction of the configuration: the
    /// disk is full, or fails.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unwritable { reason, .. } => is_shortage(reason),
            _ => false,
        }
    }
}

/// The file's content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `links`")]
pub(super) struct Remembered {
    /// Keyed by link name.
    pub(super) links: BTreeMap<String, Link>,
}

/// The saved state of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `policy` and `usage`")]
pub(super) struct Link {
    /// A policy that was set at run time and is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<LinkPolicy>,
    /// The link's data usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Usage>,
}

/// Reads the file; a missing file yields an empty state.
pub(super) fn load(file: &Path) -> Result<Remembered, StateError> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Remembered::default()),
        Err(reason) => {
            return Err(StateError::Unreadable {
                file: file.to_owned(),
                reason,
            });
        }
    };
    let damaged = |reason: String| StateError::Damaged {
        file: file.to_owned(),
        reason,
    };
    let remembered: Remembered =
        serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    for (name, link) in &remembered.links {
        let checked = link.policy.as_ref().map_or(Ok(()), LinkPolicy::check);
        checked.map_err(|error| damaged(format!("{name}: {error}")))?;
    }
    Ok(remembered)
}

/// Checks that the file can be read and later replaced, without changing anything.
pub(crate) fn check(file: &Path) -> Result<(), StateError> {
    load(file)?;
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let writable = match directory.metadata() {
        // An empty path, or `..`.
        _ if file.file_name().is_none() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        Ok(_) => access(directory, AccessFlags::W_OK | AccessFlags::X_OK).map_err(io::Error::from),
        Err(error) => Err(error),
    };
    writable.map_err(|reason| StateError::Unwritable {
        file: file.to_owned(),
        reason,
    })
}

/// Replaces the file atomically: a reader finds the old or the new content, even after a power cut.
pub(super) fn save(file: &Path, remembered: &Remembered) -> Result<(), StateError> {
    let write = || -> io::Result<()> {
        let text = serde_json::to_string_pretty(remembered)?;
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = file.with_file_name(name);
        let written = std::fs::File::create(&new).and_then(|mut written| {
            written.write_all(text.as_bytes())?;
            written.write_all(b"\n")?;
            written.sync_all()
        });
        let renamed = written.and_then(|()| std::fs::rename(&new, file));
        if renamed.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        renamed
    };
    write().map_err(|reason| StateError::Unwritable {
        file: file.to_owned(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_state_is_restored_and_a_foreign_file_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("links.json");
        assert_eq!(load(&file).unwrap(), Remembered::default());
        let mut remembered = Remembered::default();
        let policy = LinkPolicy {
            cap_month: Some(1 << 30),
            ..LinkPolicy::default()
        };
        let link = remembered.links.entry("wwan0".to_owned()).or_default();
        link.policy = Some(policy);
        link.usage = Some(Usage::new("2026-11-22".parse().unwrap(), 1));
        save(&file, &remembered).unwrap();
        assert_eq!(load(&file).unwrap(), remembered);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        for strange in [
            "",
            "{",
            "[]",
            r#"{"links":{"a":{"policy":{"reset_day":0}}}}"#,
        ] {
            std::fs::write(&file, strange).unwrap();
            let error = load(&file).unwrap_err();
            assert!(matches!(error, StateError::Damaged { .. }), "{strange}");
            assert_eq!(error.to_string().lines().count(), 1);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), strange);
        }
    }

    #[test]
    fn a_path_without_a_file_name_is_refused() {
        for path in ["", "..", "/"] {
            let error = check(Path::new(path)).unwrap_err();
            assert!(
                matches!(
                    error,
                    StateError::Unwritable { .. } | StateError::Unreadable { .. }
                ),
                "{path}: {error:?}"
            );
        }
    }

    #[test]
    fn a_missing_directory_is_a_one_line_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("none/links.json");
        let error = save(&file, &Remembered::default()).unwrap_err();
        assert!(error.to_string().contains("its directory must exist"));
    }
}
