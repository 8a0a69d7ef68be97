//! Schedulers that are not built into the engine.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{NAMES, Scheduler};
use crate::Role;

type Make = dyn Fn(Role) -> Box<dyn Scheduler> + Send + Sync;

/// Schedulers of the caller, by name, for trying one without changing the engine.
///
/// Each end of a session that names one creates a new instance.
#[derive(Clone, Default)]
pub struct OwnSchedulers {
    constructors: BTreeMap<String, Arc<Make>>,
}

impl OwnSchedulers {
    /// Adds a scheduler. Configurations use `name` (1 to 15 letters, digits and `_`), whatever name
    /// the scheduler itself returns.
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
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_word {
            return Err(format!(
                "'{name}' cannot be a scheduler's name: use 1 to 15 letters, digits or '_'"
            ));
        }
        if NAMES.contains(&name) {
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

    pub(super) fn make(&self, name: &str, role: Role) -> Option<Box<dyn Scheduler>> {
        self.constructors.get(name).map(|make| make(role))
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
    use crate::scheduler::minrtt::MinRtt;
    use crate::{Class, Config, ConfigError, Instant, Session};

    #[test]
    fn own_schedulers_are_chosen_by_name_and_per_class() {
        let mut config = Config::new(Role::Client);
        config.scheduler = "mine".to_owned();
        let session = |config: &Config| Session::new(config.clone(), Instant::ZERO).map(drop);
        let unknown = ConfigError::UnknownScheduler("mine".to_owned());
        assert_eq!(session(&config), Err(unknown));
        let make = |_| Box::new(MinRtt::default()) as Box<dyn Scheduler>;
        config.own_schedulers.add("mine", make).unwrap();
        assert_eq!(session(&config), Ok(()));
        config.scheduler = "fbdt".to_owned();
        let classes = &mut config.class_schedulers;
        classes.insert(Class::Streaming, "mine".to_owned());
        assert_eq!(session(&config), Ok(()));
    }

    #[test]
    fn invalid_and_used_names_are_refused() {
        let mut own = OwnSchedulers::default();
        let mut add = |name| own.add(name, |_| Box::new(MinRtt::default()));
        assert!(add("fbdt").unwrap_err().contains("already"));
        for name in ["", "a+b", "a:b", "much_too_long_name"] {
            assert!(add(name).unwrap_err().contains("1 to 15 letters"), "{name}");
        }
    }
}
