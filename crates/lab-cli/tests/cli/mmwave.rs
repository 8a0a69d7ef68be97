//! The contention of 60 GHz Wi-Fi on the command line.

use serde_json::Value;

use crate::common::Bench;

const JAIN: &str = "name = \"j\"\nkind = \"jain\"\nblockage = [0.1, 0.5]\nseeds = 1\n[cell]\nstations = 8\nintervals = 20\n";

const OVERHEAD: &str = "name = \"o\"\nkind = \"overhead\"\nstations = [2, 6]\nschemes = [\"80211-thesis\", \"jpoc\"]\nseeds = 1\n\
                        [cell]\nintervals = 10\n";

fn json(bench: &Bench, args: &[&str]) -> Value {
    let done = bench.run(args);
    assert_eq!(done.code, 0, "{}", done.err);
    serde_json::from_str(&done.out).unwrap()
}

#[test]
fn fairness_is_printed_and_stored_for_each_scheme_and_blockage() {
    let bench = crate::common::new();
    bench.write("j.toml", JAIN);
    let result = json(&bench, &["mmwave", "run", "j.toml", "--json", "--out", "d"]);
    let points = result["points"].as_array().unwrap();
    let schemes = ["80211ad", "80211ay", "80211-thesis", "jpoc-thesis", "jpoc"];
    let expected: Vec<_> = schemes
        .iter()
        .flat_map(|scheme| [0.1, 0.5].map(|blockage| (*scheme, blockage)))
        .collect();
    let of = |point: &Value| {
        let jain = point["jain"].as_f64().unwrap();
        assert!((1.0 / 8.0..=1.0).contains(&jain), "{point}");
        let scheme = point["scheme"].as_str().unwrap().to_owned();
        (scheme, point["blockage"].as_f64().unwrap())
    };
    let found: Vec<_> = points.iter().map(of).collect();
    assert!(found.iter().map(|(s, b)| (s.as_str(), *b)).eq(expected));
    let kept = std::fs::read_to_string(bench.path("d/j.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), result);
    let table = std::fs::read_to_string(bench.path("d/j.csv")).unwrap();
    assert!(table.starts_with("scheme,blockage,") && table.lines().count() == 11);
    // The result does not depend on the number of parallel runs.
    let again = json(
        &bench,
        &["mmwave", "run", "j.toml", "--json", "--jobs", "1"],
    );
    assert_eq!(again, result);
}

#[test]
fn mini_slots_are_printed_for_each_number_of_stations() {
    let bench = crate::common::new();
    bench.write("o.toml", OVERHEAD);
    let result = json(&bench, &["mmwave", "run", "o.toml", "--json"]);
    for point in result["points"].as_array().unwrap() {
        assert!(point["mini_slots"].as_f64().unwrap() >= 36.0, "{point}");
    }
    assert_eq!(result["points"].as_array().unwrap().len(), 4);
}

const LINKS: &str = "name = \"l\"\nduration = \"12s\"\nwarmup = \"1s\"\n[[link]]\nname = \"wifi\"\nrate = \"5mbit\"\ndelay = \"2ms\"\n\
                     [[link]]\nname = \"wigig\"\nprofile = \"mmwave\"\naccess = \"jpoc\"\nstations = 1\nscale = 0.02\n";

const BOND: &str = "name = \"b\"\nkind = \"bond\"\nscenario = \"l.toml\"\nstations = [0, 4]\nschemes = [\"80211ad\", \"jpoc\"]\nseeds = 3\n";

#[test]
fn a_bond_is_measured_under_each_scheme_and_drawn() {
    let bench = crate::common::new();
    bench.write("l.toml", LINKS);
    bench.write("b.toml", BOND);
    let result = json(&bench, &["mmwave", "run", "b.toml", "--json", "--out", "d"]);
    assert_eq!(
        (&result["kind"], &result["seeds"]),
        (&Value::from("bond"), &Value::from(3))
    );
    let points = result["points"].as_array().unwrap();
    assert_eq!(points.len(), 4);
    for point in points {
        let figure = |name: &str| point[name].as_f64().unwrap();
        assert_eq!(point["failed"], 0, "{point}");
        assert!((0.0..1.0).contains(&figure("gone")), "{point}");
        // Wi-Fi continues during outages of WiGig.
        assert!(figure("sumlink_mbps") > figure("wigig_mbps"), "{point}");
        assert!(figure("sumlink_mbps") > 4.0, "{point}");
        for system in ["sumlink", "mptcp", "wigig"] {
            let gap = figure(&format!("{system}_gap_s"));
            assert!((0.0..=2.0).contains(&gap), "{point}");
            // Whole intervals of the series, without floating-point noise.
            assert!(gap.to_string().len() <= 5, "{point}");
            assert!(figure(&format!("{system}_worst_gap_s")) >= gap, "{point}");
        }
    }
    for file in [
        "b.json",
        "b.csv",
        "b.svg",
        "b-mptcp.svg",
        "b-wigig.svg",
        "b-sumlink-gap.svg",
        "b-mptcp-gap.svg",
        "b-gap.svg",
    ] {
        let kept = std::fs::read_to_string(bench.path(&format!("d/{file}"))).unwrap();
        let drawn = kept.contains("<polyline") && kept.ends_with("</svg>\n");
        assert!(drawn || !file.ends_with("svg"), "{file}");
    }
    let again = json(
        &bench,
        &["mmwave", "run", "b.toml", "--json", "--jobs", "1"],
    );
    assert_eq!(again, result);
    // The links form a scenario.
    let run = bench.run(&[
        "sim",
        "run",
        "l.toml",
        "--seeds",
        "1",
        "--systems",
        "mptcp",
        "--json",
    ]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("\"measured\""), "{}", run.out);
}

#[test]
fn walking_clients_are_printed_for_each_speed() {
    let bench = crate::common::new();
    let text = "name = \"m\"\nkind = \"mobility\"\nspeeds = [0, 1.4]\nschemes = [\"jpoc\"]\nseeds = 1\n\
                [cell]\nstations = 2\nintervals = 200\nblockage = 0.0\npause_s = 1\n";
    bench.write("m.toml", text);
    let result = json(&bench, &["mmwave", "run", "m.toml", "--json", "--out", "d"]);
    let attempts = |index: usize| {
        result["points"][index]["attempts_per_minute"]
            .as_f64()
            .unwrap()
    };
    assert!(attempts(1) > attempts(0), "{result}");
    assert!(bench.path("d/m.svg").exists() && bench.path("d/m-gone.svg").exists());
}

#[test]
fn one_a_bft_the_office_and_its_beams_are_shown() {
    let bench = crate::common::new();
    let abft = json(
        &bench,
        &[
            "mmwave",
            "abft",
            "--scheme",
            "jpoc",
            "--stations",
            "3",
            "--json",
        ],
    );
    assert_eq!(abft["mini_slots"], 64);
    assert_eq!(abft["frames"].as_array().unwrap().len(), 3 * 36);
    let map = json(&bench, &["mmwave", "heatmap", "--draws", "3", "--json"]);
    assert_eq!(map["index"].as_array().unwrap().len(), 4);
    let beams = json(
        &bench,
        &["mmwave", "beams", "--draws", "3", "--gamma", "4", "--json"],
    );
    let shares = beams["shares"].as_array().unwrap().iter();
    let all: f64 = shares.map(|share| share.as_f64().unwrap()).sum();
    assert!((all + beams["none"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    for (args, names) in [
        (&["abft", "--stations", "2"][..], "abft"),
        (&["heatmap", "--draws", "2", "--gamma", "4"], "heatmap"),
        (&["beams", "--draws", "2"], "beams"),
    ] {
        let args = ["mmwave"].iter().chain(args).chain(&["--out", "kept"]);
        let done = bench.run(&args.copied().collect::<Vec<_>>());
        assert_eq!(done.code, 0, "{}", done.err);
        let kept = |end: &str| std::fs::read_to_string(bench.path(&format!("kept/{names}.{end}")));
        assert!(serde_json::from_str::<Value>(&kept("json").unwrap()).is_ok());
        assert!(kept("svg").unwrap().ends_with("</svg>\n"), "{names}");
    }
    let text = bench.run(&["mmwave", "abft", "--stations", "2"]);
    assert!(text.out.contains("80211-thesis: A-BFT of"), "{}", text.out);
}

#[test]
fn figures_are_made_by_name_with_their_tables() {
    let bench = crate::common::new();
    let names = ["sectors", "sectors-gamma-4", "timeline"];
    let args = ["mmwave", "figures", "--seeds", "1", "--out", "d"];
    let done = bench.run(&[&args[..], &names[..]].concat());
    assert_eq!(done.code, 0, "{}", done.err);
    for name in names {
        let kept = |end: &str| std::fs::read_to_string(bench.path(&format!("d/{name}.{end}")));
        assert!(done.out.contains(&kept("csv").unwrap()), "{name}");
        assert!(kept("svg").unwrap().ends_with("</svg>\n"), "{name}");
    }
    // Figure 3.3 shows the limit below which nothing is decoded.
    let chart = std::fs::read_to_string(bench.path("d/sectors-gamma-4.svg")).unwrap();
    assert!(chart.contains(">decoded from here<"), "{chart}");
    assert!(!bench.path("d/target.csv").exists());
}

#[test]
fn impossible_values_are_one_line_with_their_exit_code() {
    let bench = crate::common::new();
    bench.write("kind.toml", &JAIN.replace("\"jain\"", "\"jane\""));
    bench.write("cell.toml", &JAIN.replace("stations = 8", "stations = 0"));
    bench.write("probability.toml", &JAIN.replace("0.5]", "1.5]"));
    bench.write("none.txt", "no pattern\n");
    bench.write("hole.txt", "a,-10,0,3\na,10,0,7\nb,10,0,1\n");
    bench.write("beam.txt", "a,-10,0,3\na,10,0,7\n");
    let cell = |line: &str| {
        format!("name = \"s\"\nkind = \"stations\"\nstations = [1]\nseeds = 1\n[cell]\n{line}\n")
    };
    bench.write("beams.toml", &cell("chatty = 1\n[jpoc]\ngood_beams = 36"));
    bench.write("near.toml", &cell("radius_m = -1"));
    bench.write("holes.toml", &cell("patterns = \"hole.txt\""));
    bench.write("varied.toml", &format!("{JAIN}blockage = 0.1\n"));
    bench.write("b.toml", BOND);
    bench.write("l.toml", &LINKS.replace("\"jpoc\"", "\"csma\""));
    for (args, code, hint) in [
        (&["run", "none.toml"][..], 3, "cannot read"),
        (
            &["run", "b.toml"],
            3,
            "l.toml:11: access: 'csma' is none of",
        ),
        (
            &["run", "kind.toml"],
            3,
            "kind.toml:2: `jane` is not a kind",
        ),
        (
            &["run", "cell.toml"],
            3,
            "cell.toml: clients of the cell is 0",
        ),
        (
            &["run", "probability.toml"],
            3,
            "blockage probability is 1.5",
        ),
        (&["heatmap", "--sectors", "37"], 2, "must be 36 or 64"),
        (
            &["figures", "--out", "d", "sector"],
            2,
            "[possible values: sectors,",
        ),
        (&["abft", "--scheme", "aloha"], 2, "choose one of 80211ad"),
        (&["beams", "--patterns", "none.txt"], 3, "none.txt:1"),
        (
            &["beams", "--patterns", "hole.txt"],
            3,
            "beam 1 has no gain at azimuth -10",
        ),
        (
            &["beams", "--patterns", "beam.txt", "--gamma", "nan"],
            2,
            "gamma in dB is NaN",
        ),
        (
            &["run", "near.toml"],
            3,
            "radius of the cell in meters is -1",
        ),
        (&["run", "holes.toml"], 3, "hole.txt:1: pattern: beam 1"),
        (
            &["run", "varied.toml"],
            3,
            "varied.toml:8: `blockage` is varied by",
        ),
    ] {
        let args: Vec<&str> = ["mmwave"].iter().chain(args).copied().collect();
        let done = bench.run(&args);
        assert_eq!(done.code, code, "{args:?}: {}", done.err);
        assert!(done.err.contains(hint), "{args:?}: {}", done.err);
    }
}
