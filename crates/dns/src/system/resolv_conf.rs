//! The file `/etc/resolv.conf` (resolv.conf(5)), for machines without systemd-resolved.
//!
//! The earlier content is in a state file before the file changes, so that it can be restored after
//! `kill -9` or a power loss, too: keep the state file on a disk. A symbolic link stays, and the
//! file to which it leads changes. Changes that others made meanwhile are never overwritten.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use super::error::ResolvConfError;
use super::files::{read, replace, target, write_like};

/// The file, and the state file with its earlier content.
#[derive(Clone, Debug)]
pub struct ResolvConf {
    file: PathBuf,
    state: PathBuf,
}

/// The outcome of restoring the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// Nothing had to be restored.
    Nothing,
    /// It has its earlier content.
    Yes,
    /// Others have changed it meanwhile. It is left as it is.
    ChangedByOthers,
}

/// The content of the state file.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    /// The file that was changed, behind all symbolic links.
    path: PathBuf,
    /// The written content.
    written: String,
    /// The earlier content; `None` if the file did not exist.
    earlier: Option<String>,
}

impl ResolvConf {
    /// `file` is usually `/etc/resolv.conf`. `state` is in a directory that outlives a restart of
    /// the machine.
    pub fn new(file: impl Into<PathBuf>, state: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            state: state.into(),
        }
    }

    /// Makes `resolver` the only name server. Search domains and options stay. If an earlier
    /// process has left its content, that is restored first.
    ///
    /// # Errors
    ///
    /// See the variants of [`ResolvConfError`]. The file is then unchanged.
    pub fn apply(&self, resolver: IpAddr) -> Result<(), ResolvConfError> {
        self.restore()?;
        let path = target(&self.file)?;
        let earlier = read(&path)?;
        let written = content(resolver, earlier.as_deref().unwrap_or_default());
        let state = State {
            path,
            written,
            earlier,
        };
        let text = serde_json::to_vec(&state)
            .map_err(|error| ResolvConfError::Write(self.state.clone(), error.into()))?;
        // Only for the owner: search domains may be private.
        replace(&self.state, &text, 0o600, None)?;
        let written = write_like(&state.path, &state.written);
        if written.is_err() {
            // The file is as before, and the error says why.
            let _ = fs::remove_file(&self.state);
        }
        written
    }

    /// Restores the earlier content, also after another process has ended without doing so. If
    /// others have changed the file since, it stays, and the earlier content is forgotten.
    ///
    /// # Errors
    ///
    /// See the variants of [`ResolvConfError`]. After [`ResolvConfError::Write`], a later call
    /// tries again.
    pub fn restore(&self) -> Result<Restored, ResolvConfError> {
        let Some(state) = self.state()? else {
            return Ok(Restored::Nothing);
        };
        let current = match read(&state.path) {
            Ok(current) => current,
            Err(ResolvConfError::Unusual(_)) => None,
            Err(error) => return Err(error),
        };
        let restored = if current.as_deref() == Some(&state.written) {
            match &state.earlier {
                Some(earlier) => write_like(&state.path, earlier)?,
                None => fs::remove_file(&state.path)
                    .map_err(|error| ResolvConfError::Write(state.path.clone(), error))?,
            }
            Restored::Yes
        } else if current == state.earlier {
            // The process ended before it wrote the file.
            Restored::Nothing
        } else {
            Restored::ChangedByOthers
        };
        fs::remove_file(&self.state)
            .map_err(|error| ResolvConfError::Write(self.state.clone(), error))?;
        Ok(restored)
    }

    /// Whether the file has the content that was written, and programs find it.
    ///
    /// # Errors
    ///
    /// See the variants of [`ResolvConfError`].
    pub fn is_in_place(&self) -> Result<bool, ResolvConfError> {
        let Some(state) = self.state()? else {
            return Ok(false);
        };
        Ok(target(&self.file)? == state.path && read(&state.path)? == Some(state.written))
    }

    fn state(&self) -> Result<Option<State>, ResolvConfError> {
        let Some(text) = read(&self.state)? else {
            return Ok(None);
        };
        let state = serde_json::from_str(&text);
        state
            .map(Some)
            .map_err(|_| ResolvConfError::BadState(self.state.clone()))
    }
}

/// The new content: the lines of the earlier one, except those with name servers.
fn content(resolver: IpAddr, earlier: &str) -> String {
    let mut content = format!(
        "# Written by sumlink, which restores the earlier content when it ends.\n\
         nameserver {resolver}\n"
    );
    let is_kept = |line: &&str| {
        ["search", "domain", "options"].iter().any(|key| {
            line.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with([' ', '\t']))
        })
    };
    for line in earlier.lines().filter(is_kept) {
        content.push_str(line);
        content.push('\n');
    }
    content
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    const EARLIER: &str = "# DHCP\nnameserver 192.0.2.53\nsearch corp.example\noptions ndots:2\n";
    const RESOLVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 77));

    struct Fixture {
        directory: tempfile::TempDir,
        conf: ResolvConf,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("resolv.conf");
            fs::write(&file, EARLIER).unwrap();
            let conf = ResolvConf::new(file, directory.path().join("state"));
            Self { directory, conf }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn content(&self) -> String {
            fs::read_to_string(&self.conf.file).unwrap()
        }

        /// The names in the directory.
        fn files(&self) -> Vec<String> {
            let entries = fs::read_dir(self.directory.path()).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    #[test]
    fn the_file_names_the_forwarder_and_comes_back() {
        let fixture = Fixture::new();
        fs::set_permissions(&fixture.conf.file, fs::Permissions::from_mode(0o640)).unwrap();
        fixture.conf.apply(RESOLVER).unwrap();
        let servers: Vec<String> = fixture
            .content()
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect();
        assert_eq!(
            servers,
            [
                "nameserver 127.0.0.77",
                "search corp.example",
                "options ndots:2"
            ]
        );
        assert!(fixture.conf.is_in_place().unwrap());
        assert_eq!(
            fs::metadata(&fixture.conf.file).unwrap().mode() & 0o777,
            0o640
        );
        assert_eq!(
            fs::metadata(&fixture.conf.state).unwrap().mode() & 0o777,
            0o600
        );
        assert_eq!(fixture.conf.restore().unwrap(), Restored::Yes);
        assert_eq!(fixture.content(), EARLIER);
        assert_eq!(fixture.conf.restore().unwrap(), Restored::Nothing);
        assert!(!fixture.conf.is_in_place().unwrap());
        assert_eq!(fixture.files(), ["resolv.conf"]);
    }

    #[test]
    fn what_a_killed_process_left_is_restored_first() {
        let fixture = Fixture::new();
        fixture.conf.apply(RESOLVER).unwrap();
        let next = ResolvConf::new(&fixture.conf.file, &fixture.conf.state);
        next.apply([127, 0, 0, 78].into()).unwrap();
        assert!(fixture.content().contains("127.0.0.78"));
        assert_eq!(next.restore().unwrap(), Restored::Yes);
        assert_eq!(fixture.content(), EARLIER);
    }

    #[test]
    fn a_process_killed_before_the_file_changed_leaves_it() {
        let fixture = Fixture::new();
        fixture.conf.apply(RESOLVER).unwrap();
        fs::write(&fixture.conf.file, EARLIER).unwrap();
        assert_eq!(fixture.conf.restore().unwrap(), Restored::Nothing);
        assert_eq!(fixture.files(), ["resolv.conf"]);
    }

    #[test]
    fn what_others_wrote_stays() {
        let fixture = Fixture::new();
        fixture.conf.apply(RESOLVER).unwrap();
        fs::write(&fixture.conf.file, "nameserver 198.51.100.1\n").unwrap();
        assert!(!fixture.conf.is_in_place().unwrap());
        assert_eq!(fixture.conf.restore().unwrap(), Restored::ChangedByOthers);
        assert_eq!(fixture.content(), "nameserver 198.51.100.1\n");
        assert_eq!(fixture.files(), ["resolv.conf"]);
    }

    #[test]
    fn a_symbolic_link_stays_and_its_target_comes_back() {
        let fixture = Fixture::new();
        let link = fixture.path("link");
        std::os::unix::fs::symlink("resolv.conf", fixture.path("middle")).unwrap();
        std::os::unix::fs::symlink(fixture.path("middle"), &link).unwrap();
        let conf = ResolvConf::new(&link, fixture.path("state"));
        conf.apply(RESOLVER).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fixture.content().contains("127.0.0.77"));
        assert!(conf.is_in_place().unwrap());
        // Others make the link lead elsewhere: the file is no longer in place, but comes back.
        fs::remove_file(&link).unwrap();
        fs::write(&link, "nameserver 198.51.100.1\n").unwrap();
        assert!(!conf.is_in_place().unwrap());
        assert_eq!(conf.restore().unwrap(), Restored::Yes);
        assert_eq!(fixture.content(), EARLIER);
        assert_eq!(
            fs::read_to_string(&link).unwrap(),
            "nameserver 198.51.100.1\n"
        );
    }

    #[test]
    fn a_file_that_did_not_exist_vanishes_again() {
        let fixture = Fixture::new();
        fs::remove_file(&fixture.conf.file).unwrap();
        fixture.conf.apply(RESOLVER).unwrap();
        assert!(fixture.content().contains("127.0.0.77"));
        assert_eq!(fixture.conf.restore().unwrap(), Restored::Yes);
        assert_eq!(fixture.files(), [""; 0]);
    }

    #[test]
    fn files_that_cannot_be_kept_are_left_alone() {
        let fixture = Fixture::new();
        fs::write(&fixture.conf.file, [0xff, 0xfe]).unwrap();
        let error = fixture.conf.apply(RESOLVER).unwrap_err();
        assert!(matches!(error, ResolvConfError::Unusual(_)), "{error}");
        fs::write(&fixture.conf.file, EARLIER).unwrap();
        let nowhere = ResolvConf::new(&fixture.conf.file, fixture.path("missing/state"));
        let error = nowhere.apply(RESOLVER).unwrap_err();
        assert!(matches!(error, ResolvConfError::Write(..)), "{error}");
        assert_eq!(fixture.content(), EARLIER);
        std::os::unix::fs::symlink("loop", fixture.path("loop")).unwrap();
        let endless = ResolvConf::new(fixture.path("loop"), fixture.path("state"));
        assert!(matches!(
            endless.apply(RESOLVER),
            Err(ResolvConfError::Unusual(_))
        ));
        assert_eq!(fixture.files(), ["loop", "resolv.conf"]);
    }

    #[test]
    fn a_damaged_state_file_is_reported_and_changes_nothing() {
        let fixture = Fixture::new();
        fs::write(&fixture.conf.state, "{").unwrap();
        for error in [
            fixture.conf.apply(RESOLVER).unwrap_err(),
            fixture.conf.restore().unwrap_err(),
        ] {
            assert!(matches!(error, ResolvConfError::BadState(_)), "{error}");
        }
        assert_eq!(fixture.content(), EARLIER);
    }
}
