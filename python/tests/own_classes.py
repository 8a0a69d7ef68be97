"""Schedulers and congestion controls for the tests, in a module that worker processes can
import."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path as FilePath
from typing import Any

import sumlink_sim as sim


class ShortestWay(sim.Scheduler):
    """Only the free path with the lowest delay sends."""

    def pick(self, asking: sim.Path, budget: int, view: sim.View) -> Any:
        free = [path for path in view.paths if not path.full or path.id == asking.id]
        best = min(free, key=lambda path: (path.delay, path.id), default=None)
        return view.lowest_unsent(budget) if best is not None and best.id == asking.id else None


class AnyPath(sim.Scheduler):
    """Every asking path sends; uses a Pick explicitly."""

    def pick(self, asking: sim.Path, budget: int, view: sim.View) -> sim.Pick | None:
        for stream in view.streams:
            start, end = stream.unsent[0]
            end = min(end, stream.sendable_end, start + budget)
            if start < end:
                return sim.Pick("send", stream.id, start, end)
        return None


class Both(AnyPath):
    """All data on every path."""

    repeats_all = True
    wants_flights = True

    def __init__(self) -> None:
        self.repeated: list[tuple[int, int, int]] = []

    def pick(self, asking: sim.Path, budget: int, view: sim.View) -> sim.Pick | None:
        mine = [(flight.stream, flight.start, flight.end) for flight in asking.flights]
        acknowledged = {stream.id: stream.acknowledged for stream in view.streams}
        for other in view.paths:
            for flight in other.flights if other.id != asking.id else []:
                covered = any(s == flight.stream and a < flight.end and flight.start < b for s, a, b in mine)
                # A repeated part that has arrived is acknowledged, while its first copy may still
                # be in flight.
                known = any(s == flight.stream and a < flight.end and flight.start < b for s, a, b in self.repeated)
                # The peer may acknowledge a part before it reports the path's progress.
                start = max(flight.start, acknowledged.get(flight.stream, flight.end))
                if not flight.repeated and not covered and not known and start < flight.end:
                    end = min(flight.end, start + budget)
                    self.repeated.append((flight.stream, flight.start, end))
                    return sim.Pick("repeat", flight.stream, start, end)
        return super().pick(asking, budget, view)


class FailsLate(AnyPath):
    """Raises after half a second of the simulation."""

    def pick(self, asking: sim.Path, budget: int, view: sim.View) -> sim.Pick | None:
        if view.now > 0.5:
            raise RuntimeError("out of ideas")
        return super().pick(asking, budget, view)


class NeverAnswers(sim.Scheduler):
    """Never returns."""

    def pick(self, asking: sim.Path, budget: int, view: sim.View) -> None:
        print("thinking", flush=True)
        while True:
            pass


class Rambles(sim.Scheduler):
    """Raises an exception with several lines."""

    def pick(self, asking: sim.Path, budget: int, view: sim.View) -> None:
        raise ValueError("out of\nideas\n" + 1000 * "and words ")


class Modest(AnyPath):
    """Supports no path."""

    max_paths = 0


class FailsOnLongLinks(AnyPath):
    """Raises if a round trip takes more than half a second."""

    def pick(self, asking: sim.Path, budget: int, view: sim.View) -> sim.Pick | None:
        if any(path.min_rtt > 0.5 for path in view.paths):
            raise RuntimeError("too long")
        return super().pick(asking, budget, view)


class Nonsense(sim.Scheduler):
    """Returns `answer` once data is available."""

    answer: Any = None

    def pick(self, asking: sim.Path, budget: int, view: sim.View) -> Any:
        return self.answer if view.streams else None


class NoStart(sim.Scheduler):
    """Its constructor raises."""

    def __init__(self) -> None:
        raise ValueError("not today")


class Reno(sim.CongestionControl):
    """The base class, unmodified."""


class Timid(sim.CongestionControl):
    """A constant window of four packets, paced."""

    def __init__(self) -> None:
        super().__init__()
        self.cwnd = 4.0
        self.pacing_rate = 100.0

    def on_ack(self, ack: sim.Ack) -> None:
        assert ack.acked > 0 and ack.now > 0


class Leaves(sim.CongestionControl):
    """On the first acknowledgment, sets `attribute` to `value`."""

    attribute = "cwnd"
    value: Any = math.nan

    def on_ack(self, ack: sim.Ack) -> None:
        setattr(self, self.attribute, self.value)


class DiesOnce(AnyPath):
    """Kills its process on the first call; the file `marker` records that."""

    marker = ""

    def __init__(self) -> None:
        path = FilePath(self.marker)
        if not path.exists():
            path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
