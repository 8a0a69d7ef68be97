//! Tests of the report: the figures of a fixed sample, and well-formed pages for arbitrary input
//! files.

use proptest::prelude::*;

use super::*;
use crate::results::{Completion, Flow, LinkSeries, Measurement, Missing, Outcome, Run, Series};

/// The sample's files, by path below the directory.
fn sampled() -> (tempfile::TempDir, Vec<PathBuf>) {
    let base = tempfile::tempdir().unwrap();
    sample::write(base.path());
    let files = write(base.path()).unwrap();
    (base, files)
}

/// Fails if the text is not well-formed XML.
fn parsed(text: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    roxmltree::Document::parse_with_options(text, options).unwrap_or_else(|error| {
        let line = text.lines().nth(error.pos().row as usize - 1);
        panic!("{error}: {}", line.unwrap_or_default())
    })
}

#[test]
fn the_figures_of_the_sample() {
    let (base, files) = sampled();
    let read = |name: &str| fs::read_to_string(base.path().join(name)).unwrap();
    insta::assert_snapshot!("summary", read("loss/summary.json"));
    insta::assert_snapshot!("table", read("figures/loss-table.csv"));
    insta::assert_snapshot!("plane", read("figures/loss-plane.svg"));
    insta::assert_snapshot!("lag", read("figures/loss-lag.svg"));
    insta::assert_snapshot!("distribution", read("figures/files-distribution.svg"));
    let names: Vec<_> = files
        .iter()
        .map(|file| {
            file.strip_prefix(base.path())
                .unwrap()
                .display()
                .to_string()
        })
        .collect();
    insta::assert_snapshot!("files", names.join("\n"));
}

#[test]
fn the_headlines_of_the_sample() {
    let (base, _) = sampled();
    let all = results::load(base.path()).unwrap();
    let headlines: Vec<String> = all
        .iter()
        .map(|results| {
            let summary = Summary::from_runs(&results.header, &results.runs);
            format!(
                "{}:\n{}\n",
                summary.scenario,
                words::headline(&summary).join("\n")
            )
        })
        .collect();
    insta::assert_snapshot!("headlines", headlines.join("\n"));
}

#[test]
fn the_page_needs_no_external_resources() {
    let (_base, files) = sampled();
    let page = fs::read_to_string(&files[0]).unwrap();
    let document = parsed(&page);
    let mut ids = std::collections::HashSet::new();
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        assert!(
            !["script", "link", "img", "iframe", "object"].contains(&name),
            "{name}"
        );
        for attribute in node.attributes() {
            let (key, value) = (attribute.name(), attribute.value());
            assert!(!key.starts_with("on"), "{key}");
            assert!(key != "src" && !value.contains("url("), "{key}={value}");
            if key == "href" && !value.starts_with('#') {
                let target = files[0].with_file_name(value);
                assert!(target.is_file(), "{value} does not exist");
            }
            if key == "id" {
                assert!(ids.insert(value.to_owned()), "{value} twice");
            }
        }
    }
    for node in document.descendants() {
        if let Some(target) = node
            .attribute("href")
            .and_then(|href| href.strip_prefix('#'))
        {
            assert!(ids.contains(target), "#{target} does not exist");
        }
    }
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "svg"))
    {
        parsed(&fs::read_to_string(file).unwrap());
    }
}

#[test]
fn every_system_has_a_row_and_every_missing_run_a_reason() {
    let (_base, files) = sampled();
    let page = fs::read_to_string(&files[0]).unwrap();
    for text in [
        "noq is not installed; install it with: make peers",
        "the emulator used 97 % of a core",
        "not run</em> 1 run<",
        "socket buffers up to 64 MiB",
        "aggligator 0.18.12",
        "on clean links",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn reports_of_one_directory_are_the_same_every_time() {
    let (base, files) = sampled();
    let before = fs::read_to_string(&files[0]).unwrap();
    assert_eq!(write(base.path()).unwrap(), files);
    assert_eq!(fs::read_to_string(&files[0]).unwrap(), before);
}

/// Characters that could break out of the context in which a name is shown.
const HOSTILE: &str = "<script>alert(1)</script>\"'&]]>";

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(HOSTILE.to_owned()),
        Just("alone".to_owned()),
        Just("simultaneous".to_owned()),
        Just("mptcp".to_owned()),
        Just("x".repeat(5000)),
        Just("\u{202e}\u{0}\u{1b}[31m".to_owned()),
        any::<String>(),
    ]
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..3e9,
        1 => any::<f64>(),
        1 => prop_oneof![
            Just(f64::NAN),
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            Just(f64::MAX),
            Just(f64::MIN_POSITIVE),
            Just(-1.0),
            Just(0.0),
        ],
    ]
}

fn series() -> impl Strategy<Value = Series> {
    (number(), number(), prop::collection::vec(number(), 0..20)).prop_map(
        |(start_s, interval_s, bps)| Series {
            start_s,
            interval_s,
            bps,
        },
    )
}

fn link() -> impl Strategy<Value = LinkSeries> {
    (name(), any::<u64>(), number(), series()).prop_map(|(link, wire_bytes, share, rate)| {
        LinkSeries {
            link,
            direction: "down".to_owned(),
            wire_bytes,
            share,
            rate,
            ..LinkSeries::default()
        }
    })
}

fn measurement() -> impl Strategy<Value = Measurement> {
    let flow = (proptest::option::of(name()), name(), number(), series()).prop_map(
        |(link, direction, goodput_bps, goodput)| Flow {
            link,
            direction,
            goodput_bps,
            goodput,
            arrivals: Vec::new(),
        },
    );
    let completion =
        (number(), proptest::option::of(name())).prop_map(|(duration_s, link)| Completion {
            duration_s,
            link,
            ..Completion::default()
        });
    let lists = (
        prop::collection::vec(flow, 0..5),
        prop_oneof![
            3 => prop::collection::vec(link(), 0..5),
            1 => prop::collection::vec(link(), 64),
        ],
        prop::collection::vec(completion, 0..5),
        prop::collection::vec(number(), 0..5),
    );
    (number(), number(), lists, series(), any::<Option<u64>>()).prop_map(
        |(duration_s, goodput_bps, (flows, links, completions, delays), goodput, count)| {
            Measurement {
                duration_s,
                goodput_bps,
                flows,
                completions,
                message_delays_ms: delays,
                retransmissions: count,
                duplicates_bytes: count,
                over_limit: count,
                links,
                goodput,
                processes: vec![crate::results::Process {
                    name: HOSTILE.to_owned(),
                    cpu_s: goodput_bps,
                    peak_memory_bytes: count.unwrap_or(0),
                }],
                ..Measurement::default()
            }
        },
    )
}

fn run() -> impl Strategy<Value = Run> {
    let outcome = prop_oneof![
        4 => measurement().prop_map(|figures| Outcome::Measured(Box::new(figures))),
        1 => name().prop_map(|reason| Outcome::Skipped { reason }),
        1 => name().prop_map(|reason| Outcome::Refused { reason }),
        1 => name().prop_map(|reason| Outcome::Failed { reason }),
    ];
    (name(), 0..3u64, any::<u64>(), outcome).prop_map(|(system, seed, started_unix_s, outcome)| {
        Run {
            scenario: HOSTILE.to_owned(),
            environment: results::Environment {
                kernel: system.clone(),
                congestion: HOSTILE.to_owned(),
                peers: [(HOSTILE.to_owned(), system.clone())].into(),
                ..Default::default()
            },
            started_unix_s,
            ..results::Run::bare(&system, seed, outcome)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any input gives a well-formed page in which no name becomes markup.
    #[test]
    fn any_results_give_a_page(
        runs in prop::collection::vec(run(), 0..8),
        about in name(),
        warmup_s in number(),
        events in prop::collection::vec((number(), name(), name()), 0..3),
        direction in name(),
    ) {
        let results = ScenarioResults {
            directory: PathBuf::from("/").join(HOSTILE),
            header: results::ScenarioHeader {
                name: HOSTILE.to_owned(),
                about,
                direction,
                workload: HOSTILE.to_owned(),
                limit_s: Some(warmup_s),
                seeds: 5,
                links: vec![HOSTILE.to_owned()],
                systems: vec![HOSTILE.to_owned()],
                clean_mptcp_bps: Some(warmup_s),
            },
            warmup_s,
            events: events
                .into_iter()
                .map(|(at_s, link, what)| results::EventMark { at_s, link, what })
                .collect(),
            clean: None,
            runs,
            warnings: vec![HOSTILE.to_owned()],
        };
        let mut summary = Summary::from_runs(&results.header, &results.runs);
        summary.systems[0].missing.push(Missing {
            kind: HOSTILE.to_owned(),
            ..Missing::default()
        });
        let palette = Palette::new(summary.systems.iter().map(|system| system.system.as_str()));
        let view = View::new(&results, summary.clone(), &palette);
        let figures = figures::all(&view);
        for (name, text) in beside(&view, &figures) {
            prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b)));
            if name.ends_with(".svg") {
                parsed(&text);
                prop_assert!(!text.contains("NaN") && !text.contains("inf\""), "{text}");
            }
        }
        let page = page::page(&[(view, figures)], &palette);
        let document = parsed(&page);
        prop_assert!(!document.descendants().any(|node| node.tag_name().name() == "script"));
        prop_assert!(document.descendants().any(|node| node.text() == Some(HOSTILE)));
        prop_assert!(!page.contains("<script"));
    }
}
