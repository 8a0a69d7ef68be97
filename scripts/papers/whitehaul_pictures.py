"""Pictures of the WhiteHaul dissertation's figures, from the laboratory."""

import draw
from metrics import mean
from whitehaul_figures import CONTROLS, QUALITIES, WINDOWS


def draw_all(data, folder):
    spike_picture(data, folder)
    if "files" in data:
        files_picture(data, folder)


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
