"""Base classes for custom schedulers and congestion controls."""

from __future__ import annotations

import math
from typing import NamedTuple

from ._native import Ack, Path, View


class Pick(NamedTuple):
    """A scheduler's decision: the asking path carries bytes `start` to `end` (exclusive) of a
    stream."""

    kind: str
    """`send` for unsent bytes within credit; `repeat` for bytes in flight on another path that no
    delivery waits for; `race` for such bytes that a delivery waits for."""
    stream: int
    """Number of the stream."""
    start: int
    """Offset of the first byte in the stream, in bytes."""
    end: int
    """Offset after the last byte; at most the budget after `start`."""


class Scheduler:
    """Decides which bytes a path carries next.

    Derive a class and pass it to :func:`run` or :func:`sweep` under a name: `schedulers={"mine": Mine}`
    creates the system `sumlink:mine`. Each end of a session creates an instance, without arguments.
    Decisions must depend only on the arguments of its methods (no clock, no unseeded random numbers);
    then the same seed gives the same run.
    """

    max_paths: int | None = None
    """Most paths that it supports; a session uses no more. None: any number."""
    repeats_all: bool = False
    """It sends all data on several paths; `repeat_budget` and `race_budget` do not apply."""
    wants_flights: bool = False
    """Provide `Path.flights`, which takes time."""

    def pick(self, asking: Path, budget: int, view: View) -> Pick | tuple[str, int, int, int] | None:
        """Chooses the next bytes for `asking`.

        Args:
            asking: the path that can take bytes now.
            budget: most bytes that it takes.
            view: all paths and streams at this moment; a copy that may be stored.

        Returns:
            The bytes, or None to leave the path idle until the next change.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method pick")

    def paths_changed(self) -> None:
        """A path joined, left, stalled or recovered."""

    def stream_gone(self, stream: int) -> None:
        """The stream with this number has ended; the number is not reused."""


class CongestionControl:
    """Limits the packets in flight of one TCP connection. This base class is Reno (RFC 5681).

    Derive a class, override methods, and pass it to :func:`run` or :func:`sweep` under a name:
    `congestion_controls={"mine": Mine}` permits `sumlink:fbdt+mine`, and `congestion = "mine"` in a
    scenario applies it to all connections. Each end of each connection creates an instance, without
    arguments. Methods change the three attributes, which are read after each call. Times are in
    seconds, windows in packets of one MSS.
    """

    INITIAL = 10.0
    """Initial window in packets (RFC 6928)."""
    MIN_SSTHRESH = 2.0
    """Minimum threshold after a loss in packets (RFC 5681, equation 4)."""

    def __init__(self) -> None:
        self.cwnd: float = self.INITIAL
        """Congestion window in packets, 1 to 1e9; its integer part may be in flight."""
        self.ssthresh: float = math.inf
        """Slow start threshold in packets, at least 1."""
        self.pacing_rate: float | None = None
        """Pacing rate in packets per second; None: no pacing."""
        self.in_recovery: bool = False
        self._before: tuple[float, float] | None = None

    def slow_start(self, ack: Ack) -> float:
        """Grows the window below `ssthresh`; returns the acknowledged packets left for
        avoidance."""
        if not ack.cwnd_limited or self.in_recovery:
            return 0.0
        if self.cwnd >= self.ssthresh:
            return float(ack.acked)
        used = min(float(ack.acked), self.ssthresh - self.cwnd)
        self.cwnd += used
        return ack.acked - used

    def on_ack(self, ack: Ack) -> None:
        """New data was acknowledged, cumulatively or selectively."""
        left = self.slow_start(ack)
        self.cwnd += left / self.cwnd

    def reduce(self, ssthresh: float) -> None:
        """Sets window and threshold to `ssthresh`; the window stays until the loss is repaired."""
        self._before = (self.cwnd, self.ssthresh)
        self.ssthresh = max(ssthresh, self.MIN_SSTHRESH)
        self.cwnd = self.ssthresh
        self.in_recovery = True

    def on_loss(self, now: float) -> None:
        """A loss was detected; called once per window with losses."""
        self.reduce(self.cwnd / 2)

    def on_timeout(self, now: float, repeated: bool) -> None:
        """The retransmission timer fired; `repeated`: no data was acknowledged since the last
        time."""
        if not repeated:
            self._before = (self.cwnd, self.ssthresh)
            self.ssthresh = max(self.cwnd / 2, self.MIN_SSTHRESH)
        self.cwnd = 1.0
        self.in_recovery = False

    def on_recovery_exit(self, now: float) -> None:
        """All data sent before the loss or the timeout is acknowledged."""
        self.in_recovery = False
        self._before = None

    def on_spurious_loss(self, now: float) -> None:
        """No data had been lost: the previous window is restored."""
        if self._before is not None:
            self.cwnd = max(self._before[0], self.cwnd)
            self.ssthresh = self._before[1]
        self.on_recovery_exit(now)

    def on_idle_end(self, now: float, lasted: float, rto: float) -> None:
        """Data is sent after `lasted` seconds without data in flight (RFC 2861)."""
        least = min(self.cwnd, self.INITIAL)
        rest = lasted - rto
        if rto <= 0 or rest <= 0:
            return
        self.ssthresh = max(self.ssthresh, 0.75 * self.cwnd, self.MIN_SSTHRESH)
        while rest > 0 and self.cwnd > least:
            self.cwnd /= 2
            rest -= rto
        self.cwnd = max(self.cwnd, least)
