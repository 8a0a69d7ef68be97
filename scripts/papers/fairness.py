"""RFC 6356: bonds of two flows beside one Reno flow, on one and on two bottlenecks."""

import json

import draw
from metrics import jain, mean
from runs import by_link, mbit

PAGE = "fairness"

# Congestion controls of a two-flow bond on the shared bottleneck, from those designed to be fair to
# those that are not.
SHARED = ["coupled", "lia", "rtt-compensator", "olia", "balia", "cs218", "ewtcp", "wvegas", "uncoupled", "whitehaul", "edinburgh"]
TWO = ["coupled", "lia", "olia", "balia", "cs218", "ewtcp", "wvegas", "uncoupled"]

# Tolerance for rates before they count as too high or too low; runs of 10 s vary by about as much.
TOLERANCE = 0.10
# The same for a bond's share of the total. LIA and RTT compensator, which are the same algorithm,
# differed by 0.15 between two runs each.
PART_TOLERANCE = 0.08


def measure(bench):
    shared = {}
    plain = {"one Reno flow": "sumlink:fbdt+reno+1", "two Reno flows": "sumlink:fbdt+reno+2"}
    systems = plain | {name: f"sumlink:fbdt+{name}+2" for name in SHARED}
    for name, runs in zip(systems, bench.run("fair-shared", systems.values()).values()):
        bonds, rivals = [mbit(run) for run in runs], [run["rival_bps"] / 1e6 for run in runs]
        shared[name] = {
            "bond_mbit": bonds,
            "rival_mbit": rivals,
            "part": mean(bonds) / (mean(bonds) + mean(rivals)),
            "jain": jain([mean(bonds), mean(rivals)]),
            "use": mean(bonds) + mean(rivals),
        }
    names = ["busy", "free"]
    found = bench.run("fair-two", ["alone", *(f"sumlink:fbdt+{name}" for name in TWO)])
    alone = [mean(column) for column in zip(*(by_link(run, names) for run in found["alone"]))]
    two = {}
    for name in TWO:
        runs = found[f"sumlink:fbdt+{name}"]
        parts = [by_link(run, names) for run in runs]
        busy, free = (mean(column) for column in zip(*parts))
        total, rival = mean(mbit(run) for run in runs), mean(run["rival_bps"] / 1e6 for run in runs)
        # The busy link carries the rival's traffic, too.
        two[name] = {"total_mbit": total, "busy_mbit": busy - rival, "free_mbit": free, "rival_mbit": rival, "jain": jain([total, rival])}
    return {"shared": shared, "alone_mbit": dict(zip(names, alone)), "two": two}


def picture(data, folder):
    shared = data["shared"]
    figure, axes = draw.plt.subplots(figsize=(8.6, 3.6))
    names = list(shared)
    parts = [100 * shared[name]["part"] for name in names]
    colors = ["#999999" if name.endswith(("flow", "flows")) else "#0072b2" for name in names]
    axes.bar(range(len(names)), parts, 0.7, color=colors)
    for place, (name, part) in enumerate(zip(names, parts)):
        axes.text(place, 3, f"{part:.0f} %\nJ {shared[name]['jain']:.2f}", ha="center", va="bottom", fontsize=7.5, color="white")
    axes.axhline(50, color="#d55e00", linewidth=1.2, linestyle="--")
    axes.text(len(names) - 0.45, 51, "fair", color="#d55e00", ha="left", va="bottom")
    axes.set_xticks(range(len(names)), [name.replace(" Reno ", "\nReno ") for name in names], rotation=30, ha="right")
    axes.grid(axis="x", visible=False)
    axes.set_ylim(0, 105)
    axes.set_ylabel("part of what both got, %")
    axes.set_title("A bond of two flows and one Reno flow over one bottleneck: the bond's part, and Jain's index J", loc="left")
    draw.save(figure, folder / "fairness-shared.svg")

    two = data["two"]
    figure, axes = draw.plt.subplots(figsize=(8.6, 3.6))
    series = [
        ("the bond, free link", "#009e73", [two[name]["free_mbit"] for name in two]),
        ("the bond, busy link", "#0072b2", [two[name]["busy_mbit"] for name in two]),
        ("the Reno flow, busy link", "#999999", [two[name]["rival_mbit"] for name in two]),
    ]
    draw.bars(axes, list(two), series, 0, None, "{:.1f}")
    single = data["alone_mbit"]["free"]
    due = data["alone_mbit"]["busy"]
    axes.axhline(single, color="#009e73", linewidth=1, linestyle="--", label="one Reno flow alone on the free link (goal 1)")
    axes.axhline(due, color="#0072b2", linewidth=1, linestyle=":", label="one Reno flow next to another one (goal 2)")
    axes.set_ylabel("Mbit/s")
    axes.set_ylim(0, single * 1.35)
    axes.legend(loc="upper left", ncols=3, fontsize=7.5)
    axes.set_title("A bond over two links of 10 Mbit/s, one of which a Reno flow uses, too", loc="left")
    draw.save(figure, folder / "fairness-two.svg")


def verdict(part):
    if part > 0.5 + PART_TOLERANCE:
        return "takes more than one flow"
    if part < 0.5 - PART_TOLERANCE:
        return "takes less than one flow"
    return "as one flow"


def tables(data):
    lines = ["| bond | its part | Jain's index | bond, Mbit/s | Reno flow, Mbit/s | together | |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for name, row in data["shared"].items():
        each = [" / ".join(f"{value:.1f}" for value in row[key]) for key in ("bond_mbit", "rival_mbit")]
        lines.append(
            f"| {name} | {row['part']:.2f} | {row['jain']:.2f} | {each[0]} | {each[1]} | {row['use']:.1f} | {verdict(row['part'])} |"
        )
    shared = "\n".join(lines)
    single, due = data["alone_mbit"]["free"], data["alone_mbit"]["busy"]
    uncoupled = data["two"]["uncoupled"]["busy_mbit"]
    lines = [
        "| bond | in all | busy link | free link | Reno flow | Jain's index | goal 1: at least the best link alone | goal 2: no more than a flow on the busy link "
        "| goal 3: less on the busy link than uncoupled |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in data["two"].items():
        goals = [
            row["total_mbit"] >= (1 - TOLERANCE) * single,
            row["busy_mbit"] <= (1 + TOLERANCE) * due,
            row["busy_mbit"] < (1 - TOLERANCE) * uncoupled,
        ]
        values = " | ".join(f"{row[key]:.1f}" for key in ("total_mbit", "busy_mbit", "free_mbit", "rival_mbit"))
        lines.append(f"| {name} | {values} | {row['jain']:.2f} | {' | '.join('yes' if goal else 'no' for goal in goals)} |")
    lines += ["", f"One Reno flow alone: {single:.1f} Mbit/s on the free link, {due:.1f} on the busy one next to another Reno flow."]
    return {"shared": shared, "two": "\n".join(lines)}


def write(data, folder):
    (folder / "fairness.json").write_text(json.dumps(data, indent=1) + "\n")
    picture(data, folder)
    return tables(data)
