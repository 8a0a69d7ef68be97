#!/usr/bin/env python3
"""Runs the scenarios of scenarios/validate in the laboratory and in the simulator, and compares
goodput.

    scripts/validate.py PROGRAM [DOCUMENT]

Prints a table; with a DOCUMENT, the table replaces the text between its two marks. The machine should be otherwise idle,
and must meet the requirements of `sumlink-lab run`.

Exit codes: 1 if a row differs by more than 5 % without a known cause, or by more than its known cause permits; 2 if a
scenario did not run.
"""

import datetime
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

TOLERANCE = 0.05
MARKS = ("<!-- validate: begin -->", "<!-- validate: end -->")

# Known differences: the permitted range of simulated over measured goodput, and the reason.
NAMED = {
    "loss": (0.90, 1.10, "the windows of the lossy link hold a few packets, so single timers decide; it gets 20 to 25 % more"),
}


def goodput(command):
    """Runs a command and collects goodput in Mbit/s from its JSON lines, by scenario and system."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        fail(f"{' '.join(command)}: exit code {done.returncode}")
    found = {}
    for line in done.stdout.splitlines():
        run = json.loads(line)
        if run["outcome"] != "measured":
            fail(f"{run['scenario']}, {run['system']}: {run['outcome']}: {run['reason']}")
        key = (run["scenario"].removeprefix("validate-"), run["system"])
        found.setdefault(key, []).append(run["goodput_bps"] / 1e6)
    return found


def fail(message):
    print(message, file=sys.stderr)
    sys.exit(2)


def verdict(name, ratio):
    """The text of a row's last column, and whether the difference is permitted."""
    low, high, cause = NAMED.get(name, (1 - TOLERANCE, 1 + TOLERANCE, ""))
    if abs(ratio - 1) <= TOLERANCE:
        return "", True
    if low <= ratio <= high:
        return cause, True
    return "**outside, without a known cause**" if name not in NAMED else f"**outside {low} to {high}**: {cause}", False


def table(simulated, measured):
    """The table in Markdown, and whether every difference is permitted."""
    lines = [
        "| scenario | system | seeds | simulated | measured (min to max) | ratio | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    holds = True
    for (name, system), real in sorted(measured.items()):
        virtual = statistics.median(simulated[name, system])
        middle = statistics.median(real)
        said, may_stand = verdict(name, virtual / middle)
        holds &= may_stand
        spread = f" ({min(real):.1f} to {max(real):.1f})" if len(real) > 1 else ""
        lines.append(
            f"| {name} | {system} | {len(real)} | {virtual:.1f} | {middle:.1f}{spread} | {virtual / middle:.2f} | {said} |"
        )
    kernel = ".".join(platform.release().split(".")[:2])
    lines += ["", f"Measured on {datetime.date.today()} with Linux {kernel}."]
    return "\n".join(lines), holds


def put(document, text):
    """Replaces the text between the marks of a document."""
    path = pathlib.Path(document)
    before, first, rest = path.read_text().partition(MARKS[0])
    _, last, after = rest.partition(MARKS[1])
    if not first or not last:
        fail(f"{document}: the marks {' and '.join(MARKS)} are missing")
    path.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}")


def main():
    if len(sys.argv) not in (2, 3):
        fail(__doc__.strip().splitlines()[2].strip())
    program = sys.argv[1]
    root = pathlib.Path(__file__).parent.parent
    files = sorted(str(path) for path in (root / "scenarios" / "validate").glob("*.toml"))
    with tempfile.TemporaryDirectory() as kept:
        simulated = goodput([program, "sim", "run", *files, "--json"])
        measured = goodput([program, "run", *files, "--quiet", "--json", "--out", f"{kept}/lab"])
    if simulated.keys() != measured.keys():
        fail(f"laboratory and simulator ran different scenarios: {simulated.keys() ^ measured.keys()}")
    text, holds = table(simulated, measured)
    print(text)
    if len(sys.argv) == 3:
        put(sys.argv[2], text)
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
