//! Tests for schedulers, of this crate and of others.
//!
//! With the feature `testing`, a crate with schedulers of its own runs the tests that those of the
//! engine pass: [`test_schedulers!`](crate::test_schedulers) makes one test of each rule in
//! [`conformance`] and [`sessions`]. [`Fixture`] has paths and streams without a session, for tests
//! of single decisions.
//!
//! ```
//! use sumlink_engine::scheduler::minrtt::MinRtt;
//! use sumlink_engine::scheduler::{OwnSchedulers, Pick};
//! use sumlink_engine::testing::{Candidates, Fixture, conformance};
//!
//! // The faster path is free, so the slower one gets nothing.
//! let mut fixture = Fixture::new(&[(80.0, 10), (80.0, 20)]);
//! fixture.write(0, 60_000);
//! assert_eq!(fixture.ask(&mut MinRtt::default(), 1, 10_000), Pick::Idle);
//!
//! let mut own = OwnSchedulers::default();
//! own.add("mine", |_| Box::new(MinRtt::default())).unwrap();
//! conformance::an_unknown_path_gets_nothing(&Candidates::new(&["mine"], own));
//! ```

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::scheduler::{self, OwnSchedulers, Scheduler};
use crate::{Config, Role};

pub use crate::scheduler::fixture::{Decision, Fixture, decisions};

/// Rules about decisions, with made-up paths.
pub mod conformance {
    pub use crate::scheduler::conformance::*;
}

/// Rules about two sessions that are connected by model carriers.
pub mod sessions {
    pub use crate::session::tests::every::*;
    pub use crate::session::tests::random::*;
}

/// The schedulers under test.
#[derive(Clone, Debug)]
pub struct Candidates {
    names: &'static [&'static str],
    combined: &'static [&'static str],
    own: OwnSchedulers,
}

impl Candidates {
    /// The schedulers with these names, each of the engine or of `own`.
    pub fn new(names: &'static [&'static str], own: OwnSchedulers) -> Self {
        Self {
            names,
            combined: names,
            own,
        }
    }

    /// Sessions with two schedulers, for different classes, choose both of them from these names.
    #[must_use]
    pub fn combined_with(mut self, names: &'static [&'static str]) -> Self {
        self.combined = names;
        self
    }

    /// All schedulers of the engine.
    pub fn of_engine() -> Self {
        Self::new(scheduler::NAMES, OwnSchedulers::default())
    }

    /// Their names.
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// The names from which sessions with two schedulers choose.
    pub fn combined(&self) -> &'static [&'static str] {
        self.combined
    }

    /// The default configuration of one end of a session with this scheduler.
    pub fn config(&self, role: Role, name: &str) -> Config {
        Config {
            scheduler: name.to_owned(),
            own_schedulers: self.own.clone(),
            ..Config::new(role)
        }
    }

    /// Each name with a constructor.
    pub(crate) fn each(
        &self,
    ) -> impl Iterator<Item = (&'static str, impl Fn() -> Box<dyn Scheduler>)> {
        self.names.iter().map(move |&name| {
            let make = move || match self.own.make(name, Role::Client) {
                Some(scheduler) => scheduler,
                None => panic!("there is no scheduler {name}"),
            };
            (name, make)
        })
    }
}

/// Makes a test of each rule in [`testing`](crate::testing) for these [`Candidates`].
///
/// [`Candidates`]: crate::testing::Candidates
#[macro_export]
macro_rules! test_schedulers {
    ($candidates:expr) => {
        $crate::test_schedulers! { @each $candidates;
            conformance::everything_is_delivered_and_reproducibly
            conformance::the_head_of_a_stream_is_not_starved
            conformance::duplicates_are_bounded
            conformance::credit_is_used_and_not_exceeded
            conformance::an_unknown_path_gets_nothing
            conformance::paths_without_measurements_are_used
            conformance::a_path_beyond_the_limit_is_refused
            conformance::streams_do_not_starve_by_synchronizing_with_the_paths
            conformance::the_cases_that_broken_schedulers_fail_are_passed
            sessions::a_transfer_over_unequal_paths_ends
            sessions::a_path_that_waits_for_a_failed_path_is_asked_again
            sessions::a_backup_carries_nothing_until_the_others_fail
            sessions::transfers_end_with_every_selector
            sessions::every_stream_moves_in_both_directions
            sessions::every_byte_arrives_once_and_in_order_whatever_happens
        }
    };
    (@each $candidates:expr; $($group:ident::$rule:ident)*) => {
        $(
            #[test]
            fn $rule() {
                $crate::testing::$group::$rule(&$candidates);
            }
        )*
    };
}

/// Checks a property for random values, and for those that failed before: `file` names the source
/// file beside which they are remembered.
///
/// # Panics
///
/// The property does not hold; the message has the simplest value found.
pub(crate) fn property<S: Strategy>(
    file: &'static str,
    cases: u32,
    values: S,
    check: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let config = ProptestConfig {
        cases,
        max_shrink_iters: cases.saturating_mul(4).max(200),
        source_file: Some(file),
        ..ProptestConfig::default()
    };
    if let Err(error) = TestRunner::new(config).run(&values, check) {
        panic!("{error}");
    }
}

/// The number of cases in `PROPTEST_CASES`, or this one.
pub(crate) fn case_count(usual: u32) -> u32 {
    let chosen = std::env::var("PROPTEST_CASES").ok();
    chosen.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::test_schedulers!(Candidates::of_engine());
}
