//! `sumlink check` and the start of a program agree about a file.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::common::Bench;

const CLIENT: &str = include_str!("../../../../packaging/client.toml");
const SERVER: &str = include_str!("../../../../packaging/server.toml");

/// A directory with keys, and a public key.
fn bench() -> (Bench, String) {
    let bench = crate::common::new();
    let public = bench.key("client.key");
    std::fs::copy(bench.path("client.key"), bench.path("server.key")).unwrap();
    (bench, public)
}

/// Writes a minimal file of a client with these lines. Its server refuses every connection.
fn client(bench: &Bench, key: &str, lines: &str) {
    let text = format!(
        "server = \"127.0.0.1:1\"\nserver_key = \"{key}\"\nkey = \"client.key\"\n{lines}\n"
    );
    bench.write("x.toml", &text);
}

#[test]
fn start_and_check_refuse_with_the_same_message() {
    let (bench, key) = bench();
    bench.write("damaged.json", "{");
    bench.write("file", "");
    for (lines, line, words) in [
        (
            "[[link]]\nname = \"lo\"\ncap_day = \"1GB\"",
            6,
            "link lo has a data cap, but no file",
        ),
        (
            "[[link]]\nname = \"lo\"\ncap_month = \"1GB\"",
            6,
            "link lo has a data cap, but no file",
        ),
        (
            "congestion = \"cubik\"",
            4,
            "`congestion`: unknown congestion control cubik: this kernel has ",
        ),
        (
            "[[link]]\nname = \"lo\"\ncongestion = \"cubik\"",
            6,
            "`congestion`: unknown congestion control cubik: this kernel has ",
        ),
        (
            "socks = \"127.0.0.1:1081\"\nhttp = \"127.0.0.1:1081\"",
            5,
            "http 127.0.0.1:1081 and socks 127.0.0.1:1081 of line 4 cannot share a port",
        ),
        (
            "http = \"127.0.0.1:1081\"\nforward = [\"1082=a:1\",\n\"1081=a:1\"]",
            6,
            "forward 127.0.0.1:1081 and http 127.0.0.1:1081 of line 4 cannot share a port",
        ),
        (
            "state = \"damaged.json\"",
            4,
            "`state`: damaged.json: not a saved link state of sumlink",
        ),
        (
            "state = \"none/links.json\"",
            4,
            "`state`: none/links.json: cannot save the link state: No such file",
        ),
        (
            "state = \"file/links.json\"",
            4,
            "`state`: file/links.json: cannot read the saved link state: Not a directory",
        ),
    ] {
        client(&bench, &key, lines);
        let check = bench.run(&["check", "x.toml"]);
        check.fails(3, &format!("x.toml:{line}: {words}"));
        let start = bench.run(&["client", "--config", "x.toml"]);
        let reported: Vec<&str> = start
            .err
            .lines()
            .filter(|text| text.starts_with("sumlink: "))
            .collect();
        assert_eq!(start.code, 3, "{}", start.err);
        assert_eq!(
            reported,
            [format!("sumlink: {}", check.err.trim_end())],
            "{}",
            start.err
        );
    }
    // A check leaves nothing behind.
    client(&bench, &key, "state = \"links.json\"");
    assert_eq!(bench.run(&["check", "x.toml"]).code, 0);
    assert!(!bench.path("links.json").exists());
    let control = "x".repeat(108);
    client(&bench, &key, &format!("control = \"{control}\""));
    bench
        .run(&["check", "x.toml"])
        .fails(3, "x.toml:4: `control`: the path of a control socket");
    bench
        .run(&["client", "--config", "x.toml"])
        .fails(3, "x.toml:4: `control`: the path of a control socket");
}

#[test]
fn warnings_of_a_check_are_logged_at_start() {
    let (bench, key) = bench();
    let link = |name: &str| format!("[[link]]\nname = \"{name}\"\n");
    for (lines, line, words) in [
        (
            "socks = \"0.0.0.0:0\"".to_owned(),
            4,
            "socks 0.0.0.0:0 is open to other hosts, which can use the session without a password",
        ),
        (
            "http = \"*:0\"".to_owned(),
            4,
            "http [::]:0 is open to other hosts, which can use the session without a password",
        ),
        (
            "forward = [\"*:0=a:1\"]".to_owned(),
            4,
            "forward [::]:0 is open to other hosts, which can use the session without a password",
        ),
        (
            link("wwan*") + &link("wwan0"),
            7,
            "link `wwan0` has no effect: `wwan*` in line 5 matches the same interfaces first",
        ),
        (
            link("w*") + &link("*0"),
            7,
            "links `*0` and `w*` in line 5 match some of the same interfaces",
        ),
        (
            "[session]\nscheduler = \"minrtt\"\n[session.race]\ninteractive = \"1KiB\"".to_owned(),
            7,
            "`race.interactive` has no effect",
        ),
        (
            "[[gateway.rule]]\nuser = [\"root\", \"no-such-user\"]\naction = \"direct\"".to_owned(),
            5,
            "`user`: this machine has no user no-such-user",
        ),
        (
            "[[gateway.rule]]\nport = 22\naction = \"link nolink\"".to_owned(),
            6,
            "`action`: this machine has no interface nolink now",
        ),
        (
            "[[gateway.rule]]\naction = \"direct\"\n\
             [[gateway.rule]]\nport = 22\naction = \"block\""
                .to_owned(),
            4,
            "this rule has no condition and matches everything, so the rules below it have no effect",
        ),
        (
            "[gateway.dns]\nresolvers = [\"server\",\n\"tls://9.9.9.9\"]".to_owned(),
            6,
            "the certificate of tls://9.9.9.9:853#9.9.9.9 must be for its address: write #NAME",
        ),
        (
            "[gateway]\nlan = [\"nolan0\"]".to_owned(),
            5,
            "`lan`: this machine has no interface nolan0 now",
        ),
    ] {
        client(&bench, &key, &lines);
        let warning = format!("x.toml:{line}: warning: {words}");
        let check = bench.run(&["check", "x.toml"]);
        assert_eq!(check.code, 0, "{}", check.err);
        assert!(
            check.err.starts_with(&warning),
            "{warning}\nis not\n{}",
            check.err
        );
        assert_eq!(check.err.lines().count(), 1, "{}", check.err);
        let start = bench.run(&["client", "--config", "x.toml"]);
        let logged = format!("x.toml:{line}: {words}");
        assert!(
            start.err.contains(&logged),
            "{logged}\nis not in\n{}",
            start.err
        );
    }
    // An exception before the rule is correct, and other hosts cannot reach loopback.
    client(
        &bench,
        &key,
        &(link("wwan0") + &link("wwan*") + &link("eth[01]")),
    );
    assert_eq!(bench.run(&["check", "x.toml"]).err, "");
}

#[test]
fn mistakes_in_link_blocks_are_reported_beside_links_auto() {
    let (bench, key) = bench();
    client(
        &bench,
        &key,
        "links = \"auto\"\n[[link]]\nname = \"a/b\"\npriority = \"first\"",
    );
    let ran = bench.run(&["check", "x.toml"]);
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines.len(), 3, "{}", ran.err);
    assert!(
        lines[0].starts_with("x.toml:4: `links = \"auto\"` and"),
        "{}",
        ran.err
    );
    assert!(
        lines[1].starts_with("x.toml:6: `name`: `a/b` is not the name of an interface"),
        "{}",
        ran.err
    );
    assert!(
        lines[2].starts_with("x.toml:7: `priority`: `first` is not a priority"),
        "{}",
        ran.err
    );
}

/// Whether the program accepts its file: it runs, or fails for another reason than the
/// configuration.
fn starts(bench: &Bench, verb: &str, file: &str) -> Result<(), String> {
    let mut command: Command = bench.command([verb, "--json", "--config", file]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first: serde_json::Value = match lines.next() {
        Some(line) => serde_json::from_str(&line.unwrap()).unwrap(),
        None => serde_json::Value::Null,
    };
    let _ = child.kill();
    child.wait().unwrap();
    let kind = first["error"]["kind"].as_str().unwrap_or_default();
    match kind {
        "configuration" | "key" | "usage" => Err(format!("{}", first["error"]["message"])),
        _ => Ok(()),
    }
}

/// Values of every kind, at and beyond the bounds.
const VALUES: [&str; 6] = [
    "\"\"",
    "-1",
    "true",
    "\"99999999999\"",
    "\"0\"",
    "[\"x y\"]",
];

/// Tries every key of the examples, also the commented ones, with wrong values, missing and
/// mistyped. Check and start must accept and refuse the same files.
fn mutated(example: &str, verb: &str, share: usize) {
    let (bench, public) = bench();
    let ready = example
        .replace("SERVER-HOST:7443", "127.0.0.1:1")
        .replace("SERVER-PUBLIC-KEY", &public)
        .replace("CLIENT-PUBLIC-KEY", &public)
        .replace("[::]:7443", "127.0.0.1:0")
        .replace("127.0.0.1:1080", "127.0.0.1:0")
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("127.0.0.1:2222", "127.0.0.1:0");
    let without_mark = |line: &str| {
        let rest = line.trim_start().strip_prefix('#')?;
        (!rest.starts_with(' ') && rest.contains(" = ")).then(|| rest.to_owned())
    };
    let lines: Vec<String> = ready.lines().map(str::to_owned).collect();
    let mut differences = Vec::new();
    let mut tried = 0;
    let mut refused = 0;
    for (number, line) in lines.iter().enumerate() {
        let is_key = !line.starts_with(['#', ' ', '[', ']']) && line.contains(" = ");
        let Some(line) = without_mark(line).or_else(|| is_key.then(|| line.clone())) else {
            continue;
        };
        let (key, value) = line.split_once(" = ").unwrap();
        let (key, value) = (key.trim(), value.trim());
        if value.starts_with('[') && !value.ends_with(']') {
            continue;
        }
        let mut variants: Vec<String> = VALUES.map(|value| format!("{key} = {value}")).into();
        variants.push(String::new());
        variants.push(format!("{key}x = {value}"));
        variants.push(format!("{key} = {value}"));
        for variant in variants {
            tried += 1;
            // A run tries a share of them; what it checks holds for all.
            if tried % share != 0 {
                continue;
            }
            let mut text = lines.clone();
            text[number].clone_from(&variant);
            bench.write("m.toml", &text.join("\n"));
            let check = bench.run(&["check", "m.toml"]);
            let accepted = match check.code {
                0 => true,
                3 | 4 => false,
                other => panic!("{variant}: check ended with {other}: {}", check.err),
            };
            refused += usize::from(!accepted);
            let start = starts(&bench, verb, "m.toml");
            if accepted != start.is_ok() {
                differences.push(format!("{variant}: check {}, start {start:?}", check.code));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(refused > 10, "{refused} of {tried} / {share}");
}

#[test]
fn a_mutated_file_of_a_client_is_refused_by_both_or_neither() {
    mutated(CLIENT, "client", 5);
}

#[test]
fn a_mutated_file_of_a_server_is_refused_by_both_or_neither() {
    mutated(SERVER, "server", 5);
}
