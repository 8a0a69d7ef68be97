"""Chapter 4 of the thesis: a robot drives a rectangle (figures 4.5(f) and 4.6(b))."""

import json

import draw
from metrics import mean
from simulator import Simulator

PAGE = "fbdt"

SEEDS = 5
SUM = "simultaneous"
SYSTEMS = [SUM, "mptcp", "sumlink:musher", "sumlink:blest", "sumlink:fbdt-thesis", "sumlink:fbdt"]
NAMES = {SUM: "links, independent", "mptcp": "MPTCP"}

# Widths of the histogram, in percent of the bytes: those of figure 4.6(b).
WIDTH = 12


def measure(bench):
    simulator = Simulator.beside(bench)
    found = simulator.run("robot", ["alone", *SYSTEMS], "third", {}, SEEDS)
    return {system: [kept(outcome) for outcome in outcomes] for system, outcomes in found.items()}


def kept(outcome):
    """Goodput, and for each second that is measured the goodput and the share of WiGig."""
    flows = outcome["flows"]
    rates = {row["link"]: seconds(row["rate"]) for row in outcome["links"] if row["direction"] == "down"}
    pairs = zip(rates.get("wifi", []), rates.get("wigig", []))
    return {
        "mbit": sum(flow["goodput_bps"] for flow in flows) / 1e6,
        "links": {flow["link"]: flow["goodput_bps"] / 1e6 for flow in flows if flow["link"]},
        "seconds": seconds(outcome["goodput"]),
        "wigig": [100 * wigig / (wifi + wigig) for wifi, wigig in pairs if wifi + wigig > 0],
    }


def seconds(series):
    """Averages of whole seconds in Mbit/s."""
    rates, each = series["bps"], round(1 / series["interval_s"])
    return [sum(rates[at : at + each]) / each / 1e6 for at in range(0, len(rates) - each + 1, each)]


def name_of(system):
    return NAMES.get(system, system.removeprefix("sumlink:"))


def all_of(runs, key):
    return sorted(value for run in runs for value in run[key])


def quantile(values, part):
    return values[min(int(part * len(values)), len(values) - 1)]


def table(data):
    total = mean(run["mbit"] for run in data[SUM])
    links = {link: mean(run["links"][link] for run in data["alone"]) for link in ("wifi", "wigig")}
    lines = [
        f"Alone: Wi-Fi {links['wifi']:.0f}, WiGig {links['wigig']:.0f} Mbit/s; both at once, by independent programs, {total:.0f}.",
        "",
        "| system | Mbit/s | of the sum (least and most of the seeds) | seconds: 5 %, half, 95 % |",
        "| --- | --- | --- | --- |",
    ]
    for system in SYSTEMS[1:]:
        shares = [run["mbit"] / total for run in data[system]]
        values = all_of(data[system], "seconds")
        spread = ", ".join(f"{quantile(values, part):.0f}" for part in (0.05, 0.5, 0.95))
        lines.append(
            f"| {name_of(system)} | {mean(run['mbit'] for run in data[system]):.0f} "
            f"| {mean(shares):.2f} ({min(shares):.2f} to {max(shares):.2f}) | {spread} |"
        )
    return "\n".join(lines)


def histogram(runs):
    """Percent of the seconds in each class of WiGig's share."""
    values = all_of(runs, "wigig")
    classes = [0] * -(-100 // WIDTH)
    for value in values:
        classes[min(int(value // WIDTH), len(classes) - 1)] += 1
    return [100 * count / len(values) for count in classes]


def write(data, folder):
    (folder / "fbdt.json").write_text(json.dumps(data) + "\n")
    figure, axes = draw.plt.subplots(figsize=(8.6, 3.2))
    for system, color in zip(SYSTEMS, draw.SUBFLOWS):
        values = all_of(data[system], "seconds")
        parts = [(at + 1) / len(values) for at in range(len(values))]
        axes.step(values, parts, color=color, linewidth=1.1, where="post", label=name_of(system))
    axes.set_xlabel("Mbit/s in a second (simulated)")
    axes.set_ylabel("part of the seconds")
    axes.set_ylim(0, 1)
    axes.set_xlim(left=0)
    axes.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    draw.save(figure, folder / "fbdt-rectangle.svg")
    figure, axes = draw.plt.subplots(figsize=(8.6, 2.8))
    shares = histogram(data["sumlink:fbdt"])
    labels = [f"{at * WIDTH}-{min((at + 1) * WIDTH, 100)}" for at in range(len(shares))]
    draw.bars(axes, labels, [("fbdt", draw.SUBFLOWS[0], shares)], 0, None, "{:.0f}")
    axes.set_xlabel("percent of the bytes over WiGig, in a second (simulated)")
    axes.set_ylabel("percent of the seconds")
    figure.tight_layout()
    draw.save(figure, folder / "fbdt-split.svg")
    return {"rectangle": table(data)}
