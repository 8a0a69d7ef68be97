//! TCP settings of the hosts at both ends, set by the sysctls of their namespaces.

use std::fs;

use sumlink_scenario::edge::Hosts;

use crate::error::LabError;
use crate::laboratory::Lab;

/// Directory of the settings.
const FOLDER: &str = "/proc/sys/net/ipv4";

/// No SACK: losses are detected by duplicate acknowledgments.
const NO_SACK: [(&str, &str); 1] = [("tcp_sack", "0")];

/// Congestion window reductions are never undone, and observed reordering does not raise the
/// threshold.
const NO_UNDO: [(&str, &str); 5] = [
    // Maximum number of duplicate acknowledgments that indicate a loss: the initial one.
    ("tcp_max_reordering", "3"),
    // No DSACK, which would reveal spurious retransmissions.
    ("tcp_dsack", "0"),
    // No time stamps: their echo would reveal that the original arrived.
    ("tcp_timestamps", "0"),
    // No F-RTO (RFC 5682), which detects spurious timeouts.
    ("tcp_frto", "0"),
    // Losses are detected by duplicates and not by time (RACK), where the kernel allows it; Linux
    // 6.18 does not.
    ("tcp_recovery", "0"),
];

fn settings(hosts: Hosts) -> Vec<(&'static str, &'static str)> {
    match hosts {
        Hosts::Linux => Vec::new(),
        Hosts::NoSack => NO_SACK.to_vec(),
        Hosts::NoUndo => NO_UNDO.to_vec(),
        Hosts::NewReno => [&NO_SACK[..], &NO_UNDO].concat(),
    }
}

/// Sets the hosts' TCP behavior for all connections that begin later.
pub(crate) fn set(lab: &Lab, hosts: Hosts) -> Result<(), LabError> {
    for side in lab.sides() {
        lab.run(*side, move || {
            settings(hosts).into_iter().try_for_each(|(key, value)| {
                let path = format!("{FOLDER}/{key}");
                fs::write(&path, value).map_err(LabError::file(path))
            })
        })??;
    }
    Ok(())
}

/// Initial size of a receive buffer, which the kernel then tunes.
const RECEIVE_BUFFER: u64 = 128 << 10;

/// Limits the receive buffers of all sockets that are opened later, MPTCP's included.
pub(crate) fn limit_receive_buffers(lab: &Lab, bytes: u64) -> Result<(), LabError> {
    let value = format!("4096 {} {bytes}", RECEIVE_BUFFER.min(bytes));
    for side in lab.sides() {
        let value = value.clone();
        lab.run(*side, move || {
            let path = format!("{FOLDER}/tcp_rmem");
            fs::write(&path, value).map_err(LabError::file(path))
        })??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_one_of_this_kernel() {
        for (_, hosts) in Hosts::NAMES {
            for (key, _) in settings(hosts) {
                let path = format!("{FOLDER}/{key}");
                assert!(fs::exists(&path).unwrap(), "{path}");
            }
        }
    }
}
