"""Repeats measurements of the papers and writes docs/results/papers.

    scripts/papers PROGRAM [--only PART[/ROW]] [--again] [--seeds N] [--minutes N] [--out FOLDER]
    scripts/papers --draw [--only PART[/ROW]]
    scripts/papers --list

FOLDER (lab-out/papers) keeps completed runs, which are not repeated unless their scenario has changed, or with --again.
--list shows the parts, and the rows of those that can be remade row by row. When all runs of a part are complete, it draws its pictures, writes their data as JSON, and inserts its tables
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
import fbdt
import runs
import selection
import whitehaul
import whitehaul_long

# By the name of their data: a part without a name of its own has that of its page.
PARTS = {getattr(part, "NAME", part.PAGE): part for part in (cs218, fairness, fbdt, selection, whitehaul, whitehaul_long)}

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


def names():
    """Parts, and with a slash the rows of those that have some, with descriptions."""
    listed = {name: (part.__doc__ or "").splitlines()[0] for name, part in PARTS.items()}
    for name, part in PARTS.items():
        listed |= {f"{name}/{row}": about for row, about in getattr(part, "rows", dict)().items()}
    return listed


def make(name, row, bench, folder, args):
    """Measures or reads the data of a part or of one row, and draws its pictures; returns its
    tables."""
    part, file = PARTS[name], folder / f"{name}.json"
    kept = json.loads(file.read_text()) if file.exists() else None
    if not hasattr(part, "rows"):
        return part.write(kept if args.draw else part.measure(bench), folder)
    return part.write(kept if args.draw else part.measure(bench, row, kept, args.again, args.seeds), folder, row)


def main():
    parser = argparse.ArgumentParser(prog="papers", description="Repeats measurements of the papers.")
    parser.add_argument("program", nargs="?", help="the program sumlink-lab; its client and server are measured")
    parser.add_argument("--draw", action="store_true", help="redraw the pictures from the data in docs/results/papers without measuring")
    parser.add_argument("--only", choices=names(), metavar="PART[/ROW]", help="measure one part, or one row of a part")
    parser.add_argument("--list", action="store_true", help="list parts and rows")
    parser.add_argument("--again", action="store_true", help="with --only PART/ROW: repeat completed simulations, too")
    parser.add_argument("--seeds", type=int, choices=range(1, 21), metavar="N", help="at most this many seeds of each simulation; 1 to 20")
    parser.add_argument("--minutes", type=minutes, default=math.inf, help="start no run after this time; the same command continues")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("lab-out/papers"), help="directory of the runs")
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{name:32}{about}" for name, about in names().items()))
        return 0
    if (args.program is None) != args.draw:
        parser.error("PROGRAM or --draw is required")
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    bench = None if args.draw else runs.Bench(args.program, root / "scenarios" / "papers", args.out, time.monotonic() + 60 * args.minutes)
    folder = root / "docs" / "results" / "papers"
    only, _, row = (args.only or "").partition("/")
    for name, part in PARTS.items():
        if only in ("", name):
            try:
                tables = make(name, row or None, bench, folder, args)
            except runs.TimeIsOver:
                print(f"papers: {args.minutes:g} minutes are over and {name} is incomplete; the same command continues", file=sys.stderr)
                return UNFINISHED
            put(folder / f"{part.PAGE}.md", tables)
            print(f"papers: {name} is written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
