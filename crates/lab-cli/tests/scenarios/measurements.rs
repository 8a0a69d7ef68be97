//! Measurements of runs, and their resumption.

use std::fs;

use serde_json::Value;

use crate::{Place, TWO_LINKS, is_skipped, text};

#[test]
fn systems_are_measured_once_and_resumed() {
    if is_skipped() {
        return;
    }
    let place = Place::new(TWO_LINKS);
    let (output, lines) = place.run(&["--systems", "alone,mptcp"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let systems: Vec<_> = lines.iter().map(|line| &line["system"]).collect();
    assert_eq!(systems, ["alone", "mptcp"]);
    for line in &lines {
        assert_eq!(line["outcome"], "measured", "{line}");
        // 1448 of 1500 bytes are payload; loss and recovery in the queue take some of it.
        let goodput = line["goodput_bps"].as_f64().unwrap() / 1e6;
        assert!((15.0..30.0).contains(&goodput), "{line}");
    }
    let alone = &place.record(&lines[0])["outcome"];
    let flows: Vec<_> = alone["flows"].as_array().unwrap().iter().collect();
    assert_eq!(flows.len(), 2);
    assert_eq!(flows[0]["link"], "wifi");
    assert_eq!(flows[0]["goodput"]["bps"].as_array().unwrap().len(), 30);
    assert_eq!(alone["duration_s"], 2.0);
    let mptcp = &place.record(&lines[1])["outcome"];
    let note = mptcp["note"].as_str().unwrap();
    assert!(note.contains("1 of 1 further subflows joined"), "{note}");

    // Repeated with one more system: only the new one is run.
    let before = fs::metadata(place.path("out/two/seed-1/alone.json")).unwrap();
    let (output, lines) = place.run(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("2 of 3 runs are already in out"));
    let systems: Vec<_> = lines.iter().map(|line| &line["system"]).collect();
    assert_eq!(systems, ["sumlink:fbdt"]);
    assert_eq!(lines[0]["outcome"], "measured", "{}", lines[0]);
    let after = fs::metadata(place.path("out/two/seed-1/alone.json")).unwrap();
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    let sumlink = &place.record(&lines[0])["outcome"];
    let processes = sumlink["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2);
    assert!(
        processes
            .iter()
            .all(|p| p["peak_memory_bytes"].as_u64() > Some(0))
    );
    assert!(sumlink["duplicates_bytes"].is_u64());

    // A changed text is another scenario with its own runs.
    let changed = TWO_LINKS.replace("two links", "two other links");
    fs::write(place.path("s.toml"), changed).unwrap();
    let (_, lines) = place.run(&["--systems", "alone"]);
    assert_eq!(lines.len(), 1);
}

/// The last line of a system; repeated runs after refused ones are at the end.
fn of<'a>(lines: &'a [Value], system: &str) -> &'a Value {
    lines.iter().find(|line| line["system"] == system).unwrap()
}

#[test]
fn traffic_has_its_class_and_sessions_their_settings() {
    if is_skipped() {
        return;
    }
    let of_class = format!("{TWO_LINKS}\n[workload]\nkind = \"bulk\"\nclass = \"streaming\"\n");
    let place = Place::new(&of_class);
    // `redundant` sends each byte over both links regardless of the budget.
    let systems = [
        ("sumlink:fbdt:redundancy.share=0%:streaming=redundant", true),
        ("sumlink:redundant:streaming=fbdt", false),
        ("library:blest:streaming=redundant", true),
        ("library:redundant:streaming=blest", false),
    ];
    let names = systems.map(|(name, _)| name).join(",");
    let (output, lines) = place.run(&["--systems", &names]);
    assert!(output.status.success(), "{lines:?}");
    for (name, doubles) in systems {
        let line = of(&lines, name);
        assert_eq!(line["outcome"], "measured", "{line}");
        let twice = place.record(line)["outcome"]["duplicates_bytes"]
            .as_u64()
            .unwrap();
        assert_eq!(twice > 1_000_000, doubles, "{name}: {twice} bytes twice");
    }
}

#[test]
fn requests_and_background_load_have_their_own_classes() {
    if is_skipped() {
        return;
    }
    let both = format!(
        "{TWO_LINKS}\n[workload]\nkind = \"requests\"\nload = true\nclass = \"conversational\"\n\
         load_class = \"background\"\n"
    );
    let place = Place::new(&both);
    let systems = [
        "sumlink:fbdt:background=redundant",
        "sumlink:redundant:background=fbdt",
    ];
    let (output, lines) = place.run(&["--systems", &systems.join(",")]);
    assert!(output.status.success(), "{lines:?}");
    let twice = |line: &Value| {
        place.record(line)["outcome"]["duplicates_bytes"]
            .as_u64()
            .unwrap()
    };
    let (load, questions) = (twice(of(&lines, systems[0])), twice(of(&lines, systems[1])));
    assert!(
        load > 1_000_000 && questions < 1_000_000,
        "{load}, {questions}"
    );
}

#[test]
fn a_program_without_a_class_is_classified_by_its_port() {
    if is_skipped() {
        return;
    }
    let command = format!(
        "{TWO_LINKS}\n[workload]\nkind = \"command\"\nclass = \"streaming\"\nport = 8080\n\
         server = \"iperf3 --server --one-off --port 8080\"\n\
         client = \"iperf3 --client {{server}} --port {{port}} --reverse --time 2\"\n"
    );
    let place = Place::new(&command);
    let (output, lines) = place.run(&["--systems", "sumlink:blest:streaming=redundant"]);
    assert!(output.status.success(), "{lines:?}");
    let twice = place.record(&lines[0])["outcome"]["duplicates_bytes"]
        .as_u64()
        .unwrap();
    assert!(twice > 1_000_000, "{twice} bytes twice");
}

#[test]
fn links_that_carry_nothing_have_a_figure() {
    if is_skipped() {
        return;
    }
    let scenario = format!(
        "{TWO_LINKS}\n[[link]]\nname = \"dead\"\nrate = \"0\"\n\n[[link]]\nname = \"hole\"\nrate = \"10mbit\"\n\n\
         [[event]]\nat = \"0s\"\nlink = \"hole\"\nstate = \"blackhole\"\n"
    );
    let place = Place::new(&scenario);
    let (output, lines) = place.run(&["--systems", "simultaneous,mptcp,sumlink:fbdt"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for line in &lines {
        assert_eq!(line["outcome"], "measured", "{line}");
        let goodput = line["goodput_bps"].as_f64().unwrap();
        assert!(goodput > 5e6, "{line}");
    }
    let flows = &place.record(&lines[0])["outcome"]["flows"];
    for (number, works) in [true, true, false, false].into_iter().enumerate() {
        let goodput = flows[number]["goodput_bps"].as_f64().unwrap();
        assert_eq!(goodput > 0.0, works, "{flows}");
    }
}

const SERVE: &str = "import socket, sys
listener = socket.create_server(('', int(sys.argv[1])), backlog=9)
while True:
    one, _ = listener.accept()
    try:
        one.sendall(bytes(10**6))
    except OSError:
        pass
    one.close()
";

const FETCH: &str = "import socket, sys
one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while one.recv(65536):
    pass
";

/// A command that does not name the link still uses it, because no other link is up.
#[test]
fn a_command_is_measured_over_the_chosen_link() {
    if is_skipped() {
        return;
    }
    let programs = tempfile::tempdir().unwrap();
    let [serve, fetch] = [("serve.py", SERVE), ("fetch.py", FETCH)].map(|(name, text)| {
        let path = programs.path().join(name);
        fs::write(&path, text).unwrap();
        format!("python3 {}", path.display())
    });
    let command = format!(
        "\n[workload]\nkind = \"command\"\nport = 5009\nserver = \"{serve} {{port}}\"\n\
         client = \"{fetch} {{server}} {{port}}\"\n"
    );
    let links = TWO_LINKS.replace("warmup = \"1s\"", "");
    let place = Place::new(&format!("{links}{command}"));
    let (output, lines) = place.run(&["--systems", "alone"]);
    assert!(
        output.status.success(),
        "{} {lines:?}",
        text(&output.stderr)
    );
    let record = place.record(&lines[0]);
    let links = record["outcome"]["links"].as_array().unwrap();
    for name in ["wifi", "lte"] {
        let down = |link: &&Value| link["link"] == name && link["direction"] == "down";
        let bytes = links.iter().find(down).unwrap()["wire_bytes"]
            .as_u64()
            .unwrap();
        assert!((1_000_000..1_200_000).contains(&bytes), "{name}: {record}");
    }
}

#[test]
fn an_edge_node_is_measured_in_each_mode() {
    if is_skipped() {
        return;
    }
    let place = Place::new(TWO_LINKS);
    let systems = "lwip:roundrobin,lwa@timer=50ms,lwip+visible@boost=off:flows=2,lwip@far=1s";
    let (output, lines) = place.run(&["--systems", systems, "--trace", "traces"]);
    assert!(output.status.success(), "{lines:?}");
    let words = ["the node dropped", "put in order", "it boosted 0 and held"];
    for (line, words) in lines.iter().zip(words) {
        assert_eq!(line["outcome"], "measured", "{line}");
        assert!(line["goodput_bps"].as_f64().unwrap() > 1e6, "{line}");
        let outcome = &place.record(line)["outcome"];
        assert!(
            outcome["note"].as_str().unwrap().contains(words),
            "{}",
            outcome["note"]
        );
        assert_eq!(outcome["processes"].as_array().unwrap().len(), 2);
    }
    assert_eq!(
        place.record(&lines[2])["outcome"]["flows"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(lines[3]["outcome"], "skipped", "{}", lines[3]);

    // Time series: the sender's window from the kernel, the node's memory, its queues.
    let named = |system: &str, end: &str| place.path(&format!("traces/two-seed-1-{system}.{end}"));
    for system in [
        "lwip-roundrobin",
        "lwa@timer=50ms",
        "lwip+visible@boost=off-flows=2",
    ] {
        let trace = fs::read_to_string(named(system, "jsonl")).unwrap();
        let seen = trace
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let (flows, queues): (Vec<_>, Vec<_>) = seen.partition(|line| line["event"] == "flow");
        assert!(
            flows
                .iter()
                .any(|line| line["cwnd"].as_u64() > Some(10_000)),
            "{system}"
        );
        // Half of the delay is between server and node; the total is unchanged.
        let trips = flows.iter().filter_map(|line| line["srtt_us"].as_u64());
        let least = trips.filter(|trip| *trip > 0).min();
        assert!(least >= Some(10_000), "{system}: {least:?}");
        assert!(
            queues.iter().any(|line| line["packets"].as_u64() > Some(0)),
            "{system}"
        );
        if system.contains("flows=2") {
            assert!(
                flows.iter().any(|line| line["held_average"] != 0.0),
                "{system}"
            );
            assert!(flows.iter().any(|line| line["connection"] == 1), "{system}");
        }
        let picture = fs::read_to_string(named(system, "svg")).unwrap();
        assert!(picture.contains("congestion window"), "{system}");
    }
}

/// The node's file has only the first of a link's rates. The queue below the node holds the excess.
#[test]
fn an_edge_node_gets_the_rate_of_a_link_while_it_changes() {
    if is_skipped() {
        return;
    }
    let links = "[[link]]\nname = \"wifi\"\nrate = \"20mbit\"\ndelay = \"5ms\"\nqueue = \"400KiB\"\n\
                 [[event]]\nat = \"1s\"\nlink = \"wifi\"\nrate = \"4mbit\"\n\
                 [[link]]\nname = \"lte\"\nprofile = \"lte\"\nqueue = \"400KiB\"\n";
    let place = Place::new(&format!(
        "name = \"change\"\nduration = \"5s\"\nwarmup = \"0s\"\nseeds = 1\ncongestion = \"cubic\"\n{links}"
    ));
    let (output, lines) = place.run(&["--systems", "lwa"]);
    assert!(output.status.success(), "{lines:?}");
    let outcome = &place.record(&lines[0])["outcome"];
    for link in outcome["links"].as_array().unwrap() {
        assert_eq!(link["dropped_packets"], 0, "{link}");
    }
    let note = outcome["note"].as_str().unwrap();
    assert!(!note.contains("the node dropped 0 packets"), "{note}");
}

#[test]
fn uploads_through_an_edge_node_use_both_links() {
    if is_skipped() {
        return;
    }
    let place = Place::new(&TWO_LINKS.replacen("seeds", "direction = \"up\"\nseeds", 1));
    let (output, lines) = place.run(&["--systems", "lwip:roundrobin,lwa:roundrobin"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for line in &lines {
        assert_eq!(line["outcome"], "measured", "{line}");
        let outcome = &place.record(line)["outcome"];
        let links = outcome["links"].as_array().unwrap();
        let up = links.iter().filter(|link| link["direction"] == "up");
        let shares: Vec<f64> = up.map(|link| link["share"].as_f64().unwrap()).collect();
        assert_eq!(shares.len(), 2);
        assert!(shares.iter().all(|share| *share > 0.2), "{shares:?}");
    }
    // The node reorders the packets that the user's end has numbered.
    let note = place.record(&lines[1])["outcome"]["note"].clone();
    let note = note.as_str().unwrap();
    assert!(!note.contains("of 0 packets put in order"), "{note}");
}

/// Each of the links carries a part. How fast they are together is a matter of benchmarks: 16 TLS
/// connections of a debug build share two processors with other tests.
#[test]
fn sixteen_links_work_together() {
    if is_skipped() {
        return;
    }
    let mut scenario =
        "name = \"many\"\nduration = \"5s\"\nwarmup = \"1s\"\nseeds = 1\n".to_owned();
    for number in 1..=16 {
        scenario.push_str(&format!(
            "[[link]]\nname = \"l{number}\"\nrate = \"2mbit\"\n"
        ));
    }
    let place = Place::new(&scenario);
    let (output, lines) = place.run(&["--systems", "simultaneous,sumlink:fbdt"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for line in &lines {
        assert_eq!(line["outcome"], "measured", "{line}");
        assert!(line["goodput_bps"].as_f64().unwrap() > 4e6, "{line}");
        let outcome = &place.record(line)["outcome"];
        let links = outcome["links"].as_array().unwrap();
        let down = links.iter().filter(|link| link["direction"] == "down");
        let shares: Vec<f64> = down.map(|link| link["share"].as_f64().unwrap()).collect();
        assert_eq!(shares.len(), 16, "{outcome}");
        assert!(shares.iter().all(|share| *share > 0.005), "{shares:?}");
    }
}

#[test]
fn files_messages_and_commands_are_measured() {
    if is_skipped() {
        return;
    }
    let files = "\n[workload]\nkind = \"files\"\nsizes = [\"10kB\", \"100kB\"]\ncount = 3\ngap = \"10ms\"\n";
    let both = TWO_LINKS.replace("seeds = 1", "seeds = 1\ndirection = \"both\"");
    let place = Place::new(&format!("{}{files}", both.replace("warmup = \"1s\"", "")));
    let (output, lines) = place.run(&["--systems", "mptcp,sumlink:fbdt"]);
    let outputs = [&output.stderr, &output.stdout].map(|stream| text(stream));
    assert!(output.status.success(), "{outputs:?}");
    for line in &lines {
        assert_eq!(line["outcome"], "measured", "{line}");
        let record = place.record(line);
        let completions = record["outcome"]["completions"].as_array().unwrap();
        assert_eq!(completions.len(), 2 * 6, "{record}");
    }

    let messages = "\n[workload]\nkind = \"cbr\"\nrate = \"1mbit\"\nmessage = \"1000B\"\n";
    let up = TWO_LINKS.replace("seeds = 1", "seeds = 1\ndirection = \"up\"");
    let place = Place::new(&format!("{up}{messages}"));
    let (output, lines) = place.run(&["--systems", "sumlink:minrtt"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record = place.record(&lines[0]);
    let delays = record["outcome"]["message_delays_ms"].as_array().unwrap();
    // 125 messages per second for 2 s; the last ones are still under way.
    assert!((200..=250).contains(&delays.len()), "{}", delays.len());
    assert!(delays.iter().all(|delay| delay.as_f64().unwrap() >= 4.9));

    let command = "\n[workload]\nkind = \"command\"\nport = 5009\n\
                   server = \"\\\"$SUMLINK_PROGRAM\\\" traffic serve --listen {server}:{port}\"\n\
                   client = \"sh -c 'true < /dev/null; exit 3'\"\n";
    let place = Place::new(&format!("{TWO_LINKS}{command}"));
    let output = place
        .lab(
            "run",
            &["--out", "out", "--json", "--systems", "sumlink:fbdt"],
        )
        .env("SUMLINK_PROGRAM", crate::program())
        .output()
        .unwrap();
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["outcome"], "failed", "{line}");
    assert!(
        line["reason"].as_str().unwrap().contains("exit status: 3"),
        "{line}"
    );
}

/// In both namespaces; the system's setting overrides the scenario's.
#[test]
fn hosts_follow_the_scenario_or_the_system() {
    if is_skipped() {
        return;
    }
    for (system, sack, reordering, timestamps) in [
        ("alone", 0, 3, 0),
        ("lwip", 0, 3, 0),
        ("lwip@hosts=nosack", 0, 300, 1),
        ("lwip@hosts=noundo", 1, 3, 0),
        ("lwip@hosts=linux", 1, 300, 1),
    ] {
        // `exec` replaces the shell with the program, so the test adds a shell.
        let folder = "/proc/sys/net/ipv4";
        let has = format!(
            "test $(cat {folder}/tcp_sack {folder}/tcp_max_reordering {folder}/tcp_timestamps | tr -d [:space:]) = {sack}{reordering}{timestamps}"
        );
        let command = format!(
            "\n[workload]\nkind = \"command\"\nport = 5009\n\
             server = \"sh -c '{has} && exec \\\"$SUMLINK_PROGRAM\\\" traffic serve --listen {{server}}:{{port}}'\"\n\
             client = \"sh -c '{has} && {{ curl -s -m 10 http://{{server}}:{{port}}/ || true; }}'\"\n"
        );
        let two = TWO_LINKS.replace("seeds = 1", "seeds = 1\nhosts = \"newreno\"");
        let place = Place::new(&format!("{two}{command}"));
        let output = place
            .lab("run", &["--out", "out", "--json", "--systems", system])
            .env("SUMLINK_PROGRAM", crate::program())
            .output()
            .unwrap();
        let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(line["outcome"], "measured", "{line}");
    }
}

#[test]
fn a_scenario_can_use_a_congestion_control_of_sumlink() {
    if is_skipped() {
        return;
    }
    if std::env::var_os("SUMLINK_SKIP_BPF").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_BPF=1");
        return;
    }
    let place = Place::new(&TWO_LINKS.replace("seeds = 1", "seeds = 1\ncongestion = \"lia\""));
    let (output, lines) = place.run(&["--systems", "mptcp,sumlink:fbdt,sumlink:fbdt+olia"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert_eq!(line["outcome"], "measured", "{line}");
        assert!(line["goodput_bps"].as_f64() > Some(10e6), "{line}");
    }
    assert_eq!(place.record(&lines[0])["environment"]["congestion"], "lia");
    let note = &place.record(&lines[2])["outcome"]["note"];
    assert!(
        note.as_str().unwrap().contains("its paths use olia"),
        "{note}"
    );
    assert_eq!(sumlink_kernel::loaded().unwrap().len(), 0);
}

#[test]
fn the_library_counts_duplicates_of_both_ends() {
    if is_skipped() {
        return;
    }
    let place = Place::new(TWO_LINKS);
    for direction in ["down", "up"] {
        let seeds = format!("seeds = 1\ndirection = \"{direction}\"");
        let scenario = TWO_LINKS.replace("seeds = 1", &seeds);
        fs::write(place.path("s.toml"), scenario).unwrap();
        let (output, results) = place.run(&["--systems", "library:redundant"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let outcome = &place.record(&results[0])["outcome"];
        let bytes = |key: &str| outcome[key].as_f64().unwrap();
        // In both directions: of two links, the slower one carries only duplicates of the other's
        // bytes.
        let twice = bytes("duplicates_bytes") / bytes("bytes");
        assert!(twice > 0.2, "{direction}: {twice}");
        assert!(outcome["reorder_peak_bytes"].is_u64(), "{outcome}");
    }
}
