//! The services of the packages: their files, users and stores.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{User, geteuid};
use sumlink_util::plain;

use super::files::Draft;
use super::init::Init;
use super::machine::HOME;
use super::template;
use crate::error::{CliError, Failure};
use crate::exit::Exit;

/// The store of clients of the service, in the folder that its unit creates.
const STORE: &str = "/var/lib/sumlink-server/clients.db";

/// The side to set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

impl Role {
    /// The verb that runs it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    /// The commented example.
    pub(super) fn example(self) -> &'static str {
        match self {
            Self::Client => template::CLIENT,
            Self::Server => template::SERVER,
        }
    }

    /// The service and its user.
    fn service(self) -> &'static str {
        match self {
            Self::Client => "sumlink-client",
            Self::Server => "sumlink-server",
        }
    }

    /// For root, the service's file if the packages' folder exists; else one in the current folder.
    pub(super) fn default_file(self) -> PathBuf {
        let name = format!("{}.toml", self.name());
        match geteuid().is_root() && Path::new(HOME).is_dir() {
            true => Path::new(HOME).join(name),
            false => PathBuf::from(name),
        }
    }
}

/// Where a configuration belongs.
#[derive(Clone, Debug)]
pub(super) struct Place {
    role: Role,
    file: PathBuf,
    /// Whether the service reads this file.
    pub(super) is_of_service: bool,
    /// The program that starts the service; `None` for other files, or if the service is missing.
    init: Option<Init>,
}

impl Place {
    /// The place of this file on this machine.
    pub(super) fn of(role: Role, file: &Path) -> Self {
        let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        if absolute != Path::new(HOME).join(format!("{}.toml", role.name())) {
            return Self::new(role, file, false, None);
        }
        let init = Init::of_machine(role.service());
        // In a container with the package, the service exists, and nothing starts it.
        let is_of_service = init.is_some() || user(role.service()).is_some();
        Self::new(role, file, is_of_service, init)
    }

    /// Whether the server of this file may have a port below 1024, as far as its service decides:
    /// only systemd's gives it the capability.
    pub(super) fn may_bind_low_ports(&self) -> bool {
        !self.is_of_service || matches!(self.init, None | Some(Init::Systemd))
    }

    /// The place of a file that the service reads or not, and the program that starts the service.
    pub(super) fn new(role: Role, file: &Path, is_of_service: bool, init: Option<Init>) -> Self {
        Self {
            role,
            file: file.to_owned(),
            is_of_service,
            init,
        }
    }

    /// The service, if this machine can start it with the file.
    pub(super) fn service(&self) -> Option<&'static str> {
        self.init.map(|_| self.role.service())
    }

    /// The store of clients of a server with this file; `None` if the user must name it, because
    /// OpenWrt keeps its state in memory.
    pub(super) fn default_store(&self) -> Option<&'static str> {
        match (self.is_of_service, self.init) {
            (true, Some(Init::Procd)) => None,
            (true, _) => Some(STORE),
            (false, _) => Some("clients.db"),
        }
    }

    /// Warns of a store that the service may not write.
    pub(super) fn warn_of_store(&self, store: &Path) -> Option<String> {
        let own = Path::new(STORE).parent()?;
        (self.init == Some(Init::Systemd) && !store.starts_with(own)).then(|| {
            format!(
                "the service may write below {} only, and the store of clients is {}",
                own.display(),
                store.display()
            )
        })
    }

    /// Gives new files of root to the service: the key to its user, the configuration to root and
    /// its group. Returns why that is not possible.
    pub(super) fn give(&self, key: Option<&Draft>, config: Option<&Draft>) -> Option<String> {
        if !(self.is_of_service && geteuid().is_root()) {
            return None;
        }
        let Some(user) = user(self.role.service()) else {
            return Some(format!(
                "there is no user {}, so the files belong to root: if the service is installed, \
                 run systemd-sysusers, then chown them",
                self.role.service()
            ));
        };
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        let key = key.map_or(Ok(()), |key| key.give(0o600, Some(uid), Some(gid)));
        let config = config.map_or(Ok(()), |config| config.give(0o640, Some(0), Some(gid)));
        let error = key.and(config).err()?;
        Some(format!(
            "cannot give the files to the user {}: {}",
            self.role.service(),
            plain(error)
        ))
    }

    /// Warns of an existing key that the service cannot read.
    pub(super) fn warn_of_key(&self, key: &Path) -> Option<String> {
        let user = user(self.role.service()).filter(|_| self.is_of_service)?;
        let owner = std::fs::metadata(key).ok()?.uid();
        (owner != user.uid.as_raw()).then(|| {
            format!(
                "the service {0} cannot read the key: run `chown {0}: {1}`",
                self.role.service(),
                key.display()
            )
        })
    }

    /// The command that starts the service, or else runs the program in the foreground; `again` if
    /// the service may run with another configuration.
    pub(super) fn command(&self, again: bool) -> String {
        match self.init {
            Some(init) => init.command(self.role.service(), again),
            None => format!(
                "sumlink {} --config {}",
                self.role.name(),
                self.file.display()
            ),
        }
    }

    /// Starts the service now and at boot; `again` if it may run with another configuration.
    ///
    /// # Errors
    ///
    /// A command failed, or no service reads the file.
    pub(super) fn start(&self, again: bool) -> Result<(), CliError> {
        let Some(init) = self.init else {
            let reason = format!(
                "not started: no service of this machine reads {}",
                self.file.display()
            );
            return Err(Failure::new(Exit::Other, reason).into());
        };
        init.start(self.role.service(), again)
    }
}

/// The user of a service; the packages create it.
fn user(service: &str) -> Option<User> {
    User::from_name(service).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_units_file_is_of_the_service() {
        for other in ["/etc/sumlink/home.toml", "client.toml", "/srv/client.toml"] {
            let place = Place::of(Role::Client, Path::new(other));
            assert!(!place.is_of_service, "{other}");
            assert_eq!(place.service(), None);
            let command = format!("sumlink client --config {other}");
            assert_eq!(
                (place.command(false), place.command(true)),
                (command.clone(), command)
            );
            let error = place.start(false).unwrap_err();
            assert_eq!(error.code(), 1);
            let reason = format!("not started: no service of this machine reads {other}");
            assert_eq!(error.to_string(), reason);
        }
        let server = Place::of(Role::Server, Path::new("/etc/sumlink/client.toml"));
        assert!(!server.is_of_service);
        assert_eq!(server.default_store(), Some("clients.db"));
    }

    #[test]
    fn each_init_has_its_commands() {
        let file = Path::new("/etc/sumlink/server.toml");
        let place = |init| Place::new(Role::Server, file, true, Some(init));
        for (init, start, restart) in [
            (
                Init::Systemd,
                "systemctl enable --now sumlink-server.service",
                "systemctl enable sumlink-server.service && \
                 systemctl restart sumlink-server.service",
            ),
            (
                Init::OpenRc,
                "rc-update add sumlink-server && rc-service sumlink-server start",
                "rc-update add sumlink-server && rc-service sumlink-server restart",
            ),
            (
                Init::Procd,
                "/etc/init.d/sumlink-server enable && /etc/init.d/sumlink-server start",
                "/etc/init.d/sumlink-server enable && /etc/init.d/sumlink-server restart",
            ),
        ] {
            assert_eq!(place(init).command(false), start);
            assert_eq!(place(init).command(true), restart);
        }
        assert_eq!(place(Init::Systemd).default_store(), Some(STORE));
        assert_eq!(place(Init::Procd).default_store(), None);
        let warned = |store| place(Init::Systemd).warn_of_store(Path::new(store));
        assert_eq!(warned(STORE), None);
        assert!(warned("/srv/clients.db").is_some());
        assert_eq!(place(Init::OpenRc).warn_of_store(Path::new("/srv/x")), None);
    }
}
