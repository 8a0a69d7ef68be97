"""What can go wrong. Every message is one line that says where."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import Results


class SimError(Exception):
    """The common base of all errors of this package."""


class ScenarioError(SimError, ValueError):
    """A scenario, a system, a grid or another argument makes no sense; nothing was run."""


class RunError(SimError):
    """A class of your own raised or answered nonsense, or the runs had to end early.

    `__cause__` is what the class raised, if it did.
    """

    def __init__(self, message: str, results: Results | None = None) -> None:
        super().__init__(message)
        self.results: Results | None = results
        """The runs that were done before, as :class:`Results`; of a sweep they are in its directory."""
