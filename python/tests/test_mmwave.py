"""60 GHz Wi-Fi's initial access: the frames match the program's output."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT

import sumlink_sim as sim
from sumlink_sim import mmwave

CELL = {"stations": 4, "intervals": 20}


def program_output(program: Path, file: Path) -> pd.DataFrame:
    """Output of `sumlink-lab mmwave run` for a file."""
    command = [program, "mmwave", "run", file, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return pd.DataFrame(json.loads(done.stdout)["points"])


def test_fairness_matches_the_program(program: Path, tmp_path: Path) -> None:
    frame = mmwave.jain([0.1, 0.5], ["80211ad", "jpoc"], 3, cell=CELL)
    assert list(frame.columns) == ["scheme", "blockage", "seed", "jain", "failure", "goodput_mbps"]
    assert len(frame) == 2 * 2 * 3 and frame["jain"].between(0.25, 1).all()
    file = tmp_path / "jain.toml"
    cell = "[cell]\nstations = 4\nintervals = 20\n"
    file.write_text(f'name = "j"\nkind = "jain"\nblockage = [0.1, 0.5]\nschemes = ["80211ad", "jpoc"]\nseeds = 3\n{cell}')
    mean = frame.groupby(["scheme", "blockage"])["jain"].mean()
    expected = program_output(program, file).set_index(["scheme", "blockage"])["jain"]
    # Results are printed with six digits.
    assert mean.to_dict() == pytest.approx(expected.to_dict(), rel=1e-5)
    again = mmwave.jain([0.1, 0.5], ["80211ad", "jpoc"], [1, 2, 3], cell=CELL, jobs=1)
    pd.testing.assert_frame_equal(again, frame)


def test_mini_slots_match_the_program(program: Path, tmp_path: Path) -> None:
    frame = mmwave.overhead([2, 6], ["80211-thesis", "jpoc"], 2, cell={"intervals": 10})
    file = tmp_path / "overhead.toml"
    head = 'name = "o"\nkind = "overhead"\nstations = [2, 6]\nschemes = ["80211-thesis", "jpoc"]\nseeds = 2\n'
    file.write_text(f"{head}[cell]\nintervals = 10\n")
    expected = program_output(program, file)
    pd.testing.assert_frame_equal(frame, expected[list(frame.columns)].astype(frame.dtypes.to_dict()))


def test_many_stations_fail_more_often() -> None:
    frame = mmwave.stations([1, 12], ["80211-thesis"], 2, cell={"intervals": 30})
    assert list(frame.columns[:4]) == ["scheme", "stations", "seed", "jain"]
    mean = frame.groupby("stations")[["failure", "first_90_s"]].mean()
    assert mean.loc[12, "failure"] > mean.loc[1, "failure"] and (mean["first_90_s"] > 0).all()
    with pytest.raises(sim.ScenarioError, match="is varied by an experiment of kind"):
        mmwave.stations([1], ["jpoc"], 1, cell={"stations": 2})


def test_walking_clients_train_more_often() -> None:
    cell = {"stations": 3, "intervals": 300, "blockage": 0.0}
    frame = mmwave.mobility([0.0, 1.4], ["jpoc"], 2, cell=cell)
    mean = frame.groupby("speed_mps")["attempts_per_minute"].mean()
    assert mean[1.4] > mean[0.0]
    assert frame["seed"].tolist() == [1, 2, 1, 2]


def test_the_office_and_its_beams() -> None:
    heat = mmwave.heat_map(4.0, draws=3)
    assert heat.shape == (4, 6) and heat.index[0] == 1 and heat.columns[-1] == 6
    beams = mmwave.good_beams([None, 4.0], draws=2)
    counts = beams.groupby("gamma_db", dropna=False)["good_beams"].agg(["size", "mean"])
    assert len(counts) == 2 and counts["size"].nunique() == 1
    assert counts.loc[4.0, "mean"] < counts["mean"].max()


@pytest.fixture
def wigig() -> dict[str, Any]:
    """Two slow links, one of them a station of a cell."""
    return {
        "name": "wigig",
        "duration": "3s",
        "warmup": "1s",
        "seeds": 2,
        "link": [
            {"name": "wifi", "rate": "5mbit", "delay": "2ms"},
            {"name": "wigig", "profile": "mmwave", "access": "jpoc", "stations": 1, "scale": 0.02},
        ],
    }


def test_a_bond_has_a_row_for_each_run(wigig: dict[str, Any], tmp_path: Path) -> None:
    frame = mmwave.bond(wigig, ["80211ad", "jpoc"], [0, 2], ["sumlink:fbdt", "alone"], out=tmp_path / "out")
    assert list(frame.columns) == ["access", "stations", "system", "seed", "goodput_mbps", "longest_gap_s"]
    assert len(frame) == 2 * 2 * 2 * 2 and frame["goodput_mbps"].notna().all()
    assert frame["longest_gap_s"].between(0, 2 + 1e-9).all()
    alone = frame[frame["system"] == "alone"]
    # The link alone, not both in sequence.
    run = sim.run({**wigig, "link": [*wigig["link"]]}, ["alone"], [2])
    flow = run.flows[run.flows["link"] == "wigig"]["goodput_bps"].item() / 1e6
    same = mmwave.bond(wigig, ["jpoc"], [1], ["alone"], [2])
    assert same["goodput_mbps"].item() == pytest.approx(flow)
    bonded = frame[frame["system"] == "sumlink:fbdt"]
    assert bonded["goodput_mbps"].mean() > alone["goodput_mbps"].mean()
    assert bonded["longest_gap_s"].mean() < alone["longest_gap_s"].mean()
    assert (sim.Sweep(tmp_path / "out").runs["outcome"] == "measured").all()


def test_plots_have_a_line_for_each_scheme() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    frame = mmwave.jain([0.1, 0.5], ["80211ad", "jpoc"], 2, cell=CELL)
    axes = mmwave.plot(frame, "jain")
    assert [line.get_label() for line in axes.get_lines()] == ["80211ad", "jpoc"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("blockage", "jain")
    with pytest.raises(sim.ScenarioError, match="no column 'rate'"):
        mmwave.plot(frame, "rate")
    heat = mmwave.plot_heat_map(mmwave.heat_map(4.0, draws=2))
    assert len(heat.texts) == 4 * 6
    larger = mmwave.plot_heat_map(mmwave.heat_map(4.0, draws=2) + 1.5)
    assert larger.images[0].norm.vmax == larger.images[0].get_array().max(), "the scale covers its values"
    beams = mmwave.plot_good_beams(mmwave.good_beams([None, 4.0], draws=2))
    assert [line.get_label() for line in beams.get_lines()] == ["no power control", "gamma 4 dB"]
    assert all(line.get_ydata()[-1] == pytest.approx(1) for line in beams.get_lines())


def test_a_cluster_computes_the_same_points() -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0", host="127.0.0.1"
    ) as cluster:
        there = mmwave.jain([0.3], ["jpoc"], 2, cell=CELL, dask=cluster.scheduler_address)
    pd.testing.assert_frame_equal(there, mmwave.jain([0.3], ["jpoc"], 2, cell=CELL))


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: mmwave.jain([1.5], ["jpoc"], 1, cell=CELL), "blockage probability is 1.5"),
        (lambda: mmwave.jain([]), "blockage: .*list of numbers"),
        (lambda: mmwave.jain(0.5), "blockage: give a list"),
        (lambda: mmwave.jain([0.1], "jpoc"), "schemes: give a list"),
        (lambda: mmwave.jain([0.1], ["wimax"]), "is not an access scheme"),
        (lambda: mmwave.jain([0.1], seeds=0), "seeds: 0"),
        (lambda: mmwave.jain([0.1], cell={"station": 4}), "no key 'station'"),
        (lambda: mmwave.jain([0.1], ["jpoc"], 1, cell={"stations": 0}), "clients of the cell is 0"),
        (lambda: mmwave.jain([0.1], jobs=0), "jobs: 0"),
        (lambda: mmwave.overhead([2.5]), "whole numbers"),
        (lambda: mmwave.mobility([-1.0], ["jpoc"], 1, cell=CELL), "speed in m/s is -1"),
        (lambda: mmwave.heat_map(sectors=37), "36 or 64"),
        (lambda: mmwave.heat_map(room="hall"), "not one of inh, tgad"),
        (lambda: mmwave.bond(ROOT / "scenarios/unequal-queue.toml"), "one of its links must have"),
    ],
)
def test_invalid_arguments_are_errors(call: Any, reason: str) -> None:
    with pytest.raises(sim.ScenarioError, match=reason):
        call()
