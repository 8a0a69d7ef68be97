//! The services of the packages: their files and users, and the commands that start them.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{User, geteuid};
use sumlink_util::plain;

use super::files::Draft;
use super::template;
use crate::exit::{CliError, Exit, Failure};

/// Folder of the services' configurations and keys; the packages create it.
const HOME: &str = "/etc/sumlink";

/// The store of clients of the service, in the folder that its unit creates.
const STORE: &str = "/var/lib/sumlink-server/clients.db";

/// Folders of programs that are often outside the PATH of an ordinary user.
const MORE_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// The side that is set up.
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

    /// The service's file for root, if the packages' folder exists; else one in the current folder.
    pub(super) fn default_file(self) -> PathBuf {
        let name = format!("{}.toml", self.name());
        match geteuid().is_root() && Path::new(HOME).is_dir() {
            true => Path::new(HOME).join(name),
            false => PathBuf::from(name),
        }
    }
}

/// A program that starts services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Init {
    Systemd,
    OpenRc,
    Procd,
}

/// Where a configuration belongs.
#[derive(Clone, Debug)]
pub(super) struct Place {
    role: Role,
    file: PathBuf,
    /// Whether the service reads this file.
    pub(super) is_of_service: bool,
    /// The starter of the service; absent for a file of its own.
    init: Option<Init>,
}

impl Place {
    /// The place of this file on this machine.
    pub(super) fn of(role: Role, file: &Path) -> Self {
        let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let is_of_service = absolute == Path::new(HOME).join(format!("{}.toml", role.name()));
        let init = match is_of_service {
            true => Init::of_machine(role.service()),
            false => None,
        };
        Self {
            role,
            file: file.to_owned(),
            is_of_service,
            init,
        }
    }

    /// The service, if a program of this machine can start it with the file.
    pub(super) fn service(&self) -> Option<&'static str> {
        self.init.map(|_| self.role.service())
    }

    /// The store of clients of a server with this file; `None` if it must be named. OpenWrt has
    /// its state in memory.
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

    /// Gives new files to the service, if root makes them there: the key to its user, and the
    /// configuration to root and its group. Returns why that is not possible.
    pub(super) fn give(&self, key: Option<&Draft>, config: Option<&Draft>) -> Option<String> {
        if !(self.is_of_service && geteuid().is_root()) {
            return None;
        }
        let Some(user) = self.user() else {
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
        let user = self.user().filter(|_| self.is_of_service)?;
        let owner = std::fs::metadata(key).ok()?.uid();
        (owner != user.uid.as_raw()).then(|| {
            format!(
                "the service {0} cannot read the key: chown {0}: {1}",
                self.role.service(),
                key.display()
            )
        })
    }

    fn user(&self) -> Option<User> {
        User::from_name(self.role.service()).ok().flatten()
    }

    /// The command that starts the service, or else the program with the file in the foreground.
    pub(super) fn command(&self) -> String {
        match self.init {
            Some(init) => {
                let commands = init.commands(self.role.service(), false);
                let lines: Vec<String> = commands.iter().map(|words| words.join(" ")).collect();
                lines.join(" && ")
            }
            None => format!(
                "sumlink {} --config {}",
                self.role.name(),
                self.file.display()
            ),
        }
    }

    /// Starts the service now and at boot; `again` if it may run with another configuration.
    /// Returns whether there is one.
    pub(super) fn start(&self, again: bool) -> Result<bool, CliError> {
        let Some(init) = self.init else {
            return Ok(false);
        };
        for words in init.commands(self.role.service(), again) {
            run(&words)?;
        }
        Ok(true)
    }
}

impl Init {
    /// The one of this machine.
    fn of_machine(service: &str) -> Option<Self> {
        if Path::new("/run/systemd/system").is_dir() {
            return Some(Self::Systemd);
        }
        if is_program("rc-service") {
            return Some(Self::OpenRc);
        }
        let script = Path::new("/etc/init.d").join(service);
        (is_program("procd") && script.exists()).then_some(Self::Procd)
    }

    /// The commands that start a service now and at boot, or start it again.
    fn commands(self, service: &str, again: bool) -> Vec<Vec<String>> {
        let start = if again { "restart" } else { "start" };
        let lines = match (self, again) {
            (Self::Systemd, false) => vec![format!("systemctl enable --now {service}.service")],
            (Self::Systemd, true) => vec![
                format!("systemctl enable {service}.service"),
                format!("systemctl restart {service}.service"),
            ],
            (Self::OpenRc, _) => vec![
                format!("rc-update add {service}"),
                format!("rc-service {service} {start}"),
            ],
            (Self::Procd, _) => vec![
                format!("/etc/init.d/{service} enable"),
                format!("/etc/init.d/{service} {start}"),
            ],
        };
        let words = |line: &String| line.split(' ').map(str::to_owned).collect();
        lines.iter().map(words).collect()
    }
}

/// Folders in which programs are searched.
fn path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:{MORE_PATH}")
}

fn is_program(name: &str) -> bool {
    std::env::split_paths(&path()).any(|folder| folder.join(name).is_file())
}

/// Runs a command; its failure is one line.
fn run(words: &[String]) -> Result<(), CliError> {
    let line = words.join(" ");
    let failed = |reason: String| {
        let reason = format!("the files are written, but `{line}` failed: {reason}");
        CliError::from(Failure::new(Exit::Other, reason))
    };
    let Some((program, arguments)) = words.split_first() else {
        return Ok(());
    };
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", path())
        .stdin(std::process::Stdio::null())
        .output();
    let output = output.map_err(|error: io::Error| failed(plain(error).to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.trim().lines().next().unwrap_or_default();
    Err(failed(match complaint {
        "" => output.status.to_string(),
        complaint => complaint.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_units_file_is_of_the_service() {
        let place = Place::of(Role::Client, Path::new("/etc/sumlink/client.toml"));
        assert!(place.is_of_service);
        for other in ["/etc/sumlink/home.toml", "client.toml", "/srv/client.toml"] {
            let place = Place::of(Role::Client, Path::new(other));
            assert!(!place.is_of_service, "{other}");
            assert_eq!(place.service(), None);
            assert_eq!(place.command(), format!("sumlink client --config {other}"));
            assert!(!place.start(false).unwrap());
        }
        let server = Place::of(Role::Server, Path::new("/etc/sumlink/client.toml"));
        assert!(!server.is_of_service);
        assert_eq!(server.default_store(), Some("clients.db"));
    }

    #[test]
    fn each_init_has_its_commands() {
        let place = |init| Place {
            role: Role::Server,
            file: PathBuf::from("/etc/sumlink/server.toml"),
            is_of_service: true,
            init: Some(init),
        };
        assert_eq!(
            place(Init::Systemd).command(),
            "systemctl enable --now sumlink-server.service"
        );
        assert_eq!(
            place(Init::OpenRc).command(),
            "rc-update add sumlink-server && rc-service sumlink-server start"
        );
        assert_eq!(
            place(Init::Procd).command(),
            "/etc/init.d/sumlink-server enable && /etc/init.d/sumlink-server start"
        );
        assert_eq!(
            Init::OpenRc.commands("x", true)[1],
            ["rc-service", "x", "restart"]
        );
        assert_eq!(place(Init::Systemd).default_store(), Some(STORE));
        assert_eq!(place(Init::Procd).default_store(), None);
        let warned = |store| place(Init::Systemd).warn_of_store(Path::new(store));
        assert_eq!(warned(STORE), None);
        assert!(warned("/srv/clients.db").is_some());
        assert_eq!(place(Init::OpenRc).warn_of_store(Path::new("/srv/x")), None);
    }

    #[test]
    fn a_command_that_fails_is_one_line() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        assert!(run(&words("true")).is_ok());
        let error = run(&words("false")).unwrap_err().to_string();
        assert!(error.contains("`false` failed: "), "{error}");
        let error = run(&words("sumlink-no-such-program x")).unwrap_err();
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}
