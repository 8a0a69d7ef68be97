"""Measures figures of the papers again and writes docs/results/papers.

    scripts/papers PROGRAM [--only PART] [--minutes N] [--out FOLDER]
    scripts/papers --draw [--only PART]

What was measured before is in FOLDER (lab-out/papers) and is not measured again, unless its scenario has changed since. Each
part (cs218, fairness, whitehaul) draws its pictures, writes the data behind them as JSON, and puts its tables into its page,
between marks, once all its runs are there. After N minutes no further run begins, and the same command goes on with the rest.
With --draw nothing is measured: pictures and tables are made again from the data in docs/results/papers.
The laboratory needs root, for our congestion controls, and a machine that does little else.

Exit codes: 0 all that was asked for is written, 1 something could not be run, 3 the minutes are over before that.
"""

import argparse
import json
import math
import pathlib
import sys
import time

import cs218
import fairness
import runs
import whitehaul

PARTS = {part.PAGE: part for part in (cs218, fairness, whitehaul)}

UNFINISHED = 3


def minutes(text):
    """A number of minutes, above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def put(page, tables):
    """Replaces what stands between the marks of each table."""
    text = page.read_text()
    for name, table in tables.items():
        first, last = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        if text.count(first) != 1 or text.count(last) != 1:
            sys.exit(f"{page}: the marks {first} and {last} are not there once each")
        before, rest = text.split(first)
        after = rest.split(last)[1]
        text = f"{before}{first}\n{table}\n{last}{after}"
    page.write_text(text)


def main():
    parser = argparse.ArgumentParser(prog="papers", description="Measures figures of the papers again.")
    parser.add_argument("program", nargs="?", help="the program sumlink-lab, whose client and server are measured")
    parser.add_argument("--draw", action="store_true", help="draw the pictures again from the data in docs/results/papers; measure nothing")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--minutes", type=minutes, default=math.inf, help="after so many minutes no further run begins; the same command goes on")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("lab-out/papers"), help="where runs are kept")
    args = parser.parse_args()
    if (args.program is None) != args.draw:
        parser.error("give a PROGRAM to measure, or --draw without one")
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    bench = None if args.draw else runs.Bench(args.program, root / "scenarios" / "papers", args.out, time.monotonic() + 60 * args.minutes)
    folder = root / "docs" / "results" / "papers"
    for name, part in PARTS.items():
        if args.only in (None, name):
            try:
                data = json.loads((folder / f"{name}.json").read_text()) if args.draw else part.measure(bench)
            except runs.TimeIsOver:
                print(f"papers: {args.minutes:g} minutes are over, {name} is not complete: the same command goes on", file=sys.stderr)
                return UNFINISHED
            put(folder / f"{name}.md", part.write(data, folder))
            print(f"papers: {name} is written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
