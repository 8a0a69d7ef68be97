"""The scenarios of the paper on selection among hotspots, and their measurements."""

import json
import os
import pathlib
import re
import sys

from metrics import mean
from runs import mbit
from simulator import Simulator

SEEDS = 5
# Above this share of the machine, other programs falsify a run in the laboratory.
OTHERS = 0.1

# Of the sweep: receive buffers, delays of the second link in those of the first, and its rate in
# percent of the first one's.
BUFFERS = ["64KiB", "128KiB", "256KiB", "512KiB", "1MiB", "2MiB", "4MiB"]
RATIOS = [1, 4, 10]
PERCENTS = [10, 15, 20, 30, 50, 75]
FIRST_KBIT, FIRST_MS = 14_000, 10
SWEPT = ["mptcp", "mptcp@base", "mptcp@global"]

# Thresholds, for a buffer where the slow link harms and for one where it does not.
ALPHAS = [0.05, 0.1, 0.2, 0.3, 0.5, 0.8]
JUDGED = ["128KiB", "4MiB"]

HOTSPOTS = [2, 4, 8]
MANY = ["mptcp", "mptcp@base", "mptcp@global", "sumlink:wrr@global", "sumlink:fbdt@none"]
TRAIN = ["mptcp", "mptcp@base", "mptcp@global", "sumlink:wrr@base", "sumlink:wrr@global", "sumlink:minrtt@global", "sumlink:fbdt@none"]
FADES = TRAIN
# Systems with curves over time.
DRAWN = ["mptcp", "mptcp@base", "mptcp@global"]

# Turns of the radio: on demand as in scenarios/selection, equal, and by throughput.
TURNS = {"demand": 'turn = "20ms"', "equal": 'turns = ["20ms", "20ms"]', "weighted": 'round = "40ms"'}
RADIOS = [10, 50]
RADIO = ["mptcp", "mptcp@base", "mptcp@global", "sumlink:wrr@global", "sumlink:fbdt@none"]

# Recordings of the folder RECORDINGS, one for each phone: seconds and Mbit/s in each line.
RECORDINGS = ["train-norway-1.txt", "train-norway-12.txt"]

LABORATORY = ["mptcp", "mptcp@base", "mptcp@global", "sumlink:wrr@global", "sumlink:fbdt@none"]
FILMED = ["mptcp", "mptcp@base", "mptcp@global", "sumlink:wrr@base", "sumlink:wrr@global", "sumlink:minrtt@global", "sumlink:fbdt@none"]
# A run takes 40 s, and cannot share the machine with another.
FILMED_SEEDS = 1


def goodput(runs):
    """Mbit/s of each seed, and what the links rested on average, by name."""
    links = {link for run in runs for link in run.get("rested", {})}
    rested = {link: round(mean(run.get("rested", {}).get(link, 0) for run in runs), 3) for link in sorted(links)}
    return {
        "mbit": [round(mbit(run), 3) for run in runs],
        "rested": rested,
        "retransmissions": [run["retransmissions"] for run in runs],
        "others": max((run.get("machine") or {}).get("others_share", 0) for run in runs),
    }


def alone(runs):
    """Mbit/s of each link alone, mean over the seeds."""
    return [mean(values) for values in zip(*([flow["goodput_bps"] / 1e6 for flow in run["flows"]] for run in runs))]


def group(simulator, name, systems, label, changes, seeds=SEEDS):
    """The links alone and the systems under a variant of a scenario."""
    found = simulator.run(name, ["alone", *systems], label, changes, seeds)
    return {"alone": alone(found.pop("alone"))} | {system: goodput(runs) for system, runs in found.items()}


def two_links(percent, ratio):
    """Changes of selection-two: rate and delay of the second link."""

    def text(text):
        text = text.replace('rate = "1400kbit"', f'rate = "{FIRST_KBIT * percent // 100}kbit"')
        return text.replace('delay = "40ms"', f'delay = "{FIRST_MS * ratio}ms"')

    return text


def sweep(simulator):
    found = {}
    for buffer in BUFFERS:
        for ratio in RATIOS:
            for percent in PERCENTS:
                label = f"{percent}-x{ratio}-{buffer}"
                changes = {"receive_buffer": buffer, "text": two_links(percent, ratio)}
                found[label] = group(simulator, "selection-two", SWEPT, label, changes)
    return found


def thresholds(simulator):
    systems = [f"mptcp@{name}:alpha={alpha}" for name in ("base", "global") for alpha in ALPHAS]
    return {
        f"{percent}-{buffer}": group(
            simulator, "selection-two", ["mptcp", "sumlink:fbdt@none", *systems], f"alpha-{percent}-{buffer}",
            {"receive_buffer": buffer, "text": two_links(percent, 4)},
        )
        for buffer in JUDGED
        for percent in (10, 15, 20, 30)
    }


def hotspots(simulator):
    def first(count):
        return lambda text: "\n[[link]]".join(text.split("\n[[link]]")[: count + 1])

    return {
        f"{count}-{buffer}": group(
            simulator, "selection-hotspots", MANY, f"{count}-{buffer}", {"receive_buffer": buffer, "text": first(count)}
        )
        for buffer in ("256KiB", "4MiB")
        for count in HOTSPOTS
    }


def radio(simulator):
    return {
        f"{percent}-{turns}": group(
            simulator, f"../selection/selection-radio-{percent}", RADIO, turns,
            {"receive_buffer": "4MiB", "text": lambda text, line=line: text.replace(TURNS["demand"], line)},
        )
        for percent in RADIOS
        for turns, line in TURNS.items()
    }


def over_time(simulator, name, label, changes):
    """Curves of the drawn systems, of their first seed."""
    return {system: simulator.trace(name, system, f"{label}-drawn", changes, curves) for system in DRAWN}


def curves(lines):
    """Once a second: bytes of each subflow at the receiver, retransmissions, whether it is a backup;
    and every threshold with its time."""
    found = {"alpha": [], "paths": {}}
    for line in lines:
        now = line["t_ns"] / 1e9
        if line["event"] == "threshold":
            found["alpha"].append([round(now, 2), line["alpha"]])
        elif line["event"] == "subflow":
            path = found["paths"].setdefault(str(line["path"]), {})
            path[int(now)] = [line["received"], line["retransmissions"], int(line["backup"])]
    return found


def fades(simulator):
    label, changes = "fades", {"receive_buffer": "4MiB"}
    name = "../selection/selection-fades"
    return group(simulator, name, FADES, label, changes) | {"over time": over_time(simulator, name, label, changes)}


def train(simulator):
    """With the generator, and with recordings if the environment has the folder RECORDINGS."""
    found = {"generated": train_with(simulator, "generated", lambda text: text)}
    folder = os.environ.get("RECORDINGS")
    if folder:
        files = [recording(pathlib.Path(folder) / name, simulator.out / "scenarios") for name in RECORDINGS]

        def text(text):
            text = text.replace("scale = 0.33\n", "")
            for file in files:
                text = text.replace('profile = "train"', f'trace = "{file.name}"\ndelay = "40ms"\njitter = "2ms"', 1)
            return text

        found["recorded"] = train_with(simulator, "recorded", text)
    return found


def train_with(simulator, label, text):
    changes = {"text": text}
    measured = group(simulator, "selection-train", TRAIN, label, changes)
    return measured | {"over time": over_time(simulator, "selection-train", label, changes)}


def recording(path, folder):
    """Writes a recording of seconds and Mbit/s as the times in ms at which 1500 bytes may be sent."""
    rows = [tuple(map(float, line.split())) for line in path.read_text().splitlines() if line.strip()]
    times, credit = [], 0.0
    for (begin, rate), (end, _) in zip(rows, rows[1:]):
        for millisecond in range(int(begin * 1000), int(end * 1000)):
            credit += rate * 1e6 / 8 / 1000
            while credit >= 1500:
                credit -= 1500
                times.append(millisecond + 1)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{path.stem}.trace"
    file.write_text("".join(f"{time}\n" for time in times))
    return file


def forget_busy(bench, scenario, systems, seeds):
    """Deletes runs during which other programs used the machine, so that they are repeated."""
    for system in systems:
        for seed in range(1, seeds + 1):
            file = bench.out / "runs" / scenario / f"seed-{seed}" / f"{system.replace(':', '-')}.json"
            run = json.loads(file.read_text())["outcome"] if file.exists() else {}
            if (run.get("machine") or {}).get("others_share", 0) > OTHERS:
                print(f"papers: {scenario}, seed {seed}, {system}: other programs used the machine; again", file=sys.stderr)
                file.unlink()


def laboratory(bench):
    """Kernel MPTCP over emulated links, with two receive buffers; and the video while a phone fades."""
    found = {}
    for name in ("selection-two", "selection-two-4m"):
        forget_busy(bench, name, ["alone", *LABORATORY], SEEDS)
        runs = bench.run(name, ["alone", *LABORATORY], seeds=SEEDS)
        found[name] = {"alone": alone(runs.pop("alone"))} | {system: goodput(of) for system, of in runs.items()}
    forget_busy(bench, "fades-cubic", FILMED, FILMED_SEEDS)
    runs = bench.run("../video/fades", FILMED, "cubic", FILMED_SEEDS)
    found["video"] = {
        system: [
            {
                "stall_s": run["videos"][0]["stall_s"],
                "p50_ms": run["videos"][0]["delay_p50_ms"],
                "p99_ms": run["videos"][0]["delay_p99_ms"],
                "rested": run.get("rested", {}),
                "others": (run.get("machine") or {}).get("others_share", 0),
            }
            for run in of
        ]
        for system, of in runs.items()
    }
    return found


def measure(bench):
    simulator = Simulator.beside(bench)
    return {
        "sweep": sweep(simulator),
        "thresholds": thresholds(simulator),
        "hotspots": hotspots(simulator),
        "radio": radio(simulator),
        "fades": fades(simulator),
        "train": train(simulator),
        "laboratory": laboratory(bench),
    }


def label_of(buffer, ratio, percent):
    return f"{percent}-x{ratio}-{buffer}"


def number(text):
    """The first number of a text."""
    return int(re.match(r"\d+", text).group())
