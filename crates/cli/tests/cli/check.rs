//! `sumlink check` finds each mistake of a configuration file, with its line.

mod one;
mod several;
mod values;

use std::os::unix::fs::PermissionsExt;

use crate::common::Bench;

const CLIENT: &str = include_str!("../../../../packaging/client.toml");
const SERVER: &str = include_str!("../../../../packaging/server.toml");

/// A directory with a key, and the example with that key in place of its placeholders.
fn bench(example: &str, file: &str) -> (Bench, String) {
    let bench = crate::common::new();
    let public = bench.key("client.key");
    std::fs::copy(bench.path("client.key"), bench.path("server.key")).unwrap();
    let token = bench.write("monitor.token", "0123456789abcdef\n");
    std::fs::set_permissions(token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = example
        .replace("SERVER-HOST", "192.0.2.1")
        .replace("SERVER-PUBLIC-KEY", &public)
        .replace("CLIENT-PUBLIC-KEY", &public);
    bench.write(file, &text);
    (bench, text)
}

#[test]
fn the_examples_are_valid() {
    for (example, role) in [(CLIENT, "client"), (SERVER, "server")] {
        let (bench, text) = bench(example, "sumlink.toml");
        let ran = bench.run(&["check", "sumlink.toml"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(
            ran.out.contains(&format!("ok, a {role}'s configuration")),
            "{}",
            ran.out
        );
        let json = bench.run(&["check", "--json", "sumlink.toml"]).out;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["ok"], &json["role"]), (&true.into(), &role.into()));
        // The commented lines are valid too. `links` and [[link]] exclude each other, and so do
        // `congestion` and `coupled`.
        for other in ["congestion", "coupled"] {
            let all: String = text
                .lines()
                .map(|line| match line.trim_start().strip_prefix('#') {
                    Some(rest) if !rest.starts_with(' ') => rest,
                    _ => line,
                })
                .filter(|line| !line.starts_with("links") && !line.starts_with(other))
                .map(|line| format!("{line}\n"))
                .collect();
            bench.write("all.toml", &all);
            let ran = bench.run(&["check", "all.toml"]);
            assert_eq!(ran.code, 0, "{}\n{all}", ran.err);
        }
    }
}

#[test]
fn a_placeholder_is_not_a_configuration() {
    let bench = crate::common::new();
    bench.key("client.key");
    bench.write("client.toml", CLIENT);
    let ran = bench.run(&["check", "client.toml"]);
    assert_eq!(ran.code, 3);
    assert!(
        ran.err
            .contains("client.toml:11: `server_key`: a public key is"),
        "{}",
        ran.err
    );
}

#[test]
fn unused_settings_cause_warnings() {
    // The example ends in its `[session]`.
    let session = "scheduler = \"minrtt\"\ncoupling = \"fair\"\n\
        [session.redundancy]\nshare = \"2%\"\n[session.race]\ninteractive = \"8KiB\"\n";
    let (bench, text) = bench(CLIENT, "x.toml");
    let lines = text.lines().count();
    let warnings = |session: &str| {
        bench.write("x.toml", &format!("{text}{session}"));
        let ran = bench.run(&["check", "x.toml"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(
            ran.out.contains("ok, a client's configuration"),
            "{}",
            ran.out
        );
        ran.err
    };
    let of = |line: usize, key: &str| {
        let line = lines + line;
        format!(
            "x.toml:{line}: warning: `{key}` has no effect: no scheduler of this session uses it\n"
        )
    };
    let expected = of(2, "coupling") + &of(6, "race.interactive");
    assert_eq!(warnings(session), expected);
    let json = bench.run(&["check", "--json", "x.toml"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["warnings"].as_array().unwrap().len(), 2, "{json}");
    assert_eq!(json["warnings"][0]["line"], lines + 2);

    // The race is for the interactive class, which has another scheduler.
    let of_class = |class: &str| format!("{session}[session.schedulers]\n{class} = \"fbdt\"\n");
    assert_eq!(warnings(&of_class("streaming")), of(6, "race.interactive"));
    assert_eq!(warnings(&of_class("interactive")), "");
    let redundant = session.replace("minrtt", "redundant");
    assert_eq!(warnings(&redundant).lines().count(), 3);
}

/// Without the file, each start would forget the bytes counted against the cap.
#[test]
fn a_data_cap_needs_a_state_file() {
    let capped = CLIENT.replace(
        "links = \"auto\"",
        "[[link]]\nname = \"lo\"\ncap_day = \"1GB\"\n",
    );
    let (bench, _) = bench(&capped, "client.toml");
    let ran = bench.run(&["client", "--config", "client.toml"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(
        ran.err.contains("link lo has a data cap, but no file"),
        "{}",
        ran.err
    );
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

#[test]
fn duplicate_clients_are_reported() {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    let block = format!("[[client]]\nkey = \"{key}\"\n");
    bench.write(
        "x.toml",
        &format!("listen = \"[::]:1\"\nkey = \"a.key\"\n{block}{block}"),
    );
    bench
        .run(&["check", "x.toml"])
        .fails(3, "x.toml:6: this client key occurs twice");
}

#[test]
fn a_file_without_a_role_and_a_missing_file() {
    let bench = crate::common::new();
    bench.write("x.toml", "key = \"a.key\"\n");
    bench.run(&["check", "x.toml"]).fails(3, "neither `server`");
    bench
        .run(&["check", "none.toml"])
        .fails(3, "none.toml: cannot read");
    bench.write("empty.toml", "");
    bench
        .run(&["check", "empty.toml"])
        .fails(3, "empty.toml:1: neither");
    std::fs::write(bench.path("binary.toml"), [0xff, 0xfe]).unwrap();
    bench.run(&["check", "binary.toml"]).fails(3, "binary.toml");
}

#[test]
fn paths_in_a_file_are_relative_to_the_file() {
    let (bench, text) = bench(CLIENT, "unused.toml");
    std::fs::create_dir(bench.path("etc")).unwrap();
    bench.write("etc/client.toml", &text);
    bench
        .run(&["check", "etc/client.toml"])
        .fails(4, "etc/client.toml:29:");
    std::fs::rename(bench.path("client.key"), bench.path("etc/client.key")).unwrap();
    assert_eq!(bench.run(&["check", "etc/client.toml"]).code, 0);
    let open = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(bench.path("etc/client.key"), open).unwrap();
    bench
        .run(&["check", "etc/client.toml"])
        .fails(4, "chmod 600");
}

#[test]
fn a_file_of_the_other_role_is_refused_at_start() {
    let (bench, _) = bench(SERVER, "server.toml");
    bench
        .run(&["client", "--config", "server.toml"])
        .fails(3, "this is a server's configuration");
    let (bench, _) = self::bench(CLIENT, "client.toml");
    bench
        .run(&["server", "--config", "client.toml"])
        .fails(3, "this is a client's configuration");
}

#[test]
fn a_daemon_reports_the_first_problem_and_how_to_list_the_others() {
    let bench = crate::common::new();
    bench.write(
        "x.toml",
        "listen = \"x\"\n[limits]\npaths = 0\n[[client]]\nkey = \"x\"\n",
    );
    bench
        .run(&["server", "--config", "x.toml"])
        .fails(3, "(and 3 more: sumlink check x.toml)");
    bench.write("y.toml", "listen = \"[::1]:0\"\n");
    bench
        .run(&["server", "--config", "y.toml"])
        .fails(3, "y.toml:1: no key");
}
