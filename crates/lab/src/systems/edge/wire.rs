//! The wire between the server and its edge node, as between separate hosts.
//!
//! ```text
//! server's TCP -- far0 == an emulated link == near0 -- forwarded -- edge0 -- node
//! ```
//!
//! All of it is in the server's namespace. Rules route packets from the server to users over the
//! wire first, and likewise packets from the node to the server. They take precedence over the
//! table of local addresses, which would otherwise come first.

use std::fs;
use std::time::Duration;

use sumlink_settings::units::format_duration;

use crate::MTU;
use crate::emulator::Emulator;
use crate::error::LabError;
use crate::topology::{SERVER_V4, Side, TX_QUEUE};
use crate::tun::Tun;

use super::super::Stage;
use super::USERS;

/// The devices at its ends: the server's and the node's.
const ENDS: [&str; 2] = ["far0", "near0"];

/// Sets up the wire; it exists until the returned value is dropped.
pub(super) fn lay(stage: &Stage<'_>, delay: Duration) -> Result<Emulator, LabError> {
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
            // Packets from the wire have a local source address.
            (format!("conf/{near}/accept_local"), "1"),
            // Linux does not forward packets for which it finds a socket on arrival.
            ("ip_early_demux".to_owned(), "0"),
        ];
        settings.iter().try_for_each(|(key, value)| {
            let path = format!("/proc/sys/net/ipv4/{key}");
            fs::write(&path, value).map_err(LabError::file(path))
        })
    };
    stage.lab.run(Side::Server, set)??;
    // As fast as the emulator can go packet by packet, with space for any window.
    let wire = format!(
        "wire:rate=2500mbit,queue=50ms,delay={}",
        format_duration(delay)
    );
    stage.lab.emulate(wire.parse()?, ends)
}
