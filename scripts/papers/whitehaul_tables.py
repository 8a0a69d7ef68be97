"""Tables of the WhiteHaul dissertation's figures."""

import itertools

import draw
from metrics import benefit, deviation, mean, ratio
from whitehaul_figures import CONTROLS, NEAR, PAIRS, QUALITIES, SCHEDULED, SCHEDULERS, SLACK, WINDOWS, alone, benefits, edinburgh_row


def all_tables(data):
    """The tables by the names of their marks in the page."""
    return {
        "pairs": pairs_table(data),
        "scatter": scatter_table(data),
        "near": near_table(data),
        "windows": windows_table(data),
        "spike": spike_table(data),
        "files": files_table(data),
        "edinburgh": edinburgh_table(data),
        "table-5-2": table_5_2(data),
        "bounds": bounds_table(data),
        "schedulers": schedulers_table(data),
    }


def pairs_table(data):
    lines = [
        "| pair | channel | alone, clean | simultaneous | WhiteHaul | CUBIC | LIA | benefit: WhiteHaul | CUBIC | LIA |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for pair, quality in itertools.product(PAIRS, QUALITIES):
        rows = data["pairs"][pair][quality]
        carried = [links_of(rows[name]) for name in ("simultaneous", *CONTROLS)]
        gains = [f"{benefits(data, pair, quality, rows[name]):.2f}" for name in CONTROLS]
        single = " + ".join(f"{rate:.0f}" for rate in alone(data, pair))
        lines.append(f"| {pair} | {quality} | {single} | {' | '.join(carried)} | {' | '.join(gains)} |")
    ahead, behind = ([count(data, quality) for quality in QUALITIES] for count in (cubic_ahead, lia_behind))
    lines += [
        "",
        f"CUBIC brought over 2 % more than WhiteHaul in {ahead[0]} of 9 pairs clean and {ahead[1]} of 9 with interference; LIA over 2 % less than "
        f"either of the two in {behind[0]} and {behind[1]}.",
    ]
    return "\n".join(lines)


def scatter_table(data):
    """Variation between runs: the standard deviation of each link's rate, and its mean over the
    pairs."""
    lines = [
        "| pair | channel | WhiteHaul: WH-1 | WH-2 | CUBIC: WH-1 | WH-2 | LIA: WH-1 | WH-2 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    means = {quality: [] for quality in QUALITIES}
    for pair, quality in itertools.product(PAIRS, QUALITIES):
        each = [deviation(rates) for name in CONTROLS for rates in zip(*data["pairs"][pair][quality][name]["each"])]
        means[quality].append(each)
        lines.append(f"| {pair} | {quality} | {' | '.join(f'{value:.1f}' for value in each)} |")
    for quality, rows in means.items():
        lines.append(f"| mean | {quality} | {' | '.join(f'{mean(column):.1f}' for column in zip(*rows))} |")
    return "\n".join(lines)


def totals(data, pair, quality):
    return {name: mean(data["pairs"][pair][quality][name]["mbit"]) for name in CONTROLS}


def cubic_ahead(data, quality):
    """Pairs in which CUBIC was clearly faster than WhiteHaul."""
    rows = [totals(data, pair, quality) for pair in PAIRS]
    return sum(row["cubic"] > (1 + SLACK) * row["whitehaul"] for row in rows)


def lia_behind(data, quality):
    """Pairs in which LIA was clearly slower than both others."""
    rows = [totals(data, pair, quality) for pair in PAIRS]
    return sum(row["lia"] < (1 - SLACK) * min(row["whitehaul"], row["cubic"]) for row in rows)


def near_table(data):
    lines = ["| pair | channel | WhiteHaul | CUBIC | LIA |", "| --- | --- | --- | --- | --- |"]
    for pair, quality in itertools.product(NEAR, QUALITIES):
        each = " | ".join(f"{mean(data['near'][pair][quality][name]['mbit']):.0f}" for name in CONTROLS)
        lines.append(f"| {pair} | {quality} | {each} |")
    return "\n".join(lines)


def links_of(row):
    return " + ".join(f"{rate:.0f}" for rate in row["links"])


def bounds_table(data):
    """Equations 5.1 to 5.3 for every pair and congestion control, by totals."""
    lines = [
        "| congestion control | 5.1: interference at most min(alone, clean MPTCP) | 5.2: at most min(simultaneous, clean MPTCP) "
        "| 5.3: simultaneous at most alone, clean MPTCP at most simultaneous | those above a bound, and by how much |",
        "| --- | --- | --- | --- | --- |",
    ]
    for control in [*CONTROLS, "edinburgh"]:
        held, above = [0, 0, 0], []
        pairs = ["80-80"] if control == "edinburgh" else PAIRS
        for pair in pairs:
            rows = data["pairs"][pair]
            of = {
                quality: mean((data["edinburgh"][quality] if control == "edinburgh" else rows[quality][control])["mbit"]) for quality in QUALITIES
            }
            simultaneous = {quality: mean(rows[quality]["simultaneous"]["mbit"]) for quality in QUALITIES}
            singles = {quality: sum(alone(data, pair, quality)) for quality in QUALITIES}
            checks = [
                (of["interference"], min(singles["interference"], of["clean"])),
                (of["interference"], min(simultaneous["interference"], of["clean"])),
                (max(of["clean"] / simultaneous["clean"], *(simultaneous[quality] / singles[quality] for quality in QUALITIES)), 1),
            ]
            for number, (value, bound) in enumerate(checks):
                if value <= bound * (1 + SLACK):
                    held[number] += 1
                else:
                    above.append(f"{pair} (5.{number + 1}: {100 * (value / bound - 1):.0f} %)")
        lines.append(f"| {draw.NAMES[control]} | {' | '.join(f'{count} of {len(pairs)}' for count in held)} | {', '.join(above) or 'none'} |")
    return "\n".join(lines)


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


def schedulers_table(data):
    lines = ["| pair | channel | minRTT | BLEST | ECF | most over least |", "| --- | --- | --- | --- | --- | --- |"]
    for pair, quality in itertools.product(SCHEDULED, QUALITIES):
        totals = [mean(data["schedulers"][pair][quality][name]["mbit"]) for name in SCHEDULERS]
        each = " | ".join(f"{total:.0f}" for total in totals)
        lines.append(f"| {pair} | {quality} | {each} | {max(totals) / min(totals):.2f} |")
    return "\n".join(lines)


def windows_table(data):
    """Times at which the window reaches 90 % of its later mean, its maximum, and WhiteHaul's 100
    packets."""
    lines = [
        "| | channel | window: 90 % of its mean after 5 s, first at | that mean | largest round-trip time | at 100 packets |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for control, quality in itertools.product(WINDOWS, QUALITIES):
        for link, name in (("1", "WH-1"), ("2", "WH-2")):
            flow = data["windows"][quality][control]["links"][link]
            later = mean(cwnd for time, cwnd in zip(flow["time_s"], flow["cwnd"]) if time >= 5)
            reached = next(time for time, cwnd in zip(flow["time_s"], flow["cwnd"]) if cwnd >= 0.9 * later)
            clamped = mean(cwnd == 100 and threshold == 100 for cwnd, threshold in zip(flow["cwnd"], flow["ssthresh"]))
            lines.append(
                f"| {draw.NAMES[control]}, {name} | {quality} | {reached:.1f} s | {later:.0f} | {max(flow['peak_ms']):.0f} ms | {100 * clamped:.0f} % of the time |"
            )
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


def edinburgh_table(data):
    lines = ["| channel | | seeds, Mbit/s | benefit | ratio | of simultaneous |", "| --- | --- | --- | --- | --- | --- |"]
    for quality, name in itertools.product(QUALITIES, ("whitehaul", "edinburgh", "simultaneous")):
        row = edinburgh_row(data, quality, name)
        total = mean(row["mbit"])
        bound = mean(data["pairs"]["80-80"][quality]["simultaneous"]["mbit"])
        single = alone(data, "80-80")
        seeds = ", ".join(f"{value:.0f}" for value in row["mbit"])
        lines.append(
            f"| {quality} | {draw.NAMES[name]} | {seeds} | {benefit(total, single):.2f} | {ratio(total, single):.2f} | {total / bound:.2f} |"
        )
    return "\n".join(lines)


def files_table(data):
    lines = ["| channel | WhiteHaul | CUBIC | LIA |", "| --- | --- | --- | --- |"]
    for quality in QUALITIES:
        each = [" / ".join(f"{time:.2f}" for time in data["files"][quality][name]) for name in CONTROLS]
        lines.append(f"| {quality} | {' | '.join(each)} |")
    return "\n".join(lines)
