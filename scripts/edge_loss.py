#!/usr/bin/env python3
"""Runs the edge node with losses in the simulator: docs/results/edge/loss.json and loss.md.

    scripts/edge_loss.py PROGRAM [--only GROUP,GROUP] [--seeds N] [--jobs N] [--out DIR] [--results DIR]

Each run is a variant of scenarios/edge/lte-11g-loss.toml with another loss and congestion control. DIR (lab-out/edge-loss)
keeps completed runs, which are not repeated: after Ctrl-C the same command continues. Delete it after a change of the
program. The tables contain the groups that are complete. All groups take about an hour on two cores.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASE = ROOT / "scenarios/edge/lte-11g-loss.toml"
CONTROLS = ["reno", "cubic", "bbr"]
VISIBLE = "lwip+visible"
MODES = ["lwip", "lwa", VISIBLE]

# Losses of LTE and of Wi-Fi, by name.
LOSSES = {
    "0": ("0%", "0%"),
    "0.05 %": ("0.05%", "0.05%"),
    "0.2 %": ("0.2%", "0.2%"),
    "0.5 %": ("0.5%", "0.5%"),
    "1 %": ("1%", "1%"),
    "2 %": ("2%", "2%"),
    "0.2 % in bursts of 4": ("burst:0.2%:4", "burst:0.2%:4"),
    "1 % in bursts of 4": ("burst:1%:4", "burst:1%:4"),
    "1 % on LTE only": ("1%", "0%"),
    "1 % on Wi-Fi only": ("0%", "1%"),
}

# For each group: title, congestion controls, and systems.
GROUPS = {
    "one": (
        "One flow",
        CONTROLS,
        ["mptcp", "sumlink:fbdt", "lwip", "lwa", VISIBLE, f"{VISIBLE}@boost=many"],
    ),
    "eight": ("Eight flows", CONTROLS, [*(f"{mode}@flows=8" for mode in MODES), f"{VISIBLE}@flows=8:boost=many"]),
    "timers": ("`lwa` with other timers, one flow (100 ms is the default)", ["reno"], [f"lwa@timer={timer}ms" for timer in (10, 20, 50, 300)]),
    "two": ("Two flows", ["reno"], [f"{mode}@flows=2" for mode in MODES]),
    "four": ("Four flows", ["reno"], [f"{mode}@flows=4" for mode in MODES]),
    "newreno": (
        "One flow of NewReno hosts",
        ["reno"],
        [*(f"{mode}@hosts=newreno" for mode in MODES), f"{VISIBLE}@hosts=newreno:boost=many"],
    ),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the program sumlink-lab")
    parser.add_argument("--only", help=f"groups: {', '.join(GROUPS)}")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="parallel runs")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "lab-out/edge-loss", help="directory of the runs")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "docs/results/edge", help="directory of the tables")
    args = parser.parse_args()
    args.only = args.only.split(",") if args.only else list(GROUPS)
    unknown = [name for name in args.only if name not in GROUPS]
    if unknown:
        parser.error(f"unknown group {unknown[0]}; choose {', '.join(GROUPS)}")
    if args.seeds < 1 or args.jobs < 1:
        parser.error("seeds and jobs must be above 0")
    return args


def variant(out, loss, control):
    """The scenario with these losses and this congestion control."""
    name = "-".join(["edge", control, *re.findall(r"\w+", loss.replace(".", "_"))])
    text = BASE.read_text()
    each = iter(LOSSES[loss])
    text, names = re.subn(r'^name = "lte-11g-loss"$', f'name = "{name}"', text, flags=re.MULTILINE)
    text, losses = re.subn(r'^loss = ".*"$', lambda _: f'loss = "{next(each)}"', text, flags=re.MULTILINE)
    text, controls = re.subn(r'^congestion = ".*"$', f'congestion = "{control}"', text, flags=re.MULTILINE)
    if (names, losses, controls) != (1, 2, 1):
        sys.exit(f"{BASE}: one name, one congestion control and two losses are expected")
    file = out / "scenarios" / f"{name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def measure(args, name):
    """The rates of a group in Mbit/s: for each loss, control and system a list by seed."""
    _, controls, systems = GROUPS[name]
    rates = {}
    for loss in LOSSES:
        for control in controls:
            file = variant(args.out, loss, control)
            runs = args.out / f"{name}-{file.stem}.jsonl"
            kept = runs.read_text() if runs.exists() else ""
            if kept.count("\n") != len(systems) * args.seeds:
                print(f"{name}: {loss}, {control}", file=sys.stderr, flush=True)
                line = [args.program, "sim", "run", str(file), "--systems", ",".join(systems)]
                line += ["--seeds", str(args.seeds), "--jobs", str(args.jobs), "--json"]
                kept = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout
                runs.write_text(kept)
            found = {}
            for run in map(json.loads, kept.splitlines()):
                if run["outcome"]["kind"] != "measured":
                    sys.exit(f"{runs}: {run['system']}: {run['outcome']}")
                found.setdefault(run["system"], []).append(run["outcome"]["goodput_bps"] / 1e6)
            rates[f"{loss}, {control}"] = {system: found[system] for system in systems}
    return rates


def cell(rates):
    return f"{statistics.median(rates):.1f} ({min(rates):.1f}, {max(rates):.1f})"


def tables(results, seeds):
    text = ["# The edge node with losses, in the simulator", "", "Written by `scripts/edge_loss.py`;"]
    text[-1] += " [docs/notes/edge-simulator.md](../../notes/edge-simulator.md) discusses the results."
    text += [f"LTE of 26.6 and 802.11g of 27.2 Mbit/s with 1 ms of jitter, loss on both links unless stated. Mbit/s: median of {seeds}"]
    text += ["seeds, with minimum and maximum in brackets.", ""]
    for name, rates in results.items():
        about, controls, systems = GROUPS[name]
        for control in controls:
            text += [f"## {about}, {control}", "", f"| loss | {' | '.join(f'`{system}`' for system in systems)} |"]
            text += ["| --- |" + " --- |" * len(systems)]
            for loss in LOSSES:
                row = rates[f"{loss}, {control}"]
                text.append(f"| {loss} | {' | '.join(cell(row[system]) for system in systems)} |")
            text.append("")
    return "\n".join(text)


def main():
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    args.results.mkdir(parents=True, exist_ok=True)
    data = args.results / "loss.json"
    results = json.loads(data.read_text()) if data.exists() else {}
    for name in args.only:
        results[name] = measure(args, name)
        results = {name: results[name] for name in GROUPS if name in results}
        data.write_text(json.dumps(results, indent=1) + "\n")
        (args.results / "loss.md").write_text(tables(results, args.seeds))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
