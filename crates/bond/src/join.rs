//! Decides what happens when a carrier joins a session.

use sumlink_engine::{PathId, Session};

use crate::Instant;

/// Maximum number of paths that a client brings into a session.
pub const CLIENT_PATHS: usize = 256;

/// Default maximum number of paths per session at a server.
pub const SERVER_PATHS: usize = 32;

/// The path that has to leave because the session is full and a new carrier has just shown that its
/// link works: the one that has been stalled for the longest time.
///
/// `is_known` says that the carrier's number belongs to another path, `count` is the number of
/// carriers.
pub fn path_to_replace(
    session: &Session,
    is_known: bool,
    count: usize,
    most: usize,
    now: Instant,
) -> Option<PathId> {
    let is_full = session.check_path().is_err() || count >= most;
    match is_full && !is_known {
        true => session.longest_stalled_path(now),
        false => None,
    }
}

/// Why a carrier cannot become a path; `None` if it can.
pub fn refusal(session: &Session, is_known: bool, count: usize, most: usize) -> Option<String> {
    match session.check_path() {
        _ if is_known => Some("its number is that of another path".to_owned()),
        Err(refused) => Some(refused.to_string()),
        Ok(()) if count >= most => Some("the session has too many paths".to_owned()),
        Ok(()) => None,
    }
}
