//! Schedulers from research papers, for comparisons with those of the engine.
//!
//! The engine has the schedulers that sumlink offers. The ones here serve measurements: the
//! simulator, ns-3 and `sumlink-lab` can use them, the program `sumlink` cannot. A session gets
//! them from its configuration:
//!
//! ```
//! use sumlink_engine::{Config, Role};
//!
//! let mut config = Config::new(Role::Client);
//! config.own_schedulers = sumlink_schedulers::all();
//! config.scheduler = "blest".to_owned();
//! assert!(config.check().is_ok());
//! ```
//!
//! To add one: a file in this folder with a type that implements [`Scheduler`], and a line in
//! [`NAMES`] and in `SCHEDULERS`. The tests that every scheduler must pass then include it
//! (`sumlink_engine::testing`). docs/algorithms.md has sources and interpretations.
//!
//! Like the engine, this crate uses no socket, no clock, no thread and no source of randomness.

#![forbid(unsafe_code)]

pub mod blest;
#[cfg(test)]
mod choices;
pub mod ecf;
pub mod fbdt_thesis;
pub mod lrtt;
pub mod musher;
pub mod qaware;
pub mod qdepl;
pub mod roundrobin;
pub mod wrr;

use sumlink_engine::scheduler::{OwnSchedulers, Scheduler};

/// All schedulers by name, those of the engine and those of this crate, in the order of tables.
pub const NAMES: [&str; 13] = [
    "fbdt",
    "minrtt",
    "linux",
    "blest",
    "ecf",
    "roundrobin",
    "redundant",
    "musher",
    "qaware",
    "lrtt",
    "qdepl",
    "wrr",
    "fbdt-thesis",
];

/// The schedulers of this crate, by name.
pub const RESEARCH: [&str; SCHEDULERS.len()] = {
    let mut names = [""; SCHEDULERS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = SCHEDULERS[index].0;
        index += 1;
    }
    names
};

type Make = fn() -> Box<dyn Scheduler>;

const SCHEDULERS: [(&str, Make); 9] = [
    ("blest", || Box::<blest::Blest>::default()),
    ("ecf", || Box::<ecf::Ecf>::default()),
    ("roundrobin", || Box::<roundrobin::RoundRobin>::default()),
    ("musher", || Box::<musher::Musher>::default()),
    ("qaware", || Box::new(qaware::QAware)),
    ("lrtt", || Box::new(lrtt::LRtt)),
    ("qdepl", || Box::<qdepl::QDepl>::default()),
    ("wrr", || Box::<wrr::Wrr>::default()),
    ("fbdt-thesis", || Box::<fbdt_thesis::FbdtThesis>::default()),
];

/// All schedulers of this crate, for the configuration of a session. Those of the engine need not
/// be in it.
pub fn all() -> OwnSchedulers {
    let mut all = OwnSchedulers::default();
    for (name, make) in SCHEDULERS {
        let added = all.add(name, move |_| make());
        debug_assert_eq!(added, Ok(()), "the names are valid and distinct");
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sumlink_engine::testing::Candidates;
    use sumlink_engine::{Role, scheduler};

    use super::*;

    #[test]
    fn every_name_has_its_scheduler() {
        for name in NAMES {
            let made = all().make(name, Role::Server);
            assert_eq!(made.map(|scheduler| scheduler.name()), Some(name));
        }
        let named: BTreeSet<_> = NAMES.into_iter().collect();
        let made: BTreeSet<_> = scheduler::NAMES.iter().copied().chain(RESEARCH).collect();
        assert_eq!(named, made);
    }

    /// All but `fbdt-thesis`, which is slower than these tests allow and has its own.
    const PROMPT: [&str; RESEARCH.len() - 1] = {
        let mut names = [""; RESEARCH.len() - 1];
        let mut index = 0;
        while index < names.len() {
            names[index] = RESEARCH[index];
            index += 1;
        }
        names
    };

    #[test]
    fn all_but_one_pass_the_tests_of_every_scheduler() {
        assert!(!PROMPT.contains(&"fbdt-thesis"));
    }

    // Of two schedulers in one session, either may be one of the engine.
    sumlink_engine::test_schedulers!(Candidates::new(&PROMPT, all()).combined_with(&NAMES));
}
