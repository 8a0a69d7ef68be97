"""The WhiteHaul dissertation's experiments in the simulator, in runs of a minute and more."""

import dataclasses
import itertools
import re

import whitehaul_radio as radio
from metrics import mean
from runs import PAYLOAD, by_link, mbit
from whitehaul_figures import LINKS, PAIRS, QUALITIES, WIDTHS

# Of every run; the dissertation has five (section 3.5).
SEEDS = 5
# Of the transfer of a file (section 4.4), the most of any run.
MOST_SEEDS = 20
# The rule by which the dissertation's schedulers send, among sumlink's.
MINRTT = "sumlink:minrtt"
# Configurations with names for labels and tables. The dissertation's Edinburgh has WhiteHaul's
# fixed limits; ours takes them from the path.
CONTROLS = {
    "whitehaul": "whitehaul",
    "cubic": "cubic",
    "lia": "lia",
    "illinois": "illinois",
    "edinburgh-thesis": "edinburgh@advertised=100:budget=50ms",
    "edinburgh": "edinburgh",
}
# Queues before each link. 250 packets are 11 ms at 80 MHz and 47 ms at 20 MHz.
QUEUES = {"short": "250packets", "long": "150ms"}
# The scheduler's question needs unequal and equal pairs with a wide second link.
SCHEDULED = ["20-80", "40-80", "80-80"]
SCHEDULERS = ["minrtt", "blest", "ecf", "qaware"]
# Each change from WhiteHaul to Edinburgh alone, the rest as in WhiteHaul.
UNDONE = {
    "initial_ssthresh": "initial_ssthresh=20",
    "hystart": "hystart=false",
    "grows": "grows=false",
    "advertised": "advertised=100",
    "budget": "budget=50ms",
}
BUDGETS = ["10ms", "50ms", "100ms", "200ms"]
ADVERTISED = [50, 100, 400]


def figures(outcomes):
    """Goodput per seed in Mbit/s, in all and by link."""
    return {
        "mbit": [round(mbit(run), 2) for run in outcomes],
        "each": [[round(rate, 2) for rate in by_link(run, LINKS)] for run in outcomes],
    }


def run_pair(sim, pair, quality, queue, control, systems, seeds=SEEDS, settings=None):
    """Figures of each system for a pair of widths."""
    changes = {"congestion": settings or CONTROLS[control], "queue": QUEUES[queue]}
    found = sim.run(f"pair-{pair}-{quality}", systems, f"{queue}-{control}", changes, seeds)
    return {system: figures(outcomes) for system, outcomes in found.items()}


def conditions(pairs=PAIRS):
    """Queue, pair and quality of every row; the pairs of most interest come first."""
    first = [pair for pair in ("80-80", "20-80", "40-80") if pair in pairs]
    order = first + [pair for pair in pairs if pair not in first]
    return itertools.product(order, QUEUES, QUALITIES)


def alone(sim):
    """Mbit/s of each link alone by queue, quality, control and width of WH-1 and WH-2, from the
    pairs of equal widths."""
    table = {}
    for queue, quality, control, width in itertools.product(QUEUES, QUALITIES, CONTROLS, WIDTHS):
        run = run_pair(sim, f"{width}-{width}", quality, queue, control, ["alone"], seeds=1)["alone"]
        of = table.setdefault(queue, {}).setdefault(quality, {}).setdefault(control, {})
        for link, rate in zip(LINKS, run["each"][0]):
            of.setdefault(link, {})[str(width)] = rate
    return table


def pairs(sim):
    """Every control with minRTT in all nine pairs, with simultaneous TCP by the same control."""
    table = {}
    for pair, queue, quality in conditions():
        for control in CONTROLS:
            found = run_pair(sim, pair, quality, queue, control, [MINRTT])
            table.setdefault(queue, {}).setdefault(pair, {}).setdefault(quality, {})[control] = found[MINRTT]
    return {"alone": alone(sim), "pairs": table}


def simultaneous(sim):
    """Simultaneous TCP by every control, for the bounds. Only links that share the air or have
    interference differ by seed."""
    table = {}
    for pair, queue, quality in conditions():
        seeds = SEEDS if "80-80" == pair else 2
        for control in CONTROLS:
            found = run_pair(sim, pair, quality, queue, control, ["simultaneous"], seeds)
            table.setdefault(queue, {}).setdefault(pair, {}).setdefault(quality, {})[control] = found["simultaneous"]
    return {"simultaneous": table}


def schedulers(sim):
    """The schedulers with every control, and beside them sumlink's own default and the kernel's
    MPTCP."""
    table = {}
    for pair, queue, quality in conditions(SCHEDULED):
        row = table.setdefault(queue, {}).setdefault(pair, {}).setdefault(quality, {})
        for control in CONTROLS:
            systems = [f"sumlink:{name}" for name in SCHEDULERS] + ["mptcp"]
            row[control] = run_pair(sim, pair, quality, queue, control, systems)
        row["cubic"].update(run_pair(sim, pair, quality, queue, "cubic", ["sumlink:fbdt"]))
    return {"schedulers": table}


def fbdt(sim):
    """sumlink's default with CUBIC in all nine pairs."""
    table = {}
    for pair, queue, quality in conditions():
        found = run_pair(sim, pair, quality, queue, "cubic", ["sumlink:fbdt"])
        table.setdefault(queue, {}).setdefault(pair, {})[quality] = found["sumlink:fbdt"]
    return {"fbdt": table}


def changes(sim):
    """WhiteHaul, Edinburgh with each change alone, and with all of them, under 80-80."""
    base = "beta=0.09375"
    variants = {"whitehaul": "whitehaul", "none": ":".join([base, *UNDONE.values()])}
    for change in UNDONE:
        others = [undone for name, undone in UNDONE.items() if name != change]
        variants[change] = ":".join([base, *others])
    variants["thesis"] = "advertised=100:budget=50ms"
    variants["all"] = ""
    table = {}
    for queue, quality, (name, settings) in itertools.product(QUEUES, QUALITIES, variants.items()):
        control = settings if name == "whitehaul" else f"edinburgh@{settings}" if settings else "edinburgh"
        label = "whitehaul" if name == "whitehaul" else {"thesis": "edinburgh-thesis", "all": "edinburgh"}.get(name, f"change-{name.replace('_', '-')}")
        found = run_pair(sim, "80-80", quality, queue, label, [MINRTT], settings=control)
        table.setdefault(queue, {}).setdefault(quality, {})[name] = found[MINRTT]
    return {"changes": table}


def sweep(sim):
    """WhiteHaul's budget and advertised window under 80-80 with interference, by queue."""
    table = {}
    for queue, budget, advertised in itertools.product(QUEUES, BUDGETS, ADVERTISED):
        settings = f"whitehaul@budget={budget}:advertised={advertised}"
        label = f"whitehaul-{budget}-{advertised}"
        found = run_pair(sim, "80-80", "interference", queue, label, [MINRTT], settings=settings)
        table.setdefault(queue, {}).setdefault(budget, {})[str(advertised)] = found[MINRTT]
    return {"sweep": table}


def files(sim):
    """Seconds of a file of 300 MB over a new connection, by control and queue."""
    table = {}
    for queue, quality, control in itertools.product(QUEUES, QUALITIES, CONTROLS):
        settings = {"congestion": CONTROLS[control], "queue": QUEUES[queue]}
        runs = sim.run(f"file-{quality}", ["mptcp"], f"{queue}-{control}", settings, MOST_SEEDS)["mptcp"]
        table.setdefault(queue, {}).setdefault(quality, {})[control] = [run["completions"][0]["duration_s"] for run in runs]
    return {"files": table}


def table_4_1(sim):
    """20-80 with WhiteHaul: the links alone with CUBIC, MPTCP by the kernel's scheduler and minRTT."""
    table = {}
    for queue, quality in itertools.product(QUEUES, QUALITIES):
        row = run_pair(sim, "20-80", quality, queue, "whitehaul", ["mptcp", MINRTT])
        row["alone"] = run_pair(sim, "20-80", quality, queue, "cubic", ["alone"], seeds=1)["alone"]
        table.setdefault(queue, {})[quality] = row
    return {"table_4_1": table}


# The files of tables 5.1 and 5.2, with the control of each.
FITTED = {"table_5_1": ("whitehaul-80-80", "whitehaul"), "table_5_2": ("whitehaul-80-80-cubic", "cubic")}


def fitted(sim, table):
    """The three types of test under a table's own fit of the links."""
    name, control = FITTED[table]
    found = {}
    for queue, quality in itertools.product(QUEUES, QUALITIES):
        settings = {
            "congestion": control,
            "queue": QUEUES[queue],
            "duration": "70s",
            "warmup": "10s",
            "receive_buffer": "16MiB",
        }
        runs = sim.run(f"../{name}-{quality}", ["alone", "simultaneous", "mptcp"], f"{queue}-{control}", settings, SEEDS)
        found.setdefault(queue, {})[quality] = {system: figures(outcomes) for system, outcomes in runs.items()}
    return {table: found}


# Interval of the points of a window's curve, in seconds.
STEP = 0.2


def windows(sim):
    """Windows, thresholds and round-trip times of both subflows under 80-80, from the start."""
    table = {}
    for queue, quality, control in itertools.product(QUEUES, QUALITIES, ("cubic", "lia", "whitehaul", "edinburgh-thesis", "edinburgh")):
        settings = {"congestion": CONTROLS[control], "queue": QUEUES[queue]}
        kept = sim.trace(f"pair-80-80-{quality}", MINRTT, f"{queue}-{control}", settings, subflows)
        table.setdefault(queue, {}).setdefault(quality, {})[control] = kept
    return {"windows": table}


def subflows(lines):
    """Columns of each link's path at the sender, a point for each STEP: the last values, and the
    largest round-trip time."""
    mss = 1448
    points = {}
    for line in lines:
        if line["event"] != "path" or line["side"] != "server":
            continue
        now = line["t_ns"] / 1e9
        of = points.setdefault(str(line["link"] + 1), {})
        point = of.setdefault(int(now / STEP), {"peak_ms": 0.0})
        ssthresh = line["ssthresh"]
        point["cwnd"] = line["cwnd"] // mss
        point["ssthresh"] = None if ssthresh is None else ssthresh // mss
        point["peak_ms"] = max(point["peak_ms"], round(line["srtt_us"] / 1e3, 1))
    return {
        link: {"time_s": [round(at * STEP, 2) for at in sorted(of)]} | {key: [of[at][key] for at in sorted(of)] for key in ("cwnd", "ssthresh", "peak_ms")}
        for link, of in points.items()
    }


def total(row):
    """Mean total of a row's seeds."""
    return mean(row["mbit"])


# WH-2 sends in these seconds (section 5.1).
ACTIVE = [(30, 65), (110, 145)]


def on_and_off(sim):
    """Figure 5.1: WH-1 always sends, WH-2 in two spells; Mbit/s of each link by second."""
    spells = "".join(f'\n[[spell]]\nlink = "wh2"\nfrom = "{begin}s"\nuntil = "{end}s"\n' for begin, end in ACTIVE)
    table = {}
    for queue, control in itertools.product(QUEUES, ("whitehaul", "cubic", "edinburgh")):
        changes = {
            "congestion": CONTROLS[control],
            "queue": QUEUES[queue],
            "duration": "180s",
            "warmup": "0s",
            "receive_buffer": "16MiB",
            "text": lambda text: text + spells,
        }
        runs = sim.run("../whitehaul-80-80-clean", ["simultaneous"], f"spells-{queue}-{control}", changes, SEEDS)["simultaneous"]
        table.setdefault(queue, {})[control] = {link: mean_rate(runs, link) for link in LINKS}
    return {"on_and_off": table}


def mean_rate(runs, link):
    """Mbit/s of a link by second, the mean of the runs."""
    found = []
    for run in runs:
        [series] = [one["rate"] for one in run["links"] if one["link"] == link and one["direction"] == "down"]
        each = round(1 / series["interval_s"])
        found.append([mean(series["bps"][at : at + each]) * PAYLOAD / 1e6 for at in range(0, len(series["bps"]) - each + 1, each)])
    return [round(mean(column), 1) for column in zip(*found)]


# Transmission powers of table 5.3 in dBm.
POWERS = {"High": 17, "Low": 14}
# Mbit/s of WH-2 at 80 MHz on its fastest scheme, as in the pair files.
FASTEST = 265.2


def power(sim):
    """80-80 with WhiteHaul at two transmission powers; the rate and the retries follow from the
    SINR."""
    table = {}
    for queue, (level, dbm), quality in itertools.product(QUEUES, POWERS.items(), QUALITIES):
        interfered = quality == "interference"
        link = radio.radio(dbm, interfered)

        def at_power(text, link=link):
            text = text.replace(f'rate = "{FASTEST}mbit"', f'rate = "{FASTEST * link.part:.1f}mbit"')
            text = re.sub(r'^occupancy = ".*"$', f'occupancy = "{100 * radio.occupancy():.0f}%"', text, flags=re.MULTILINE)
            return re.sub(r'^frame_error = ".*"$', f'frame_error = "{min(99, 100 * link.frame_error):.0f}%"', text, flags=re.MULTILINE)

        changes = {"congestion": "whitehaul", "queue": QUEUES[queue], "text": at_power}
        found = sim.run(f"pair-80-80-{quality}", ["alone", MINRTT], f"{queue}-{dbm}dbm", changes, SEEDS)
        row = {system: figures(outcomes) for system, outcomes in found.items()}
        table.setdefault(queue, {}).setdefault(quality, {})[level] = {**row, "radio": dataclasses.asdict(link)}
    return {"power": table}
