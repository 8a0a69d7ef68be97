"""Scenarios from the laboratory's files or from dicts."""

from __future__ import annotations

import copy
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from . import _native
from .errors import ScenarioError


class Scenario:
    """The links, the traffic, and the systems to compare.

    sumlink's docs/laboratory.md documents the keys. A dict has the structure of such a file, with
    `link` as a list of dicts::

        Scenario({"name": "two", "duration": "5s", "warmup": "1s", "link": [
            {"name": "wifi", "rate": "30mbit", "delay": "5ms"},
            {"name": "lte", "rate": "10mbit", "delay": "20ms"}]})

    A scenario is immutable; :meth:`set` returns a modified copy.
    """

    def __init__(self, document: Mapping[str, Any], directory: str | os.PathLike[str] = ".") -> None:
        """Reads a dict; paths in it (recordings) are relative to `directory`.

        Raises:
            ScenarioError: with all problems and their keys.
        """
        text, places = to_toml(document)
        self._take(text, FilePath(directory) / "dict", places)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Scenario:
        """Reads a file.

        Raises:
            ScenarioError: with all problems and their lines.
            OSError: the file cannot be read.
        """
        path = FilePath(file)
        new = cls.__new__(cls)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ScenarioError(f"{path}: not UTF-8 text (byte {error.start})") from None
        new._take(text, path, None)
        return new

    def _take(self, text: str, file: FilePath, places: list[str] | None) -> None:
        try:
            self._inner = _native.Scenario(text, str(file))
        except ValueError as error:
            problems = error.args[0]
            raise ScenarioError(describe(problems, places, str(file))) from None
        self._text, self._file, self._is_file = text, file, places is None

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self._inner.name

    @property
    def systems(self) -> list[str]:
        """Names of the systems to compare."""
        return self._inner.systems

    @property
    def seeds(self) -> int:
        """Default number of seeds."""
        return self._inner.seeds

    @property
    def duration(self) -> float:
        """Duration of a run in seconds, including the warm-up."""
        return self._inner.duration

    @property
    def warmup(self) -> float:
        """Length of the warm-up in seconds, which is not measured."""
        return self._inner.warmup

    @property
    def sha256(self) -> str:
        """Hexadecimal digest of its text and recordings."""
        return self._inner.sha256

    @property
    def links(self) -> dict[str, tuple[float, float]]:
        """Initial rates by link: (down, up) in bit/s; 0 if a recording or profile determines
        them."""
        return {name: (down, up) for name, down, up in self._inner.links}

    @property
    def document(self) -> dict[str, Any]:
        """A copy of the scenario as a dict."""
        return tomllib.loads(self._text)

    def set(self, values: Mapping[str, Any]) -> Scenario:
        """A copy with other values for some keys.

        A key is a name (`congestion`, `duration`), a table's key (`workload.kind`), or a link's key by
        the link's name (`link.wifi.rate`).

        Raises:
            ScenarioError: a key or a value is invalid; the message names the key.
        """
        document = copy.deepcopy(self.document)
        for key, value in values.items():
            _assign(document, key, value)
        changes = ", ".join(f"{key}={value}" for key, value in values.items())
        text, places = to_toml(document)
        new = type(self).__new__(type(self))
        try:
            new._take(text, self._file, places)
        except ScenarioError as error:
            raise ScenarioError(f"{self.name} with {changes}: {error}") from None
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        places = None if self._is_file else [""] * (self._text.count("\n") + 1)
        return _again, (self._text, str(self._file), places)

    def __repr__(self) -> str:
        return f"<Scenario {self.name}: {', '.join(self.links)}>"


def _again(text: str, file: str, places: list[str] | None) -> Scenario:
    """Recreates a pickled scenario; its recordings must still exist."""
    new = Scenario.__new__(Scenario)
    new._take(text, FilePath(file), places)
    return new


def describe(problems: list[tuple[Any, int, str]], places: list[str] | None, scenario: str) -> str:
    """All problems in one line. Problems of a dict have keys instead of line numbers."""
    problems_text = []
    for file, line, reason in problems:
        place = f"{file}:{line}"
        if places is not None and str(file) == scenario:
            place = places[line - 1] if line <= len(places) else ""
        problems_text.append(f"{place}: {reason}" if place else reason)
    return "; ".join(problems_text)


def _assign(document: dict[str, Any], key: str, value: Any) -> None:
    parts = key.split(".")
    at: Any = document
    for index, part in enumerate(parts[:-1]):
        so_far = ".".join(parts[: index + 1])
        if isinstance(at, list):
            names = [one.get("name") for one in at if isinstance(one, dict)]
            if part not in names:
                known = ", ".join(str(name) for name in names)
                raise ScenarioError(f"{key}: no {so_far} (available: {known})")
            at = at[names.index(part)]
        elif isinstance(at, dict):
            at = at.setdefault(part, {})
        else:
            raise ScenarioError(f"{key}: {so_far} has no keys")
    if isinstance(at, list):
        raise ScenarioError(f"{key}: name an entry of the list, as in link.wifi.rate")
    if not isinstance(at, dict):
        raise ScenarioError(f"{key}: {'.'.join(parts[:-1])} has no keys")
    at[parts[-1]] = value


def to_toml(document: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The document as TOML, and the key of each line."""
    lines: list[str] = []
    places: list[str] = []

    def put(line: str, place: str) -> None:
        lines.append(line)
        places.append(place)

    if not isinstance(document, Mapping):
        raise ScenarioError(f"a scenario must be a dict, not {type(document).__name__}")
    later: list[tuple[str, Any]] = []
    for key, value in document.items():
        if isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(one, Mapping) for one in value)):
            later.append((key, value))
        else:
            put(f"{_key(key)} = {_value(value, str(key))}", str(key))
    for key, value in later:
        blocks = value if isinstance(value, list) else [value]
        for index, block in enumerate(blocks):
            head = f"[[{_key(key)}]]" if isinstance(value, list) else f"[{_key(key)}]"
            if not isinstance(block, Mapping):
                raise ScenarioError(f"{key}[{index}]: must be a dict like the others, not {block!r}")
            name = block.get("name", index) if isinstance(value, list) else None
            place = str(key) if name is None else f"{key}.{name}"
            put(head, place)
            for inner, entry in block.items():
                put(f"{_key(inner)} = {_value(entry, f'{place}.{inner}')}", f"{place}.{inner}")
    return "\n".join(lines) + "\n", places


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ScenarioError(f"{key!r}: a key must be text")
    return json.dumps(key, ensure_ascii=False)


def _value(value: Any, place: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(one, place) for one in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v, place)}" for k, v in value.items()) + " }"
    raise ScenarioError(f"{place}: {value!r} must be text, a number, a bool, a list or a dict")
