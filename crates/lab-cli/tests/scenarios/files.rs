//! Invalid scenario files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Place, TWO_LINKS, is_skipped, text};

#[test]
fn garbage_in_a_trace_is_reported_with_file_and_line() {
    let scenario = TWO_LINKS.replace("rate = \"10mbit\"", "trace = \"lte.trace\"");
    let place = Place::new(&scenario);
    fs::write(place.path("lte.trace"), "1\n2\n3\n4\n5\n6\nseven\n8\n").unwrap();
    let output = place.lab("check", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let message = text(&output.stderr);
    assert!(
        message.starts_with("lte.trace:7: \"seven\" is not"),
        "{message}"
    );
}

#[test]
fn every_problem_is_listed() {
    let scenario = TWO_LINKS
        .replace("20mbit", "8000mbit")
        .replace("10ms", "10 parsecs")
        .replace("fbdt", "fbtd");
    let place = Place::new(&scenario);
    for verb in ["check", "run", "shell"] {
        let output = place.lab(verb, &[]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{verb}");
        let message = text(&output.stderr);
        let lines: Vec<_> = message.lines().collect();
        assert_eq!(lines.len(), 3, "{verb}: {message}");
        assert!(
            lines.iter().all(|line| line.starts_with("s.toml:")),
            "{message}"
        );
        assert!(
            message.contains(
                "8gbit is more than the emulator carries packet by packet; ask for at most 2.5gbit"
            ),
            "{message}"
        );
    }
    assert!(!place.path("lab-out").exists());
}

#[test]
fn every_scenario_of_the_project_is_valid() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let of = |directory: PathBuf| {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().path())
    };
    // All other files of a folder are scenarios, so that no new folder is forgotten; the exceptions
    // are tables of the matrix and experiments in a cell.
    let is_other = |path: &Path| {
        let folder = path.parent().unwrap();
        let text = fs::read_to_string(path).unwrap();
        let head = text.split("\n[").next().unwrap();
        folder.ends_with("matrix")
            || folder.ends_with("matrix-third")
            || folder.ends_with("matrix-gateway")
            || (folder.ends_with("mmwave") && head.contains("\nkind = "))
    };
    let mut files: Vec<_> = of(directory.into())
        .flat_map(|path| match path.is_dir() {
            true => of(path).collect(),
            false => vec![path],
        })
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .filter(|path| !is_other(path))
        .collect();
    files.sort();
    for folder in ["edge", "mmwave", "papers", "selection", "validate", "video"] {
        let in_it = |path: &PathBuf| path.parent().unwrap().ends_with(folder);
        assert!(files.iter().any(in_it), "nothing of {folder}: {files:?}");
    }
    let output = std::process::Command::new(crate::program())
        .args(["check"])
        .args(&files)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_shell_has_the_links_of_the_scenario() {
    if is_skipped() {
        return;
    }
    let place = Place::new(TWO_LINKS);
    let output = place
        .lab("shell", &["--", "ip", "-brief", "address", "show", "lte"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("10.77.2.2/24"));
}
