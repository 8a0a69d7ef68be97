//! Wrong values of lists, classes, rules, gateways and links: each has its own line, and causes no
//! other problem.

use super::one::assert_problem;
use super::several::assert_complaints;

/// Lines before the gateway's, of a client's file that is valid otherwise.
const GATEWAY_CLIENT: &str = "server = \"h:7443\"\nserver_key = \"KEY\"\nkey = \"a.key\"\n";

#[test]
fn each_value_of_a_rule_is_reported_at_its_own_line() {
    let rules = r#"[[gateway.rule]]
domain = ["example.org",
  "a b",
  7.5]
port = [443, -1]
protocol = "sctp"
user = true
action = "by night"
[[gateway.rule]]
action = 5
port = 22
[[gateway.rule]]
protocol = "icmp"
port = 7
action = "block"
[[gateway.rule]]
device = "192.168.1.7"
user = "root"
action = "direct"
[[gateway.rule]]
to = []
action = "bond"
[[gateway.rule]]
to = "192.0.2.0/24"
"#;
    assert_complaints(
        &format!("{GATEWAY_CLIENT}{rules}"),
        &[
            "6: `domain`: `a b` is not a domain",
            "7: `domain`: write a number, a text in quotes, or a list",
            "8: `port`: `-1` is not a port list",
            "9: `protocol`: `sctp` is not a protocol",
            "10: `user`: write a number, a text in quotes, or a list",
            "11: `action`: `by night` is not an action",
            "13: `action`: write a text in quotes, not the number 5",
            "17: `port`: icmp has no ports",
            "20: `device`: user= and cgroup= are of this machine",
            "24: `to`: the condition `to` has no value",
            "26: this block has no `action`: add it",
        ],
    );
}

#[test]
fn a_wrong_value_causes_no_second_problem() {
    let blocks = r#"[[class]]
class = "streaming"
dscp = 64
[[class]]
class = "streaming"
user = 5
[[class]]
class = "interactive"
port = [22, "x"]
[[link]]
name = 5
[[publish]]
listen = true
target = "h:1"
[[gateway.dns.domain]]
name = "corp.example"
resolvers = "udp://10.0.0.53"
"#;
    assert_complaints(
        &format!("{GATEWAY_CLIENT}{blocks}"),
        &[
            "6: `dscp`: `64` is not a DSCP",
            "9: `user`: write a text in quotes, not the number 5",
            "12: `port`: `x` is not a port list",
            "14: `name`: write a text in quotes, not the number 5",
            "16: `listen`: write a text in quotes, not true",
            "20: `resolvers`: write a list in brackets, not the text",
        ],
    );
}

#[test]
fn numbers_of_classes_need_no_quotes() {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    let blocks = "[[class]]\nclass = \"interactive\"\nport = 22\n\
                  [[class]]\nclass = \"conversational\"\ndscp = 46\n\
                  [[class]]\nclass = \"streaming\"\nport = [1935, \"5004-5005\"]\n";
    let text = format!("{GATEWAY_CLIENT}{blocks}");
    bench.write("x.toml", &text.replace("KEY", &key));
    let ran = bench.run(&["check", "x.toml"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn impossible_gateways_are_refused() {
    for (lines, expected) in [
        (
            "[gateway]\naddress = \"8.8.8.8\"",
            "x.toml:5: `address`: `8.8.8.8` is not a private address: write one of 10.0.0.0/8",
        ),
        (
            "[gateway]\naddress = \"127.0.0.1\"",
            "x.toml:5: `address`: `127.0.0.1` is not a private address",
        ),
        (
            "[gateway]\naddress6 = \"2001:4860:4860::8888\"",
            "x.toml:5: `address6`: `2001:4860:4860::8888` is not a private address",
        ),
        (
            "[gateway]\nhost = false",
            "x.toml:5: `host`: nothing to capture: set host = true",
        ),
        (
            "[gateway]\ndevice = \"wlan0\"\n[[link]]\nname = \"wlan0\"",
            "x.toml:5: wlan0 is the gateway's own device",
        ),
        (
            "[[link]]\nname = \"lo\"\n[gateway]\nlan = [\"lo\"]",
            "x.toml:7: lo is in lan and a link of the bond",
        ),
        (
            "[gateway.dns]\nresolvers = []",
            "x.toml:5: `resolvers`: without a resolver, no name has an address",
        ),
        (
            "[[gateway.dns.domain]]\nname = \"corp.example\"\nresolvers = []",
            "x.toml:6: `resolvers`: without a resolver, no name of this domain has an address",
        ),
        (
            "[gateway.dns]\nresolvers = [\n\"server\",\n\"1.1.1.1\"]",
            "x.toml:7: `resolvers`: a resolver is `server`, or starts with",
        ),
        (
            "[gateway]\nkept_rules = \"a.key\"",
            "x.toml:5: `kept_rules`: the kept rules in a.key: ",
        ),
        (
            "[gateway]\nmtu = 100",
            "x.toml:5: `mtu`: write a number from 1280 to 9000",
        ),
    ] {
        assert_problem("client", lines, expected);
    }
}

#[test]
fn a_path_names_a_file() {
    for (role, line, reason) in [
        ("client", "state = \"\"", "`state`: name a file"),
        (
            "client",
            "control = \"a\\u0000b\"",
            "`control`: a path contains no NUL",
        ),
        ("server", "control = \"\"", "`control`: name a file"),
        ("server", "[clients]\nstore = \"\"", "`store`: name a file"),
    ] {
        assert_problem(role, line, reason);
    }
}

#[test]
fn the_congestion_control_and_the_cap_of_a_link_have_their_own_lines() {
    for (lines, expected) in [
        (
            "[[link]]\nname = \"lo\"\n\ncongestion = \"cubik\"",
            "x.toml:7: `congestion`: unknown congestion control cubik",
        ),
        (
            "[[link]]\nname = \"lo\"\n\n\ncap_month = \"1GB\"",
            "x.toml:8: link lo has a data cap, but no file",
        ),
        (
            "[[link]]\nname = \"lo\"\nmax_added_latency = \"61s\"",
            "x.toml:6: `max_added_latency` must be at most 60s",
        ),
        (
            "[[link]]\nname = \"lo\"\n\nbeyond = \"1kbit\"",
            "x.toml:7: `beyond`: a limit must be at least 8000 bit/s",
        ),
    ] {
        assert_problem("client", lines, expected);
    }
}
