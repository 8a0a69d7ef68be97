"""The completed runs of a sweep on disk, one line each, so that an interruption loses none."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from .errors import ScenarioError
from .results import COLUMNS, KEY, Run, rows_of

JOURNAL = "journal.jsonl"
_TYPES = {"string": pa.string(), "float64": pa.float64(), "int64": pa.int64(), "Int64": pa.int64()}
_CHUNK = 256
"""Runs converted to rows at once, to bound the memory."""


class Task(NamedTuple):
    """One run of a sweep."""

    id: str
    """Digest of all inputs that determine its result."""
    point: int
    """Index in the grid."""
    system: str
    seed: int


class Journal:
    """The journal of a directory; only one sweep writes to it at a time."""

    def __init__(self, directory: FilePath) -> None:
        self._path = directory / JOURNAL
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = open(self._path, "a+b")
        except OSError as error:
            raise ScenarioError(f"out: cannot write to {directory}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ScenarioError(f"out: another sweep is writing into {directory}") from None
        self._offsets: dict[str, int] = {}
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> None:
        self._file.seek(0)
        end = 0
        for number, line in enumerate(self._file, start=1):
            # A line without a line end was interrupted while being written.
            if not line.endswith(b"\n"):
                break
            try:
                task = json.loads(line)["task"]
            except (ValueError, KeyError, TypeError):
                raise ScenarioError(f"{self._path}:{number}: not a line of a sweep's journal; choose another out") from None
            self._offsets.setdefault(task, end)
            end += len(line)
        self._file.truncate(end)
        self._file.seek(end)

    def __contains__(self, task: str) -> bool:
        return task in self._offsets

    def add(self, task: str, run: Run) -> None:
        """Adds a run, unless the journal has it."""
        if task in self._offsets:
            return
        line = json.dumps({"task": task, "run": run}, separators=(",", ":")).encode() + b"\n"
        self._file.seek(0, os.SEEK_END)
        offset = self._file.tell()
        self._file.write(line)
        self._file.flush()
        self._offsets[task] = offset

    def runs(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Run]]:
        """The completed tasks with their runs, in the order of the tasks."""
        with open(self._path, "rb") as lines:
            for task in tasks:
                offset = self._offsets.get(task.id)
                if offset is not None:
                    lines.seek(offset)
                    yield task, json.loads(lines.readline())["run"]

    def close(self) -> None:
        """Closes the file and releases its lock."""
        self._file.close()


def write_tables(directory: FilePath, runs: Iterable[tuple[Task, Run]], grid: list[Mapping[str, Any]]) -> None:
    """Writes every frame of the runs to a Parquet file, which replaces an old one when complete."""
    types = grid_types(grid)
    schemas = {
        name: pa.schema(
            [("scenario", pa.string()), ("system", pa.string()), ("seed", pa.int64()), *types.items()]
            + [(column, _TYPES[kind]) for column, kind in columns.items()]
        )
        for name, columns in COLUMNS.items()
    }
    files = {name: directory / f".{name}.parquet.new" for name in schemas}
    writers = {name: pq.ParquetWriter(files[name], schema) for name, schema in schemas.items()}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in schemas}

    def flush() -> None:
        for name, waiting in rows.items():
            if waiting:
                writers[name].write_table(pa.Table.from_pylist(waiting, schema=schemas[name]))
                waiting.clear()

    try:
        for number, (task, run) in enumerate(runs, start=1):
            key = {column: run[column] for column in KEY}
            values = {name: text_of(value, types[name]) for name, value in grid[task.point].items()}
            for name, new in rows_of(run).items():
                rows[name].extend({**key, **values, **row} for row in new)
            if number % _CHUNK == 0:
                flush()
        flush()
    finally:
        for writer in writers.values():
            writer.close()
    for name, file in files.items():
        os.replace(file, directory / f"{name}.parquet")


def grid_types(grid: list[Mapping[str, Any]]) -> dict[str, pa.DataType]:
    """The type of each key's column: the common type of its values, or text."""
    types: dict[str, pa.DataType] = {}
    for key in grid[0] if grid else []:
        kinds = {type(point[key]) for point in grid}
        if kinds == {bool}:
            types[key] = pa.bool_()
        elif kinds == {int}:
            types[key] = pa.int64()
        elif kinds <= {int, float}:
            types[key] = pa.float64()
        else:
            types[key] = pa.string()
    return types


def text_of(value: Any, kind: pa.DataType) -> Any:
    """A grid's value in the type of its column."""
    if kind != pa.string() or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
