//! Each algorithm has a script in `scripts/`, and the reference passes it.

use std::path::PathBuf;

use sumlink_congestion::NAMES;
use sumlink_congestion::script::Script;

/// The scripts give windows to three decimal places.
const ROUNDED: f64 = 0.001;

/// All scripts, by their file names.
fn scripts() -> Vec<(String, Script)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let files = folder.read_dir().expect("the folder of the scripts");
    let script = |path: PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy();
        let text = std::fs::read_to_string(&path).expect("a script");
        let script = text.parse();
        let script = script.unwrap_or_else(|error| panic!("{name}: {error}"));
        (name.into_owned(), script)
    };
    files
        .map(|entry| script(entry.expect("a script").path()))
        .collect()
}

#[test]
fn the_reference_passes_the_scripts() {
    let mut all_wrong = Vec::new();
    for (name, script) in scripts() {
        for algorithm in &script.algorithms {
            let outcomes = script
                .play(algorithm)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(
                !outcomes.is_empty(),
                "{name} has no expectation for {algorithm}"
            );
            let wrong = outcomes.iter().filter(|outcome| outcome.error() > ROUNDED);
            all_wrong.extend(wrong.map(|outcome| format!("{name}, {algorithm}, {outcome}")));
        }
    }
    assert!(all_wrong.is_empty(), "{}", all_wrong.join("\n"));
}

#[test]
fn every_algorithm_has_a_script_of_its_name() {
    let scripts = scripts();
    for name in NAMES {
        let own = scripts.iter().find(|(file, _)| file == name);
        let (_, script) = own.unwrap_or_else(|| panic!("scripts/{name}.txt is missing"));
        assert_eq!(script.algorithms, [name]);
    }
}
