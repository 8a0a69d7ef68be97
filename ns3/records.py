# SPDX-License-Identifier: GPL-2.0-only
"""Writes runs of ns-3 in the laboratory's format (docs/laboratory.md), for `sumlink-lab report DIR`."""
import hashlib
import json
import os
import pathlib

SCHEMA = 1
WARM = 2
LINKS = ["lte", "wifi"]
# The laboratory's name for each link used alone, one after another.
ALONE = "alone"
ABOUT = {
    "lte-11": "The VISIBLE paper's cell in ns-3: LTE of 10 MHz, and 802.11{} with AARF, ten meters away; a server 10 ms behind the node.",
    "": "The topology {} of the report on coupled congestion controls, in ns-3.",
}


def write(directory, args, lines):
    """Writes a file per run and one per scenario. Links alone become one system; all seeds share a
    scenario."""
    by_scenario = {}
    for line in lines:
        by_scenario.setdefault(line["scenario"], []).append(line)
    for scenario, found in by_scenario.items():
        place = pathlib.Path(directory) / scenario
        place.mkdir(parents=True, exist_ok=True)
        text = description(scenario, args, found)
        (place / "scenario.toml").write_text(text, encoding="utf-8")
        digest = hashlib.sha256(text.encode()).hexdigest()
        for seed in sorted({line["seed"] for line in found}):
            of_seed = {line["system"]: line for line in found if line["seed"] == seed}
            runs = {name: outcome(line) for name, line in of_seed.items() if name not in LINKS}
            if any(name in LINKS for name in of_seed):
                runs[ALONE] = alone(of_seed)
            for system, of_system in runs.items():
                run = {"schema": SCHEMA, "scenario": scenario, "scenario_sha256": digest, "seed": seed, "system": system}
                run |= {"started_unix_s": 0, "environment": environment(args), "outcome": of_system}
                file = place / f"seed-{seed}" / f"{system.replace(':', '-')}.json"
                file.parent.mkdir(exist_ok=True)
                # Atomic: the file is complete or absent.
                part = file.with_suffix(".tmp")
                part.write_text(json.dumps(run, indent=1), encoding="utf-8")
                os.replace(part, file)


def description(scenario, args, lines):
    """A scenario file with the fields that the laboratory's report reads; it cannot be run
    there."""
    is_cell = scenario.startswith("lte-11")
    about = ABOUT["lte-11"].format(scenario[6:]) if is_cell else ABOUT[""].format(scenario)
    warm = WARM if is_cell else 0
    systems = list(dict.fromkeys(ALONE if line["system"] in LINKS else line["system"] for line in lines))
    text = f'name = "{scenario}"\nabout = "{about} {args.users} user(s), {args.flows} flow(s) each."\n'
    text += f'duration = "{warm + args.seconds:g}s"\nwarmup = "{warm}s"\ndirection = "down"\nseeds = {args.seeds}\n'
    text += f'congestion = "reno"\nsystems = {json.dumps(systems)}\n'
    # Rates depend on the radio, so none is stated.
    return text + "".join(f'\n[[link]]\nname = "{link}"\n' for link in (LINKS if is_cell else []))


def environment(args):
    return {
        "kernel": "ns-3", "processors": 1, "processor": "", "sumlink": "", "program": "", "peers": {},
        "congestion": "NewReno" + (" with SACK" if args.sack else ""), "socket_buffer_max_bytes": 4 << 20,
    }


def series(line):
    return line.get("goodput") or {"start_s": 0, "interval_s": 1, "bps": []}


def outcome(line):
    """The outcome of a run."""
    if line["outcome"] != "measured":
        return {"kind": "failed", "reason": line["reason"] or "no reason given"}
    session = line.get("session", {})
    node = line.get("node", {})
    counts = [f"{name} {count}" for name, count in node.items() if count]
    return measured(
        line,
        [{"link": None, "direction": "down", "goodput_bps": line["goodput_bps"], "goodput": series(line)}],
        duplicates=session.get("duplicates_sent_bytes"),
        peak=session.get("reorder_peak_bytes"),
        note="node: " + ", ".join(counts) if counts else "",
    )


def alone(of_seed):
    """The links used one after another; their total is the sum."""
    lines = [of_seed[link] for link in LINKS if link in of_seed]
    for line in lines:
        if line["outcome"] != "measured":
            return outcome(line)
    flows = [
        {"link": line["system"], "direction": "down", "goodput_bps": line["goodput_bps"], "goodput": series(line)} for line in lines
    ]
    whole = dict(lines[0], goodput_bps=sum(line["goodput_bps"] for line in lines))
    columns = zip(*(series(line)["bps"] for line in lines))
    whole["goodput"] = series(lines[0]) | {"bps": [sum(column) for column in columns]}
    return measured(whole, flows, note="each link used alone, one after another; the total goodput is their sum")


def measured(line, flows, duplicates=None, peak=None, note=""):
    return {
        "kind": "measured", "duration_s": line["seconds"], "goodput_bps": line["goodput_bps"],
        "bytes": round(line["goodput_bps"] * line["seconds"] / 8), "flows": flows, "completions": [], "over_limit": None,
        "message_delays_ms": [], "retransmissions": None, "duplicates_bytes": duplicates, "reorder_peak_bytes": peak,
        "rival_bps": None, "links": [], "goodput": series(line), "processes": [], "traffic_cpu_s": None,
        "emulator": {"packets": 0, "lateness_p50_us": 0, "lateness_p99_us": 0, "cpu_share": 0, "overruns": 0}, "note": note,
    }
