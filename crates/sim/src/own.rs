//! Schedulers and congestion controls supplied by the caller.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sumlink_congestion::{CongestionControl, NAMES};
use sumlink_engine::scheduler::{OwnSchedulers, Pick, RepeatLimit, Scheduler, View};
use sumlink_engine::{PathId, Role, StreamId};
use sumlink_scenario::scenario::parse_congestion;

type MakeCongestion = dyn Fn() -> Box<dyn CongestionControl> + Send + Sync;

/// Schedulers and congestion controls supplied by the caller, by name, for
/// [`run_own`](crate::run_own).
///
/// A name can be used like the simulator's built-in names: `sumlink:mine`,
/// `sumlink:fbdt:streaming=mine`, `sumlink:fbdt+mine`, and a congestion control also as the
/// scenario's congestion control.
///
/// ```
/// use sumlink_engine::scheduler::{minrtt::MinRtt, Scheduler};
/// # use sumlink_scenario::scenario::Scenario;
/// # let text = "name = \"one\"\nduration = \"1s\"\n[[link]]\nname = \"wifi\"\nrate = \"3mbit\"\n";
/// # let scenario = Scenario::parse(std::path::Path::new("one.toml"), text).unwrap();
/// let mut own = sumlink_sim::Own::default();
/// own.add_scheduler("mine", |_| Box::new(MinRtt::default())).unwrap();
/// sumlink_sim::run_own(&scenario, "sumlink:mine", 1, &own, None).unwrap();
/// ```
#[derive(Clone)]
pub struct Own {
    /// The caller's, and those of `sumlink-schedulers`.
    pub(crate) schedulers: OwnSchedulers,
    congestion: BTreeMap<String, Arc<MakeCongestion>>,
    pub(crate) stop: Stop,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            schedulers: sumlink_schedulers::all(),
            congestion: BTreeMap::new(),
            stop: Stop::default(),
        }
    }
}

impl Own {
    /// Adds a scheduler. Each end of a session creates its own instance.
    ///
    /// An invalid decision (bytes that are not unsent, exceed the credit or exceed the budget) ends
    /// the run as failed, and the reason names the violation.
    ///
    /// # Errors
    ///
    /// The name is not 1 to 15 letters, digits, `-` and `_`, or is already in use.
    pub fn add_scheduler(
        &mut self,
        name: &str,
        make: impl Fn(Role) -> Box<dyn Scheduler> + Send + Sync + 'static,
    ) -> Result<(), String> {
        let (stop, own) = (self.stop.clone(), name.to_owned());
        self.schedulers.add(name, move |role| {
            Box::new(Checked {
                inner: make(role),
                name: own.clone(),
                stop: stop.clone(),
            })
        })
    }

    /// Adds a congestion control. Each end of each connection creates its own instance.
    ///
    /// # Errors
    ///
    /// See [`Own::add_scheduler`].
    pub fn add_congestion(
        &mut self,
        name: &str,
        make: impl Fn() -> Box<dyn CongestionControl> + Send + Sync + 'static,
    ) -> Result<(), String> {
        let name = parse_congestion(name)?;
        if NAMES.contains(&name.as_str()) {
            return Err(format!(
                "a congestion control named '{name}' already exists; choose another name"
            ));
        }
        self.congestion.insert(name, Arc::new(make));
        Ok(())
    }

    /// Returns a handle that ends the runs of this instance, also from another thread.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// The names of the caller's schedulers.
    pub(crate) fn scheduler_names(&self) -> impl Iterator<Item = &str> {
        let names = self.schedulers.names();
        names.filter(|name| !sumlink_schedulers::RESEARCH.contains(name))
    }

    pub(crate) fn has_congestion(&self, name: &str) -> bool {
        self.congestion.contains_key(name)
    }

    pub(crate) fn make_congestion(&self, name: &str) -> Option<Box<dyn CongestionControl>> {
        self.congestion.get(name).map(|make| make())
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own")
            .field("schedulers", &self.scheduler_names().collect::<Vec<_>>())
            .field("congestion", &self.congestion.keys())
            .finish_non_exhaustive()
    }
}

/// Ends a run early.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    is_set: Arc<AtomicBool>,
    reason: Arc<Mutex<String>>,
}

impl Stop {
    /// Ends the run before its next event, as failed for this reason. Later reasons are ignored.
    pub fn now(&self, reason: impl Into<String>) {
        let mut kept = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_set.swap(true, Ordering::Release) {
            *kept = reason.into();
        }
    }

    /// The reason, once the run has been stopped.
    #[inline]
    pub fn reason(&self) -> Option<String> {
        let is_set = self.is_set.load(Ordering::Acquire);
        is_set.then(|| {
            let kept = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
            kept.clone()
        })
    }
}

/// Checks every decision of the caller's scheduler, because the engine assumes that decisions are
/// valid.
#[derive(Debug)]
struct Checked {
    inner: Box<dyn Scheduler>,
    name: String,
    stop: Stop,
}

impl Scheduler for Checked {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        // A stopped scheduler is not called again: it may have failed halfway through an update.
        if self.stop.reason().is_some() {
            return Pick::Idle;
        }
        let pick = self.inner.pick(path, budget, view);
        let may_repeat_all = self.inner.repeat_limit() == RepeatLimit::OncePerPath;
        match check(&pick, budget, view, may_repeat_all) {
            Ok(()) => pick,
            Err(reason) => {
                let name = &self.name;
                self.stop
                    .now(format!("the scheduler {name}, pick: {reason}"));
                Pick::Idle
            }
        }
    }

    fn paths_changed(&mut self) {
        self.inner.paths_changed();
    }

    fn stream_ready(&mut self, stream: StreamId) {
        self.inner.stream_ready(stream);
    }

    fn stream_gone(&mut self, stream: StreamId) {
        self.inner.stream_gone(stream);
    }

    fn max_paths(&self) -> Option<usize> {
        self.inner.max_paths()
    }

    fn repeat_limit(&self) -> RepeatLimit {
        self.inner.repeat_limit()
    }

    fn reads_local_queue(&self) -> bool {
        self.inner.reads_local_queue()
    }
}

/// Checks that the engine can carry out a decision.
fn check(pick: &Pick, budget: u64, view: &View<'_>, may_repeat_all: bool) -> Result<(), String> {
    let (id, range, again) = match pick {
        Pick::Idle => return Ok(()),
        Pick::Send { stream, range } => (*stream, range, None),
        Pick::Repeat { stream, range } => (*stream, range, Some(view.repeat_budget())),
        Pick::Race { stream, range } => (*stream, range, Some(view.race_budget())),
    };
    let what = format!("bytes {}..{} of stream {id}", range.start, range.end);
    let Some(stream) = view.stream(id) else {
        return Err(format!("{what}: the stream does not exist"));
    };
    if range.is_empty() {
        return Err(format!(
            "{what}: an empty range; to send nothing, stay idle"
        ));
    }
    let len = range.end - range.start;
    if len > budget {
        return Err(format!("{what} exceed the budget of {budget} bytes"));
    }
    let Some(repeatable) = again else {
        if !stream.unsent().covers(range.clone()) {
            return Err(format!("{what} are not all unsent"));
        }
        let end = view.sendable_end(stream);
        if range.end > end {
            return Err(format!("{what} exceed the credit, which ends at {end}"));
        }
        return Ok(());
    };
    let on_paths = range.end <= stream.highest_sent()
        && stream.unsent().total_within(range.clone()) == 0
        && stream.unacknowledged(range.clone()) == [range.clone()];
    if !on_paths {
        return Err(format!(
            "{what} cannot be repeated: they are not all sent and unacknowledged"
        ));
    }
    if len > repeatable && !may_repeat_all {
        return Err(format!(
            "{what}: only {repeatable} bytes may be repeated now"
        ));
    }
    Ok(())
}
