//! The process's limit on file descriptors, and the share of it for streams.
//!
//! Each stream takes one descriptor at the client, for the local program's connection, and one at
//! the server, for the target's. Without a limit on streams, a few programs or clients could leave
//! no descriptors for carriers.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit. The usual soft limit of 1024 is meant for programs that
/// use select(2).
pub fn raise() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::debug!(%error, "the limit on open files stays at {soft}");
    }
}

/// Maximum number of streams with a socket: three quarters of the descriptor limit, at most 65536.
pub fn for_streams() -> usize {
    streams_of(limit())
}

/// Maximum number of connections that have not proved a key: one eighth of the descriptor limit.
pub(crate) fn for_strangers() -> usize {
    strangers_of(limit())
}

/// The soft limit of `RLIMIT_NOFILE`; POSIX's minimum if it cannot be read.
fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(20, |(soft, _)| soft)
}

/// The highest number that a session can be configured for, far above the number that programs on
/// one machine open.
const MAX: u64 = 1 << 16;

fn streams_of(limit: u64) -> usize {
    (limit - limit / 4).clamp(1, MAX) as usize
}

fn strangers_of(limit: u64) -> usize {
    (limit / 8).clamp(2, MAX) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_strangers_leave_descriptors_for_carriers() {
        for limit in [16, 256, 1024, 65536, 1 << 20, u64::MAX] {
            let (streams, strangers) = (streams_of(limit) as u64, strangers_of(limit) as u64);
            assert!(streams + strangers <= limit - limit / 8, "{limit}");
        }
        assert_eq!(streams_of(1024), 768);
        assert_eq!(streams_of(1 << 20), 65536);
        assert!(for_streams() > 0 && for_strangers() > 0);
    }
}
