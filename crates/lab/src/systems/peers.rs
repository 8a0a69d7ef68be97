//! Locates the programs of other systems, installed by `make peers`.

use std::env;
use std::path::{Path, PathBuf};

use super::sumlink::is_program;

/// Environment variable: the directory with the programs.
const DIRECTORY: &str = "SUMLINK_LAB_PEERS";

/// The program of that name: in the directory that the environment names, in `peers/bin` next to
/// the directory of this program (where `make peers` installs), or in `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let named = env::var_os(DIRECTORY).map(PathBuf::from);
    // target/release/sumlink and target/peers/bin/PROGRAM.
    let beside = env::current_exe().ok().and_then(|exe| {
        let target = exe.parent()?.parent()?;
        Some(target.join("peers/bin"))
    });
    let in_tests = env::current_exe().ok().and_then(|exe| {
        let target: &Path = exe.parent()?.parent()?.parent()?;
        Some(target.join("peers/bin"))
    });
    let path = env::var_os("PATH").unwrap_or_default();
    [named, beside, in_tests]
        .into_iter()
        .flatten()
        .chain(env::split_paths(&path))
        .map(|directory| directory.join(program))
        .find(|candidate| is_program(candidate))
}

/// The reason in a result if the program is missing.
pub(crate) fn missing(program: &str) -> Option<String> {
    find(program)
        .is_none()
        .then(|| format!("{program} is not installed: make peers"))
}
