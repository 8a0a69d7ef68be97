//! `sumlink-edge`: settings of its file, and problems reported before anything is created.

/// A valid file of 6 lines.
const MINIMUM: &str =
    "[[link]]\nname = \"a\"\nlocal = \"10.77.1.1:7400\"\nremote = \"10.77.1.2:7400\"\n";

#[test]
fn the_examples_of_the_manual_are_valid() {
    let manual = include_str!("../../../../docs/edge-node.md");
    let blocks = manual.split("```toml\n").skip(1);
    let files: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(files.len(), 2);
    for (text, role) in files.iter().zip(["node", "user"]) {
        let bench = crate::common::new();
        bench.write("edge.toml", text);
        let ran = bench.run(&["check", "edge.toml"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let expected = format!("ok, an edge's configuration: the {role}'s end");
        assert!(ran.out.contains(&expected), "{}", ran.out);
    }
}

#[test]
fn the_example_is_valid_with_and_without_its_commented_lines() {
    let example = include_str!("../../../../packaging/edge.toml");
    // A commented key has no space behind the `#`; text has one.
    let is_word = |rest: &str| rest.is_empty() || rest.starts_with(' ');
    let all: Vec<&str> = example
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if !is_word(rest) => rest,
            _ => line,
        })
        .collect();
    let all = all.join("\n");
    assert!(all.contains("\nkept = ") && all.contains("\ninterface = "));
    for text in [example, &all] {
        let bench = crate::common::new();
        bench.write("edge.toml", text);
        let ran = bench.run(&["check", "edge.toml"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
}

#[test]
fn problems_of_a_file_have_their_lines() {
    let bench = crate::common::new();
    // Lines, the line of the problem, and a part of its message.
    for (lines, line, words) in [
        ("role = \"nod\"", 1, "did you mean `node`?"),
        ("mode = \"lwip\"", 1, "no role"),
        (
            "role = \"node\"\nmood = \"lwip\"",
            2,
            "did you mean `mode`?",
        ),
        ("role = \"node\"\nmode = \"lwaa\"", 2, "did you mean `lwa`?"),
        (
            "role = \"user\"\nmode = \"lwip+visible\"",
            2,
            "is a mode of the node only",
        ),
        ("role = \"node\"\nuplink = \"a\"", 2, "for the user's end"),
        ("role = \"user\"\nuplink = \"b\"", 2, "no link is named `b`"),
        ("role = \"node\"\nacks = \"b\"", 2, "no link is named `b`"),
        (
            "role = \"user\"\nuplink = \"a\"\nacks = \"a\"",
            3,
            "remove one",
        ),
        (
            "role = \"node\"\nsteering = \"best\"",
            2,
            "choose one of qdepl, lrtt, roundrobin, flowhash",
        ),
        (
            "role = \"node\"\nmode = \"lwip+visible\"\nboost = \"no\"",
            3,
            "no boost `no`",
        ),
        (
            "role = \"node\"\nboost = \"off\"",
            2,
            "has an effect only with",
        ),
        (
            "role = \"node\"\nsack = \"strip\"",
            2,
            "has an effect only with",
        ),
        (
            "role = \"node\"\nmode = \"lwa\"\nboost = \"on\"",
            3,
            "has an effect only with",
        ),
        (
            "role = \"node\"\nmode = \"lwip\"\nsack = \"strip\"",
            3,
            "has an effect only with",
        ),
        ("role = \"user\"\nboost = \"on\"", 2, "is for the node only"),
        (
            "role = \"node\"\nmode = \"lwip\"\n[lwa]\nbits = 12",
            4,
            "only with `mode = \"lwa\"`",
        ),
        (
            "role = \"node\"\nmode = \"lwip+visible\"\n[flows]\nidle = \"1s\"\n[visible]\ngive_up = \"600s\"",
            4,
            "`idle` must be at least `give_up`",
        ),
        (
            "role = \"node\"\n[tun]\nname = \"edge*\"",
            3,
            "matches several interfaces",
        ),
        ("role = \"node\"\ntunnel = 65536", 2, "0 to 65535"),
        (
            "role = \"node\"\nmetrics = \"x\"",
            2,
            "not an address and port",
        ),
        (
            "role = \"node\"\nprobe = \"1s\"\ndead_after = \"1s\"",
            3,
            "at least twice",
        ),
        ("role = \"node\"\n[tun]\nmtu = 100", 3, "576 to 65000"),
        (
            "role = \"node\"\n[tun]\nmtu = 1400\nmss = 1361",
            4,
            "at most 1360",
        ),
        (
            "role = \"node\"\n[tun]\naddresses = [\"10.88.0.1/33\"]",
            3,
            "is not a network",
        ),
        ("role = \"node\"\n[lwa]\nbits = 15", 3, "12 or 18 bits"),
        (
            "role = \"node\"\n[lwa]\nmemory = \"1KiB\"",
            3,
            "64KiB to 1GiB",
        ),
        ("role = \"node\"\n[flows]\nmost = 0", 3, "1 to 10000000"),
        (
            "role = \"node\"\n[flows]\nkept = \"1KiB\"",
            3,
            "64KiB to 64GiB",
        ),
        (
            "role = \"node\"\n[flows]\nkept_per_flow = \"2MiB\"\nkept = \"1MiB\"",
            3,
            "at least `kept_per_flow`",
        ),
        ("role = \"node\"\n[flows]\nidle = \"10ms\"", 3, "1000ms to"),
        ("role = \"node\"\n[flows]\nidel = \"10s\"", 3, "idel"),
        (
            "role = \"node\"\nmode = \"lwip+visible\"\n[visible]\nfall = 2.0",
            4,
            "from 0 to 1",
        ),
        (
            "role = \"node\"\n[[link]]\nname = \"b\"\nlocal = \"1.1.1.1:1\"\nremote = \"[::1]:1\"",
            5,
            "different families",
        ),
        (
            "role = \"node\"\n[[link]]\nname = \"b\"\nlocal = \"1.1.1.1:1\"\nremote = \"0.0.0.0:1\"",
            5,
            "not the address of a host",
        ),
        (
            "role = \"node\"\n[[link]]\nname = \"b\"\nlocal = \"1.1.1.1:1\"",
            2,
            "this block has no `remote`",
        ),
        (
            "role = \"node\"\n[[link]]\nname = \"b\"\nlocal = \"1.1.1.1:1\"\nremote = \"1.1.1.2:1\"\nrate = \"0\"",
            6,
            "carries nothing",
        ),
        (
            "role = \"node\"\n[[link]]\nname = \"b\"\nlocal = \"1.1.1.1:1\"\nremote = \"1.1.1.2:1\"\nqueue = 0",
            6,
            "1 to 100000",
        ),
    ] {
        bench.write("x.toml", &format!("{lines}\n{MINIMUM}"));
        for args in [&["check", "x.toml"][..], &["run", "--config", "x.toml"]] {
            let ran = bench.run(args);
            assert_eq!(ran.code, 3, "{lines}: {}", ran.err);
            let place = format!("x.toml:{line}: ");
            assert!(
                ran.err.contains(&place) && ran.err.contains(words),
                "{lines}: {}",
                ran.err
            );
        }
    }
    bench.write("x.toml", "role = \"node\"\n");
    assert!(
        bench
            .run(&["run", "--config", "x.toml"])
            .err
            .contains("no links")
    );
    bench.write("x.toml", &format!("role = \"node\"\n{MINIMUM}{MINIMUM}"));
    assert!(
        bench
            .run(&["run", "--config", "x.toml"])
            .err
            .contains("x.toml:7: link `a` occurs twice")
    );
    assert_eq!(bench.run(&["run", "--config", "none.toml"]).code, 3);
    assert_eq!(bench.run(&["run"]).code, 2);
}

#[test]
fn an_address_of_another_machine_is_a_network_error() {
    let bench = crate::common::new();
    // No host has an address of TEST-NET-1 (RFC 5737).
    let link = MINIMUM.replace("10.77.1.1", "192.0.2.1");
    bench.write("x.toml", &format!("role = \"node\"\n{link}"));
    let ran = bench.run(&["run", "--json", "--config", "x.toml"]);
    assert_eq!(ran.code, 5, "{}{}", ran.out, ran.err);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let message = json["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("link a: cannot open a tunnel from 192.0.2.1:7400"),
        "{message}"
    );
}
