//! Which control socket is meant where none is named: that of the one sumlink that runs as a service here.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::control::ControlError;

/// Where the systemd units have their runtime directories.
const RUN: &str = "/run";

/// The units' sockets below it.
const SOCKETS: [&str; 3] = [
    "sumlink-client/control.sock",
    "sumlink-server/control.sock",
    "sumlink-edge/control.sock",
];

/// The socket to ask, and whether it had to be looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) is_guess: bool,
}

/// The socket that was named, or else that of the service that runs.
///
/// # Errors
///
/// No service runs, or several do.
pub(crate) fn socket(named: Option<&Path>) -> Result<Found, ControlError> {
    match named {
        Some(path) => Ok(Found {
            path: path.to_owned(),
            is_guess: false,
        }),
        None => below(Path::new(RUN)),
    }
}

fn below(run: &Path) -> Result<Found, ControlError> {
    let all = SOCKETS.map(|socket| run.join(socket));
    let running: Vec<PathBuf> = all.iter().filter(|path| is_alive(path)).cloned().collect();
    match running.as_slice() {
        [path] => Ok(Found {
            path: path.clone(),
            is_guess: true,
        }),
        [] => Err(ControlError::NoService(all.to_vec())),
        _ => Err(ControlError::Several(running)),
    }
}

/// Whether somebody listens there, or may do so: of a socket that others may not open nobody knows.
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
    fn the_only_service_is_found_and_of_several_one_must_be_named() {
        let run = tempfile::tempdir().unwrap();
        for socket in SOCKETS {
            std::fs::create_dir(run.path().join(socket).parent().unwrap()).unwrap();
        }
        let none = below(run.path()).unwrap_err().to_string();
        assert!(none.contains("sumlink-edge/control.sock") && none.contains("--control"));
        // What a dead process has left is none.
        drop(UnixListener::bind(run.path().join(SOCKETS[0])).unwrap());
        let server = UnixListener::bind(run.path().join(SOCKETS[1])).unwrap();
        let found = below(run.path()).unwrap();
        assert_eq!(
            (found.path, found.is_guess),
            (run.path().join(SOCKETS[1]), true)
        );
        let edge = UnixListener::bind(run.path().join(SOCKETS[2])).unwrap();
        let several = below(run.path()).unwrap_err().to_string();
        assert!(
            several.contains("sumlink-server") && several.contains("sumlink-edge"),
            "{several}"
        );
        assert!(
            several.contains("--control") && !several.contains("sumlink-client"),
            "{several}"
        );
        drop((server, edge));
        let named = Path::new("/nowhere/x.sock");
        assert_eq!(socket(Some(named)).unwrap().path, named);
    }
}
