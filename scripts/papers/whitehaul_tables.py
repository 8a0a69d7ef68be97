"""Tables of the WhiteHaul dissertation's figures, from the laboratory."""

import itertools

import draw
from metrics import mean
from whitehaul_figures import CONTROLS, LABORATORY, QUALITIES, WINDOWS


def all_tables(data):
    """The tables of what is in the data, by the names of their marks in the page."""
    tables = {"pairs": pairs_table, "spike": spike_table, "files": files_table, "table_5_2": table_5_2}
    return {name.replace("_", "-"): make(data) for name, make in tables.items() if name in data}


def pairs_table(data):
    lines = ["| pair | channel | CUBIC | LIA | WhiteHaul | Edinburgh, ours |", "| --- | --- | --- | --- | --- | --- |"]
    for pair, quality in itertools.product(LABORATORY, QUALITIES):
        each = " | ".join(links_of(data["pairs"][pair][quality][name]) for name in WINDOWS)
        lines.append(f"| {pair} | {quality} | {each} |")
    return "\n".join(lines)


def links_of(row):
    return " + ".join(f"{rate:.0f}" for rate in row["links"])


def table_5_2(data):
    lines = ["| channel | type | WH-1 | WH-2 | in all | MPTCP over simultaneous |", "| --- | --- | --- | --- | --- | --- |"]
    for quality in QUALITIES:
        rows = data["table_5_2"][quality]
        for system in ("alone", "simultaneous", "mptcp"):
            total = mean(rows[system]["mbit"]) if system != "alone" else sum(rows[system]["links"])
            part = f"{total / mean(rows['simultaneous']['mbit']):.2f}" if system == "mptcp" else ""
            each = " | ".join(f"{rate:.0f}" for rate in rows[system]["links"])
            lines.append(f"| {quality} | {system} | {each} | {total:.0f} | {part} |")
    return "\n".join(lines)


def spike_table(data):
    lines = ["| | WH-1 before, 3 to 5 s | after, 7 to 12 s | window after, 7 to 12 s |", "| --- | --- | --- | --- |"]
    for control in WINDOWS:
        run = data["spike"][control]
        rate, flow = run["rate"], run["subflows"]["links"]["1"]

        def mean_rate(low, high):
            times = [rate["start_s"] + rate["interval_s"] * number for number in range(len(rate["mbit"]))]
            return mean(value for time, value in zip(times, rate["mbit"]) if low <= time < high)

        window = mean(cwnd for time, cwnd in zip(flow["time_s"], flow["cwnd"]) if 7 <= time)
        lines.append(f"| {draw.NAMES[control]} | {mean_rate(3, 5):.0f} Mbit/s | {mean_rate(7, 12):.0f} Mbit/s | {window:.0f} packets |")
    return "\n".join(lines)


def files_table(data):
    lines = ["| channel | WhiteHaul | CUBIC | LIA |", "| --- | --- | --- | --- |"]
    for quality in QUALITIES:
        each = [" / ".join(f"{time:.2f}" for time in data["files"][quality][name]) for name in CONTROLS]
        lines.append(f"| {quality} | {' | '.join(each)} |")
    return "\n".join(lines)
