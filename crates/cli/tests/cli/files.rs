//! Configuration files: a missing, unreadable or wrong one has the same exit code for every verb.

/// Verbs with the position of their configuration file.
const VERBS: [&[&str]; 3] = [
    &["check", "FILE"],
    &["client", "--config", "FILE"],
    &["server", "--config", "FILE"],
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
        for file in ["none.toml", "directory.toml", "bytes.toml", "broken.toml"] {
            let args: Vec<&str> = verb
                .iter()
                .map(|word| if *word == "FILE" { file } else { word })
                .collect();
            let ran = bench.run(&args);
            assert_eq!(ran.code, CONFIG, "{args:?}: {} {}", ran.out, ran.err);
            assert!(ran.err.contains(file), "{args:?}: {}", ran.err);
        }
    }
}
