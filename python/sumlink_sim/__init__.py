"""Bonded network links in virtual time: the simulator of sumlink.

It runs the daemon's engine over a model of TCP over emulated links; the same seed gives identical
results. :func:`run` runs a scenario, :func:`sweep` a grid of them. Both accept schedulers and
congestion controls that are Python classes (:class:`Scheduler`, :class:`CongestionControl`), and
return :class:`Results`, which are pandas frames. :mod:`~sumlink_sim.mmwave` has the experiments with
the initial access of 60 GHz Wi-Fi.
"""

from . import mmwave
from ._native import Ack, Flight, Path, Stream, View
from ._native import congestion_names, scheduler_names
from ._native import version as __version__
from .errors import RunError, ScenarioError, SimError
from .own import CongestionControl, Pick, Scheduler
from .results import Results
from .running import run
from .scenario import Scenario
from .sweep import Sweep, sweep

__all__ = [
    "Ack",
    "CongestionControl",
    "Flight",
    "Path",
    "Pick",
    "Results",
    "RunError",
    "Scenario",
    "ScenarioError",
    "Scheduler",
    "SimError",
    "Stream",
    "Sweep",
    "View",
    "__version__",
    "congestion_names",
    "mmwave",
    "run",
    "scheduler_names",
    "sweep",
]
