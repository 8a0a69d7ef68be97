//! The page of `sumlink-lab video`, and its terminal version.

use std::fmt::Write;

use serde_json::json;

use crate::error::LabError;
use crate::prose::first_sentence;
use crate::results::{Outcome, Run};
use crate::scenario::{Video, Workload};

use super::judge::{COMPARABLE, Judged, OF_BEST, OF_SUM, Row};

/// The page in Markdown.
pub(super) fn of(all: &[Judged<'_>]) -> String {
    let mut text = format!(
        "# Live video upstream\n\n\
         Written by `sumlink-lab video`; [docs/video.md](../../video.md) describes how each \
         figure is measured. Medians over the seeds. *Goodput* is that of bulk traffic, in a \
         run without the video. Where the slower link alone has at least {COMPARABLE} of the \
         faster one's goodput, sumlink must reach {OF_SUM} of the sum of the links alone, \
         otherwise {OF_BEST:.1} of the best link alone. *Others* is the share of the machine \
         that other programs used while the video ran, in the busiest run: with little idle \
         time the camera itself is late, and the delay does not reflect the links. Every run is \
         in [runs.jsonl](runs.jsonl), every row in [results.json](results.json).\n\n"
    );
    let _ = writeln!(text, "{}", machine(all));
    for judged in all {
        let scenario = judged.scenario;
        let _ = writeln!(text, "## {}\n\n{}\n", scenario.name, scenario.about.trim());
        if let Workload::Video(video) = &scenario.workload {
            let _ = writeln!(text, "{}\n", stream(video));
        }
        text.push_str(
            "| system | goodput Mbit/s | of the sum | of the best | bar | video Mbit/s | stood \
             still s (times) | late of all | lost | delay ms: half, 99 of 100, all | others |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        );
        for row in &judged.rows {
            let _ = writeln!(text, "| {} |", cells(judged, row).join(" | "));
        }
        for row in judged.rows.iter().filter(|row| row.missing.is_some()) {
            let reason = row
                .missing
                .as_deref()
                .unwrap_or_default()
                .replace('|', "\\|");
            let _ = writeln!(text, "\n{}: {reason}.", row.system);
        }
        let _ = writeln!(
            text,
            "\n![{0}: goodput and delay over time]({0}.svg)\n",
            scenario.name
        );
    }
    text
}

/// The same figures in columns.
pub(super) fn terminal(judged: &Judged<'_>) -> String {
    let scenario = judged.scenario;
    let mut text = format!("{}: {}\n", scenario.name, first_sentence(&scenario.about));
    let head = [
        "SYSTEM", "GOODPUT", "OF SUM", "OF BEST", "BAR", "VIDEO", "STALL s", "LATE", "LOST",
        "DELAY ms", "OTHERS",
    ];
    let rows = judged.rows.iter().map(|row| cells(judged, row));
    for row in std::iter::once(head.map(str::to_owned)).chain(rows) {
        let [system, rest @ ..] = &row;
        let _ = write!(text, "  {system:<28}");
        for cell in rest {
            let _ = write!(text, " {cell:>10}");
        }
        text.push('\n');
    }
    text
}

fn cells(judged: &Judged<'_>, row: &Row) -> [String; 11] {
    let mega = |bps: f64| format!("{:.2}", bps / 1e6);
    let part = |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{part:.3}"));
    let name = match &row.link {
        Some(link) => format!("{link} alone"),
        None => row.system.clone(),
    };
    let bar = match (row.reached, judged.comparable()) {
        (None, _) => "-".to_owned(),
        (Some(true), _) => "reached".to_owned(),
        (Some(false), true) => format!("short of {OF_SUM} of the sum"),
        (Some(false), false) => "short of the best".to_owned(),
    };
    let video = |pick: fn(&super::judge::Figures) -> String| {
        row.video.as_ref().map_or("-".to_owned(), pick)
    };
    [
        name,
        row.goodput_bps.map_or("-".to_owned(), mega),
        part(row.of_sum),
        part(row.of_best),
        bar,
        video(|v| format!("{:.2}", v.bitrate_bps / 1e6)),
        video(|v| format!("{:.2} ({:.0})", v.stall_s, v.stalls)),
        video(|v| format!("{:.0}/{:.0}", v.late, v.frames)),
        video(|v| format!("{:.0}", v.lost)),
        video(|v| match v.delay_max_ms > 0.0 {
            true => format!(
                "{:.0}, {:.0}, {:.0}",
                v.delay_p50_ms, v.delay_p99_ms, v.delay_max_ms
            ),
            // No picture of the measured time arrived.
            false => "-".to_owned(),
        }),
        row.others_share
            .map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
    ]
}

fn stream(video: &Video) -> String {
    format!(
        "The video: {}x{}, {} pictures a second, H.264 at a constant {:.1} Mbit/s, pushed by {}, \
         shown {} ms after capture.",
        video.size.0,
        video.size.1,
        video.frames,
        video.rate as f64 / 1e6,
        video.protocol.name(),
        video.buffer.as_millis()
    )
}

/// The machine of the runs, if known.
fn machine(all: &[Judged<'_>]) -> String {
    let runs = || all.iter().flat_map(Judged::runs);
    let Some(run) = runs().max_by_key(|run| run.started_unix_s) else {
        return "There are no runs yet.\n".to_owned();
    };
    let environment = &run.environment;
    let seeds = runs().map(|run| run.seed).max().unwrap_or(0);
    if environment.is_simulated() {
        return format!(
            "Simulated, and not measured, with sumlink {}.\n",
            environment.sumlink
        );
    }
    format!(
        "The newest of {} runs, of up to {seeds} seeds: sumlink {} (program {}), Linux {}, {} \
         processors ({}).\n",
        runs().count(),
        environment.sumlink,
        environment.program,
        environment.kernel,
        environment.processors,
        environment.processor
    )
}

/// A run as a line of JSON, without its individual pictures.
pub(super) fn record(run: &Run) -> Result<String, LabError> {
    let mut line = json!({
        "scenario": run.scenario, "seed": run.seed, "system": run.system,
        "started_unix_s": run.started_unix_s, "program": run.environment.program,
    });
    match &run.outcome {
        Outcome::Measured(figures) => {
            let mut videos = figures.videos.clone();
            for video in &mut videos {
                video.all.clear();
            }
            line["goodput_bps"] = json!(figures.goodput_bps);
            line["flows"] = json!(
                figures
                    .flows
                    .iter()
                    .map(|flow| json!({"link": flow.link, "goodput_bps": flow.goodput_bps}))
                    .collect::<Vec<_>>()
            );
            line["videos"] = json!(videos);
            line["machine"] = json!(figures.machine);
            line["retransmissions"] = json!(figures.retransmissions);
            line["note"] = json!(figures.note);
        }
        outcome => line["outcome"] = json!(outcome),
    }
    let text =
        serde_json::to_string(&line).map_err(|error| LabError::system("writing JSON", error))?;
    Ok(format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::judge::judge;
    use super::*;
    use crate::results::{Flow, Machine, Measurement};
    use crate::scenario::Scenario;

    #[test]
    fn a_page_has_a_row_for_each_link_and_system() {
        let text = "name = \"v\"\nabout = \"Two. More.\"\nduration = \"5s\"\ndirection = \"up\"\n\
                    [workload]\nkind = \"video\"\nrate = \"2mbit\"\n\
                    [[link]]\nname = \"a\"\nrate = \"4mbit\"\n[[link]]\nname = \"b\"\n\
                    rate = \"4mbit\"\n";
        let scenario = Scenario::parse(Path::new("v.toml"), text).unwrap();
        let run = |system: &str, links: &[(Option<&str>, f64)]| {
            let flows = links.iter().map(|(link, bps)| Flow {
                link: link.map(str::to_owned),
                goodput_bps: *bps,
                ..Flow::default()
            });
            let videos = links.iter().map(|(link, bps)| crate::results::Video {
                link: link.map(str::to_owned),
                bitrate_bps: bps / 2.0,
                frames: 100,
                late: 3,
                ..Default::default()
            });
            let measured = Measurement {
                flows: flows.collect(),
                videos: videos.collect(),
                machine: Some(Machine {
                    others_share: 0.25,
                    ..Machine::default()
                }),
                ..Default::default()
            };
            Run::bare(system, 1, Outcome::Measured(Box::new(measured)))
        };
        let runs = || {
            vec![
                run("alone", &[(Some("a"), 4e6), (Some("b"), 4e6)]),
                run("sumlink:fbdt", &[(None, 7.8e6)]),
                Run::bare(
                    "mptcp",
                    1,
                    Outcome::Skipped {
                        reason: "not here".to_owned(),
                    },
                ),
            ]
        };
        let judged = judge(&scenario, runs(), runs());
        assert_eq!(judged.short().count(), 0);
        let page = of(&[judged]);
        assert!(
            page.contains("| a alone | 4.00 | 0.500 | 1.000 | - | 2.00 | 0.00 (0) | 3/100 | 0 |"),
            "{page}"
        );
        assert!(
            page.contains("| sumlink:fbdt | 7.80 | 0.975 | 1.950 | reached | 3.90 |"),
            "{page}"
        );
        assert!(page.contains("| - | 25 % |"), "{page}");
        assert!(page.contains("mptcp: skipped: not here."), "{page}");
    }
}
