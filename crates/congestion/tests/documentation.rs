//! docs/congestion.md lists all algorithms and parameters.

use std::fmt::Write;

use sumlink_congestion::{ALGORITHMS, NAMES, Parameter};

const TEXT: &str = include_str!("../../../docs/congestion.md");

/// One line for each algorithm.
fn algorithms() -> String {
    let mut table =
        "| name | purpose | uses siblings | source |\n| --- | --- | --- | --- |\n".to_owned();
    for entry in ALGORITHMS {
        let info = entry.info;
        let coupled = if info.coupled { "yes" } else { "" };
        writeln!(
            table,
            "| `{}` | {} | {coupled} | {} |",
            info.name, info.about, info.source
        )
        .unwrap();
    }
    table
}

/// One line for each parameter of some algorithms only, then the common ones with their usual
/// defaults.
fn parameters() -> String {
    let common = common();
    let mut table =
        "| of | parameter | default | range | |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for entry in ALGORITHMS {
        for parameter in entry.parameters() {
            if !common.contains(&parameter) {
                row(&mut table, entry.info.name, &parameter);
            }
        }
    }
    for parameter in &common {
        row(&mut table, "all", parameter);
    }
    table
}

/// The parameters of `reno`, which are those common to all.
fn common() -> Vec<Parameter> {
    let reno = sumlink_congestion::entry("reno").expect("an entry");
    reno.parameters()
}

fn row(table: &mut String, of: &str, parameter: &Parameter) {
    let Parameter {
        key,
        about,
        default,
        least,
        most,
    } = parameter;
    writeln!(
        table,
        "| {of} | `{key}` | {default} | {least} to {most} | {about} |"
    )
    .unwrap();
}

fn assert_documented(table: &str) {
    let missing: Vec<_> = table.lines().filter(|row| !TEXT.contains(row)).collect();
    assert!(
        missing.is_empty(),
        "docs/congestion.md lacks:\n{}",
        missing.join("\n")
    );
    assert!(
        TEXT.contains(table),
        "docs/congestion.md has additional rows or another order:\n{table}"
    );
}

#[test]
fn documentation_lists_the_algorithms_of_the_registry() {
    assert_documented(&algorithms());
}

#[test]
fn documentation_lists_the_parameters_of_the_registry() {
    assert_documented(&parameters());
}

#[test]
fn every_algorithm_has_its_rule() {
    for name in NAMES {
        let row = TEXT
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}` | for each")));
        assert!(row.is_some(), "docs/congestion.md lacks the rule of {name}");
    }
}
