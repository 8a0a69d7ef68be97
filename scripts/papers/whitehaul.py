"""The WhiteHaul dissertation: chapters 4 and 5."""

import json

import whitehaul_pictures
import whitehaul_tables
from metrics import mean
from runs import by_link, mbit
from whitehaul_figures import CONTROLS, LABORATORY, LINKS, QUALITIES, WINDOWS

PAGE = "whitehaul"


def measure(bench):
    """What needs kernels: long runs of two pairs, the spike, the file, table 5.2. The other figures are
    simulated (whitehaul_long.py)."""
    data = {"pairs": {}, "spike": {}, "table_5_2": {}}
    for pair in LABORATORY:
        for quality in QUALITIES:
            name = f"pair-{pair}-{quality}"
            row = {control: figures(bench.run(name, ["mptcp"], control, 1)["mptcp"]) for control in WINDOWS}
            data["pairs"].setdefault(pair, {})[quality] = row
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
    for quality in QUALITIES:
        found = bench.run(f"../whitehaul-80-80-cubic-{quality}", ["alone", "simultaneous", "mptcp"], seeds=1)
        data["table_5_2"][quality] = {system: figures(runs) for system, runs in found.items()}
    return data


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
