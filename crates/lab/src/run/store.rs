//! The directory of results; files are written atomically.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::error::LabError;
use crate::results::{self, Outcome, Run, SCHEMA, Summary};
use crate::scenario::Scenario;

/// The results of several scenarios.
pub struct Store {
    directory: PathBuf,
    /// Directories created for the store that are still empty, the innermost first.
    made: Vec<PathBuf>,
    /// The share of the processors that other programs may use during a run; `None` for any.
    most_others: Option<f64>,
    /// Held while the store exists: two stores would repeat the same runs, and disturb each other's
    /// figures.
    _lock: Flock<File>,
}

impl Store {
    /// Creates the directory and checks that files can be written there.
    pub fn open(directory: &Path) -> Result<Self, LabError> {
        let made = directory
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
            .map(Path::to_path_buf)
            .collect();
        fs::create_dir_all(directory).map_err(failed(directory))?;
        let opened = File::open(directory).map_err(failed(directory))?;
        let lock = Flock::lock(opened, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|(_, error)| match error {
            Errno::EWOULDBLOCK => LabError::Usage(format!(
                "another run is writing to {}: wait for it, or choose another --out",
                directory.display()
            )),
            error => failed(directory)(error.into()),
        })?;
        let store = Self {
            directory: directory.to_path_buf(),
            made,
            most_others: None,
            _lock: lock,
        };
        // A full disk shows only when bytes are written.
        let probe = NamedTempFile::new_in(directory).and_then(|mut file| {
            file.write_all(&[0; 4096])
                .and_then(|()| file.as_file().sync_data())
        });
        probe.map_err(failed(directory))?;
        Ok(store)
    }

    /// Refuses runs during which other programs used more than this share of the processors, 0..=1:
    /// they count as not done.
    #[must_use]
    pub(crate) fn with_most_others(mut self, share: Option<f64>) -> Self {
        self.most_others = share;
        self
    }

    /// The directory of the results.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Stores a copy of the scenario's file with its results.
    pub fn write_scenario(&self, scenario: &Scenario) -> Result<(), LabError> {
        let directory = self.directory.join(&scenario.name);
        write_atomically(&directory, "scenario.toml", scenario.text.as_bytes())
    }

    /// The stored run of the same scenario text.
    pub fn read(&self, scenario: &Scenario, seed: u64, system: &str) -> Option<Run> {
        let text = fs::read(self.path(scenario, seed, system)).ok()?;
        let mut run: Run = serde_json::from_slice(&text).ok()?;
        let same = run.schema == SCHEMA
            && run.scenario_sha256 == scenario.sha256
            && run.seed == seed
            && run.system == system;
        if let (Some(most), Outcome::Measured(figures)) = (self.most_others, &run.outcome)
            && let Some(machine) = figures
                .machine
                .filter(|machine| machine.others_share > most)
        {
            let (share, most) = (machine.others_share * 100.0, most * 100.0);
            run.outcome = Outcome::Refused {
                reason: format!(
                    "other programs used {share:.0} % of the machine, more than {most:.0} %"
                ),
            };
        }
        same.then_some(run)
    }

    /// The stored run, if it has figures: failed and unavailable runs are worth another attempt.
    pub fn done(&self, scenario: &Scenario, seed: u64, system: &str) -> Option<Run> {
        self.read(scenario, seed, system)
            .filter(|run| matches!(run.outcome, Outcome::Measured(_)))
    }

    /// Writes a run.
    pub fn write_run(&self, scenario: &Scenario, run: &Run) -> Result<PathBuf, LabError> {
        let path = self.path(scenario, run.seed, &run.system);
        write_json(&path, run)?;
        Ok(path)
    }

    /// Writes the summary of all runs of the scenario, those of earlier calls included.
    pub fn write_summary(&self, scenario: &Scenario) -> Result<(), LabError> {
        let directory = self.directory.join(&scenario.name);
        for found in results::load(&directory)? {
            let summary = Summary::from_runs(&found.header, &found.runs);
            write_json(&directory.join("summary.json"), &summary)?;
        }
        Ok(())
    }

    fn path(&self, scenario: &Scenario, seed: u64, system: &str) -> PathBuf {
        self.directory
            .join(&scenario.name)
            .join(format!("seed-{seed}"))
            .join(format!("{}.json", file_name(system)))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        for directory in &self.made {
            // Fails for directories with results, as intended.
            if fs::remove_dir(directory).is_err() {
                return;
            }
        }
    }
}

/// A system's name as a file name: some file systems do not accept colons.
pub(crate) fn file_name(system: &str) -> String {
    system.replace(':', "-")
}

/// Writes a value as JSON.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), LabError> {
    let mut text =
        serde_json::to_string(value).map_err(|error| LabError::system("writing JSON", error))?;
    text.push('\n');
    write_text(path, &text)
}

/// Writes a text.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), LabError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    write_atomically(directory, &name, text.as_bytes())
}

/// Writes to a temporary file and renames it, so that an interruption leaves no partial file.
fn write_atomically(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), LabError> {
    let path = directory.join(name);
    let existed = directory.exists();
    let write = || {
        fs::create_dir_all(directory)?;
        let mut file = NamedTempFile::new_in(directory)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        // Temporary files are private; results get the usual permissions.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.as_file().set_permissions(mode)?;
        file.persist(&path).map_err(|error| error.error)
    };
    write().map(drop).map_err(|error| {
        if !existed {
            let _ = fs::remove_dir(directory);
        }
        failed(&path)(error)
    })
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> LabError {
    let path = path.to_path_buf();
    move |source| LabError::Output { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_directory_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("a/b");
        drop(Store::open(&directory).unwrap());
        assert!(!base.path().join("a").exists());
        let store = Store::open(&directory).unwrap();
        write_json(&directory.join("x/y.json"), &1).unwrap();
        drop(store);
        assert_eq!(
            fs::read_to_string(directory.join("x/y.json")).unwrap(),
            "1\n"
        );
    }

    #[test]
    fn a_run_beside_other_programs_is_refused_and_repeated() {
        let text = "name = \"a\"\nduration = \"5s\"\n[[link]]\nname = \"wifi\"\nrate = \"1mbit\"\n";
        let scenario = Scenario::parse(Path::new("a.toml"), text).unwrap();
        let with_others = |others_share| {
            let figures = results::Measurement {
                machine: Some(results::Machine {
                    others_share,
                    ..results::Machine::default()
                }),
                ..results::Measurement::default()
            };
            Run {
                scenario: scenario.name.clone(),
                scenario_sha256: scenario.sha256.clone(),
                ..Run::bare("mptcp", 1, Outcome::Measured(Box::new(figures)))
            }
        };
        let base = tempfile::tempdir().unwrap();
        let store = Store::open(base.path())
            .unwrap()
            .with_most_others(Some(0.1));
        store.write_run(&scenario, &with_others(0.374)).unwrap();
        assert!(store.done(&scenario, 1, "mptcp").is_none());
        let reason = match store.read(&scenario, 1, "mptcp").unwrap().outcome {
            Outcome::Refused { reason } => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            reason,
            "other programs used 37 % of the machine, more than 10 %"
        );
        store.write_run(&scenario, &with_others(0.05)).unwrap();
        assert!(store.done(&scenario, 1, "mptcp").is_some());
    }

    #[test]
    fn a_store_is_opened_once_at_a_time() {
        let base = tempfile::tempdir().unwrap();
        let first = Store::open(base.path()).unwrap();
        let error = Store::open(base.path()).err().unwrap().to_string();
        assert!(error.contains("another run is writing"), "{error}");
        drop(first);
        assert!(Store::open(base.path()).is_ok());
    }

    #[test]
    fn an_unwritable_path_is_named() {
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Store::open(&file.join("out")).err().unwrap().to_string();
        assert!(
            error.contains("file/out") && error.contains("--out"),
            "{error}"
        );
    }

    #[test]
    fn names_of_files_have_no_colon() {
        assert_eq!(file_name("sumlink:fbdt+bbr"), "sumlink-fbdt+bbr");
    }
}
