"""Repeats measurements of the papers and writes docs/results/papers.

    scripts/papers PROGRAM [--only PART] [--minutes N] [--out FOLDER]
    scripts/papers --draw [--only PART]

FOLDER (lab-out/papers) keeps completed runs, which are not repeated unless their scenario has changed. When all runs of a
part (cs218, fairness, selection, whitehaul) are complete, it draws its pictures, writes their data as JSON, and inserts its tables
between the marks of its page. After N minutes no further run starts; the same command continues with the rest. With
--draw, pictures and tables are rebuilt from the data in docs/results/papers. The laboratory needs root, for sumlink's
congestion controls, and an otherwise idle machine.

Exit codes: 0 success, 1 a run failed, 3 the time is over before completion.
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
import selection
import whitehaul

PARTS = {part.PAGE: part for part in (cs218, fairness, selection, whitehaul)}

UNFINISHED = 3


def minutes(text):
    """Parses a number of minutes above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def put(page, tables):
    """Replaces the text between the marks of each table."""
    text = page.read_text()
    for name, table in tables.items():
        first, last = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        if text.count(first) != 1 or text.count(last) != 1:
            sys.exit(f"{page}: the marks {first} and {last} must each occur once")
        before, rest = text.split(first)
        after = rest.split(last)[1]
        text = f"{before}{first}\n{table}\n{last}{after}"
    page.write_text(text)


def main():
    parser = argparse.ArgumentParser(prog="papers", description="Repeats measurements of the papers.")
    parser.add_argument("program", nargs="?", help="the program sumlink-lab; its client and server are measured")
    parser.add_argument("--draw", action="store_true", help="redraw the pictures from the data in docs/results/papers without measuring")
    parser.add_argument("--only", choices=PARTS, help="measure one part")
    parser.add_argument("--minutes", type=minutes, default=math.inf, help="start no run after this time; the same command continues")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("lab-out/papers"), help="directory of the runs")
    args = parser.parse_args()
    if (args.program is None) != args.draw:
        parser.error("PROGRAM or --draw is required")
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    bench = None if args.draw else runs.Bench(args.program, root / "scenarios" / "papers", args.out, time.monotonic() + 60 * args.minutes)
    folder = root / "docs" / "results" / "papers"
    for name, part in PARTS.items():
        if args.only in (None, name):
            try:
                data = json.loads((folder / f"{name}.json").read_text()) if args.draw else part.measure(bench)
            except runs.TimeIsOver:
                print(f"papers: {args.minutes:g} minutes are over and {name} is incomplete; the same command continues", file=sys.stderr)
                return UNFINISHED
            put(folder / f"{name}.md", part.write(data, folder))
            print(f"papers: {name} is written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
