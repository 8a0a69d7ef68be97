"""The CS 218 report, chapter 4."""

import json

import draw
from metrics import mean
from runs import mbit

PAGE = "cs218"

CONTROLS = ["cs218", "coupled", "uncoupled", "rtt-compensator"]
NAMES = {"cs218": "CS218", "coupled": "fully coupled", "uncoupled": "uncoupled", "rtt-compensator": "RTT compensator"}

# Results in the report, in Mbit/s.
REPORT = {
    "manet-mobile": {"cs218": 25.04, "coupled": 24.06, "uncoupled": 24.89, "rtt-compensator": 24.52},
    "manet-static": {"cs218": 25.05, "coupled": 22.31, "uncoupled": 22.33, "rtt-compensator": 24.74},
}
# Runs per configuration; the report has ten.
SEEDS = 3
# Topologies that the report could not run, with one seed.
OTHERS = ["dual-homed", "csma", "wifi-csma", "mesh"]

# Packets; no channel here holds a tenth of that. A larger window is reported as a fault.
MAX_WINDOW = 10_000

METRICS = [("cwnd", "window, packets"), ("srtt_ms", "round-trip time, ms"), ("rto_ms", "RTO, ms"), ("delivered", "packets delivered")]


def measure(bench):
    data = {}
    for name in [*REPORT, *OTHERS]:
        seeds = SEEDS if name in REPORT else 1
        data[name] = {}
        for control in CONTROLS:
            runs = bench.run(name, ["mptcp"], control, seeds, traced=True)["mptcp"]
            data[name][control] = {
                "mbit": [mbit(run) for run in runs],
                "retransmissions": [run["retransmissions"] for run in runs],
                "subflows": runs[0]["subflows"],
            }
    return data


def over_time(data, name, folder):
    figure, grid = draw.plt.subplots(4, 4, figsize=(8.6, 7.6), sharex=True, sharey="row")
    for column, control in enumerate(CONTROLS):
        links = data[name][control]["subflows"]["links"]
        for row, (value, unit) in enumerate(METRICS):
            axes = grid[row, column]
            for (number, flow), color in zip(links.items(), draw.SUBFLOWS):
                axes.plot(flow["time_s"], flow[value], color=color, linewidth=0.9, label=f"subflow {number}")
            if row == 0:
                axes.set_title(NAMES[control], loc="left", fontsize=9)
            if column == 0:
                axes.set_ylabel(unit)
            axes.set_xlim(0, 10)
            axes.set_xticks([0, 2, 4, 6, 8])
        grid[3, column].set_xlabel("seconds")
    for row, (value, _) in enumerate(METRICS):
        grid[row, 0].set_ylim(0, 1.15 * largest(data[name], value))
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=8, bbox_to_anchor=(0.5, 1.02), fontsize=7.5, handlelength=1.2, columnspacing=1)
    figure.tight_layout()
    draw.save(figure, folder / f"cs218-{name}.svg")


def largest(rows, value):
    """The 99.5th percentile, so that a runaway window does not hide the others."""
    flows = [flow for control in CONTROLS for flow in rows[control]["subflows"]["links"].values()]
    values = sorted(number for flow in flows for number in flow[value])
    return values[len(values) * 199 // 200]


def runaways(data):
    """Windows above the capacity of any channel: run, subflow and size."""
    found = []
    for name, rows in data.items():
        for control, row in rows.items():
            for number, flow in row["subflows"]["links"].items():
                if max(flow["cwnd"]) > MAX_WINDOW:
                    found.append(f"{name}, {NAMES[control]}, subflow {number}: {max(flow['cwnd'])} packets")
    return found


def throughput_picture(data, folder):
    figure, (left, right) = draw.plt.subplots(1, 2, figsize=(8.6, 3.2), width_ratios=[1, 2])
    colors = dict(zip(CONTROLS, draw.SUBFLOWS))
    for axes, names in ((left, list(REPORT)), (right, OTHERS)):
        series = [(NAMES[control], colors[control], [mean(data[name][control]["mbit"]) for name in names]) for control in CONTROLS]
        draw.bars(axes, names, series, 0, None, "{:.1f}")
        axes.margins(y=0.15)
    left.set_ylabel("Mbit/s")
    left.set_title("measured again", loc="left")
    right.set_title("topologies without figures in the report", loc="left")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=4, bbox_to_anchor=(0.5, 1.06))
    figure.tight_layout()
    draw.save(figure, folder / "cs218-throughput.svg")


def medians(subflows):
    """Medians over all points of all subflows: round-trip time and timeout in ms, and window."""
    found = {}
    for value in ("cwnd", "srtt_ms", "rto_ms"):
        values = sorted(number for flow in subflows["links"].values() for number in flow[value])
        found[value] = values[len(values) // 2]
    return found


def reported_table(data):
    lines = [
        "| nodes | algorithm | the report, Mbit/s | ours, Mbit/s (seeds) | window | round-trip time | RTO | sent again |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in REPORT:
        for control in CONTROLS:
            row = data[name][control]
            theirs = REPORT[name][control]
            seeds = ", ".join(f"{value:.2f}" for value in row["mbit"])
            middle = medians(row["subflows"])
            lines.append(
                f"| {name.removeprefix('manet-')} | {NAMES[control]} | {theirs:.2f} | {mean(row['mbit']):.2f} ({seeds}) "
                f"| {middle['cwnd']} packets | {middle['srtt_ms']:.0f} ms | {middle['rto_ms']:.0f} ms | {mean(row['retransmissions']):.0f} |"
            )
    lines.append("")
    for name, theirs in REPORT.items():
        ours = {control: mean(data[name][control]["mbit"]) for control in theirs}
        orders = [", ".join(NAMES[control] for control in sorted(each, key=each.get, reverse=True)) for each in (theirs, ours)]
        first = max(ours, key=ours.get)
        lead = ours["cs218"] / max(value for control, value in ours.items() if control != "cs218") - 1
        lines.append(
            f"{name.removeprefix('manet-').capitalize()} nodes, from most to least: the report {orders[0]}; ours {orders[1]}. "
            f"CS218 is {'first' if first == 'cs218' else 'not first'}, {100 * lead:+.1f} % of the best other one."
        )
    lines += ["", f"Windows of more than {MAX_WINDOW} packets: {'; '.join(runaways(data)) or 'none'}."]
    return "\n".join(lines)


def others_table(data):
    lines = ["| topology | " + " | ".join(NAMES[control] for control in CONTROLS) + " | packets of each subflow (CS218) |", "| --- |" + " --- |" * 5]
    for name in OTHERS:
        each = " | ".join(f"{mean(data[name][control]['mbit']):.2f}" for control in CONTROLS)
        flows = data[name]["cs218"]["subflows"]["links"].values()
        packets = ", ".join(str(flow["delivered"][-1]) for flow in flows)
        lines.append(f"| {name} | {each} | {packets} |")
    return "\n".join(lines)


def write(data, folder):
    (folder / "cs218.json").write_text(json.dumps(data) + "\n")
    throughput_picture(data, folder)
    for name in REPORT:
        over_time(data, name, folder)
    return {"throughput": reported_table(data), "others": others_table(data)}
