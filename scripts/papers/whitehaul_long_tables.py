"""Tables of the WhiteHaul dissertation's figures, from simulated runs."""

import itertools
import statistics

from metrics import benefit, deviation, mean, ratio
from whitehaul_figures import LINKS, PAIRS, QUALITIES, SLACK
from whitehaul_long_runs import ACTIVE, ADVERTISED, BUDGETS, CONTROLS, MINRTT, POWERS, QUEUES, SCHEDULED, SCHEDULERS, UNDONE, total

NAMES = {
    "whitehaul": "WhiteHaul",
    "cubic": "CUBIC",
    "lia": "LIA",
    "illinois": "Illinois",
    "edinburgh-thesis": "Edinburgh, the dissertation's",
    "edinburgh": "Edinburgh, ours",
}
# The start of a run whose window is still growing, in seconds.
SETTLED = 30
# Packets that nearly fill either link of 80 MHz: 395 and 442 do.
FULL = 380
# A run that is not in the data.
OPEN = "–"


def singles(data, pair, queue, quality="clean", control="cubic"):
    """Mbit/s of each link alone."""
    of = data["alone"][queue][quality][control]
    return [of[link][width] for link, width in zip(LINKS, pair.split("-"))]


def benefit_of(data, pair, queue, row):
    """The benefit over the clean links alone."""
    return benefit(total(row), singles(data, pair, queue))


def table(heads, rows):
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def seeds(rows):
    """A sentence with the number of seeds of these rows."""
    counts = [len(row["mbit"]) for row in rows]
    if not counts:
        return ""
    least, most = min(counts), max(counts)
    return f"\n\nSeeds of each: {least}." if least == most else f"\n\nSeeds of each: {least} to {most}."


def every(found):
    """All rows of figures in nested dictionaries."""
    if "mbit" in found:
        return [found]
    return [row for value in found.values() if isinstance(value, dict) for row in every(value)]


def carried(row):
    """Mbit/s of each link, as means."""
    return " + ".join(f"{mean(column):.0f}" for column in zip(*row["each"]))


def of_pairs(data):
    rows = []
    for queue, pair, quality in itertools.product(QUEUES, PAIRS, QUALITIES):
        found = data["pairs"][queue].get(pair, {}).get(quality, {})
        single = " + ".join(f"{rate:.0f}" for rate in singles(data, pair, queue))
        cells = [f"{total(found[name]):.0f}, {benefit_of(data, pair, queue, found[name]):.2f}" if name in found else OPEN for name in CONTROLS]
        rows.append([queue, pair, quality, single, *cells])
    pairs = table(["queue", "pair", "channel", "alone, clean", *NAMES.values()], rows)
    return {"long-pairs": pairs + seeds(every(data["pairs"])), "long-scatter": scatter(data), "long-against": against(data)}


def runs_of(data, queue, pair, quality, name):
    """Mbit/s of each link in each run, empty without one."""
    return data["pairs"][queue].get(pair, {}).get(quality, {}).get(name, {"each": []})["each"]


def scatter(data):
    """Standard deviation over the seeds, as a mean over the pairs with at least three."""
    rows = []
    groups = {"WH-2 of 20 MHz": [pair for pair in PAIRS if pair.endswith("-20")]}
    groups["WH-2 of 40, 80 MHz"] = [pair for pair in PAIRS if not pair.endswith("-20")]
    for queue, quality, (title, of) in itertools.product(QUEUES, QUALITIES, groups.items()):
        cells = []
        for name in CONTROLS:
            found = [runs_of(data, queue, pair, quality, name) for pair in of]
            each = [[deviation(rates) for rates in zip(*runs)] for runs in found if len(runs) >= 3]
            cells.append(" / ".join(f"{mean(column):.1f}" for column in zip(*each)) or OPEN)
        if set(cells) != {OPEN}:
            rows.append([queue, quality, title, *cells])
    return table(["queue", "channel", "pairs", *NAMES.values()], rows) if rows else "Not measured yet: it needs three seeds."


def against(data):
    """Pairs in which a control brings over 2 % more or less than WhiteHaul."""
    rows = []
    for queue, quality in itertools.product(QUEUES, QUALITIES):
        cells = []
        for name in list(CONTROLS)[1:]:
            of = [data["pairs"][queue].get(pair, {}).get(quality, {}) for pair in PAIRS]
            parts = [total(row[name]) / total(row["whitehaul"]) for row in of if name in row and "whitehaul" in row]
            more, less = sum(part > 1 + SLACK for part in parts), sum(part < 1 - SLACK for part in parts)
            cells.append(f"{more} / {less} of {len(parts)} ({min(parts):.2f} to {max(parts):.2f})" if parts else OPEN)
        rows.append([queue, quality, *cells])
    return table(["queue", "channel", *[f"{NAMES[name]}: more / less" for name in list(CONTROLS)[1:]]], rows)


def of_windows(data):
    rows = []
    for queue, quality in itertools.product(QUEUES, QUALITIES):
        for control, links in data["windows"].get(queue, {}).get(quality, {}).items():
            for link, flow in links.items():
                later = mean(cwnd for time, cwnd in zip(flow["time_s"], flow["cwnd"]) if time >= SETTLED)
                reached = next((f"{time:.1f} s" for time, cwnd in zip(flow["time_s"], flow["cwnd"]) if cwnd >= FULL), "never")
                clamped = [99 <= cwnd <= 101 and ssthresh == 100 for cwnd, ssthresh in zip(flow["cwnd"], flow["ssthresh"])]
                first = flow["time_s"][clamped.index(True)] if any(clamped) else None
                at = f"from {first:.1f} s, {100 * mean(clamped):.0f} % of the time" if first is not None else "never"
                rows.append([queue, quality, f"{NAMES[control]}, WH-{link}", reached, f"{later:.0f}", f"{max(flow['peak_ms']):.0f} ms", at])
    heads = ["queue", "channel", "", f"{FULL} packets first at", f"mean after {SETTLED} s", "largest srtt", "at 100 packets"]
    return {"long-windows": table(heads, rows)}


def of_sweep(data):
    rows = []
    for queue, budget in itertools.product(QUEUES, BUDGETS):
        found = data["sweep"].get(queue, {}).get(budget, {})
        rows.append([queue, budget, *[f"{total(found[str(advertised)]):.0f}" if str(advertised) in found else OPEN for advertised in ADVERTISED]])
    return {"long-sweep": table(["queue", "budget", *[f"{advertised} packets" for advertised in ADVERTISED]], rows) + seeds(every(data["sweep"]))}


CHANGES = {
    "whitehaul": "WhiteHaul",
    "none": "Edinburgh without its changes",
    "initial_ssthresh": "only: no initial threshold",
    "hystart": "only: HyStart++",
    "grows": "only: growth after a spike",
    "advertised": "only: advertised window of the path",
    "budget": "only: budget of the path",
    "thesis": "Edinburgh, the dissertation's",
    "all": "Edinburgh, ours",
}
assert set(UNDONE) < set(CHANGES)


def of_changes(data):
    rows = []
    for name, title in CHANGES.items():
        cells = []
        for queue, quality in itertools.product(QUEUES, QUALITIES):
            row = data["changes"][queue][quality].get(name)
            if row is None:
                cells.append(OPEN)
                continue
            single = singles(data, "80-80", queue) if "alone" in data else None
            more = f", {benefit(total(row), single):.2f}, {ratio(total(row), single):.2f}" if single else ""
            cells.append(f"{total(row):.0f}{more}")
        rows.append([title, *cells])
    heads = [f"{queue} queue, {quality}" for queue, quality in itertools.product(QUEUES, QUALITIES)]
    return {"long-changes": table(["80-80", *heads], rows) + seeds(every(data["changes"]))}


def of_table_4_1(data):
    rows = []
    for queue, quality in itertools.product(QUEUES, QUALITIES):
        found = data["table_4_1"][queue][quality]
        single = data["table_4_1"][queue]["clean"]["alone"]["each"][0]
        rows.append([queue, quality, "alone", carried(found["alone"]), "", ""])
        for system, title in (("mptcp", "MPTCP"), (MINRTT, "minRTT")):
            x = total(found[system])
            rows.append([queue, quality, title, carried(found[system]), f"{ratio(x, single):.2f}", f"{benefit(x, single):.2f}"])
    return {"long-table-4-1": table(["queue", "channel", "type", "WH-1 + WH-2", "ratio", "benefit"], rows) + seeds([found["mptcp"] for of in data["table_4_1"].values() for found in of.values()])}


def of_on_and_off(data):
    """Mbit/s while WH-2 is idle, and while it sends, without the first five seconds of each."""
    sends = [at for begin, end in ACTIVE for at in range(begin + 5, end)]
    idle = [at for at in range(10, 180) if not any(begin <= at < end + 5 for begin, end in ACTIVE)]
    rows = []
    for queue in QUEUES:
        for control, links in data["on_and_off"].get(queue, {}).items():
            cells = [f"{mean(links[link][at] for at in times):.0f}" for link, times in (("wh1", idle), ("wh1", sends), ("wh2", sends))]
            rows.append([queue, NAMES[control], *cells])
    return {"long-on-and-off": table(["queue", "", "WH-1, WH-2 idle", "WH-1, WH-2 active", "WH-2"], rows)}


def of_fitted(data, name):
    rows = []
    for queue, quality in itertools.product(QUEUES, QUALITIES):
        found = data[name].get(queue, {}).get(quality, {})
        for system, title in (("alone", "alone"), ("simultaneous", "simultaneous"), ("mptcp", "MPTCP")):
            if system not in found:
                continue
            row = found[system]
            each = [f"{mean(column):.0f}" for column in zip(*row["each"])]
            whole = sum(mean(column) for column in zip(*row["each"])) if system == "alone" else total(row)
            part = "" if system in ("alone", "simultaneous") else f"{total(row) / total(found['simultaneous']):.2f}"
            rows.append([queue, quality, title, *each, f"{whole:.0f}", part])
    return {f"long-{name.replace('_', '-')}": table(["queue", "channel", "type", "WH-1", "WH-2", "in all", "over simultaneous"], rows) + seeds(every(data[name]))}


def of_table_5_1(data):
    return of_fitted(data, "table_5_1")


def of_table_5_2(data):
    return of_fitted(data, "table_5_2")


def of_power(data):
    rows = []
    for queue, quality in itertools.product(QUEUES, QUALITIES):
        for level, dbm in POWERS.items():
            row = data["power"].get(queue, {}).get(quality, {}).get(level, {})
            if not {"alone", MINRTT} <= row.keys() or "alone" not in data["power"][queue].get("clean", {}).get(level, {}):
                continue
            link = row["radio"]
            single = [mean(column) for column in zip(*data["power"][queue]["clean"][level]["alone"]["each"])]
            level_now = link["disturbed"] if quality == "interference" else link["clean"]
            rows.append([queue, quality, f"{level}, {dbm} dBm", f"{level_now:.0f} dB", link["scheme"], carried(row[MINRTT]), f"{benefit(total(row[MINRTT]), single):.2f}"])
    return {"long-power": table(["queue", "channel", "power", "SINR of WH-2", "MCS", "WH-1 + WH-2", "benefit"], rows) + seeds(every(data["power"]))}


def of_files(data):
    rows = []
    for queue, quality in itertools.product(QUEUES, QUALITIES):
        each = data["files"].get(queue, {}).get(quality, {})
        cells = [f"{mean(each[name]):.2f}" + (f" ± {deviation(each[name]):.2f}" if len(each[name]) > 1 else "") if name in each else OPEN for name in CONTROLS]
        rows.append([queue, quality, *cells])
    counts = [len(times) for of in data["files"].values() for found in of.values() for times in found.values()]
    return {"long-files": table(["queue", "channel", *NAMES.values()], rows) + f"\n\nSeeds of each: {min(counts)} to {max(counts)}."}


def scheduler_names():
    return [f"sumlink:{name}" for name in SCHEDULERS]


def of_schedulers(data):
    rows = []
    for queue, pair, quality in itertools.product(QUEUES, SCHEDULED, QUALITIES):
        for control, found in data["schedulers"].get(queue, {}).get(pair, {}).get(quality, {}).items():
            if not set(scheduler_names()) <= found.keys():
                continue
            totals = [total(found[name]) for name in scheduler_names()]
            fbdt = f"{total(found['sumlink:fbdt']):.0f}" if "sumlink:fbdt" in found else ""
            rows.append([queue, pair, quality, NAMES[control], *[f"{value:.0f}" for value in totals], f"{max(totals) / min(totals):.2f}", f"{total(found['mptcp']):.0f}" if "mptcp" in found else OPEN, fbdt])
    heads = ["queue", "pair", "channel", "", "minRTT", "BLEST", "ECF", "QAware", "most over least", "MPTCP of Linux", "sumlink:fbdt"]
    return {"long-schedulers": table(heads, rows) + seeds(every(data["schedulers"]))}


def has_bounds(data, queue, pair, control):
    """Whether the data has what the bounds compare."""
    rows = [data[kind].get(queue, {}).get(pair, {}).get(quality, {}) for kind in ("pairs", "simultaneous") for quality in QUALITIES]
    return control in data["alone"][queue]["clean"] and all(control in row for row in rows)


def of_bounds(data):
    """How often equations 5.1 to 5.3 hold over the pairs, by totals, and which pairs break them."""
    rows = []
    for queue, control in itertools.product(QUEUES, CONTROLS):
        held, above, parts = [0, 0, 0], [], []
        complete = [pair for pair in PAIRS if has_bounds(data, queue, pair, control)]
        if not complete:
            continue
        for pair in complete:
            of = {quality: total(data["pairs"][queue][pair][quality][control]) for quality in QUALITIES}
            at_once = {quality: total(data["simultaneous"][queue][pair][quality][control]) for quality in QUALITIES}
            single = {quality: sum(singles(data, pair, queue, quality, control)) for quality in QUALITIES}
            parts.append(of["interference"] / at_once["interference"])
            checks = [
                of["interference"] / min(single["interference"], of["clean"]),
                of["interference"] / min(at_once["interference"], of["clean"]),
                max(of["clean"] / at_once["clean"], *(at_once[quality] / single[quality] for quality in QUALITIES)),
            ]
            for number, part in enumerate(checks):
                if part <= 1 + SLACK:
                    held[number] += 1
                else:
                    above.append(f"{pair} (5.{number + 1}: {100 * (part - 1):.0f} %)")
        cells = [f"{count} of {len(complete)}" for count in held]
        rows.append([queue, NAMES[control], *cells, f"{statistics.median(parts):.2f} ({min(parts):.2f} to {max(parts):.2f})", ", ".join(above) or "none"])
    heads = ["queue", "control", "5.1 holds", "5.2", "5.3", "minRTT over simultaneous, interference: median", "above a bound by over 2 %"]
    return {"long-bounds": table(heads, rows) + seeds(every(data["simultaneous"]))}


def of_fbdt(data):
    rows = []
    for queue, quality in itertools.product(QUEUES, QUALITIES):
        cells = []
        for pair in PAIRS:
            if pair not in data["fbdt"].get(queue, {}) or quality not in data["fbdt"][queue][pair]:
                cells.append(OPEN)
                continue
            own, other = total(data["fbdt"][queue][pair][quality]), total(data["pairs"][queue][pair][quality]["cubic"])
            cells.append(f"{own:.0f} / {other:.0f}")
        rows.append([queue, quality, *cells])
    return {"long-fbdt": table(["queue", "channel", *PAIRS], rows) + seeds(every(data["fbdt"]))}
