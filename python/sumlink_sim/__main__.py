"""`sumlink-sim sweep`: sweeps from the command line."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tomllib
from typing import Any

from . import __version__, sweep
from .errors import RunError, ScenarioError

EXAMPLE = """\
example:
  sumlink-sim sweep scenarios/unequal-queue.toml --grid link.slow.rate=1mbit,5mbit,20mbit --grid link.slow.queue=50ms,400ms \\
      --systems alone,sumlink:fbdt,sumlink:minrtt --seeds 3 --out sweep

exit codes:
  0 all runs are done    1 they ended early, what is done is kept    2 something asked for makes no sense    130 interrupted"""


def main(arguments: list[str] | None = None) -> int:
    """The program; returns its exit code."""
    args = _parser().parse_args(arguments)
    try:
        done = sweep(
            args.file,
            _grid(args.grid),
            args.systems.split(",") if args.systems else None,
            args.seeds,
            out=args.out,
            schedulers=_classes(args.scheduler, "--scheduler"),
            congestion_controls=_classes(args.congestion_control, "--congestion-control"),
            jobs=args.jobs,
            dask=args.dask,
            progress=_show if sys.stderr.isatty() else None,
        )
    except ScenarioError as error:
        return _fail(2, error)
    except (RunError, OSError) as error:
        return _fail(1, error)
    except KeyboardInterrupt:
        return _fail(130, f"interrupted; the runs so far are in {args.out}, and the same command goes on")
    print(_table(done))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sumlink-sim", description="The simulator of sumlink.")
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser(
        "sweep",
        help="a grid over a scenario's parameters, times systems, times seeds",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.add_argument("file", metavar="FILE", help="a scenario")
    verb.add_argument(
        "--grid", action="append", default=[], metavar="KEY=V1,V2", help="values of a key; several keys: every combination"
    )
    verb.add_argument("--systems", metavar="NAME,NAME", help="only these systems, also ones that the scenario does not name")
    verb.add_argument("--seeds", type=int, metavar="N", help="so many seeds instead of the scenario's own number")
    verb.add_argument("--jobs", type=int, metavar="N", help="runs at once; without it as many as there are processors")
    verb.add_argument("--out", required=True, metavar="DIR", help="where the results go; a sweep that is there goes on")
    verb.add_argument("--dask", metavar="ADDRESS", help="an existing Dask cluster makes the runs")
    for kind in ("scheduler", "congestion-control"):
        verb.add_argument(
            f"--{kind}", action="append", default=[], metavar="NAME=MODULE:CLASS", help=f"a {kind} of your own".replace("-", " ")
        )
    return parser


def _grid(given: list[str]) -> dict[str, list[Any]]:
    grid: dict[str, list[Any]] = {}
    for text in given:
        key, equals, values = text.partition("=")
        if not equals or not key:
            raise ScenarioError(f"--grid {text}: write KEY=V1,V2, such as link.wifi.rate=10mbit,50mbit")
        if key in grid:
            raise ScenarioError(f"--grid {text}: {key} is there twice")
        grid[key] = [_value(value) for value in values.split(",") if value]
    return grid


def _value(text: str) -> Any:
    """A number, true or false as TOML has them; everything else is text, as is what stands in quotes."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, (bool, int, float, str)) else text


def _classes(given: list[str], option: str) -> dict[str, Any]:
    classes: dict[str, Any] = {}
    for text in given:
        name, _, place = text.partition("=")
        module, _, own = place.partition(":")
        if not (name and module and own):
            raise ScenarioError(f"{option} {text}: write NAME=MODULE:CLASS")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            classes[name] = getattr(importlib.import_module(module), own)
        except (ImportError, AttributeError) as error:
            raise ScenarioError(f"{option} {text}: {error}") from None
    return classes


def _table(done: Any) -> str:
    """Median goodput in Mbit/s: a row for each point of the grid, a column for each system."""
    runs = done.runs
    keys = [column for column in runs.columns[3 : list(runs.columns).index("outcome")]]
    runs = runs.assign(mbit=runs["goodput_bps"] / 1e6)
    table = runs.pivot_table(index=keys, columns="system", values="mbit", aggfunc="median", sort=False)
    counts = ", ".join(f"{number} {kind}" for kind, number in runs["outcome"].value_counts().items())
    return f"{table.round(2).to_string()}\n\nmedian goodput in Mbit/s; {counts}: {done.directory}"


def _show(done: int, of: int) -> None:
    print(f"\r{done} of {of} runs", end="\n" if done == of else "", file=sys.stderr, flush=True)


def _fail(code: int, error: object) -> int:
    print(f"sumlink-sim: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
