//! The listening end of the control socket, and its file.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use super::error::ControlError;
use super::{Controlled, serve};

/// The listening end; dropping it removes the socket file.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of this socket, so that a socket that replaced it is not removed.
    identity: (u64, u64),
}

impl ControlSocket {
    /// Creates the socket and replaces one that a dead process has left.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        clear_stale(path)?;
        let create = |reason| ControlError::Create {
            path: path.to_owned(),
            reason,
        };
        // The mode is set between bind and listen: before listen no connection is possible.
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)
            .map_err(create)?;
        socket
            .bind(&socket2::SockAddr::unix(path).map_err(create)?)
            .map_err(create)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(create)?;
        socket.listen(16).map_err(create)?;
        socket.set_nonblocking(true).map_err(create)?;
        let identity = identity(path).map_err(create)?;
        let listener = UnixListener::from_std(socket.into()).map_err(create)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            identity,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Answers requests without end.
    pub async fn serve(&self, program: impl Controlled) {
        serve::connections(&self.listener, program).await;
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove the control socket");
        }
    }
}

/// Removes the socket of a dead process; any other file is an error.
fn clear_stale(path: &Path) -> Result<(), ControlError> {
    let create = |reason| ControlError::Create {
        path: path.to_owned(),
        reason,
    };
    let metadata = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(create)?,
    };
    if !metadata.file_type().is_socket() {
        return Err(ControlError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(create)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(ControlError::NotPermitted(path.to_owned()))
        }
        _ => Err(ControlError::InUse(path.to_owned())),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = path.symlink_metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_live_socket_is_an_error_and_a_stale_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let living = ControlSocket::bind(&path).unwrap();
        assert!(matches!(
            ControlSocket::bind(&path),
            Err(ControlError::InUse(_))
        ));
        drop(living);
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(
            ControlSocket::bind(&path),
            Err(ControlError::NotASocket(_))
        ));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_socket_that_replaced_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let ours = ControlSocket::bind(&path).unwrap();
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        let theirs = ControlSocket::bind(&path).unwrap();
        drop(ours);
        assert!(path.exists());
        drop(theirs);
    }
}
