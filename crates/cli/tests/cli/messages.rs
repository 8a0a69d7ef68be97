//! Messages state the problem and the remedy in plain words.

use std::process::Command;

use crate::common::{Bench, Daemon, Ran};

#[test]
fn addresses_have_one_spelling() {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    let server = [
        "server",
        "--key",
        "a.key",
        "--authorize",
        &key,
        "--json",
        "--listen",
    ];
    for listen in ["0", ":0", "*:0", "127.0.0.1:0", "[::]:0"] {
        let mut server = Daemon::start(bench.command([&server[..], &[listen]].concat()));
        let address = server.event("listening")["address"]
            .as_str()
            .unwrap()
            .to_owned();
        let expected = if listen.starts_with("127") {
            "127.0.0.1:"
        } else {
            "[::]:"
        };
        assert!(address.starts_with(expected), "{listen}: {address}");
    }
    let client = [
        "client",
        "--server",
        "127.0.0.1:9",
        "--server-key",
        &key,
        "--key",
        "a.key",
    ];
    for (option, value, words) in [
        (
            "--socks",
            "localhost:1080",
            "write it like 127.0.0.1:1080, [::1]:1080, 1080 or *:1080",
        ),
        ("--http", "::1:1080", "write an IPv6 address in brackets"),
        ("--http", "99999", "a number from 0 to 65535"),
        (
            "--forward",
            "::1:80=a:1",
            "write an IPv6 address in brackets",
        ),
    ] {
        let ran = bench.run(&[&client[..], &[option, value]].concat());
        assert_eq!(ran.code, 2);
        assert!(ran.err.contains(words), "{}", ran.err);
    }
    // The same in a file.
    for (line, words) in [
        ("socks = \"1080\"", ""),
        (
            "http = \"127.0.0.1:http\"",
            "x.toml:3: `http`: `127.0.0.1:http` is not an address and port: the port is",
        ),
    ] {
        bench.write(
            "x.toml",
            &format!("server = \"h:1\"\nserver_key = \"{key}\"\n{line}\nkey = \"a.key\"\n"),
        );
        let ran = bench.run(&["check", "x.toml"]);
        assert!(ran.err.starts_with(words), "{}", ran.err);
    }
}

#[test]
fn a_text_without_quotes_is_reported_with_line_and_column() {
    let bench = crate::common::new();
    for (line, words) in [
        (
            "server = bond.example.org:7443",
            "x.toml:2: column 10: a text needs quotes: write server = \"bond.example.org:7443\"",
        ),
        (
            "socks = 127.0.0.1:1080",
            "x.toml:2: column 9: a text needs quotes: write socks = \"127.0.0.1:1080\"",
        ),
        (
            "listen = [::]:7443",
            "x.toml:2: column 10: a text needs quotes: write listen = \"[::]:7443\"",
        ),
        (
            "links = auto",
            "x.toml:2: column 9: a text needs quotes: write links = \"auto\"",
        ),
        (
            "forward = [8080=a:80]",
            "x.toml:2: column 12: `forward`: a text needs quotes: write \"8080=a:80\"",
        ),
    ] {
        bench.write("x.toml", &format!("# first\n{line}\n"));
        bench.run(&["check", "x.toml"]).fails(3, words);
        let json = bench.run(&["check", "--json", "x.toml"]).out;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["problems"][0]["line"], 2);
        assert!(json["problems"][0]["column"].is_number(), "{json}");
    }
}

#[test]
fn a_pattern_that_the_shell_expanded_gets_advice() {
    let bench = crate::common::new();
    let ran = bench.run(&["client", "--link", "wwanx", "wwany"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("unexpected argument 'wwany'"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("quote it: --link 'wwan*'"), "{}", ran.err);
    let json = bench
        .run(&["client", "--json", "--link", "wwanx", "wwany"])
        .out;
    assert!(json.contains("quote it: --link 'wwan*'"), "{json}");
    assert!(!bench.run(&["client", "wwany"]).err.contains("quote it"));
}

/// Messages name the path and the operation instead of the system's error number.
#[test]
fn system_errors_have_no_numbers() {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    std::fs::create_dir(bench.path("folder")).unwrap();
    bench.write("file", "");
    let server = [
        "server",
        "--listen",
        "127.0.0.1:0",
        "--authorize",
        &key,
        "--key",
    ];
    let client = [
        "client",
        "--server",
        "127.0.0.1:1",
        "--server-key",
        &key,
        "--key",
        "a.key",
    ];
    let runs: Vec<Vec<&str>> = vec![
        vec!["check", "none.toml"],
        vec!["check", "folder"],
        vec!["pubkey", "none.key"],
        vec!["pubkey", "folder"],
        vec!["keygen", "--out", "none/a.key"],
        vec!["status", "--control", "none.sock"],
        vec!["status", "--control", "file"],
        vec!["link", "a", "--control", "none.sock"],
        [&server[..], &["none.key"]].concat(),
        [&server[..], &["a.key", "--control", "none/x.sock"]].concat(),
        [&server[..], &["a.key", "--control", "file"]].concat(),
        [&client[..], &["--state", "none/links.json"]].concat(),
        [&client[..], &["--state", "folder"]].concat(),
        [&client[..], &["--socks", "192.0.2.77:1080"]].concat(),
        client.to_vec(),
        vec!["man", "--out", "file/man"],
    ];
    for run in runs {
        let ran = bench.run(&run);
        assert_ne!(ran.code, 0, "{run:?}");
        assert!(!ran.err.contains("os error"), "{run:?}: {}", ran.err);
        assert!(!ran.err.is_empty(), "{run:?}");
    }
}

#[test]
fn a_client_reports_the_key_of_its_server() {
    let bench = crate::common::new();
    let (server_key, client_key) = (bench.key("server.key"), bench.key("client.key"));
    let server = [
        "server",
        "--listen",
        "127.0.0.1:0",
        "--key",
        "server.key",
        "--json",
        "--authorize",
        &client_key,
    ];
    let mut server = Daemon::start(bench.command(server));
    let address = server.event("listening")["address"]
        .as_str()
        .unwrap()
        .to_owned();
    let client = [
        "client",
        "--server",
        &address,
        "--server-key",
        &server_key,
        "--key",
        "client.key",
        "--link",
        "lo",
        "--socks",
        "127.0.0.1:0",
        "--json",
    ];
    let mut client = Daemon::start(bench.command(client));
    let event = client.event("connected");
    assert_eq!(event["server_key"], server_key.as_str());
    let log = client.log_with("connected server=");
    let line = log
        .lines()
        .find(|line| line.contains("connected"))
        .unwrap_or_default();
    assert!(line.contains(&format!("server_key={server_key}")), "{log}");
    assert!(!log.contains(&client_key), "{log}");
}

/// Runs a shell command in a new mount namespace, with the program as `$S`; `None` if that is not
/// permitted.
fn in_namespace(bench: &Bench, script: &str) -> Option<Ran> {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--map-root-user", "sh", "-c", script])
        .env("S", env!("CARGO_BIN_EXE_sumlink"))
        .current_dir(bench.dir());
    let probe = Command::new("unshare")
        .args(["--mount", "--map-root-user", "true"])
        .status();
    probe
        .is_ok_and(|status| status.success())
        .then(|| Ran::from(command.output().unwrap()))
}

#[test]
fn status_finds_the_service_that_runs() {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    let start = |service: &str| {
        format!(
            "mkdir -p /run/{service}; $S server --listen 127.0.0.1:0 --key a.key --authorize {key} \
             --control /run/{service}/control.sock >/dev/null 2>&1 & p=\"$p $!\"; for try in $(seq 600); do test -S /run/{service}/control.sock && break; \
             sleep 0.05; done; "
        )
    };
    let end = "code=$?; test -z \"$p\" || kill $p; exit $code";
    let mount = "mount -t tmpfs none /run && { ";
    let run = |script: String| in_namespace(&bench, &format!("{mount}{script}}}; {end}"));
    let Some(none) = run("$S status; ".to_owned()) else {
        return;
    };
    assert_eq!(none.code, 8, "{}", none.err);
    assert!(
        none.err.contains("/run/sumlink-client/control.sock"),
        "{}",
        none.err
    );
    let one = run(format!("{}$S status; ", start("sumlink-server"))).unwrap();
    assert_eq!(one.code, 0, "{}", one.err);
    assert!(
        one.out.contains("at /run/sumlink-server/control.sock"),
        "{}",
        one.out
    );
    let link = run(format!("{}$S link wwan0; ", start("sumlink-server"))).unwrap();
    assert!(
        link.err.contains("links belong to the client"),
        "{}",
        link.err
    );
    let both = start("sumlink-client") + &start("sumlink-server");
    let several = run(format!("{both}$S status; ")).unwrap();
    several.fails(
        8,
        "several sumlink services run here: choose one with --control",
    );
    assert!(
        several
            .err
            .contains("/run/sumlink-client/control.sock, /run/sumlink-server"),
        "{}",
        several.err
    );
}
