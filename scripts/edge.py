#!/usr/bin/env python3
"""Measures the edge node in the laboratory (as root): docs/results/edge/results.json and tables.md.

    scripts/edge.py PROGRAM [--seeds N] [--jobs N] [--only GROUP,GROUP] [--out DIR] [--results DIR] [--list]

DIR (lab-out/edge) keeps completed runs, which are not repeated: after Ctrl-C the same command continues. The tables
contain the completed runs, with their number of seeds. Five seeds take about 7 hours with four parallel runs on an
otherwise idle machine.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CELLS = ["lte-11b", "lte-11g", "lte-11a"]
MODES = ["alone", "mptcp", "lwip", "lwa", "lwip+visible"]
# For each group: title, scenario files, and systems (default: those of the file).
GROUPS = {
    "contract": (
        "One flow, Reno, current Linux at both ends",
        CELLS,
        [*MODES, "lwip+visible@boost=off", "lwip+visible@sack=strip", "sumlink:fbdt"],
    ),
    "nosack": (
        "The same without SACK",
        CELLS,
        ["lwip@hosts=nosack", "lwa@hosts=nosack", "lwip+visible@hosts=nosack", "lwip+visible@boost=off:hosts=nosack"],
    ),
    "many": ("The same with eight flows", CELLS, [f"{mode}@flows=8" for mode in MODES[2:]]),
    "policies": (
        "Basic LWIP with the other steering policies, one flow and eight",
        CELLS,
        ["lwip:flowhash", "lwip:lrtt", "lwip:roundrobin", "lwip:flowhash@flows=8"],
    ),
    "noundo": (
        "Hosts with SACK that never undo a reduction",
        CELLS,
        [f"{mode}@hosts=noundo" for mode in MODES[2:]],
    ),
    "newreno": ("Hosts set as close to NewReno as Linux permits", [f"{cell}-newreno" for cell in CELLS], None),
    "jitter": (
        "With 1 ms of jitter",
        [f"{cell}-jitter" for cell in CELLS],
        [
            *MODES,
            *[f"{mode}@hosts={hosts}" for hosts in ["nosack", "newreno"] for mode in ["lwip", "lwa", "lwip+visible"]],
            "sumlink:fbdt",
        ],
    ),
    "controls": ("CUBIC and BBR, one flow and eight", ["lte-11g-cubic", "lte-11g-bbr"], None),
    "up": ("Upward data, CUBIC, Reno and BBR, one flow and eight", ["lte-11g-up", "lte-11g-up-reno", "lte-11g-up-bbr"], None),
    "profiles": ("Links that change, CUBIC, one flow and eight", ["profiles", "profiles-even"], None),
    "profiles-controls": (
        "The same with Reno and BBR",
        [f"{name}-{control}" for name in ["profiles", "profiles-even"] for control in ["reno", "bbr"]],
        None,
    ),
    "profiles-up": ("The same with upward data, CUBIC", ["profiles-up", "profiles-even-up"], None),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", help="the program sumlink-lab")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="parallel runs")
    parser.add_argument("--only", help=f"groups: {', '.join(GROUPS)}")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("lab-out/edge"), help="directory of the runs")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "docs/results/edge", help="directory of the tables")
    parser.add_argument("--list", action="store_true", help="print the commands without running them")
    args = parser.parse_args()
    args.only = args.only.split(",") if args.only else list(GROUPS)
    unknown = [name for name in args.only if name not in GROUPS]
    if unknown:
        parser.error(f"unknown group {unknown[0]}; choose {', '.join(GROUPS)}")
    if not (args.program or args.list):
        parser.error("PROGRAM is required")
    if args.seeds < 1 or args.jobs < 1:
        parser.error("seeds and jobs must be above 0")
    return args


def command(args, scenarios, systems):
    files = [f"scenarios/edge/{name}.toml" for name in scenarios]
    line = [args.program or "sumlink-lab", "run", *files, "--seeds", str(args.seeds), "--jobs", str(args.jobs), "--out", str(args.out)]
    return line + (["--systems", ",".join(systems)] if systems else [])


def of_scenario(out, scenario, systems, seeds):
    """A row for each measured system of the group, in order."""
    place = out / scenario
    summary = place / "summary.json"
    if not summary.exists():
        return []
    listed = [system["system"] for system in json.loads(summary.read_text())["systems"]]
    there = [json.loads(run.read_text()) for run in place.glob("seed-*/*.json")]
    newest = max(there, key=lambda run: run["started_unix_s"])["scenario_sha256"]
    rows = []
    for system in systems or listed:
        runs = [place / f"seed-{seed}" / f"{system.replace(':', '-')}.json" for seed in range(1, seeds + 1)]
        runs = [json.loads(run.read_text()) for run in runs if run.exists()]
        # Runs of an older version of the file are measured again by the laboratory.
        runs = [run for run in runs if run["scenario_sha256"] == newest]
        good = [run for run in runs if run["outcome"]["kind"] == "measured"]
        if not good:
            continue
        measured = [run["outcome"] for run in good]
        rates = [one["goodput_bps"] / 1e6 for one in measured]
        row = {
            "scenario": scenario,
            "system": system,
            "seeds": len(good),
            "not_measured": len(runs) - len(good),
            "mbps": {"median": statistics.median(rates), "least": min(rates), "most": max(rates), "each": rates},
            "machine_others_share": max(one["machine"]["others_share"] or 0 for one in measured),
            "program": sorted({run["environment"]["program"] for run in good}),
            "kernel": sorted({run["environment"]["kernel"] for run in good}),
        }
        if system == "alone":
            links = sorted({flow["link"] for flow in measured[0]["flows"]})
            each = {link: [flow["goodput_bps"] / 1e6 for one in measured for flow in one["flows"] if flow["link"] == link] for link in links}
            row["links_mbps"] = {link: statistics.median(values) for link, values in each.items()}
        elif len(measured[0]["flows"]) > 1:
            # Fairness between the flows, of the median run.
            middle = min(measured, key=lambda one: abs(one["goodput_bps"] / 1e6 - row["mbps"]["median"]))
            flows = [flow["goodput_bps"] / 1e6 for flow in middle["flows"]]
            row["flows_mbps"] = {"least": min(flows), "most": max(flows)}
        rows.append(row)
    return rows


def tables(results):
    """The results as Markdown: a table for each group with a column for each scenario."""
    text = ["# The edge node in the laboratory", "", "Written by `scripts/edge.py`; [docs/notes/edge-laboratory.md](../../notes/edge-laboratory.md) discusses the results."]
    text += ["Mbit/s: median over the seeds, with minimum and maximum in brackets; for `alone` the sum, and each link.", ""]
    for name, group in results.items():
        rows = {(row["system"], row["scenario"]): row for row in group["rows"]}
        if not rows:
            continue
        scenarios = list(dict.fromkeys(scenario for _, scenario in rows))
        text += [f"## {group['about']}", "", f"`scripts/edge.py PROGRAM --only {name}`, at most {max(row['seeds'] for row in group['rows'])} seeds.", ""]
        text += [f"| system | {' | '.join(scenarios)} |", "| --- |" + " --- |" * len(scenarios)]
        for system in dict.fromkeys(system for system, _ in rows):
            cells = [cell(rows.get((system, scenario))) for scenario in scenarios]
            text.append(f"| `{system}` | {' | '.join(cells)} |")
        text.append("")
    return "\n".join(text)


def cell(row):
    if not row:
        return ""
    text_of_row = f"{row['mbps']['median']:.1f}"
    if row["seeds"] > 1:
        text_of_row += f" ({row['mbps']['least']:.1f}, {row['mbps']['most']:.1f})"
    if "links_mbps" in row:
        text_of_row += ": " + ", ".join(f"{rate:.1f}" for rate in row["links_mbps"].values())
    if "flows_mbps" in row:
        text_of_row += f", each {row['flows_mbps']['least']:.1f} to {row['flows_mbps']['most']:.1f}"
    if row["not_measured"]:
        text_of_row += f", {row['not_measured']} not measured"
    return text_of_row


def write(args):
    args.results.mkdir(parents=True, exist_ok=True)
    results = {}
    for name, (about, scenarios, systems) in GROUPS.items():
        rows = [row for scenario in scenarios for row in of_scenario(args.out, scenario, systems, args.seeds)]
        results[name] = {"about": about, "rows": rows}
    for file, text in [("results.json", json.dumps(results, indent=1) + "\n"), ("tables.md", tables(results))]:
        part = args.results / f"{file}.tmp"
        part.write_text(text)
        part.replace(args.results / file)


def main():
    args = arguments()
    args.program = args.program and str(pathlib.Path(args.program).resolve())
    args.out, args.results = args.out.resolve(), args.results.resolve()
    for name in args.only:
        _, scenarios, systems = GROUPS[name]
        line = command(args, scenarios, systems)
        if args.list:
            print(" ".join(line))
            continue
        print(f"{name}:", flush=True)
        # The laboratory reports a refused run; the tables omit it.
        code = subprocess.run([*line, "--quiet"], cwd=ROOT, check=False).returncode
        write(args)
        if code not in (0, 10):
            sys.exit(code)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
