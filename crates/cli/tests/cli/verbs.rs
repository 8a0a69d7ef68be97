//! Verbs that are no daemons: their output, the files they write, and their failures.

use std::os::unix::fs::PermissionsExt;

/// Arguments of a server with the key `a.key` that accepts the client `key`.
fn server<'a>(listen: &'a str, key: &'a str) -> [&'a str; 7] {
    [
        "server",
        "--listen",
        listen,
        "--key",
        "a.key",
        "--authorize",
        key,
    ]
}

/// Arguments of a client with the key `a.key` and a server that does not exist.
fn client(key: &str) -> [&str; 7] {
    [
        "client",
        "--key",
        "a.key",
        "--server",
        "127.0.0.1:9",
        "--server-key",
        key,
    ]
}

#[test]
fn keygen_writes_a_private_file_and_ends_with_the_public_key() {
    let bench = crate::common::new();
    let public = bench.key("a.key");
    assert_eq!(public.len(), 44);
    let mode = bench.path("a.key").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(bench.run(&["pubkey", "a.key"]).out, format!("{public}\n"));
    let json: serde_json::Value =
        serde_json::from_str(&bench.run(&["pubkey", "--json", "a.key"]).out).unwrap();
    assert_eq!(json["public_key"], public.as_str());
}

#[test]
fn keygen_never_overwrites() {
    let bench = crate::common::new();
    bench.write("precious", "mine");
    bench
        .run(&["keygen", "--out", "precious"])
        .fails(4, "already exists");
    assert_eq!(
        std::fs::read_to_string(bench.path("precious")).unwrap(),
        "mine"
    );
    bench
        .run(&["keygen", "--out", "no/such/dir/key"])
        .fails(4, "cannot write");
}

#[test]
fn a_key_file_that_others_can_read_is_refused_everywhere() {
    let bench = crate::common::new();
    let public = bench.key("a.key");
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(bench.path("a.key"), open).unwrap();
    bench.run(&["pubkey", "a.key"]).fails(4, "chmod 600");
    bench
        .run(&[
            "server",
            "--listen",
            "127.0.0.1:0",
            "--key",
            "a.key",
            "--authorize",
            &public,
        ])
        .fails(4, "chmod 600");
    let client = [
        "client",
        "--server",
        "127.0.0.1:9",
        "--server-key",
        &public,
        "--key",
        "a.key",
    ];
    bench.run(&client).fails(4, "chmod 600");
}

#[test]
fn a_missing_or_invalid_key_file_is_one_line() {
    let bench = crate::common::new();
    bench.run(&["pubkey", "none.key"]).fails(4, "none.key");
    let path = bench.write("bad.key", "not a key\n");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    bench.run(&["pubkey", "bad.key"]).fails(4, "bad.key");
}

#[test]
fn errors_are_json_with_the_json_flag() {
    let bench = crate::common::new();
    for (args, code, kind) in [
        (vec!["pubkey", "--json", "none.key"], 4, "key"),
        (vec!["check", "--json", "none.toml"], 3, "configuration"),
        (
            vec!["status", "--json", "--control", "none.sock"],
            8,
            "control",
        ),
        (vec!["client", "--json", "--nonsense"], 2, "usage"),
        (vec!["server", "--json"], 2, "usage"),
        (
            "client --json --class-scheduler streaming=linux --class-scheduler streaming=minrtt"
                .split(' ')
                .collect(),
            2,
            "usage",
        ),
    ] {
        let ran = bench.run(&args);
        assert_eq!(ran.code, code, "{args:?}");
        let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(json["error"]["kind"], kind, "{args:?}");
        assert_eq!(json["error"]["exit_code"], code, "{args:?}");
        assert_eq!(ran.err, "", "{args:?}");
    }
}

#[test]
fn missing_options_are_named() {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    let fails = |args: &[&str], part: &str| bench.run(args).fails(2, part);
    for option in [
        "--key FILE",
        "--listen ADDR:PORT",
        "--authorize PUBKEY",
        "--config",
    ] {
        fails(&["server"], option);
    }
    for option in [
        "--key FILE",
        "--server HOST:PORT",
        "--server-key PUBKEY",
        "--config",
    ] {
        fails(&["client"], option);
    }
    fails(&["server", "--key", "a.key"], "missing: --listen");
    fails(
        &["server", "--key", "a.key", "--listen", "127.0.0.1:0"],
        "--authorize",
    );
    fails(&["client", "--key", "a.key"], "missing: --server HOST:PORT");
    fails(
        &["client", "--key", "a.key", "--server", "h:1"],
        "--server-key",
    );
    fails(
        &[
            "client",
            "--key",
            "a.key",
            "--server",
            "h:",
            "--server-key",
            &key,
        ],
        "the port must be a number from 1 to 65535",
    );
}

#[test]
fn an_invalid_server_has_the_same_error_everywhere() {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    for server in ["foo:", ":5", "foo:99999", "a b:1", "::1:5", ""] {
        let links = bench.run(&["links", "--server", server]);
        let client = ["client", "--key", "a.key", "--server-key", &key];
        let client = bench.run(&[&client[..], &["--server", server]].concat());
        client.fails(2, &format!("--server {server}: "));
        links.fails(2, &client.err);
    }
    let name = "no.such.host.invalid:1";
    bench
        .run(&["links", "--server", name])
        .fails(5, &format!("cannot resolve the server's name {name}: "));
}

#[test]
fn an_unknown_congestion_control_is_reported_with_the_known_ones() {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    let (server, client) = (server("127.0.0.1:0", &key), client(&key));
    for verb in [&server[..], &client] {
        let ran = bench.run(&[verb, &["--congestion", "nosuch"]].concat());
        // Every kernel has reno.
        ran.fails(
            2,
            "--congestion: unknown congestion control nosuch: this kernel has ",
        );
        assert!(ran.err.contains("reno"), "{}", ran.err);
    }
    for (line, lines, verb) in [
        (2, "congestion = \"nosuch\"", &server[..]),
        (2, "congestion = \"nosuch\"", &client),
        (
            4,
            "[[link]]\nname = \"lo\"\ncongestion = \"nosuch\"",
            &client,
        ),
    ] {
        let needed = if verb[0] == "client" {
            "server = \"h:1\""
        } else {
            "listen = \"[::1]:0\""
        };
        bench.write("x.toml", &format!("{needed}\n{lines}\n"));
        bench.run(&[verb, &["--config", "x.toml"]].concat()).fails(
            3,
            &format!(
                "x.toml:{line}: `congestion`: unknown congestion control nosuch: this kernel has "
            ),
        );
    }
}

#[test]
fn the_schedulers_are_listed_at_every_option() {
    let bench = crate::common::new();
    let texts = [
        include_str!("../../../../docs/cli.md").to_owned(),
        include_str!("../../../../packaging/client.toml").to_owned(),
        include_str!("../../../../packaging/server.toml").to_owned(),
        bench.run(&["client", "--help"]).out,
        bench.run(&["server", "-h"]).out,
        bench.run(&["man", "client"]).out,
        bench.run(&["completions", "bash"]).out,
        bench.run(&["completions", "zsh"]).out,
        bench.run(&["client", "--scheduler", "magic"]).err,
    ];
    for text in texts {
        for name in sumlink_engine::scheduler::NAMES {
            assert!(text.contains(name), "{name} is not in: {text}");
        }
    }
    for (args, words) in [
        (
            "--scheduler fbtd",
            "--scheduler: no scheduler `fbtd`: did you mean `fbdt`?",
        ),
        (
            "--scheduler musher",
            "--scheduler: the scheduler `musher` is part of sumlink-lab: choose one of fbdt, ",
        ),
        (
            "--class-scheduler streaming=ecf",
            "--class-scheduler: the scheduler `ecf` is part of sumlink-lab: choose one of fbdt, ",
        ),
    ] {
        let args: Vec<&str> = ["client"].into_iter().chain(args.split(' ')).collect();
        bench.run(&args).fails(2, words);
    }
}

#[test]
fn the_values_of_early_are_listed_and_others_refused() {
    let bench = crate::common::new();
    let refused = bench.run(&["client", "--early", "soon"]);
    assert_eq!(refused.code, 2);
    for text in [
        bench.run(&["completions", "bash"]).out,
        bench.run(&["man", "client"]).out,
        refused.err,
    ] {
        for name in sumlink_transport::Early::NAMES {
            assert!(text.contains(name), "{name} is not in: {text}");
        }
    }
}

#[test]
fn the_selectors_are_listed_at_every_option() {
    let bench = crate::common::new();
    let texts = [
        include_str!("../../../../docs/cli.md").to_owned(),
        include_str!("../../../../docs/selection.md").to_owned(),
        include_str!("../../../../packaging/client.toml").to_owned(),
        include_str!("../../../../packaging/server.toml").to_owned(),
        bench.run(&["client", "--help"]).out,
        bench.run(&["man", "server"]).out,
        bench.run(&["client", "--selector", "magic"]).err,
    ];
    for text in texts {
        for name in sumlink_engine::selector::NAMES {
            assert!(text.contains(name), "{name} is not in: {text}");
        }
    }
    let ran = bench.run(&["client", "--selector", "trails"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("did you mean `trials`"), "{}", ran.err);
    bench.write(
        "c.toml",
        "server = \"192.0.2.1:7\"\n[session]\nselector = \"base:alpha=7\"\n",
    );
    let ran = bench.run(&["check", "c.toml"]);
    assert_eq!(ran.code, 3);
    let output = format!("{}{}", ran.out, ran.err);
    assert!(
        output.contains("c.toml:3: `selector`: alpha must be from 0.01 to 1"),
        "{output}"
    );
}

#[test]
fn files_that_cannot_be_read_or_created_come_with_advice() {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    bench
        .run(&["pubkey", "none.key"])
        .fails(4, "sumlink keygen --out FILE");
    bench
        .run(&["keygen", "--out", "none/a.key"])
        .fails(4, "choose a directory that exists");
    let server = server("127.0.0.1:0", &key);
    for control in ["none/x.sock", &"x".repeat(200)] {
        bench
            .run(&[&server[..], &["--control", control]].concat())
            .fails(8, "choose a --control of at most 107 bytes");
    }
    // The socket of another program that closes connections without an answer.
    let other = std::os::unix::net::UnixListener::bind(bench.path("other.sock")).unwrap();
    let closing = std::thread::spawn(move || drop(other.accept()));
    bench
        .run(&["status", "--control", "other.sock"])
        .fails(8, "check that --control is the socket");
    closing.join().unwrap();
    bench
        .run(&["check", "none.toml"])
        .fails(3, "check its path and owner");
}

#[test]
fn a_taken_port_is_named() {
    let bench = crate::common::new();
    let key = bench.key("a.key");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let port = taken.local_addr().unwrap().port().to_string();
    bench.run(&server(&address, &key)).fails(5, &port);
    let client = client(&key);
    for entry in ["--socks", "--http"] {
        bench
            .run(&[&client[..], &[entry, &address]].concat())
            .fails(5, &port);
    }
    let forward = format!("{address}=example.org:80");
    bench
        .run(&[&client[..], &["--forward", &forward]].concat())
        .fails(5, &port);
}

#[test]
fn an_unused_control_socket_is_one_line() {
    let bench = crate::common::new();
    bench
        .run(&["status", "--control", "none.sock"])
        .fails(8, "none.sock");
    // The socket of a dead process.
    drop(std::os::unix::net::UnixListener::bind(bench.path("dead.sock")).unwrap());
    bench
        .run(&["status", "--watch", "--control", "dead.sock"])
        .fails(8, "dead.sock");
}

#[test]
fn completions_are_made_for_every_shell() {
    let bench = crate::common::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = bench.run(&["completions", shell]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        assert!(ran.out.contains("keygen"), "{shell}");
    }
}

#[test]
fn manual_pages_are_made_for_every_verb() {
    let bench = crate::common::new();
    assert_eq!(bench.run(&["man", "--out", "man"]).code, 0);
    let verbs = [
        "keygen", "pubkey", "server", "client", "check", "links", "status", "link", "cc",
    ];
    for verb in verbs {
        let page = std::fs::read_to_string(bench.path(&format!("man/sumlink-{verb}.1"))).unwrap();
        assert!(page.contains("EXIT STATUS"), "{verb}");
        assert_eq!(bench.run(&["man", verb]).out, page, "{verb}");
    }
    assert!(bench.run(&["man"]).out.starts_with(".ie"));
    bench.run(&["man", "nonsense"]).fails(2, "nonsense");
}

#[test]
fn help_names_every_exit_code() {
    let help = crate::common::new().run(&["--help"]).out;
    for code in [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 130] {
        assert!(
            help.contains(&format!("\n  {code:>3}  ")),
            "{code} is not in: {help}"
        );
    }
}

#[test]
fn help_texts() {
    let bench = crate::common::new();
    let verbs = [
        "",
        "server",
        "client",
        "invite",
        "join",
        "clients",
        "clients quota",
        "status",
        "link",
        "cc",
        "cc load",
    ];
    for verb in verbs {
        let args: Vec<&str> = verb.split_whitespace().chain(["-h"]).collect();
        let verb = verb.replace(' ', "_");
        let name = format!("help_{}", if verb.is_empty() { "sumlink" } else { &verb });
        insta::assert_snapshot!(name, bench.run(&args).out);
    }
}

#[test]
fn wrong_invitations_and_requests_about_clients_are_one_line() {
    let bench = crate::common::new();
    let link = "sumlink://join?a=192.0.2.1:1&k=BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc&s=AAAA";
    // Standard input is empty.
    for wrong in ["-", "https://example.org/", link] {
        bench
            .run(&["join", wrong])
            .fails(2, "not a whole invitation");
    }
    let whole = link.replace("AAAA", "AAAAAAAAAAAAAAAAAAAAAA");
    bench
        .run(&["join", &whole, "--out", "a.key"])
        .fails(2, "--out must name a file");
    for (args, words) in [
        (&["quota", "laptop", "5"][..], "100GB/month"),
        (&["quota", "laptop", "1GB", "--reset-day", "32"], "32"),
        (&["quota", "laptop", "1GB", "--beyond", "backup"], "block"),
        (
            &["quota", "laptop", "none", "--beyond", "block"],
            "need a quota",
        ),
    ] {
        let ran = bench.run(&[&["clients"], args].concat());
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
    for verb in [&["clients", "list"][..], &["invite"]] {
        let at = ["--control", "none.sock"];
        bench
            .run(&[verb, &at].concat())
            .fails(8, "no sumlink answers");
    }
    bench.key("server.key");
    bench.write(
        "server.toml",
        "listen = \"7443\"\nkey = \"server.key\"\n[clients]\nstore = \"clients.db\"\n",
    );
    let ran = bench.run(&["invite", "--config", "server.toml"]);
    ran.fails(3, "there is no store of clients");
    assert!(!bench.path("clients.db").exists());
}

#[test]
fn an_old_verb_names_the_new_command() {
    let bench = crate::common::new();
    for (old, new) in [
        (&["lab", "run", "a.toml"][..], "sumlink-lab run a.toml"),
        (&["sim", "run", "a.toml"], "sumlink-lab sim run a.toml"),
        (&["mmwave", "abft"], "sumlink-lab mmwave abft"),
        (&["bench"], "sumlink-lab bench"),
        (&["demo"], "sumlink-lab demo"),
        (
            &["cc", "trace", "--pid", "1"],
            "sumlink-lab cc trace --pid 1",
        ),
        (
            &["edge", "--config", "e.toml"],
            "sumlink-edge run --config e.toml",
        ),
    ] {
        let ran = bench.run(old);
        ran.fails(2, &format!("is another program now: {new}"));
        assert!(ran.err.starts_with("sumlink: `sumlink "), "{}", ran.err);
    }
    let help = bench.run(&["--help"]).out;
    for verb in ["lab", "sim", "mmwave", "bench", "demo", "edge"] {
        assert!(!help.contains(&format!("\n  {verb} ")), "{verb}: {help}");
    }
}

#[test]
fn a_reader_that_goes_away_causes_no_error() {
    let bench = crate::common::new();
    let mut child = bench
        .command(["man"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty());
}

#[test]
fn links_lists_the_loopback_interface() {
    let bench = crate::common::new();
    let ran = bench.run(&["links"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.out.lines().any(|line| line.starts_with("lo ")),
        "{}",
        ran.out
    );
    let json: serde_json::Value =
        serde_json::from_str(&bench.run(&["links", "--json"]).out).unwrap();
    assert!(
        json.as_array()
            .unwrap()
            .iter()
            .any(|link| link["name"] == "lo")
    );
}
