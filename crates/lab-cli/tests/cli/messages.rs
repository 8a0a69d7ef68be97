//! Messages of the laboratory state the position of a problem and the remedy.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::Ran;

#[test]
fn a_text_without_quotes_is_reported_with_its_position() {
    let bench = crate::common::new();
    bench.write("s.toml", "name = x\nrate = 20mbit\n");
    let ran = bench.run(&["check", "s.toml"]);
    assert_eq!(ran.code, 3);
    assert!(
        ran.err
            .contains("s.toml:2: column 8: a text needs quotes: write rate = \"20mbit\""),
        "{}",
        ran.err
    );
}

/// Messages name the path and the operation instead of the system's error number.
#[test]
fn system_errors_have_no_numbers() {
    let bench = crate::common::new();
    bench.write("file", "");
    let runs: Vec<Vec<&str>> = vec![
        vec!["check", "none.toml"],
        vec!["list", "none"],
        vec!["report", "none"],
        vec!["run", "none.toml"],
        vec!["shell", "none.toml"],
        vec!["sim", "run", "none.toml"],
        vec!["mmwave", "run", "none.toml"],
        vec!["mmwave", "beams", "--patterns", "none"],
        vec!["mmwave", "abft", "--out", "file/x"],
    ];
    for run in runs {
        let ran = bench.run(&run);
        assert_ne!(ran.code, 0, "{run:?}");
        assert!(!ran.err.contains("os error"), "{run:?}: {}", ran.err);
        assert!(!ran.err.is_empty(), "{run:?}");
    }
    let none = bench.run(&["check", "none.toml"]).err;
    assert!(
        none.contains("none.toml: cannot read it: No such file or directory"),
        "{none}"
    );
}

/// The usual reason why the demonstration fails for a user: it writes its results to the current
/// directory.
#[test]
fn a_demonstration_without_write_access_gives_advice() {
    let bench = crate::common::new();
    // A directory that every user can read.
    std::fs::set_permissions(bench.dir(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = bench.path("sumlink-lab");
    if std::fs::hard_link(env!("CARGO_BIN_EXE_sumlink-lab"), &program).is_err() {
        std::fs::copy(env!("CARGO_BIN_EXE_sumlink-lab"), &program).unwrap();
    }
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let run = |args: &[&str]| {
        let output = Command::new("setpriv")
            .args(nobody)
            .arg(&program)
            .args(args)
            .current_dir(bench.dir())
            .output();
        output.ok().map(Ran::from)
    };
    match run(&["--version"]) {
        Some(ran) if ran.code == 0 => {}
        // Only root can switch to another user.
        _ => return,
    }
    let ran = run(&["demo", "--rounds", "1", "--size", "1MB"]).unwrap();
    ran.fails(
        1,
        "cannot write demo-out: Permission denied; free space, or choose a writable place",
    );
    assert!(ran.err.contains("with --out"), "{}", ran.err);
}
