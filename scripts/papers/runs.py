"""Runs of scenario files in the laboratory, cached on disk."""

import csv
import dataclasses
import itertools
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

# The server's address in the laboratory, which sends; the second octet of a link's client address
# is its number.
SENDER = "10.99.0.1:"
LINK = re.compile(r"10\.77\.(\d+)\.2:")

# Seconds of a trace that become one point: the last of each value, and the largest round-trip time.
STEP = 0.05

# Congestion controls with a kernel name other than sl_ plus their name (docs/congestion.md).
SYSTEM_NAMES = {"rtt-compensator": "sl_rttcomp"}

# Payload share of a link's bytes: 1448 of each 1500.
PAYLOAD = 1448 / 1500


class TimeIsOver(Exception):
    """The time limit forbids starting another run."""


@dataclasses.dataclass
class Bench:
    """The sumlink program, the folders of scenarios and results, and the (monotonic) deadline for
    starting runs."""

    program: str
    scenarios: pathlib.Path
    out: pathlib.Path
    deadline: float

    def run(self, name, systems, congestion=None, seeds=None, traced=False):
        """The measurements of systems under a scenario: for each system a list with one per seed.

        With a congestion control, a variant of the scenario is written to the results and used. With `traced`, each
        measurement also has `subflows`: windows and times of MPTCP's subflows.
        """
        file = self.scenarios / f"{name}.toml"
        if congestion:
            file = self._variant(file, congestion)
        scenario = file.stem
        text = file.read_text()
        count = seeds or int(re.search(r"^seeds = (\d+)", text, re.MULTILINE).group(1))
        found = {}
        for system in systems:
            trace = self._trace_file(scenario, system) if traced else None
            if trace and not newer(trace, file):
                self._measure_traced(file, scenario, system, congestion, trace)
            self._measure(file, [system], count)
            found[system] = [self._read(scenario, seed, system) for seed in range(1, count + 1)]
            if trace:
                found[system][0]["subflows"] = json.loads(trace.read_text())
        return found

    def _variant(self, file, congestion):
        """A copy of the scenario with another congestion control, named after it."""
        text = file.read_text()
        name = f"{file.stem}-{congestion}"
        text, names = re.subn(r'^name = ".*"$', f'name = "{name}"', text, flags=re.MULTILINE, count=1)
        text, controls = re.subn(r'^congestion = ".*"$', f'congestion = "{congestion}"', text, flags=re.MULTILINE)
        if (names, controls) != (1, 1):
            sys.exit(f"{file}: a scenario to be varied must have one name and one congestion control")
        path = self.out / "scenarios" / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        return path

    def _measure(self, file, systems, seeds):
        """Runs the missing measurements. The laboratory would detect existing ones itself, but
        slowly."""
        wanted = itertools.product(range(1, seeds + 1), systems)
        if all(newer(self._run_file(file.stem, seed, system), file) for seed, system in wanted):
            return
        self._may_begin()
        self._lab(file, systems, seeds)

    def _lab(self, file, systems, seeds):
        print(f"papers: {file.stem}, {', '.join(systems)}", file=sys.stderr)
        command = [self.program, "run", str(file), "--systems", ",".join(systems), "--seeds", str(seeds)]
        command += ["--out", str(self.out / "runs"), "--quiet"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if done.returncode not in (0, 10):
            sys.exit(f"{' '.join(command)}: exit code {done.returncode}")

    def _may_begin(self):
        if time.monotonic() >= self.deadline:
            raise TimeIsOver

    def _measure_traced(self, file, scenario, system, congestion, trace):
        """Repeats the first seed with a trace of all MPTCP subflows on the machine."""
        self._may_begin()
        trace.parent.mkdir(parents=True, exist_ok=True)
        raw = trace.with_suffix(".csv")
        raw.unlink(missing_ok=True)
        self._run_file(scenario, 1, system).unlink(missing_ok=True)
        tracer = subprocess.Popen([self.program, "cc", "trace", "--mptcp", "--out", str(raw), "--json"], stdout=subprocess.PIPE)
        while not raw.exists():
            if tracer.poll() is not None:
                sys.exit(f"the trace ended with exit code {tracer.returncode}")
            time.sleep(0.05)
        self._lab(file, [system], 1)
        tracer.send_signal(signal.SIGINT)
        account = json.loads(tracer.communicate()[0])
        measured = {"lost": account["lost"], "links": thinned(raw, congestion)}
        trace.write_text(json.dumps(measured))
        raw.unlink()

    def _trace_file(self, scenario, system):
        return self.out / "traces" / f"{scenario}-{system.replace(':', '-')}.json"

    def _run_file(self, scenario, seed, system):
        return self.out / "runs" / scenario / f"seed-{seed}" / f"{system.replace(':', '-')}.json"

    def _read(self, scenario, seed, system):
        run = json.loads(self._run_file(scenario, seed, system).read_text())
        outcome = run["outcome"]
        if outcome["kind"] != "measured":
            sys.exit(f"{scenario}, seed {seed}, {system}: {outcome['kind']}: {outcome['reason']}")
        return outcome


def newer(result, file):
    """Whether a result exists and is newer than its source file."""
    return result.exists() and result.stat().st_mtime > file.stat().st_mtime


def thinned(path, congestion):
    """For each link's subflow in the server's direction: columns of values with a point for each
    STEP.

    Other programs on the machine may use MPTCP, too: of the connections with this congestion control, the one with most
    records counts.
    """
    connections = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            ours = row["congestion"] in (congestion, SYSTEM_NAMES.get(congestion, f"sl_{congestion}"))
            if ours and row["local"].startswith(SENDER) and LINK.match(row["remote"]):
                connections.setdefault(row["mptcp_token"], []).append(row)
    rows = max(connections.values(), key=len)
    points = {}
    began = float(rows[0]["time_s"])
    for row in rows:
        now = float(row["time_s"])
        bins = points.setdefault(int(LINK.match(row["remote"]).group(1)), {})
        point = bins.setdefault(int((now - began) / STEP), {"peak_ms": 0.0})
        srtt = float(row["srtt_us"]) / 1e3
        point.update(
            cwnd=int(row["cwnd"]),
            ssthresh=int(row["ssthresh"]) if row["ssthresh"] else None,
            srtt_ms=round(srtt, 2),
            rto_ms=round(float(row["rto_us"]) / 1e3, 1),
            delivered=int(row["delivered"]),
            peak_ms=round(max(point["peak_ms"], srtt), 2),
        )
    return {link: columns(bins) for link, bins in sorted(points.items())}


def columns(bins):
    """The points' values as columns in order of time."""
    table = {"time_s": [round(index * STEP, 3) for index in sorted(bins)]}
    for name in ("cwnd", "ssthresh", "srtt_ms", "peak_ms", "rto_ms", "delivered"):
        table[name] = [bins[index][name] for index in sorted(bins)]
    return table


def mbit(measurement):
    """Total goodput in Mbit/s."""
    return measurement["goodput_bps"] / 1e6


def by_link(measurement, names):
    """Downward Mbit/s of each link: its bound flow, or its payload."""
    bound = {flow["link"]: flow["goodput_bps"] / 1e6 for flow in measurement["flows"] if flow["link"]}
    if bound:
        return [bound[name] for name in names]
    carried = {
        link["link"]: link["wire_bytes"] * PAYLOAD * 8 / measurement["duration_s"] / 1e6
        for link in measurement["links"]
        if link["direction"] == "down"
    }
    return [carried[name] for name in names]
