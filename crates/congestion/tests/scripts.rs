//! Each algorithm has a script in `scripts/`, and the reference does what it says.

use std::path::PathBuf;

use sumlink_congestion::NAMES;
use sumlink_congestion::script::Script;

/// The scripts give windows to the third place.
const ROUNDED: f64 = 0.001;

#[test]
fn the_reference_does_what_the_scripts_say() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts");
    for name in NAMES {
        let text = std::fs::read_to_string(folder.join(format!("{name}.txt")));
        let text = text.unwrap_or_else(|error| panic!("{name} has no script: {error}"));
        let script: Script = text
            .parse()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(script.algorithm, name);
        let outcomes = script.play().expect("an algorithm");
        assert!(!outcomes.is_empty(), "{name} expects nothing");
        let wrong: Vec<_> = outcomes
            .iter()
            .filter(|outcome| outcome.error() > ROUNDED)
            .collect();
        let lines: Vec<_> = wrong.iter().map(|outcome| outcome.to_string()).collect();
        assert!(wrong.is_empty(), "{name}: {}", lines.join("; "));
    }
}
