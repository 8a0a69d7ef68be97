//! Sockets that are bound to the addresses of remotes, and send their answers.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sumlink_exit::recent::Recent;
use sumlink_exit::udp_io::{UdpIo, UdpOptions};
use sumlink_transport::descriptors;
use tokio::time::Instant;

/// Time without an answer after which a socket is closed. Opening it again takes microseconds.
const IDLE: Duration = Duration::from_secs(60);

/// Most sockets.
const MAX: usize = 4096;

/// The sockets, at most 4096 or an eighth of the process's descriptors. The one used least recently
/// makes room for another.
#[derive(Debug)]
pub(super) struct Answers {
    sockets: Mutex<Recent<SocketAddr, (Arc<UdpIo>, Instant)>>,
    most: usize,
}

impl Answers {
    fn new(most: usize) -> Self {
        Self {
            sockets: Mutex::default(),
            most: most.max(1),
        }
    }

    /// The socket with the address of `remote`. It receives nothing: datagrams to the remote go to
    /// the port.
    pub(super) fn socket(&self, remote: SocketAddr) -> io::Result<Arc<UdpIo>> {
        let now = Instant::now();
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((io, last)) = sockets.touch(&remote) {
            *last = now;
            return Ok(Arc::clone(io));
        }
        while sockets.len() >= self.most {
            sockets.pop_oldest();
        }
        let options = UdpOptions {
            transparent: true,
            ..UdpOptions::default()
        };
        let io = Arc::new(UdpIo::bind_family(remote, options)?);
        sockets.insert(remote, (Arc::clone(&io), now));
        Ok(io)
    }

    /// Closes idle sockets.
    pub(super) fn expire(&self, now: Instant) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = |last: Instant| now.saturating_duration_since(last) >= IDLE;
        while sockets
            .oldest()
            .is_some_and(|(_, (_, last))| is_idle(*last))
        {
            sockets.pop_oldest();
        }
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self::new(MAX.min(descriptors::for_streams() / 6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sockets_are_bounded_and_closed_when_idle() {
        let answers = Answers::new(2);
        // Addresses of this machine, which need no permission to be bound.
        let remote = |last: u8| SocketAddr::from(([127, 0, 0, last], 0));
        let open = |answers: &Answers| answers.sockets.lock().unwrap().len();
        let first = match answers.socket(remote(1)) {
            Ok(first) => first,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                eprintln!("skipped: transparent sockets are not permitted");
                return;
            }
        };
        assert!(Arc::ptr_eq(&first, &answers.socket(remote(1)).unwrap()));
        answers.socket(remote(2)).unwrap();
        answers.socket(remote(1)).unwrap();
        answers.socket(remote(3)).unwrap();
        assert_eq!(open(&answers), 2);
        assert!(Arc::ptr_eq(&first, &answers.socket(remote(1)).unwrap()));
        tokio::time::advance(IDLE / 2).await;
        answers.socket(remote(3)).unwrap();
        answers.expire(Instant::now());
        assert_eq!(open(&answers), 2);
        tokio::time::advance(IDLE / 2).await;
        answers.expire(Instant::now());
        assert_eq!(open(&answers), 1);
        tokio::time::advance(IDLE / 2).await;
        answers.expire(Instant::now());
        assert_eq!(open(&answers), 0);
    }
}
