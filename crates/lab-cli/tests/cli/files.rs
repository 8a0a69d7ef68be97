//! Configuration files: a missing, unreadable or wrong one has the same exit code for every verb.

/// Verbs with the position of their configuration file or directory.
const VERBS: [&[&str]; 8] = [
    &["sim", "run", "FILE"],
    &["run", "FILE"],
    &["check", "FILE"],
    &["shell", "FILE", "--", "true"],
    &["video", "FILE", "--judge-only"],
    &["mmwave", "run", "FILE"],
    &["mmwave", "beams", "--patterns", "FILE"],
    &["bench", "--list", "--matrix", "FILE"],
];

/// A missing or wrong configuration file (docs/cli.md).
const CONFIG: i32 = 3;

#[test]
fn an_unreadable_configuration_file_has_one_exit_code() {
    let bench = crate::common::new();
    bench.write("broken.toml", "name = [\n");
    std::fs::write(bench.path("bytes.toml"), b"name = \"\xff\"\n").unwrap();
    std::fs::create_dir(bench.path("directory.toml")).unwrap();
    for verb in VERBS {
        let is_directory = verb.contains(&"--matrix");
        for file in ["none.toml", "directory.toml", "bytes.toml", "broken.toml"] {
            if is_directory && file == "directory.toml" {
                continue;
            }
            let args: Vec<&str> = verb
                .iter()
                .map(|word| if *word == "FILE" { file } else { word })
                .collect();
            let ran = bench.run(&args);
            assert_eq!(ran.code, CONFIG, "{args:?}: {} {}", ran.out, ran.err);
            assert!(ran.err.contains(file), "{args:?}: {}", ran.err);
        }
    }
    let list = bench.run(&["list", "none"]);
    assert_eq!(list.code, CONFIG, "{}", list.err);
    // Results are not configuration.
    let report = bench.run(&["report", "none"]);
    assert_eq!(report.code, 1, "{}", report.err);
}
