"""`sumlink-sim run` and `sumlink-sim sweep`: runs and sweeps from the command line."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tomllib
from collections.abc import Callable
from typing import Any

from . import __version__, run, sweep
from .errors import RunError, ScenarioError
from .results import Results
from .running import Own, check_systems
from .scenario import Scenario

RUN_EXAMPLE = """\
example, with a class Mine in mine.py:
  sumlink-sim run scenarios/unequal-queue.toml --scheduler mine=mine:Mine

exit codes:
  0 all runs are done    1 they ended early, what is done is shown    2 something asked for makes no sense    130 interrupted"""

SWEEP_EXAMPLE = """\
example:
  sumlink-sim sweep scenarios/unequal-queue.toml --grid link.slow.rate=1mbit,5mbit,20mbit --grid link.slow.queue=50ms,400ms \\
      --systems alone,sumlink:fbdt,sumlink:minrtt --seeds 3 --out sweep

exit codes:
  0 all runs are done    1 they ended early, what is done is kept    2 something asked for makes no sense    130 interrupted"""


def main(arguments: list[str] | None = None) -> int:
    """The program; returns its exit code."""
    args = _parser().parse_args(arguments)
    try:
        verb: Callable[[argparse.Namespace], None] = args.verb
        verb(args)
    except ScenarioError as error:
        return _fail(2, error)
    except RunError as error:
        return _fail(1, error)
    except OSError as error:
        return _fail(1, _reason(error))
    except KeyboardInterrupt:
        return _fail(130, args.interrupted.format(**vars(args)))
    return 0


def _run(args: argparse.Namespace) -> None:
    own = _own(args)
    scenarios = [_load(file) for file in args.files]
    asked = args.systems.split(",") if args.systems else None
    mine = [f"sumlink:{name}" for name in own["schedulers"]]
    # All arguments are checked before the first run.
    plans = [(one, asked or [*mine, *(name for name in one.systems if name not in mine)]) for one in scenarios]
    checked = Own(**own)
    for _, systems in plans:
        check_systems(systems, checked)
    for scenario, systems in plans:
        try:
            print(_goodput(run(scenario, systems, args.seeds, jobs=args.jobs, trace=args.trace, **own)))
        except RunError as error:
            if error.results:
                print(_goodput(error.results))
            raise


def _sweep(args: argparse.Namespace) -> None:
    done = sweep(
        _load(args.file),
        _grid(args.grid),
        args.systems.split(",") if args.systems else None,
        args.seeds,
        out=args.out,
        jobs=args.jobs,
        dask=args.dask,
        progress=_show if sys.stderr.isatty() else None,
        **_own(args),
    )
    print(_table(done))


def _load(file: str) -> Scenario:
    """The scenario in a file. One that cannot be read makes no more sense than one that is wrong."""
    try:
        return Scenario.load(file)
    except OSError as error:
        raise ScenarioError(f"cannot read the scenario: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    """What the system said, without its number: the file, then why."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def _own(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The classes of the caller's own, as the functions take them."""
    return {
        "schedulers": _classes(args.scheduler, "--scheduler"),
        "congestion_controls": _classes(args.congestion_control, "--congestion-control"),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sumlink-sim", description="The simulator of sumlink.")
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    raw = argparse.RawDescriptionHelpFormatter
    verb = verbs.add_parser(
        "run", help="scenarios with classes of your own beside other systems", epilog=RUN_EXAMPLE, formatter_class=raw
    )
    verb.set_defaults(verb=_run, interrupted="interrupted")
    verb.add_argument(
        "files", metavar="FILE", nargs="+", help="a scenario: its systems are run, and sumlink with each scheduler of your own"
    )
    verb.add_argument("--trace", metavar="DIR", help="write what sumlink's sessions decide, for each run")
    _common(verb)
    verb = verbs.add_parser(
        "sweep", help="a grid over a scenario's parameters, times systems, times seeds", epilog=SWEEP_EXAMPLE, formatter_class=raw
    )
    verb.set_defaults(verb=_sweep, interrupted="interrupted; the runs so far are in {out}, and the same command goes on")
    verb.add_argument("file", metavar="FILE", help="a scenario")
    verb.add_argument(
        "--grid", action="append", default=[], metavar="KEY=V1,V2", help="values of a key; several keys: every combination"
    )
    verb.add_argument("--out", required=True, metavar="DIR", help="where the results go; a sweep that is there goes on")
    verb.add_argument("--dask", metavar="ADDRESS", help="an existing Dask cluster makes the runs")
    _common(verb)
    return parser


def _common(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--systems", metavar="NAME,NAME", help="only these systems, also ones that the scenario does not name")
    verb.add_argument("--seeds", type=int, metavar="N", help="so many seeds instead of the scenario's own number")
    verb.add_argument("--jobs", type=int, metavar="N", help="runs at once; without it as many as there are processors")
    for kind in ("scheduler", "congestion-control"):
        verb.add_argument(
            f"--{kind}", action="append", default=[], metavar="NAME=MODULE:CLASS", help=f"a {kind} of your own".replace("-", " ")
        )


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


def _goodput(results: Results) -> str:
    """The scenario's name, and goodput in Mbit/s: a row for each system, in their order."""
    runs = results.runs
    lines = []
    for system, own in runs.groupby("system", sort=False):
        measured = own["goodput_bps"].dropna() / 1e6
        reasons = own["reason"].dropna()
        figures = [measured.median(), measured.min(), measured.max()]
        row = "".join(f"{figure:10.2f}" for figure in figures) if len(measured) else f"  {reasons.iloc[0]}"
        lines.append(f"{system:<24} {len(measured):4}{row}")
    head = f"{'system':<24} {'runs':>4}{'median':>10}{'least':>10}{'most':>10}  Mbit/s"
    return "\n".join([f"{runs['scenario'].iloc[0]}", head, *lines])


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
