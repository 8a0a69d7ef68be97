"""Base classes for schedulers and congestion controls of your own."""

from __future__ import annotations

import math
from typing import NamedTuple

from ._native import Ack, Path, View


class Pick(NamedTuple):
    """A scheduler's answer: the asking path carries bytes `start` to `end` (exclusive) of a stream."""

    kind: str
    """`send` for bytes that are unsent and within credit; `repeat` for bytes that another path carries and that nobody
    waits for; `race` for such bytes that somebody waits for."""
    stream: int
    """Number of the stream."""
    start: int
    """Offset of the first byte in the stream, in bytes."""
    end: int
    """Offset after the last byte; at most the budget after `start`."""


class Scheduler:
    """Decides which bytes a path carries next.

    Derive a class from it and give it to :func:`run` or :func:`sweep` under a name: `schedulers={"mine": Mine}` makes the
    system `sumlink:mine`. Each end of a session calls the class without arguments for an instance of its own. What it does
    must be a matter of what it is told and of nothing else (no clock, no unseeded dice): then the same seed is the same run.
    """

    most_paths: int | None = None
    """How many paths it is made for; a session takes no more. None: any number."""
    repeats_all: bool = False
    """Sending everything on several paths is what it is for: `repeat_budget` and `race_budget` do not bound it."""
    wants_flights: bool = False
    """Fill in `Path.flights`, which takes time."""

    def pick(self, asking: Path, budget: int, view: View) -> Pick | tuple[str, int, int, int] | None:
        """What does `asking` carry next?

        Args:
            asking: the path whose connection takes bytes now.
            budget: how many bytes it takes at the most.
            view: all paths and streams at this moment; a copy, which may be kept.

        Returns:
            The bytes, or None to leave the path idle: it is asked again after the next change.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method pick")

    def paths_changed(self) -> None:
        """A path joined, left, stalled or recovered."""

    def stream_gone(self, stream: int) -> None:
        """The stream of that number is over, and the number will not come back."""


class CongestionControl:
    """Decides how many packets one TCP connection may have in flight; as it is, it is Reno (RFC 5681).

    Derive a class from it, replace what differs, and give it to :func:`run` or :func:`sweep` under a name:
    `congestion_controls={"mine": Mine}` makes `sumlink:fbdt+mine`, and `congestion = "mine"` in a scenario gives it to
    everyone. Each end of each connection calls the class without arguments. Methods change the three attributes; they are read
    after each call. Times are seconds, windows packets of one MSS.
    """

    INITIAL = 10.0
    """First window in packets (RFC 6928)."""
    LEAST_SSTHRESH = 2.0
    """Least threshold after a loss in packets (RFC 5681, equation 4)."""

    def __init__(self) -> None:
        self.cwnd: float = self.INITIAL
        """Congestion window in packets, from 1 to 1e9; its whole part may be in flight."""
        self.ssthresh: float = math.inf
        """Slow start threshold in packets, from 1 on."""
        self.pacing_rate: float | None = None
        """Packets per second at which what is sent is spaced; None: it is not."""
        self.in_recovery: bool = False
        self._before: tuple[float, float] | None = None

    def slow_start(self, ack: Ack) -> float:
        """Grows the window below `ssthresh`; returns how many acknowledged packets are left for congestion avoidance."""
        if not ack.cwnd_limited or self.in_recovery:
            return 0.0
        if self.cwnd >= self.ssthresh:
            return float(ack.acked)
        used = min(float(ack.acked), self.ssthresh - self.cwnd)
        self.cwnd += used
        return ack.acked - used

    def on_ack(self, ack: Ack) -> None:
        """New data was acknowledged, be it cumulatively or selectively."""
        left = self.slow_start(ack)
        self.cwnd += left / self.cwnd

    def reduce(self, ssthresh: float) -> None:
        """Window and threshold become `ssthresh`, and the window does not grow until the loss is repaired."""
        self._before = (self.cwnd, self.ssthresh)
        self.ssthresh = max(ssthresh, self.LEAST_SSTHRESH)
        self.cwnd = self.ssthresh
        self.in_recovery = True

    def on_loss(self, now: float) -> None:
        """A loss was detected; once for all losses of a window."""
        self.reduce(self.cwnd / 2)

    def on_timeout(self, now: float, repeated: bool) -> None:
        """The retransmission timer fired; `repeated` without anything acknowledged since it did before."""
        if not repeated:
            self._before = (self.cwnd, self.ssthresh)
            self.ssthresh = max(self.cwnd / 2, self.LEAST_SSTHRESH)
        self.cwnd = 1.0
        self.in_recovery = False

    def on_recovery_exit(self, now: float) -> None:
        """What had been sent before the loss or the timeout is acknowledged."""
        self.in_recovery = False
        self._before = None

    def on_spurious_loss(self, now: float) -> None:
        """Nothing had been lost: the window becomes what it was."""
        if self._before is not None:
            self.cwnd = max(self._before[0], self.cwnd)
            self.ssthresh = self._before[1]
        self.on_recovery_exit(now)

    def on_idle_end(self, now: float, lasted: float, rto: float) -> None:
        """Something is sent again after nothing was in flight for `lasted` seconds (RFC 2861)."""
        least = min(self.cwnd, self.INITIAL)
        rest = lasted - rto
        if rto <= 0 or rest <= 0:
            return
        self.ssthresh = max(self.ssthresh, 0.75 * self.cwnd, self.LEAST_SSTHRESH)
        while rest > 0 and self.cwnd > least:
            self.cwnd /= 2
            rest -= rto
        self.cwnd = max(self.cwnd, least)
