//! `sumlink check` finds each mistake of a configuration file, with its line.

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

/// Checks a file of these lines after a valid minimum, which ends before line 4.
fn problems(role: &str, lines: &str) -> (i32, String) {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    let minimum = match role {
        "client" => format!("server = \"h:7443\"\nserver_key = \"{key}\"\nkey = \"a.key\"\n"),
        _ => format!("listen = \"[::]:7443\"\nkey = \"a.key\"\nclient = [{{ key = \"{key}\" }}]\n"),
    };
    bench.write(
        "x.toml",
        &format!("{minimum}{}", lines.replace("KEY", &key)),
    );
    let ran = bench.run(&["check", "x.toml"]);
    assert_eq!(ran.out, "", "{lines}");
    (ran.code, ran.err)
}

/// Checks that `check` reports only the expected problem with these lines.
#[track_caller]
pub(crate) fn assert_problem(role: &str, lines: &str, expected: &str) {
    let (code, error) = problems(role, lines);
    assert_eq!(code, 3, "{lines}: {error}");
    assert!(
        error.contains(expected),
        "{lines}\n  expected {expected}\n  but got {error}"
    );
    assert_eq!(error.lines().count(), 1, "{lines}: {error}");
}

#[test]
fn every_mistake_has_its_line_and_reason() {
    for (role, lines, expected) in [
        (
            "client",
            "scoks = \"127.0.0.1:1080\"",
            "x.toml:4: unknown key `scoks`: did you mean `socks`?",
        ),
        (
            "client",
            "[session]\nscheduler = \"blest\"",
            "x.toml:5: `scheduler`: the scheduler `blest` is part of sumlink-lab: choose one of fbdt, minrtt, \
             linux, redundant",
        ),
        (
            "server",
            "[session.schedulers]\nstreaming = \"wrr\"",
            "x.toml:5: `streaming`: the scheduler `wrr` is part of sumlink-lab: choose one of fbdt, minrtt, ",
        ),
        (
            "client",
            "\nbandwidth = 5",
            "x.toml:5: unknown key `bandwidth`: known keys are server,",
        ),
        (
            "client",
            "socks = \"108000\"",
            "x.toml:4: `socks`: `108000` is not an address and port",
        ),
        (
            "client",
            "http = \"localhost:8080\"",
            "x.toml:4: `http`: `localhost:8080` is not an address and port",
        ),
        (
            "client",
            "forward = [\n\"8080=a:80\",\n\"8081\"]",
            "x.toml:6: `forward`: `8081` is not a forward",
        ),
        (
            "client",
            "forward = \"8080=a:80\"",
            "x.toml:4: `forward`: write a list in brackets, not the text \"8080=a:80\"",
        ),
        (
            "client",
            "early = true",
            "x.toml:4: `early`: write a text in quotes, not true",
        ),
        (
            "client",
            "early = \"now\"",
            "x.toml:4: `early`: `now` is not one of never, known, always",
        ),
        (
            "server",
            "early = \"known\"",
            "x.toml:1: `early` is a client's key and `listen` a server's",
        ),
        (
            "client",
            "links = \"wlan0\"",
            "x.toml:4: the only value here is \"auto\"",
        ),
        (
            "client",
            "links = \"auto\"\n[[link]]\nname = \"a\"",
            "x.toml:4: `links = \"auto\"` and [[link]]",
        ),
        (
            "client",
            "[[link]]\nname = \"a/b\"",
            "x.toml:5: `name`: `a/b` is not the name of an interface",
        ),
        (
            "client",
            "[[link]]\ncongestion = \"bbr\"",
            "x.toml:4: this block has no `name`: add it",
        ),
        (
            "client",
            "[[link]]\nname = \"a\"\n[[link]]\nname = \"a\"",
            "x.toml:7: link `a` occurs twice",
        ),
        (
            "client",
            "[[link]]\nname = \"a\"\ncongestion = \"b b\"",
            "x.toml:6: `congestion`: `b b` is not a congestion",
        ),
        (
            "client",
            "[[link]]\nnmae = \"a\"",
            "x.toml:5: unknown key `nmae`: did you mean `name`?",
        ),
        (
            "client",
            "[[link]]\nname = \"a\"\nrate = \"5mbit\"",
            "x.toml:6: unknown key `rate`: known keys are name, congestion",
        ),
        (
            "client",
            "[[class]]\nport = \"22,0\"\nclass = \"interactive\"",
            "x.toml:5: `port`: `0` is not a port list",
        ),
        (
            "client",
            "[[class]]\nclass = \"interactive\"\ndscp = \"af50\"",
            "x.toml:6: `dscp`: `af50` is not a DSCP",
        ),
        (
            "client",
            "[[class]]\nuser = \"a\"\nclass = \"bulk\"",
            "x.toml:6: `class`: `bulk` is not a class; the classes are conversational,",
        ),
        (
            "client",
            "[[class]]\nuser = \"\"\nclass = \"background\"",
            "x.toml:5: `user`: a user name has 1 to 255 bytes",
        ),
        (
            "client",
            "[[class]]\nclass = \"background\"",
            "x.toml:5: this class has no condition",
        ),
        (
            "client",
            "[[class]]\nport = \"1\"\nclass = \"streaming\"\n[[class]]\nclass = \"background\"\nport = \"1\"",
            "x.toml:8: a [[class]] block above has the same",
        ),
        (
            "client",
            "[session]\nscheduler = \"fbtd\"",
            "x.toml:5: `scheduler`: no scheduler `fbtd`: did you mean `fbdt`?",
        ),
        (
            "client",
            "[session.schedulers]\nconversational = \"redundnat\"",
            "x.toml:5: `conversational`: no scheduler `redundnat`: did you mean `redundant`?",
        ),
        (
            "client",
            "[session.schedulers]\nconversation = \"redundant\"",
            "x.toml:5: unknown key `conversation`: did you mean `conversational`?",
        ),
        (
            "client",
            "[session]\nmemory = \"64\"",
            "x.toml:5: `memory`: '64' has no unit",
        ),
        (
            "client",
            "[session]\nmemory = 64",
            "x.toml:5: `memory`: write a text in quotes, not the number 64",
        ),
        (
            "client",
            "[session]\nmemory = \"1B\"",
            "x.toml:5: memory must be from",
        ),
        (
            "client",
            "[session]\n\nstream_memory = \"2GiB\"",
            "x.toml:6: stream_memory must be from",
        ),
        (
            "client",
            "[session]\ntimeout = \"0s\"",
            "x.toml:5: `timeout`: `0s` is out of range",
        ),
        (
            "client",
            "[session]\nmax_streams = 0",
            "x.toml:5: max_streams must be from 1 to 65536, not 0",
        ),
        (
            "client",
            "[session]\nmax_streams = 65537",
            "x.toml:5: max_streams must be from 1 to 65536, not 65537",
        ),
        (
            "client",
            "[session]\nmax_streams = -1",
            "x.toml:5: `max_streams`: write a positive number",
        ),
        (
            "client",
            "[session.redundancy]\nshare = \"200%\"",
            "x.toml:5: `share`: '200%' is out of range for a percentage: write at most 100%",
        ),
        (
            "client",
            "[session.redundancy]\nfloor = \"2GiB\"",
            "x.toml:5: `floor`: `2GiB` is out of range: write at most 1GiB",
        ),
        (
            "server",
            "[session.redundancy]\nrefil = \"1kB\"",
            "x.toml:5: unknown key `refil`: did you mean `refill`?",
        ),
        (
            "client",
            "[session.windows.background]\nproducts = 2\nleast = \"1B\"",
            "x.toml:6: `least`: a window is from 1 KiB to 1 TiB",
        ),
        (
            "client",
            "[session.windows.conversational]\nleast = \"1MiB\"",
            "x.toml:5: `least`: a window is from 1 KiB to 1 TiB, its least size no larger than its most",
        ),
        (
            "server",
            "[session.windows]\nbackground = { products = -1.0 }",
            "x.toml:5: `products`: a window is from 1 KiB to 1 TiB",
        ),
        (
            "client",
            "[session.windows.backgroud]\nproducts = 1",
            "unknown key `backgroud`: did you mean `background`?",
        ),
        (
            "client",
            "[session.race]\ninteractive = 16",
            "x.toml:5: `interactive`: write a text in quotes, not the number 16",
        ),
        (
            "client",
            "[session]\ncoupling = \"far\"",
            "x.toml:5: `coupling`: `far` is not a coupling: write \"none\", \"fair\"",
        ),
        (
            "client",
            "[session]\nalpha = 0.5\nbeta = 1.5",
            "x.toml:6: `beta`: alpha and beta must be above 0 and no larger than 1",
        ),
        (
            "server",
            "[session]\ncoupling = \"fair\"\nbeta = 0.5",
            "x.toml:6: `beta`: `coupling` and the factors",
        ),
        (
            "client",
            "control =",
            "x.toml:4: `control`: the value is missing",
        ),
        (
            "client",
            "listen = \"[::]:1\"",
            "x.toml:1: `server` is a client's key and `listen` a server's",
        ),
        (
            "client",
            "server = \"h:1\"",
            "x.toml:4: `server` occurs twice: remove one",
        ),
        (
            "server",
            "[egress]\nrules = [\n\"allow 10.0.0.0/8\",\n\"alow *\"]",
            "x.toml:7: `rules`: ",
        ),
        (
            "server",
            "[egress]\nrule = []",
            "x.toml:5: unknown key `rule`: did you mean `rules`?",
        ),
        (
            "server",
            "[limits]\npaths = 0",
            "x.toml:5: `paths`: write a number from 1",
        ),
        (
            "server",
            "[limits]\npaths = -1",
            "x.toml:5: `paths`: write a number from 1",
        ),
        (
            "server",
            "[limits]\npaths = \"3\"",
            "x.toml:5: `paths`: write a whole number, not the text \"3\"",
        ),
        (
            "server",
            "congestion = \"\"",
            "x.toml:4: `congestion`: `` is not a congestion control",
        ),
        ("server", "[[client]]\nkey = \"KEY\"", "x.toml:4: "),
    ] {
        assert_problem(role, lines, expected);
    }
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

#[test]
fn all_problems_are_listed_in_the_order_of_lines() {
    let bench = crate::common::new();
    bench.write(
        "x.toml",
        "server = \"h:\"\nsocks = \"x\"\nkey = \"none.key\"\n",
    );
    let ran = bench.run(&["check", "x.toml"]);
    assert_eq!(ran.code, 3);
    let heads: Vec<String> = ran
        .err
        .lines()
        .map(|line| line.split_inclusive(':').take(2).collect())
        .collect();
    assert_eq!(heads, ["x.toml:1:", "x.toml:1:", "x.toml:2:", "x.toml:3:"]);
    let json = bench.run(&["check", "--json", "x.toml"]);
    assert_eq!(json.code, 3);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["problems"].as_array().unwrap().len(), 4);
    assert_eq!(json["problems"][2]["line"], 2);
}

/// The problems of a file with these lines, without the file's name.
fn complaints(text: &str) -> Vec<String> {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    bench.write("x.toml", &text.replace("KEY", &key));
    let ran = bench.run(&["check", "x.toml"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{}", ran.err);
    let lines = ran.err.lines();
    lines
        .map(|line| line.strip_prefix("x.toml:").unwrap().to_owned())
        .collect()
}

#[track_caller]
pub(crate) fn assert_complaints(text: &str, expected: &[&str]) {
    let reported = complaints(text);
    let fit = |(reported, expected): (&String, &&str)| reported.starts_with(expected);
    assert!(
        reported.len() == expected.len() && reported.iter().zip(expected).all(fit),
        "expected {expected:#?}\n  but got {reported:#?}"
    );
}

#[test]
fn all_unknown_keys_and_wrong_values_are_listed() {
    assert_complaints(
        r#"
server = "h:7443"
sevrer_key = "KEY"
server_key = 5
key = "a.key"
scoks = "127.0.0.1:1080"
http = "x"
forward = ["8080=a:80", 7, "8081"]
bandwidth = 5
[[link]]
nmae = "wlan0"
[[link]]
[[link]]
name = "eth0"
congestion = 1
cost = 3
[session]
scheduler = "fbtd"
memory = 64
stream_memory = "2GiB"
max_streams = 100000
timeout = "1"
speed = 1
"#,
        &[
            "3: unknown key `sevrer_key`: did you mean `server_key`?",
            "4: `server_key`: write a text in quotes, or a list of them",
            "6: unknown key `scoks`: did you mean `socks`?",
            "7: `http`: `x` is not an address and port",
            "8: `forward`: write a text in quotes, not the number 7",
            "8: `forward`: `8081` is not a forward",
            "9: unknown key `bandwidth`: known keys are server,",
            "11: unknown key `nmae`: did you mean `name`?",
            "12: this block has no `name`: add it",
            "15: `congestion`: write a text in quotes, not the number 1",
            "16: unknown key `cost`: known keys are name, congestion",
            "18: `scheduler`: no scheduler `fbtd`: did you mean `fbdt`?",
            "19: `memory`: write a text in quotes, not the number 64",
            "20: stream_memory must be from",
            "21: max_streams must be from 1 to 65536, not 100000",
            "22: `timeout`: '1' has no unit",
            "23: unknown key `speed`: known keys are scheduler,",
        ],
    );
}

#[test]
fn impossible_policies_are_reported() {
    assert_complaints(
        r#"
[[link]]
name = "a"
priority = "first"
metered = "yes"
direction = "sideways"
send_limit = "5"
max_added_latency = "fast"
cap_day = "2 lorries"
reset_day = 300
beyond = "slow"
[[link]]
name = "b"
reset_day = 32
[[link]]
name = "c"
receive_limit = "1kbit"
[[link]]
name = "d"
label = "bell \u0007"
"#,
        &[
            "1: no server:",
            "1: no server key:",
            "1: no key:",
            "4: `priority`: `first` is not a priority: write one of primary,",
            "5: `metered`: write true or false, not the text \"yes\"",
            "6: `direction`: `sideways` is not a direction",
            "7: `send_limit`: '5' has no unit",
            "8: `max_added_latency`: 'fast' is not a duration",
            "9: `cap_day`: 'lorries' in '2 lorries' is not a unit",
            "10: `reset_day`: write a day of the month, 1 to 31",
            "11: `beyond`: `slow` is not an action beyond a cap",
            "14: `reset_day`: write a day of the month, 1 to 31",
            "17: `receive_limit`: a limit must be at least 8000 bit/s, not 1000",
            "20: `label`: a label has at most 64 characters",
        ],
    );
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
fn all_mistakes_of_a_server_are_listed() {
    assert_complaints(
        r#"
listen = 7443
key = 1
client = [{ key = "KEY", nme = "x" }, { name = "y" }, { key = "bad" }, 5]
egress = { rules = ["allow 10.0.0.0/8", "alow *"], rule = [] }
limits = { paths = 0, sessions = "3", half = 1 }
"#,
        &[
            "2: `listen`: write a text in quotes, not the number 7443",
            "3: `key`: write a path in quotes, not the number 1",
            "4: unknown key `nme`: did you mean `name`?",
            "4: this block has no `key`: add it",
            "4: `client`: write a block of keys, not the number 5",
            "4: `key`: a public key is",
            "5: unknown key `rule`: did you mean `rules`?",
            "5: `rules`: ",
            "6: unknown key `half`: known keys are",
            "6: `sessions`: write a whole number, not the text \"3\"",
            "6: `paths`: write a number from 1",
        ],
    );
}

#[test]
fn a_file_that_is_not_toml_has_one_problem_per_line() {
    assert_complaints(
        "server = \nkey == 1 1 =\nhttp = \"x\n",
        &[
            "1: `server`: the value is missing",
            "2: ",
            "3: `http`: the text has no closing quote",
        ],
    );
    assert_complaints(
        "sevrer = \"h:1\"\nkey = \"a.key\"\n",
        &["1: neither", "1: unknown key `sevrer`"],
    );
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
        .fails(4, "etc/client.toml:26:");
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
