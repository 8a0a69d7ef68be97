//! `sumlink-lab bench`: a matrix of one small row.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{is_skipped, program, text};

/// A row whose bar any bond reaches, and a row with an unreachable bar, whose link is one of the
/// first row's.
const GROUP: &str = r#"
name = "tiny"
bars = ["sum >= 0.3", "duplicates <= 50%"]
directions = ["up"]

[scenario]
duration = "2s"
warmup = "1s"

[[row]]
name = "two"
[[row.link]]
name = "wifi"
down = "1mbit"
up = "20mbit"
[[row.link]]
name = "lte"
rate = "10mbit"

[[row]]
name = "dream"
bars = ["sum >= 3"]
[[row.link]]
name = "only"
rate = "10mbit"
"#;

struct Place(tempfile::TempDir);

impl Place {
    fn new(group: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("scenarios/matrix")).unwrap();
        fs::write(directory.path().join("scenarios/matrix/tiny.toml"), group).unwrap();
        Self(directory)
    }

    fn bench(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.args(["bench"]).args(arguments);
        command.current_dir(self.0.path()).output().unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join("docs/results").join(name)).unwrap()
    }
}

#[test]
fn mistakes_in_the_matrix_have_file_and_line() {
    let place = Place::new(&GROUP.replace("sum >= 3\"", "sum = 3\""));
    let output = place.bench(&["--list"]);
    assert_eq!(output.status.code(), Some(3));
    let message = text(&output.stderr);
    let start = "scenarios/matrix/tiny.toml:22: bars: 'sum = 3' is not a bar";
    assert!(message.starts_with(start), "{message}");
    let place = Place::new(GROUP);
    let output = place.bench(&["--rows", "tiny/none"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no row matches tiny/none"));
    assert!(!place.0.path().join("lab-out").exists());
}

#[test]
fn the_matrix_of_the_project_is_valid() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/matrix");
    let list = |arguments: &[&str]| {
        let mut command = Command::new(program());
        command.args(["bench", "--list", "--matrix", directory]);
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let all = list(&[]);
    for (group, rows) in [
        ("thesis-4-1/", 5),
        ("thesis-4-5/", 3),
        ("thesis-4-9/", 6),
        ("unequal/", 12),
        ("simult-flows/", 5),
        ("small/", 6),
        ("latency/", 4),
        ("random-loss/", 5),
        ("rival/", 2),
        ("fading/", 2),
        ("headroom/", 2),
        ("policed/", 4),
        ("datagrams-quic/", 13),
        ("datagrams-live/", 8),
        ("datagrams-load/", 2),
        ("lag/", 5),
    ] {
        let found = all.lines().filter(|line| line.starts_with(group)).count();
        assert_eq!(found, rows, "{group}: {all}");
    }
    let quick = list(&["--quick"]);
    assert!((3..14).contains(&quick.lines().count()), "{quick}");
}

#[test]
fn the_matrix_of_a_third_of_the_rates_is_valid() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/matrix-third");
    let mut command = Command::new(program());
    command.args(["bench", "--list", "--matrix", directory]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let listed = text(&output.stdout);
    let rows = listed.lines().filter(|line| line.contains('/')).count();
    assert!(rows >= 8, "{listed}");
}

#[test]
fn the_matrix_of_the_gateway_is_valid() {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scenarios/matrix-gateway"
    );
    let mut command = Command::new(program());
    command.args(["bench", "--list", "--matrix", directory]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let listed = text(&output.stdout);
    for (group, rows) in [
        ("gateway-thesis/", 12),
        ("gateway-unequal/", 12),
        ("gateway-upwards/", 3),
        ("gateway-capture/", 4),
        ("gateway-connections/", 5),
        ("gateway-answers/", 4),
    ] {
        let found = listed.lines().filter(|line| line.starts_with(group));
        assert_eq!(found.count(), rows, "{group}: {listed}");
    }
}

#[test]
fn the_front_page_quotes_the_results() {
    let read = |name: &str| {
        let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(path).unwrap()
    };
    let (front_page, summary) = (read("README.md"), read("docs/results/summary.md"));
    let count = summary.lines().next().expect("a summary has a first line");
    assert!(front_page.contains(count), "README.md lacks: {count}");
}

#[test]
fn the_page_matches_its_runs() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let place = tempfile::tempdir().unwrap();
    let mut unpack = Command::new("tar");
    unpack.args(["-xJf", "docs/results/runs.tar.xz", "-C"]);
    let unpacked = unpack.arg(place.path()).current_dir(root).status().unwrap();
    assert!(unpacked.success());
    let page = place.path().join("page");
    let mut judge = Command::new(program());
    judge.args(made_by(
        &fs::read_to_string(format!("{root}/docs/results/README.md")).unwrap(),
    ));
    judge.args(["--runs".as_ref(), place.path()]);
    judge.arg("--out").arg(&page);
    let output = judge.current_dir(root).output().unwrap();
    let message = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 10)), "{message}");
    let made = fs::read_dir(&page).unwrap();
    let names: Vec<_> = made
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let again = fs::read(page.join(&name)).unwrap();
        let written = fs::read(format!("{root}/docs/results/{name}")).unwrap();
        assert!(
            again == written,
            "docs/results/{name} is not what its runs give: make bench-pack where they are newer, then the call that the page says it was made by, with --judge-only"
        );
    }
}

/// The arguments on a page that produced it.
fn made_by(page: &str) -> Vec<String> {
    let (_, command) = page.split_once("Made by `sumlink-lab ").unwrap();
    let (command, _) = command.split_once('`').unwrap();
    let words = command.split(' ').map(|word| word.trim_matches('\''));
    words.map(str::to_owned).collect()
}

#[test]
fn a_row_is_measured_once_and_judged() {
    if is_skipped() {
        return;
    }
    let place = Place::new(GROUP);
    let arguments = ["--seeds", "1", "--systems", "mptcp", "--rows", "tiny/two"];
    let output = place.bench(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let message = text(&output.stdout);
    assert!(message.contains("1 of 1 lines pass"), "{message}");
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    let lines = results["groups"][0]["lines"].as_array().unwrap();
    assert_eq!(lines[0]["verdict"], "pass", "{results}");
    let sum = &lines[0]["bars"][0];
    let measured = sum["measured"]["median"].as_f64().unwrap();
    assert!((0.3..1.2).contains(&measured), "{sum}");
    assert!(sum["others"]["mptcp"].is_f64(), "{sum}");
    // Uploaded data meets the file's settings of the downlink.
    let wifi = lines[0]["links_alone_bps"]["wifi"].as_f64().unwrap();
    assert!(wifi < 1e6, "{wifi}");
    assert_eq!(lines[1]["verdict"], "not_run");
    let records = place.read("runs.jsonl");
    // Each link alone, sumlink and MPTCP.
    assert_eq!(records.lines().count(), 4, "{records}");
    let page = place.read("README.md");
    assert!(
        page.contains("| two | up, cubic |") && page.contains("tiny.svg"),
        "{page}"
    );
    assert!(
        place
            .read("summary.md")
            .contains("1 have been measured with every seed: 1 reach every bar")
    );

    // Repeated: nothing is run, and a missed bar has its own exit code.
    let again = place.bench(&arguments);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(text(&again.stderr).contains("4 of 4 runs are already in lab-out/bench"));
    let short = place.bench(&["--seeds", "1", "--systems", "alone", "--rows", "tiny/dream"]);
    assert_eq!(short.status.code(), Some(10), "{}", text(&short.stderr));
    let message = text(&short.stderr);
    assert!(
        message.contains("1 of 2 runs are already in lab-out/bench"),
        "{message}"
    );
    let message = text(&short.stdout);
    assert!(
        message.starts_with("FALLS SHORT tiny/dream (up, cubic)"),
        "{message}"
    );
    assert!(
        place
            .read("README.md")
            .contains("- dream: the cause is not known yet")
    );
    let judged = place.bench(&["--judge-only", "--seeds", "1", "--systems", "mptcp"]);
    assert_eq!(judged.status.code(), Some(10));
    assert!(text(&judged.stderr).contains("1 of 2 lines of the matrix miss a bar"));
}

#[test]
fn requests_cold_objects_and_a_rival_are_measured() {
    if is_skipped() {
        return;
    }
    let links = "[[row.link]]\nname = \"wifi\"\nrate = \"20mbit\"\ndelay = \"10ms\"\n\
                 [[row.link]]\nname = \"lte\"\nrate = \"10mbit\"\ndelay = \"30ms\"\n";
    let group = format!(
        "name = \"tiny\"\n[scenario]\nduration = \"2s\"\nwarmup = \"0s\"\n\
         [[row]]\nname = \"load\"\nbars = [\"added latency <= 10s\"]\nworkload = {{ kind = \"requests\", load = true }}\n{links}\
         [[row]]\nname = \"cold\"\nbars = [\"completion <= 100 of best up to 1kB\", \"completion >= 0.01 of sum above 1kB\"]\n\
         workload = {{ kind = \"files\", cold = true, sizes = [\"1kB\", \"100kB\"] }}\n{links}\
         [[row]]\nname = \"rival\"\nbars = [\"rival >= 0\"]\nrival = \"wifi\"\n{links}"
    );
    let place = Place::new(&group);
    let output = place.bench(&["--seeds", "1", "--systems", "alone"]);
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    let results: Value = serde_json::from_str(&place.read("results.json")).unwrap();
    let lines = results["groups"][0]["lines"].as_array().unwrap();
    let measured = |line: usize, bar: usize| {
        lines[line]["bars"][bar]["measured"]["median"]
            .as_f64()
            .unwrap()
    };
    // An answer waits for the data in the queues: some tens of milliseconds more or less.
    assert!(measured(0, 0).abs() < 500.0, "{results}");
    assert_eq!(lines[1]["bars"][0]["object_bytes"], 1000);
    assert_eq!(lines[1]["bars"][1]["object_bytes"], 100_000);
    assert!((0.1..20.0).contains(&measured(1, 0)), "{results}");
    assert!((0.05..20.0).contains(&measured(1, 1)), "{results}");
    assert!((0.01..2.0).contains(&measured(2, 0)), "{results}");
}
