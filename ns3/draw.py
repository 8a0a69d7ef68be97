# SPDX-License-Identifier: GPL-2.0-only
"""Draws the results of `ns3/run`."""
import statistics

import matplotlib

matplotlib.use("svg")
# Makes the output reproducible.
matplotlib.rcParams["svg.hashsalt"] = "sumlink"
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of the backend)

# How the node handled an acknowledgment, with its color.
ANSWERS = {"advance": "0.5", "unneeded": "tab:purple", "duplicate": "tab:orange", "hold": "tab:blue", "boost": "tab:green", "repair": "tab:red"}
# For each figure over time: the title, and for each curve its name, field and divisor.
OVER_TIME = {
    "fig7": ("holding time of duplicates, ms", [("H", "held_ms", 1)]),
    "fig8": ("duplicate acknowledgments", [("since the last advance (P)", "duplicates", 1), ("average held (PH^a)", "held_average", 1)]),
    "fig9": ("packets in the queue", [("LTE", "queue_0", 1), ("802.11", "queue_1", 1)]),
    "fig10": ("congestion window, kB", [("window", "cwnd", 1000)]),
    "fig11": ("round trip, ms", [("round trip", "rtt_ms", 1)]),
}


# Colors for readers who prefer a dark color scheme; matplotlib writes colors as inline styles.
DARK = """@media screen and (prefers-color-scheme:dark){text{fill:#e6e9ed}
[style*="fill: #ffffff"]{fill:#14181d!important}[style*="stroke: #000000"]{stroke:#e6e9ed!important}
[style*="stroke: #b0b0b0"]{stroke:#353d47!important}[style*="stroke: #cccccc"]{stroke:#52606d!important}}"""


def draw(figure, lines, path):
    """Writes the figure as SVG; traces show the first seed."""
    lines = [line for line in lines if line.get("outcome") != "failed"]
    if figure in OVER_TIME or figure == "fig6":
        picture = over_time(figure, [line for line in lines if line["seed"] == 1])
    else:
        picture = bars(lines)
    picture.savefig(path, format="svg", metadata={"Date": None})
    plt.close(picture)
    with open(path, encoding="utf-8") as file:
        head, found, rest = file.read().partition("</style>")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{head}\n{DARK}{found}{rest}")


def of_system(lines):
    """The lines of each system, in their order."""
    found = {}
    for line in lines:
        found.setdefault(line["system"], []).append(line)
    return found


def over_time(figure, lines):
    """A panel for each system."""
    systems = of_system(lines)
    picture, panels = plt.subplots(max(len(systems), 1), 1, figsize=(9, 3.2 * max(len(systems), 1)), sharex=True, squeeze=False)
    for panel, (system, lines) in zip(panels[:, 0], systems.items()):
        scenario = lines[0]["scenario"]
        panel.set_title(f"{system}, {scenario}")
        if figure == "fig6":
            acknowledgments(panel, lines)
        else:
            heading, curves = OVER_TIME[figure]
            panel.set_ylabel(heading)
            for name, field, unit in curves:
                panel.plot([line["t"] for line in lines], [line[field] / unit for line in lines], linewidth=0.8, label=name)
            if len(curves) > 1:
                panel.legend()
        panel.grid(alpha=0.3)
    panels[-1, 0].set_xlabel("time, s")
    picture.tight_layout()
    return picture


def acknowledgments(panel, lines):
    """Numbers over time, and below them the time of each action; marks at the numbers would
    overlap."""
    panel.set_ylabel("number, MB")
    top = max((line["ack"] for line in lines), default=0) / 1e6
    panel.plot([line["t"] for line in lines], [line["ack"] / 1e6 for line in lines], color="black", linewidth=0.8)
    for lane, (answer, color) in enumerate(ANSWERS.items(), 1):
        times = [line["t"] for line in lines if line["what"] == answer]
        panel.scatter(times, [-0.08 * lane * top] * len(times), marker="|", linewidths=0.5, color=color, label=f"{answer} ({len(times)})")
    panel.legend(fontsize="small")


def bars(lines):
    """Medians of the seeds with minimum and maximum, grouped by scenario."""
    scenarios = list(dict.fromkeys(line["scenario"] for line in lines))
    systems = of_system(lines)
    picture, panel = plt.subplots(figsize=(max(6, 1 + 0.5 * len(systems) * len(scenarios)), 4.5))
    width = 0.8 / max(len(systems), 1)
    for n, (system, lines) in enumerate(systems.items()):
        rates = [[line["goodput_bps"] / 1e6 for line in lines if line["scenario"] == name] or [0] for name in scenarios]
        medians = [statistics.median(of_seed) for of_seed in rates]
        spread = [[m - min(r) for m, r in zip(medians, rates)], [max(r) - m for m, r in zip(medians, rates)]]
        places = [i + (n - (len(systems) - 1) / 2) * width for i in range(len(scenarios))]
        panel.bar(places, medians, width, yerr=spread, label=system, error_kw={"linewidth": 0.8})
    panel.set_xticks(range(len(scenarios)), scenarios)
    panel.set_ylabel("goodput, Mbit/s")
    panel.grid(axis="y", alpha=0.3)
    panel.set_ylim(bottom=0)
    # Above the bars, where the legend hides none.
    panel.legend(fontsize="small", ncols=min(len(systems), 5), loc="lower left", bbox_to_anchor=(0, 1))
    picture.tight_layout()
    return picture
