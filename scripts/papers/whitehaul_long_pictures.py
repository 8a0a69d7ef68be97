"""Pictures of the WhiteHaul dissertation's figures, from simulated runs."""

import itertools
import math

import draw
from whitehaul_figures import PAIRS, QUALITIES
from whitehaul_long_runs import ACTIVE, ADVERTISED, BUDGETS, CONTROLS, QUEUES, SCHEDULED, total
from whitehaul_long_tables import CHANGES, NAMES, benefit_of, has_bounds, runs_of, scheduler_names

COLORS = {
    "whitehaul": "#d55e00",
    "cubic": "#0072b2",
    "lia": "#e69f00",
    "illinois": "#cc79a7",
    "edinburgh-thesis": "#56b4e9",
    "edinburgh": "#009e73",
}
SAID = {"clean": "clean channel", "interference": "with interference on WH-2"}


def four(height, width=8.6, **options):
    """A figure with an axis for each queue and quality."""
    figure, grid = draw.plt.subplots(2, 2, figsize=(width, height), **options)
    found = []
    for (queue, quality), axes in zip(itertools.product(QUEUES, QUALITIES), grid.flat):
        axes.set_title(f"{queue} queue, {SAID[quality]} (simulated)", loc="left", fontsize=9)
        found.append((queue, quality, axes))
    return figure, found


def of_pairs(data, folder):
    """Figures 4.1, 4.2 and 4.6: benefits of all pairs; a row for each queue and quality."""
    figure, grid = draw.plt.subplots(4, 1, figsize=(8.6, 10), sharey=True)
    for (queue, quality), axes in zip(itertools.product(QUEUES, QUALITIES), grid):
        series = [
            (NAMES[name], COLORS[name], [gain(data, pair, queue, data["pairs"][queue].get(pair, {}).get(quality, {}).get(name)) for pair in PAIRS])
            for name in CONTROLS
        ]
        draw.bars(axes, PAIRS, series, form=None)
        axes.set_title(f"{queue} queue, {SAID[quality]} (simulated)", loc="left", fontsize=9)
        axes.set_ylabel("benefit")
    grid[0].legend(loc="upper right", ncols=3, bbox_to_anchor=(1, 1.5), fontsize=8)
    grid[-1].set_xlabel("channel widths of WH-1 and WH-2, MHz.  1: the sum of the clean links alone, 0: the better one of them")
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-long-pairs.svg")
    overview(data, folder)


def gain(data, pair, queue, row):
    """A benefit, not a number without a run."""
    return benefit_of(data, pair, queue, row) if row else math.nan


def overview(data, folder):
    """Figure 4.7: what each link carried in each run."""
    figure, found = four(8.2)
    for queue, quality, axes in found:
        for name in CONTROLS:
            places = [place for pair in PAIRS for place in runs_of(data, queue, pair, quality, name)]
            if not places:
                continue
            axes.plot(*zip(*places), "o", color=COLORS[name], markersize=3, alpha=0.7, label=NAMES[name])
        for sum_ in range(50, 600, 50):
            axes.plot([0, sum_], [sum_, 0], color="#e3e3e3", linewidth=0.7, zorder=0)
        axes.set_xlim(0, 270)
        axes.set_ylim(0, 290)
        axes.set_xlabel("WH-1, Mbit/s")
        axes.set_ylabel("WH-2, Mbit/s")
    figure.legend(*found[0][2].get_legend_handles_labels(), loc="upper center", ncols=6, bbox_to_anchor=(0.5, 1.03), fontsize=8)
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-long-overview.svg")


def of_windows(data, folder):
    """Figures 4.9 and 4.10: WH-2's window, threshold and round-trip time."""
    shown = ["cubic", "whitehaul", "edinburgh-thesis", "edinburgh"]
    found = [(queue, quality) for queue, of in data["windows"].items() for quality in of]
    figure, grid = draw.plt.subplots(2 * len(found), 4, figsize=(8.6, 3 * len(found)), sharex=True, height_ratios=[2, 1.1] * len(found))
    for row, (queue, quality) in enumerate(found):
        for column, name in enumerate(shown):
            if name not in data["windows"].get(queue, {}).get(quality, {}):
                continue
            flow = data["windows"][queue][quality][name]["2"]
            above, below = grid[2 * row, column], grid[2 * row + 1, column]
            above.plot(flow["time_s"], [float("nan") if at is None else at for at in flow["ssthresh"]], "--", color="#d55e00", linewidth=0.9)
            above.plot(flow["time_s"], flow["cwnd"], color="#0072b2", linewidth=1)
            below.plot(flow["time_s"], flow["peak_ms"], color="#009e73", linewidth=1)
            below.axhline(70, color="#999999", linewidth=0.8, linestyle=":")
            above.set_xlim(0, 70)
            above.set_ylim(0, max(800, 1.05 * max(flow["cwnd"])))
            below.set_ylim(0, max(80, 1.05 * max(flow["peak_ms"])))
            above.set_title(f"{NAMES[name].replace(', ', chr(10))}\n{queue}, {quality}", loc="left", fontsize=7)
            for axes in (above, below):
                axes.tick_params(labelsize=6)
        grid[2 * row, 0].set_ylabel("packets", fontsize=8)
        grid[2 * row + 1, 0].set_ylabel("ms", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("seconds")
    line = draw.plt.Line2D
    handles = [
        line([], [], color="#0072b2", label="cwnd"),
        line([], [], color="#d55e00", linestyle="--", label="ssthresh"),
        line([], [], color="#009e73", label="smoothed round-trip time"),
        line([], [], color="#999999", linestyle=":", label="20 ms and WhiteHaul's budget"),
    ]
    figure.legend(handles=handles, loc="upper center", ncols=4, bbox_to_anchor=(0.5, 1.02), fontsize=8)
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-long-windows.svg")


def of_on_and_off(data, folder):
    """Figure 5.1."""
    figure, both = draw.plt.subplots(1, 2, figsize=(8.6, 3), sharey=True)
    for queue, axes in zip(QUEUES, both):
        for link, color, name in (("wh1", "#0072b2", "WH-1"), ("wh2", "#d55e00", "WH-2")):
            rates = data["on_and_off"].get(queue, {}).get("whitehaul", {}).get(link, [])
            axes.plot(range(len(rates)), rates, color=color, linewidth=1, label=name)
        for begin, end in ACTIVE:
            axes.axvspan(begin, end, color="#f3e6d8", zorder=0)
        axes.set_xlim(0, 180)
        axes.set_ylim(0, 290)
        axes.set_title(f"{queue} queue, WhiteHaul (simulated)", loc="left", fontsize=9)
        axes.set_xlabel("seconds; shaded: WH-2 sends")
    both[0].set_ylabel("Mbit/s")
    both[1].legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-long-spells.svg")


def of_sweep(data, folder):
    figure, both = draw.plt.subplots(1, 2, figsize=(8.6, 3.2), sharey=True)
    colors = ["#d55e00", "#e69f00", "#0072b2", "#009e73", "#cc79a7"]
    for queue, axes in zip(QUEUES, both):
        for budget, color in zip(BUDGETS, colors):
            rows = [data["sweep"].get(queue, {}).get(budget, {}).get(str(advertised)) for advertised in ADVERTISED]
            totals = [total(row) if row else math.nan for row in rows]
            axes.plot(ADVERTISED, totals, "o-", color=color, markersize=3, linewidth=1, label=f"budget {budget}")
        axes.set_xscale("log", base=2)
        axes.set_xticks(ADVERTISED, [str(count) for count in ADVERTISED])
        axes.set_xlim(45, 890)
        axes.set_ylim(0, None)
        axes.set_title(f"{queue} queue, 80-80, interference (simulated)", loc="left", fontsize=9)
        axes.set_xlabel("advertised window, packets")
    both[0].set_ylabel("Mbit/s")
    both[1].legend(fontsize=8)
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-long-sweep.svg")


def of_changes(data, folder):
    """Figures 5.5 and 5.6."""
    figure, both = draw.plt.subplots(2, 1, figsize=(8.6, 5.4), sharey=True)
    shown = [name for name in CHANGES if name != "none"]
    groups = ["WhiteHaul", "no\nthreshold", "HyStart++", "grows", "advertised\nof the path", "budget\nof the path", "Edinburgh,\ndissertation", "Edinburgh,\nours"]
    for queue, axes in zip(QUEUES, both):
        series = [
            (SAID[quality], color, [gain(data, "80-80", queue, data["changes"][queue][quality].get(name)) for name in shown])
            for quality, color in (("clean", "#0072b2"), ("interference", "#d55e00"))
        ]
        draw.bars(axes, groups, series, -0.3, 1)
        axes.set_title(f"{queue} queue, 80-80 (simulated): benefit with each change alone", loc="left", fontsize=9)
    both[0].legend(loc="upper left", fontsize=8, ncols=2)
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-long-edinburgh.svg")


def of_schedulers(data, folder):
    """Figure 4.3: WhiteHaul's benefit by scheduler."""
    figure, found = four(5.2, sharey=True)
    names = dict(zip(scheduler_names(), ("minRTT", "BLEST", "ECF", "QAware")))
    colors = ["#0072b2", "#e69f00", "#009e73", "#cc79a7"]
    last = found[0][2]
    for queue, quality, axes in found:
        series = [
            (title, color, [gain(data, pair, queue, data["schedulers"].get(queue, {}).get(pair, {}).get(quality, {}).get("whitehaul", {}).get(name)) for pair in SCHEDULED])
            for (name, title), color in zip(names.items(), colors)
        ]
        if all(math.isnan(value) for _, _, values in series for value in values):
            axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes, fontsize=8)
            axes.set_xticks([])
            continue
        draw.bars(axes, SCHEDULED, series)
        last = axes
    last.legend(loc="lower right", fontsize=8, ncols=2)
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-long-schedulers.svg")


def of_bounds(data, folder):
    """Figures 5.2 and 5.3: MPTCP against simultaneous TCP with the same control."""
    figure, found = four(7.2)
    for queue, quality, axes in found:
        for name in CONTROLS:
            points = [
                (total(data["simultaneous"][queue][pair][quality][name]), total(data["pairs"][queue][pair][quality][name]))
                for pair in PAIRS
                if has_bounds(data, queue, pair, name)
            ]
            if not points:
                continue
            axes.plot(*zip(*points), "o", color=COLORS[name], markersize=4, alpha=0.8, label=NAMES[name])
        axes.plot([0, 520], [0, 520], color="#999999", linewidth=0.8, zorder=0)
        axes.set_xlim(0, 520)
        axes.set_ylim(0, 520)
        axes.set_xlabel("simultaneous TCP with the same control, Mbit/s")
        axes.set_ylabel("minRTT, Mbit/s")
    found[0][2].legend(fontsize=7, loc="upper left")
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-long-bounds.svg")
