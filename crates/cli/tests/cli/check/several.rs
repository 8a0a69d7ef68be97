//! Files with several mistakes: all of them are listed, in the order of lines.

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
pub(super) fn assert_complaints(text: &str, expected: &[&str]) {
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
