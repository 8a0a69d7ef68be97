//! `sumlink diag`: a report without secrets and identities.

use std::os::unix::fs::PermissionsExt;

use crate::daemons::Host;

const INVITATION: &str = "sumlink://join?a=192.0.2.1:1&s=QUJDREVGR0hJSktMTU5PUA\
                          &k=BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";

const PORTAL: &str = "sign in at http://login.hotel.example/?mac=aabbccddeeff";

/// Checks that none of these texts is in a report.
#[track_caller]
fn hides(report: &str, texts: &[&str]) {
    for text in texts {
        assert!(!report.contains(text), "{text} is in: {report}");
    }
}

#[test]
fn a_report_about_a_running_server_has_no_key() {
    let host = Host::new();
    let bench = &host.bench;
    let args = [
        "diag",
        "--config",
        "server.toml",
        "--control",
        "server.sock",
        "--out",
        "report.txt",
    ];
    let ran = bench.run(&args);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "report.txt\n"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("review this file"), "{}", ran.err);
    let path = bench.path("report.txt");
    let report = std::fs::read_to_string(&path).unwrap();
    let secret = std::fs::read_to_string(bench.path("server.key")).unwrap();
    let secret = secret.lines().nth(1).unwrap();
    hides(
        &report,
        &[
            &host.server_key,
            &host.client_key,
            secret,
            "PRIVATE KEY",
            "sumlink://",
        ],
    );
    for part in [
        "sumlink ",
        "\n== kernel ==\n$ uname -srvm\n",
        "\n== routes ==\n",
        "\n== kernel parameters ==\n",
        "net/ipv4/tcp_congestion_control = ",
        "\n== configuration server.toml, without comments ==\n",
        "key = \"key-1\"\n",
        "\n== status at server.sock ==\n",
        "\"role\": \"server\"",
        "\n== log ==\n",
    ] {
        assert!(report.contains(part), "{part} is not in: {report}");
    }
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    bench.run(&args).fails(1, "choose another --out");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), report);
    let absent = [
        "diag",
        "--config",
        "server.toml",
        "--out",
        "none/report.txt",
    ];
    bench.run(&absent).fails(1, "cannot write none/report.txt");
}

#[test]
fn a_report_on_standard_output_hides_invitations_tokens_and_hosts() {
    let bench = crate::common::new();
    let key = bench.key("client.key");
    bench.write(
        "x.toml",
        &format!(
            "server = \"bond.corp-of-mine.example:7443\" # my note\nserver_key = \"{key}\"\n\
             key = \"client.key\"\n# my note\n\
             [monitor]\nlisten = \"127.0.0.1:9571\"\ntoken = \"hunter2hunter2\"\n\
             [[link]]\nname = \"wlan0\"\nlabel = \"{INVITATION}\"\n\
             [[link]]\nname = \"wlan1\"\nlabel = \"{PORTAL}\"\n"
        ),
    );
    let out = ["--control", "none.sock", "--out", "-"];
    let ran = bench.run(&[&["diag", "--config", "x.toml"], &out[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let secrets = [
        "sumlink://",
        "QUJDREVG",
        "BwcHBwc",
        "hunter2",
        "corp-of-mine",
        "my note",
        "hotel",
        "aabbcc",
    ];
    hides(&ran.out, &[&secrets[..], &[key.as_str()]].concat());
    for part in [
        "   1  server = \"host-",
        "   2  server_key = \"key-",
        "   7  token = \"<redacted>\"\n",
        "  10  label = \"<redacted>\"\n",
        "/?<redacted>\"\n",
        "no sumlink answers",
    ] {
        assert!(ran.out.contains(part), "{part} is not in: {}", ran.out);
    }

    // A key in place of a configuration.
    let ran = bench.run(&[&["diag", "--config", "client.key"], &out[..]].concat());
    assert!(ran.out.contains("this is a key"), "{}", ran.out);
    let secret = std::fs::read_to_string(bench.path("client.key")).unwrap();
    hides(&ran.out, &[secret.lines().nth(1).unwrap(), "PRIVATE KEY-"]);
}

#[test]
fn root_reads_no_files_of_others_in_the_current_folder() {
    let bench = crate::common::new();
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let secret = bench.write("shadow", "root:hunter2hunter2\n");
    std::os::unix::fs::symlink(&secret, bench.path("client.toml")).unwrap();
    let server = bench.write("server.toml", "key = \"hunter2hunter2\"\n");
    std::os::unix::fs::chown(&server, Some(12345), None).unwrap();
    let args = ["diag", "--control", "none.sock", "--out", "-"];
    let run = |args: &[&str]| {
        let output = bench.command(args).env_remove("SUDO_UID").output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let report = run(&args);
    hides(&report, &["hunter2"]);
    for part in [
        "== configuration client.toml, without comments ==\n(not read: it is a link; ",
        "== configuration server.toml, without comments ==\n(not read: it belongs to another ",
    ] {
        assert!(report.contains(part), "{part} is not in: {report}");
    }
    let named = run(&[&args[..], &["--config", "server.toml"]].concat());
    assert!(named.contains("   1  key = "), "{named}");
}
