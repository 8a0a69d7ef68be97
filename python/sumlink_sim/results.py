"""Results as pandas frames."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

Run = Mapping[str, Any]
"""A run in the laboratory's format: `sumlink-lab sim run --out`, and docs/laboratory.md."""

KEY = ["scenario", "system", "seed"]
"""The columns that identify a run."""

Row = dict[str, Any]

_RUN: dict[str, str] = {
    "outcome": "string",
    "reason": "string",
    "duration_s": "float64",
    "goodput_bps": "float64",
    "bytes": "Int64",
    "retransmissions": "Int64",
    "duplicates_bytes": "Int64",
    "reorder_peak_bytes": "Int64",
    "in_order_wait_p99_s": "float64",
    "memory_peak_bytes": "Int64",
    "rival_bps": "float64",
    "over_limit": "Int64",
    "note": "string",
    "scenario_sha256": "string",
    "version": "string",
}
_FLOW = {"flow": "int64", "link": "string", "direction": "string", "goodput_bps": "float64"}
_PATH = {
    "link": "string",
    "direction": "string",
    "wire_bytes": "int64",
    "share": "float64",
    "lost_packets": "int64",
    "dropped_packets": "int64",
}
_OBJECT = {"object": "int64", "link": "string", "size_bytes": "int64", "start_s": "float64", "duration_s": "float64"}
_MESSAGE = {"link": "string", "delay_ms": "float64"}
_DATAGRAMS = {
    "link": "string",
    "direction": "string",
    "sent": "int64",
    "lost": "int64",
    "duplicates": "int64",
    "reordered": "int64",
    "goodput_bps": "float64",
    "delay_p50_ms": "float64",
    "delay_p95_ms": "float64",
    "delay_p99_ms": "float64",
    "jitter_ms": "float64",
    "gap_ms": "float64",
    "mos": "float64",
}
_SERIES = {"of": "string", "name": "string", "direction": "string", "time_s": "float64", "bps": "float64"}

COLUMNS: dict[str, dict[str, str]] = {
    "runs": _RUN,
    "flows": _FLOW,
    "paths": _PATH,
    "objects": _OBJECT,
    "messages": _MESSAGE,
    "datagrams": _DATAGRAMS,
    "series": _SERIES,
}
"""Columns of each frame after the key, with their types."""


class Frames:
    """The frames of some runs. `scenario`, `system`, `seed` and a sweep's keys are the first
    columns.

    Rates are in bit/s, times in seconds unless a name has another unit; unknown values are missing
    (`pd.NA`, NaN).
    """

    def frame(self, name: str) -> pd.DataFrame:
        """The frame with this name, one of :data:`COLUMNS`."""
        raise NotImplementedError

    @property
    def runs(self) -> pd.DataFrame:
        """A row for each run: systems x seeds, seed by seed.

        - `outcome`: `measured`, `skipped` or `failed`; `reason` explains the latter two.
        - `duration_s`: measured time.
        - `goodput_bps`: of all flows; `bytes`: bytes received.
        - `retransmissions`: segments that TCP sent again; `duplicates_bytes`: bytes duplicated on purpose.
        - `reorder_peak_bytes`: most bytes that receivers stored behind gaps.
        - `in_order_wait_p99_s`: 99 % of the bytes waited no longer for earlier ones.
        - `memory_peak_bytes`: most bytes in sumlink's sessions at once, at both ends: written and not
          acknowledged, or received and not read.
        - `rival_bps`: goodput of the scenario's rival.
        - `over_limit`: objects that took too long.
        """
        return self.frame("runs")

    @property
    def flows(self) -> pd.DataFrame:
        """A row for each flow of each run; `alone` and `simultaneous` have one per link and
        direction.

        `flow` is its number, `link` the link that it was bound to, if any, `direction` is `down` or `up`.
        """
        return self.frame("flows")

    @property
    def paths(self) -> pd.DataFrame:
        """A row for each link and direction of each run.

        `wire_bytes` delivered, `share` of all links' delivered bytes in that direction (0 to 1),
        `lost_packets` on the link and in its queue, `dropped_packets` by the queue.
        """
        return self.frame("paths")

    @property
    def objects(self) -> pd.DataFrame:
        """A row for each object of a file workload.

        `object` is its number in the run, `link` the link that it was bound to, if any. `start_s` counts
        from the start of the run, `duration_s` from the request to the last byte.
        """
        return self.frame("objects")

    @property
    def messages(self) -> pd.DataFrame:
        """A row for each message (`cbr`) or answer (`requests`): `delay_ms`, and its `link` if
        bound."""
        return self.frame("messages")

    @property
    def datagrams(self) -> pd.DataFrame:
        """A row for each flow of datagrams and direction (`datagrams`, `call`, `game`).

        `lost` of the `sent` datagrams never arrived. Delays are one-way, from program to program;
        `jitter_ms` is that of RFC 3550, `gap_ms` the longest time without an arrival, and `mos` the
        mean opinion score of a call.
        """
        return self.frame("datagrams")

    @property
    def series(self) -> pd.DataFrame:
        """Rates over time: a row for each interval of each series.

        A run has 1 + flows + links x directions series. `of` is `run` (goodput of all flows), `flow`
        (goodput; `name` is its number) or `path` (wire rate; `name` is the link). `time_s` is the start of
        the interval since the start of the run (including the warm-up), `bps` the mean rate in it.
        """
        return self.frame("series")


class Results(Frames):
    """Runs, and frames built from them.

    Every frame starts with the columns `scenario`, `system`, `seed` and, for a sweep, the grid's keys.
    Rates are in bit/s, times in seconds unless a name has another unit; unknown values are missing
    (`pd.NA`, NaN).
    """

    def __init__(self, runs: Iterable[Run], grid: Iterable[Mapping[str, Any]] | None = None) -> None:
        """`runs` in the laboratory's format; `grid` has the values that a sweep set for each of
        them."""
        self.raw: list[Run] = list(runs)
        """The unmodified runs, in the requested order."""
        self._grid = list(grid) if grid is not None else [{} for _ in self.raw]

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        kinds = [run["outcome"]["kind"] for run in self.raw]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
        return f"<Results of {len(self)} runs: {counts}>"

    def frame(self, name: str) -> pd.DataFrame:
        """The frame with this name, one of :data:`COLUMNS`."""
        rows: list[Row] = []
        for run, grid in zip(self.raw, self._grid, strict=True):
            key = {**{column: run[column] for column in KEY}, **grid}
            rows.extend({**key, **row} for row in rows_of(run)[name])
        keys = list(KEY)
        for grid in self._grid:
            keys.extend(column for column in grid if column not in keys)
        columns = COLUMNS[name]
        frame = pd.DataFrame(rows, columns=[*keys, *columns])
        return frame.astype({"scenario": "string", "system": "string", "seed": "int64", **columns})


def rows_of(run: Run) -> dict[str, list[Row]]:
    """The rows of a run for each frame, without the key."""
    outcome = run["outcome"]
    kind = outcome["kind"]
    whole: Row = {
        "outcome": kind,
        "reason": outcome.get("reason"),
        "scenario_sha256": run["scenario_sha256"],
        "version": run["environment"]["sumlink"],
    }
    tables: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    tables["runs"].append(whole)
    if kind != "measured":
        return tables
    whole.update({column: outcome.get(column) for column in _RUN if column not in whole})
    _series(tables, "run", None, None, outcome["goodput"])
    for number, flow in enumerate(outcome["flows"]):
        tables["flows"].append({"flow": number, **{column: flow[column] for column in list(_FLOW)[1:]}})
        _series(tables, "flow", str(number), flow["direction"], flow["goodput"])
    for link in outcome["links"]:
        tables["paths"].append({column: link[column] for column in _PATH})
        _series(tables, "path", link["link"], link["direction"], link["rate"])
    for number, done in enumerate(outcome["completions"]):
        tables["objects"].append({"object": number, **{column: done[column] for column in list(_OBJECT)[1:]}})
    for flow in outcome.get("datagrams", []):
        delay, call = flow["delay_ms"] or {}, flow.get("call") or {}
        row = {column: flow[column] for column in _DATAGRAMS if column in flow}
        row.update({f"delay_{part}_ms": delay.get(part) for part in ("p50", "p95", "p99")})
        tables["datagrams"].append({**row, "mos": call.get("mos")})
    bound = outcome.get("link_delays_ms", {})
    for delay in outcome["message_delays_ms"] if not bound else []:
        tables["messages"].append({"link": None, "delay_ms": delay})
    for link, delays in bound.items():
        tables["messages"].extend({"link": link, "delay_ms": delay} for delay in delays)
    return tables


def _series(tables: dict[str, list[Row]], of: str, name: str | None, direction: str | None, series: Run) -> None:
    start, interval = series["start_s"], series["interval_s"]
    for index, bps in enumerate(series["bps"]):
        time = start + index * interval
        row = {"of": of, "name": name, "direction": direction, "time_s": time, "bps": bps}
        tables["series"].append(row)


def parse(text: str) -> Run:
    """A run from its JSON."""
    run: Run = json.loads(text)
    return run
