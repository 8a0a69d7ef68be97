"""The WhiteHaul dissertation: chapters 4 and 5."""

import json

import whitehaul_pictures
import whitehaul_tables
from metrics import mean
from runs import by_link, mbit
from whitehaul_figures import CONTROLS, LINKS, NEAR, PAIRS, QUALITIES, SCHEDULED, SCHEDULERS, SEEDS, WIDTHS, WINDOWS

PAGE = "whitehaul"


def measure(bench):
    data = {"capacity": capacities(bench), "pairs": {}, "schedulers": {}, "edinburgh": {}}
    for quality in QUALITIES:
        for pair in PAIRS:
            name = f"pair-{pair}-{quality}"
            seeds = SEEDS if pair == "80-80" else 1
            row = {"simultaneous": figures(bench.run(name, ["simultaneous"], seeds=seeds)["simultaneous"])}
            for control in CONTROLS:
                row[control] = figures(bench.run(name, ["mptcp"], control, SEEDS, traced=pair == "80-80")["mptcp"])
            data["pairs"].setdefault(pair, {})[quality] = row
        name = f"pair-80-80-{quality}"
        data["edinburgh"][quality] = figures(bench.run(name, ["mptcp"], "edinburgh", SEEDS, traced=True)["mptcp"])
    data["near"] = {
        pair: {
            quality: {control: figures(bench.run(f"near-{pair}-{quality}", ["mptcp"], control, 1)["mptcp"]) for control in CONTROLS}
            for quality in QUALITIES
        }
        for pair in NEAR
    }
    data["windows"] = {
        quality: {control: bench.run(f"pair-80-80-{quality}", ["mptcp"], control, 1, traced=True)["mptcp"][0]["subflows"] for control in WINDOWS}
        for quality in QUALITIES
    }
    data["spike"] = {}
    for control in WINDOWS:
        run = bench.run("spike", ["mptcp"], control, traced=True)["mptcp"][0]
        data["spike"][control] = {"mbit": by_link(run, LINKS), "rate": rate_of(run, "wh1"), "subflows": run["subflows"]}
    data["files"] = {
        quality: {
            control: [run["completions"][0]["duration_s"] for run in bench.run(f"file-{quality}", ["mptcp"], control)["mptcp"]]
            for control in CONTROLS
        }
        for quality in QUALITIES
    }
    data["table_5_2"] = {}
    for quality in QUALITIES:
        found = bench.run(f"../whitehaul-80-80-cubic-{quality}", ["alone", "simultaneous", "mptcp"], seeds=1)
        data["table_5_2"][quality] = {system: figures(runs) for system, runs in found.items()}
    for quality in QUALITIES:
        for pair in SCHEDULED:
            systems = [f"sumlink:{scheduler}" for scheduler in SCHEDULERS]
            found = bench.run(f"pair-{pair}-{quality}", systems, "whitehaul", 1)
            row = {scheduler: figures(runs) for scheduler, runs in zip(SCHEDULERS, found.values())}
            data["schedulers"].setdefault(pair, {})[quality] = row
    return data


def capacities(bench):
    """Mbit/s of each link alone by quality, link and width, from the pairs of equal widths."""
    table = {quality: {link: {} for link in LINKS} for quality in QUALITIES}
    for quality in QUALITIES:
        for width in WIDTHS:
            runs = bench.run(f"pair-{width}-{width}-{quality}", ["alone"], seeds=1)["alone"]
            for link, rate in zip(LINKS, by_link(runs[0], LINKS)):
                table[quality][link][str(width)] = rate
    return table


def figures(runs):
    """Goodput per seed, per seed and link, and per link as the mean of the seeds."""
    each = [by_link(run, LINKS) for run in runs]
    return {"mbit": [mbit(run) for run in runs], "each": each, "links": [mean(column) for column in zip(*each)]}


def rate_of(run, name):
    """Rate of a link over time in Mbit/s."""
    [series] = [link["rate"] for link in run["links"] if link["link"] == name and link["direction"] == "down"]
    return {"interval_s": series["interval_s"], "start_s": series["start_s"], "mbit": [round(bps / 1e6, 2) for bps in series["bps"]]}


def write(data, folder):
    (folder / "whitehaul.json").write_text(json.dumps(data) + "\n")
    whitehaul_pictures.draw_all(data, folder)
    return whitehaul_tables.all_tables(data)
