//! The program links nothing that only measurements and tests need.

use std::process::Command;

/// What it must not link: the laboratory, the simulator, the edge node, research schedulers, and
/// the engine's tests for schedulers with their random cases.
const EXCLUDED: [&str; 12] = [
    "proptest",
    "sumlink-edge",
    "sumlink-edge-cli",
    "sumlink-edge-node",
    "sumlink-lab",
    "sumlink-link",
    "sumlink-mmwave",
    "sumlink-plot",
    "sumlink-scenario",
    "sumlink-schedulers",
    "sumlink-sim",
    "sumlink-test-support",
];

#[test]
fn sumlink_links_no_crate_of_the_laboratory() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["tree", "--package", "sumlink", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}"])
        .args(["--all-features", "--offline", "--locked"])
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let linked: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(linked.contains(&"sumlink-transport"), "{tree}");
    for name in EXCLUDED {
        assert!(!linked.contains(&name), "{name} is linked:\n{tree}");
    }
}
