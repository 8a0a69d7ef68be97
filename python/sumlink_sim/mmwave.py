"""Experiments with the initial access of 60 GHz Wi-Fi: fairness, overhead, mobility, beams, bonds.

Each returns a pandas frame with a row for every access scheme, varied value and seed; sumlink's
docs/mmwave.md describes the model. Points are independent: they are computed on all cores or by a
Dask cluster, with identical results.
"""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path as FilePath
from typing import Any

import pandas as pd

from . import _native
from .errors import ScenarioError
from .running import Source, as_scenario, check_jobs, check_seeds
from .scenario import describe, to_toml
from .sweep import Sweep, sweep
from .workers import client_of

SCHEMES: tuple[str, ...] = tuple(_native.access_names())
"""The access schemes."""

Cell = Mapping[str, Any]
"""Keys of `[cell]` in an experiment's file: `{"stations": 16, "radius_m": 25.0}`."""


def jain(
    blockage: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    schemes: Sequence[str] = SCHEMES,
    seeds: int | Iterable[int] = 10,
    *,
    cell: Cell | None = None,
    jobs: int | None = None,
    dask: str | None = None,
) -> pd.DataFrame:
    """Fairness of data time over the blockage probability per beacon interval (thesis, figure
    3.7a).

    Args:
        blockage: probabilities.
        schemes: access schemes from :data:`SCHEMES`.
        seeds: their number (seeds 1, 2, ...) or a list.
        cell: defaults are the cell of the thesis' section 3.3.2.
        jobs: parallel points on this machine; None: one per processor.
        dask: address of the scheduler of an existing Dask cluster to use instead.

    Returns:
        Columns `scheme`, `blockage`, `seed`, `jain`, `failure` (share of failed attempts), `goodput_mbps`
        (of all clients).

    Raises:
        ScenarioError: an argument is invalid; the message names it.
    """
    frame = _by_seed("jain", {"blockage": _numbers("blockage", blockage)}, schemes, seeds, cell, jobs, dask)
    # A single seed has no spread.
    return frame.drop(columns=["jain_10", "jain_90"])


def mobility(
    speeds: Sequence[float] = (0.0, 0.5, 1.4, 3.0),
    schemes: Sequence[str] = SCHEMES,
    seeds: int | Iterable[int] = 10,
    *,
    cell: Cell | None = None,
    jobs: int | None = None,
    dask: str | None = None,
) -> pd.DataFrame:
    """Clients that walk between waypoints, over their speed in m/s.

    The arguments are those of :func:`jain`.

    Returns:
        Columns `scheme`, `speed_mps`, `seed`, `jain`, `attempts_per_minute` and `failure` (A-BFTs of a
        client, and the share that failed), `gone` (share of beacon intervals without data),
        `longest_gap_s` and `longest_gap_90_s` (median and 90th percentile of the clients' longest times
        without data), `mbps` of a client.
    """
    return _by_seed("mobility", {"speeds": _numbers("speeds", speeds)}, schemes, seeds, cell, jobs, dask)


def stations(
    stations: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    schemes: Sequence[str] = SCHEMES,
    seeds: int | Iterable[int] = 10,
    *,
    cell: Cell | None = None,
    jobs: int | None = None,
    dask: str | None = None,
) -> pd.DataFrame:
    """Many clients that all start at once.

    The arguments are those of :func:`jain`.

    Returns:
        Columns `scheme`, `stations`, `seed`, `jain`, `failure` (share of failed attempts), `mini_slots`
        (mean per A-BFT), `first_s` and `first_90_s` (time until a client has its first sector, median and
        90th percentile), `gone` (share of beacon intervals without data), `goodput_mbps` (of all clients).
    """
    frame = _by_seed("stations", {"stations": [*stations]}, schemes, seeds, cell, jobs, dask)
    return frame.astype({"stations": "int64"})


def overhead(
    stations: Sequence[int] = (2, 4, 8, 16, 24, 32),
    schemes: Sequence[str] = SCHEMES,
    seeds: int = 10,
    *,
    failure: float = 0.1,
    cell: Cell | None = None,
    jobs: int | None = None,
    dask: str | None = None,
) -> pd.DataFrame:
    """Mini-slots needed for at most a share `failure` of failed attempts (thesis, figure 3.7b).

    The arguments are those of :func:`jain`. The number is determined over all seeds together, so the
    frame has one row for each scheme and number of stations.

    Returns:
        Columns `scheme`, `stations`, `mini_slots` (missing if no number of slots and no K suffices), `failure`, and
        `good_beams`, the largest fixed K of JPOC that suffices (missing for slotted schemes and a learned K).
    """
    varied = {"stations": [*stations], "failure": failure}
    numbers = check_seeds(seeds)
    experiment = _experiment("overhead", varied, schemes, cell)
    todo = [(experiment, task, (numbers[0], numbers[-1])) for task in range(len(_native_of(*experiment).tasks))]
    frame = pd.DataFrame(_made(todo, jobs, dask))
    numbers_of = dict.fromkeys(("mini_slots", "failure", "good_beams"), "float64")
    return frame.astype({"scheme": "string", "stations": "int64", **numbers_of})


def heat_map(
    gamma: float | None = None, *, sectors: int = 36, room: str = "inh", draws: int = 50, seed: int = 1
) -> pd.DataFrame:
    """Competition index of a client by its place in an office (figures 3.1c, 3.5b, c, 3.6).

    The competitor is a client near the access point.

    Args:
        gamma: SNR in dB that power control targets for the best sector; None: full power.
        sectors: sectors per client, 36 or 64.
        room: `inh` (3GPP's indoor office) or `tgad` (the conference room of 802.11ad).
        draws: random places and orientations per cell of the map.
        seed: seed of all random numbers.

    Returns:
        A row for each row of the map, nearest first, and a column for each column, counted from 1.
    """
    try:
        rows = _native.heat_map(gamma, sectors, room, draws, seed)
    except (ValueError, TypeError, OverflowError) as error:
        raise ScenarioError(f"heat_map: {error}") from None
    frame = pd.DataFrame(rows)
    frame.index = pd.RangeIndex(1, len(frame) + 1, name="row")
    frame.columns = pd.RangeIndex(1, len(frame.columns) + 1, name="column")
    return frame


def good_beams(
    gammas: Sequence[float | None] = (None, 10.0, 4.0),
    *,
    sectors: int = 36,
    room: str = "inh",
    draws: int = 50,
    seed: int = 1,
) -> pd.DataFrame:
    """Number of audible sectors of each client in an office, by power control (figure 3.5a).

    Returns:
        Columns `gamma_db` (missing without power control), `client`, `good_beams`.
    """
    rows: list[dict[str, Any]] = []
    for gamma in gammas:
        try:
            found = _native.good_beams(gamma, sectors, room, draws, seed)
        except (ValueError, TypeError, OverflowError) as error:
            raise ScenarioError(f"good_beams: {error}") from None
        rows.extend({"gamma_db": gamma, "client": client, "good_beams": beams} for client, beams in enumerate(found))
    return pd.DataFrame(rows).astype({"gamma_db": "float64", "client": "int64", "good_beams": "int64"})


def bond(
    scenario: Source,
    access: Sequence[str] = SCHEMES,
    stations: Sequence[int] = (1, 8, 32),
    systems: Sequence[str] = ("sumlink:fbdt", "mptcp", "alone"),
    seeds: int | Iterable[int] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    dask: str | None = None,
) -> pd.DataFrame:
    """Goodput and longest gap of a bond whose WiGig link competes for beam training.

    Args:
        scenario: as for :func:`sumlink_sim.run`; one link must have `profile = "mmwave"`.
        access: access schemes from :data:`SCHEMES`.
        stations: numbers of competing stations.
        systems: as for :func:`sumlink_sim.run`; `alone` shows the WiGig link.
        seeds: the same.
        out: directory to keep the runs, as with :func:`sumlink_sim.sweep`; None: they are discarded.
        jobs: the same.
        dask: the same.

    Returns:
        Columns `access`, `stations`, `system`, `seed`, `goodput_mbps`, `longest_gap_s` (longest time
        after the warm-up without received data, in whole intervals of the series). Both are missing for
        failed runs.
    """
    read = as_scenario(scenario)
    link = _wigig_of(read.document)
    keys = [f"link.{link}.access", f"link.{link}.stations"]
    grid: dict[str, list[Any]] = {keys[0]: [*access], keys[1]: [*stations]}
    with tempfile.TemporaryDirectory() as scratch:
        directory = FilePath(scratch if out is None else out)
        done = sweep(read, grid, systems, seeds, out=directory, jobs=jobs, dask=dask)
        return _bond_frame(done, keys, link, read.warmup)


def plot(frame: pd.DataFrame, y: str, *, x: str | None = None, by: str | None = None, ax: Any = None) -> Any:
    """Draws a line for each access scheme: medians over seeds, and quartiles if there are several.

    Args:
        frame: from a function of this module.
        y: column on the y axis.
        x: column on the x axis; None: the varied one.
        by: column that distinguishes the lines; None: `scheme` or `access`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.
    """
    by = by or next((name for name in ("scheme", "access") if name in frame.columns), None)
    x = x or next((name for name in ("blockage", "speed_mps", "stations") if name in frame.columns), None)
    for name in (x, y, by):
        if name not in frame.columns:
            raise ScenarioError(f"plot: the frame has no column {name!r} (available: {', '.join(map(str, frame.columns))})")
    ax = _axes("plot", ax)
    for line, part in frame.groupby(by, sort=False):
        quarters = part.groupby(x)[y].quantile([0.25, 0.5, 0.75]).unstack()
        (drawn,) = ax.plot(quarters.index, quarters[0.5], marker="o", label=str(line))
        if len(part) > len(quarters):
            ax.fill_between(quarters.index, quarters[0.25], quarters[0.75], color=drawn.get_color(), alpha=0.2)
    ax.set_xlabel(str(x))
    ax.set_ylabel(y)
    ax.legend()
    return ax


def plot_heat_map(frame: pd.DataFrame, *, ax: Any = None) -> Any:
    """Draws a :func:`heat_map`: dark is 0, light is 1 or the largest index; each cell shows its
    value.

    Args:
        frame: from :func:`heat_map`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.
    """
    ax = _axes("plot_heat_map", ax)
    most = max(1.0, float(frame.to_numpy().max(initial=0.0)))
    image = ax.imshow(frame.to_numpy(), cmap="cividis", vmin=0, vmax=most)
    for (row, column), index in zip(itertools.product(*map(range, frame.shape)), frame.to_numpy().ravel(), strict=True):
        ax.text(column, row, f"{index:.2f}", ha="center", va="center", color="white" if index < most / 2 else "black")
    ax.set_xticks(range(frame.shape[1]), [str(column) for column in frame.columns])
    ax.set_yticks(range(frame.shape[0]), [str(row) for row in frame.index])
    ax.set_xlabel("column of the office, 1.4 m each; the access point is in the upper left corner")
    ax.set_ylabel("row")
    ax.figure.colorbar(image, ax=ax, label="competition index (1: heard as often as the near client)")
    return ax


def plot_good_beams(frame: pd.DataFrame, *, ax: Any = None) -> Any:
    """Draws :func:`good_beams`: shares of clients with at most that many good-beams, by power
    control.

    Args:
        frame: from :func:`good_beams`.
        ax: matplotlib axes; None: new ones.

    Returns:
        The axes.
    """
    ax = _axes("plot_good_beams", ax)
    for gamma, part in frame.groupby("gamma_db", sort=False, dropna=False):
        shares = part["good_beams"].value_counts(normalize=True).sort_index().cumsum()
        label = "no power control" if pd.isna(gamma) else f"gamma {gamma:g} dB"
        ax.step(shares.index, shares.to_numpy(), where="post", label=label)
    ax.set_xlabel("good-beams: sectors of a client that the access point hears")
    ax.set_ylabel("share of clients with at most that many")
    ax.set_ylim(0, 1.02)
    ax.legend()
    return ax


def _axes(caller: str, ax: Any) -> Any:
    """The given axes, or new ones."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ScenarioError(f"{caller}: the package matplotlib is missing; pip install 'sumlink-sim[notebook]'") from error
    return pyplot.subplots()[1] if ax is None else ax


Recipe = tuple[str, tuple[str, ...]]
"""An experiment as text, and the key of each line."""
Work = tuple[Recipe, int, tuple[int, int]]
"""A point: experiment, number of the task, first and last seed."""


def _experiment(kind: str, varied: Mapping[str, Any], schemes: Sequence[str], cell: Cell | None) -> Recipe:
    if isinstance(schemes, str):
        raise ScenarioError(f"schemes: give a list, such as [{schemes!r}]")
    document: dict[str, Any] = {"name": kind, "kind": kind, "schemes": [*schemes], **varied}
    if cell is not None:
        document["cell"] = dict(cell)
    text, places = to_toml(document)
    recipe = (text, tuple(places))
    _native_of(*recipe)
    return recipe


@functools.lru_cache(maxsize=16)
def _native_of(text: str, places: tuple[str, ...]) -> _native.Experiment:
    try:
        return _native.Experiment(text, "dict")
    except ValueError as error:
        raise ScenarioError(describe(error.args[0], [*places], "dict")) from None


def _by_seed(
    kind: str,
    varied: Mapping[str, Any],
    schemes: Sequence[str],
    seeds: int | Iterable[int],
    cell: Cell | None,
    jobs: int | None,
    dask: str | None,
) -> pd.DataFrame:
    experiment = _experiment(kind, varied, schemes, cell)
    numbers = check_seeds(seeds)
    tasks = range(len(_native_of(*experiment).tasks))
    todo = [(experiment, task, (seed, seed)) for task, seed in itertools.product(tasks, numbers)]
    rows = _made(todo, jobs, dask)
    for (_, _, (seed, _)), row in zip(todo, rows, strict=True):
        row["seed"] = seed
    frame = pd.DataFrame(rows)
    scheme, value, *figures = [name for name in frame.columns if name != "seed"]
    types = {scheme: "string", **dict.fromkeys([value, *figures], "float64"), "seed": "int64"}
    return frame[[scheme, value, "seed", *figures]].astype(types)


def _point(work: Work) -> dict[str, Any]:
    """Computes a point in the current worker."""
    experiment, task, seeds = work
    try:
        return _native_of(*experiment).point(task, seeds)
    except ValueError as error:
        raise ScenarioError(str(error)) from None


def _made(todo: list[Work], jobs: int | None, dask: str | None) -> list[dict[str, Any]]:
    """All points in order; the Rust part releases Python's lock, so threads use all cores."""
    workers = check_jobs(jobs)
    if dask is None:
        with ThreadPoolExecutor(workers) as pool:
            try:
                return list(pool.map(_point, todo))
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
    _, client = client_of(dask)
    with client:
        made: list[dict[str, Any]] = client.gather(client.map(_point, todo, pure=True))
        return made


def _numbers(key: str, values: Sequence[float]) -> list[float]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ScenarioError(f"{key}: give a list of numbers, not {values!r}")
    return [*values]


def _wigig_of(document: Mapping[str, Any]) -> str:
    links = [link["name"] for link in document.get("link", []) if link.get("profile") == "mmwave"]
    if len(links) != 1:
        raise ScenarioError(f"scenario: one of its links must have profile = \"mmwave\", but {len(links)} have it")
    return str(links[0])


def _bond_frame(done: Sweep, keys: list[str], link: str, warmup: float) -> pd.DataFrame:
    runs, flows, series = done.runs, done.flows, done.series
    series = series[series["time_s"] > warmup - 1e-9]
    index = ["system", "seed", *keys]
    # With `alone`, each link has its own flow.
    of_wigig = flows[(flows["system"] == "alone") & (flows["link"] == link)]
    numbers = of_wigig.assign(name=of_wigig["flow"].astype("string"))[[*index, "name", "goodput_bps"]]
    alone = series[(series["system"] == "alone") & (series["of"] == "flow")].merge(numbers, on=[*index, "name"])
    whole = series[(series["system"] != "alone") & (series["of"] == "run")]
    gaps = pd.concat([whole, alone]).groupby(index)[["time_s", "bps"]].apply(_longest_gap).rename("longest_gap_s")
    goodput = runs[runs["system"] != "alone"][[*index, "goodput_bps"]]
    goodput = pd.concat([goodput, numbers[[*index, "goodput_bps"]]])
    frame = runs[index].merge(goodput, on=index, how="left").merge(gaps.reset_index(), on=index, how="left")
    frame["goodput_mbps"] = frame.pop("goodput_bps") / 1e6
    frame = frame.rename(columns={keys[0]: "access", keys[1]: "stations"})
    order = ["access", "stations", "system", "seed", "goodput_mbps", "longest_gap_s"]
    return frame[order].reset_index(drop=True)


def _longest_gap(series: pd.DataFrame) -> float:
    """Longest time in seconds without received data."""
    ordered = series.sort_values("time_s")
    silent = ordered["bps"] <= 0
    runs = silent.groupby((silent != silent.shift()).cumsum()).sum()
    interval = ordered["time_s"].diff().median() if len(ordered) > 1 else 0.0
    # Whole intervals: further digits are rounding noise.
    return round(float(runs.max() * interval), 6) if len(runs) else 0.0
