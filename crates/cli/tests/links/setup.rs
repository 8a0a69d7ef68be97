//! `sumlink setup`: commands with options make a server and a client that transfer data.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use sumlink_lab::Side;
use sumlink_test_support::emulated::traffic::Transfer;
use sumlink_test_support::emulated::{Bench, text};

use crate::bond::SERVER;

const LINKS: [&str; 2] = ["a:rate=16mbit,delay=2ms", "b:rate=16mbit,delay=4ms"];

/// The address of the test's download.
const SOURCE: &str = "10.99.0.1:8080";

fn bench() -> Option<Bench> {
    Bench::of(env!("CARGO_BIN_EXE_sumlink"), &LINKS.map(str::to_owned))
}

/// Runs the verb, which must succeed; its object.
#[track_caller]
fn setup(bench: &Bench, side: Side, args: &[&str]) -> Value {
    let args = [&["setup"][..], args, &["--json"]].concat();
    serde_json::from_str(&text(bench.run_sumlink(side, &args))).unwrap()
}

/// Runs the verb, which must fail with this code and one line with these words.
#[track_caller]
fn fails(bench: &Bench, args: &[&str], code: i32, words: &str) {
    let output = bench.run_sumlink(Side::Client, &[&["setup"][..], args].concat());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains(words), "{error}");
}

#[test]
fn a_server_and_a_client_are_set_up_and_transfer_data() {
    let Some(bench) = bench() else { return };
    let server = [
        "server",
        "--listen",
        "[::]:7000",
        "--address",
        SERVER,
        "--out",
        "server.toml",
    ];
    let first = setup(&bench, Side::Server, &server);
    assert_eq!(first["ok"], true, "{first}");
    assert_eq!(
        (&first["key_made"], &first["started"]),
        (&true.into(), &false.into())
    );
    assert_eq!(first["start"], "sumlink server --config server.toml");
    let steps = first["next"].as_str().unwrap();
    assert!(
        steps.contains("sumlink invite --config server.toml"),
        "{steps}"
    );
    let server_key = first["public_key"].as_str().unwrap();
    assert!(
        steps.contains(&format!("--server {SERVER} --server-key {server_key}")),
        "{steps}"
    );

    let client = [
        "client",
        "--server",
        SERVER,
        "--server-key",
        server_key,
        "--link",
        "a",
        "--link",
        "b",
        "--out",
        "client.toml",
    ];
    let made = setup(&bench, Side::Client, &client);
    assert_eq!(made["ok"], true, "{made}");
    let client_key = made["public_key"].as_str().unwrap();
    assert!(
        made["next"].as_str().unwrap().contains(client_key),
        "{made}"
    );
    for name in ["server.key", "client.key"] {
        let mode = fs::metadata(bench.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }

    // Set up the server again with the client: its key stays.
    let again = [&server[..], &["--authorize", client_key]].concat();
    let kept = setup(&bench, Side::Server, &again);
    assert_eq!(kept["config_written"], false, "{kept}");
    assert!(
        kept["warnings"][0].as_str().unwrap().contains("--force"),
        "{kept}"
    );
    let replaced = setup(&bench, Side::Server, &[&again[..], &["--force"]].concat());
    assert_eq!(replaced["config_written"], true, "{replaced}");
    assert_eq!(replaced["key_made"], false, "{replaced}");
    assert_eq!(replaced["public_key"], server_key);
    let config = fs::read_to_string(bench.path("server.toml")).unwrap();
    let config = config.replace("rules = [\n", "rules = [\n    \"allow 10.99.0.1\",\n");
    bench.write("server.toml", config);
    for file in ["server.toml", "client.toml"] {
        let checked = bench.program(&["check", file]).output().unwrap();
        assert!(text(checked).contains("ok, a "), "{file}");
    }

    let mut server = bench.sumlink("server", &["server", "--config", "server.toml"]);
    server.event("listening");
    let mut client = bench.sumlink("client", &["client", "--config", "client.toml"]);
    client.event("connected");
    let transfer = Transfer::download(&bench, SOURCE.parse().unwrap());
    transfer.goes_on(2_000_000);
    let invite = ["invite", "--control", "server.sock", "--json"];
    let invited = text(bench.program(&invite).output().unwrap());
    assert!(invited.contains(&format!("join?a={SERVER}&")), "{invited}");

    // For people, it continues with the checks of `sumlink doctor`.
    let shown = bench.run_sumlink(Side::Client, &["setup", "client", "--out", "client.toml"]);
    let shown = text(shown);
    assert!(
        shown.contains("configuration kept: client.toml\n"),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("this client's public key: {client_key}\n")),
        "{shown}"
    );
    assert!(shown.contains("link a"), "{shown}");
    drop(transfer);
    for daemon in [&mut client, &mut server] {
        daemon.signal("TERM");
        assert_eq!(daemon.wait(), Some(0));
    }
}

#[test]
fn missing_options_are_named_and_files_of_others_are_kept() {
    let Some(bench) = bench() else { return };
    fails(
        &bench,
        &["client", "--out", "x.toml"],
        2,
        "missing: --server HOST:PORT, --server-key PUBKEY",
    );
    fails(
        &bench,
        &["client", "--out", "x.key"],
        2,
        "--out must name a file",
    );
    let absent = |name: &str| assert!(!bench.path(name).exists(), "{name}");
    absent("x.toml");
    absent("x.key");

    let key = bench.key("server.key");
    let whole = ["client", "--server", SERVER, "--server-key", &key, "--out"];
    bench.write("x.key", "mine");
    fails(&bench, &[&whole[..], &["x.toml"]].concat(), 4, "x.key");
    assert_eq!(fs::read_to_string(bench.path("x.key")).unwrap(), "mine");
    absent("x.toml");
    fails(
        &bench,
        &[&whole[..], &["none/x.toml"]].concat(),
        1,
        "cannot write none/x.key",
    );

    // An existing configuration with a mistake is reported, and neither changed nor completed.
    let mistake = "server = \"h:1\"\nscoks = 1\n";
    bench.write("y.toml", mistake);
    let output = bench.run_sumlink(
        Side::Client,
        &["setup", "client", "--out", "y.toml", "--start", "--json"],
    );
    assert_eq!(output.status.code(), Some(3));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&object["ok"], &object["started"]),
        (&false.into(), &false.into())
    );
    let problems = object["problems"].to_string();
    assert!(problems.contains("did you mean `socks`?"), "{object}");
    assert_eq!(fs::read_to_string(bench.path("y.toml")).unwrap(), mistake);
    absent("y.key");
    assert_eq!(object["start"], Value::Null, "{object}");
    let output = bench.run_sumlink(Side::Client, &["setup", "client", "--out", "y.toml"]);
    assert_eq!(output.status.code(), Some(3));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let next = "next, here: correct y.toml, then run `sumlink check y.toml`\n";
    assert!(shown.contains(next), "{shown}");
    let client = "server = \"h:1\"\nkey = \"server.key\"\n";
    bench.write("z.toml", client);
    fails(
        &bench,
        &["server", "--out", "z.toml"],
        3,
        "this is a client's configuration",
    );
}

#[test]
fn a_start_without_a_service_fails_and_shows_the_public_key() {
    let Some(bench) = bench() else { return };
    let key = bench.key("server.key");
    let args = [
        "setup",
        "client",
        "--server",
        SERVER,
        "--server-key",
        &key,
        "--out",
        "x.toml",
        "--start",
    ];
    let output = bench.run_sumlink(Side::Client, &[&args[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&object["ok"], &object["started"]),
        (&false.into(), &false.into())
    );
    assert_eq!(object["error"]["exit_code"], 1, "{object}");
    assert_eq!(object["start"], "sumlink client --config x.toml");
    let public = object["public_key"].as_str().unwrap();
    assert!(bench.path("x.toml").exists() && bench.path("x.key").exists());

    // For people, one line has the reason, and the end follows.
    let output = bench.run_sumlink(Side::Client, &args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    let reason = "sumlink: not started: no service of this machine reads x.toml\n";
    assert!(error.ends_with(reason), "{error}");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let end =
        format!("this client's public key: {public}\nnext, here: sumlink client --config x.toml\n");
    assert!(shown.contains(&end), "{shown}");
}
