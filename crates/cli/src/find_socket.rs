//! Finds the control socket if none is named: that of the only sumlink service that runs here.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::control::ControlError;

/// Folder of the runtime directories of systemd units.
const RUN: &str = "/run";

/// Sockets of the units that run this program, below that folder.
pub(crate) const SOCKETS: &[&str] = &[
    "sumlink-client/control.sock",
    "sumlink-server/control.sock",
    "sumlink/gateway.sock",
];

/// The socket of a gateway; a link to it if it is named otherwise.
pub(crate) const GATEWAY: &[&str] = &["sumlink/gateway.sock"];

/// The path of that socket.
pub(crate) fn of_gateway() -> PathBuf {
    Path::new(RUN).join(GATEWAY[0])
}

/// The socket, and whether it was searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The socket.
    pub path: PathBuf,
    /// Whether it was found by searching.
    pub is_guess: bool,
}

/// The named socket, or that of the running service, one of `sockets` below `/run`.
///
/// # Errors
///
/// No service runs, or several do.
pub fn socket(named: Option<&Path>, sockets: &[&str]) -> Result<Found, ControlError> {
    match named {
        Some(path) => Ok(Found {
            path: path.to_owned(),
            is_guess: false,
        }),
        None => below(Path::new(RUN), sockets),
    }
}

fn below(run: &Path, sockets: &[&str]) -> Result<Found, ControlError> {
    let all: Vec<PathBuf> = sockets.iter().map(|socket| run.join(socket)).collect();
    let running: Vec<PathBuf> = all.iter().filter(|path| is_alive(path)).cloned().collect();
    match running.as_slice() {
        [path] => Ok(Found {
            path: path.clone(),
            is_guess: true,
        }),
        [] => Err(ControlError::NoService(all)),
        _ => Err(ControlError::Several(running)),
    }
}

/// Whether a process listens there, or may: a socket that this user may not open counts as alive.
fn is_alive(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_only_service_is_found_and_several_are_an_error() {
        let run = tempfile::tempdir().unwrap();
        for socket in SOCKETS {
            std::fs::create_dir(run.path().join(socket).parent().unwrap()).unwrap();
        }
        let none = below(run.path(), SOCKETS).unwrap_err().to_string();
        assert!(none.contains("sumlink-client/control.sock") && none.contains("--control"));
        // A socket left by a dead process does not count.
        drop(UnixListener::bind(run.path().join(SOCKETS[0])).unwrap());
        let server = UnixListener::bind(run.path().join(SOCKETS[1])).unwrap();
        let found = below(run.path(), SOCKETS).unwrap();
        assert_eq!(
            (found.path, found.is_guess),
            (run.path().join(SOCKETS[1]), true)
        );
        std::fs::remove_file(run.path().join(SOCKETS[0])).unwrap();
        let client = UnixListener::bind(run.path().join(SOCKETS[0])).unwrap();
        let several = below(run.path(), SOCKETS).unwrap_err().to_string();
        assert!(
            several.contains("sumlink-server") && several.contains("sumlink-client"),
            "{several}"
        );
        assert!(
            several.contains("--control") && !several.contains("sumlink-edge"),
            "{several}"
        );
        drop((server, client));
        let named = Path::new("/nowhere/x.sock");
        assert_eq!(socket(Some(named), SOCKETS).unwrap().path, named);
    }
}
