//! The TCP of the hosts at both ends, by the kernel's settings of their namespaces.

use std::fs;

use sumlink_scenario::edge::Hosts;

use crate::error::LabError;
use crate::laboratory::Lab;
use crate::topology::Side;

/// Where they are.
const FOLDER: &str = "/proc/sys/net/ipv4";

/// No SACK: losses by duplicates.
const NO_SACK: [(&str, &str); 1] = [("tcp_sack", "0")];

/// A reduction that was wrong stays, and reordering that was seen makes nobody more patient.
const NO_UNDO: [(&str, &str); 5] = [
    // How many duplicates may at most become needed for a loss: as many as at first.
    ("tcp_max_reordering", "3"),
    // What came twice is not told, which would prove that it was sent again for nothing.
    ("tcp_dsack", "0"),
    // Nor does an echo tell that the first one arrived.
    ("tcp_timestamps", "0"),
    // Nor is a timeout doubted (RFC 5682).
    ("tcp_frto", "0"),
    // Losses by duplicates and not by time (RACK), where a kernel can still do without; Linux 6.18 cannot.
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

/// Makes the hosts' TCP what is asked for, for all connections that begin after it.
pub(crate) fn set(lab: &Lab, hosts: Hosts) -> Result<(), LabError> {
    for side in [Side::Client, Side::Server] {
        lab.run(side, move || {
            settings(hosts).into_iter().try_for_each(|(key, value)| {
                let path = format!("{FOLDER}/{key}");
                fs::write(&path, value).map_err(LabError::file(path))
            })
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
