//! The kernel's MPTCP: every link's client address is an endpoint of a full mesh. Plain, or with
//! the TLS of sumlink's carriers in the traffic programs, for the same level of security. With a
//! selector of sumlink, which makes subflows backups: [`selection`].

mod selection;
mod subflows;

use std::any::Any;
use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sumlink_engine::SelectorConfig;

use crate::config::InterfaceState;
use crate::error::LabError;
use crate::programs;
use crate::scenario::{Scenario, VideoProtocol, Workload};
use crate::topology::Side;
use crate::traffic::{Channel, Route};

use super::{Evidence, Running, Stage, System, keys};
use selection::Account;

pub(super) struct Mptcp {
    tls: bool,
    selector: Option<SelectorConfig>,
    /// The selector's decisions in the current run.
    account: Arc<Mutex<Account>>,
}

impl Mptcp {
    pub(super) fn new(tls: bool, selector: Option<SelectorConfig>) -> Self {
        Self {
            tls,
            selector,
            account: Arc::default(),
        }
    }

    fn channel(&self, stage: &Stage<'_>, side: Side) -> Result<Channel, LabError> {
        Ok(match self.tls {
            true => Channel::Tls(keys::of(stage, side)?),
            false => Channel::Socket,
        })
    }
}

impl System for Mptcp {
    fn missing(&self, scenario: &Scenario) -> Option<String> {
        if !Path::new("/proc/sys/net/mptcp/enabled").exists() {
            return Some("this kernel has no MPTCP".to_owned());
        }
        let is_command = matches!(
            scenario.workload,
            Workload::Command { .. } | Workload::Video(_)
        );
        if is_command && self.tls {
            return Some("TLS is available in the laboratory's own programs only".to_owned());
        }
        if let Workload::Video(video) = &scenario.workload
            && video.protocol == VideoProtocol::Rtmp
        {
            let reason = "the ffmpeg that receives RTMP closes its listening socket, so the kernel \
                          accepts no further subflow";
            return Some(reason.to_owned());
        }
        // Programs without MPTCP support get MPTCP sockets from this wrapper.
        is_command
            .then(|| programs::find("mptcpize").err())
            .flatten()
            .map(|error| error.to_string())
    }

    fn missing_as_gateway(&self) -> Option<String> {
        Some("MPTCP is between hosts: a gateway only forwards its packets".to_owned())
    }

    fn is_mptcp(&self) -> bool {
        true
    }

    fn channel_of_server(&self, stage: &Stage<'_>) -> Result<Channel, LabError> {
        self.channel(stage, Side::Server)
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Running, LabError> {
        let route = Route {
            mptcp: true,
            channel: self.channel(stage, Side::Client)?,
            ..Route::direct(stage.target())
        };
        let mut running = Running::over(route);
        let watcher = selection::start(stage, self.selector.as_ref(), &self.account)?;
        running
            ._beside
            .extend(watcher.map(|watcher| Box::new(watcher) as Box<dyn Any>));
        Ok(running)
    }

    fn evidence(&self, stage: &Stage<'_>, _: &mut Running) -> Result<Evidence, LabError> {
        let counters = stage.lab.run(Side::Client, || {
            let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default();
            parse_counters(&text, "MPTcpExt:")
        })?;
        let count = |name: &str| counters.get(name).copied().unwrap_or(0);
        let connections = count("MPCapableSYNACKRX");
        if connections == 0 {
            return Err(LabError::Failed {
                what: "the connection is not MPTCP: no SYN/ACK with MP_CAPABLE arrived".to_owned(),
                log: String::new(),
            });
        }
        let joined = count("MPJoinSynAckRx");
        let links = stage.links().count() as u64;
        let status = stage.lab.status()?;
        let up = status
            .iter()
            .filter(|link| link.state == InterfaceState::Up);
        let carried = status.iter().flat_map(|link| &link.directions);
        let carried = carried.map(|direction| direction.delivered_bytes).sum();
        if let Some(what) = one_path(joined, up.count(), carried) {
            return Err(LabError::Failed {
                what,
                log: String::new(),
            });
        }
        let mut note = format!(
            "{joined} of {} further subflows joined (MPJoinSynAckRx)",
            connections * links.saturating_sub(1)
        );
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = &account.fault {
            return Err(LabError::Failed {
                what: format!("the selection ended: {reason}"),
                log: String::new(),
            });
        }
        if self.selector.is_some() {
            let (changes, sent) = (account.changes, count("MPPrioTx"));
            let _ = write!(note, "; {changes} changes of backups, {sent} MP_PRIO sent");
        }
        Ok(Evidence {
            // Reinjections are counted in packets, not in bytes: duplicates are unknown.
            rested: account.rested(stage.links()),
            note,
            ..Evidence::default()
        })
    }
}

/// After this number of wire bytes the other subflows have had time to join.
const TIME_TO_JOIN: u64 = 1_000_000;

/// Why a run is not a measurement of several paths, if so. `up` is the number of links that are up
/// at its end.
fn one_path(joined: u64, up: usize, carried: u64) -> Option<String> {
    let is_one = joined == 0 && up > 1 && carried >= TIME_TO_JOIN;
    is_one.then(|| {
        format!("no second subflow joined, although {up} links are up: this was TCP over one path")
    })
}

/// Parses a counter file with two lines for each group: names, then values.
pub(crate) fn parse_counters(text: &str, group: &str) -> HashMap<String, u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return HashMap::new();
    };
    names
        .split_whitespace()
        .zip(values.split_whitespace())
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_a_single_subflow_is_not_a_multipath_figure() {
        assert!(
            one_path(0, 2, 5_000_000).is_some_and(|what| what.contains("although 2 links are up"))
        );
        // The other link is down, or the run was too short.
        for (joined, up, carried) in [(1, 2, 5_000_000), (0, 1, 5_000_000), (0, 2, 10_000)] {
            assert_eq!(
                one_path(joined, up, carried),
                None,
                "{joined} {up} {carried}"
            );
        }
    }

    #[test]
    fn counters_are_read_by_name() {
        let text =
            "Tcp: MaxConn RetransSegs\nTcp: -1 17\nMPTcpExt: A MPJoinSynAckRx\nMPTcpExt: 3 4\n";
        assert_eq!(parse_counters(text, "MPTcpExt:")["MPJoinSynAckRx"], 4);
        // A negative value in between must not shift the others.
        assert_eq!(parse_counters(text, "Tcp:")["RetransSegs"], 17);
        assert!(parse_counters(text, "IpExt:").is_empty());
    }
}
