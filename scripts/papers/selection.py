"""The paper on selection among hotspots for live video (Maheshwari, Lundrigan, Kasera, ICDCN 2019)."""

import json

import draw
import selection_parts as parts
from metrics import mean

PAGE = "selection"

measure = parts.measure

# A difference of goodput that counts as one; seeds differ by less.
TOLERANCE = 0.02

COLORS = {
    "mptcp": "#0072b2",
    "mptcp@base": "#e69f00",
    "mptcp@global": "#d55e00",
    "sumlink:fbdt@none": "#009e73",
}


def write(data, folder):
    (folder / f"{PAGE}.json").write_text(json.dumps(data, indent=1) + "\n")
    sweep_picture(data["sweep"], folder)
    alpha_picture(data, folder)
    train_pictures(data["train"], folder)
    return {
        "sweep": sweep_table(data["sweep"]),
        "sweep-verdict": sweep_verdict(data["sweep"]),
        "thresholds": thresholds_table(data["thresholds"]),
        "fades": goodput_table({"fades": data["fades"]}),
        "hotspots": goodput_table(data["hotspots"]),
        "radio": goodput_table(data["radio"]),
        "train": goodput_table(data["train"], retransmissions=True),
        "laboratory": goodput_table({name: data["laboratory"][name] for name in ("selection-two", "selection-two-4m")}, others=True),
        "video": video_table(data["laboratory"]["video"]),
    }


def of_best(row, system):
    """Goodput as a share of the best link alone, mean over the seeds."""
    return mean(row[system]["mbit"]) / max(row["alone"])


def of_sum(row, system):
    return mean(row[system]["mbit"]) / sum(row["alone"])


def systems_of(row):
    return [name for name in row if name not in ("alone", "over time")]


def goodput_table(rows, retransmissions=False, others=False):
    """One line for each system under each condition."""
    more = (["segments sent again"] if retransmissions else []) + (["others, most"] if others else [])
    lines = [
        "| condition | system | Mbit/s (range) | of the sum | of the best link | links rested |" + "".join(f" {name} |" for name in more),
        "| --- | --- | --- | --- | --- | --- |" + " --- |" * len(more),
    ]
    for name, row in rows.items():
        for system in systems_of(row):
            found = row[system]
            rested = ", ".join(f"{link} {100 * part:.0f} %" for link, part in found["rested"].items() if part >= 0.005)
            line = (
                f"| {name} | `{system}` | {mean(found['mbit']):.2f} ({min(found['mbit']):.2f} to {max(found['mbit']):.2f}) "
                f"| {of_sum(row, system):.2f} | {of_best(row, system):.2f} | {rested or '-'} |"
            )
            if retransmissions:
                line += f" {mean(found['retransmissions']):.0f} |"
            if others:
                line += f" {100 * found['others']:.0f} %{' (marked)' if found['others'] > parts.OTHERS else ''} |"
            lines.append(line)
    return "\n".join(lines)


def sweep_table(sweep):
    """MPTCP without and with the paper's selection, as shares of the best link alone."""
    lines = [
        "| second link | " + " | ".join(parts.BUFFERS) + " |",
        "| --- |" + " --- |" * len(parts.BUFFERS),
    ]
    for ratio in parts.RATIOS:
        for percent in parts.PERCENTS:
            cells = []
            for buffer in parts.BUFFERS:
                row = sweep[parts.label_of(buffer, ratio, percent)]
                plain, base, adaptive = (of_best(row, system) for system in ("mptcp", "mptcp@base", "mptcp@global"))
                mark = "**" if plain < 1 - TOLERANCE else ""
                cells.append(f"{mark}{plain:.2f}{mark}, {base:.2f}, {adaptive:.2f}")
            lines.append(f"| {percent} %, {ratio} x the delay | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sweep_verdict(sweep):
    """How often the slow link harms, and what the selectors change then and else."""
    lines = [
        "| part of the sweep | points | MPTCP below the best link alone | `base` gains, loses | `global` gains, loses |",
        "| --- | --- | --- | --- | --- |",
    ]
    groups = [("all", lambda percent: True)]
    groups += [("10 and 15 %", lambda percent: percent < 20), ("20 % and more", lambda percent: percent >= 20)]
    for name, chosen in groups:
        rows = [row for label, row in sweep.items() if chosen(parts.number(label))]
        cells = []
        for system in ("mptcp@base", "mptcp@global"):
            ratios = [of_best(row, system) / of_best(row, "mptcp") for row in rows]
            gains, losses = sum(r > 1 + TOLERANCE for r in ratios), sum(r < 1 - TOLERANCE for r in ratios)
            cells.append(f"{gains}, {losses} (mean {100 * (mean(ratios) - 1):+.1f} %, most {100 * (max(ratios) - 1):+.0f} %, least {100 * (min(ratios) - 1):+.0f} %)")
        harmed = sum(of_best(row, "mptcp") < 1 - TOLERANCE for row in rows)
        lines.append(f"| {name} | {len(rows)} | {harmed} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def thresholds_table(rows):
    lines = [
        "| second link, receive buffer | `sumlink:fbdt@none` | without | " + " | ".join(f"{alpha:g}" for alpha in parts.ALPHAS) + " |",
        "| --- | --- | --- |" + " --- |" * len(parts.ALPHAS),
    ]
    for label, row in rows.items():
        percent, buffer = label.split("-")
        cells = [
            ", ".join(f"{of_best(row, f'mptcp@{name}:alpha={alpha}'):.2f}" for name in ("base", "global")) for alpha in parts.ALPHAS
        ]
        lines.append(f"| {percent} %, {buffer} | {of_best(row, 'sumlink:fbdt@none'):.2f} | {of_best(row, 'mptcp'):.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def video_table(rows):
    lines = [
        "| system | stood still, s (range) | delay, median and 99th percentile, ms | links rested | others, most |",
        "| --- | --- | --- | --- | --- |",
    ]
    for system, runs in rows.items():
        others = max(run["others"] for run in runs)
        if others > parts.OTHERS:
            lines.append(f"| `{system}` | refused | - | - | {100 * others:.0f} % |")
            continue
        stalls = [run["stall_s"] for run in runs]
        links = sorted({link for run in runs for link in run["rested"]})
        rested = ", ".join(f"{link} {100 * mean(run['rested'].get(link, 0) for run in runs):.0f} %" for link in links)
        lines.append(
            f"| `{system}` | {mean(stalls):.2f} ({min(stalls):.2f} to {max(stalls):.2f}, {len(runs)} seeds) "
            f"| {mean(run['p50_ms'] for run in runs):.0f}, {mean(run['p99_ms'] for run in runs):.0f} | {rested or '-'} "
            f"| {100 * others:.0f} % |"
        )
    return "\n".join(lines)


def sweep_picture(sweep, folder):
    figure, grid = draw.plt.subplots(1, len(parts.RATIOS), figsize=(8.6, 3.4), sharey=True)
    places = range(len(parts.BUFFERS))
    shown = [10, 20, 50]
    for axes, ratio in zip(grid, parts.RATIOS):
        for percent, style in zip(shown, ("-", "--", ":")):
            for system in ("mptcp", "mptcp@base", "mptcp@global"):
                values = [of_best(sweep[parts.label_of(buffer, ratio, percent)], system) for buffer in parts.BUFFERS]
                axes.plot(places, values, style, color=COLORS[system], linewidth=1.2, label=f"{system}, {percent} %")
        axes.axhline(1, color="#333333", linewidth=0.8)
        axes.set_xticks(places, [buffer.replace("iB", "") for buffer in parts.BUFFERS], rotation=45)
        axes.set_title(f"second link at {ratio} x the delay", loc="left", fontsize=9)
    grid[0].set_ylabel("goodput over the best link alone")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.16), fontsize=7.5)
    figure.tight_layout()
    draw.save(figure, folder / "selection-sweep.svg")


def steps(points, end):
    """Times and values of a curve of steps."""
    times, values = [], []
    for (time, value), following in zip(points, [*points[1:], [end, None]]):
        times += [time, following[0]]
        values += [value, value]
    return times, values


def alpha_picture(data, folder):
    """Figure 4: the adaptive threshold over time."""
    cases = {"a phone fades from 20 to 50 s": data["fades"], "two phones in a train": data["train"].get("recorded", data["train"]["generated"])}
    figure, grid = draw.plt.subplots(1, 2, figsize=(8.6, 2.8), sharey=True)
    for axes, (title, row) in zip(grid, cases.items()):
        curve = row["over time"]["mptcp@global"]
        end = max(int(second) for path in curve["paths"].values() for second in path)
        axes.plot(*steps(curve["alpha"], end), color=COLORS["mptcp@global"], linewidth=1)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xlabel("seconds")
        axes.set_xlim(0, end)
    grid[0].set_ylabel("alpha")
    grid[0].set_ylim(0, 0.21)
    figure.tight_layout()
    draw.save(figure, folder / "selection-alpha.svg")


def per_second(path, index):
    """Seconds, and the increase of a count in each."""
    seconds = sorted(map(int, path))
    values = [path[str(second)][index] if str(second) in path else path[second][index] for second in seconds]
    return seconds[1:], [b - a for a, b in zip(values, values[1:])]


def train_pictures(train, folder):
    """Figures 9 and 10: what each phone carries, and what is sent again, second by second."""
    row = train.get("recorded", train["generated"])
    for name, index, unit, scale in (("throughput", 0, "Mbit/s", 8e-6), ("retransmissions", 1, "segments sent again each second", 1)):
        figure, grid = draw.plt.subplots(len(parts.DRAWN), 1, figsize=(8.6, 5.6), sharex=True, sharey=True)
        for axes, system in zip(grid, parts.DRAWN):
            for number, path in sorted(row["over time"][system]["paths"].items()):
                seconds, values = per_second(path, index)
                axes.plot(seconds, [scale * value for value in values], color=draw.SUBFLOWS[int(number)], linewidth=0.9, label=f"phone {int(number) + 1}")
            axes.set_title(system, loc="left", fontsize=9)
            axes.set_ylim(bottom=0)
        grid[1].set_ylabel(unit)
        grid[-1].set_xlabel("seconds")
        grid[0].legend(loc="upper right", ncols=2, fontsize=7.5)
        figure.tight_layout()
        draw.save(figure, folder / f"selection-train-{name}.svg")
