//! Scenarios with a LAN behind a gateway.

use serde_json::Value;

use crate::{Place, is_skipped, text};

const LAN: &str = r#"
name = "lan"
about = "a LAN behind a gateway"
topology = "lan"
rp_filter = "loose"
duration = "2s"
warmup = "1s"
seeds = 1
systems = ["alone", "mptcp", "sumlink:fbdt:capture=socks", "sumlink:fbdt:capture=socks:from=gateway"]

[[link]]
name = "wifi"
rate = "30mbit"
delay = "5ms"

[[link]]
name = "lte"
rate = "20mbit"
delay = "10ms"
"#;

/// The lines of `run --json`, by system.
fn run(scenario: &str) -> Option<(Place, Vec<Value>)> {
    if is_skipped() {
        return None;
    }
    let place = Place::new(scenario);
    let (output, lines) = place.run(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some((place, lines))
}

/// The figures of a run.
fn figures(place: &Place, line: &Value) -> Value {
    place.record(line)["outcome"].take()
}

#[test]
fn the_traffic_is_that_of_the_lan_host() {
    let Some((place, lines)) = run(LAN) else {
        return;
    };
    let [alone, mptcp, socks, of_gateway] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    let goodput = |line: &Value| line["goodput_bps"].as_f64().unwrap_or_default() / 1e6;
    let of = figures(&place, alone);
    let links = of["flows"].as_array().unwrap();
    let links: Vec<_> = links
        .iter()
        .map(|flow| flow["link"].as_str().unwrap())
        .collect();
    assert_eq!(links, ["wifi", "lte"]);
    assert!((35.0..55.0).contains(&goodput(alone)), "{alone}");
    assert_eq!(mptcp["outcome"], "skipped");
    let reason = mptcp["reason"].as_str().unwrap();
    assert!(reason.contains("a gateway only forwards"), "{reason}");
    for line in [socks, of_gateway] {
        assert!((20.0..55.0).contains(&goodput(line)), "{line}");
    }
}

#[test]
fn workloads_of_a_lan_have_figures() {
    let of = |workload: &str| {
        let systems = "systems = [\"alone\", \"sumlink:fbdt:capture=socks\"]\n";
        let lines = LAN.lines().filter(|line| !line.starts_with("systems"));
        let scenario: String = lines.map(|line| format!("{line}\n")).collect();
        let scenario = scenario.replacen("\n\n[[link]]", &format!("\n{systems}\n[[link]]"), 1);
        run(&format!("{scenario}\n[workload]\n{workload}"))
    };
    let Some((place, lines)) = of("kind = \"connections\"\nparallel = 8\n") else {
        return;
    };
    for line in &lines {
        let of = figures(&place, line);
        assert!(of["connections"]["answered"].as_u64().unwrap() > 20, "{of}");
        assert_eq!(of["connections"]["failed"], 0, "{of}");
        assert!(
            of["note"]
                .as_str()
                .unwrap()
                .contains("new connections a second"),
            "{of}"
        );
    }
    let (place, lines) = of("kind = \"open\"\ncount = 200\n").unwrap();
    // Each link alone has its own connections.
    for (line, open) in lines.iter().zip([400, 200]) {
        let of = figures(&place, line);
        assert_eq!(of["connections"]["open"], open, "{of}");
    }
    let (place, lines) = of("kind = \"dns\"\ngap = \"20ms\"\n").unwrap();
    assert_eq!(lines[1]["outcome"], "skipped");
    let of_link = &figures(&place, &lines[0])["link_delays_ms"]["lte"];
    let delays = of_link
        .as_array()
        .unwrap()
        .iter()
        .map(|ms| ms.as_f64().unwrap());
    let delays: Vec<f64> = delays.collect();
    assert!(
        !delays.is_empty() && delays.iter().all(|ms| *ms >= 20.0),
        "{delays:?}"
    );
    let (_, lines) = of("kind = \"curl\"\n").unwrap();
    for line in &lines {
        assert!(line["goodput_bps"].as_f64().unwrap() > 15e6, "{line}");
    }
}

#[test]
fn a_shell_is_on_any_side() {
    if is_skipped() {
        return;
    }
    let place = Place::new(LAN);
    let shell = |side: &str| {
        let words = [
            "--side", side, "--", "ip", "-brief", "-4", "address", "show", "lan0",
        ];
        place.lab("shell", &words).output().unwrap()
    };
    let shown = text(&shell("lan").stdout);
    assert!(shown.contains("192.168.8.2/24"), "{shown}");
    let shown = text(&shell("client").stdout);
    assert!(shown.contains("192.168.8.1/24"), "{shown}");
    assert!(
        !shell("internet").status.success(),
        "it has no such interface"
    );
    let pair = LAN.replace("topology = \"lan\"\nrp_filter = \"loose\"\n", "");
    let output = Place::new(&pair)
        .lab("shell", &["--side", "lan", "--", "true"])
        .output();
    let message = text(&output.unwrap().stderr);
    assert!(message.contains("has no side lan"), "{message}");
}
