"""Sweeps: a grid over a scenario's parameters, for each system and seed."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import cloudpickle
import pandas as pd
import pyarrow.parquet as pq

from . import _native
from .errors import RunError, ScenarioError
from .journal import Journal, Task, write_tables
from .results import COLUMNS, Frames, Run
from .running import (
    CongestionControls,
    Own,
    Schedulers,
    Source,
    as_scenario,
    check_congestion,
    check_jobs,
    check_seeds,
    check_systems,
)
from .scenario import Scenario
from .workers import Payload, on_dask, on_processes, on_threads

Progress = Callable[[int, int], None]


def sweep(
    scenario: Source,
    grid: Mapping[str, Sequence[Any]],
    systems: Sequence[str] | None = None,
    seeds: int | Iterable[int] | None = None,
    *,
    out: str | os.PathLike[str],
    schedulers: Schedulers | None = None,
    congestion_controls: CongestionControls | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Runs a scenario for every combination of the grid's values, systems and seeds.

    Args:
        scenario: a file, a dict or a :class:`Scenario`.
        grid: values by key; keys as for :meth:`Scenario.set`: `{"link.wifi.rate": ["10mbit", "50mbit"]}`.
        systems: as for :func:`run`.
        seeds: as for :func:`run`.
        out: a directory. Each run appends a line to `journal.jsonl`; `runs.parquet` and the other
            frames are written at the end, even after an error. Completed runs are not repeated, so the
            same call continues an interrupted sweep.
        schedulers: as for :func:`run`. With custom classes, processes replace threads.
        congestion_controls: the same.
        jobs: parallel runs on this machine; None: one per processor.
        dask: address of the scheduler of an existing Dask cluster (`tcp://host:8786`) to use instead. Its
            workers need this package. The run of a worker that dies is repeated by another one.
        progress: called with the numbers of completed and of all runs.

    Returns:
        The results in `out`.

    Raises:
        ScenarioError: an argument is invalid; nothing was run.
        RunError: a custom class raised an exception or returned an invalid value, or workers died
            repeatedly. `out` has the completed runs, including the Parquet files.
    """
    plan = Plan(as_scenario(scenario), grid, systems, seeds, Own(schedulers or {}, congestion_controls or {}))
    workers = check_jobs(jobs)
    directory = FilePath(out)
    journal = Journal(directory)
    done = sum(task.id in journal for task in plan.tasks)
    try:
        todo = [plan.payload(task) for task in plan.tasks if task.id not in journal]
        for task_id, run in _results(todo, plan.own, workers, dask):
            if run["environment"]["sumlink"] != _native.version:
                theirs = run["environment"]["sumlink"]
                raise RunError(f"a worker has version {theirs} of the simulator, but this is {_native.version}")
            journal.add(task_id, run)
            done += 1
            if progress is not None:
                progress(done, len(plan.tasks))
    except RunError as error:
        kept = f"{error} ({done} of {len(plan.tasks)} runs are kept in {directory})"
        raise RunError(kept) from error.__cause__
    finally:
        try:
            write_tables(directory, journal.runs(plan.tasks), plan.points)
        finally:
            journal.close()
    return Sweep(directory)


class Sweep(Frames):
    """The results of a sweep: frames as in :class:`Results`, with the grid's keys after `seed`."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Opens the directory of a sweep."""
        self.directory = FilePath(directory)
        """The directory of the results."""
        if not (self.directory / "runs.parquet").exists():
            raise ScenarioError(f"{self.directory}: not the directory of a sweep; it has no runs.parquet")

    def frame(self, name: str) -> pd.DataFrame:
        """The frame with this name: `runs`, `flows`, `paths`, `objects`, `messages`, `datagrams` or
        `series`."""
        return pd.read_parquet(self.directory / f"{name}.parquet")

    def __len__(self) -> int:
        return int(pq.read_metadata(self.directory / "runs.parquet").num_rows)

    def __repr__(self) -> str:
        return f"<Sweep of {len(self)} runs in {self.directory}>"


class Plan:
    """All runs of a sweep, validated before the first one."""

    def __init__(
        self,
        scenario: Scenario,
        grid: Mapping[str, Sequence[Any]],
        systems: Sequence[str] | None,
        seeds: int | Iterable[int] | None,
        own: Own,
    ) -> None:
        self.own = own
        self.points: list[Mapping[str, Any]] = grid_points(grid)
        names = check_systems(systems, own) if systems is not None else scenario.systems
        numbers = check_seeds(scenario.seeds if seeds is None else seeds)
        self.scenarios = [scenario.set(point) for point in self.points]
        for point in self.points:
            if "congestion" in point:
                check_congestion(point["congestion"], own, f"grid, congestion={point['congestion']}")
        classes = _digest_of(own)
        self._classes = _pickle(own)
        self.tasks = [
            Task(self._id(place, system, seed, classes), place, system, seed)
            for place in range(len(self.points))
            for seed in numbers
            for system in names
        ]

    def _id(self, place: int, system: str, seed: int, classes: str) -> str:
        decides = [self.scenarios[place].sha256, self.points[place], system, seed, _native.version, classes]
        return hashlib.sha256(json.dumps(decides, default=repr).encode()).hexdigest()[:32]

    def payload(self, task: Task) -> Payload:
        """The task in the form that workers take."""
        return Payload(task.id, self.scenarios[task.point], task.system, task.seed, self._classes)


def grid_points(grid: Mapping[str, Sequence[Any]]) -> list[Mapping[str, Any]]:
    """Every combination; the last key changes fastest."""
    if not isinstance(grid, Mapping):
        raise ScenarioError(f"grid: give values by key, such as {{'link.wifi.rate': ['10mbit', '50mbit']}}, not {grid!r}")
    if not grid:
        raise ScenarioError("grid: empty; give values by key, such as {'link.wifi.rate': ['10mbit', '50mbit']}")
    for key, values in grid.items():
        if not isinstance(key, str):
            raise ScenarioError(f"grid, {key!r}: a key must be text, such as 'link.wifi.rate'")
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ScenarioError(f"grid, {key}: give a list of values, not {values!r}")
        if not values:
            raise ScenarioError(f"grid, {key}: no values, so nothing would be run")
        if any(values.count(value) > 1 for value in values):
            raise ScenarioError(f"grid, {key}: a value is repeated")
        if key in ("scenario", "system", "seed", "seeds", "systems", "name") or any(key in one for one in COLUMNS.values()):
            raise ScenarioError(f"grid, {key}: a column of the results has this name; it cannot be swept")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _results(todo: list[Payload], own: Own, jobs: int, dask: str | None) -> Iterator[tuple[str, Run]]:
    if not todo:
        return iter(())
    if dask is not None:
        return on_dask(todo, dask)
    return on_processes(todo, jobs) if own else on_threads(todo, jobs)


def _digest_of(own: Own) -> str:
    """Digest of the classes' source; a change starts a new sweep. Their imports are not
    included."""
    digest = hashlib.sha256()
    for name, one in sorted([*own.schedulers.items(), *own.congestion.items()]):
        try:
            text = inspect.getsource(one).encode()
        except (OSError, TypeError):
            text = cloudpickle.dumps(one)
        digest.update(f"{name} {len(text)} ".encode() + text)
    return digest.hexdigest()


def _pickle(own: Own) -> bytes:
    """The pickled classes with their code, so that workers do not need their files."""
    modules = {one.__module__ for one in [*own.schedulers.values(), *own.congestion.values()]}
    by_value = [sys.modules[name] for name in modules if name in sys.modules and name != "__main__"]
    registered = cloudpickle.list_registry_pickle_by_value()
    new = [module for module in by_value if module.__name__ not in registered]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps((own.schedulers, own.congestion)))
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)
