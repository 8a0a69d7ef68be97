//! Kernel MPTCP with a selector, and limits of receive buffers.

use std::fs;

use crate::{Place, TWO_LINKS, is_skipped, text};

#[test]
fn a_parked_link_is_a_backup_of_kernel_mptcp_in_both_directions() {
    if is_skipped() {
        return;
    }
    for direction in ["up", "down"] {
        // With alpha = 1 the link below the average is parked, here for the rest of the run.
        let system = "mptcp@global:alpha=1:probe=60s";
        let scenario = TWO_LINKS
            .replace(
                "duration = \"3s\"",
                &format!("duration = \"6s\"\ndirection = \"{direction}\""),
            )
            .replace("warmup = \"1s\"", "warmup = \"4s\"");
        let place = Place::new(&scenario);
        let (output, lines) = place.run(&["--systems", system, "--trace", "trace"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let outcome = &place.record(&lines[0])["outcome"];
        let note = outcome["note"].as_str().unwrap();
        assert!(
            note.contains("changes of backups") && !note.contains(" 0 MP_PRIO sent"),
            "{note}"
        );
        assert!(outcome["rested"]["lte"].as_f64() > Some(0.3), "{outcome}");
        let links = outcome["links"].as_array().unwrap();
        let bytes = |name: &str| {
            let of = links
                .iter()
                .find(|link| link["link"] == name && link["direction"] == direction);
            of.unwrap()["wire_bytes"].as_f64().unwrap()
        };
        assert!(bytes("lte") < 0.1 * bytes("wifi"), "{direction}: {outcome}");
        let trace = place.path(&format!(
            "trace/two-seed-1-{}.jsonl",
            system.replace(':', "-")
        ));
        let trace = fs::read_to_string(trace).unwrap();
        for event in ["\"selected\"", "\"subflow\"", "\"threshold\""] {
            assert!(trace.contains(event), "{event}");
        }
    }
}

#[test]
fn a_receive_buffer_limits_a_connection() {
    if is_skipped() {
        return;
    }
    // Half of 16 KiB in a round trip of 10 ms and more: at most 6.6 Mbit/s.
    let scenario = TWO_LINKS.replace("seeds = 1", "seeds = 1\nreceive_buffer = \"16KiB\"");
    let place = Place::new(&scenario);
    let (output, lines) = place.run(&["--systems", "alone"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let flows = place.record(&lines[0])["outcome"]["flows"].clone();
    let wifi = flows
        .as_array()
        .unwrap()
        .iter()
        .find(|flow| flow["link"] == "wifi");
    let goodput = wifi.unwrap()["goodput_bps"].as_f64().unwrap();
    assert!((0.5e6..8e6).contains(&goodput), "{goodput}");
}
