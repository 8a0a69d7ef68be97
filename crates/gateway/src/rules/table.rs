//! The rules of a running gateway.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde::{Deserialize, Serialize};

use super::{Decision, Needs, Query, Rule, RuleError, decide};

/// Most rules added at run time.
const MAX_ADDED: usize = 1000;

/// Whether a rule added at run time survives a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is written to the file of kept rules.
    Yes,
    /// It is gone when the process ends.
    No,
}

/// A rule in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Identifies the rule while the process runs.
    pub id: u64,
    /// Whether it is in the configuration file.
    pub is_configured: bool,
    /// Whether it survives a restart.
    pub is_kept: bool,
    /// The rule.
    pub rule: Rule,
}

/// The rules of a gateway. Clones share them.
///
/// Rules added at run time come first, the newest before the others, so that the latest one counts.
/// Rules of the configuration file follow in their order.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    table: RwLock<Table>,
    generation: AtomicU64,
    /// The file of kept rules.
    file: Option<PathBuf>,
}

#[derive(Clone, Debug, Default)]
struct Table {
    entries: Vec<Entry>,
    next: u64,
    needs: Needs,
}

impl Rules {
    /// The rules of the configuration file. Rules cannot be kept.
    pub fn new(configured: Vec<Rule>) -> Self {
        Self::of(configured, Vec::new(), None)
    }

    /// The rules of the configuration file, and those that were kept in `file`, if it exists.
    ///
    /// # Errors
    ///
    /// [`RuleError::File`] if the file cannot be read, or has other contents.
    pub fn with_file(configured: Vec<Rule>, file: PathBuf) -> Result<Self, RuleError> {
        let kept = match fs::read(&file) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| file_error(&file, error))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(file_error(&file, error)),
        };
        Ok(Self::of(configured, kept, Some(file)))
    }

    fn of(configured: Vec<Rule>, kept: Vec<Rule>, file: Option<PathBuf>) -> Self {
        let mut table = Table::default();
        for rule in kept {
            let entry = table.entry(rule, false, true);
            table.entries.push(entry);
        }
        for rule in configured {
            let entry = table.entry(rule, true, false);
            table.entries.push(entry);
        }
        table.update();
        Self {
            shared: Arc::new(Shared {
                table: RwLock::new(table),
                generation: AtomicU64::new(0),
                file,
            }),
        }
    }

    /// Adds a rule before all others and returns its id.
    ///
    /// # Errors
    ///
    /// [`RuleError::TooMany`], and with [`Keep::Yes`] [`RuleError::NoFile`] and
    /// [`RuleError::File`]. The rules are as before then.
    pub fn add(&self, rule: Rule, keep: Keep) -> Result<u64, RuleError> {
        let mut table = self.write();
        let added = table.entries.iter().filter(|entry| !entry.is_configured);
        let added = added.count();
        if added >= MAX_ADDED {
            return Err(RuleError::TooMany(added));
        }
        let mut changed = table.clone();
        let entry = changed.entry(rule, false, keep == Keep::Yes);
        let id = entry.id;
        changed.entries.insert(0, entry);
        if keep == Keep::Yes {
            self.save(&changed)?;
        }
        self.replace(&mut table, changed);
        Ok(id)
    }

    /// Removes a rule that was added at run time and returns it.
    ///
    /// # Errors
    ///
    /// [`RuleError::NoSuchRule`], [`RuleError::Configured`], and for a kept rule
    /// [`RuleError::File`]. The rules are as before then.
    pub fn remove(&self, id: u64) -> Result<Rule, RuleError> {
        let mut table = self.write();
        let mut changed = table.clone();
        let mut entries = changed.entries.iter();
        let index = entries.position(|entry| entry.id == id);
        let index = index.ok_or(RuleError::NoSuchRule(id))?;
        let entry = changed.entries.remove(index);
        if entry.is_configured {
            return Err(RuleError::Configured(id));
        }
        if entry.is_kept {
            self.save(&changed)?;
        }
        self.replace(&mut table, changed);
        Ok(entry.rule)
    }

    /// All rules in order.
    pub fn list(&self) -> Vec<Entry> {
        self.read().entries.clone()
    }

    /// Replaces the rules of the configuration file. Rules that stay in it keep their ids.
    pub fn set_configured(&self, configured: Vec<Rule>) {
        let mut table = self.write();
        let mut changed = table.clone();
        let (mut before, added): (Vec<Entry>, Vec<Entry>) = changed
            .entries
            .drain(..)
            .partition(|entry| entry.is_configured);
        changed.entries = added;
        for rule in configured {
            let known = before.iter().position(|entry| entry.rule == rule);
            let entry = match known {
                Some(index) => before.remove(index),
                None => changed.entry(rule, true, false),
            };
            changed.entries.push(entry);
        }
        self.replace(&mut table, changed);
    }

    /// Decides about a connection or a flow.
    pub fn decide(&self, query: &Query<'_>) -> Decision {
        decide(&self.read().entries, query)
    }

    /// The facts that the rules need.
    pub fn needs(&self) -> Needs {
        self.read().needs
    }

    /// Changes with every change of the rules.
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    fn replace(&self, table: &mut Table, mut changed: Table) {
        changed.update();
        *table = changed;
        self.shared.generation.fetch_add(1, Ordering::Release);
    }

    /// Writes the kept rules, all or nothing.
    fn save(&self, table: &Table) -> Result<(), RuleError> {
        let file = self.shared.file.as_ref().ok_or(RuleError::NoFile)?;
        let kept = table.entries.iter().filter(|entry| entry.is_kept);
        let kept: Vec<&Rule> = kept.map(|entry| &entry.rule).collect();
        let text = serde_json::to_vec_pretty(&kept).map_err(|error| file_error(file, error))?;
        write_all(file, &text).map_err(|error| file_error(file, error))
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        let table = self.shared.table.read();
        table.unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        let table = self.shared.table.write();
        table.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn entry(&mut self, rule: Rule, is_configured: bool, is_kept: bool) -> Entry {
        self.next += 1;
        Entry {
            id: self.next,
            is_configured,
            is_kept,
            rule,
        }
    }

    fn update(&mut self) {
        self.needs = Needs::of(self.entries.iter().map(|entry| &entry.rule));
    }
}

/// Replaces a file, also after a power loss in between.
fn write_all(file: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let new = file.with_extension("new");
    let mut opened = fs::File::create(&new)?;
    opened.write_all(text)?;
    opened.sync_all()?;
    fs::rename(&new, file)
}

fn file_error(path: &Path, error: impl ToString) -> RuleError {
    RuleError::File {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}
