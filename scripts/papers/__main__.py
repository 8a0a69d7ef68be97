"""Measures figures of the papers again and writes docs/results/papers.

    scripts/papers PROGRAM [--only PART] [--out FOLDER]

What was measured before is in FOLDER (lab-out/papers) and is not measured again. Each part (fairness, whitehaul, cs218) draws
its pictures, writes the data behind them as JSON, and puts its tables into its page, between marks. The laboratory needs
root, for our congestion controls, and a machine that does little else. Exit code 1: something could not be run.
"""

import argparse
import pathlib
import sys

import cs218
import fairness
import runs
import whitehaul

PARTS = {part.PAGE: part for part in (fairness, whitehaul, cs218)}


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
    parser.add_argument("program", help="the sumlink program that is measured")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("lab-out/papers"), help="where runs are kept")
    args = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    bench = runs.Bench(args.program, root / "scenarios" / "papers", args.out)
    folder = root / "docs" / "results" / "papers"
    for name, part in PARTS.items():
        if args.only in (None, name):
            put(folder / f"{name}.md", part.write(part.measure(bench), folder))


if __name__ == "__main__":
    main()
