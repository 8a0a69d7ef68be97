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
  0 all runs completed
  1 the runs ended early; completed runs are shown
  2 invalid argument or scenario
  130 interrupted"""

SWEEP_EXAMPLE = """\
example:
  sumlink-sim sweep scenarios/unequal-queue.toml --grid link.slow.rate=1mbit,5mbit,20mbit --grid link.slow.queue=50ms,400ms \\
      --systems alone,sumlink:fbdt,sumlink:minrtt --seeds 3 --out sweep

exit codes:
  0 all runs completed
  1 the runs ended early; completed runs are kept
  2 invalid argument or scenario
  130 interrupted"""


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
    """Loads a scenario; an unreadable file counts as an invalid one."""
    try:
        return Scenario.load(file)
    except OSError as error:
        raise ScenarioError(f"cannot read the scenario: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    """The system's message without its number: file, then reason."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def _own(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The custom classes in the form of the functions' arguments."""
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
        "run", help="run scenarios with custom classes beside other systems", epilog=RUN_EXAMPLE, formatter_class=raw
    )
    verb.set_defaults(verb=_run, interrupted="interrupted")
    verb.add_argument(
        "files", metavar="FILE", nargs="+", help="a scenario; runs its systems, and sumlink with each custom scheduler"
    )
    verb.add_argument("--trace", metavar="DIR", help="write the decisions of sumlink's sessions, for each run")
    _common(verb)
    verb = verbs.add_parser(
        "sweep", help="run a grid over a scenario's parameters, for each system and seed", epilog=SWEEP_EXAMPLE, formatter_class=raw
    )
    verb.set_defaults(verb=_sweep, interrupted="interrupted; completed runs are in {out}, and the same command continues")
    verb.add_argument("file", metavar="FILE", help="a scenario")
    verb.add_argument(
        "--grid", action="append", default=[], metavar="KEY=V1,V2", help="values of a key; several keys give every combination"
    )
    verb.add_argument("--out", required=True, metavar="DIR", help="directory of the results; an existing sweep continues")
    verb.add_argument("--dask", metavar="ADDRESS", help="use an existing Dask cluster")
    _common(verb)
    return parser


def _common(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--systems", metavar="NAME,NAME", help="use these systems instead of the scenario's")
    verb.add_argument("--seeds", type=int, metavar="N", help="number of seeds; default: the scenario's")
    verb.add_argument("--jobs", type=int, metavar="N", help="parallel runs; default: one per processor")
    for kind in ("scheduler", "congestion-control"):
        verb.add_argument(
            f"--{kind}", action="append", default=[], metavar="NAME=MODULE:CLASS", help=f"a custom {kind}".replace("-", " ")
        )


def _grid(given: list[str]) -> dict[str, list[Any]]:
    grid: dict[str, list[Any]] = {}
    for text in given:
        key, equals, values = text.partition("=")
        if not equals or not key:
            raise ScenarioError(f"--grid {text}: use KEY=V1,V2, such as link.wifi.rate=10mbit,50mbit")
        if key in grid:
            raise ScenarioError(f"--grid {text}: {key} is repeated")
        grid[key] = [_value(value) for value in values.split(",") if value]
    return grid


def _value(text: str) -> Any:
    """Parses a number, true or false as in TOML; other and quoted values are text."""
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
            raise ScenarioError(f"{option} {text}: use NAME=MODULE:CLASS")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            classes[name] = getattr(importlib.import_module(module), own)
        except (ImportError, AttributeError) as error:
            raise ScenarioError(f"{option} {text}: {error}") from None
    return classes


def _goodput(results: Results) -> str:
    """The scenario's name, and goodput in Mbit/s with a row for each system."""
    runs = results.runs
    lines = []
    for system, own in runs.groupby("system", sort=False):
        measured = own["goodput_bps"].dropna() / 1e6
        reasons = own["reason"].dropna()
        figures = [measured.median(), measured.min(), measured.max()]
        row = "".join(f"{figure:10.2f}" for figure in figures) if len(measured) else f"  {reasons.iloc[0]}"
        lines.append(f"{system:<24} {len(measured):4}{row}")
    head = f"{'system':<24} {'runs':>4}{'median':>10}{'min':>10}{'max':>10}  Mbit/s"
    return "\n".join([f"{runs['scenario'].iloc[0]}", head, *lines])


def _table(done: Any) -> str:
    """Median goodput in Mbit/s, with a row for each point of the grid and a column for each
    system."""
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
