"""Pictures of the WhiteHaul dissertation's figures."""

import draw
from metrics import benefit, mean, ratio
from whitehaul_figures import CONTROLS, PAIRS, QUALITIES, SCHEDULED, SCHEDULERS, WINDOWS, alone, benefits, edinburgh_row


def draw_all(data, folder):
    for picture in (controls_picture, overview_picture, plane_picture, schedulers_picture, windows_picture, spike_picture, files_picture, edinburgh_picture):
        picture(data, folder)


def controls_picture(data, folder):
    figure, both = draw.plt.subplots(2, 1, figsize=(8.6, 5.6), sharey=True)
    for axes, quality in zip(both, QUALITIES):
        series = [
            (draw.NAMES[name], draw.COLORS[name], [benefits(data, pair, quality, data["pairs"][pair][quality][name]) for pair in PAIRS])
            for name in CONTROLS
        ]
        draw.bars(axes, PAIRS, series, -0.65, 1.15)
        axes.set_title("clean channel" if quality == "clean" else "with interference on WH-2", loc="left")
        axes.set_ylabel("aggregation benefit")
    both[0].legend(loc="upper right", ncols=3, bbox_to_anchor=(1, 1.25))
    both[1].set_xlabel("channel widths of WH-1 and WH-2, MHz.  1: the sum of the clean links alone, 0: the better one of them")
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-controls.svg")


def overview_picture(data, folder):
    """Figure 4.7: every run of all pairs in one plane."""
    figure, axes = draw.plt.subplots(figsize=(8.6, 7.6))
    for total in range(0, 600, 25):
        axes.plot([0, total], [total, 0], color="#e3e3e3", linewidth=0.7, zorder=0)
    for pair in PAIRS:
        for quality in QUALITIES:
            marks(axes, data, pair, quality, ["alone", *CONTROLS], 5)
        axes.annotate(pair, alone(data, pair), xytext=(6, 5), textcoords="offset points", fontsize=8)
    axes.set_xlim(30, 262)
    axes.set_ylim(30, 290)
    axes.grid(visible=False)
    axes.set_xlabel("WH-1, Mbit/s (gray lines: every 25 Mbit/s in all)")
    axes.set_ylabel("WH-2, Mbit/s")
    axes.legend(handles=handles_of(["alone", *CONTROLS]), loc="lower center", ncols=5, bbox_to_anchor=(0.5, 1.0), fontsize=8)
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-overview.svg")


def marks(axes, data, pair, quality, names, size):
    """Marks each run of each congestion control and the links alone, hollow with interference.
    Returns positions."""
    places = []
    for name in names:
        color = draw.COLORS[name]
        each = [alone(data, pair, quality)] if name == "alone" else data["pairs"][pair][quality][name]["each"]
        shape = {"alone": "s", "simultaneous": "D"}.get(name, "o")
        for place in each:
            axes.plot(*place, shape, color=color, markerfacecolor="none" if quality == "interference" else color, markersize=size, alpha=0.8)
        places += each
    return places


def handles_of(names):
    line = draw.plt.Line2D
    handles = [line([], [], marker="o", linestyle="", color=draw.COLORS[name], label=draw.NAMES[name]) for name in names]
    return [*handles, line([], [], marker="o", linestyle="", color="#333333", markerfacecolor="white", label="hollow: interference")]


def plane_picture(data, folder):
    """Figure 4.8: every run, pair by pair."""
    names = ["alone", "simultaneous", *CONTROLS]
    figure, grid = draw.plt.subplots(3, 3, figsize=(8.6, 8.2))
    for axes, pair in zip(grid.flat, PAIRS):
        points = [place for quality in QUALITIES for place in marks(axes, data, pair, quality, names, 5)]
        for setter, values in ((axes.set_xlim, [p[0] for p in points]), (axes.set_ylim, [p[1] for p in points])):
            setter(min(values) - 0.12 * max(values), max(values) * 1.08)
        low, high = axes.get_xlim(), axes.get_ylim()
        step = 10 if low[1] + high[1] < 220 else 25
        for total in range(0, 800, step):
            axes.plot(low, [total - low[0], total - low[1]], color="#e3e3e3", linewidth=0.7, zorder=0)
        axes.set_xlim(low)
        axes.set_ylim(high)
        axes.grid(visible=False)
        axes.set_title(f"{pair} (gray lines: every {step} Mbit/s in all)", loc="left", fontsize=8)
    for axes in grid[2]:
        axes.set_xlabel("WH-1, Mbit/s")
    for axes in grid[:, 0]:
        axes.set_ylabel("WH-2, Mbit/s")
    figure.legend(handles=handles_of(names), loc="upper center", ncols=6, bbox_to_anchor=(0.5, 1.02), fontsize=8)
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-plane.svg")


def schedulers_picture(data, folder):
    figure, both = draw.plt.subplots(1, 2, figsize=(8.6, 3.2), sharey=True)
    for axes, quality in zip(both, QUALITIES):
        series = [
            (draw.NAMES[name], draw.COLORS[name], [benefits(data, pair, quality, data["schedulers"][pair][quality][name]) for pair in SCHEDULED])
            for name in SCHEDULERS
        ]
        draw.bars(axes, SCHEDULED, series, -0.65, 1.15)
        axes.set_title("clean channel" if quality == "clean" else "with interference on WH-2", loc="left")
    both[0].set_ylabel("aggregation benefit")
    both[1].legend(loc="upper right", ncols=3, fontsize=8)
    figure.supxlabel("channel widths of WH-1 and WH-2, MHz", fontsize=9)
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-schedulers.svg")


def draw_window(windows, delays, flow, end):
    """Window and threshold of a subflow, and below its round-trip time."""
    windows.plot(flow["time_s"], [value if value is not None else float("nan") for value in flow["ssthresh"]], "--", color="#d55e00", linewidth=1)
    windows.plot(flow["time_s"], flow["cwnd"], color="#0072b2", linewidth=1.2)
    delays.plot(flow["time_s"], flow["peak_ms"], color="#009e73", linewidth=1.2)
    delays.axhline(70, color="#999999", linewidth=0.8, linestyle=":")
    windows.set_xlim(0, end)
    top = 1.25 * max(flow["cwnd"])
    windows.set_ylim(0, top)
    delays.set_ylim(0, None)


def windows_picture(data, folder):
    figure, grid = draw.plt.subplots(
        8, 2, figsize=(8.6, 11), sharex=True, height_ratios=[2, 1.1] * 4
    )
    flows = [data["windows"][quality][control]["links"]["2"] for quality in QUALITIES for control in WINDOWS]
    end = max(8, *(flow["time_s"][-1] for flow in flows))
    for column, quality in enumerate(QUALITIES):
        for row, control in enumerate(WINDOWS):
            windows, delays = grid[2 * row, column], grid[2 * row + 1, column]
            draw_window(windows, delays, data["windows"][quality][control]["links"]["2"], end)
            said = "clean" if quality == "clean" else "with interference"
            windows.set_title(f"{draw.NAMES[control]}, {said}", loc="left", fontsize=9)
            if column == 0:
                windows.set_ylabel("packets")
                delays.set_ylabel("ms")
    for axes in grid[-1]:
        axes.set_xlabel("seconds since the subflow sends")
    legend_of_windows(figure, 1.02)
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-windows.svg")


def legend_of_windows(figure, height):
    line = draw.plt.Line2D
    handles = [
        line([], [], color="#0072b2", label="cwnd"),
        line([], [], color="#d55e00", linestyle="--", label="ssthresh"),
        line([], [], color="#009e73", label="smoothed round-trip time"),
        line([], [], color="#999999", linestyle=":", label="WhiteHaul's limit: least round-trip time and 50 ms"),
    ]
    figure.legend(handles=handles, loc="upper center", ncols=4, bbox_to_anchor=(0.5, height), fontsize=8)


def spike_picture(data, folder):
    figure, grid = draw.plt.subplots(3, 4, figsize=(8.6, 5.4), sharex=True, height_ratios=[2, 1.1, 1.4])
    for column, control in enumerate(WINDOWS):
        run = data["spike"][control]
        flow = run["subflows"]["links"]["1"]
        windows, delays, rates = grid[:, column]
        draw_window(windows, delays, flow, 12)
        windows.set_title(draw.NAMES[control], loc="left", fontsize=9)
        windows.set_ylim(0, 800)
        delays.set_ylim(0, 250)
        rate = run["rate"]
        times = [rate["start_s"] + rate["interval_s"] * (n + 0.5) for n in range(len(rate["mbit"]))]
        rates.plot(times, rate["mbit"], color="#333333", linewidth=1)
        rates.set_ylim(0, 110)
        rates.set_xlabel("seconds")
        for axes in grid[:, column]:
            axes.axvspan(5, 5.3, color="#f3e6d8", zorder=0)
    for axes, unit in zip(grid[:, 0], ("packets", "ms", "Mbit/s")):
        axes.set_ylabel(unit)
    legend_of_windows(figure, 1.05)
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-spike.svg")


def files_picture(data, folder):
    figure, axes = draw.plt.subplots(figsize=(5.4, 3))
    series = [
        (draw.NAMES[name], draw.COLORS[name], [mean(data["files"][quality][name]) for quality in QUALITIES]) for name in CONTROLS
    ]
    draw.bars(axes, ["clean channel", "with interference"], series, 0, None, "{:.1f} s")
    axes.set_ylabel("seconds")
    axes.set_ylim(0, 12.5)
    axes.legend(loc="upper left", ncols=3, fontsize=8)
    axes.set_title("Time to transfer 300 MB, 80-80", loc="left")
    draw.save(figure, folder / "whitehaul-file.svg")


def edinburgh_picture(data, folder):
    figure, (left, right) = draw.plt.subplots(1, 2, figsize=(8.6, 3))
    groups = ["clean channel", "with interference"]
    rows = {name: [edinburgh_row(data, quality, name) for quality in QUALITIES] for name in ("whitehaul", "edinburgh", "simultaneous")}
    for axes, measure_of, low, high, title in (
        (left, benefit, -0.2, 1, "aggregation benefit"),
        (right, ratio, 0, 1.1, "aggregation ratio"),
    ):
        series = [
            (draw.NAMES[name], draw.COLORS[name], [measure_of(mean(row["mbit"]), alone(data, "80-80")) for row in found])
            for name, found in rows.items()
        ]
        draw.bars(axes, groups, series, low, high)
        axes.set_title(f"80-80: {title}", loc="left")
    left.legend(loc="upper right", fontsize=8)
    figure.tight_layout()
    draw.save(figure, folder / "whitehaul-edinburgh.svg")
