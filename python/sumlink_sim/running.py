"""Runs, on one or all cores."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path as FilePath
from typing import Any

from . import _native
from .errors import RunError, ScenarioError
from .own import CongestionControl, Scheduler
from .results import Results, Run, parse
from .scenario import Scenario

Source = Scenario | Mapping[str, Any] | str | os.PathLike[str]
"""Sources of scenarios: a file path, a dict, or a scenario."""
Schedulers = Mapping[str, type[Scheduler]]
CongestionControls = Mapping[str, type[CongestionControl]]


def run(
    scenario: Source,
    systems: Sequence[str] | None = None,
    seeds: int | Iterable[int] | None = None,
    *,
    schedulers: Schedulers | None = None,
    congestion_controls: CongestionControls | None = None,
    jobs: int | None = None,
    trace: str | os.PathLike[str] | None = None,
) -> Results:
    """Runs a scenario with every system and seed.

    Args:
        scenario: a file, a dict (see :class:`Scenario`), or a scenario.
        systems: names as in `sumlink-lab sim run --systems` (`alone`, `simultaneous`, `mptcp`,
            `sumlink:SCHEDULER[:CLASS=SCHEDULER]...[+CONGESTION[+CARRIERS]]`); None: the scenario's own.
        seeds: their number (seeds 1, 2, ...) or a list; None: the scenario's number.
        schedulers: custom classes by name: letters, digits and `_`, at most 15.
        congestion_controls: the same.
        jobs: parallel runs; None: one per processor. Runs hold Python's lock only while they call a
            custom class; with custom classes, runs take turns (a sweep uses processes instead).
        trace: a directory for the sessions' decisions as JSON lines, as with `sumlink-lab sim run --trace`.

    Returns:
        One run for each seed and system, in that order; the same arguments give identical results.

    Raises:
        ScenarioError: an argument is invalid; nothing was run.
        RunError: a custom class raised an exception or returned an invalid value; `results` has the
            completed runs.
    """
    read = as_scenario(scenario)
    own = Own(schedulers or {}, congestion_controls or {})
    names = read.systems if systems is None else check_systems(systems, own)
    numbers = check_seeds(read.seeds if seeds is None else seeds)
    directory = FilePath(trace) if trace is not None else None
    if directory is not None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ScenarioError(f"trace: cannot write to {directory}: {error.strerror}") from error
    plan = [(seed, system) for seed in numbers for system in names]
    done: list[Run] = []
    with ThreadPoolExecutor(check_jobs(jobs)) as pool:
        waiting: list[Future[Run]] = [
            pool.submit(run_one, read, system, seed, own, directory) for seed, system in plan
        ]
        try:
            for future in waiting:
                done.append(future.result())
        except RunError as error:
            error.results = Results(done)
            raise
        except KeyboardInterrupt:
            # Runs may take long, and a class may never return.
            _native.interrupt()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return Results(done)


class Own:
    """Validated custom classes."""

    def __init__(self, schedulers: Schedulers, congestion_controls: CongestionControls) -> None:
        self.schedulers = dict(schedulers)
        self.congestion = dict(congestion_controls)
        _check(self.schedulers, Scheduler, "schedulers", _native.scheduler_names())
        _check(self.congestion, CongestionControl, "congestion_controls", _native.congestion_names())

    def __bool__(self) -> bool:
        return bool(self.schedulers or self.congestion)


def _check(classes: Mapping[str, type], base: type, argument: str, known: Sequence[str]) -> None:
    for name, own in classes.items():
        place = f"{argument}[{name!r}]"
        if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9_]{1,15}", name):
            raise ScenarioError(f"{place}: a name must have 1 to 15 letters, digits or '_'")
        if name in known:
            raise ScenarioError(f"{place}: this name is built in; choose another")
        if not (isinstance(own, type) and issubclass(own, base)):
            raise ScenarioError(f"{place}: give a class derived from sumlink_sim.{base.__name__}, not {own!r}")


def as_scenario(source: Source) -> Scenario:
    """A scenario from any source."""
    if isinstance(source, Scenario):
        return source
    if isinstance(source, Mapping):
        return Scenario(source)
    return Scenario.load(source)


def check_systems(systems: Sequence[str], own: Own) -> list[str]:
    """Checks names of systems."""
    if isinstance(systems, str):
        raise ScenarioError(f"systems: give a list, such as [{systems!r}]")
    names = list(systems)
    if not names:
        raise ScenarioError("systems: the list is empty, so nothing would be run")
    for name in names:
        if names.count(name) > 1:
            raise ScenarioError(f"systems: {name!r} is repeated")
        try:
            _native.check_system(name, list(own.schedulers))
        except (ValueError, TypeError) as error:
            raise ScenarioError(f"systems: {error}") from None
        carriers = name.split("+")[1] if name.startswith("sumlink:") and "+" in name else "cubic"
        check_congestion(carriers, own, f"systems, {name}")
    return names


def check_congestion(name: str, own: Own, place: str) -> None:
    """Checks the name of a congestion control."""
    known = [*_native.congestion_names(), *own.congestion]
    if name not in known and name != "auto":
        raise ScenarioError(f"{place}: the simulator has no congestion control {name!r} (available: {', '.join(known)})")


def check_seeds(seeds: int | Iterable[int]) -> list[int]:
    """Checks the seeds; returns a list without duplicates."""
    if isinstance(seeds, bool) or not isinstance(seeds, (int, Iterable)):
        raise ScenarioError(f"seeds: {seeds!r}, but must be a number from 1 to 100000, or a list of seeds")
    if isinstance(seeds, int):
        if not 1 <= seeds <= 100_000:
            raise ScenarioError(f"seeds: {seeds}, but must be a number from 1 to 100000, or a list of seeds")
        return list(range(1, seeds + 1))
    numbers = list(seeds)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 63:
            raise ScenarioError(f"seeds: {number!r} is not a whole number from 0 to 2^63 - 1")
    if not numbers or len(set(numbers)) < len(numbers):
        raise ScenarioError("seeds: the list is empty" if not numbers else "seeds: a seed is repeated")
    return numbers


def check_jobs(jobs: int | None) -> int:
    """Checks the number of parallel runs."""
    if jobs is None:
        return len(os.sched_getaffinity(0))
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ScenarioError(f"jobs: {jobs!r}, but must be a whole number of at least 1")
    return jobs


def run_one(scenario: Scenario, system: str, seed: int, own: Own, trace: FilePath | None = None) -> Run:
    """Performs one run. A RunError names scenario, seed, system, time and method."""
    file = None
    if trace is not None:
        file = str(trace / f"{scenario.name}-seed-{seed}-{system.replace(':', '-')}.jsonl")
    text, reason, raised = _native.run(scenario._inner, system, seed, own.schedulers, own.congestion, file)
    if file is not None and not os.path.getsize(file):
        # The system does not report the value.
        os.remove(file)
    if reason is None:
        return parse(text)
    # Only the user's Ctrl-C passes through; a class that calls sys.exit is an error.
    if isinstance(raised, KeyboardInterrupt):
        raise raised
    at = parse(text)["outcome"].get("reason", reason)
    raise RunError(f"scenario {scenario.name}, seed {seed}, system {system}, at {at}") from raised
