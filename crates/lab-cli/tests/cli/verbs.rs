//! The command line of the laboratory.

use crate::common::Ran;

#[test]
fn missing_programs_have_the_laboratorys_exit_code() {
    let bench = crate::common::new();
    // The programs that a laboratory needs are missing.
    let mut command = bench.command(["self-test", "--json", "--only", "delay"]);
    let ran = Ran::from(command.env("PATH", "").output().unwrap());
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["error"]["kind"], "laboratory");
    assert_eq!(json["error"]["exit_code"], ran.code);
}

#[test]
fn completions_and_manual_pages_belong_to_the_laboratory() {
    let bench = crate::common::new();
    for shell in ["bash", "zsh", "fish"] {
        let ran = bench.run(&["completions", shell]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        assert!(ran.out.contains("sumlink-lab"), "{shell}");
    }
    assert_eq!(bench.run(&["man", "--out", "man"]).code, 0);
    for page in [
        "",
        "-run",
        "-demo",
        "-bench",
        "-sim-run",
        "-cc-trace",
        "-mmwave-run",
    ] {
        let file = bench.path(&format!("man/sumlink-lab{page}.1"));
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains("EXIT STATUS"), "{page}");
    }
    // An example has its own line.
    let page = bench.run(&["man", "run"]).out.replace("\\-", "-");
    assert!(page.contains("\n  sumlink-lab report lab-out\n"), "{page}");
    assert!(!bench.path("man/sumlink-lab-server.1").exists());
}

#[test]
fn internal_verbs_are_hidden_but_work() {
    let bench = crate::common::new();
    let help = bench.run(&["--help"]).out;
    for verb in ["keygen", "server", "client", "edge", "traffic"] {
        assert!(!help.contains(&format!("\n  {verb} ")), "{verb}: {help}");
    }
    bench.run(&["server"]).fails(2, "missing: --listen");
    bench.run(&["client"]).fails(2, "missing: --server");
    assert_eq!(bench.run(&["edge", "--config", "none.toml"]).code, 3);
    assert!(bench.run(&["demo", "--help"]).out.contains("--rounds"));
}
