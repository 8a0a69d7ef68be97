//! Schedulers that are not built into the engine.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{NAMES, RepeatLimit, Scheduler, by_name};
use crate::Role;

type Make = dyn Fn(Role) -> Box<dyn Scheduler> + Send + Sync;

/// Schedulers of the caller, by name: those of the crate `sumlink-schedulers`, or new ones.
///
/// The engine trusts the decisions of a scheduler: [`Pick`](super::Pick) has the conditions. Each
/// end of a session that names one creates a new instance.
#[derive(Clone, Default)]
pub struct OwnSchedulers {
    constructors: BTreeMap<String, Arc<Make>>,
}

impl OwnSchedulers {
    /// Adds a scheduler. Configurations use `name` (1 to 15 letters, digits, `-` and `_`), whatever
    /// name the scheduler itself returns.
    ///
    /// # Errors
    ///
    /// If the name is invalid or already in use.
    pub fn add(
        &mut self,
        name: &str,
        make: impl Fn(Role) -> Box<dyn Scheduler> + Send + Sync + 'static,
    ) -> Result<(), String> {
        let is_word = (1..=15).contains(&name.len())
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !is_word {
            return Err(format!(
                "'{name}' cannot be a scheduler's name: use 1 to 15 letters, digits, '-' or '_'"
            ));
        }
        if NAMES.contains(&name) || self.has(name) {
            return Err(format!(
                "the scheduler '{name}' already exists: choose another name"
            ));
        }
        self.constructors.insert(name.to_owned(), Arc::new(make));
        Ok(())
    }

    /// Whether a scheduler with this name exists.
    pub fn has(&self, name: &str) -> bool {
        self.constructors.contains_key(name)
    }

    /// Their names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.constructors.keys().map(String::as_str)
    }

    /// All names that a configuration with these schedulers can use: the engine's own, then these.
    pub fn known(&self) -> impl Iterator<Item = &str> {
        NAMES.iter().copied().chain(self.names())
    }

    /// Number of paths that the scheduler with this name, one of these or of the engine, supports;
    /// none for any number, or for an unknown name.
    pub fn max_paths(&self, name: &str, role: Role) -> Option<usize> {
        self.make(name, role)?.max_paths()
    }

    /// The limit on the bytes that the scheduler with this name, one of these or of the engine,
    /// sends again; none for an unknown name.
    pub fn repeat_limit(&self, name: &str, role: Role) -> Option<RepeatLimit> {
        Some(self.make(name, role)?.repeat_limit())
    }

    /// A new instance of the scheduler with this name, one of these or of the engine, for one end
    /// of a session; none for an unknown name.
    pub fn make(&self, name: &str, role: Role) -> Option<Box<dyn Scheduler>> {
        by_name(name).or_else(|| self.constructors.get(name).map(|make| make(role)))
    }
}

impl fmt::Debug for OwnSchedulers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathId;
    use crate::scheduler::minrtt::MinRtt;
    use crate::scheduler::{Pick, View};
    use crate::{Class, Config, Instant, Session};

    #[test]
    fn own_schedulers_are_chosen_by_name_and_per_class() {
        let mut config = Config::new(Role::Client);
        config.scheduler = "mine".to_owned();
        let session = |config: &Config| Session::new(config.clone(), Instant::ZERO).map(drop);
        let refusal = session(&config).unwrap_err().to_string();
        assert!(
            refusal.starts_with("unknown scheduler \"mine\""),
            "{refusal}"
        );
        let make = |_| Box::new(MinRtt::default()) as Box<dyn Scheduler>;
        config.own_schedulers.add("mine", make).unwrap();
        assert_eq!(session(&config), Ok(()));
        config.scheduler = "yours".to_owned();
        let refusal = session(&config).unwrap_err().to_string();
        assert!(
            refusal.contains("fbdt, ") && refusal.ends_with(", mine"),
            "{refusal}"
        );
        config.scheduler = "fbdt".to_owned();
        let classes = &mut config.class_schedulers;
        classes.insert(Class::Streaming, "mine".to_owned());
        assert_eq!(session(&config), Ok(()));
    }

    #[derive(Debug)]
    struct ForTwo;

    impl Scheduler for ForTwo {
        fn name(&self) -> &'static str {
            "for_two"
        }

        fn pick(&mut self, _: PathId, _: u64, _: &View<'_>) -> Pick {
            Pick::Idle
        }

        fn max_paths(&self) -> Option<usize> {
            Some(2)
        }
    }

    #[test]
    fn the_limits_of_every_scheduler_are_known() {
        let mut own = OwnSchedulers::default();
        own.add("for_two", |_| Box::new(ForTwo)).unwrap();
        let most = |name| own.max_paths(name, Role::Server);
        assert_eq!(most("for_two"), Some(2));
        assert_eq!(most("fbdt"), None);
        assert_eq!(most("unknown"), None);
        let limit = |name| own.repeat_limit(name, Role::Server);
        assert_eq!(limit("for_two"), Some(RepeatLimit::Share));
        assert_eq!(limit("redundant"), Some(RepeatLimit::OncePerPath));
        assert_eq!(limit("linux"), Some(RepeatLimit::Nothing));
        assert_eq!(limit("unknown"), None);
    }

    #[test]
    fn invalid_and_used_names_are_refused() {
        let mut own = OwnSchedulers::default();
        let mut add = |name| own.add(name, |_| Box::new(MinRtt::default()));
        assert_eq!(add("mine"), Ok(()));
        for name in ["fbdt", "mine"] {
            assert!(add(name).unwrap_err().contains("already"), "{name}");
        }
        for name in ["", "a+b", "a:b", "much_too_long_name"] {
            assert!(add(name).unwrap_err().contains("1 to 15 letters"), "{name}");
        }
    }
}
