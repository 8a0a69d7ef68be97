//! Sockets from a service manager (sd_listen_fds(3)): they outlive the server, so that clients
//! connecting while it restarts wait instead of being refused.

use listenfd::ListenFd;
use sumlink_transport::{ServerError, Sockets};

use crate::error::CliError;

/// The sockets that this process was started with; `None` if there are none.
///
/// # Errors
///
/// [`ServerError::Adopted`] for anything but one TCP socket, and at most one UDP socket.
pub(crate) fn sockets() -> Result<Option<Sockets>, CliError> {
    let mut given = ListenFd::from_env();
    let wrong = |reason: String| {
        let reason = format!("sockets of the service manager: {reason}");
        Err(ServerError::Adopted(reason).into())
    };
    let (mut tcp, mut udp) = (Vec::new(), Vec::new());
    for index in 0..given.len() {
        if let Ok(Some(socket)) = given.take_tcp_listener(index) {
            tcp.push(socket);
        } else if let Ok(Some(socket)) = given.take_udp_socket(index) {
            udp.push(socket);
        } else {
            let number = index + 1;
            return wrong(format!("number {number} is neither TCP nor UDP over IP"));
        }
    }
    if udp.len() > 1 || tcp.len() > 1 {
        return wrong(format!(
            "{} for TCP and {} for UDP; the server takes one of each",
            tcp.len(),
            udp.len()
        ));
    }
    match (tcp.pop(), udp.pop()) {
        (Some(tcp), udp) => Ok(Some(Sockets { tcp, udp })),
        (None, None) => Ok(None),
        (None, Some(_)) => wrong("one for UDP, and none for TCP".to_owned()),
    }
}
