//! Selection among the kernel's subflows by sumlink's selectors, after "Scheduling Virtual WiFi
//! Interfaces for High Bandwidth Video Upstreaming Using Multipath TCP", section 3.
//!
//! A parked path is a backup: its endpoint has the flag `backup`, which both ends' kernels apply to
//! the existing subflow (MPTCP_PM_CMD_SET_FLAGS of the generic netlink family `mptcp_pm`, MP_PRIO).
//! The in-kernel path manager remains in charge of everything else. The paper's kernel puts the
//! receiver's byte counts into options of acknowledgments; here the receiver's kernel is asked
//! directly, so that the counts arrive half a round trip earlier.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use sumlink_engine::selector::{self, Decision, Seen, SeenPath, Selector};
use sumlink_engine::{PathId, Selection, SelectorConfig};

use crate::error::LabError;
use crate::laboratory::LabHandle;
use crate::topology::{self, Side};

use super::super::Stage;
use super::super::watcher::Watcher;
use super::subflows::{Subflow, Subflows};

/// Interval between looks at the subflows. The shortest turn of a path takes 100 ms.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Looks for each line about a subflow in the trace.
const LOOKS_FOR_EACH_LINE: u64 = 5;
/// Consecutive timeouts after which the kernel does not use a subflow (`stale_loss_cnt`).
const STALE: u32 = 4;

/// The decisions of a run.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Changes of the flag `backup`.
    pub(super) changes: u64,
    /// Why the selection ended early.
    pub(super) fault: Option<String>,
    /// When data was first seen, and the latest look.
    span: Option<(Instant, Instant)>,
    /// Total time for which each link was a backup, and since when it is one now.
    rests: BTreeMap<usize, (Duration, Option<Instant>)>,
}

impl Account {
    fn note(&mut self, link: usize, rests: bool, now: Instant) {
        let rest = self.rests.entry(link).or_default();
        match (rests, rest.1) {
            (true, None) => rest.1 = Some(now),
            (false, Some(since)) => *rest = (rest.0 + (now - since), None),
            _ => {}
        }
    }

    fn rests(&self, link: usize) -> bool {
        self.rests
            .get(&link)
            .is_some_and(|(_, since)| since.is_some())
    }

    /// Ends the rest of links with a new subflow: for the selector it is active, but its endpoint
    /// still has the flag of the one before.
    fn decisions_for_new(&self, links: impl Iterator<Item = usize>) -> Vec<Decision> {
        let resting = links.filter(|link| self.rests(*link));
        let active = resting.map(|link| Decision {
            path: PathId(link as u32),
            selection: Selection::Active,
            reason: "its subflow is new".to_owned(),
        });
        active.collect()
    }

    /// Share of the time for which each link was a backup, by its name.
    pub(super) fn rested<'a>(&self, links: impl Iterator<Item = &'a str>) -> BTreeMap<String, f64> {
        let Some((begun, end)) = self.span else {
            return BTreeMap::new();
        };
        let share = |link: &usize| {
            let (over, since) = self.rests.get(link)?;
            let all = *over + since.map_or(Duration::ZERO, |since| end - since);
            Some(all.as_secs_f64() / (end - begun).as_secs_f64().max(1e-9))
        };
        let shares = links.enumerate();
        let shares = shares.filter_map(|(link, name)| Some((name.to_owned(), share(&link)?)));
        shares.collect()
    }
}

/// Selects, and writes the stage's trace; `None` if there is nothing to do.
pub(super) fn start(
    stage: &Stage<'_>,
    selector: Option<&SelectorConfig>,
    account: &Arc<Mutex<Account>>,
) -> Result<Option<Watcher>, LabError> {
    *account.lock().unwrap_or_else(PoisonError::into_inner) = Account::default();
    let trace = match &stage.trace {
        Some(path) => Some(BufWriter::new(
            File::create(path).map_err(LabError::file(path))?,
        )),
        None => None,
    };
    if selector.is_none() && trace.is_none() {
        return Ok(None);
    }
    let (sender, receiver) = match stage.sends_up() {
        true => (Side::Client, Side::Server),
        false => (Side::Server, Side::Client),
    };
    let handle = stage.lab.handle();
    let mut manager = Manager {
        selector: selector.and_then(selector::by_name),
        sender: (sender, Subflows::open(&handle, sender, stage.port)?),
        receiver: Subflows::open(&handle, receiver, stage.port)?,
        handle,
        trace,
        joined: BTreeSet::new(),
        alpha: None,
        looks: 0,
        begun: Instant::now(),
        account: Arc::clone(account),
    };
    let watcher = Watcher::start("selection", POLL_INTERVAL, move || match manager.look() {
        Ok(()) => ControlFlow::Continue(()),
        Err(reason) => {
            let mut account = manager
                .account
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            account.fault = Some(reason);
            ControlFlow::Break(())
        }
    })?;
    Ok(Some(watcher))
}

/// The path manager's program.
struct Manager {
    selector: Option<Box<dyn Selector>>,
    sender: (Side, Subflows),
    receiver: Subflows,
    handle: LabHandle,
    trace: Option<BufWriter<File>>,
    /// The links that had a subflow at the last look.
    joined: BTreeSet<usize>,
    /// The threshold in the trace.
    alpha: Option<f64>,
    looks: u64,
    begun: Instant,
    account: Arc<Mutex<Account>>,
}

impl Manager {
    fn look(&mut self) -> Result<(), String> {
        let failed = |error: io::Error| format!("sock_diag: {error}");
        let sent = self.sender.1.list().map_err(failed)?;
        let arrived = self.receiver.list().map_err(failed)?;
        let is_busy = sent.iter().any(|subflow| subflow.is_busy);
        let paths = paths(&sent, &arrived);
        let now = Instant::now();
        if is_busy {
            let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
            let begun = account.span.map_or(now, |(begun, _)| begun);
            account.span = Some((begun, now));
        }
        if self.looks.is_multiple_of(LOOKS_FOR_EACH_LINE) && is_busy {
            self.trace_subflows(&sent, &paths).map_err(failed)?;
        }
        self.looks += 1;
        if self.selector.is_some() {
            let joined: BTreeSet<usize> = paths.iter().map(|path| path.id.0 as usize).collect();
            let new = joined.difference(&self.joined).copied();
            let account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
            let decisions = account.decisions_for_new(new);
            drop(account);
            self.joined = joined;
            self.apply(&decisions, now)?;
        }
        let Some(selector) = &mut self.selector else {
            return Ok(());
        };
        // The selectors' clock starts anywhere.
        let since = self.begun.elapsed();
        if selector.next_review(is_busy).is_none_or(|at| at > since) {
            return Ok(());
        }
        let decisions = selector.review(&Seen {
            now: since,
            waiting: is_busy,
            delivered: paths.iter().map(|path| path.received).sum(),
            delays: &[],
            paths: &paths,
        });
        let alpha = selector.threshold();
        self.apply(&decisions, now)?;
        self.trace_decisions(&decisions, alpha).map_err(failed)
    }

    /// Sets the flags of the endpoints.
    fn apply(&self, decisions: &[Decision], now: Instant) -> Result<(), String> {
        let mut batch = String::new();
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        for decision in decisions {
            let (link, rests) = (decision.path.0 as usize, decision.selection.rests());
            let rested = account.rests(link);
            account.note(link, rests, now);
            if rested != rests {
                account.changes += 1;
                batch.push_str(&topology::prioritize(link, rests));
            }
        }
        drop(account);
        match batch.is_empty() {
            true => Ok(()),
            false => {
                let set = self.handle.ip_batch(Side::Client, batch);
                set.map_err(|error| error.to_string())
            }
        }
    }

    fn trace_subflows(&mut self, sent: &[Subflow], paths: &[SeenPath]) -> io::Result<()> {
        let Some(trace) = &mut self.trace else {
            return Ok(());
        };
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        for path in paths {
            let link = path.id.0 as usize;
            let all = sent.iter().filter(|subflow| subflow.link == link);
            let line = json!({
                "t_ns": nanos(self.begun), "event": "subflow", "side": self.sender.0.name(), "path": link,
                "srtt_us": path.srtt.as_micros() as u64, "received": path.received,
                "retransmissions": all.map(|subflow| subflow.retransmissions).sum::<u64>(),
                "backup": account.rests(link),
            });
            writeln!(trace, "{line}")?;
        }
        Ok(())
    }

    fn trace_decisions(&mut self, decisions: &[Decision], alpha: Option<f64>) -> io::Result<()> {
        let Some(trace) = &mut self.trace else {
            return Ok(());
        };
        let (t_ns, side) = (nanos(self.begun), self.sender.0.name());
        if let Some(value) = alpha.filter(|_| self.alpha != alpha) {
            self.alpha = alpha;
            let line = json!({ "t_ns": t_ns, "event": "threshold", "side": side, "alpha": value });
            writeln!(trace, "{line}")?;
        }
        for Decision {
            path,
            selection,
            reason,
        } in decisions
        {
            let line = json!({
                "t_ns": t_ns, "event": "selected", "side": side, "path": path.0,
                "selection": selection.name(), "reason": reason,
            });
            writeln!(trace, "{line}")?;
        }
        Ok(())
    }
}

fn nanos(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The inputs of the selector: one path for each link with a subflow, from the sender's view and
/// the receiver's counts. Of several subflows over a link the shortest round trip counts.
fn paths(sent: &[Subflow], arrived: &[Subflow]) -> Vec<SeenPath> {
    let mut paths: BTreeMap<usize, SeenPath> = BTreeMap::new();
    for subflow in sent {
        let works = subflow.timeouts < STALE;
        let path = paths.entry(subflow.link).or_insert(SeenPath {
            id: PathId(subflow.link as u32),
            works,
            srtt: subflow.srtt,
            mss: subflow.mss,
            received: 0,
            rate: 0.0,
        });
        path.works |= works;
        path.srtt = path.srtt.min(subflow.srtt);
    }
    for subflow in arrived {
        if let Some(path) = paths.get_mut(&subflow.link) {
            path.received += subflow.received;
        }
    }
    paths.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_senders_times_and_the_receivers_counts() {
        let sent = |link, ms, timeouts| Subflow {
            link,
            srtt: Duration::from_millis(ms),
            mss: 1428,
            timeouts,
            received: 5,
            ..Subflow::default()
        };
        let arrived = |link, received| Subflow {
            link,
            received,
            ..Subflow::default()
        };
        let sent = [sent(1, 90, STALE), sent(0, 30, 0), sent(0, 20, 0)];
        let arrived = [arrived(0, 1000), arrived(0, 500), arrived(2, 7)];
        let paths = paths(&sent, &arrived);
        let seen: Vec<_> = paths
            .iter()
            .map(|path| (path.id.0, path.works, path.srtt.as_millis(), path.received))
            .collect();
        assert_eq!(seen, [(0, true, 20, 1500), (1, false, 90, 0)]);
    }

    #[test]
    fn rests_are_shares_of_the_time_with_data() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut account = Account {
            span: Some((begun, at(10))),
            ..Account::default()
        };
        account.note(1, true, at(1));
        account.note(1, true, at(2));
        account.note(1, false, at(3));
        account.note(1, true, at(7));
        // A new subflow of a resting link is active.
        let new = account.decisions_for_new([0, 1].into_iter());
        assert_eq!(new.len(), 1);
        assert_eq!(
            (new[0].path, new[0].selection),
            (PathId(1), Selection::Active)
        );
        let rested = account.rested(["wifi", "lte"].into_iter());
        assert_eq!(rested, BTreeMap::from([("lte".to_owned(), 0.5)]));
    }
}
