"""Scenarios from files and dicts."""

from __future__ import annotations

import pickle
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import sumlink_sim as sim


def test_a_dict_equals_the_file(two: dict[str, Any], tmp_path: Path) -> None:
    scenario = sim.Scenario(two)
    assert scenario.document == two
    assert scenario.links == {"wifi": (10e6, 10e6), "lte": (5e6, 2e6)}
    assert (scenario.name, scenario.seeds, scenario.duration, scenario.warmup) == ("two", 2, 2.0, 1.0)
    file = tmp_path / "two.toml"
    file.write_text(scenario._text)
    assert sim.Scenario.load(file).sha256 == scenario.sha256


def test_every_scenario_survives_a_round_trip_through_a_dict() -> None:
    files = sorted((ROOT / "scenarios").glob("*.toml"))
    assert len(files) > 10
    for file in files:
        loaded = sim.Scenario.load(file)
        again = sim.Scenario(loaded.document, directory=file.parent)
        assert again.document == tomllib.loads(file.read_text()) and again.links == loaded.links


def test_set_returns_a_copy_with_other_values(two: dict[str, Any]) -> None:
    scenario = sim.Scenario(two)
    other = scenario.set({"link.wifi.rate": "50mbit", "workload.kind": "requests", "congestion": "reno"})
    assert other.links["wifi"] == (50e6, 50e6) and scenario.links["wifi"] == (10e6, 10e6)
    assert other.document["workload"] == {"kind": "requests"} and other.sha256 != scenario.sha256


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("link.wifi.rate", "0.5 parsecs", "two with link.wifi.rate=0.5 parsecs: link.wifi.rate: "),
        ("link.wifi.rate", "900gbit", "two with link.wifi.rate=900gbit: link.wifi.rate: "),
        ("link.wimax.rate", "1mbit", r"link.wimax.rate: no link.wimax \(available: wifi, lte\)"),
        ("link.wifi.color", "red", r"link.wifi.color: .*has no key 'color'"),
        ("speed", 3, "speed: the scenario has no key 'speed'"),
        ("link", [], "two with link="),
        ("duration.of", "1s", "duration.of: duration has no keys"),
        ("congestion", object, "congestion: <class 'object'> must be text"),
    ],
)
def test_errors_name_the_key(two: dict[str, Any], key: str, value: Any, reason: str) -> None:
    with pytest.raises(sim.ScenarioError, match=reason) as caught:
        sim.Scenario(two).set({key: value})
    assert "\n" not in str(caught.value)


def test_errors_in_a_recording_name_its_line(two: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "cell.trace").write_text("2\n4\nsix\n")
    links = [{"name": "cell", "trace": "cell.trace", "delay": "5ms"}]
    with pytest.raises(sim.ScenarioError, match="cell.trace:3: "):
        sim.Scenario({**two, "link": links}, directory=tmp_path)
    (tmp_path / "cell.trace").write_text("2\n4\n6\n")
    scenario = sim.Scenario({**two, "link": links}, directory=tmp_path)
    assert sim.run(scenario.set({"link.cell.delay": "9ms"}), ["alone"], 1).runs["goodput_bps"][0] > 4e6


def test_errors_in_files_name_the_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('name = "bad"\nduration = "10 parsecs"\n[[link]]\nname = "lo"\nrate = "1mbit"\n')
    with pytest.raises(sim.ScenarioError, match=r"bad.toml:2: duration: .*; .*bad.toml:4: name: "):
        sim.Scenario.load(file)
    with pytest.raises(FileNotFoundError):
        sim.Scenario.load(tmp_path / "none.toml")


def test_scenarios_can_be_pickled(two: dict[str, Any]) -> None:
    for scenario in (sim.Scenario(two), sim.Scenario.load(ROOT / "scenarios/unequal-queue.toml")):
        assert pickle.loads(pickle.dumps(scenario)).sha256 == scenario.sha256
