"""Errors. Every message is one line that names the place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import Results


class SimError(Exception):
    """The common base of all errors of this package."""


class ScenarioError(SimError, ValueError):
    """An invalid scenario, system, grid or other argument; nothing was run."""


class RunError(SimError):
    """A custom class raised an exception or returned an invalid value, or the runs ended early.

    `__cause__` is the exception of the class, if any.
    """

    def __init__(self, message: str, results: Results | None = None) -> None:
        super().__init__(message)
        self.results: Results | None = results
        """The completed runs as :class:`Results`; those of a sweep are in its directory."""
