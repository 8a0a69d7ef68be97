//! What happens when a carrier joins a session.

use sumlink_engine::{PathId, Session};

use crate::Instant;

/// Paths that a client brings into a session at most.
pub const CLIENT_PATHS: usize = 256;

/// Paths of one session that a server takes at most, unless its configuration gives another number.
pub const SERVER_PATHS: usize = 32;

/// The path that has to leave because the session is full and a new carrier has just shown that its
/// link works: the one that has been of no use for longest.
///
/// `is_known` says that the carrier's number is that of another path, `count` is the number of carriers.
pub fn makes_room(
    session: &Session,
    is_known: bool,
    count: usize,
    most: usize,
    now: Instant,
) -> Option<PathId> {
    let is_full = session.check_path().is_err() || count >= most;
    match is_full && !is_known {
        true => session.most_useless_path(now),
        false => None,
    }
}

/// Why a carrier cannot become a path; nothing if it can.
pub fn refusal(session: &Session, is_known: bool, count: usize, most: usize) -> Option<String> {
    match session.check_path() {
        _ if is_known => Some("its number is that of another path".to_owned()),
        Err(refused) => Some(refused.to_string()),
        Ok(()) if count >= most => Some("the session has too many paths".to_owned()),
        Ok(()) => None,
    }
}
