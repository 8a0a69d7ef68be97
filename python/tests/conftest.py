"""Scenarios that take milliseconds, and classes that behave well and badly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def two() -> dict[str, Any]:
    """Two links, 15 Mbit/s together, one of them with losses."""
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
    """The program in Rust, which `make test-python` builds before."""
    path = Path(os.environ.get("SUMLINK_LAB", ROOT / "target/debug/sumlink-lab"))
    assert path.exists(), f"{path} is missing: cargo build -p sumlink-lab-cli, or say in SUMLINK_LAB where it is"
    return path
