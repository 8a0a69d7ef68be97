//! The policies in force for all links, and which links have reached a data cap.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};
use sumlink_engine::Priority;
use tokio::sync::watch;

use super::store::{self, Remembered, StateError};
use super::{Beyond, LinkPolicy, Terms, Usage};
use crate::api::config::LinkConfig;
use crate::links;

/// Time between log lines about a file that cannot be written.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Policies and usage of a client's links; clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct Policies(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Held while the file is written. `state` stays free meanwhile because sessions read it while
    /// data moves.
    saving: Mutex<()>,
    /// When a failed write of the file was last logged.
    warned: Mutex<Option<Instant>>,
    /// Incremented by every change that affects how a link may be used.
    changes: watch::Sender<u64>,
    /// The file that stores usage and kept policies.
    file: Option<PathBuf>,
    today: fn() -> NaiveDate,
}

#[derive(Debug, Default)]
struct State {
    /// The configured policies in the order of the configuration; names may be globs.
    configured: Vec<(String, LinkPolicy)>,
    /// Policies set at run time by link name, and whether each is kept across restarts.
    set: BTreeMap<String, (LinkPolicy, bool)>,
    usage: BTreeMap<String, Usage>,
    /// The file is out of date.
    is_dirty: bool,
}

/// Whether a link has a data cap, by its configuration or by a policy that is kept.
fn has_caps(links: &[LinkConfig], remembered: &Remembered) -> bool {
    let kept = remembered
        .links
        .values()
        .filter_map(|link| link.policy.as_ref());
    let configured = links.iter().map(|link| &link.policy);
    configured.chain(kept).any(LinkPolicy::has_cap)
}

/// The origin of a link's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The configuration, or the default.
    Configuration,
    /// Set at run time; in force until the client stops.
    Set,
    /// Set at run time and kept across restarts.
    Kept,
}

/// A link's policy and usage, for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The link's name.
    pub name: String,
    /// The policy in force.
    pub policy: LinkPolicy,
    /// The origin of the policy.
    pub source: Source,
    /// The current priority, by the policy and by whether a data cap is reached.
    pub priority: String,
    /// The data usage; `None` before the first count.
    pub usage: Option<Usage>,
    /// The day on which the cap restarts, if a data cap is reached.
    pub used_up_until: Option<NaiveDate>,
}

impl Policies {
    /// Combines the configuration with the state stored in `file`.
    pub(crate) fn new(links: &[LinkConfig], file: Option<PathBuf>) -> Result<Self, StateError> {
        Self::with(links, file, || chrono::Local::now().date_naive())
    }

    pub(crate) fn with(
        links: &[LinkConfig],
        file: Option<PathBuf>,
        today: fn() -> NaiveDate,
    ) -> Result<Self, StateError> {
        let remembered = file
            .as_deref()
            .map_or(Ok(Remembered::default()), store::load)?;
        let mut state = State {
            configured: links
                .iter()
                .map(|link| (link.name.clone(), link.policy.clone()))
                .collect(),
            ..State::default()
        };
        // An unwritable file is reported at the start, before there is anything to lose. A full disk
        // may soon have room again; without a cap it is no reason to stay away.
        if let Some(file) = &file {
            match store::save(file, &remembered) {
                Err(error) if error.may_pass() && !has_caps(links, &remembered) => {
                    tracing::warn!("{error}");
                    state.is_dirty = true;
                }
                saved => saved?,
            }
        }
        for (name, link) in remembered.links {
            if let Some(policy) = link.policy {
                state.set.insert(name.clone(), (policy, true));
            }
            if let Some(usage) = link.usage {
                state.usage.insert(name, usage);
            }
        }
        Ok(Self(Arc::new(Shared {
            state: Mutex::new(state),
            saving: Mutex::new(()),
            warned: Mutex::new(None),
            changes: watch::channel(0).0,
            file,
            today,
        })))
    }

    /// Notifies of every change that affects how a link may be used.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// The terms of each of the link's `paths` paths.
    pub(crate) fn terms(&self, link: &str, paths: usize) -> Terms {
        let report = self.report(link);
        report.policy.terms(report.used_up_until.is_some(), paths)
    }

    /// The reason why the link must not be connected; `None` if it may be.
    pub(crate) fn bars(&self, link: &str) -> Option<String> {
        let report = self.report(link);
        if report.policy.priority(report.used_up_until.is_some()) != Priority::Never {
            return None;
        }
        Some(match report.used_up_until {
            Some(until) if report.policy.priority(false) != Priority::Never => {
                cap_reached(report.policy.beyond, until)
            }
            _ => "link disabled: its priority is never".to_owned(),
        })
    }

    /// The link has reached its data cap: how it is used, and until when.
    pub(crate) fn cap_reached(&self, link: &str) -> Option<String> {
        let report = self.report(link);
        let until = report.used_up_until?;
        Some(cap_reached(report.policy.beyond, until))
    }

    /// The link's label; empty if it has none.
    pub(crate) fn label(&self, link: &str) -> String {
        self.lock().of(link).0.label.clone()
    }

    /// Policy and usage of one link.
    pub(crate) fn report(&self, link: &str) -> LinkReport {
        let state = self.lock();
        let (policy, source) = state.of(link);
        let today = (self.0.today)();
        let usage = state.usage.get(link);
        let usage = usage.map(|usage| usage.as_of(today, policy.reset_day));
        let used_up_until = usage.and_then(|usage| usage.used_up_until(&policy));
        LinkReport {
            name: link.to_owned(),
            priority: policy.priority(used_up_until.is_some()).name().to_owned(),
            policy,
            source,
            usage,
            used_up_until,
        }
    }

    /// Whether the configuration or a run-time policy names the link.
    pub(crate) fn names(&self, link: &str) -> bool {
        let state = self.lock();
        let configured = state.configured.iter();
        state.set.contains_key(link)
            || configured
                .map(|(name, _)| name)
                .any(|name| links::name_matches(name, link))
    }

    /// Sets a link's policy until the client stops, or permanently with `keep`. `None` restores the
    /// configured policy.
    ///
    /// # Errors
    ///
    /// Without a file, a policy cannot be kept, nor have a data cap.
    pub(crate) fn set(
        &self,
        link: &str,
        policy: Option<LinkPolicy>,
        keep: bool,
    ) -> Result<(), StateError> {
        if keep && self.0.file.is_none() {
            return Err(StateError::NoFile);
        }
        let has_cap = policy.as_ref().is_some_and(LinkPolicy::has_cap);
        if has_cap && self.0.file.is_none() {
            return Err(StateError::NoFileForCap);
        }
        let mut state = self.lock();
        let before = match policy {
            Some(policy) => state.set.insert(link.to_owned(), (policy, keep)),
            None => state.set.remove(link),
        };
        let was_kept = before.is_some_and(|(_, kept)| kept);
        state.is_dirty |= keep || was_kept;
        drop(state);
        self.changed();
        self.save()
    }

    /// Adds `bytes` to the link's usage.
    pub(crate) fn count(&self, link: &str, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let today = (self.0.today)();
        let mut state = self.lock();
        let policy = state.of(link).0;
        let usage = state.usage.entry(link.to_owned());
        let usage = usage.or_insert_with(|| Usage::new(today, policy.reset_day));
        *usage = usage.as_of(today, policy.reset_day);
        let before = usage.used_up_until(&policy);
        usage.add(bytes);
        let after = usage.used_up_until(&policy);
        state.is_dirty = true;
        drop(state);
        if after != before {
            if let Some(until) = after {
                tracing::warn!(link, "{}", cap_reached(policy.beyond, until));
            }
            self.changed();
        }
    }

    /// Writes unsaved changes to the file.
    pub(crate) fn save(&self) -> Result<(), StateError> {
        let Some(file) = &self.0.file else {
            return Ok(());
        };
        // Writes are serialized so that the newest state is written last.
        let _saving = self.0.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = {
            let mut state = self.lock();
            if !std::mem::take(&mut state.is_dirty) {
                return Ok(());
            }
            state.remembered()
        };
        let saved = store::save(file, &remembered);
        if saved.is_err() {
            self.lock().is_dirty = true;
        }
        saved
    }

    /// [`Policies::save`] with a log line in place of a returned error.
    pub(crate) fn save_or_warn(&self) {
        if let Err(error) = self.save() {
            let mut warned = self.0.warned.lock().unwrap_or_else(PoisonError::into_inner);
            if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
                *warned = Some(Instant::now());
                tracing::warn!("{error}; it is tried again");
            }
        }
    }

    fn changed(&self) {
        self.0.changes.send_modify(|changes| *changes += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The policy in force and its origin.
    fn of(&self, link: &str) -> (LinkPolicy, Source) {
        if let Some((policy, keep)) = self.set.get(link) {
            let source = if *keep { Source::Kept } else { Source::Set };
            return (policy.clone(), source);
        }
        let mut configured = self.configured.iter();
        let found = configured.find(|(name, _)| links::name_matches(name, link));
        let policy = found.map(|(_, policy)| policy.clone());
        (policy.unwrap_or_default(), Source::Configuration)
    }

    fn remembered(&self) -> Remembered {
        let mut remembered = Remembered::default();
        for (name, usage) in &self.usage {
            let link = remembered.links.entry(name.clone()).or_default();
            link.usage = Some(*usage);
        }
        for (name, (policy, _)) in self.set.iter().filter(|(_, (_, keep))| *keep) {
            let link = remembered.links.entry(name.clone()).or_default();
            link.policy = Some(policy.clone());
        }
        remembered
    }
}

/// The effect of a reached data cap on its link, in words.
fn cap_reached(beyond: Beyond, until: NaiveDate) -> String {
    let effect = match beyond {
        Beyond::Backup => "link used as a backup",
        Beyond::Never => "link disabled",
        Beyond::Limit(_) => "link limited in rate",
    };
    format!("data cap reached; {effect} until {until}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_day() -> NaiveDate {
        NaiveDate::from_ymd_opt(2026, 11, 22).unwrap()
    }

    fn next_day() -> NaiveDate {
        NaiveDate::from_ymd_opt(2026, 11, 23).unwrap()
    }

    fn capped(name: &str, beyond: Beyond) -> LinkConfig {
        LinkConfig {
            policy: LinkPolicy {
                cap_day: Some(1000),
                beyond,
                ..LinkPolicy::default()
            },
            ..LinkConfig::named(name)
        }
    }

    #[test]
    fn a_link_is_disabled_at_its_cap_until_the_next_day_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = Some(dir.path().join("links.json"));
        let links = [capped("wwan*", Beyond::Never)];
        let policies = Policies::with(&links, file.clone(), first_day).unwrap();
        let mut changes = policies.changes();
        policies.count("wwan0", 999);
        assert_eq!(policies.bars("wwan0"), None);
        assert!(!changes.has_changed().unwrap());
        policies.count("wwan0", 1);
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        let reason = "data cap reached; link disabled until 2026-11-23";
        assert_eq!(policies.bars("wwan0").as_deref(), Some(reason));
        assert_eq!(policies.cap_reached("wwan0").as_deref(), Some(reason));
        assert_eq!(policies.bars("wwan1"), None);
        assert_eq!(policies.cap_reached("wwan1"), None);
        // The warning is not repeated.
        policies.count("wwan0", 1);
        assert!(!changes.has_changed().unwrap());
        policies.save().unwrap();
        let again = Policies::with(&links, file.clone(), first_day).unwrap();
        assert_eq!(again.bars("wwan0").as_deref(), Some(reason));
        let next = Policies::with(&links, file, next_day).unwrap();
        assert_eq!(next.bars("wwan0"), None);
        assert_eq!(next.report("wwan0").usage.unwrap().month_bytes, 1001);
    }

    #[test]
    fn a_run_time_policy_is_kept_on_request_and_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = Some(dir.path().join("links.json"));
        let links = [LinkConfig::named("eth0")];
        let policies = Policies::with(&links, file.clone(), first_day).unwrap();
        let never = LinkPolicy {
            priority: Some(Priority::Never),
            ..LinkPolicy::default()
        };
        let restarted = || Policies::with(&links, file.clone(), first_day).unwrap();
        policies.set("eth0", Some(never.clone()), false).unwrap();
        assert_eq!(
            policies.bars("eth0").as_deref(),
            Some("link disabled: its priority is never")
        );
        assert_eq!(policies.report("eth0").source, Source::Set);
        assert_eq!(restarted().bars("eth0"), None);
        policies.set("eth0", Some(never), true).unwrap();
        assert_eq!(restarted().report("eth0").source, Source::Kept);
        policies.set("eth0", None, false).unwrap();
        assert_eq!(policies.report("eth0").source, Source::Configuration);
        assert_eq!(restarted().bars("eth0"), None);
    }

    #[test]
    fn an_unwritable_file_is_reported_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let file = Some(dir.path().join("none/links.json"));
        let error = Policies::with(&[], file, first_day);
        assert!(matches!(error, Err(StateError::Unwritable { .. })));
    }

    /// Sessions keep counting while a slow disk takes seconds to write.
    #[test]
    fn counting_does_not_wait_for_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("links.json");
        let policies = Policies::with(&[], Some(file.clone()), first_day).unwrap();
        policies.count("eth0", 1);
        // Opening a pipe for writing blocks until a reader opens it.
        let slow = dir.path().join("links.json.new");
        let made = std::process::Command::new("mkfifo").arg(&slow).status();
        assert!(made.unwrap().success());
        let saving = policies.clone();
        let saving = std::thread::spawn(move || saving.save());
        while policies.lock().is_dirty {
            std::thread::yield_now();
        }
        policies.count("eth0", 2);
        assert_eq!(policies.report("eth0").usage.unwrap().day_bytes, 3);
        assert!(!saving.is_finished());
        // A pipe cannot be the stored file, so the next save writes the state again.
        let _read = std::fs::read(&slow);
        saving.join().unwrap().unwrap_err();
        assert!(!slow.exists());
        policies.save().unwrap();
        let again = Policies::with(&[], Some(file), first_day).unwrap();
        assert_eq!(again.report("eth0").usage.unwrap().day_bytes, 3);
    }

    #[test]
    fn nothing_is_kept_or_capped_without_a_file() {
        let policies = Policies::with(&[], None, first_day).unwrap();
        let error = policies.set("eth0", Some(LinkPolicy::default()), true);
        assert!(matches!(error, Err(StateError::NoFile)));
        let capped = LinkPolicy {
            cap_day: Some(1),
            ..LinkPolicy::default()
        };
        let error = policies.set("eth0", Some(capped), false);
        assert!(matches!(error, Err(StateError::NoFileForCap)));
        assert!(!policies.names("eth0"));
    }
}
