//! The wire between the server and its edge node, as there is one where the node is a host of its own.
//!
//! ```text
//! server's TCP -- far0 == the delay, both ways == near0 -- forwarded -- edge0 -- node
//! ```
//!
//! All of it is in the server's namespace. Rules lead what the server sends to users over the wire first, and what the node hands
//! over for the server as well; so the table of local addresses, which comes first otherwise, is asked later.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::MTU;
use crate::error::LabError;
use crate::topology::{SERVER_V4, Side, TX_QUEUE};
use crate::tun::Tun;

use super::super::Stage;
use super::super::watcher::Watcher;
use super::USERS;

/// The devices at its ends: the server's and the node's.
const ENDS: [&str; 2] = ["far0", "near0"];

/// Packets on it in one direction, at most, for each millisecond: those of 12 Gbit/s.
const MOST_PACKETS: f64 = 1000.0;

/// Packets taken from one device before it is the other one's turn.
const MOST_AT_ONCE: usize = 64;

/// Whether it is over is looked at this often.
const LOOK: Duration = Duration::from_millis(50);

/// Lays it; it is there until what this returns is dropped.
pub(super) fn lay(stage: &Stage<'_>, delay: Duration) -> Result<Watcher, LabError> {
    let open = || ENDS.map(|name| Tun::open(name, false));
    let [far, near] = stage.lab.run(Side::Server, open)?;
    let ends = [far?, near?];
    let [far, near] = ENDS;
    stage.lab.ip_batch(
        Side::Server,
        format!(
            "link set dev {far} mtu {MTU} txqueuelen {TX_QUEUE} up\n\
             link set dev {near} mtu {MTU} txqueuelen {TX_QUEUE} up\n\
             route add default dev {far} table 77\n\
             route add default dev {near} table 78\n\
             rule add pref 10 iif lo to {USERS} lookup 77\n\
             rule add pref 10 iif edge0 to {SERVER_V4}/32 lookup 78\n\
             rule add pref 100 lookup local\n\
             rule del pref 0\n"
        ),
    )?;
    let set = move || {
        let settings = [
            ("ip_forward".to_owned(), "1"),
            // What comes out of the wire is from an address of this very host.
            (format!("conf/{near}/accept_local"), "1"),
            // Linux does not forward what it has found a socket for on its way in.
            ("ip_early_demux".to_owned(), "0"),
        ];
        settings.iter().try_for_each(|(key, value)| {
            let path = format!("/proc/sys/net/ipv4/{key}");
            fs::write(&path, value).map_err(LabError::file(path))
        })
    };
    stage.lab.run(Side::Server, set)??;
    Watcher::run("wire", move |is_over| carry(&ends, delay, is_over))
}

/// One direction of it: packets and when they come out.
type Way = VecDeque<(Instant, Vec<u8>)>;

fn carry(ends: &[Tun; 2], delay: Duration, is_over: &dyn Fn() -> bool) {
    let mut ways = [Way::new(), Way::new()];
    let most = (MOST_PACKETS * (1.0 + delay.as_secs_f64() * 1e3)) as usize;
    let mut lost: u64 = 0;
    let mut buffer = vec![0; 1 << 16];
    while !is_over() {
        let due = ways.iter().filter_map(|way| Some(way.front()?.0)).min();
        let wait = due.map_or(LOOK, |due| due.saturating_duration_since(Instant::now()));
        let mut polled = ends
            .each_ref()
            .map(|end| PollFd::new(end.file().as_fd(), PollFlags::POLLIN));
        let _ = ppoll(&mut polled, Some(TimeSpec::from(wait.min(LOOK))), None);
        for (from, way) in ends.iter().zip(&mut ways) {
            for _ in 0..MOST_AT_ONCE {
                let len = match from.file().read(&mut buffer) {
                    Ok(len) => len,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return tracing::warn!(%error, "the wire to the node ends"),
                };
                if way.len() < most {
                    way.push_back((Instant::now() + delay, buffer[..len].to_vec()));
                } else {
                    lost += 1;
                }
            }
        }
        let now = Instant::now();
        for (to, way) in ends.iter().rev().zip(&mut ways) {
            while way.front().is_some_and(|(due, _)| *due <= now)
                && let Some((_, packet)) = way.pop_front()
            {
                lost += u64::from(to.file().write(&packet).is_err());
            }
        }
    }
    if lost > 0 {
        tracing::warn!(packets = lost, "the wire to the node was too slow");
    }
}
