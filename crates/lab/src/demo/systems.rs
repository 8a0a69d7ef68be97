//! The systems that the demo compares.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::config::LinkSpec;
use crate::error::LabError;
use crate::programs;
use crate::topology::Side;

use super::fetch::{Plan, Progress, fetch};
use super::outcome::Outcome;
use super::process::{self, Sumlink};
use super::{CONGESTION, DemoSystem, Stage};

/// Fetches without sumlink are stopped after this time.
const CUT_AFTER: Duration = Duration::from_secs(15);
/// Time limit of any fetch.
const LIMIT: Duration = Duration::from_secs(180);

/// A way to fetch the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// Over the named link only.
    Alone(String),
    /// Over kernel MPTCP, one subflow for each link.
    Mptcp,
    /// Through sumlink's SOCKS port.
    Sumlink,
}

/// The requested systems, in table order.
pub(crate) fn chosen(asked: &[DemoSystem], links: &[LinkSpec]) -> Vec<System> {
    let mut systems = Vec::new();
    if asked.contains(&DemoSystem::Alone) {
        systems.extend(links.iter().map(|link| System::Alone(link.name.clone())));
    }
    if asked.contains(&DemoSystem::Mptcp) {
        systems.push(System::Mptcp);
    }
    if asked.contains(&DemoSystem::Sumlink) {
        systems.push(System::Sumlink);
    }
    systems
}

impl System {
    /// Name in tables and charts.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Alone(link) => format!("{link} alone"),
            Self::Mptcp => "kernel MPTCP".to_owned(),
            Self::Sumlink => "sumlink".to_owned(),
        }
    }

    /// Fetches the file once.
    pub(crate) fn fetch(
        &self,
        stage: &Stage,
        progress: &mut Progress,
    ) -> Result<Outcome, LabError> {
        let plan = Plan {
            port: process::HTTP_PORT,
            arguments: vec!["--noproxy".to_owned(), "*".to_owned()],
            mptcp: false,
            cut_after: Some(CUT_AFTER),
            limit: LIMIT,
            helpers: Vec::new(),
        };
        match self {
            Self::Alone(link) => {
                let mut plan = plan;
                plan.arguments
                    .extend(["--interface".to_owned(), link.clone()]);
                fetch(stage, plan, progress).map(Outcome::Fetched)
            }
            Self::Mptcp => fetch_mptcp(stage, plan, progress),
            Self::Sumlink => fetch_sumlink(stage, progress),
        }
    }
}

fn fetch_mptcp(
    stage: &Stage,
    plan: Plan<'_>,
    progress: &mut Progress,
) -> Result<Outcome, LabError> {
    if !Path::new("/proc/sys/net/mptcp/enabled").exists() {
        return Ok(Outcome::Unavailable("this kernel has no MPTCP".to_owned()));
    }
    if let Err(error) = programs::find("mptcpize") {
        return Ok(Outcome::Unavailable(error.to_string()));
    }
    let mut nginx = process::start_nginx(stage, process::MPTCP_PORT, true)?;
    let before = mptcp_counters(stage)?;
    let plan = Plan {
        port: process::MPTCP_PORT,
        mptcp: true,
        helpers: vec![&mut nginx],
        ..plan
    };
    let mut fetched = fetch(stage, plan, progress)?;
    let after = mptcp_counters(stage)?;
    let grown = |name: &str| {
        after
            .get(name)
            .unwrap_or(&0)
            .saturating_sub(*before.get(name).unwrap_or(&0))
    };
    if grown("MPCapableSYNACKRX") == 0 {
        return Ok(Outcome::Unavailable(
            "the connection fell back to plain TCP".to_owned(),
        ));
    }
    let expected = stage.lab.links().len() - 1;
    fetched.note = match grown("MPJoinSynAckRx") {
        0 => "no further subflow joined: this is one link alone".to_owned(),
        joined => format!("{joined} of {expected} further subflows joined"),
    };
    Ok(Outcome::Fetched(fetched))
}

/// MPTCP counters of the client namespace, named as by `nstat` without the prefix `MPTcpExt`.
fn mptcp_counters(stage: &Stage) -> Result<HashMap<String, u64>, LabError> {
    stage.lab.run(Side::Client, || {
        let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default();
        parse_counters(&text, "MPTcpExt:")
    })
}

/// Parses a counter file with two lines for each group: names, then values.
fn parse_counters(text: &str, group: &str) -> HashMap<String, u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return HashMap::new();
    };
    let values = values
        .split_whitespace()
        .filter_map(|value| value.parse().ok());
    names
        .split_whitespace()
        .map(str::to_owned)
        .zip(values)
        .collect()
}

fn fetch_sumlink(stage: &Stage, progress: &mut Progress) -> Result<Outcome, LabError> {
    let mut sumlink = Sumlink::start(stage, CONGESTION)?;
    let socks = format!("127.0.0.1:{}", process::SOCKS_PORT);
    let plan = Plan {
        port: process::HTTP_PORT,
        arguments: ["--noproxy", "", "--socks5-hostname", &socks]
            .map(str::to_owned)
            .to_vec(),
        mptcp: false,
        cut_after: None,
        limit: LIMIT,
        helpers: vec![&mut sumlink.client, &mut sumlink.server],
    };
    let mut fetched = fetch(stage, plan, progress)?;
    fetched.note = "whole file, SHA-256 checked".to_owned();
    Ok(Outcome::Fetched(fetched))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_name() {
        let text =
            "TcpExt: A B\nTcpExt: 1 2\nMPTcpExt: MPCapableSYNRX MPJoinSynAckRx\nMPTcpExt: 3 4\n";
        let counters = parse_counters(text, "MPTcpExt:");
        assert_eq!(counters["MPJoinSynAckRx"], 4);
        assert!(parse_counters(text, "IpExt:").is_empty());
    }
}
