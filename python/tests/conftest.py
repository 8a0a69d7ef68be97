"""Scenarios that take milliseconds, and the path of the program."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A shell without job control starts background jobs with SIGINT ignored, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def two() -> dict[str, Any]:
    """Two links with 15 Mbit/s in total, one with losses."""
    return {
        "name": "two",
        "duration": "2s",
        "warmup": "1s",
        "seeds": 2,
        "systems": ["alone", "sumlink:fbdt"],
        "link": [
            {"name": "wifi", "rate": "10mbit", "delay": "5ms", "loss": "0.5%"},
            {"name": "lte", "down": "5mbit", "up": "2mbit", "delay": {"down": "30ms", "up": "25ms"}},
        ],
    }


@pytest.fixture
def program() -> Path:
    """The Rust program, which `make test-python` builds first."""
    path = Path(os.environ.get("SUMLINK_LAB", ROOT / "target/debug/sumlink-lab"))
    assert path.exists(), f"{path} is missing; run cargo build -p sumlink-lab-cli, or set SUMLINK_LAB to its path"
    return path
